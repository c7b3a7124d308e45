// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads that the owner carries out before it posts them, and what a queue pair keeps for its owner
//! as long as it is in Full Operation.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::octets::{self, tagged};
use super::*;

fn read<'a>(wr_id: u64, sges: &'a [Sge]) -> SendRequest<'a> {
    SendRequest::new(wr_id, read_op(0), sges)
}

fn raw() -> Raw {
    Raw::initiator(config(), |_| {})
}

#[test]
fn a_read_that_was_carried_out_completes_and_sends_nothing() {
    let mut raw = raw();
    let sges = [local(0, 16), local(32, 8)];
    for wr_id in 1..=100 {
        let request = read(wr_id, &sges).signaled();
        assert!(raw.end.qp.borrow_mut().may_be_done(&request));
        raw.end.qp.borrow_mut().post_done(&request).unwrap();
        let done = raw.end.completions();
        assert_eq!(outcomes(&done), [(wr_id, WcStatus::Success, WcOp::Read)]);
        assert_eq!(done[0].byte_len, 24);
    }
    assert!(raw.back().is_empty());
    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
    // One that is posted asks the peer.
    raw.end.post(1, read_op(0), &sges);
    assert_eq!(raw.back().len(), 1);
}

#[test]
fn no_read_is_carried_out_in_front_of_a_request() {
    let mut raw = raw();
    let sges = [local(0, 16)];
    let may = |raw: &Raw| raw.end.qp.borrow_mut().may_be_done(&read(9, &sges));
    assert!(may(&raw));
    raw.end.post(1, write_op(0), &sges);
    assert!(!may(&raw));
    // The stream has taken it.
    raw.back();
    raw.end.completions();
    assert!(may(&raw));
    raw.end.post(2, read_op(0), &sges);
    raw.back();
    assert!(!may(&raw));
}

#[test]
fn a_read_that_could_not_be_posted_is_not_carried_out() {
    let config = Config { max_send_sge: 2, ..config() };
    let raw = Raw::initiator(config, |_| {});
    let sges = [local(0, 8), local(8, 8), local(16, 8)];
    let may = |raw: &Raw, sges| raw.end.qp.borrow_mut().may_be_done(&read(1, sges));
    assert!(may(&raw, &sges[..2]) && !may(&raw, &sges));
    let without = Raw::initiator(config, |terms| terms.ord = 0);
    assert!(!may(&without, &sges[..1]));
    raw.end.qp.borrow_mut().disconnect();
    assert!(!may(&raw, &sges[..1]));
}

/// Requests behind a Read that has no answer yet: the owner has them wait, and carries them out.
#[test]
fn requests_that_wait_are_carried_out_in_their_turn() {
    let mut pair = Pair::with(config(), |_| {});
    let sges = [local(0, 16)];
    let next = |pair: &Pair| {
        let mut qp = pair.a.qp.borrow_mut();
        let waiting = qp.next_waiting()?;
        let found = (waiting.request.wr_id, waiting.number, waiting.oldest, waiting.others_end);
        Some((found, qp.may_be_done_next(found.1)))
    };
    assert_eq!(next(&pair), None);
    pair.a.post(1, read_op(0), &sges);
    let request = pair.a.take(usize::MAX);
    pair.a.qp.borrow_mut().hold_requests(true);
    pair.a.post(2, write_op(0), &sges);
    pair.a.post(3, read_op(8), &sges);
    assert!(pair.a.take(usize::MAX).is_empty(), "they are held");
    assert_eq!(next(&pair), Some(((2, 1, 0, Some(0)), false)), "the Read before has not ended");
    pair.b.arrive(&request);
    pair.run();
    assert_eq!(outcomes(&pair.a.completions()), [(1, WcStatus::Success, WcOp::Read)]);
    assert_eq!(next(&pair), Some(((2, 1, 1, Some(0)), true)));
    pair.a.qp.borrow_mut().was_done(1);
    assert_eq!(outcomes(&pair.a.completions()), [(2, WcStatus::Success, WcOp::Write)]);
    assert_eq!(next(&pair), Some(((3, 2, 2, Some(0)), true)));
    assert!(!pair.a.qp.borrow().may_be_done_next(1));
    // The rest goes out as soon as they are held no more.
    pair.a.qp.borrow_mut().hold_requests(false);
    pair.run();
    assert_eq!(outcomes(&pair.a.completions()), [(3, WcStatus::Success, WcOp::Read)]);
    assert_eq!(next(&pair), None);
}

