// SPDX-License-Identifier: MIT OR Apache-2.0

//! The states of a queue pair, as the verbs have them.

use super::octets::{self, send, tagged};
use super::*;

fn modify(end: &End, to: QpState) {
    end.qp.borrow_mut().modify(to).unwrap();
}

/// A queue pair without a stream, in `state`.
fn detached(state: QpState) -> Qp {
    let mut qp = Qp::new(config());
    let path = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd];
    for to in path {
        if qp.state() == state {
            break;
        }
        let to = if state == QpState::Err { QpState::Err } else { to };
        qp.modify(to).unwrap();
    }
    assert_eq!(qp.state(), state);
    qp
}

fn post_to(qp: &mut Qp) -> Result<(), PostError> {
    let payload = Payload::Sges(&[]);
    qp.post_send(&SendRequest::new(1, SEND, payload).signaled())
}

/// Covers: VERBS-hilland-6.2.1-01
#[test]
fn posts_are_accepted_according_to_the_state() {
    for (state, sends, receives) in [
        (QpState::Reset, false, false),
        (QpState::Init, false, true),
        (QpState::Rtr, false, true),
        (QpState::Rts, true, true),
        (QpState::Sqd, true, true),
        (QpState::Err, true, true),
    ] {
        let mut qp = detached(state);
        let refused = Err(PostError::WrongState);
        assert_eq!(post_to(&mut qp), if sends { Ok(()) } else { refused }, "{state:?}");
        let receive = qp.post_recv(&RecvRequest::new(2, &[]));
        assert_eq!(receive, if receives { Ok(()) } else { refused }, "{state:?}");
        let events: Vec<Event> = core::iter::from_fn(|| qp.poll_event()).collect();
        if state == QpState::Err {
            let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
            assert_eq!(
                outcomes(&completions),
                [(1, WcStatus::Flushed, WcOp::Send), (2, WcStatus::Flushed, WcOp::Recv)]
            );
            assert_eq!(qp.outstanding(), (0, 0));
        } else {
            // No request is processed without a stream.
            assert!(events.iter().all(|event| *event == Event::SendQueueDrained), "{state:?}");
            assert!(!qp.wants_transmit());
            assert_eq!(qp.outstanding(), (usize::from(sends), usize::from(receives)));
        }
    }
}

/// Covers: VERBS-hilland-6.2-01, VERBS-hilland-6.2.1-02, VERBS-hilland-6.2.2-01
#[test]
fn a_refused_change_changes_nothing() {
    let mut qp = detached(QpState::Rts);
    post_to(&mut qp).unwrap();
    for to in [QpState::Init, QpState::Rtr] {
        let error = qp.modify(to).unwrap_err();
        assert_eq!((error.from, error.to), (QpState::Rts, to));
        assert_eq!((qp.state(), qp.outstanding()), (QpState::Rts, (1, 0)));
    }
    for to in [QpState::Rtr, QpState::Rts, QpState::Sqd] {
        assert!(detached(QpState::Reset).modify(to).is_err());
    }
}

/// Covers: VERBS-hilland-6.2.4-01, VERBS-hilland-6.2.4-02
#[test]
fn err_flushes_in_order_and_only_reset_leads_out_of_it() {
    let mut qp = detached(QpState::Rts);
    for _ in 0..3 {
        post_to(&mut qp).unwrap();
    }
    for wr_id in 10..12 {
        qp.post_recv(&RecvRequest::new(wr_id, &[])).unwrap();
    }
    qp.modify(QpState::Err).unwrap();
    let flushed: Vec<_> = core::iter::from_fn(|| qp.poll_event()).filter_map(completion).collect();
    assert!(flushed.iter().all(|wc| wc.status == WcStatus::Flushed));
    assert_eq!(flushed.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 1, 1, 10, 11]);
    for to in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        assert!(qp.modify(to).is_err());
    }
    qp.modify(QpState::Reset).unwrap();
    qp.modify(QpState::Init).unwrap();
}

#[test]
fn reset_forgets_everything() {
    let mut raw = Raw::new();
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.receive(2, &[]);
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    modify(&raw.end, QpState::Reset);
    let mut qp = raw.end.qp.borrow_mut();
    assert_eq!(qp.poll_event(), None);
    assert!(!qp.wants_transmit() && !qp.is_connected());
    assert_eq!((qp.outstanding(), qp.read_depths()), ((0, 0), (0, 0)));
}

/// Covers: VERBS-hilland-6.2.1.2-01, DDP-5041-6.1-01, MPA-5044-7.1-04
#[test]
fn a_stream_starts_with_every_msn_at_one_and_takes_what_was_posted_before() {
    let mut qp = detached(QpState::Rts);
    // A stream that went some way and broke.
    qp.establish(&terms(Role::Initiator), Time::default());
    qp.start_sends_at(crate::types::Msn(77));
    qp.lost();
    qp.modify(QpState::Reset).unwrap();
    qp.modify(QpState::Init).unwrap();
    qp.post_recv(&RecvRequest::new(5, &[])).unwrap();
    qp.modify(QpState::Rtr).unwrap();
    qp.modify(QpState::Rts).unwrap();
    post_to(&mut qp).unwrap();
    let terms = terms(Role::Initiator);
    qp.establish(&terms, Time::default());
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end = End::around(qp, &terms);
    assert_eq!(raw.back(), [send(1, &[])]);
    raw.send(&send(1, &[]));
    assert_eq!(raw.end.completions().len(), 2);
    raw.end.post(9, read_op(0), &[]);
    assert_eq!(octets::word(&raw.back()[0], 10), 1);
}

