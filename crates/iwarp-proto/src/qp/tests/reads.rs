// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA Reads as the one that asks (RFC 5040 §5.2.2): responses, ORD, fences.
//!
//! The sink STag of a Read is a number of this side's own making with the top bit set. It exists
//! nowhere in the STag table, so the peer can use it for nothing but the one response.

use super::octets::{self, long, tagged, word};
use super::*;

/// Sink STag and offset of a Read Request.
fn sink(request: &[u8]) -> (u32, u64) {
    (word(request, 18), long(request, 22))
}

/// A response, as the request wants it.
fn response(request: &[u8], last: bool, offset: u64, payload: &[u8]) -> Vec<u8> {
    let (stag, to) = sink(request);
    tagged(octets::READ_RESPONSE, last, stag, to.wrapping_add(offset), payload)
}

/// An end that has posted a Read of `len` octets to offset 0 of its memory, and the request.
fn reading(len: u32) -> (Raw, Vec<u8>) {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, len)]);
    let mut back = raw.back();
    assert_eq!(back.len(), 1);
    (raw, back.remove(0))
}

fn done(wr_id: u64) -> (u64, WcStatus, WcOp) {
    (wr_id, WcStatus::Success, WcOp::Read)
}

/// Covers: RDMAP-5040-5.2-01, RDMAP-5040-5.2.1-03, RDMAP-5040-5.2.1-04, RDMAP-5040-5.2.1-10,
/// RDMAP-5040-5.2.2-03, RDMAP-5040-5.2.1-16
#[test]
fn reads_of_every_size_bring_what_they_name() {
    for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::with(config(), |terms| {
            (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
        });
        let source = pattern(SIZE, 3);
        pair.b.host.fill(OPEN, 0, &source);
        pair.b.receive(50, &[]);
        for (i, size) in [0u32, 1, 8, 1427, 1428, 1429, 2856, 5000, 70_001].into_iter().enumerate()
        {
            let at = 13 * i;
            pair.a.host.change(LOCAL, |region| region.octets.fill(0xee));
            let sges = [local(5, size / 2), local(40_000, size - size / 2)];
            pair.a.post(i as u64, read_op(at as u64), &sges);
            pair.run();
            let completions = pair.a.completions();
            assert_eq!(outcomes(&completions), [done(i as u64)]);
            assert_eq!(completions[0].byte_len, size);
            let (half, size) = (size as usize / 2, size as usize);
            let got = pair.a.host.octets(LOCAL);
            assert_eq!(got[5..5 + half], source[at..at + half]);
            assert_eq!(got[40_000..][..size - half], source[at + half..at + size]);
            assert!(got[5 + half..40_000].iter().all(|&octet| octet == 0xee));
        }
        assert_eq!(pair.b.qp.borrow().outstanding(), (0, 1), "the reader's peer sees nothing");
        assert_eq!(pair.b.completions(), []);
    }
}

/// Covers: RDMAP-5040-5.2.1-01, RDMAP-5040-5.2.1-05, RDMAP-5040-5.2.1-06,
/// RDMAP-5040-5.2.1-08, RDMAP-5040-5.2.1-09, RDMAP-5040-4.2-01, RDMAP-5040-4.4-01
#[test]
fn each_read_is_one_request_of_28_octets_on_queue_one() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    for (wr_id, len) in [(1, 5000), (2, 0), (3, 8)] {
        raw.end.post(wr_id, read_op(wr_id), &[local(0, len)]);
    }
    let back = raw.back();
    let mut sinks = Vec::new();
    for (i, (request, len)) in back.iter().zip([5000, 0, 8]).enumerate() {
        let msn = i as u32 + 1;
        let header = octets::read_header(sink(request), len, (OPEN, OPEN_BASE + u64::from(msn)));
        assert_eq!(*request, octets::untagged(octets::READ_REQUEST, true, 0, 1, msn, 0, &header));
        sinks.push(sink(request).0);
    }
    assert_eq!(back.len(), 3);
    // One STag for each operation.
    assert!(sinks[0] != sinks[1] && sinks[1] != sinks[2] && sinks[0] != sinks[2]);
}

