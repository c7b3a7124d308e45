// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets that rxe of two versions of Linux sent to itself and to another peer:
//! `data/rxe.pcap`.

use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

use iwarp_roce::wire::icrc::{self, IdMemory};
use iwarp_roce::wire::{Counters, Header, Malformed, Packet, Received, receive};
use iwarp_types::Time;
use pcap_file::pcap::PcapReader;

use crate::frame::{Frame, data, rebuild, without_the_ignored};

/// The packets with their times, from the IP header on.
fn frames() -> Vec<(Time, Frame)> {
    const ETHERNET: usize = 14;
    let mut reader = PcapReader::new(File::open(data("rxe.pcap")).unwrap()).unwrap();
    let mut frames: Vec<(Duration, Frame)> = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        frames.push((packet.timestamp, Frame::parse(&packet.data[ETHERNET..])));
    }
    assert_eq!(frames.len(), 280);
    let first = frames[0].0;
    frames.into_iter().map(|(time, frame)| (Time(time.saturating_sub(first)), frame)).collect()
}

/// One memory sees the identifications of all hosts, in the order and at the times that they came.
///
/// Covers: ROCE-021, ROCE-029, ROCE-030
#[test]
fn every_packet_of_the_kernels_is_good() {
    let (mut ids, mut counters) = (IdMemory::new(64).unwrap(), Counters::default());
    let mut numbered = 0;
    for (now, frame) in frames() {
        let (octets, found) = frame.datagram.split_last_chunk().unwrap();
        assert_eq!(icrc::of(&frame.path, frame.id, octets), *found);
        let received = receive(&frame.path, &frame.datagram, now, &mut ids, &mut counters);
        assert!(matches!(received, Some(Received::Packet(_))), "{:?}", frame.path);
        numbered += usize::from(frame.id.number != 0);
    }
    assert_eq!((counters.rcvd_pkts, counters.bad_icrc, counters.malformed), (280, 0, 0));
    assert!(numbered > 100, "{numbered}");
}

/// Covers: ROCE-002, ROCE-006, ROCE-013
#[test]
fn every_packet_of_the_kernels_is_built_again() {
    let mut opcodes = BTreeSet::new();
    for (_, frame) in frames() {
        let octets = &frame.datagram[..frame.datagram.len() - 4];
        let packet = Packet::parse(octets).unwrap();
        assert_eq!(hex::encode(rebuild(&packet)), hex::encode(without_the_ignored(octets)));
        opcodes.insert(octets[0]);
    }
    assert!(opcodes.len() > 20, "{opcodes:x?}");
}

/// A packet cut short is refused or has less payload; the pad's contents do not count.
///
/// Covers: ROCE-003, ROCE-007
#[test]
fn no_part_of_a_packet_is_taken_for_it() {
    for (_, frame) in frames() {
        let octets = &frame.datagram[..frame.datagram.len() - 4];
        let whole = Packet::parse(octets).unwrap();
        for len in 0..octets.len() {
            match Packet::parse(&octets[..len]) {
                Ok(part) => assert!(part.payload.len() < whole.payload.len()),
                Err(error) => assert_eq!(error, Malformed::Short),
            }
        }
        let pad = octets.len() - whole.payload.len() - header_len(&whole);
        let mut padded = octets.to_vec();
        padded[octets.len() - pad..].fill(0xee);
        assert_eq!(Packet::parse(&padded).unwrap(), whole);
    }
}

fn header_len(packet: &Packet<'_>) -> usize {
    packet.header.write(packet.payload.len(), &mut [0; Header::MAX_LEN])
}
