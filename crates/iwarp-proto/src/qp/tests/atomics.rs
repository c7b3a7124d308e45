// SPDX-License-Identifier: MIT OR Apache-2.0

//! FetchAdd and CompareSwap (RFC 7306 §5).

use super::octets::{self, atomic_request, atomic_response, fetch_add, untagged, word};
use super::*;

const CAS: (u32, [u64; 4]) = (2, [0x22, u64::MAX, 0x11, u64::MAX]);

fn cas_op(at: u64, compare: u64, swap: u64) -> SendOp {
    SendOp::Atomic {
        stag: Stag(OPEN),
        to: TaggedOffset(OPEN_BASE + at),
        op: AtomicOp::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX },
    }
}

fn value(host: &Host, stag: u32, at: usize) -> u64 {
    u64::from_ne_bytes(host.octets(stag)[at..at + 8].try_into().unwrap())
}

/// Covers: EXT-7306-5-03, EXT-7306-5.1.1-07, EXT-7306-5.1.2-02, EXT-7306-5.2.1-08,
/// EXT-7306-5.2.1-09, EXT-7306-5.2.1-14, EXT-7306-5.2.2-05, EXT-7306-5.2.2-08
#[test]
fn atomics_change_the_peers_memory_and_bring_back_what_was_there() {
    let mut pair = Pair::new();
    pair.b.receive(9, &[]);
    pair.b.host.fill(OPEN, 8, &40u64.to_ne_bytes());
    pair.a.post(1, add_op(8, 2), &[local(0, 8)]);
    pair.a.post(2, cas_op(8, 42, 1 << 40), &[local(8, 8)]);
    pair.a.post(3, cas_op(8, 42, 7), &[local(16, 3), local(32, 5)]);
    pair.a.post(4, add_op(8, u64::MAX), &[local(24, 8)]);
    pair.run();
    let completions = pair.a.completions();
    assert_eq!(
        outcomes(&completions),
        [
            (1, WcStatus::Success, WcOp::FetchAdd),
            (2, WcStatus::Success, WcOp::CompareSwap),
            (3, WcStatus::Success, WcOp::CompareSwap),
            (4, WcStatus::Success, WcOp::FetchAdd)
        ]
    );
    assert!(completions.iter().all(|wc| wc.byte_len == 8));
    assert_eq!(value(&pair.a.host, LOCAL, 0), 40);
    assert_eq!(value(&pair.a.host, LOCAL, 8), 42);
    assert_eq!(value(&pair.a.host, LOCAL, 24), 1 << 40);
    let local = pair.a.host.octets(LOCAL);
    let scattered = [&local[16..19], &local[32..37]].concat();
    assert_eq!(scattered, (1u64 << 40).to_ne_bytes(), "no match leaves and returns the value");
    assert_eq!(value(&pair.b.host, OPEN, 8), (1 << 40) - 1);
    assert_eq!(pair.b.completions(), [], "nothing is delivered there");
}

/// A card takes such a request, and its completion says what is wrong.
#[test]
fn an_atomic_of_another_length_than_eight_fails_and_is_not_sent() {
    let lists: [&[Sge]; 3] = [&[], &[local(0, 7)], &[local(0, 8), local(8, 1)]];
    for op in [add_op(8, 1), cas_op(8, 0, 1)] {
        for list in lists {
            let mut pair = Pair::new();
            pair.a.post(1, op, list);
            pair.a.post(2, SEND, &[]);
            pair.run();
            assert_eq!(
                outcomes(&pair.a.completions()),
                [(1, WcStatus::LocalLength, op.completes_as()), (2, WcStatus::Flushed, WcOp::Send)]
            );
            assert_eq!(value(&pair.b.host, OPEN, 8), 0);
        }
    }
}

/// Covers: EXT-7306-5.2-01, EXT-7306-5.2.1-03, EXT-7306-5.2.1-05, EXT-7306-5.2.1-06,
/// EXT-7306-5.2.1-11, EXT-7306-5.2.1-12, EXT-7306-5.2.1-15, EXT-7306-4.1-03, EXT-7306-4.2-01,
/// EXT-7306-5.2.1-01
#[test]
fn requests_have_the_layout_of_figure_4_on_queue_one_in_the_order_posted() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[]);
    raw.end.post(
        2,
        SendOp::Atomic {
            stag: Stag(5),
            to: TaggedOffset(6),
            op: AtomicOp::FetchAdd { add: 7, mask: 8 },
        },
        &[local(0, 8)],
    );
    raw.end.post(
        3,
        SendOp::Atomic {
            stag: Stag(15),
            to: TaggedOffset(16),
            op: AtomicOp::CompareSwap { compare: 17, compare_mask: 18, swap: 19, swap_mask: 20 },
        },
        &[local(0, 8)],
    );
    let back = raw.back();
    let ids = [word(&back[1], 22), word(&back[2], 22)];
    assert_ne!(ids[0], ids[1]);
    let add = octets::atomic_header(ids[0], 5, 6, (0, [7, 8, 0, u64::MAX]));
    let cas = octets::atomic_header(ids[1], 15, 16, (2, [19, 20, 17, 18]));
    assert_eq!(
        back[1..],
        [
            untagged(octets::ATOMIC_REQUEST, true, 0, 1, 2, 0, &add),
            untagged(octets::ATOMIC_REQUEST, true, 0, 1, 3, 0, &cas),
        ]
    );
}