/// Covers: DDP-5041-8.3-04
#[test]
fn corner_47_the_sink_stag_is_of_no_use_to_the_peer_beyond_the_response() {
    // Not for Writes while the Read is under way,
    let (mut raw, request) = reading(8);
    let write = tagged(octets::WRITE, true, sink(&request).0, sink(&request).1, &[6; 8]);
    assert_eq!(raw.refuse(&write), quoting([0x11, 0x00], 22, &write[..14], &[]));
    assert_eq!(raw.end.host.touches(), []);
    // nor for a second response after it,
    let (mut raw, request) = reading(8);
    raw.send(&response(&request, true, 0, &[7; 8]));
    assert_eq!(outcomes(&raw.end.completions()), [done(1)]);
    raw.end.host.touches();
    let again = response(&request, true, 0, &[8; 8]);
    assert_eq!(raw.refuse(&again), quoting([0x11, 0x00], 22, &again[..14], &[]));
    assert_eq!(raw.end.host.touches(), []);
    // and no memory is known by it.
    assert!(sink(&request).0 & 0x8000_0000 != 0);
}

/// Covers: RDMAP-5040-5.2.2-04, RDMAP-5040-5.2.2-06, RDMAP-5040-5.2.2-07
#[test]
fn corner_46_a_response_must_be_the_one_that_was_asked_for() {
    type Make = fn(&[u8]) -> Vec<u8>;
    let cases: [(&str, Make, [u8; 2]); 9] = [
        (
            "own local STag",
            |_| tagged(octets::READ_RESPONSE, true, LOCAL, LOCAL_BASE, &[1; 8]),
            [0x11, 0],
        ),
        (
            "own open STag",
            |_| tagged(octets::READ_RESPONSE, true, OPEN, OPEN_BASE, &[1; 8]),
            [0x11, 0],
        ),
        (
            "next STag",
            |r| tagged(octets::READ_RESPONSE, true, sink(r).0 + 1, sink(r).1, &[1; 8]),
            [0x11, 0],
        ),
        ("offset above", |r| response(r, true, 1, &[1; 7]), [0x11, 1]),
        ("offset below", |r| response(r, true, u64::MAX, &[1; 8]), [0x11, 1]),
        ("too long", |r| response(r, true, 0, &[1; 9]), [0x11, 1]),
        ("too long, more to come", |r| response(r, false, 0, &[1; 9]), [0x11, 1]),
        ("too short", |r| response(r, true, 0, &[1; 7]), [0x02, 7]),
        ("empty", |r| response(r, true, 0, &[]), [0x02, 7]),
    ];
    for (what, make, code) in cases {
        let (mut raw, request) = reading(8);
        let ulpdu = make(&request);
        assert_eq!(raw.refuse(&ulpdu), quoting(code, ulpdu.len(), &ulpdu[..14], &[]), "{what}");
        assert_eq!(raw.end.host.touches(), [], "{what}");
        assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::Read)]);
    }
}

/// A response that nothing asked for: with octets its STag is not valid, without it is an opcode
/// that cannot come.
/// Covers: RDMAP-5040-5.2.2-04
#[test]
fn a_response_to_nothing_is_refused() {
    let mut raw = Raw::initiator(config(), |_| {});
    let ulpdu = tagged(octets::READ_RESPONSE, true, OPEN, OPEN_BASE, b"x");
    assert_eq!(raw.refuse(&ulpdu), quoting([0x11, 0x00], 15, &ulpdu[..14], &[]));
    assert_eq!(raw.end.host.touches(), []);
    let mut raw = Raw::initiator(config(), |_| {});
    let ulpdu = tagged(octets::READ_RESPONSE, true, OPEN, OPEN_BASE, &[]);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 14, &ulpdu[..14], &[]));
}

