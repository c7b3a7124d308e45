// SPDX-License-Identifier: MIT OR Apache-2.0

//! Headers against octets made by hand, segmentation and the checks against the RFC's words.

use alloc::string::ToString;
use alloc::vec::Vec;

use iwarp_types::{AccessError, Stag, TaggedOffset};
use proptest::prelude::*;

use super::error::DdpError;
use super::rx::{UntaggedQueue, check_offset};
use super::tx::{Message, Segment};
use super::wire::{Continuation, Header, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};
use crate::types::{Mo, Msn, Qn};

const TAGGED: Tagged = Tagged {
    last: true,
    rsvd_ulp: 0x40,
    stag: Stag(0x0102_0304),
    to: TaggedOffset(0x1122_3344_5566_7788),
};

const UNTAGGED: Untagged = Untagged {
    last: true,
    rsvd_ulp: [0x44, 0xde, 0xad, 0xbe, 0x01],
    qn: Qn(0x0a0b_0c0d),
    msn: Msn(0x1020_3040),
    mo: Mo(0x5060_7080),
};

fn emitted(header: Header) -> Vec<u8> {
    // Octets that lay there before must not show.
    let mut out = [0xee; 32];
    let len = header.emit(&mut out);
    assert!(out[len..].iter().all(|&octet| octet == 0xee));
    assert_eq!(len, header.wire_len());
    out[..len].to_vec()
}

