// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA Reads as the one that is asked (RFC 5040 §5.2.1): checks, IRD, responses.

use super::octets::{self, read_header, read_request, tagged, untagged, word};
use super::*;

/// The response to [`read_request`]'s `msn`.
fn answer(msn: u32, last: bool, offset: u64, payload: &[u8]) -> Vec<u8> {
    tagged(octets::READ_RESPONSE, last, 0x5151_0000 + msn, 0x99 + offset, payload)
}

/// Covers: RDMAP-5040-4.4-02, RDMAP-5040-4.4-03, RDMAP-5040-4.4-05, RDMAP-5040-5.2.1-03,
/// RDMAP-5040-5.2.1-10, RDMAP-5040-5.2.2-01, RDMAP-5040-5.2.2-08, RDMAP-5040-5.2.1-04
#[test]
fn a_request_is_answered_with_its_sink_copied_unread() {
    let mut raw = Raw::new();
    raw.end.host.fill(OPEN, 100, b"source");
    for (i, (stag, to)) in
        [(0, 0), (u32::MAX, 0xffff_ffff_ffff_fff0), (OPEN, OPEN_BASE), (LOCAL, 3)]
            .iter()
            .enumerate()
    {
        let header = read_header((*stag, *to), 6, (OPEN, OPEN_BASE + 100));
        let msn = i as u32 + 1;
        raw.send(&untagged(octets::READ_REQUEST, true, 0, 1, msn, 0, &header));
        assert_eq!(raw.back(), [tagged(octets::READ_RESPONSE, true, *stag, *to, b"source")]);
    }
    assert_eq!(raw.end.events(), []);
}

/// Covers: RDMAP-5040-5.2.1-11, RDMAP-5040-5.2.1-13, RDMAP-5040-5.2.1-14, RDMAP-5040-5.2.1-02
#[test]
fn corner_43_a_zero_length_read_is_answered_whatever_source_it_names() {
    let mut raw = Raw::responder(config(), |terms| terms.ird = 1);
    raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
    for (msn, stag, to) in [(1, 0, 0), (2, 0xbad, u64::MAX), (3, LOCAL, 0)] {
        raw.send(&read_request(msn, 0, stag, to));
        assert_eq!(raw.back(), [answer(msn, true, 0, &[])]);
    }
    assert_eq!(raw.end.host.touches(), []);
    // It takes a slot of IRD like any other.
    raw.send(&read_request(4, 0, 0, 0));
    let over = read_request(5, 0, 0, 0);
    assert_eq!(raw.refuse(&over), quoting([0x12, 0x02], 46, &over[..18], &[]));
}

/// Covers: RDMAP-5040-5.2.1-07, RDMAP-5040-5.2.2-05, RDMAP-5040-5.5-12
#[test]
fn corner_58_responses_go_out_in_the_order_of_requests_though_one_is_empty() {
    let mut raw = Raw::new();
    raw.end.tx.set_mulpdu(128);
    raw.end.host.fill(OPEN, 0, &[1; 200]);
    raw.send(&read_request(1, 200, OPEN, OPEN_BASE));
    raw.send(&read_request(2, 0, 0, 0));
    raw.send(&read_request(3, 4, OPEN, OPEN_BASE));
    assert_eq!(
        raw.back(),
        [
            answer(1, false, 0, &[1; 114]),
            answer(1, true, 114, &[1; 86]),
            answer(2, true, 0, &[]),
            answer(3, true, 0, &[1; 4]),
        ]
    );
}

/// Covers: RDMAP-5040-5.2.2-02, RDMAP-5040-6.1-02, RDMAP-5040-6.1-05, RDMAP-5040-8.1.1-12,
/// EXT-7306-5.2.2-03, SEC-5042-6.4.3.3-02
#[test]
fn corner_49_requests_beyond_ird_have_no_buffer() {
    let mut raw = Raw::new();
    assert_eq!(raw.end.qp.borrow().read_depths().1, 4);
    for msn in [1, 3] {
        raw.send(&read_request(msn, 4, OPEN, OPEN_BASE));
        raw.send(&octets::atomic_request(msn + 1, OPEN, OPEN_BASE, octets::fetch_add(1)));
    }
    assert_eq!(raw.end.events(), []);
    let over = read_request(5, 4, OPEN, OPEN_BASE);
    assert_eq!(raw.refuse(&over), quoting([0x12, 0x02], 46, &over[..18], &[]));
    // A slot is free again when its answer was built.
    let mut raw = Raw::new();
    for msn in 1..=20 {
        raw.send(&read_request(msn, 4, OPEN, OPEN_BASE));
        if msn >= 4 {
            raw.back();
        }
    }
    assert_eq!(raw.end.events(), []);
    // None at all.
    let mut raw = Raw::responder(config(), |terms| terms.ird = 0);
    let over = read_request(1, 0, 0, 0);
    assert_eq!(raw.refuse(&over), quoting([0x12, 0x02], 46, &over[..18], &[]));
}