/// Covers: EXT-7306-5-05, EXT-7306-5.2-02, EXT-7306-5.2.2-01, EXT-7306-5.2.2-02,
/// EXT-7306-5.2.2-07, EXT-7306-5.2.1-03, EXT-7306-5.2.1-13, EXT-7306-5.4-08, EXT-7306-5.4-09,
/// EXT-7306-7-03, EXT-7306-5.2.1-07, EXT-7306-4.1-03
#[test]
fn responses_come_on_queue_three_in_the_order_of_requests_and_echo_the_identifier() {
    let mut raw = Raw::new();
    raw.end.host.fill(OPEN, 0, &0x11u64.to_ne_bytes());
    let mut cas = atomic_request(1, OPEN, OPEN_BASE, CAS);
    cas[2..6].fill(0xff);
    raw.send(&cas);
    let mut add = atomic_request(2, OPEN, OPEN_BASE, fetch_add(1));
    // Reserved bits, and the compare fields that a FetchAdd has no use for.
    add[18..22].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
    add[54..].fill(0xa5);
    raw.send(&add);
    raw.send(&atomic_request(3, OPEN, OPEN_BASE, fetch_add(1)));
    assert_eq!(
        raw.back(),
        [
            atomic_response(1, 0x7171_0001, 0x11),
            atomic_response(2, 0x7171_0002, 0x22),
            atomic_response(3, 0x7171_0003, 0x23),
        ]
    );
    assert_eq!(raw.end.events(), []);
    assert_eq!(value(&raw.end.host, OPEN, 0), 0x24);
}

/// Covers: EXT-7306-7-01, EXT-7306-7-02
#[test]
fn atomics_and_reads_are_answered_in_their_common_order() {
    let mut raw = Raw::new();
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    raw.send(&atomic_request(2, OPEN, OPEN_BASE, fetch_add(1)));
    raw.send(&octets::read_request(3, 8, OPEN, OPEN_BASE));
    let back = raw.back();
    assert_eq!(back[0][14..], 0u64.to_ne_bytes(), "read before the addition");
    assert_eq!(back[1], atomic_response(1, 0x7171_0002, 0));
    assert_eq!(back[2][14..], 1u64.to_ne_bytes(), "read behind it");
}

/// Covers: EXT-7306-5.4-03, EXT-7306-5.4-05
#[test]
fn an_atomic_waits_for_the_delivery_of_its_request() {
    let mut raw = Raw::new();
    let ulpdu = atomic_request(1, OPEN, OPEN_BASE, fetch_add(1));
    let fpdu = raw.fpdu(&ulpdu);
    for octet in &fpdu[..fpdu.len() - 1] {
        raw.end.arrive(&[*octet]);
        raw.end.build();
    }
    assert_eq!(raw.end.host.touches(), []);
    raw.end.arrive(&fpdu[fpdu.len() - 1..]);
    raw.end.build();
    assert_eq!(raw.end.host.touches(), [Touch::Atomic { stag: OPEN }]);
}

/// Covers: EXT-7306-7-04
#[test]
fn messages_before_an_atomic_complete_before_its_answer() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.receive(2, &[]);
    raw.send(&octets::send(1, b"first"));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 2, 0, b"12345678"));
    raw.send(&atomic_request(1, OPEN, OPEN_BASE, fetch_add(1)));
    assert_eq!(raw.end.completions().len(), 2);
    assert_eq!(raw.back().len(), 1);
}

/// Covers: EXT-7306-7-05, EXT-7306-5.4-04, EXT-7306-5.4-06
#[test]
fn an_atomic_sees_the_writes_before_it_and_later_sends_may_overtake_it() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.send(&octets::tagged(octets::WRITE, true, OPEN, OPEN_BASE, &5u64.to_ne_bytes()));
    raw.send(&atomic_request(1, OPEN, OPEN_BASE, fetch_add(1)));
    raw.send(&octets::send(1, &[]));
    assert_eq!(raw.end.completions().len(), 1);
    assert_eq!(raw.back(), [atomic_response(1, 0x7171_0001, 5)]);
}

