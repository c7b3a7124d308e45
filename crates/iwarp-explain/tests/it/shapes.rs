// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files and link layers of other shapes.

use std::time::Duration;

use iwarp_explain::{FileError, Outcome, Report, Settings, explain, text};
use iwarp_roce::wire::Position;

use crate::made::datagrams::{Datagrams, MTU};
use crate::made::frames::{self, fpdu};
use crate::made::stream::Stream;
use crate::made::{RAW, Stamped, only, pcap};

fn stream() -> Vec<Stamped> {
    let mut stream = Stream::started();
    for msn in 1..5 {
        stream.send(0, &fpdu(&frames::send(msn, &[7; 700])));
        stream.send(1, &fpdu(&frames::send(msn, &[7; 20])));
    }
    stream.close();
    stream.packets
}

fn read(file: &[u8]) -> Report {
    explain(file, &Settings { frames: true, ..Settings::default() }).unwrap()
}

#[track_caller]
fn assert_sends(report: &Report, messages: u64) {
    let text = text::text(report);
    assert_eq!(only(report).verdict.outcome, Outcome::Fine, "{text}");
    let sent: u64 = only(report).operations.iter().map(|operation| operation.messages).sum();
    assert_eq!(sent, messages, "{text}");
}

#[test]
fn link_layers_lead_to_ip() {
    let shapes: [(u32, Vec<u8>); 5] = [
        (1, [&[0; 12][..], &[0x08, 0x00]].concat()),
        (1, [&[0; 12][..], &[0x81, 0x00, 0, 5, 0x08, 0x00]].concat()),
        (113, [&[0; 14][..], &[0x08, 0x00]].concat()),
        (276, [&[0x08, 0x00][..], &[0; 18]].concat()),
        (0, vec![2, 0, 0, 0]),
    ];
    for (link, head) in shapes {
        let packets: Vec<Stamped> =
            stream().into_iter().map(|(at, ip)| (at, [&head[..], &ip].concat())).collect();
        assert_sends(&read(&pcap(link, &packets, usize::MAX)), 8);
    }
}

#[test]
fn cut_packets_leave_crcs_unverified() {
    for snap in [128, 96] {
        let report = read(&pcap(RAW, &stream(), snap));
        assert_sends(&report, 8);
        assert!(text::text(&report).contains("CRC unverified"), "{}", text::text(&report));
    }
    let mut all = Datagrams::connected();
    all.write(0, crate::made::datagrams::FIRST[0], 1000);
    all.ack(1, crate::made::datagrams::FIRST[0]);
    let report = read(&pcap(RAW, &all.packets, 100));
    assert_eq!(only(&report).operations[0].bytes, 1000);
    assert!(text::text(&report).contains("ICRC unverified"), "{}", text::text(&report));
}

#[test]
fn cut_headers_accuse_no_end() {
    let mut all = Datagrams::connected();
    let psn = crate::made::datagrams::FIRST[1];
    all.read(1, psn, 2000);
    all.response(0, psn, Position::First, MTU);
    all.response(0, psn + 1, Position::Last, 2000 - MTU);
    all.write(1, psn + 2, 3000);
    all.ack(0, psn + 4);
    // Enough for the base header alone.
    let report = read(&pcap(RAW, &all.packets, 20 + 8 + 12));
    let text = text::text(&report);
    // No whole answer shows that the two directions belong together.
    for connection in &report.connections {
        assert_eq!(connection.verdict.outcome, Outcome::Fine, "{text}");
    }
    assert!(text.contains("headers are cut by the snap length"), "{text}");
    assert!(text.contains("fine, as far as the capture shows"), "{text}");
    let report = read(&pcap(RAW, &stream(), 50));
    assert!(report.connections.is_empty());
    assert!(text::text(&report).contains("cannot be told"), "{}", text::text(&report));
}

#[test]
fn packets_captured_twice_count_once() {
    let twice: Vec<Stamped> =
        stream().into_iter().flat_map(|one| [one.clone(), (one.0 + 3, one.1)]).collect();
    let report = read(&pcap(RAW, &twice, usize::MAX));
    assert_sends(&report, 8);
    assert_eq!(report.other.doubled as usize, twice.len() / 2);
}

/// A pcapng file with nanoseconds.
fn pcapng(packets: &[Stamped]) -> Vec<u8> {
    let packets: Vec<_> = packets.iter().map(|packet| (0, packet)).collect();
    pcapng_of(&[""], &packets)
}