/// Covers: RDMAP-5040-5.2.1-12, RDMAP-5040-5.2.1-15, RDMAP-5040-7.1-04, RDMAP-5040-7.2-09,
/// RDMAP-5040-7.2-10, RDMAP-5040-7.2-11, RDMAP-5040-7.2-12, RDMAP-5040-7.2-13,
/// RDMAP-5040-4.8-09
#[test]
fn the_source_of_a_request_is_checked_and_the_terminate_quotes_both_headers() {
    type Change = fn(&mut Region);
    let end = OPEN_BASE + SIZE as u64;
    let keep: Change = |_| {};
    let cases: [(u32, u64, u32, Change, u8); 13] = [
        (0, OPEN_BASE, 4, keep, 0x00),
        (OPEN + 1, OPEN_BASE, 4, keep, 0x00),
        (OPEN, OPEN_BASE, 4, |region| region.valid = false, 0x00),
        (OPEN, end - 1, 2, keep, 0x01),
        (OPEN, end, 1, keep, 0x01),
        (OPEN, OPEN_BASE - 1, 2, keep, 0x01),
        (OPEN, OPEN_BASE, u32::MAX, keep, 0x01),
        (OPEN, OPEN_BASE, 4, |region| region.access = Access::REMOTE_WRITE, 0x02),
        (OPEN, OPEN_BASE, 4, |region| region.pd = PdId(8), 0x03),
        (OPEN, OPEN_BASE, 4, |region| region.only = Some(QpId(4)), 0x03),
        (OPEN, u64::MAX, 1, keep, 0x04),
        (OPEN, u64::MAX - 3, 5, keep, 0x04),
        (OPEN, u64::MAX - 3, 3, keep, 0x01),
    ];
    for (stag, to, size, change, code) in cases {
        let mut raw = Raw::new();
        raw.end.host.change(OPEN, change);
        let ulpdu = read_request(1, size, stag, to);
        assert_eq!(
            raw.refuse(&ulpdu),
            quoting([0x01, code], 46, &ulpdu[..18], &ulpdu[18..]),
            "{stag:#x} {to:#x} {size}"
        );
        assert!(matches!(raw.end.events()[..], [Event::Fault(_)]));
        assert_eq!(raw.end.host.touches(), []);
    }
    // To the octet.
    let mut raw = Raw::new();
    raw.send(&read_request(1, SIZE as u32, OPEN, OPEN_BASE));
    assert_eq!(raw.end.events(), []);
}

/// Covers: RDMAP-5040-7.2-06, RDMAP-5040-4.2-01
#[test]
fn corner_48_a_request_is_one_segment_of_28_octets_on_queue_one() {
    let good = read_request(1, 4, OPEN, OPEN_BASE);
    let header = &good[18..];
    let cases: [(&str, Vec<u8>, [u8; 2]); 8] = [
        ("short", untagged(0x41, true, 0, 1, 1, 0, &header[..27]), [0x02, 0x07]),
        ("empty", untagged(0x41, true, 0, 1, 1, 0, &[]), [0x02, 0x07]),
        ("long", untagged(0x41, true, 0, 1, 1, 0, &[header, b"x"].concat()), [0x12, 0x05]),
        ("very long", untagged(0x41, true, 0, 1, 1, 0, &[1; 300]), [0x12, 0x05]),
        ("not last", untagged(0x41, false, 0, 1, 1, 0, header), [0x02, 0x07]),
        ("offset inside", untagged(0x41, true, 0, 1, 1, 4, header), [0x12, 0x05]),
        ("offset outside", untagged(0x41, true, 0, 1, 1, 28, header), [0x12, 0x04]),
        ("queue of Sends", untagged(0x41, true, 0, 0, 1, 0, header), [0x12, 0x01]),
    ];
    for (what, ulpdu, code) in cases {
        let mut raw = Raw::new();
        assert_eq!(raw.refuse(&ulpdu), quoting(code, ulpdu.len(), &ulpdu[..18], &[]), "{what}");
    }
    let mut raw = Raw::new();
    let ulpdu = tagged(octets::READ_REQUEST, true, OPEN, OPEN_BASE, header);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], ulpdu.len(), &ulpdu[..14], &[]));
}

