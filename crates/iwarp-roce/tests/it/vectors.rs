// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recorded and generated packets: `data/vectors.json`.

use std::convert::Infallible;
use std::time::Duration;

use iwarp_roce::wire::icrc::{self, IdMemory};
use iwarp_roce::wire::{
    Burst, Counters, Malformed, Message, NakCode, Numbering, Packet, Received, RnrTimer, Syndrome,
    receive,
};
use iwarp_types::{Digest, Time};
use serde_json::Value;

use crate::fields;
use crate::frame::{Frame, data, rebuild, without_the_ignored};

const NOW: Time = Time(Duration::ZERO);

fn recorded() -> Value {
    serde_json::from_str(&std::fs::read_to_string(data("vectors.json")).unwrap()).unwrap()
}

/// Each vector, what it is called in messages, and its frame.
fn vectors() -> Vec<(Value, String, Frame)> {
    let all: Vec<Value> = serde_json::from_value(recorded()["vectors"].take()).unwrap();
    assert_eq!(all.len(), 203);
    all.into_iter()
        .map(|vector| {
            let frame = Frame::parse(&hex::decode(vector["frame"].as_str().unwrap()).unwrap());
            let name = format!("{} {} {}", vector["id"], vector["bth"]["name"], vector["note"]);
            (vector, name, frame)
        })
        .collect()
}

/// Covers: ROCE-001, ROCE-021, ROCE-022, ROCE-023, ROCE-024
#[test]
fn every_icrc_is_computed() {
    for (vector, name, frame) in vectors() {
        let (octets, found) = frame.datagram.split_last_chunk::<4>().unwrap();
        assert_eq!(hex::encode(found), vector["icrc_wire"].as_str().unwrap(), "{name}");
        let right = icrc::of(&frame.path, frame.id, octets) == *found;
        assert_eq!(right, vector["icrc_ok"].as_bool().unwrap(), "{name}");
    }
}

/// Covers: ROCE-029, ROCE-031
#[test]
fn every_icrc_is_verified_without_the_identification() {
    for (vector, name, frame) in vectors() {
        let mut ids = IdMemory::new(1).unwrap();
        let verified = icrc::verify(&frame.path, &frame.datagram, NOW, &mut ids);
        assert_eq!(verified.is_ok(), vector["icrc_ok"].as_bool().unwrap(), "{name}");
    }
}

/// The steps of the first vector's ICRC.
///
/// Covers: ROCE-021
#[test]
fn the_steps_of_the_sum_are_those_recorded() {
    let steps = &recorded()["crc"];
    let register = |digest: Digest| format!("{:08x}", digest.register());
    let mut digest = Digest::crc32();
    digest.update(&[0xff; 8]);
    assert_eq!(register(digest), steps["after_8_ff"].as_str().unwrap());
    let masked = hex::decode(steps["first_vector_masked_headers"].as_str().unwrap()).unwrap();
    digest.update(&masked[8..]);
    assert_eq!(register(digest), steps["after_masked_headers_and_BTH"].as_str().unwrap());
    digest.update(&[0x7b; 1024]);
    assert_eq!(register(digest), steps["after_all"].as_str().unwrap());
    assert_eq!(hex::encode(digest.wire()), steps["icrc_wire"].as_str().unwrap());
}

