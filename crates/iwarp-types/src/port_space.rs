// SPDX-License-Identifier: MIT OR Apache-2.0

//! Port spaces of the connection manager.

/// Port space of `rdma_cm`, by whose number and a port a service is known (ROCE-151).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// `RDMA_PS_IPOIB`: datagrams.
    Ipoib = 0x0002,
    /// `RDMA_PS_TCP`: connections.
    Tcp = 0x0106,
    /// `RDMA_PS_UDP`: datagrams.
    Udp = 0x0111,
    /// `RDMA_PS_IB`: any type of queue pair, and not always the header with IP addresses.
    Ib = 0x013f,
}

impl PortSpace {
    /// The port space of reliable connections.
    pub const CONNECTIONS: Self = Self::Tcp;
    /// The port space of datagram services.
    pub const DATAGRAMS: Self = Self::Udp;

    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];
}
