// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from the IP header on, taken apart and put together by what the RFCs of IP and UDP say.

use std::net::IpAddr;
use std::path::{Path as FilePath, PathBuf};

use iwarp_roce::wire::icrc::Identification;
use iwarp_roce::wire::{Header, Packet, Path, padding};
use iwarp_types::AddressVector;

/// A file of recorded packets.
pub(crate) fn data(name: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A datagram and what the headers before it say.
pub(crate) struct Frame {
    pub(crate) path: Path,
    pub(crate) id: Identification,
    pub(crate) datagram: Vec<u8>,
}

const UDP_LEN: usize = 8;

impl Frame {
    pub(crate) fn parse(octets: &[u8]) -> Self {
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let (mut address, udp, id);
        if octets[0] == 0x45 {
            let ip = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&octets[at..at + 4]).unwrap());
            address = AddressVector::new(ip(12), ip(16));
            (address.traffic_class, address.hop_limit) = (octets[1], octets[8]);
            id = Identification { number: word(4), may_fragment: octets[6] & 0x40 == 0 };
            assert_eq!((usize::from(word(2)), octets[9]), (octets.len(), 17));
            udp = 20;
        } else {
            let ip = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&octets[at..at + 16]).unwrap());
            address = AddressVector::new(ip(8), ip(24));
            let first = u32::from(word(0)) << 16 | u32::from(word(2));
            assert_eq!(first >> 28, 6);
            (address.traffic_class, address.flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
            address.hop_limit = octets[7];
            id = Identification::default();
            assert_eq!((usize::from(word(4)), octets[6]), (octets.len() - 40, 17));
            udp = 40;
        }
        let path = Path { address, source_port: word(udp), destination_port: word(udp + 2) };
        assert_eq!(usize::from(word(udp + 4)), octets.len() - udp);
        Self { path, id, datagram: octets[udp + UDP_LEN..].to_vec() }
    }

    /// Without checksums.
    pub(crate) fn octets(&self) -> Vec<u8> {
        let address = &self.path.address;
        let udp_len = (UDP_LEN + self.datagram.len()) as u16;
        let mut octets = Vec::new();
        match (address.source, address.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                octets.extend([0x45, address.traffic_class]);
                octets.extend((20 + udp_len).to_be_bytes());
                octets.extend(self.id.number.to_be_bytes());
                octets.extend([if self.id.may_fragment { 0 } else { 0x40 }, 0]);
                octets.extend([address.hop_limit, 17, 0, 0]);
                octets.extend(source.octets());
                octets.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let class = u32::from(address.traffic_class) << 20;
                octets.extend((6 << 28 | class | address.flow_label).to_be_bytes());
                octets.extend(udp_len.to_be_bytes());
                octets.extend([17, address.hop_limit]);
                octets.extend(source.octets());
                octets.extend(destination.octets());
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        octets.extend(self.path.source_port.to_be_bytes());
        octets.extend(self.path.destination_port.to_be_bytes());
        octets.extend(udp_len.to_be_bytes());
        octets.extend([0, 0]);
        octets.extend(&self.datagram);
        octets
    }
}

/// A packet's octets up to its ICRC, built anew.
pub(crate) fn rebuild(packet: &Packet<'_>) -> Vec<u8> {
    let mut octets = vec![0; Header::MAX_LEN];
    let len = packet.header.write(packet.payload.len(), &mut octets);
    octets.truncate(len);
    octets.extend(packet.payload);
    octets.resize(octets.len() + padding(packet.payload.len()), 0);
    octets
}

/// The octets up to the ICRC without the ignored bits: reserved ones, and the unused Compare of a
/// fetch and add.
pub(crate) fn without_the_ignored(octets: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets[4] &= 0xc0;
    octets[8] &= 0x80;
    match octets[0] {
        0x14 => octets[32..40].fill(0),
        0x64 | 0x65 => octets[16] = 0,
        _ => {}
    }
    octets
}
