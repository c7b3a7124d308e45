// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frames of a connection, as a capture that Wireshark and tshark read.
//!
//! The tester sees a stream, not packets, so the packets are made up: one for each thing that was
//! sent or came, with the true addresses, ports, order and times.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::link::{Record, What};

/// "Raw IP": packets begin with their IP header.
const LINKTYPE_RAW: u16 = 101;
/// Most bytes of a stream in one packet.
const MOST: usize = 60_000;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// The capture of a connection; `comment` is what it is about.
pub fn capture(record: &Record, comment: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let mut section = vec![];
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend([1, 0, 0, 0]);
    section.extend(u64::MAX.to_le_bytes());
    option(&mut section, 1, comment.as_bytes());
    option(&mut section, 0, &[]);
    block(&mut file, 0x0a0d_0d0a, &section);
    let mut interface = LINKTYPE_RAW.to_le_bytes().to_vec();
    interface.extend([0; 6]);
    block(&mut file, 1, &interface);

    let last = record.events.last().map_or(Duration::ZERO, |event| event.at);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = now.saturating_sub(last);
    let mut flow = Flow { file, record, next: [1000, 500_000] };
    let (first, second) = if record.connected { (true, false) } else { (false, true) };
    flow.packet(begun, first, SYN, &[]);
    flow.packet(begun, second, SYN | ACK, &[]);
    flow.packet(begun, first, ACK, &[]);
    for event in &record.events {
        let at = begun + event.at;
        match &event.what {
            What::Bytes(bytes) => {
                for piece in bytes.chunks(MOST) {
                    flow.packet(at, event.sent, PSH | ACK, piece);
                }
            }
            What::Fin => flow.packet(at, event.sent, FIN | ACK, &[]),
            What::Reset => flow.packet(at, event.sent, RST | ACK, &[]),
        }
    }
    flow.file
}

struct Flow<'a> {
    file: Vec<u8>,
    record: &'a Record,
    /// The next sequence number of this end, and of the peer.
    next: [u32; 2],
}

impl Flow<'_> {
    fn packet(&mut self, at: Duration, sent: bool, flags: u8, data: &[u8]) {
        let (here, there) = (self.record.here, self.record.there);
        let (from, to) = if sent { (here, there) } else { (there, here) };
        let (own, other) = if sent { (0, 1) } else { (1, 0) };
        let acknowledged = if flags & ACK == 0 { 0 } else { self.next[other] };
        let mut tcp = from.port().to_be_bytes().to_vec();
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(self.next[own].to_be_bytes());
        tcp.extend(acknowledged.to_be_bytes());
        tcp.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(data);
        let counts = data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.next[own] = self.next[own].wrapping_add(counts);
        let packet = ip(from, to, tcp);

        let micros = at.as_micros() as u64;
        let mut block_body = 0_u32.to_le_bytes().to_vec();
        block_body.extend(((micros >> 32) as u32).to_le_bytes());
        block_body.extend((micros as u32).to_le_bytes());
        block_body.extend((packet.len() as u32).to_le_bytes());
        block_body.extend((packet.len() as u32).to_le_bytes());
        block_body.extend(&packet);
        pad(&mut block_body);
        block(&mut self.file, 6, &block_body);
    }
}

/// An IP packet with a TCP segment, whose checksum is put in.
fn ip(from: SocketAddr, to: SocketAddr, mut tcp: Vec<u8>) -> Vec<u8> {
    let len = tcp.len() as u16;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut pseudo = [from.octets(), to.octets()].concat();
            pseudo.extend([0, 6]);
            pseudo.extend(len.to_be_bytes());
            put_checksum(&mut tcp, &pseudo);
            let mut packet = vec![0x45, 0];
            packet.extend((20 + len).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(tcp);
            packet
        }
        (from, to) => {
            let [from, to] = [from, to].map(|ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            });
            let mut pseudo = [from, to].concat();
            pseudo.extend(u32::from(len).to_be_bytes());
            pseudo.extend([0, 0, 0, 6]);
            put_checksum(&mut tcp, &pseudo);
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(len.to_be_bytes());
            packet.extend([6, 64]);
            packet.extend(from);
            packet.extend(to);
            packet.extend(tcp);
            packet
        }
    }
}

fn put_checksum(tcp: &mut [u8], pseudo: &[u8]) {
    let sum = checksum(&[pseudo, tcp].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    pad(bytes);
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (body.len() as u32 + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(len);
    file.extend(body);
    file.extend(len);
}
