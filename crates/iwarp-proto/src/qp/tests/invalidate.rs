// SPDX-License-Identifier: MIT OR Apache-2.0

//! Send with Invalidate (RFC 5040 §5.3) and local invalidation.

use iwarp_types::mock::Window;

use super::octets::{self, untagged};
use super::*;

/// Covers: RDMAP-5040-4.1-03, RDMAP-5040-5.3-11
#[test]
fn the_stag_to_invalidate_is_in_every_segment_of_its_send() {
    for (solicited, opcode) in
        [(false, octets::SEND_INVALIDATE), (true, octets::SEND_SOLICITED_INVALIDATE)]
    {
        let mut raw = Raw::initiator(config(), |_| {});
        raw.end.tx.set_mulpdu(128);
        let op = SendOp::Send { solicited, invalidate: Some(Stag(0xdead_be01)) };
        raw.end.host.fill(LOCAL, 0, &[5; 120]);
        raw.end.post(1, op, &[local(0, 120)]);
        assert_eq!(
            raw.back(),
            [
                untagged(opcode, false, 0xdead_be01, 0, 1, 0, &[5; 110]),
                untagged(opcode, true, 0xdead_be01, 0, 1, 110, &[5; 10]),
            ]
        );
    }
}

/// Covers: RDMAP-5040-5.3-12, RDMAP-5040-5.3-13, VERBS-hilland-8.2.2.1-01,
/// RDMAP-5040-3.2-01
#[test]
fn corner_55_the_stag_is_invalidated_behind_placement_and_before_the_completion() {
    for (solicited, opcode) in
        [(false, octets::SEND_INVALIDATE), (true, octets::SEND_SOLICITED_INVALIDATE)]
    {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 8)]);
        raw.send(&untagged(opcode, false, OPEN, 0, 1, 0, b"ab"));
        assert_eq!(raw.end.host.touches(), [Touch::Placed { stag: LOCAL, len: 2 }]);
        assert_eq!(raw.end.events(), []);
        raw.send(&untagged(opcode, true, OPEN, 0, 1, 2, b"cde"));
        assert_eq!(
            raw.end.host.touches(),
            [
                Touch::Placed { stag: LOCAL, len: 3 },
                Touch::Invalidated { stag: OPEN, by: Invalidator::Remote }
            ]
        );
        let completions = raw.end.completions();
        assert_eq!(completions.len(), 1);
        assert_eq!((completions[0].byte_len, completions[0].solicited), (5, solicited));
        assert_eq!(completions[0].invalidated, Some(Stag(OPEN)));
        let write = octets::tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"x");
        assert_eq!(raw.refuse(&write)[..2], [0x11, 0x00]);
    }
}

#[test]
fn a_zero_length_send_invalidates_too() {
    let mut pair = Pair::new();
    pair.b.receive(1, &[]);
    pair.a.post(1, SendOp::Send { solicited: false, invalidate: Some(Stag(OPEN)) }, &[]);
    pair.run();
    assert_eq!(pair.b.completions()[0].invalidated, Some(Stag(OPEN)));
    assert_eq!(pair.b.host.touches(), [Touch::Invalidated { stag: OPEN, by: Invalidator::Remote }]);
}

/// An STag that names nothing counts as one that cannot be invalidated (RFC 5040 §7.2(4)).
/// Covers: RDMAP-5040-5.3-13, RDMAP-5040-5.3-14, RDMAP-5040-7.2-04, RDMAP-5040-7.2-05,
/// RDMAP-5040-7.1-03
#[test]
fn corner_55_an_stag_that_cannot_be_invalidated_ends_the_stream() {
    type Change = fn(&mut Region);
    // Codes for an STag that is not valid, and for another's.
    let (unknown, foreign) = ([0x02, 0x09], [0x01, 0x09]);
    let cases: [(u32, Change, [u8; 2]); 5] = [
        (0, |_| {}, unknown),
        (OPEN + 1, |_| {}, unknown),
        (OPEN, |region| region.valid = false, unknown),
        (OPEN, |region| region.pd = PdId(8), foreign),
        (OPEN, |region| region.only = Some(QpId(4)), foreign),
    ];
    for (stag, change, code) in cases {
        let mut raw = Raw::new();
        raw.end.host.change(OPEN, change);
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.receive(2, &[local(0, 8)]);
        let ulpdu = untagged(octets::SEND_INVALIDATE, true, stag, 0, 1, 0, b"abc");
        assert_eq!(raw.refuse(&ulpdu), quoting(code, 21, &ulpdu[..18], &[]));
        let completions = raw.end.completions();
        assert_eq!(
            outcomes(&completions),
            [(1, WcStatus::Flushed, WcOp::Recv), (2, WcStatus::Flushed, WcOp::Recv)]
        );
        assert!(completions.iter().all(|wc| wc.invalidated.is_none()));
    }
}

