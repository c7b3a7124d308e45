// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts that either end knows about the access by which the stream ended.

use iwarp_types::{Refusal, RefusedBy, RemoteAccess};

use super::octets::tagged;
use super::*;

fn element(stag: u32, addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey: Stag(stag) }
}

fn refusal(end: &End) -> Option<Refusal> {
    end.qp.borrow_mut().take_refusal()
}

/// The segment that was refused at the one end, and the whole request at the other, which had
/// ended.
#[test]
fn a_write_that_was_refused_is_named_at_both_ends() {
    for acknowledge in [true, false] {
        let config = Config { acknowledge, ..config() };
        let mut pair = Pair::with(config, |terms| (terms.spare_ord, terms.spare_ird) = (1, 1));
        let start = SIZE as u64 - 1000;
        pair.a.post(7, write_op(start), &[local(0, 3000)]);
        pair.run();
        let by = RefusedBy::Memory(AccessError::Bounds);
        let first = element(OPEN, OPEN_BASE + start, 1428);
        let write = |memory, by| Refusal::of_peer(WcOp::Write, RemoteAccess::Write, memory, by);
        assert_eq!(refusal(&pair.b), Some(write(first, by)));
        let whole = Refusal::by_peer(7, &write_op(start), 3000);
        assert_eq!(refusal(&pair.a), Some(whole), "{acknowledge}");
        assert_eq!(refusal(&pair.a), None);
    }
}

/// It is gone from the send queue: what the Terminate quotes is all there is.
#[test]
fn a_write_that_is_forgotten_is_named_by_its_segment() {
    let mut raw = Raw::new();
    let quoted = tagged(octets::WRITE, true, 0xbad, 0x77, &[]);
    let body = quoting([0x11, 0x00], 14 + 100, &quoted, &[]);
    raw.send(&octets::untagged(octets::TERMINATE, true, 0, 2, 1, 0, &body));
    let memory = element(0xbad, 0x77, 100);
    let by = RefusedBy::Peer;
    let expected = Refusal::of_peer(WcOp::Write, RemoteAccess::Write, memory, by);
    assert_eq!(refusal(&raw.end), Some(expected));
}

#[test]
fn a_refusal_by_the_queue_pair_is_not_blamed_on_memory() {
    for acknowledge in [true, false] {
        for (op, right) in [
            (write_op(8), RemoteAccess::Write),
            (read_op(8), RemoteAccess::Read),
            (add_op(8, 1), RemoteAccess::Atomic),
        ] {
            let config = Config { acknowledge, ..config() };
            let mut pair = Pair::with(config, |terms| (terms.spare_ord, terms.spare_ird) = (1, 1));
            pair.b.qp.borrow_mut().set_remote_access(Access::REMOTE ^ right.right());
            pair.a.post(7, op, &[local(0, 8)]);
            pair.run();
            let memory = element(OPEN, OPEN_BASE + 8, 8);
            let by = RefusedBy::QueuePair;
            let expected = Refusal::of_peer(op.completes_as(), right, memory, by);
            assert_eq!(refusal(&pair.b), Some(expected), "{op:?}");
            assert_eq!(refusal(&pair.a), Some(Refusal::by_peer(7, &op, 8)), "{op:?}");
        }
    }
}

#[test]
fn memory_of_this_ends_own_is_named_with_its_request() {
    let beyond = [local(0, 4), local(SIZE as u64, 4)];
    let mut pair = Pair::new();
    pair.a.post(7, write_op(0), &beyond);
    pair.run();
    let error = AccessError::Bounds;
    assert_eq!(refusal(&pair.a), Some(Refusal::of_own(7, &write_op(0), &beyond, error)));
    assert_eq!(refusal(&pair.b), None);

    let mut pair = Pair::new();
    pair.a.post(7, read_op(0), &beyond);
    pair.run();
    assert_eq!(refusal(&pair.a), Some(Refusal::of_own(7, &read_op(0), &beyond, error)));

    let mut pair = Pair::new();
    pair.b.receive(8, &beyond);
    pair.a.post(7, SEND, &[local(0, 8)]);
    pair.run();
    assert_eq!(refusal(&pair.b), Some(Refusal::of_receive(8, &beyond, error)));
}

/// Other faults are none of it.
#[test]
fn a_stream_that_ends_by_something_else_has_refused_nothing() {
    let mut raw = Raw::new();
    raw.send(&tagged(0x0f, true, OPEN, OPEN_BASE, b"x"));
    assert_eq!(refusal(&raw.end), None);
    assert_eq!(raw.end.state(), QpState::Err);
}