/// Covers: RDMAP-5040-5.5-11, RDMAP-5040-5.5-13, DDP-5041-4.1-07
#[test]
fn a_read_completes_with_the_last_segment_of_its_response_and_not_before() {
    let (mut raw, request) = reading(12);
    raw.send(&response(&request, false, 0, b"abcd"));
    raw.send(&response(&request, false, 4, &[]));
    raw.send(&response(&request, false, 4, b"efghijkl"));
    assert_eq!(raw.end.events(), []);
    raw.send(&response(&request, true, 12, &[]));
    assert_eq!(outcomes(&raw.end.completions()), [done(1)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[..13], b"abcdefghijkl\0");
}

#[test]
fn a_zero_length_read_completes_with_its_empty_response_whatever_that_names() {
    let (mut raw, _) = reading(0);
    raw.send(&tagged(octets::READ_RESPONSE, true, 0xbad, 7, &[]));
    assert_eq!(outcomes(&raw.end.completions()), [done(1)]);
}

/// Covers: RDMAP-5040-5.5-03, RDMAP-5040-5.5-07
#[test]
fn reads_complete_in_the_order_they_were_posted() {
    let mut raw = Raw::initiator(config(), |_| {});
    for wr_id in 1..=3 {
        raw.end.post(wr_id, read_op(0), &[local(8 * wr_id, 4)]);
    }
    let requests = raw.back();
    for (i, request) in requests.iter().enumerate() {
        raw.send(&response(request, true, 0, &[i as u8 + 1; 4]));
        assert_eq!(outcomes(&raw.end.completions()), [done(i as u64 + 1)]);
    }
    assert_eq!(raw.end.host.octets(LOCAL)[24..28], [3; 4]);
    // Out of order, it is not the response that is due.
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 4)]);
    raw.end.post(2, read_op(0), &[local(8, 4)]);
    let requests = raw.back();
    assert_eq!(raw.refuse(&response(&requests[1], true, 0, &[9; 4]))[..2], [0x11, 0x00]);
}

/// Covers: RDMAP-5040-6.1-03, RDMAP-5040-6.1-04, VERBS-hilland-6.5-01, VERBS-hilland-6.5-02,
/// EXT-7306-5.2.2-04
#[test]
fn corner_59_reads_and_atomics_together_never_exceed_ord() {
    let mut raw = Raw::initiator(config(), |terms| terms.ord = 2);
    assert_eq!(raw.end.qp.borrow().read_depths(), (2, 4));
    raw.end.post(1, read_op(0), &[local(0, 4)]);
    raw.end.post(2, add_op(0, 1), &[local(8, 8)]);
    raw.end.post(3, read_op(0), &[local(16, 4)]);
    raw.end.post(4, add_op(0, 1), &[local(24, 8)]);
    raw.end.post(5, SEND, &[]);
    let first = raw.back();
    assert_eq!(
        first.iter().map(|u| (u[1], word(u, 6), word(u, 10))).collect::<Vec<_>>(),
        [(octets::READ_REQUEST, 1, 1), (octets::ATOMIC_REQUEST, 1, 2)]
    );
    raw.send(&response(&first[0], true, 0, &[1; 4]));
    let second = raw.back();
    assert_eq!(second.len(), 1, "one slot is free");
    assert_eq!((second[0][1], word(&second[0], 10)), (octets::READ_REQUEST, 3));
    raw.send(&octets::atomic_response(1, word(&first[1], 22), 5));
    let third = raw.back();
    assert_eq!(
        third.iter().map(|u| (u[1], word(u, 10))).collect::<Vec<_>>(),
        [(octets::ATOMIC_REQUEST, 4), (octets::SEND, 1)]
    );
    raw.send(&response(&second[0], true, 0, &[3; 4]));
    raw.send(&octets::atomic_response(2, word(&third[0], 22), 6));
    assert_eq!(raw.end.completions().len(), 5);
}

/// Covers: VERBS-hilland-8.2.2-02
#[test]
fn a_read_with_an_ord_of_zero_completes_in_error() {
    for op in [read_op(0), add_op(0, 1)] {
        let mut raw = Raw::initiator(config(), |terms| terms.ord = 0);
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, op, &[local(0, 8)]);
        raw.end.post(3, SEND, &[]);
        // One call builds all there is, the Terminate too.
        raw.end.build();
        let octets = raw.end.take(usize::MAX);
        assert!(!raw.end.qp.borrow_mut().wants_transmit());
        assert_eq!(octets.len(), 2 + 18 + 4 + 2 + 22 + 4);
        assert_eq!(
            outcomes(&raw.end.completions()),
            [
                (1, WcStatus::Flushed, WcOp::Send),
                (2, WcStatus::LocalQpOperation, op.completes_as()),
                (3, WcStatus::Flushed, WcOp::Send)
            ]
        );
    }
}