/// Covers: DDP-5041-4.1-08, DDP-5041-4.1-09, DDP-5041-4.2-01, DDP-5041-4.2-02, DDP-5041-4.2-06,
/// RDMAP-5040-3.1-04
#[test]
fn tagged_header_is_14_octets_in_the_order_of_section_4_2() {
    let octets =
        [0xc1, 0x40, 0x01, 0x02, 0x03, 0x04, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(emitted(Header::Tagged(TAGGED)), octets);
    assert_eq!(Header::parse(&octets), Ok(Header::Tagged(TAGGED)));
    assert_eq!(emitted(Header::Tagged(Tagged { last: false, ..TAGGED }))[0], 0x81);
}

/// Covers: DDP-5041-4.1-08, DDP-5041-4.1-09, DDP-5041-4.3-01, DDP-5041-4.3-02,
/// RDMAP-5040-3.1-04
#[test]
fn untagged_header_is_18_octets_in_the_order_of_section_4_3() {
    let octets = [
        0x41, 0x44, 0xde, 0xad, 0xbe, 0x01, 0x0a, 0x0b, 0x0c, 0x0d, 0x10, 0x20, 0x30, 0x40, 0x50,
        0x60, 0x70, 0x80,
    ];
    assert_eq!(emitted(Header::Untagged(UNTAGGED)), octets);
    assert_eq!(Header::parse(&octets), Ok(Header::Untagged(UNTAGGED)));
    assert_eq!(emitted(Header::Untagged(Untagged { last: false, ..UNTAGGED }))[0], 0x01);
}

/// Covers: DDP-5041-4.1-08, DDP-5041-4.1-10
#[test]
fn corner_39_reserved_bits_are_not_checked_and_the_version_is() {
    for header in [Header::Tagged(TAGGED), Header::Untagged(UNTAGGED)] {
        let mut octets = emitted(header);
        octets[0] |= 0x3c;
        assert_eq!(Header::parse(&octets), Ok(header));
        for version in [0, 2, 3] {
            octets[0] = (octets[0] & 0xfc) | version;
            let error = match header {
                Header::Tagged(_) => DdpError::TaggedVersion,
                Header::Untagged(_) => DdpError::UntaggedVersion,
            };
            assert_eq!(Header::parse(&octets), Err(error));
        }
    }
}

/// Covers: DDP-5041-4.4-01
#[test]
fn a_ulpdu_shorter_than_its_header_is_an_error() {
    for (header, len) in
        [(Header::Tagged(TAGGED), TAGGED_LEN), (Header::Untagged(UNTAGGED), UNTAGGED_LEN)]
    {
        let octets = emitted(header);
        for short in 0..len {
            assert_eq!(Header::parse(&octets[..short]), Err(DdpError::Truncated), "{short}");
        }
        assert_eq!(Header::parse(&octets), Ok(header));
        assert_eq!(Header::len_of(&octets), Some(len));
    }
    assert_eq!(Header::len_of(&[]), None);
}

fn any_header() -> impl Strategy<Value = Header> {
    let tagged = any::<(bool, u8, u32, u64)>().prop_map(|(last, rsvd_ulp, stag, to)| {
        Header::Tagged(Tagged { last, rsvd_ulp, stag: Stag(stag), to: TaggedOffset(to) })
    });
    let untagged =
        any::<(bool, [u8; 5], u32, u32, u32)>().prop_map(|(last, rsvd_ulp, qn, msn, mo)| {
            Header::Untagged(Untagged { last, rsvd_ulp, qn: Qn(qn), msn: Msn(msn), mo: Mo(mo) })
        });
    prop_oneof![tagged, untagged]
}

fn all_segments(mut message: Message, mulpdus: &[usize]) -> Vec<Segment> {
    let mut mulpdus = mulpdus.iter().copied().cycle();
    core::iter::from_fn(|| message.next_segment(mulpdus.next().expect("endless"))).collect()
}

proptest! {
    /// Covers: DDP-5041-4.2-01, DDP-5041-4.3-01, DDP-5041-4.2-03, DDP-5041-4.2-07,
    /// DDP-5041-4.3-03, DDP-5041-5.4-03
    #[test]
    fn headers_come_back_as_they_were_sent(
        header in any_header(),
        payload in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut ulpdu = emitted(header);
        ulpdu.extend(payload);
        prop_assert_eq!(Header::parse(&ulpdu), Ok(header));
    }

    #[test]
    fn no_octets_make_the_parser_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        if let Ok(header) = Header::parse(&octets) {
            prop_assert!(header.wire_len() <= octets.len());
        }
    }

    /// Covers: DDP-5041-4.1-03, DDP-5041-4.1-04, DDP-5041-4.1-05, DDP-5041-4.1-06,
    /// DDP-5041-4.2-04, DDP-5041-4.2-08, DDP-5041-4.3-04, DDP-5041-4.3-05, DDP-5041-4.3-09,
    /// DDP-5041-4.3-10, DDP-5041-5.2-01, DDP-5041-5.2-03, DDP-5041-5.2-05, DDP-5041-5.2-06,
    /// DDP-5041-5.2-07, DDP-5041-5.2-08, DDP-5041-5.3-03, MPA-5044-3-03
    #[test]
    fn a_message_is_cut_into_segments_that_rise_and_fit(
        length in prop_oneof![0u32..2, 100u32..20_000],
        mulpdus in proptest::collection::vec(128usize..2_000, 1..6),
        first in any_header(),
    ) {
        let message = match first {
            Header::Tagged(h) => Message::tagged(h, length),
            Header::Untagged(h) => Message::untagged(h, length),
        };
        let segments = all_segments(message, &mulpdus);
        let mut offset = 0;
        for (i, segment) in segments.iter().enumerate() {
            let is_last = i + 1 == segments.len();
            prop_assert_eq!(segment.offset, offset);
            prop_assert_eq!(segment.header.last(), is_last);
            let octets = segment.header.wire_len() + segment.len as usize;
            prop_assert!(octets <= mulpdus[i % mulpdus.len()]);
            // No segment is smaller than it has to be, so none is empty beside others.
            prop_assert!(is_last || octets == mulpdus[i % mulpdus.len()]);
            prop_assert!(segment.len > 0 || segments.len() == 1);
            match (first, segment.header) {
                (Header::Tagged(f), Header::Tagged(h)) => {
                    let to = TaggedOffset(f.to.0.wrapping_add(u64::from(offset)));
                    prop_assert_eq!(h, Tagged { last: is_last, to, ..f });
                }
                (Header::Untagged(f), Header::Untagged(h)) => {
                    prop_assert_eq!(h, Untagged { last: is_last, mo: Mo(offset), ..f });
                }
                other => prop_assert!(false, "{:?}", other),
            }
            offset += segment.len;
        }
        prop_assert_eq!(offset, length);
    }
}

