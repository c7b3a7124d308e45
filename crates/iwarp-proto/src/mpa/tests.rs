// SPDX-License-Identifier: MIT OR Apache-2.0

//! Framer and deframer against each other and against an encoder that goes octet by octet.

use std::convert::Infallible;
use std::vec;
use std::vec::Vec;

use iwarp_types::Digest;
use proptest::prelude::*;

use super::error::MpaError;
use super::marker::{self, Layout};
use super::rx::Deframer;
use super::tx::Framer;
use super::wire::{MAX_ULPDU, MIN_MULPDU, mulpdu, pad_len, trailer_len};
use crate::framing::{Deframe as _, Frame as _, Framed};

fn ulpdu(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((i >> 8) as u8))
        .collect()
}

fn frame_into(framer: &mut Framer, ulpdu: &[u8], header_len: usize, stream: &mut Vec<u8>) {
    let (header, payload) = ulpdu.split_at(header_len.min(ulpdu.len()));
    let from = stream.len();
    // Octets that lay in the buffer before must not show.
    stream.resize(from + framer.frame_len(ulpdu.len()), 0xee);
    let written = framer
        .write(&mut stream[from..], header, payload.len(), |offset, dst, crc| {
            dst.copy_from_slice(&payload[offset..offset + dst.len()]);
            if let Some(crc) = crc {
                crc.update(dst);
            }
            Ok::<_, Infallible>(())
        })
        .unwrap();
    assert_eq!(from + written, stream.len());
}

fn frame(crc: bool, markers: bool, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    frame_at(crc, markers, 0, ulpdus)
}

fn frame_at(crc: bool, markers: bool, position: u64, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut framer = Framer::at(crc, markers, position);
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        frame_into(&mut framer, ulpdu, 18, &mut stream);
    }
    assert_eq!(framer.position(), position + stream.len() as u64);
    stream
}

/// Feeds `stream` cut into pieces at `cuts` and returns what was delivered, with the error if one
/// ended it.
fn deframe(
    deframer: &mut Deframer,
    stream: &[u8],
    cuts: &[usize],
) -> (Vec<Vec<u8>>, Option<MpaError>) {
    let mut delivered = Vec::new();
    let mut buffer = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&stream.len()]) {
        buffer.extend_from_slice(&stream[from..to]);
        from = to;
        loop {
            let wanted = deframer.wanted(&buffer);
            match deframer.next(&mut buffer) {
                Ok(Some(Framed { start, len, consumed })) => {
                    assert_eq!(wanted, consumed);
                    delivered.push(buffer[start..start + len].to_vec());
                    buffer.drain(..consumed);
                }
                Ok(None) => {
                    assert!(wanted > buffer.len());
                    break;
                }
                Err(error) => return (delivered, Some(error)),
            }
        }
    }
    assert!(buffer.is_empty(), "octets left over");
    (delivered, None)
}

fn deframe_whole(crc: bool, markers: bool, stream: &[u8]) -> (Vec<Vec<u8>>, Option<MpaError>) {
    deframe(&mut Deframer::new(crc, markers), stream, &[])
}

/// RFC 5044 §4 taken literally, one octet after the other.
fn literal(crc: bool, markers: bool, position: u64, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut stream: Vec<u8> = Vec::new();
    for ulpdu in ulpdus {
        let begin = stream.len();
        let due =
            |stream: &Vec<u8>| markers && (position + stream.len() as u64).is_multiple_of(512);
        if due(&stream) {
            stream.extend([0, 0, 0, 0]);
        }
        let length_at = stream.len();
        let mut octets = vec![(ulpdu.len() >> 8) as u8, ulpdu.len() as u8];
        octets.extend(ulpdu);
        while octets.len() % 4 != 0 {
            octets.push(0);
        }
        for octet in octets {
            if due(&stream) {
                let pointer = stream.len() - length_at;
                stream.extend([0, 0, (pointer >> 8) as u8, pointer as u8]);
            }
            stream.push(octet);
        }
        if due(&stream) {
            let pointer = stream.len() - length_at;
            stream.extend([0, 0, (pointer >> 8) as u8, pointer as u8]);
        }
        let mut register = u32::MAX;
        for &octet in &stream[begin..] {
            register ^= u32::from(octet);
            for _ in 0..8 {
                register = (register >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(register & 1));
            }
        }
        let field = if crc { (!register).to_le_bytes() } else { [0; 4] };
        stream.extend(field);
    }
    stream
}