#[test]
fn a_stream_that_ends_while_the_stag_is_invalidated_completes_the_receive_once() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    let ulpdu = untagged(octets::SEND_INVALIDATE, true, OPEN, 0, 1, 0, &[]);
    let mut qp = raw.end.qp.borrow_mut();
    qp.begin_segment(&ulpdu, 18, &mut Vec::new());
    qp.end_segment(Ok(()));
    // Another thread disconnects between the two.
    qp.disconnect();
    qp.invalidated(Ok(()));
    drop(qp);
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::Recv)]);
    assert!(raw.end.take_all().is_empty());
}

#[test]
fn local_invalidation_runs_in_the_order_of_the_send_queue() {
    let mut pair = Pair::new();
    pair.b.receive(1, &[local(0, 8)]);
    pair.a.post(1, SEND, &[Sge { addr: OPEN_BASE, length: 8, lkey: Stag(OPEN) }]);
    pair.a.post(2, SendOp::LocalInvalidate(Stag(OPEN)), &[]);
    pair.run();
    assert_eq!(
        pair.a.host.touches(),
        [
            Touch::Gathered { stag: OPEN, len: 8 },
            Touch::Invalidated { stag: OPEN, by: Invalidator::Local }
        ]
    );
    assert_eq!(
        outcomes(&pair.a.completions()),
        [(1, WcStatus::Success, WcOp::Send), (2, WcStatus::Success, WcOp::LocalInvalidate)]
    );
    pair.a.post(3, SendOp::LocalInvalidate(Stag(OPEN)), &[]);
    pair.run();
    assert_eq!(outcomes(&pair.a.completions()), [(3, WcStatus::WindowBind, WcOp::LocalInvalidate)]);
    assert_eq!(pair.a.state(), QpState::Err);
}

#[test]
fn memory_that_the_stream_still_sends_from_is_invalidated_only_behind_it() {
    let mut raw = Raw::initiator(config(), |terms| terms.crc = false);
    raw.end.tx.set_mulpdu(9000);
    raw.end.post(1, write_op(0), &[local(0, 8000)]);
    raw.end.post(2, SendOp::LocalInvalidate(Stag(LOCAL)), &[]);
    raw.end.take(100);
    assert!(raw.end.out.pieces().any(|piece| matches!(piece, Piece::Memory(_))));
    assert_eq!(raw.end.completions(), []);
    // Fails inside if the memory is gone.
    raw.end.take_all();
    assert_eq!(raw.end.completions().len(), 2);
}

/// Covers: VERBS-hilland-8.2.2-01
#[test]
fn windows_are_bound_in_the_order_of_the_send_queue() {
    let bind = |window, length| {
        SendOp::Bind(Bind {
            window: Stag(window),
            new_stag: Stag(window + 1),
            region: Stag(LOCAL),
            addr: LOCAL_BASE,
            length,
            access: Access::REMOTE_READ,
        })
    };
    let mut raw = Raw::initiator(config(), |_| {});
    let window = Window { stag: Stag(0x3300), bound: None, qp: QP };
    raw.end.host.bank.borrow_mut().windows.push(window);
    raw.end.post(1, SEND, &[local(0, 8)]);
    raw.end.post(2, bind(0x3300, 100), &[]);
    raw.end.post(3, SEND, &[local(8, 8)]);
    raw.back();
    assert_eq!(
        raw.end.host.touches(),
        [
            Touch::Gathered { stag: LOCAL, len: 8 },
            Touch::Bound,
            Touch::Gathered { stag: LOCAL, len: 8 }
        ]
    );
    assert_eq!(
        outcomes(&raw.end.completions()),
        [
            (1, WcStatus::Success, WcOp::Send),
            (2, WcStatus::Success, WcOp::Bind),
            (3, WcStatus::Success, WcOp::Send)
        ]
    );
    raw.end.post(4, bind(0x3301, 1 << 40), &[]);
    raw.end.post(5, SEND, &[]);
    assert_eq!(raw.terminate(), [0, 0, 0, 0]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(4, WcStatus::WindowBind, WcOp::Bind), (5, WcStatus::Flushed, WcOp::Send)]
    );
}

#[test]
fn a_stream_that_breaks_while_memory_is_bound_completes_the_request_once() {
    let raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SendOp::LocalInvalidate(Stag(OPEN)), &[]);
    let mut qp = raw.end.qp.borrow_mut();
    let next = qp.next(1442, 1, &mut Default::default());
    assert_eq!(next, crate::qp::outbound::Next::Invalidate(Stag(OPEN)));
    qp.lost();
    qp.local_done(Ok(()));
    drop(qp);
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::LocalInvalidate)]);
}
