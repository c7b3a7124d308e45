// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bad frames of a peer: each code that can be provoked is, and nothing else happens.

use super::octets::{self, send, tagged, untagged};
use super::*;

/// A good ULPDU of every opcode, for [`waiting`].
fn good() -> Vec<Vec<u8>> {
    vec![
        tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"data"),
        octets::read_request(1, 4, OPEN, OPEN_BASE),
        tagged(octets::READ_RESPONSE, true, 0x8000_0001, 0, b"data"),
        send(1, b"data"),
        untagged(octets::SEND_INVALIDATE, true, OPEN, 0, 1, 0, b"data"),
        untagged(octets::SEND_SOLICITED, true, 0, 0, 1, 0, b"data"),
        untagged(octets::SEND_SOLICITED_INVALIDATE, true, OPEN, 0, 1, 0, b"data"),
        octets::terminate(&[0; 4]),
        untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, b"12345678"),
        untagged(octets::IMMEDIATE_SOLICITED, true, 0, 0, 1, 0, b"12345678"),
        octets::atomic_request(1, OPEN, OPEN_BASE, octets::fetch_add(1)),
    ]
}

/// An end that every one of [`good`] is good for.
fn waiting() -> Raw {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.post(2, read_op(0), &[local(0, 4)]);
    assert_eq!(raw.back().len(), 1);
    raw
}

fn header_len(ulpdu: &[u8]) -> usize {
    if ulpdu[0] & 0x80 != 0 { 14 } else { 18 }
}

#[test]
fn the_good_frames_are_good() {
    for ulpdu in good() {
        let mut raw = waiting();
        raw.send(&ulpdu);
        assert!(!raw.end.events().iter().any(|event| matches!(event, Event::Fault(_))));
    }
}

/// Covers: DDP-5041-4.1-08, RDMAP-5040-4.1-08
#[test]
fn corner_39_reserved_bits_of_no_message_are_looked_at() {
    for ulpdu in good() {
        let mut odd = ulpdu.clone();
        odd[0] |= 0x3c;
        odd[1] |= 0x30;
        let mut ends = [waiting(), waiting()];
        ends[0].send(&ulpdu);
        ends[1].send(&odd);
        let [good, odd] = ends
            .map(|mut raw| (raw.end.events(), raw.end.host.touches(), raw.back(), raw.end.state()));
        assert_eq!(good, odd);
    }
}

/// Covers: DDP-5041-4.1-09, DDP-5041-4.1-10, DDP-5041-7.2-01, RDMAP-5040-7.2-01,
/// EXT-7306-8.2-01, MPA-5044-3-12
#[test]
fn corner_39_the_ddp_version_of_every_message_is_checked() {
    for ulpdu in good() {
        for version in [0, 2, 3] {
            let mut bad = ulpdu.clone();
            bad[0] = (bad[0] & !3) | version;
            let len = header_len(&bad);
            let code = if len == 14 { [0x11, 0x04] } else { [0x12, 0x06] };
            let mut raw = waiting();
            assert_eq!(raw.refuse(&bad), quoting(code, bad.len(), &bad[..len], &[]));
            assert_eq!(raw.end.host.touches(), []);
        }
    }
    // On every segment, not the first alone.
    let mut raw = waiting();
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abc"));
    let mut bad = untagged(octets::SEND, true, 0, 0, 1, 3, b"def");
    bad[0] = 0x40;
    assert_eq!(raw.refuse(&bad), quoting([0x12, 0x06], 21, &bad[..18], &[]));
}

/// Covers: RDMAP-5040-4.1-07, RDMAP-5040-7.2-03, RDMAP-5040-7.2-08, EXT-7306-8.2-03,
/// EXT-7306-4.1-01
#[test]
fn the_rdmap_version_of_every_message_is_checked() {
    for ulpdu in good() {
        for version in [0x00, 0x80, 0xc0] {
            let mut bad = ulpdu.clone();
            bad[1] = (bad[1] & 0x3f) | version;
            let len = header_len(&bad);
            let mut raw = waiting();
            assert_eq!(raw.refuse(&bad), quoting([0x02, 0x05], bad.len(), &bad[..len], &[]));
            assert_eq!(raw.end.host.touches(), []);
        }
    }
}

