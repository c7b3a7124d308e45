// SPDX-License-Identifier: MIT OR Apache-2.0

//! The headers of packets that are made up around bytes of a stream, and around datagrams.

use std::net::{IpAddr, SocketAddr};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;
const DONT_FRAGMENT: u16 = 0x4000;
const HOPS: u8 = 64;

/// Most bytes of the payload of one packet: with its headers it has a length that IPv4 can say.
pub(super) const MOST: usize = 65_535 - IPV6_HEADER - TCP_HEADER;

/// The way of a packet, and the fields of its IP header that matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    /// Of IPv4.
    pub(super) identification: u16,
}

impl Way {
    pub(super) fn new(from: SocketAddr, to: SocketAddr) -> Self {
        Self { from, to, traffic_class: 0, flow_label: 0, hop_limit: HOPS, identification: 0 }
    }

    /// Appends the IP header of a packet with so many bytes behind it. Of addresses of both kinds
    /// IPv4's become IPv6's.
    fn put_ip(&self, to: &mut Vec<u8>, protocol: u8, len: usize) {
        match (self.from.ip().to_canonical(), self.to.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = (20 + len).min(u16::MAX.into()) as u16;
                let mut header = [0; 20];
                header[..2].copy_from_slice(&[0x45, self.traffic_class]);
                header[2..4].copy_from_slice(&total.to_be_bytes());
                header[4..6].copy_from_slice(&self.identification.to_be_bytes());
                header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                header[8..10].copy_from_slice(&[self.hop_limit, protocol]);
                header[12..16].copy_from_slice(&source.octets());
                header[16..].copy_from_slice(&destination.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                to.extend_from_slice(&header);
            }
            (source, destination) => {
                let label = self.flow_label & 0xf_ffff;
                let first = 6 << 28 | u32::from(self.traffic_class) << 20 | label;
                to.extend(first.to_be_bytes());
                to.extend((len.min(u16::MAX.into()) as u16).to_be_bytes());
                to.extend([protocol, self.hop_limit]);
                for ip in [source, destination] {
                    to.extend(match ip {
                        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                        IpAddr::V6(ip) => ip.octets(),
                    });
                }
            }
        }
    }

    /// Bytes of the headers before the payload of a TCP segment.
    pub(super) fn tcp_headers(&self) -> usize {
        self.ip_header() + TCP_HEADER
    }

    /// Likewise of a UDP datagram.
    pub(super) fn udp_headers(&self) -> usize {
        self.ip_header() + UDP_HEADER
    }

    fn ip_header(&self) -> usize {
        let ends = [self.from, self.to];
        if ends.iter().all(|end| end.ip().to_canonical().is_ipv4()) { 20 } else { IPV6_HEADER }
    }

    /// Appends IP and TCP headers. The checksum is left out, as where a card puts it in.
    pub(super) fn put_tcp(&self, to: &mut Vec<u8>, numbers: [u32; 2], flags: u8, len: usize) {
        self.put_ip(to, TCP, TCP_HEADER + len);
        let [sequence, acknowledged] = numbers;
        let mut header = [0; TCP_HEADER];
        header[..2].copy_from_slice(&self.from.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        header[12..16].copy_from_slice(&[5 << 4, flags, 0xff, 0xff]);
        to.extend_from_slice(&header);
    }

    /// Appends IP and UDP headers. The checksum is left out, as RoCE v2 may.
    pub(super) fn put_udp(&self, to: &mut Vec<u8>, len: usize) {
        self.put_ip(to, UDP, UDP_HEADER + len);
        to.extend(self.from.port().to_be_bytes());
        to.extend(self.to.port().to_be_bytes());
        to.extend(((UDP_HEADER + len).min(u16::MAX.into()) as u16).to_be_bytes());
        to.extend([0; 2]);
    }
}

/// The checksum of an IPv4 header whose own is 0.
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn headers_have_the_lengths_that_are_said() {
        for (from, to) in [
            ("1.2.3.4:5", "6.7.8.9:10"),
            ("[::1]:5", "[::2]:10"),
            ("[::ffff:1.2.3.4]:5", "6.7.8.9:10"),
            ("[::1]:5", "6.7.8.9:10"),
        ] {
            let way = Way::new(end(from), end(to));
            let mut tcp = Vec::new();
            way.put_tcp(&mut tcp, [1, 2], SYN, 3);
            assert_eq!(tcp.len(), way.tcp_headers());
            let mut udp = Vec::new();
            way.put_udp(&mut udp, 3);
            assert_eq!(udp.len(), way.udp_headers());
        }
    }

    /// The example of RFC 1071's readers: the sum of a right header is 0.
    #[test]
    fn the_checksum_of_a_header_with_it_is_0() {
        let way = Way::new(end("1.2.3.4:5"), end("6.7.8.9:10"));
        let mut packet = Vec::new();
        way.put_udp(&mut packet, 100);
        assert_eq!(checksum(&packet[..20]), 0);
        assert_eq!(packet[2..4], [0, 128]);
    }
}