/// Covers: ROCE-002, ROCE-004, ROCE-008, ROCE-013
#[test]
fn every_field_is_read() {
    let mut unknown = 0;
    for (vector, name, frame) in vectors() {
        fields::agree(&fields::of_headers(&frame), &vector, &name);
        let octets = &frame.datagram[..frame.datagram.len() - 4];
        let packet = match Packet::parse(octets) {
            Ok(packet) => packet,
            Err(Malformed::Congestion(qp)) => {
                assert_eq!(vector["bth"]["opcode"], "81");
                assert_eq!(u64::from(qp), vector["bth"]["dest_qp"].as_u64().unwrap());
                continue;
            }
            Err(Malformed::Opcode(0x1c | 0x1d)) => {
                unknown += 1;
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let found = fields::of_packet(&packet);
        fields::agree(&found, &vector, &name);
        for header in ["aeth", "atomicack", "atomiceth", "deth", "ieth", "immdt", "reth"] {
            assert_eq!(found.contains_key(header), vector.get(header).is_some(), "{name}");
        }
        let payload = vector["payload"].as_str().unwrap();
        let found = hex::encode(packet.payload);
        match payload.strip_suffix("...") {
            Some(beginning) => assert!(found.starts_with(beginning), "{name}"),
            None => assert_eq!(found, payload, "{name}"),
        }
    }
    // Flush and Atomic Write.
    assert_eq!(unknown, 4);
}

/// Covers: ROCE-002, ROCE-006, ROCE-009
#[test]
fn every_packet_is_built_again() {
    let mut built = 0;
    for (vector, name, frame) in vectors() {
        let (octets, found_icrc) = frame.datagram.split_last_chunk::<4>().unwrap();
        let Ok(packet) = Packet::parse(octets) else { continue };
        built += 1;
        let again = rebuild(&packet);
        assert_eq!(hex::encode(&again), hex::encode(without_the_ignored(octets)), "{name}");
        // A burst numbers its packets itself.
        let right = vector["icrc_ok"].as_bool().unwrap();
        if frame.id != icrc::Identification::default() || again != octets || !right {
            continue;
        }
        let mut burst = Burst::new(Numbering::Zero, usize::MAX);
        let fill = |out: &mut [u8], digest: &mut Digest| {
            out.copy_from_slice(packet.payload);
            digest.update(out);
            Ok::<_, Infallible>(())
        };
        burst.push(&frame.path, &packet.header, packet.payload.len(), fill).unwrap();
        let (path, sent) = burst.packets().next().unwrap();
        assert_eq!((path, sent), (&frame.path, &frame.datagram[..]), "{name}");
        assert_eq!(sent[sent.len() - 4..], *found_icrc);
    }
    assert_eq!(built, 203 - 4 - 3);
}

/// Peers' packets left from any port, 0 among them.
///
/// Covers: ROCE-010, ROCE-012, ROCE-031, ROCE-032, ROCE-141, ROCE-143
#[test]
fn every_packet_comes_in_or_is_counted() {
    let (mut counters, mut packets, mut notifications) = (Counters::default(), 0, 0);
    for (_, name, frame) in vectors() {
        let mut ids = IdMemory::new(1).unwrap();
        match receive(&frame.path, &frame.datagram, NOW, &mut ids, &mut counters) {
            Some(Received::Packet(packet)) => {
                assert_eq!(Ok(packet), Packet::parse(&frame.datagram[..frame.datagram.len() - 4]));
                packets += 1;
            }
            Some(Received::Congestion { qp }) => {
                assert_ne!(qp, 0, "{name}");
                notifications += 1;
            }
            None => {}
        }
    }
    assert_eq!((packets, notifications), (195, 3));
    assert_eq!((counters.rcvd_pkts, counters.bad_icrc, counters.malformed), (203, 1, 4));
}

/// Covers: ROCE-060, ROCE-066, ROCE-069
#[test]
fn every_syndrome_says_what_its_vector_says() {
    let timer = |code| Syndrome::RnrNak(RnrTimer::new(code));
    let mut seen = 0;
    for (vector, name, frame) in vectors() {
        let expected = match vector["note"].as_str() {
            Some("ACK, credit code 0") => Syndrome::Ack { credits: Some(0) },
            Some("ACK, credit code 10 = 32 credits") => Syndrome::Ack { credits: Some(32) },
            Some("ACK, no credit field") => Syndrome::ACK,
            Some("RNR NAK timer 0 = 655.36 ms") => timer(0),
            Some("RNR NAK timer 14 = 1.28 ms") => timer(14),
            Some("NAK PSN sequence error") => Syndrome::Nak(NakCode::SequenceError),
            Some("NAK invalid request") => Syndrome::Nak(NakCode::InvalidRequest),
            Some("NAK remote access error") => Syndrome::Nak(NakCode::RemoteAccess),
            Some("NAK remote operational error") => Syndrome::Nak(NakCode::RemoteOperation),
            Some("NAK invalid RD request") => Syndrome::Nak(NakCode::InvalidRdRequest),
            _ => continue,
        };
        seen += 1;
        let packet = Packet::parse(&frame.datagram[..frame.datagram.len() - 4]).unwrap();
        match packet.header.message {
            Message::Acknowledge(aeth) => assert_eq!(aeth.syndrome, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(seen, 10);
}