/// One with interfaces of these names, and packets of theirs.
fn pcapng_of(names: &[&str], packets: &[(u32, &Stamped)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, &body, &len].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend_from_slice(&[1, 0, 0, 0]);
    section.extend_from_slice(&[0xff; 8]);
    let mut file = block(0x0a0d_0d0a, &section);
    for name in names {
        let mut interface = vec![101, 0, 0, 0, 0, 0, 0, 0, 2, 0, name.len() as u8, 0];
        interface.extend_from_slice(name.as_bytes());
        interface.resize(interface.len().next_multiple_of(4), 0);
        interface.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(block(1, &interface));
    }
    for (interface, (at, packet)) in packets {
        let at = at * 1000;
        let len = packet.len() as u32;
        let mut body = Vec::new();
        for word in [*interface, (at >> 32) as u32, at as u32, len, len] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(packet);
        file.extend(block(6, &body));
    }
    file
}

/// Each process adds what it has sent and taken in a while at once, in a file of both.
#[test]
fn processes_that_capture_themselves_into_one_file_are_told_one_by_one() {
    let sent = stream();
    let taken: Vec<Stamped> = sent.iter().map(|(at, packet)| (at + 7, packet.clone())).collect();
    let mut packets = Vec::new();
    // The second process is the first to write.
    for (sent, taken) in sent.chunks(5).zip(taken.chunks(5)) {
        packets.extend(taken.iter().map(|packet| (1, packet)));
        packets.extend(sent.iter().map(|packet| (0, packet)));
    }
    let report = read(&pcapng_of(&["tcp-11", "tcp-12"], &packets));
    let text = text::text(&report);
    let alone = read(&pcapng(&stream()));
    assert_eq!(report.connections.len(), 2, "{text}");
    assert_eq!(report.duration, alone.duration + Duration::from_micros(7), "{text}");
    for (connection, process) in report.connections.iter().zip([12, 11]) {
        assert_eq!(connection.verdict.outcome, Outcome::Fine, "{text}");
        let count = connection.operations.iter().map(|operation| operation.messages).sum::<u64>();
        assert_eq!((count, connection.packets as usize), (8, sent.len()), "{text}");
        assert_eq!(connection.end - connection.begin, alone.duration, "{text}");
        assert!(text.contains(&format!("as process {process} has captured it")), "{text}");
    }
    assert!(!text.contains("again") && report.other.doubled == 0, "{text}");
}

#[test]
fn pcapng_says_the_times_too() {
    let report = read(&pcapng(&stream()));
    assert_sends(&report, 8);
    let same = read(&pcap(RAW, &stream(), usize::MAX));
    assert_eq!(report.duration, same.duration);
    assert_eq!(text::text(&report), text::text(&same));
}

#[test]
fn the_facts_are_json() {
    let json = serde_json::to_value(read(&pcap(RAW, &stream(), usize::MAX))).unwrap();
    let connection = &json["connections"][0];
    assert_eq!(connection["terms"]["mpa_revision"], 2);
    assert_eq!(connection["terms"]["crc"], true);
    assert_eq!(connection["operations"][0]["kind"], "Send");
    assert_eq!(connection["verdict"]["outcome"], "fine");
    assert_eq!(connection["frames"].as_array().unwrap().len(), 10);
}

#[test]
fn names_of_facts_are_unique() {
    let mut all = Datagrams::connected();
    all.write(0, crate::made::datagrams::FIRST[0], 1000);
    for packets in [stream(), all.packets] {
        let report = read(&pcap(RAW, &packets, 90));
        for connection in &report.connections {
            for facts in [&connection.terms, &connection.transport] {
                let mut keys: Vec<&str> = facts.iter().map(|fact| fact.key).collect();
                let all = keys.len();
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), all, "{facts:?}");
            }
        }
    }
}

#[test]
fn files_that_are_no_captures_are_refused_with_advice() {
    let refused = |file: &[u8]| explain(file, &Settings::default()).unwrap_err();
    assert!(matches!(refused(b""), FileError::Empty));
    assert!(matches!(refused(&[0x1f, 0x8b, 8, 0]), FileError::Compressed("gzip")));
    assert!(refused(b"#!/bin/sh").to_string().contains("tcpdump -w"));
    assert!(matches!(refused(&[0xa1, 0xb2, 0xc3, 0xd4, 0]), FileError::Damaged(_)));
}

#[test]
fn a_file_that_ends_early_is_explained_up_to_there() {
    let file = pcap(RAW, &stream(), usize::MAX);
    let report = read(&file[..file.len() - 10]);
    assert!(report.damage.as_ref().unwrap().contains("ends within a packet"));
    assert_eq!(report.packets as usize, stream().len() - 1);
}