/// Covers: EXT-7306-5.1.1-01, EXT-7306-5.1.1-02, EXT-7306-5.1.1-03, EXT-7306-5.1.1-04,
/// EXT-7306-5.1.1-05, EXT-7306-5.1.2-03, EXT-7306-5.1.2-04, EXT-7306-5.1.2-05,
/// EXT-7306-5.1.2-06, EXT-7306-5.1.2-07, EXT-7306-5.2.1-04, EXT-7306-8.1-02,
/// EXT-7306-8.2-04, EXT-7306-8.2-05
#[test]
fn corner_63_an_unaligned_target_ends_the_stream_and_stays_as_it_was() {
    for op in [fetch_add(1), CAS] {
        for at in [1, 2, 4, 7] {
            let mut raw = Raw::new();
            raw.end.host.fill(OPEN, 0, &[0x11; 16]);
            let ulpdu = atomic_request(1, OPEN, OPEN_BASE + at, op);
            assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x07], 70, &ulpdu[..18], &[]));
            assert!(matches!(raw.end.events()[..], [Event::Fault(_)]));
            assert_eq!(raw.end.host.octets(OPEN)[..16], [0x11; 16]);
        }
    }
}

/// The alignment is that of the address: memory decides, not the offset that came.
#[test]
fn corner_62_alignment_is_not_judged_by_the_offset() {
    let mut raw = Raw::new();
    // Offset 3 of a zero-based region whose memory begins 5 octets behind an aligned address.
    raw.end.host.change(OPEN, |region| (region.base, region.skew) = (0, 5));
    for (msn, to, fine) in [(1, 3, true), (2, 8, false)] {
        raw.send(&atomic_request(msn, OPEN, to, fetch_add(1)));
        raw.end.build();
        assert_eq!(raw.end.state() == QpState::Rts, fine);
    }
    assert_eq!(value(&raw.end.host, OPEN, 3), 1);
}

/// Covers: EXT-7306-8.1-02, EXT-7306-8.2-01
#[test]
fn the_target_is_checked_and_the_terminate_quotes_the_ddp_header_alone() {
    type Change = fn(&mut Region);
    let end = OPEN_BASE + SIZE as u64;
    let keep: Change = |_| {};
    let cases: [(u32, u64, Change, u8); 7] = [
        (0, OPEN_BASE, keep, 0x00),
        (OPEN + 1, OPEN_BASE, keep, 0x00),
        (OPEN, end - 4, keep, 0x01),
        (OPEN, end, keep, 0x01),
        (OPEN, OPEN_BASE, |region| region.access = Access::REMOTE_READ, 0x02),
        (OPEN, OPEN_BASE, |region| region.pd = PdId(8), 0x03),
        (OPEN, u64::MAX - 7, keep, 0x04),
    ];
    for (stag, to, change, code) in cases {
        let mut raw = Raw::new();
        raw.end.host.change(OPEN, change);
        let ulpdu = atomic_request(1, stag, to, fetch_add(1));
        assert_eq!(raw.refuse(&ulpdu), quoting([0x01, code], 70, &ulpdu[..18], &[]), "{to:#x}");
        assert_eq!(raw.end.host.touches(), []);
    }
    // Lost between the request and its execution: the answers before it still go out.
    let mut raw = Raw::new();
    let ulpdu = atomic_request(2, OPEN, OPEN_BASE, fetch_add(1));
    raw.send(&octets::read_request(1, 0, 0, 0));
    raw.send(&ulpdu);
    raw.send(&octets::tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[]));
    raw.end.host.change(OPEN, |region| region.valid = false);
    let back = raw.back();
    assert_eq!(back.len(), 2);
    assert_eq!(back[1][18..], quoting([0x01, 0x00], 70, &ulpdu[..18], &[]));
}

/// Covers: EXT-7306-5.2.1-10, EXT-7306-5.2.1-02
#[test]
fn corner_66_other_operations_are_unsupported_the_reserved_swap_among_them() {
    for operation in (0..16).filter(|operation| ![0, 2].contains(operation)) {
        let mut raw = Raw::new();
        let ulpdu = atomic_request(1, OPEN, OPEN_BASE, (operation, [1; 4]));
        assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 70, &ulpdu[..18], &[]));
        assert_eq!(raw.end.host.touches(), []);
    }
}