/// Covers: RDMAP-5040-7.2-02, RDMAP-5040-7.2-07, EXT-7306-8.2-02, RDMAP-5040-7.2-01
#[test]
fn corner_48_reserved_opcodes_and_wrong_kinds_of_segment_are_refused() {
    let tagged_opcodes = [octets::WRITE, octets::READ_RESPONSE];
    for opcode in 0x40..=0x4f {
        if !tagged_opcodes.contains(&opcode) {
            let bad = tagged(opcode, true, OPEN, OPEN_BASE, &[0; 40]);
            let mut raw = waiting();
            assert_eq!(raw.refuse(&bad), quoting([0x02, 0x06], 54, &bad[..14], &[]));
            assert_eq!(raw.end.host.touches(), []);
        }
        if tagged_opcodes.contains(&opcode) || opcode > octets::ATOMIC_RESPONSE {
            for qn in 0..4 {
                let bad = untagged(opcode, true, 0, qn, 1, 0, &[0; 8]);
                let mut raw = waiting();
                assert_eq!(raw.refuse(&bad), quoting([0x02, 0x06], 26, &bad[..18], &[]));
                assert_eq!(raw.end.host.touches(), []);
            }
        }
    }
}

/// Covers: DDP-5041-7.1-01, RDMAP-5040-7.2-06
#[test]
fn corner_36_a_queue_that_is_not_the_messages_is_invalid() {
    for ulpdu in good() {
        if header_len(&ulpdu) == 14 {
            continue;
        }
        for qn in [0, 1, 2, 3, 4, 0x100, u32::MAX] {
            let mut bad = ulpdu.clone();
            bad[6..10].copy_from_slice(&u32::to_be_bytes(qn));
            if bad != ulpdu {
                let mut raw = waiting();
                assert_eq!(raw.refuse(&bad), quoting([0x12, 0x01], bad.len(), &bad[..18], &[]));
            }
        }
    }
}

/// Covers: DDP-5041-7.1-02, DDP-5041-7.1-06, DDP-5041-7.1-07, DDP-5041-7.1-08,
/// DDP-5041-7.1-09, DDP-5041-7.2-01
#[test]
fn corner_36_each_fault_of_an_untagged_buffer_has_its_code() {
    // Receives of 8 octets for messages 1 and 2.
    let cases: [(&str, u32, u32, usize, Option<u8>); 13] = [
        ("fits", 1, 0, 8, None),
        ("fits behind an offset", 1, 7, 1, None),
        ("one too many", 1, 0, 9, Some(0x05)),
        ("begins inside, ends outside", 1, 7, 2, Some(0x05)),
        ("begins at the end", 1, 8, 1, Some(0x04)),
        ("begins far outside", 1, u32::MAX, 1, Some(0x04)),
        ("the next but one", 2, 0, 8, Some(0x03)),
        ("the first without a buffer", 3, 0, 8, Some(0x02)),
        ("a later one", 4, 0, 8, Some(0x02)),
        ("a far later one", 0x4000_0000, 0, 8, Some(0x02)),
        ("the one before", 0, 0, 8, Some(0x03)),
        ("the one before that", u32::MAX, 0, 8, Some(0x03)),
        ("long ago", 0xc000_0000, 0, 8, Some(0x03)),
    ];
    for (what, msn, mo, len, code) in cases {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.receive(2, &[local(8, 8)]);
        let ulpdu = untagged(octets::SEND, true, 0, 0, msn, mo, &vec![9; len]);
        match code {
            None => {
                raw.send(&ulpdu);
                assert_eq!(raw.end.completions().len(), 1, "{what}");
            }
            Some(code) => {
                let expected = quoting([0x12, code], ulpdu.len(), &ulpdu[..18], &[]);
                assert_eq!(raw.refuse(&ulpdu), expected, "{what}");
                assert_eq!(raw.end.host.touches(), [], "{what}");
            }
        }
    }
    let mut raw = Raw::new();
    let ulpdu = send(1, &[]);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x12, 0x02], 18, &ulpdu, &[]));
}

