// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures made packet by packet.

pub(crate) mod datagrams;
pub(crate) mod frames;
pub(crate) mod stream;

use iwarp_explain::{Connection, Outcome, Report, Settings, explain};

/// The link layer of packets that begin with their IP header.
pub(crate) const RAW: u32 = 101;

/// A packet with its time in microseconds.
pub(crate) type Stamped = (u64, Vec<u8>);

/// A pcap file of packets, each kept up to `snap` bytes.
pub(crate) fn pcap(link: u32, packets: &[Stamped], snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 0x0004_0000, link] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    for (at, packet) in packets {
        let kept = &packet[..packet.len().min(snap)];
        for word in [at / 1_000_000, at % 1_000_000, kept.len() as u64, packet.len() as u64] {
            file.extend_from_slice(&(word as u32).to_be_bytes());
        }
        file.extend_from_slice(kept);
    }
    file
}

/// The report of packets of bare IP.
pub(crate) fn report(packets: &[Stamped]) -> Report {
    explain(&pcap(RAW, packets, usize::MAX)[..], &Settings::default()).unwrap()
}

/// The only connection of a report.
pub(crate) fn only(report: &Report) -> &Connection {
    let [connection] = &report.connections[..] else {
        panic!("{}", iwarp_explain::text::text(report));
    };
    connection
}

/// The end that began each operation, its kind, messages and bytes.
pub(crate) fn operations(connection: &Connection) -> Vec<(usize, &str, u64, u64)> {
    let of = connection.operations.iter();
    of.map(|one| (one.by, one.kind.as_str(), one.messages, one.bytes)).collect()
}

/// Asserts that nothing is wrong with the only connection.
#[track_caller]
pub(crate) fn assert_fine(packets: &[Stamped]) -> Report {
    let report = report(packets);
    let text = iwarp_explain::text::text(&report);
    assert_eq!(only(&report).verdict.outcome, Outcome::Fine, "{text}");
    report
}

/// Asserts the outcome of the only connection: the kind of the finding, and words in the verdict.
#[track_caller]
pub(crate) fn assert_found(packets: &[Stamped], outcome: Outcome, kind: &str, words: &[&str]) {
    let report = report(packets);
    let text = iwarp_explain::text::text(&report);
    let verdict = &only(&report).verdict;
    assert_eq!((verdict.outcome, verdict.kind), (outcome, Some(kind)), "{text}");
    for word in words {
        assert!(verdict.text.contains(word), "{word:?} is not in {:?}", verdict.text);
    }
}

/// An IPv4 header in front of a payload, from 10.0.0.1 (end 0) or 10.0.0.2.
pub(crate) fn ip(from: usize, protocol: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0]);
    let (source, destination) = if from == 0 { (1, 2) } else { (2, 1) };
    packet.extend_from_slice(&[10, 0, 0, source, 10, 0, 0, destination]);
    packet.extend_from_slice(payload);
    packet
}