#[test]
fn full_operation_leads_to_rts() {
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let mut qp = detached(state);
        qp.establish(&terms(Role::Initiator), Time::default());
        assert_eq!(qp.state(), QpState::Rts);
        assert!(qp.is_connected());
    }
    let mut qp = detached(QpState::Sqd);
    qp.establish(&terms(Role::Initiator), Time::default());
    assert_eq!(qp.state(), QpState::Sqd);
}

#[test]
fn a_queue_pair_that_was_given_up_during_start_up_ends_its_stream_at_once() {
    for rtr in [None, Some(crate::mpa::startup::Rtr::Send)] {
        let mut qp = detached(QpState::Err);
        let terms = Negotiated { rtr, peer_to_peer: rtr.is_some(), ..terms(Role::Initiator) };
        qp.establish(&terms, Time::default());
        let mut end = End::around(qp, &terms);
        assert_eq!((end.state(), end.disposition()), (QpState::Err, Disposition::Finish));
        assert!(end.take_all().is_empty());
        end.receive(1, &[]);
        assert_eq!(outcomes(&end.completions()), [(1, WcStatus::Flushed, WcOp::Recv)]);
    }
}

#[test]
fn a_drained_send_queue_finishes_what_was_started_and_starts_nothing() {
    let mut raw = Raw::new();
    raw.end.receive(50, &[]);
    raw.end.tx.set_mulpdu(128);
    raw.end.post(1, read_op(0), &[local(0, 4)]);
    raw.end.post(2, SEND, &[local(0, 300)]);
    raw.end.post(3, SEND, &[]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 60);
    modify(&raw.end, QpState::Sqd);
    // The rest of the Send that was started; the answers to the peer go on too.
    raw.send(&octets::read_request(1, 0, 0, 0));
    let back = raw.back();
    let opcodes: Vec<u8> = back.iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(
        opcodes,
        [octets::READ_REQUEST, octets::SEND, octets::SEND, octets::SEND, octets::READ_RESPONSE]
    );
    assert_eq!(raw.end.events(), [], "the Read is under way");
    raw.end.post(4, SEND, &[]);
    raw.send(&send(1, &[]));
    assert_eq!(outcomes(&raw.end.completions()), [(50, WcStatus::Success, WcOp::Recv)]);
    let sink = (octets::word(&back[0], 18), octets::long(&back[0], 22));
    raw.send(&tagged(octets::READ_RESPONSE, true, sink.0, sink.1, b"read"));
    let events = raw.end.events();
    assert_eq!(events.len(), 3);
    assert_eq!(events[2], Event::SendQueueDrained, "behind the completions");
    // Said once, though more is posted and taken meanwhile.
    raw.end.post(5, SEND, &[]);
    raw.send(&octets::read_request(2, 0, 0, 0));
    assert_eq!((raw.back().len(), raw.end.events()), (1, vec![]));
    assert_eq!(raw.end.qp.borrow().outstanding().0, 3);
    modify(&raw.end, QpState::Rts);
    assert_eq!(raw.back(), [send(2, &[]), send(3, &[]), send(4, &[])]);
    assert_eq!(raw.end.completions().len(), 3);
    modify(&raw.end, QpState::Sqd);
    assert_eq!(raw.end.events(), [Event::SendQueueDrained]);
}

/// A change to Err by the program ends the stream as [`Qp::disconnect`] does: what was accepted
/// still goes out, as programs disconnect this way.
#[test]
fn err_by_the_programs_wish_closes_the_stream_in_good_order() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.receive(1, &[]);
    raw.end.post(2, SEND, &[]);
    modify(&raw.end, QpState::Err);
    assert_eq!(raw.back(), [send(1, &[])]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::Flushed, WcOp::Recv), (2, WcStatus::Success, WcOp::Send)]
    );
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn the_last_receive_of_a_shared_queue_is_reported_once() {
    let mut raw = Raw::responder(Config { shared_receive: true, ..config() }, |_| {});
    let refused = raw.end.qp.borrow_mut().post_recv(&RecvRequest::new(1, &[]));
    assert_eq!(refused, Err(PostError::SharedReceiveQueue));
    let receive = Receive { wr_id: 7, sges: vec![local(0, 8)] };
    raw.end.host.pool.borrow_mut().push_back(receive);
    raw.send(&octets::untagged(octets::SEND, false, 0, 0, 1, 0, b"ab"));
    assert_eq!(raw.end.events(), [Event::FirstHeard]);
    raw.end.qp.borrow_mut().disconnect();
    let events = raw.end.events();
    assert_eq!(events.len(), 2);
    assert!(matches!(events[0], Event::ReceiveCompleted(wc) if wc.wr_id == 7));
    assert_eq!(events[1], Event::LastReceiveReached);
    raw.end.qp.borrow_mut().lost();
    assert_eq!(raw.end.events(), []);
}