/// Covers: VERBS-hilland-8.2.2-01, RDMAP-5040-5.5-10
#[test]
fn corner_57_only_a_fence_keeps_a_send_behind_an_earlier_read() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 4)]);
    raw.end.post(2, SEND, &[]);
    raw.end.post_fenced(3, SEND, &[]);
    raw.end.post(4, write_op(0), &[]);
    let first = raw.back();
    let opcodes: Vec<u8> = first.iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes, [octets::READ_REQUEST, octets::SEND]);
    assert!(!raw.end.qp.borrow_mut().wants_transmit());
    raw.send(&response(&first[0], true, 0, &[1; 4]));
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    let opcodes: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes, [octets::SEND, octets::WRITE]);
    assert_eq!(raw.end.completions().len(), 4);
}

/// Covers: RDMAP-5040-5.5-07
#[test]
fn a_send_behind_a_read_completes_behind_it() {
    let (mut raw, request) = reading(4);
    raw.end.post(2, SEND, &[]);
    raw.back();
    assert_eq!(raw.end.completions(), []);
    raw.send(&response(&request, true, 0, &[1; 4]));
    assert_eq!(outcomes(&raw.end.completions()), [done(1), (2, WcStatus::Success, WcOp::Send)]);
}

#[test]
fn a_read_whose_sink_was_taken_away_fails_as_its_own_fault() {
    let (mut raw, request) = reading(4);
    raw.end.post(2, SEND, &[]);
    raw.end.host.change(LOCAL, |region| region.valid = false);
    raw.back();
    assert_eq!(raw.refuse(&response(&request, true, 0, &[1; 4])), [0, 0, 0, 0]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::LocalProtection, WcOp::Read), (2, WcStatus::Flushed, WcOp::Send)]
    );
}

#[test]
fn a_read_may_invalidate_its_sink_between_placement_and_completion() {
    let op = SendOp::Read {
        stag: Stag(OPEN),
        to: TaggedOffset(OPEN_BASE),
        invalidate: Some(Stag(LOCAL)),
    };
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, op, &[local(0, 4)]);
    let request = raw.back().remove(0);
    raw.send(&response(&request, false, 0, &[1; 2]));
    assert_eq!(raw.end.host.touches(), [Touch::Placed { stag: LOCAL, len: 2 }]);
    raw.send(&response(&request, true, 2, &[1; 2]));
    assert_eq!(
        raw.end.host.touches(),
        [
            Touch::Placed { stag: LOCAL, len: 2 },
            Touch::Invalidated { stag: LOCAL, by: Invalidator::Local }
        ]
    );
    assert_eq!(outcomes(&raw.end.completions()), [done(1)]);
    // A zero-length one places nothing; what cannot be invalidated is a local error.
    raw.end.post(2, op, &[]);
    let request = raw.back().remove(0);
    assert_eq!(raw.refuse(&response(&request, true, 0, &[])), [0, 0, 0, 0]);
    assert_eq!(outcomes(&raw.end.completions()), [(2, WcStatus::LocalQpOperation, WcOp::Read)]);
}

#[test]
fn the_terminate_of_a_refused_read_names_its_work_request() {
    let mut pair = Pair::new();
    pair.b.host.change(OPEN, |region| region.access = Access::REMOTE_WRITE);
    pair.a.post(1, SEND, &[]);
    pair.b.receive(9, &[]);
    pair.a.post(2, read_op(0), &[local(0, 4)]);
    pair.a.post(3, read_op(0), &[local(0, 4)]);
    pair.run();
    assert_eq!(
        outcomes(&pair.a.completions()),
        [
            (1, WcStatus::Success, WcOp::Send),
            (2, WcStatus::RemoteAccess, WcOp::Read),
            (3, WcStatus::Flushed, WcOp::Read)
        ]
    );
}
