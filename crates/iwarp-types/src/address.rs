// SPDX-License-Identifier: MIT OR Apache-2.0

//! Destinations of datagrams.

use core::net::IpAddr;

/// Address vector: how the packets of a queue pair, or of one datagram, reach their destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// The address that they leave from: that of a GID of the device's.
    pub source: IpAddr,
    /// The address that they go to, of the same family.
    pub destination: IpAddr,
    /// IPv6 flow label, 20 bits; 0 says nothing.
    pub flow_label: u32,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// Time to live, or hop limit; 0 and 1 stand for the system's default.
    pub hop_limit: u8,
}

impl AddressVector {
    /// The vector from one address to another with nothing special about it.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Self {
        Self { source, destination, flow_label: 0, traffic_class: 0, hop_limit: 0 }
    }
}

/// Global identifier (GID) of an address: its 16 octets, of IPv4 those of `::ffff:a.b.c.d`.
pub const fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    /// The way to its host.
    pub address: AddressVector,
    /// The queue pair there; 24 bits.
    pub qp: u32,
    /// The Q_Key of that queue pair. With its top bit set the sender's own goes out instead.
    pub qkey: u32,
}