/// Puts the right CRC under the FPDU `stream[from..]` after its octets were changed.
fn seal(stream: &mut [u8], from: usize) {
    let end = stream.len() - 4;
    let mut crc = Digest::crc32c();
    crc.update(&stream[from..end]);
    stream[end..].copy_from_slice(&crc.wire());
}

fn ulpdu_len() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..64,
        6 => 480usize..540,
        4 => 0usize..3000,
        1 => 0..=MAX_ULPDU,
        1 => Just(MAX_ULPDU),
    ]
}

fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec((ulpdu_len(), any::<u8>()), 1..12)
        .prop_map(|sizes| sizes.into_iter().map(|(len, seed)| ulpdu(len, seed)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Covers: MPA-5044-3-01, MPA-5044-4.1-01, MPA-5044-4.1-02, MPA-5044-4.1-03,
    /// MPA-5044-4.1-05, MPA-5044-4.2-01, MPA-5044-4.2-03, MPA-5044-4.3-01, MPA-5044-4.3-02,
    /// MPA-5044-4.3-03, MPA-5044-4.3-05, MPA-5044-4.3-07, MPA-5044-4.3-08, MPA-5044-4.3-09,
    /// MPA-5044-4.3-10, MPA-5044-4.4-10, MPA-5044-4.4-12, MPA-5044-4.4-13
    #[test]
    fn framer_writes_what_section_4_says(
        ulpdus in ulpdus(),
        crc: bool,
        markers: bool,
        quarters in 0u64..512,
    ) {
        let position = quarters * 4;
        let stream = frame_at(crc, markers, position, &ulpdus);
        prop_assert!(stream == literal(crc, markers, position, &ulpdus));
    }

    /// Covers: MPA-5044-3-07, MPA-5044-4.3-11, MPA-5044-4.3-12, MPA-5044-5.1-05, MPA-5044-5.2-01,
    /// MPA-5044-6-02, MPA-5044-6-04, MPA-5044-6-05, MPA-5044-A.4-01
    #[test]
    fn any_split_of_the_stream_gives_the_same_ulpdus(
        ulpdus in ulpdus(),
        crc: bool,
        markers: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream = frame(crc, markers, &ulpdus);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let mut deframer = Deframer::new(crc, markers);
        let (delivered, error) = deframe(&mut deframer, &stream, &cuts);
        prop_assert_eq!(error, None);
        prop_assert!(delivered == ulpdus);
        prop_assert_eq!(deframer.position(), stream.len() as u64);
    }

    #[test]
    fn header_and_payload_may_be_split_anywhere(
        len in 0usize..1200,
        header_len in 0usize..1200,
        crc: bool,
        markers: bool,
    ) {
        let ulpdu = ulpdu(len, 3);
        let mut split = Vec::new();
        frame_into(&mut Framer::new(crc, markers), &ulpdu, header_len, &mut split);
        prop_assert_eq!(split, frame(crc, markers, &[ulpdu]));
    }

    #[test]
    fn any_octets_end_in_ulpdus_an_error_or_a_wait(
        octets in prop::collection::vec(any::<u8>(), 0..2000),
        crc: bool,
        markers: bool,
    ) {
        let mut deframer = Deframer::new(crc, markers);
        let mut rest = octets;
        while let Ok(Some(fpdu)) = deframer.next(&mut rest) {
            prop_assert!(fpdu.start + fpdu.len + 4 <= fpdu.consumed);
            rest.drain(..fpdu.consumed);
        }
    }

    /// Covers: MPA-5044-3-04, MPA-5044-4.5-01, MPA-5044-4.5-02
    #[test]
    fn mulpdu_is_the_formula_within_its_bounds(emss in 0usize..70_000, markers: bool) {
        let marker_octets = if markers { 4 * emss.div_ceil(512) } else { 0 };
        let formula = emss as i64 - (6 + marker_octets as i64 + emss as i64 % 4);
        let expected = formula.clamp(128, 64768) as usize;
        prop_assert_eq!(mulpdu(emss, markers), expected);
        // The purpose of it: the FPDU fits one segment wherever the segment lies in the stream.
        if emss >= 256 {
            for position in (0..512).step_by(4) {
                let layout = Layout::new(position, markers, mulpdu(emss, markers));
                prop_assert!(layout.total() <= emss, "at {}", position);
            }
        }
    }
}

/// Covers: MPA-5044-5.1-05
#[test]
fn octet_by_octet_gives_the_same_ulpdus() {
    let ulpdus = [ulpdu(506, 1), ulpdu(0, 2), ulpdu(1, 3), ulpdu(1500, 4)];
    for (crc, markers) in [(false, false), (false, true), (true, false), (true, true)] {
        let stream = frame(crc, markers, &ulpdus);
        let cuts: Vec<usize> = (0..stream.len()).collect();
        let (delivered, error) = deframe(&mut Deframer::new(crc, markers), &stream, &cuts);
        assert_eq!((delivered.as_slice(), error), (&ulpdus[..], None));
    }
}

/// The stream position counts from the first octet of Full Operation, regardless of the start-up
/// frames before; the first octets there are a marker of zeros, or the length field.
///
/// Covers: MPA-5044-4.3-07, MPA-5044-7.1-05, MPA-5044-7.1.2-17
#[test]
fn corner_01_marker_origin_is_the_first_octet_behind_the_own_startup_frame() {
    use super::startup::{Config, Initiator, Responder};
    use iwarp_types::Time;

    let config = Config { markers: true, ..Config::default() };
    let initiator = Initiator::new(config, b"seven..", Time::default()).unwrap();
    let mut responder = Responder::new(config, Time::default());
    responder.receive(initiator.request()).unwrap().unwrap();
    let (_, negotiated) = responder.accept(1, 1, b"").unwrap();

    let mut stream = initiator.request().to_vec();
    let origin = stream.len();
    assert_eq!(origin % 4, 3);
    let mut framer = Framer::new(negotiated.crc, negotiated.receive_markers);
    frame_into(&mut framer, &ulpdu(1000, 7), 18, &mut stream);
    assert_eq!(stream[origin..origin + 6], [0, 0, 0, 0, 0x03, 0xe8]);
    assert_eq!(stream[origin + 512..][..4], [0, 0, 0x01, 0xfc]);

    let unmarked = frame(true, false, &[ulpdu(1000, 7)]);
    assert_eq!(unmarked[..2], [0x03, 0xe8]);
}

/// Covers: MPA-5044-4.3-05, MPA-5044-4.3-10, MPA-5044-4.4-13
#[test]
fn corner_02_marker_between_fpdus_is_zero_and_belongs_to_the_next() {
    let ulpdus = [ulpdu(502, 1), ulpdu(42, 2)];
    let first = frame(true, true, &ulpdus[..1]);
    assert_eq!(first.len(), 512, "no marker is sent before there is a next FPDU");
    let mut stream = frame(true, true, &ulpdus);
    assert_eq!(stream[512..518], [0, 0, 0, 0, 0, 42]);

    let mut crc = Digest::crc32c();
    crc.update(&stream[512..stream.len() - 4]);
    assert_eq!(crc.wire(), stream[stream.len() - 4..]);

    let mut deframer = Deframer::new(true, true);
    let fpdu = deframer.next(&mut stream).unwrap().unwrap();
    assert_eq!(fpdu.consumed, 512);
    let fpdu = deframer.next(&mut stream[512..]).unwrap().unwrap();
    assert_eq!((fpdu.start, fpdu.len), (6, 42));
}

/// Covers: MPA-5044-4.4-12
#[test]
fn corner_03_marker_between_pad_and_crc_belongs_to_this_fpdu() {
    let ulpdu = ulpdu(506, 1);
    let stream = frame(true, true, core::slice::from_ref(&ulpdu));
    assert_eq!(stream.len(), 4 + 508 + 4 + 4);
    assert_eq!(stream[512..516], [0, 0, 0x01, 0xfc]);
    let mut crc = Digest::crc32c();
    crc.update(&stream[..516]);
    assert_eq!(crc.wire(), stream[516..]);
    assert_eq!(deframe_whole(true, true, &stream), (vec![ulpdu], None));
}

/// Covers: MPA-5044-4.3-03, MPA-5044-4.3-08
#[test]
fn corner_04_pointers_count_earlier_markers_of_the_same_fpdu() {
    let stream = frame(true, true, &[ulpdu(1418, 1)]);
    let pointer = |at: usize| u16::from_be_bytes([stream[at + 2], stream[at + 3]]);
    assert_eq!([pointer(0), pointer(512), pointer(1024)], [0, 508, 1020]);
}

/// Covers: MPA-5044-4.2-02, MPA-5044-4.2-04, MPA-5044-4.3-06
#[test]
fn corner_05_crc_takes_markers_as_they_came() {
    let ulpdu = ulpdu(600, 1);
    let good = frame(true, true, core::slice::from_ref(&ulpdu));
    assert_eq!(good[..4], [0; 4]);
    assert_eq!(good[512..514], [0; 2]);
    for (at, bits) in [(0, 0xff), (1, 0xa5), (3, 0x03), (512, 0xff), (513, 0x01), (515, 0x02)] {
        let mut stream = good.clone();
        stream[at] |= bits;
        assert_ne!(stream, good);
        // The CRC of the octets as they should have been does not fit ...
        assert_eq!(deframe_whole(true, true, &stream), (vec![], Some(MpaError::Crc)));
        // ... that of the octets as they came does, and their meaning is unchanged.
        seal(&mut stream, 0);
        assert_eq!(deframe_whole(true, true, &stream), (vec![ulpdu.clone()], None));
    }
}

/// The FPDUs of RFC 5044 Figures 5 and 6.
///
/// Covers: MPA-5044-4.4-11
#[test]
fn corner_06_crc_is_sent_least_significant_octet_first() {
    let mut segment = vec![0; 42];
    segment[..2].copy_from_slice(&[0x41, 0x43]);
    segment[13] = 1;
    let stream = frame(true, true, core::slice::from_ref(&segment));
    assert_eq!(stream[stream.len() - 4..], [0x52, 0x23, 0x99, 0x83]);

    // The second FPDU of its stream, with a marker in it.
    segment[13] = 2;
    let stream = frame_at(true, true, 492, &[segment]);
    assert_eq!(stream[20..24], [0, 0, 0, 20]);
    assert_eq!(stream[stream.len() - 4..], [0x84, 0x92, 0x58, 0x98]);
}

/// Covers: MPA-5044-4.1-05
#[test]
fn corner_07_pad_counts_the_length_field() {
    assert_eq!([1, 2, 3, 4, 5].map(pad_len), [1, 0, 3, 2, 1]);
    assert_eq!([0, 2].map(pad_len), [2, 0]);
    for len in 0..20 {
        assert_eq!(trailer_len(len), pad_len(len) + 4);
        assert_eq!(frame(true, false, &[ulpdu(len, 0)]).len() % 4, 0);
    }
}

/// Covers: MPA-5044-4.1-04
#[test]
fn pad_octets_are_not_looked_at_beyond_the_crc() {
    let ulpdu = ulpdu(15, 1);
    let mut stream = frame(true, false, core::slice::from_ref(&ulpdu));
    assert_eq!(stream[17..20], [0; 3]);
    stream[17..20].copy_from_slice(b"pad");
    assert_eq!(deframe_whole(true, false, &stream), (vec![], Some(MpaError::Crc)));
    seal(&mut stream, 0);
    assert_eq!(deframe_whole(true, false, &stream), (vec![ulpdu], None));
}

/// Covers: MPA-5044-4.1-06, MPA-5044-4.4-10, MPA-5044-7.1.1-07, MPA-5044-7.1.1-09, MPA-5044-4.4-09
#[test]
fn corner_08_crc_off_means_any_value_in_the_field_that_is_still_there() {
    let ulpdus = [ulpdu(30, 1), ulpdu(31, 2)];
    for markers in [false, true] {
        let with = frame(true, markers, &ulpdus);
        let without = frame(false, markers, &ulpdus);
        assert_eq!(with.len(), without.len());
        for stream in [with, without] {
            for field in [[0x00; 4], [0xff; 4], [0xde, 0xad, 0xbe, 0xef]] {
                let mut stream = stream.clone();
                let end = stream.len();
                stream[end - 4..].copy_from_slice(&field);
                let delivered = deframe_whole(false, markers, &stream);
                assert_eq!(delivered, (ulpdus.to_vec(), None));
            }
        }
    }
}

/// Covers: MPA-5044-3-06
#[test]
fn corner_10_ulpdu_length_whatever_the_own_mulpdu() {
    for markers in [false, true] {
        for len in [0, 1, 13, 14, 17, 18, MAX_ULPDU] {
            let ulpdu = ulpdu(len, 9);
            let stream = frame(true, markers, core::slice::from_ref(&ulpdu));
            assert!(deframe_whole(true, markers, &stream) == (vec![ulpdu], None));
        }
        for len in [MAX_ULPDU as u16 + 1, u16::MAX] {
            let mut deframer = Deframer::new(true, markers);
            let mut head = vec![0; 4 * usize::from(markers)];
            head.extend(len.to_be_bytes());
            let refused = if markers { Err(MpaError::Marker) } else { Ok(None) };
            assert_eq!(deframer.next(&mut head), refused);
        }
    }
}

/// No sender may make them, and Linux siw does where TCP segments are that long.
#[test]
fn without_markers_a_ulpdu_is_as_long_as_its_field_says() {
    for len in [MAX_ULPDU + 1, 65_458, 65_535] {
        let ulpdu = ulpdu(len, 10);
        let mut stream = (len as u16).to_be_bytes().to_vec();
        stream.extend(&ulpdu);
        stream.resize(stream.len() + pad_len(len), 0);
        let mut crc = Digest::crc32c();
        crc.update(&stream);
        stream.extend(crc.wire());
        for crc in [true, false] {
            assert!(deframe_whole(crc, false, &stream) == (vec![ulpdu.clone()], None));
        }
    }
}

/// Covers: MPA-5044-3-05
#[test]
#[should_panic(expected = "ULPDU of 64769 octets")]
fn framer_refuses_a_ulpdu_beyond_the_limit() {
    Framer::new(true, false).frame_len(MAX_ULPDU + 1);
}

/// Covers: MPA-5044-8-02, MPA-5044-8-11
#[test]
fn corner_11_nothing_is_delivered_after_an_error_though_the_other_half_still_sends() {
    let ulpdus = [ulpdu(20, 1), ulpdu(21, 2), ulpdu(22, 3)];
    let mut stream = frame(true, false, &ulpdus);
    stream[28 + 5] ^= 0x10;
    let mut deframer = Deframer::new(true, false);
    let (delivered, error) = deframe(&mut deframer, &stream, &[]);
    assert_eq!((delivered.as_slice(), error), (&ulpdus[..1], Some(MpaError::Crc)));

    let mut good = frame(true, false, &ulpdus);
    assert_eq!(deframer.next(&mut good[28..]), Err(MpaError::Crc));
    assert_eq!(deframer.next(&mut []), Err(MpaError::Crc));
    assert_eq!(deframer.peek_len(&good), Err(MpaError::Crc));
    assert!(!deframer.can_stream());

    let mut framer = Framer::new(true, false);
    let mut terminate = Vec::new();
    frame_into(&mut framer, &ulpdus[0], 18, &mut terminate);
    assert_eq!(deframe_whole(true, false, &terminate), (vec![ulpdus[0].clone()], None));
}

/// Covers: MPA-5044-4.4-14, MPA-5044-6-01, MPA-5044-6-03
#[test]
fn corner_12_no_octet_is_handed_over_before_the_crc_is_good() {
    let stream = frame(true, true, &[ulpdu(1000, 1)]);
    let mut deframer = Deframer::new(true, true);
    for len in 0..stream.len() {
        let mut part = stream[..len].to_vec();
        assert_eq!(deframer.next(&mut part), Ok(None));
        assert_eq!(part, stream[..len], "input is as it was");
    }
    let mut bad = stream.clone();
    bad[700] ^= 1;
    let before = bad.clone();
    assert_eq!(deframer.next(&mut bad), Err(MpaError::Crc));
    assert_eq!(bad, before, "input is as it was");
    assert_eq!(deframer.position(), 0);
}

/// Covers: MPA-5044-4.5-02, MPA-5044-4.5-05, MPA-5044-4.5-06, MPA-5044-4.5-07
#[test]
fn corner_13_mulpdu_follows_emss_and_its_remainder() {
    let without = [1448, 1449, 1450, 1451, 1452].map(|emss| mulpdu(emss, false));
    assert_eq!(without, [1442, 1442, 1442, 1442, 1446]);
    assert_eq!([536, 1220].map(|emss| mulpdu(emss, true)), [522, 1202]);
    for emss in [0, 1, 5, 64, 127, 128, 133] {
        assert_eq!(mulpdu(emss, false), MIN_MULPDU);
        assert_eq!(mulpdu(emss, true), MIN_MULPDU);
    }
    assert_eq!(mulpdu(65495, false), MAX_ULPDU);
    assert_eq!(mulpdu(usize::MAX, true), MAX_ULPDU);
}

#[test]
fn corner_14_one_read_may_hold_a_tail_many_fpdus_and_half_a_length_field() {
    let ulpdus = [ulpdu(100, 1), ulpdu(14, 2), ulpdu(18, 3), ulpdu(40, 4)];
    let stream = frame(true, false, &ulpdus);
    let ends: Vec<usize> = (1..=4).map(|n| frame(true, false, &ulpdus[..n]).len()).collect();
    for cuts in [[50, ends[2] + 1], [ends[0] + 1, ends[0] + 2], [1, ends[3] - 1]] {
        let (delivered, error) = deframe(&mut Deframer::new(true, false), &stream, &cuts);
        assert_eq!((delivered.as_slice(), error), (&ulpdus[..], None));
    }
}

/// Covers: MPA-5044-5.2-02, MPA-5044-8-03, MPA-5044-8-06, MPA-5044-8-07, MPA-5044-8-08
#[test]
fn a_marker_that_disagrees_with_the_chain_of_lengths_is_an_error() {
    let good = frame(true, true, &[ulpdu(1200, 1)]);
    for at in [0, 512, 1024] {
        for pointer in [4u16, 504, 512, 1016, 1024, 0x8000] {
            let mut stream = good.clone();
            stream[at + 2..at + 4].copy_from_slice(&pointer.to_be_bytes());
            let unsealed = deframe_whole(true, true, &stream);
            assert_eq!(unsealed, (vec![], Some(MpaError::Crc)), "the CRC is looked at first");
            seal(&mut stream, 0);
            let (delivered, error) = deframe_whole(true, true, &stream);
            assert_eq!((delivered.len(), error), (0, Some(MpaError::Marker)));
            let (delivered, error) = deframe_whole(false, true, &stream);
            assert_eq!((delivered.len(), error), (0, Some(MpaError::Marker)));
        }
    }
    // Zero is right only between FPDUs.
    let mut stream = good;
    stream[512..516].fill(0);
    seal(&mut stream, 0);
    assert_eq!(deframe_whole(true, true, &stream).1, Some(MpaError::Marker));
}

/// Covers: MPA-5044-4.3-04
#[test]
fn positions_pass_the_wrap_of_the_tcp_sequence_number() {
    let ulpdus = [ulpdu(700, 1), ulpdu(494, 2), ulpdu(1, 3), ulpdu(3000, 4)];
    for before in [4, 500, 508, 512, 516, 1024, 1300] {
        let position = (1 << 32) - before;
        let stream = frame_at(true, true, position, &ulpdus);
        assert!(position + stream.len() as u64 > 1 << 32);
        assert_eq!(stream, literal(true, true, position, &ulpdus));
        let mut deframer = Deframer::at(true, true, position);
        assert_eq!(deframe(&mut deframer, &stream, &[]), (ulpdus.to_vec(), None));
    }
}

/// Covers: MPA-5044-4.4-14, MPA-5044-6-05
#[test]
fn every_single_bit_error_is_detected() {
    for (markers, len) in [(false, 21), (true, 21), (true, 506), (true, 600)] {
        let first = frame(true, markers, &[ulpdu(len, 1)]);
        let length_at = if markers { 4 } else { 0 };
        // A length that grew takes what follows into its FPDU: there must be enough of it.
        let follow = vec![ulpdu(MAX_ULPDU, 5), ulpdu(MAX_ULPDU, 6)];
        let mut stream = frame(true, markers, &[vec![ulpdu(len, 1)], follow].concat());
        for bit in 0..first.len() * 8 {
            stream[bit / 8] ^= 0x80 >> (bit % 8);
            let mut deframer = Deframer::new(true, markers);
            let in_length = (length_at..length_at + 2).contains(&(bit / 8));
            let outcome = deframer.next(&mut stream);
            match outcome {
                Err(MpaError::Crc) => {}
                Err(MpaError::Marker) if in_length => {}
                _ => panic!("bit {bit} of {len} octets, markers {markers}: {outcome:?}"),
            }
            stream[bit / 8] ^= 0x80 >> (bit % 8);
        }
        assert!(matches!(Deframer::new(true, markers).next(&mut stream), Ok(Some(_))));
    }
}

#[test]
fn payload_that_cannot_be_had_leaves_the_position() {
    for (crc, markers) in [(false, false), (true, false), (true, true)] {
        let mut framer = Framer::new(crc, markers);
        let mut stream = Vec::new();
        frame_into(&mut framer, &ulpdu(100, 1), 18, &mut stream);
        let position = framer.position();
        let mut scratch = vec![0; framer.frame_len(1018)];
        let mut calls = 0;
        let result = framer.write(&mut scratch, &[0; 18], 1000, |offset, dst, _| {
            calls += 1;
            if offset + dst.len() == 1000 { Err("revoked") } else { Ok(()) }
        });
        assert_eq!(result, Err("revoked"));
        assert_eq!(calls, if markers { 3 } else { 1 });
        assert_eq!(framer.position(), position);
        frame_into(&mut framer, &ulpdu(200, 2), 18, &mut stream);
        let whole = frame(crc, markers, &[ulpdu(100, 1), ulpdu(200, 2)]);
        assert_eq!(stream, whole);
    }
}

#[test]
fn gathered_fpdus_are_those_that_are_copied() {
    let mut framer = Framer::new(false, false);
    let mut gathered = Vec::new();
    let ulpdus = [ulpdu(18, 1), ulpdu(19, 2), ulpdu(4000, 3)];
    for ulpdu in &ulpdus {
        let (header, payload) = ulpdu.split_at(18);
        let mut head = [0xee; 32];
        let len = framer.write_head(&mut head, header, payload.len());
        gathered.extend_from_slice(&head[..len]);
        gathered.extend_from_slice(payload);
        gathered.resize(gathered.len() + trailer_len(ulpdu.len()), 0);
        assert_eq!(framer.position(), gathered.len() as u64);
    }
    assert_eq!(gathered, frame(false, false, &ulpdus));
}

#[test]
fn streamed_fpdus_and_whole_ones_may_alternate() {
    let ulpdus = [ulpdu(33, 1), ulpdu(2000, 2), ulpdu(5, 3)];
    let mut stream = frame(false, false, &ulpdus);
    let mut deframer = Deframer::new(false, false);
    assert!(deframer.can_stream());
    assert_eq!(deframer.peek_len(&stream[..1]), Ok(None));

    let fpdu = deframer.next(&mut stream).unwrap().unwrap();
    stream.drain(..fpdu.consumed);

    let len = deframer.peek_len(&stream[..2]).unwrap().unwrap();
    assert_eq!(len, 2000);
    let total = deframer.wanted(&stream[..2]);
    assert_eq!(total, 2 + len + trailer_len(len));
    deframer.advance(700);
    deframer.advance(total - 700);
    stream.drain(..total);

    let fpdu = deframer.next(&mut stream).unwrap().unwrap();
    assert_eq!(stream[fpdu.start..fpdu.start + fpdu.len], ulpdus[2]);
    assert_eq!(deframer.position(), frame(false, false, &ulpdus).len() as u64);
}

#[test]
fn only_a_stream_without_crc_and_markers_can_be_taken_as_it_comes() {
    assert!(!Deframer::new(true, false).can_stream());
    assert!(!Deframer::new(false, true).can_stream());
    assert!(!Deframer::new(true, true).can_stream());
}

#[test]
fn the_largest_pointer_fits_its_field() {
    for position in (0..512).step_by(4) {
        let layout = Layout::new(position, true, MAX_ULPDU);
        let last = layout.inner_marker_at(layout.inner_markers() - 1) - layout.length_at();
        assert_eq!(marker::decode(marker::encode(last)), last);
    }
}