/// No code in the RFCs; the length field cannot be right, and there is no header to quote.
/// Covers: DDP-5041-4.4-01
#[test]
fn corner_10_a_ulpdu_too_short_for_its_header_ends_the_stream() {
    for crc in [true, false] {
        for ulpdu in good() {
            for len in 0..header_len(&ulpdu) {
                let mut raw = Raw::responder(config(), |terms| terms.crc = crc);
                let short = if len == 0 { &[][..] } else { &ulpdu[..len] };
                assert_eq!(raw.refuse(short), [0x20, 0x03, 0, 0], "{len}");
                assert_eq!(raw.end.host.touches(), []);
            }
        }
    }
}

/// Covers: MPA-5044-8-05, DDP-5041-3-07, DDP-5041-7-01
#[test]
fn corner_12_nothing_of_an_fpdu_is_placed_before_its_crc_was_verified() {
    let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[5; 9000]);
    let len = 2 + ulpdu.len() + 4;
    for bad in [0, 1, 2, 20, 5000, len - 5, len - 1] {
        let mut raw = Raw::responder(config(), |_| {});
        let mut fpdu = raw.fpdu(&ulpdu);
        fpdu[bad] ^= 0x01;
        for part in fpdu.chunks(1000) {
            raw.end.arrive(part);
            assert_eq!(raw.end.host.touches(), []);
        }
        if bad < 2 {
            // The length field itself: more octets are wanted, which never come, or fewer.
            raw.end.eof();
            let code = raw.terminate()[..2].to_vec();
            assert!(code == [0x20, 0x01] || code == [0x20, 0x02], "{code:02x?}");
        } else {
            assert_eq!(raw.terminate(), [0x20, 0x02, 0, 0]);
        }
        assert!(raw.end.host.octets(OPEN).iter().all(|&octet| octet == 0));
    }
}

/// Covers: MPA-5044-8-05
#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    let mut raw = Raw::responder(config(), |terms| {
        (terms.crc, terms.receive_markers) = (false, true);
    });
    let mut fpdu = raw.fpdu(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[5; 900]));
    fpdu[512 + 3] ^= 0x10;
    raw.end.arrive(&fpdu);
    assert_eq!(raw.terminate(), [0x20, 0x03, 0, 0]);
    assert_eq!(raw.end.host.touches(), []);
}

#[test]
fn corner_10_a_length_beyond_what_markers_reach_over_is_a_framing_error() {
    for crc in [true, false] {
        for length in [64769u16, 65535] {
            let mut raw = Raw::responder(config(), |terms| {
                (terms.crc, terms.receive_markers) = (crc, true);
            });
            let [high, low] = length.to_be_bytes();
            raw.end.arrive(&[0, 0, 0, 0, high, low]);
            assert_eq!(raw.terminate(), [0x20, 0x03, 0, 0]);
        }
    }
    // The longest is carried, though this end would never send it.
    for crc in [true, false] {
        let mut raw = Raw::responder(config(), |terms| terms.crc = crc);
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &pattern(64768 - 14, 1)));
        assert_eq!(raw.end.events(), [Event::FirstHeard]);
        assert_eq!(raw.end.host.octets(OPEN)[..64754], pattern(64754, 1));
    }
}

/// Every fault is told to the program.
/// Covers: RDMAP-5040-7.1-01, DDP-5041-6.2.2-01
#[test]
fn no_frame_of_a_peer_goes_wrong_in_silence() {
    let mut faults = 0;
    for ulpdu in good() {
        for at in 0..header_len(&ulpdu) {
            for bit in 0..8 {
                let mut bad = ulpdu.clone();
                bad[at] ^= 1 << bit;
                let mut raw = waiting();
                raw.send(&bad);
                let events = raw.end.events();
                let fault = events.iter().any(|event| matches!(event, Event::Fault(_)));
                let terminated = events.iter().any(|event| matches!(event, Event::Terminated(_)));
                faults += usize::from(fault);
                assert!(!(fault && terminated));
                assert_eq!(raw.end.state() == QpState::Err, fault || terminated);
                let back = raw.back();
                assert_eq!(back.iter().any(|ulpdu| ulpdu[1] == octets::TERMINATE), fault);
                if fault {
                    // A receive is ended, never forgotten.
                    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
                    assert_eq!(events.into_iter().filter_map(completion).count(), 2);
                }
            }
        }
    }
    assert!(faults > 500, "{faults}");
}