/// Covers: RDMAP-5040-7.2-06, DDP-5041-7.1-09
#[test]
fn requests_come_in_the_order_of_their_msn() {
    for (msn, code) in [(2, 0x03), (4, 0x03), (5, 0x02), (0, 0x03), (0xffff_ffff, 0x03)] {
        let mut raw = Raw::new();
        let ulpdu = read_request(msn, 4, OPEN, OPEN_BASE);
        assert_eq!(raw.refuse(&ulpdu), quoting([0x12, code], 46, &ulpdu[..18], &[]), "{msn}");
    }
    // A number of its own: Sends do not count.
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.send(&octets::send(1, &[]));
    raw.send(&read_request(1, 4, OPEN, OPEN_BASE));
    assert_eq!(raw.back().len(), 1);
}

/// Covers: RDMAP-5040-4.8-10, RDMAP-5040-5.4-08
#[test]
fn corner_52_a_response_that_fails_half_way_is_quoted_as_what_is_left_of_it() {
    for crc in [true, false] {
        let mut raw = Raw::responder(config(), |terms| terms.crc = crc);
        raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
        raw.end.tx.set_mulpdu(4114);
        let ulpdu = read_request(1, 9000, OPEN, OPEN_BASE + 50);
        raw.send(&ulpdu);
        raw.send(&read_request(2, 4, OPEN, OPEN_BASE));
        raw.end.host.revoke_after.set(Some((2, AccessError::InvalidStag)));
        raw.end.build();
        // With CRC off what was built is read again when the stream takes it.
        raw.end.host.revoke_after.set(None);
        let back = raw.back();
        assert_eq!(back.len(), 3, "two segments and the Terminate");
        assert_eq!(back[0], answer(1, false, 0, &[0; 4100]));
        assert_eq!(back[1], answer(1, false, 4100, &[0; 4100]));
        let left = read_header((0x5151_0001, 0x99 + 8200), 800, (OPEN, OPEN_BASE + 50 + 8200));
        assert_eq!(back[2][18..], quoting([0x01, 0x00], 46, &ulpdu[..18], &left));
    }
}

/// Covers: RDMAP-5040-5.5-04, RDMAP-5040-5.5-09, RDMAP-5040-5.5-14
#[test]
fn the_source_is_read_when_the_response_is_built_and_never_before_the_request_is_delivered() {
    let mut raw = Raw::new();
    let ulpdu = read_request(1, 4, OPEN, OPEN_BASE);
    let fpdu = raw.fpdu(&ulpdu);
    for octet in &fpdu[..fpdu.len() - 1] {
        raw.end.arrive(&[*octet]);
        raw.end.build();
    }
    assert_eq!(raw.end.host.touches(), []);
    raw.end.arrive(&fpdu[fpdu.len() - 1..]);
    assert_eq!(raw.end.host.touches(), []);
    // A later Write may be placed first.
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"late"));
    assert_eq!(raw.back(), [answer(1, true, 0, b"late")]);
}

/// Covers: RDMAP-5040-5.5-10
#[test]
fn own_messages_and_answers_take_turns() {
    let mut raw = Raw::new();
    for msn in 1..=3 {
        raw.send(&read_request(msn, 4, OPEN, OPEN_BASE));
        raw.end.post(u64::from(msn), SEND, &[]);
    }
    let opcodes: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes.iter().filter(|&&op| op == octets::SEND).count(), 3);
    assert!(opcodes.windows(2).all(|two| two[0] != two[1]), "{opcodes:02x?}");
}

#[test]
fn a_response_is_never_cut_by_another_message() {
    let mut raw = Raw::new();
    raw.end.tx.set_mulpdu(128);
    raw.send(&read_request(1, 1000, OPEN, OPEN_BASE));
    raw.end.post(1, SEND, &[local(0, 300)]);
    raw.send(&read_request(2, 300, OPEN, OPEN_BASE));
    let mut open: Option<(u8, u32)> = None;
    for ulpdu in raw.back() {
        let message = (ulpdu[1], word(&ulpdu, 2));
        assert!(open.is_none_or(|open| open == message));
        open = (ulpdu[0] & 0x40 == 0).then_some(message);
    }
    assert_eq!(open, None);
    assert_eq!(raw.end.completions().len(), 1);
}

/// Covers: RDMAP-5040-8.1.2-07, SEC-5042-A-03, SEC-5042-6.4.3.3-01
#[test]
fn requests_of_one_stream_take_no_slots_of_another() {
    let [mut greedy, mut modest] = [Raw::new(), Raw::new()];
    for msn in 1..=4 {
        greedy.send(&read_request(msn, 4, OPEN, OPEN_BASE));
    }
    for msn in 1..=4 {
        modest.send(&read_request(msn, 4, OPEN, OPEN_BASE));
    }
    greedy.send(&read_request(5, 4, OPEN, OPEN_BASE));
    assert_eq!((greedy.end.events().len(), modest.end.events().len()), (1, 0));
    assert_eq!(modest.back().len(), 4);
}