#[test]
fn a_program_that_connects_by_itself_keeps_its_state() {
    for state in [QpState::Rtr, QpState::Rts, QpState::Sqd] {
        let mut qp = detached(state);
        if state != QpState::Rtr {
            post_to(&mut qp).unwrap();
        }
        let terms = terms(Role::Initiator);
        qp.establish_in_place(&terms, Time::default());
        assert!(qp.is_connected());
        let mut end = End::around(qp, &terms);
        assert_eq!(end.state(), state);
        // Requests that it had posted go out as soon as its state allows it.
        let sent = !end.take_all().is_empty();
        assert_eq!(sent, state == QpState::Rts, "{state:?}");
        if state == QpState::Rtr {
            // As with an RNIC, which has no such state once it is connected.
            end.post(1, SEND, &[]);
            assert!(!end.take_all().is_empty());
            assert_eq!(end.state(), QpState::Rtr);
            modify(&end, QpState::Rts);
            end.post(2, SEND, &[]);
            assert!(!end.take_all().is_empty());
        }
        if state == QpState::Sqd {
            modify(&end, QpState::Rts);
            assert!(!end.take_all().is_empty());
        }
        end.qp.borrow_mut().unreachable();
        assert_eq!(end.state(), QpState::Rts, "that is about queue pairs without a stream");
    }
    // One that failed meanwhile stays failed.
    let mut qp = detached(QpState::Rts);
    qp.modify(QpState::Err).unwrap();
    qp.establish_in_place(&terms(Role::Initiator), Time::default());
    assert_eq!(qp.state(), QpState::Err);
}

#[test]
fn a_peer_that_cannot_be_had_is_told_by_the_oldest_request() {
    let mut qp = detached(QpState::Rts);
    let request = |wr_id| RecvRequest::new(wr_id, &[]);
    qp.post_recv(&request(3)).unwrap();
    for wr_id in [1, 2] {
        let payload = Payload::Sges(&[]);
        let request = SendRequest::new(wr_id, SEND, payload);
        qp.post_send(&request).unwrap();
    }
    qp.unreachable();
    assert_eq!(qp.state(), QpState::Err);
    let events = core::iter::from_fn(|| qp.poll_event());
    let completions: Vec<_> = events.filter_map(completion).collect();
    assert_eq!(
        outcomes(&completions),
        [
            (1, WcStatus::RetryExceeded, WcOp::Send),
            (2, WcStatus::Flushed, WcOp::Send),
            (3, WcStatus::Flushed, WcOp::Recv),
        ]
    );
}

#[test]
fn waiting_requests_can_be_handed_over() {
    let mut qp = detached(QpState::Rts);
    let sges = [local(0, 2)];
    qp.post_recv(&RecvRequest::new(7, &sges)).unwrap();
    requests(&sges).iter().for_each(|request| qp.post_send(request).unwrap());
    let mut other = detached(QpState::Rts);
    assert!(qp.hand_over(&mut other));
    assert_eq!((qp.outstanding(), other.outstanding()), ((0, 0), (3, 1)));
    let mut same = detached(QpState::Rts);
    same.post_recv(&RecvRequest::new(7, &sges)).unwrap();
    requests(&sges).iter().for_each(|request| same.post_send(request).unwrap());
    assert_eq!(std::format!("{:?}", other.sq), std::format!("{:?}", same.sq));
    assert_eq!(std::format!("{:?}", other.rq), std::format!("{:?}", same.rq));
    // The protocol with which a stream has begun stays.
    post_to(&mut qp).unwrap();
    qp.establish_in_place(&terms(Role::Initiator), Time::default());
    assert!(!qp.hand_over(&mut other));
    assert_eq!(qp.outstanding(), (1, 0));
}

/// Requests of all forms.
fn requests(sges: &[Sge]) -> [SendRequest<'_>; 3] {
    [
        SendRequest::new(1, SEND, Payload::Inline(b"inline")).signaled(),
        SendRequest::new(2, SEND, Payload::Sges(sges)).fenced(),
        SendRequest::new(3, SEND, Payload::Sges(&[])),
    ]
}

/// A request that another core does not take ends in order, too.
#[test]
fn requests_that_cannot_be_handed_over_are_flushed() {
    let mut qp = detached(QpState::Rts);
    for request in requests(&[local(0, 2)]) {
        qp.post_send(&request).unwrap();
    }
    let mut other = Qp::new(Config { max_inline: 0, ..config() });
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        other.modify(to).unwrap();
    }
    assert!(qp.hand_over(&mut other));
    let events = core::iter::from_fn(|| other.poll_event());
    let completions: Vec<_> = events.filter_map(completion).collect();
    let flushed = |wr_id| (wr_id, WcStatus::Flushed, WcOp::Send);
    assert_eq!(outcomes(&completions), [1, 2, 3].map(flushed));
}
