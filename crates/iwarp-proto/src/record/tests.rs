// SPDX-License-Identifier: MIT OR Apache-2.0

//! Framer and deframer against each other and against records made octet by octet.

use std::convert::Infallible;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Deframer, Framer, LENGTH_FIELD, RecordError};
use crate::framing::{Deframe, Frame, Framed};

const LONGEST: u32 = 3000;

fn ulpdu(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// A record as its definition has it.
fn literal(ulpdu: &[u8]) -> Vec<u8> {
    let len = ulpdu.len();
    let mut record = vec![(len >> 24) as u8, (len >> 16) as u8, (len >> 8) as u8, len as u8];
    record.extend(ulpdu);
    record
}

/// The ways to frame a ULPDU.
#[derive(Clone, Copy, Debug)]
enum Way {
    Any,
    Contiguous,
    InPlace,
}

fn frame(framer: &mut Framer, ulpdu: &[u8], header_len: usize, way: Way) -> Vec<u8> {
    let (header, payload) = ulpdu.split_at(header_len.min(ulpdu.len()));
    let before = framer.position();
    let mut out = vec![0xee; framer.frame_len(ulpdu.len())];
    let fill = |at: usize, dst: &mut [u8], digest: Option<&mut _>| {
        assert!(digest.is_none());
        dst.copy_from_slice(&payload[at..at + dst.len()]);
        Ok::<_, Infallible>(())
    };
    let written = match way {
        Way::Any => framer.write(&mut out, header, payload.len(), fill).unwrap(),
        Way::Contiguous => framer.write_contiguous(&mut out, header, payload.len(), fill).unwrap(),
        Way::InPlace => {
            let head = framer.write_head(&mut out, header, payload.len());
            out[head..].copy_from_slice(payload);
            head + payload.len() + framer.trailer_len(ulpdu.len())
        }
    };
    assert_eq!(written, out.len());
    assert_eq!(framer.position(), before + written as u64);
    out
}

#[test]
fn a_record_is_length_and_ulpdu() {
    let mut framer = Framer::new(LONGEST);
    let record = frame(&mut framer, b"segment", 3, Way::Any);
    assert_eq!(record, *b"\0\0\0\x07segment");
    assert_eq!(frame(&mut framer, b"", 0, Way::Any), [0; 4]);
    assert_eq!(framer.position(), 15);
}

#[test]
fn a_refused_source_moves_nothing() {
    let mut framer = Framer::new(LONGEST);
    let refused = framer.write(&mut [0; 64], b"header", 10, |_, _, _| Err("refused"));
    assert_eq!((refused, framer.position()), (Err("refused"), 0));
}

#[test]
fn longer_records_than_agreed_are_faults_at_once() {
    let mut deframer = Deframer::new(LONGEST);
    let mut longest = LONGEST.to_be_bytes().to_vec();
    assert_eq!(deframer.next(&mut longest), Ok(None));
    assert_eq!(deframer.wanted(&longest), LENGTH_FIELD + LONGEST as usize);
    let mut longer = (LONGEST + 1).to_be_bytes();
    assert_eq!(deframer.peek_len(&longer), Err(RecordError::TooLong));
    for _ in 0..2 {
        assert_eq!(deframer.next(&mut longer), Err(RecordError::TooLong));
    }
    assert_eq!(deframer.next(&mut [0xff; 4]), Err(RecordError::TooLong));
}

#[test]
#[should_panic(expected = "ULPDU of 3001 octets")]
fn longer_ulpdus_than_agreed_are_not_framed() {
    frame(&mut Framer::new(LONGEST), &ulpdu(LONGEST as usize + 1, 0), 14, Way::Any);
}

#[test]
fn only_short_ulpdus_are_peeked_at() {
    let deframer = Deframer::new(LONGEST);
    let peek = |octets: &[u8]| deframer.peek_short(octets);
    assert_eq!(peek(&[0, 0, 0, 255, 0x41]), Some((255, 0x41)));
    assert_eq!(peek(&[0, 0, 0, 7]), None);
    assert_eq!(peek(&[0, 0, 1, 0, 0x41]), None);
}

proptest! {
    #[test]
    fn deframing_finds_each_frame_wherever_the_stream_is_cut(
        lengths in prop::collection::vec((0..LONGEST as usize, 0..19usize, 0..3u8), 0..8),
        cuts in prop::collection::vec(1..2000usize, 1..20),
    ) {
        let mut framer = Framer::new(LONGEST);
        let (mut stream, mut sent) = (Vec::new(), Vec::new());
        for (number, (len, header_len, way)) in lengths.into_iter().enumerate() {
            let ulpdu = ulpdu(len, number as u8);
            let way = [Way::Any, Way::Contiguous, Way::InPlace][usize::from(way)];
            let record = frame(&mut framer, &ulpdu, header_len, way);
            prop_assert_eq!(&record, &literal(&ulpdu));
            stream.extend(record);
            sent.push(ulpdu);
        }
        let mut deframer = Deframer::new(LONGEST);
        let (mut found, mut inbox, mut cuts) = (Vec::new(), Vec::new(), cuts.into_iter().cycle());
        let mut left = &stream[..];
        loop {
            let wanted = deframer.wanted(&inbox);
            let before = inbox.clone();
            match deframer.next(&mut inbox).unwrap() {
                Some(Framed { start, len, consumed }) => {
                    prop_assert_eq!(wanted, consumed);
                    found.push(inbox[start..start + len].to_vec());
                    inbox.drain(..consumed);
                }
                None => {
                    prop_assert!(wanted > inbox.len());
                    prop_assert_eq!(&before, &inbox);
                    if left.is_empty() {
                        break;
                    }
                    let (now, later) = left.split_at(cuts.next().unwrap().min(left.len()));
                    inbox.extend_from_slice(now);
                    left = later;
                }
            }
        }
        prop_assert_eq!(found, sent);
        prop_assert!(inbox.is_empty());
    }
}