proptest! {
    #[test]
    fn segments_handed_over_together_are_those_handed_over_one_by_one(
        length in prop_oneof![0u32..2, 100u32..20_000],
        mulpdu in 128usize..2_000,
        most in proptest::collection::vec(1u32..9, 1..6),
        first in any_header(),
    ) {
        let message = match first {
            Header::Tagged(h) => Message::tagged(h, length),
            Header::Untagged(h) => Message::untagged(h, length),
        };
        let (mut rest, mut together) = (message, Vec::new());
        let mut most = most.into_iter().cycle();
        while let Some(run) = rest.next_run(mulpdu, most.next().expect("endless")) {
            prop_assert_eq!(rest.sent_before_last_run(), run.offset);
            prop_assert_eq!(rest.sent(), run.offset + run.len);
            let mut done = 0;
            loop {
                let segment = run.segment(done);
                together.push(segment);
                done += segment.len;
                if done == run.len {
                    break;
                }
            }
        }
        prop_assert!(rest.is_done());
        prop_assert_eq!(together, all_segments(message, &[mulpdu]));
    }

    /// No bit of the next header may be another, but for L.
    #[test]
    fn a_message_is_continued_by_its_next_segment_and_by_nothing_else(
        first in any_header(),
        lens in proptest::collection::vec(1u32..70_000, 1..5),
    ) {
        let header = |at: u32, last: bool| match first {
            Header::Tagged(h) => {
                Header::Tagged(Tagged { last, to: h.to.advanced(u64::from(at)), ..h })
            }
            Header::Untagged(h) => {
                Header::Untagged(Untagged { last, mo: Mo(h.mo.0.wrapping_add(at)), ..h })
            }
        };
        prop_assert_eq!(Continuation::of(&emitted(header(0, true))), None);
        let mut next = Continuation::of(&emitted(header(0, false))).expect("a segment");
        prop_assert_eq!(next.header_len(), first.wire_len());
        let mut at = 0;
        for len in lens {
            next.advance(len);
            at += len;
            for last in [false, true] {
                let mut octets = emitted(header(at, last));
                prop_assert_eq!(next.is_next(&octets), Some(last));
                prop_assert_eq!(next.is_next(&octets[..octets.len() - 1]), None);
                for bit in 0..octets.len() * 8 {
                    octets[bit / 8] ^= 1 << (bit % 8);
                    let known = if bit == 6 { Some(!last) } else { None };
                    prop_assert_eq!(next.is_next(&octets), known, "bit {}", bit);
                    octets[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
}

/// Covers: DDP-5041-3-02
#[test]
fn a_new_mulpdu_changes_only_what_was_not_cut_yet() {
    let mut message = Message::tagged(TAGGED, 1_000);
    let first = message.next_segment(514).unwrap();
    assert_eq!((first.offset, first.len), (0, 500));
    let second = message.next_segment(214).unwrap();
    assert_eq!((second.offset, second.len), (500, 200));
    assert_eq!((message.sent(), message.sent_before_last_run()), (700, 500));
    let third = message.next_segment(10_000).unwrap();
    assert_eq!((third.offset, third.len, third.header.last()), (700, 300, true));
    assert!(message.is_done() && message.next_segment(10_000).is_none());
}

/// Covers: DDP-5041-5.2-08
#[test]
fn corner_32_last_flag_only_on_the_last_segment_and_none_behind_an_exact_fit() {
    for length in [0, 1, 99, 100] {
        let segments = all_segments(Message::tagged(TAGGED, length), &[114]);
        assert_eq!(segments.len(), 1, "{length}");
        assert!(segments[0].header.last());
    }
    let segments = all_segments(Message::tagged(TAGGED, 200), &[114]);
    assert_eq!(
        segments.iter().map(|s| (s.len, s.header.last())).collect::<Vec<_>>(),
        [(100, false), (100, true)]
    );
}

/// Covers: DDP-5041-4.3-06, DDP-5041-4.3-07, DDP-5041-4.3-08
#[test]
fn corner_31_msn_starts_at_one_and_wraps_to_zero() {
    assert_eq!(UntaggedQueue::new().next(), Msn(1));
    let mut queue = UntaggedQueue::expecting(Msn(0xffff_fffe));
    let seen: Vec<u32> = (0..4)
        .map(|_| {
            let next = queue.next().0;
            queue.delivered();
            next
        })
        .collect();
    assert_eq!(seen, [0xffff_fffe, 0xffff_ffff, 0, 1]);
}

/// Covers: DDP-5041-7.1-02, DDP-5041-7.1-09
#[test]
fn msn_must_be_the_next_of_those_that_have_a_buffer() {
    let check = |next: u32, msn: u32, available| {
        UntaggedQueue::expecting(Msn(next))
            .check_msn(&Untagged { msn: Msn(msn), ..UNTAGGED }, available)
    };
    assert_eq!(check(5, 5, 1), Ok(()));
    assert_eq!(check(5, 5, 0), Err(DdpError::NoBuffer));
    assert_eq!(check(5, 6, 1), Err(DdpError::NoBuffer));
    assert_eq!(check(5, 6, 2), Err(DdpError::MsnRange));
    assert_eq!(check(5, 4, 1), Err(DdpError::MsnRange));
    assert_eq!(check(5, 4, 0), Err(DdpError::MsnRange));
    // Around the wrap.
    assert_eq!(check(0xffff_ffff, 0, 2), Err(DdpError::MsnRange));
    assert_eq!(check(0xffff_ffff, 0, 1), Err(DdpError::NoBuffer));
    assert_eq!(check(0, 0xffff_ffff, 1), Err(DdpError::MsnRange));
    assert_eq!(check(0, 0, 1), Ok(()));
}

/// Covers: DDP-5041-7.1-07, DDP-5041-7.1-08, DDP-5041-5.2-02
#[test]
fn offset_and_end_must_be_inside_the_buffer() {
    let check =
        |mo: u32, len, buffer| check_offset(&Untagged { mo: Mo(mo), ..UNTAGGED }, len, buffer);
    assert_eq!(check(0, 16, 16), Ok(()));
    assert_eq!(check(15, 1, 16), Ok(()));
    let too_long = |octets, room| Err(DdpError::TooLong { octets, whole: UNTAGGED.last, room });
    assert_eq!(check(0, 17, 16), too_long(17, 16));
    assert_eq!(check(15, 2, 16), too_long(17, 16));
    assert_eq!(check(16, 1, 16), Err(DdpError::InvalidMo));
    assert_eq!(check(u32::MAX, 1, 16), Err(DdpError::InvalidMo));
    // No buffer at all is too short, rather than wrongly addressed.
    assert_eq!(check(0, 1, 0), too_long(1, 0));
    // An empty segment is fine up to the end, where a last segment may stand alone.
    assert_eq!(check(0, 0, 0), Ok(()));
    assert_eq!(check(16, 0, 16), Ok(()));
    assert_eq!(check(17, 0, 16), Err(DdpError::InvalidMo));
    // A message has less than 2^32 octets, however large the buffer.
    assert_eq!(check(u32::MAX - 1, 1, 1 << 40), Ok(()));
    assert_eq!(check(u32::MAX - 1, 2, 1 << 40), too_long(u32::MAX, u32::MAX));
}

#[test]
fn a_message_that_is_too_long_is_named_with_both_lengths() {
    let said = |last| {
        let header = Untagged { mo: Mo(1024), last, ..UNTAGGED };
        check_offset(&header, 7168, 1500).unwrap_err().to_string()
    };
    assert_eq!(said(true), "message of 8192 bytes > receive of 1500 bytes");
    assert_eq!(said(false), "message of 8192 bytes or more > receive of 1500 bytes");
}

/// Covers: DDP-5041-7.1-11, DDP-5041-7.2-01
#[test]
fn refused_accesses_have_the_faults_of_section_7_2() {
    for (access, fault) in [
        (AccessError::InvalidStag, DdpError::InvalidStag),
        (AccessError::Bounds, DdpError::Bounds),
        (AccessError::Wrap, DdpError::Wrap),
        (AccessError::NotAssociated, DdpError::NotAssociated),
        // No code of its own: such an STag is not valid for the access.
        (AccessError::Rights, DdpError::InvalidStag),
    ] {
        assert_eq!(DdpError::from(access), fault);
    }
}