/// Covers: EXT-7306-4.2-01, EXT-7306-8.2-01, EXT-7306-5.2.1-11
#[test]
fn a_request_is_one_segment_of_52_octets_on_queue_one() {
    let good = atomic_request(1, OPEN, OPEN_BASE, fetch_add(1));
    let header = &good[18..];
    for (ulpdu, code) in [
        (untagged(0x4a, true, 0, 1, 1, 0, &header[..51]), [0x02, 0x07]),
        (untagged(0x4a, true, 0, 1, 1, 0, &[header, b"x"].concat()), [0x12, 0x05]),
        (untagged(0x4a, false, 0, 1, 1, 0, header), [0x02, 0x07]),
        (untagged(0x4a, true, 0, 1, 1, 60, header), [0x12, 0x04]),
        (untagged(0x4a, true, 0, 0, 1, 0, header), [0x12, 0x01]),
        (untagged(0x4a, true, 0, 3, 1, 0, header), [0x12, 0x01]),
        (untagged(0x4a, true, 0, 1, 2, 0, header), [0x12, 0x03]),
    ] {
        let mut raw = Raw::new();
        assert_eq!(raw.refuse(&ulpdu), quoting(code, ulpdu.len(), &ulpdu[..18], &[]));
        assert_eq!(raw.end.host.touches(), []);
    }
}

/// An end that has two FetchAdds under way, and the identifiers of their requests.
fn adding() -> (Raw, [u32; 2]) {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, add_op(0, 1), &[local(0, 8)]);
    raw.end.post(2, add_op(0, 1), &[local(8, 8)]);
    let back = raw.back();
    let ids = [word(&back[0], 22), word(&back[1], 22)];
    (raw, ids)
}

/// Covers: EXT-7306-5-06, EXT-7306-5.2.2-06, EXT-7306-5.4-07
#[test]
fn corner_60_a_response_must_have_the_msn_and_the_identifier_of_its_request() {
    let (mut raw, ids) = adding();
    assert_eq!(raw.end.events(), []);
    raw.send(&atomic_response(1, ids[0], 0x77));
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Success, WcOp::FetchAdd)]);
    assert_eq!(value(&raw.end.host, LOCAL, 0), 0x77);
    raw.send(&atomic_response(2, ids[1], 0x88));
    assert_eq!(outcomes(&raw.end.completions()), [(2, WcStatus::Success, WcOp::FetchAdd)]);

    let (_, ids) = adding();
    for (ulpdu, code) in [
        (atomic_response(2, ids[0], 1), [0x12, 0x02]),
        (atomic_response(0, ids[0], 1), [0x12, 0x03]),
        (atomic_response(1, ids[1], 1), [0x02, 0x07]),
        (untagged(0x4b, true, 0, 3, 1, 0, &[0; 11]), [0x02, 0x07]),
        (untagged(0x4b, true, 0, 3, 1, 0, &[0; 32]), [0x12, 0x05]),
        (untagged(0x4b, true, 0, 1, 1, 0, &[0; 12]), [0x12, 0x01]),
        (octets::tagged(0x4b, true, 0, 0, &[0; 12]), [0x02, 0x06]),
    ] {
        let (mut raw, again) = adding();
        assert_eq!(again, ids);
        let header = if ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
        assert_eq!(raw.refuse(&ulpdu), quoting(code, ulpdu.len(), &ulpdu[..header], &[]));
        assert_eq!(raw.end.host.touches(), []);
        assert!(raw.end.completions().iter().all(|wc| wc.status == WcStatus::Flushed));
    }
}

/// Covers: EXT-7306-5.2.2-06
#[test]
fn a_response_that_nothing_asked_for_is_refused() {
    let mut raw = Raw::initiator(config(), |_| {});
    let ulpdu = atomic_response(1, 1, 1);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 30, &ulpdu[..18], &[]));
    // Nor may it overtake the Read that is due.
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.post(2, add_op(0, 1), &[local(0, 8)]);
    let back = raw.back();
    assert_eq!(raw.refuse(&atomic_response(1, word(&back[1], 22), 1))[..2], [0x02, 0x06]);
}

#[test]
fn a_sink_that_was_taken_away_is_a_local_error() {
    let (mut raw, ids) = adding();
    raw.end.host.change(LOCAL, |region| region.access = Access::LOCAL_READ);
    assert_eq!(raw.refuse(&atomic_response(1, ids[0], 1)), [0, 0, 0, 0]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::LocalProtection, WcOp::FetchAdd), (2, WcStatus::Flushed, WcOp::FetchAdd)]
    );
}