#[test]
fn no_request_waits_behind_a_send() {
    let mut pair = Pair::with(config(), |_| {});
    let sges = [local(0, 16)];
    pair.a.qp.borrow_mut().hold_requests(true);
    pair.a.post(1, SendOp::SEND, &sges);
    pair.a.post(2, write_op(0), &sges);
    assert!(pair.a.qp.borrow_mut().next_waiting().is_none(), "the Send is to be sent");
    pair.a.qp.borrow_mut().hold_requests(false);
    pair.a.post(3, read_op(0), &sges);
    pair.a.take(usize::MAX);
    // The peer may have no receive for the Send that it was sent.
    let others_end = |pair: &Pair| pair.a.qp.borrow_mut().next_waiting().unwrap().others_end;
    pair.a.qp.borrow_mut().hold_requests(true);
    pair.a.post(4, write_op(0), &sges);
    assert!(others_end(&pair).is_some_and(|end| end > 0));
    pair.a.post(5, SendOp::SEND, &sges);
    assert_eq!(others_end(&pair), None);
}

/// A queue pair that ends flushes them.
#[test]
fn requests_that_are_held_are_flushed() {
    let mut raw = raw();
    raw.end.qp.borrow_mut().hold_requests(true);
    raw.end.post(1, read_op(0), &[local(0, 16)]);
    raw.end.post(2, read_op(0), &[local(0, 16)]);
    assert!(raw.back().is_empty());
    raw.end.qp.borrow_mut().modify(QpState::Err).unwrap();
    let flushed = [1, 2].map(|wr_id| (wr_id, WcStatus::Flushed, WcOp::Read));
    assert_eq!(outcomes(&raw.end.completions()), flushed);
    assert!(raw.end.qp.borrow_mut().next_waiting().is_none());
}

/// Each way in which Full Operation ends.
#[test]
fn the_owner_s_object_goes_with_full_operation() {
    type Finish = fn(&mut Raw);
    let ways: [(&str, Finish); 7] = [
        ("disconnect", |raw| raw.end.qp.borrow_mut().disconnect()),
        ("Err", |raw| raw.end.qp.borrow_mut().modify(QpState::Err).unwrap()),
        ("Reset", |raw| raw.end.qp.borrow_mut().modify(QpState::Reset).unwrap()),
        ("abort", |raw| raw.end.qp.borrow_mut().abort()),
        ("a fault", |raw| raw.send(&tagged(octets::WRITE, true, 0x7700, 0, b"no"))),
        ("lost", |raw| raw.end.qp.borrow_mut().lost()),
        ("the peer closes", |raw| raw.end.eof()),
    ];
    for (way, finish) in ways {
        let mut raw = raw();
        let kept = Arc::new(());
        let ours = Arc::clone(&kept);
        raw.end.qp.borrow_mut().keep_while_operating(|| Box::new(ours));
        // The first one stays.
        raw.end.qp.borrow_mut().keep_while_operating(|| unreachable!("it keeps something"));
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"yes"));
        assert_eq!(Arc::strong_count(&kept), 2, "{way}");
        finish(&mut raw);
        assert_eq!(Arc::strong_count(&kept), 1, "{way}");
        // It keeps nothing from then on.
        raw.end.qp.borrow_mut().keep_while_operating(|| unreachable!("it is over"));
    }
}
