// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets as a datagram port takes them and hands them out: their ways, and the trains that go
//! out.

use crate::AddressVector;

/// The facts about a packet's way in its IP and UDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Source, destination and the like, by IP.
    pub address: AddressVector,
    /// The UDP port that it leaves from; any (ROCE-141).
    pub source_port: u16,
    /// The UDP port that it goes to: [`Self::PORT`] (ROCE-001), except between ends of our own
    /// kind.
    pub destination_port: u16,
}

impl Path {
    /// UDP port of RoCE v2 (ROCE-001).
    pub const PORT: u16 = 4791;

    /// The way to the well-known port.
    pub const fn new(address: AddressVector, source_port: u16) -> Self {
        Self { address, source_port, destination_port: Self::PORT }
    }

    /// True if the network has marked a packet that came this way: it met congestion (CE, RFC 3168
    /// §5).
    #[inline]
    pub const fn is_marked(&self) -> bool {
        self.address.traffic_class & 0b11 == 0b11
    }
}

/// The identifications that the port gives to IPv4 packets that the kernel cuts from one send
/// (`UDP_SEGMENT`). Sent from an unconnected socket without fragmentation, the first has 0
/// (ROCE-026).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// Each next one has one more (ROCE-027).
    Counted,
    /// Every packet is sent by itself, so all have 0.
    Zero,
}

/// Packets that go one way in one send: all as long as the first, but the last, which may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct OutboundTrain<'a> {
    /// Their way.
    pub path: &'a Path,
    /// Octets of the first packet, behind the UDP header.
    pub segment: usize,
    /// The number of packets.
    pub packets: usize,
    /// All of their octets.
    pub octets: &'a [u8],
}

/// Packets that are to be sent, in the order of their trains.
pub trait Trains {
    /// The identifications that IPv4 packets of one train have to get.
    fn numbering(&self) -> Numbering;

    /// The train with that index; `None` behind the last.
    fn train(&self, index: usize) -> Option<OutboundTrain<'_>>;
}
