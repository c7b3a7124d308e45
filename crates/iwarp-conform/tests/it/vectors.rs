// SPDX-License-Identifier: MIT OR Apache-2.0

//! The recorded bytes that the project's own stack is tested with: both sides agree on them.

use std::fs;
use std::path::Path;

use iwarp_conform::text::{hex, unhex};
use iwarp_conform::wire::fpdu::{Deframer, Deviations, Framer};
use iwarp_conform::wire::segment::{AtomicRequest, Kind, ReadRequest, Segment, Terminate};
use iwarp_conform::wire::startup::{Frame, S};
use serde_json::Value;

fn vectors() -> serde_json::Map<String, Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../iwarp-proto/tests/data/vectors.json");
    let text = fs::read_to_string(file).expect("the vectors are beside the stack");
    match serde_json::from_str(&text).expect("JSON") {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

#[test]
fn every_message_and_stream_is_framed_and_deframed_alike() {
    let mut seen = 0;
    for (name, value) in &vectors() {
        let markers = match name.split('_').next() {
            Some("nomk") => false,
            Some("mk" | "stream") => true,
            // Figure 6 of RFC 5044 begins in the middle of a stream.
            _ if name == "rfc5044_fig5" => true,
            _ => continue,
        };
        let digits = value.as_str().or_else(|| value["octets"].as_str()).expect("digits");
        let bytes = unhex(digits).expect("digits");
        let mut stream = bytes.clone();
        let (mut deframer, mut framer) = (Deframer::new(true, markers), Framer::new(true, markers));
        let mut again = Vec::new();
        while !stream.is_empty() {
            let fpdu = deframer.next(&mut stream).expect("a whole FPDU");
            assert_eq!(fpdu.flaws, Vec::<String>::new(), "{name}");
            again.extend(framer.frame(&fpdu.ulpdu, Deviations::default()));
            let segment = Segment::decode(&fpdu.ulpdu).expect("a header");
            assert_eq!(segment.encode(), fpdu.ulpdu, "{name}");
            check_header(name, &segment);
        }
        assert_eq!(hex(&again), hex(&bytes), "{name}");
        seen += 1;
    }
    assert!(seen >= 50, "{seen}");
}

/// RDMAP's own headers come out as they went in.
fn check_header(name: &str, segment: &Segment) {
    let payload = &segment.payload;
    let again = match segment.kind() {
        Some(Kind::ReadRequest) => ReadRequest::decode(payload).expect("28 bytes").encode(),
        Some(Kind::AtomicRequest) => AtomicRequest::decode(payload).expect("52 bytes").encode(),
        Some(Kind::Terminate) => Terminate::decode(payload).expect("4 bytes").encode(),
        Some(_) => return,
        None => panic!("{name}: no opcode"),
    };
    assert_eq!(again, *payload, "{name}");
}

#[test]
fn a_ulpdu_that_is_longer_than_may_be_sent_is_a_flaw() {
    for (len, flaws) in [(64_768, 0), (64_769, 1), (65_535, 1)] {
        let mut framer = Framer::new(true, false);
        let mut stream = framer.frame(&vec![7; len], Deviations::default());
        let fpdu = Deframer::new(true, false).next(&mut stream).expect("a whole FPDU");
        assert_eq!((fpdu.ulpdu.len(), fpdu.flaws.len()), (len, flaws), "{:?}", fpdu.flaws);
    }
}

#[test]
fn every_start_up_frame_is_read_and_written_alike() {
    let mut seen = 0;
    for (name, value) in &vectors() {
        if !name.starts_with("mpa_") {
            continue;
        }
        let bytes = unhex(value.as_str().expect("digits")).expect("digits");
        let frame = Frame::decode(&bytes).expect("a whole frame");
        assert_eq!(frame.encode(), bytes, "{name}");
        if frame.flags & S != 0 {
            let depths = frame.depths().expect("S=1");
            assert_eq!(depths.encode(), frame.private_data[..4], "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, 7);
}
