// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections, rule by rule: how they end, or do not.

use std::collections::BTreeSet;
use std::time::Duration;

use iwarp_roce::cm::message::{Dreq, Lap, Message, Rej, Rejected, limits};
use iwarp_roce::cm::{
    CallError, Connect, Event, EventKind, Mad, Manager, Random, RejectReason, Seeded, TimeCode,
    Unreachable,
};
use iwarp_roce::wire::Path;
use iwarp_types::{QpId, Time};

use crate::cm::scene::*;

/// Covers: ROCE-154
#[test]
fn a_request_with_a_live_queue_pair_ends_the_old_connection() {
    let mut scene = Scene::new();
    let (_, old) = scene.established();
    // The initiator's host has started anew and knows nothing.
    scene.ends[A] = Manager::new(settings(A), Seeded(99));
    scene.connect();
    scene.settle();
    assert_eq!(scene.sent(), "a REQ, b REJ 10, b DREQ, a DREP");
    assert_eq!(rejected(&scene.event(A).kind), (RejectReason::StaleConnection, true));
    let event = scene.event(B);
    assert_eq!(event.id, old);
    assert!(matches!(event.kind, EventKind::Disconnected { .. }));
    // An equal message from a stranger does no harm.
    let mut scene = Scene::new();
    scene.established();
    scene.ends[A] = Manager::new(settings(A), Seeded(99));
    scene.connect();
    let req = scene.lose(A).remove(0);
    let mut stranger = way(A);
    stranger.address.source = [10, 77, 0, 99].into();
    let now = scene.now;
    scene.ends[B].receive(&req.write(), &stranger, now);
    let (path, _) = scene.ends[B].poll_transmit().unwrap();
    assert_eq!(path.address.destination, stranger.address.source);
    assert!(scene.ends[B].poll_transmit().is_none() && scene.events(B).is_empty());
}

/// Covers: ROCE-158
#[test]
fn a_rej_ends_whatever_it_is_about() {
    // REQ sent, told by the acceptor.
    let mut scene = Scene::new();
    let (_, b) = scene.requested();
    let now = scene.now;
    scene.ends[B].reject(b, RejectReason::from_code(1234), &[], now).unwrap();
    scene.settle();
    assert_eq!(rejected(&scene.event(A).kind), (RejectReason::Other(1234), false));
    scene.assert_nothing_is_left();
    // REQ received: the initiator gives up.
    let mut scene = Scene::new();
    let (a, b) = scene.requested();
    let now = scene.now;
    scene.ends[A].close(a, now);
    scene.settle();
    let event = scene.event(B);
    assert_eq!((event.id, rejected(&event.kind)), (b, (RejectReason::Timeout, false)));
    assert_eq!(scene.ends[B].accept(b, &accept(), now), Err(CallError::Unknown));
    scene.assert_nothing_is_left();
    // REP sent: the initiator cannot set its queue pair up.
    let mut scene = Scene::new();
    let (a, _) = scene.responded();
    let now = scene.now;
    scene.ends[A].reject(a, RejectReason::Consumer, &[], now).unwrap();
    scene.settle();
    assert_eq!(rejected(&scene.event(B).kind), (RejectReason::Consumer, false));
    scene.assert_nothing_is_left();
    // REP received, established and DREQ sent: the acceptor has given up.
    for state in 0..3 {
        let mut scene = Scene::new();
        let (a, b) = if state == 0 { scene.responded() } else { scene.established() };
        if state == 2 {
            scene.disconnect(A, a);
            scene.lose(A);
        }
        let rej = |rejected| {
            let message = Rej {
                local_comm_id: b.0,
                remote_comm_id: a.0,
                rejected,
                info_len: 0,
                reason: RejectReason::Timeout,
                info: [0; 72],
                private_data: [0; 148],
            };
            Mad { tid: 1, modifier: 0, message: message.into() }
        };
        scene.give(A, &rej(Rejected::Req));
        assert!(scene.events(A).is_empty(), "a late answer to a repeated request");
        scene.give(A, &rej(Rejected::Other));
        let kind = scene.event(A).kind;
        match state {
            2 => assert!(matches!(kind, EventKind::Disconnected { .. })),
            _ => assert_eq!(rejected(&kind), (RejectReason::Timeout, true)),
        }
        assert!(scene.ends[A].timewait().eq([A_QP]));
        scene.give(A, &rej(Rejected::Other));
        assert!(scene.events(A).is_empty(), "in timewait");
    }
}

/// Covers: ROCE-159, ROCE-160
#[test]
fn a_dreq_is_answered_and_told_once() {
    let mut scene = Scene::new();
    let (a, b) = scene.established();
    scene.disconnect(A, a);
    let dreq = scene.lose(A).remove(0);
    // For another queue pair.
    let mut other = dreq.clone();
    let Message::Dreq(message) = &mut other.message else { panic!() };
    message.remote_qpn ^= 1;
    scene.give(B, &other);
    assert!(scene.lose(B).is_empty() && scene.events(B).is_empty());
    scene.give(B, &dreq);
    let drep = scene.lose(B).remove(0);
    assert_eq!(drep.tid, dreq.tid);
    let event = scene.event(B);
    assert_eq!(event.id, b);
    assert!(matches!(&event.kind, EventKind::Disconnected { private_data, timed_out: false }
        if private_data.starts_with(b"bye\0") && private_data.len() == limits::DREQ));
    scene.give(B, &dreq);
    assert_eq!(scene.lose(B), std::slice::from_ref(&drep));
    assert!(scene.events(B).is_empty());
    scene.give(A, &drep);
    scene.give(A, &drep);
    assert!(matches!(scene.event(A).kind, EventKind::Disconnected { .. }));
    // Of nothing that is known.
    let message = Dreq {
        local_comm_id: 0x1234,
        remote_comm_id: 0x9_9999,
        remote_qpn: 0x77,
        private_data: [0; 220],
    };
    scene.give(B, &Mad { tid: 5, modifier: 0, message: message.into() });
    let drep = scene.lose(B).remove(0);
    let Message::Drep(message) = drep.message else { panic!() };
    assert_eq!((drep.tid, message.local_comm_id, message.remote_comm_id), (5, 0x9_9999, 0x1234));
}

/// Covers: ROCE-161
#[test]
fn a_dreq_without_an_answer_ends_the_connection_all_the_same() {
    let mut scene = Scene::new();
    let (a, _) = scene.established();
    scene.disconnect(A, a);
    let start = scene.now;
    let mut dreqs = scene.lose(A).len();
    let event = loop {
        scene.now = scene.ends[A].next_timeout().unwrap();
        let now = scene.now;
        scene.ends[A].advance(now);
        dreqs += scene.lose(A).len();
        if let Some(event) = scene.ends[A].poll_event() {
            break event;
        }
    };
    assert_eq!(dreqs, 16);
    assert!(scene.now.0 - start.0 < 30 * second());
    assert!(matches!(event.kind, EventKind::Disconnected { timed_out: true, .. }));
    assert!(scene.ends[A].timewait().eq([A_QP]));
    scene.pass_all();
    assert!(matches!(scene.event(A).kind, EventKind::TimewaitExit { qp: A_QP }));
    assert!(scene.ends[A].is_clean());
}

/// The peer falls silent after any of the messages of a connection's life: nothing waits for ever,
/// and the program is told unless it has ended the connection itself.
///
/// Covers: ROCE-155, ROCE-161
#[test]
fn a_silent_peer_has_a_deadline_at_every_step() {
    type SilenceCase = (&'static str, fn(&mut Scene) -> usize, Duration);
    // As `docs/roce.md` says it.
    let [long, short] = [26, 18].map(Duration::from_secs);
    let steps: [SilenceCase; 6] = [
        (
            "REQ sent",
            |scene| {
                scene.connect();
                A
            },
            long,
        ),
        (
            "REQ sent, MRA heard",
            |scene| {
                let (_, b) = scene.requested();
                // Its program thinks, and for longer than the peer was told that answers take.
                scene.pass(4 * second());
                scene.settle();
                assert!(scene.sent().contains("MRA"));
                let now = scene.now;
                scene.ends[B].close(b, now);
                A
            },
            95 * second(),
        ),
        (
            "REP sent",
            |scene| {
                let (_, b) = scene.requested();
                scene.accept(b);
                B
            },
            short,
        ),
        (
            "RTU lost",
            |scene| {
                let (a, _) = scene.responded();
                scene.ends[A].ready(a, b"").unwrap();
                B
            },
            short,
        ),
        (
            "DREQ sent",
            |scene| {
                let (a, _) = scene.established();
                scene.disconnect(A, a);
                A
            },
            // With timewait.
            long + second(),
        ),
        (
            "DREQ sent by the acceptor",
            |scene| {
                let (_, b) = scene.established();
                scene.disconnect(B, b);
                B
            },
            // With timewait.
            long + second(),
        ),
    ];
    for (name, reach, most) in steps {
        let mut scene = Scene::new();
        let end = reach(&mut scene);
        for end in [A, B] {
            scene.lose(end);
        }
        scene.events(end);
        let start = scene.now;
        let mut told = Vec::new();
        while let Some(due) = scene.ends[end].next_timeout() {
            scene.now = due;
            scene.ends[end].advance(due);
            scene.lose(end);
            told.extend(scene.events(end));
        }
        assert!(scene.now.0 - start.0 <= most, "{name}: {:?}", scene.now.0 - start.0);
        let is_end = |event: &Event| {
            matches!(
                event.kind,
                EventKind::Unreachable(Unreachable::Silent)
                    | EventKind::Disconnected { timed_out: true, .. }
            )
        };
        assert_eq!(told.iter().filter(|event| is_end(event)).count(), 1, "{name}: {told:?}");
        assert!(scene.ends[end].is_clean(), "{name}");
    }
}

#[test]
fn both_ends_may_disconnect_at_once() {
    let mut scene = Scene::new();
    let (a, b) = scene.established();
    scene.disconnect(A, a);
    scene.disconnect(B, b);
    scene.settle();
    for end in [A, B] {
        assert!(matches!(scene.event(end).kind, EventKind::Disconnected { .. }));
        assert_eq!(scene.ends[end].timewait().count(), 1);
    }
    assert_eq!(scene.sent(), "a DREQ, b DREQ, a DREP, b DREP");
    scene.assert_nothing_is_left();
}

/// Covers: ROCE-169
#[test]
fn alternate_paths_are_declined() {
    let mut scene = Scene::new();
    let (a, b) = scene.established();
    let lap = |remote_comm_id| {
        let message = Lap { local_comm_id: a.0, remote_comm_id, rest: [7; 224] };
        Mad { tid: 9, modifier: 0, message: message.into() }
    };
    scene.give(B, &lap(b.0));
    scene.give(B, &lap(b.0 ^ 1));
    assert_eq!(scene.lose(B)[0].tid, 9);
    assert_eq!(scene.sent(), "b APR 2");
    assert!(scene.events(B).is_empty());
}

/// Covers: ROCE-148, ROCE-149
#[test]
fn timewait_keeps_numbers_from_being_used_again() {
    let mut scene = Scene::new();
    let (a, b) = scene.established();
    assert!(scene.ends[A].holds(A_QP) && scene.ends[A].timewait().next().is_none());
    scene.disconnect(A, a);
    scene.settle();
    scene.events(A);
    scene.events(B);
    assert!(scene.ends[A].timewait().eq([A_QP]) && scene.ends[B].timewait().eq([B_QP]));
    let now = scene.now;
    assert_eq!(scene.ends[A].connect(&connect(), now), Err(CallError::QueuePairInUse));
    let other = Connect { qp: QpId(99), ..connect() };
    let second_id = scene.ends[A].connect(&other, now).unwrap();
    assert_ne!(second_id, a);
    scene.settle();
    let (asked, _) = scene.request();
    assert_ne!(asked, b);
    assert_eq!(scene.ends[B].accept(asked, &accept(), now), Err(CallError::QueuePairInUse));
    // Local ACK timeout 17: half a second.
    scene.pass(TimeCode::new(17).duration() - Duration::from_nanos(1));
    scene.settle();
    assert!(scene.ends[A].holds(A_QP));
    scene.pass(Duration::from_nanos(1));
    assert!(!scene.ends[A].holds(A_QP) && !scene.ends[B].holds(B_QP));
    assert!(
        scene.events(A).iter().any(
            |event| event.id == a && matches!(event.kind, EventKind::TimewaitExit { qp: A_QP })
        )
    );
    let now = scene.now;
    scene.ends[A].connect(&connect(), now).unwrap();
}

/// A peer that has come through timewait before this end may use its queue pair again.
#[test]
fn a_peer_s_queue_pair_is_free_in_timewait() {
    let mut scene = Scene::new();
    let (a, _) = scene.established();
    scene.disconnect(A, a);
    scene.settle();
    scene.events(B);
    scene.ends[A] = Manager::new(settings(A), Seeded(99));
    assert_eq!(scene.ends[B].timewait().count(), 1);
    scene.requested();
    assert_eq!(scene.ends[B].len(), 2);
}

/// Numbers that come again and again, in pairs.
struct Repeating(u32);

impl Random for Repeating {
    fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0 / 20
    }
}

/// Covers: ROCE-148
#[test]
fn ids_are_drawn_until_one_is_free() {
    let mut manager = Manager::new(settings(A), Repeating(0));
    let ids = (100..110).map(|qp| {
        let connect = Connect { qp: QpId(qp), ..connect() };
        manager.connect(&connect, Time::default()).unwrap()
    });
    assert_eq!(ids.collect::<BTreeSet<_>>().len(), 10);
}

/// Covers: ROCE-158
#[test]
fn a_rej_of_another_connection_is_dropped() {
    for accepted in [false, true] {
        let mut scene = Scene::new();
        let (a, b) = scene.requested();
        if accepted {
            scene.accept(b);
            scene.lose(B);
        }
        let now = scene.now;
        scene.ends[A].close(a, now);
        let rej = scene.lose(A).remove(0);
        for change in 0..3 {
            let mut other = rej.clone();
            let Message::Rej(message) = &mut other.message else { panic!() };
            match change {
                0 => message.local_comm_id ^= 1,
                1 => message.info[7] ^= 1,
                _ => message.remote_comm_id = b.0 ^ 1,
            }
            scene.give(B, &other);
            let Message::Rej(message) = &mut other.message else { panic!() };
            (message.remote_comm_id, message.local_comm_id) = (b.0, a.0 ^ 1);
            scene.give(B, &other);
            assert!(scene.events(B).is_empty());
        }
        scene.give(B, &rej);
        assert_eq!(rejected(&scene.event(B).kind), (RejectReason::Timeout, false));
    }
}

/// No end has the communication id of both a REP and a REQ.
#[test]
fn a_request_with_the_id_of_a_rep_is_dropped() {
    let mut scene = Scene::new();
    let (_, b) = scene.established();
    let now = scene.now;
    let path = way(B);
    scene.ends[B].connect(&Connect { path, qp: QpId(7), ..connect() }, now).unwrap();
    let mut mad = scene.lose(B).remove(0);
    let Message::Req(req) = &mut mad.message else { panic!() };
    req.local_comm_id = b.0;
    scene.give(A, &mad);
    assert!(scene.lose(A).is_empty() && scene.events(A).is_empty());
}

#[test]
fn a_connection_may_be_ended_before_it_is_ready() {
    let mut scene = Scene::new();
    let (a, _, rep) = scene.responded_by();
    scene.disconnect(A, a);
    assert!(matches!(scene.event(A).kind, EventKind::Disconnected { .. }));
    scene.lose(A);
    scene.sent.clear();
    scene.give(A, &rep);
    scene.settle();
    assert_eq!(scene.sent(), "a REJ 10");
    assert_eq!(rejected(&scene.event(B).kind), (RejectReason::StaleConnection, true));
    scene.pass_all();
    assert!(matches!(scene.event(A).kind, EventKind::TimewaitExit { qp: A_QP }));
    scene.assert_nothing_is_left();
}

#[test]
fn a_repeated_request_in_timewait_is_stale() {
    let mut scene = Scene::new();
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, _) = scene.request();
    scene.accept(b);
    scene.settle();
    scene.response();
    scene.disconnect(B, b);
    scene.settle();
    scene.sent.clear();
    scene.give(B, &req);
    scene.lose(B);
    assert_eq!(scene.sent(), "b REJ 10");
}

#[test]
fn messages_from_elsewhere_do_nothing() {
    let mut scene = Scene::new();
    let (a, _) = scene.established();
    scene.disconnect(A, a);
    let dreq = scene.lose(A).remove(0);
    let now = scene.now;
    for (source, destination) in [(99, 3), (2, 99)] {
        let mut path = way(A);
        path.address.source = [10, 77, 0, source].into();
        path.address.destination = [10, 77, 0, destination].into();
        scene.ends[B].receive(&dreq.write(), &path, now);
        assert!(scene.lose(B).is_empty() && scene.events(B).is_empty());
    }
    // The port does not matter.
    let path = Path { source_port: 1, ..way(A) };
    scene.ends[B].receive(&dreq.write(), &path, now);
    assert_eq!(scene.lose(B).len(), 1);
}

#[test]
fn a_rep_that_nobody_waits_for_is_refused() {
    let mut scene = Scene::new();
    let (a, b) = scene.requested();
    scene.accept(b);
    let now = scene.now;
    // The initiator gives up, and its message is lost.
    scene.ends[A].close(a, now);
    scene.lose(A);
    scene.settle();
    assert_eq!(rejected(&scene.event(B).kind), (RejectReason::InvalidCommId, false));
    scene.assert_nothing_is_left();
}

/// The acceptor gave up, and its message was lost.
#[test]
fn an_rtu_that_nobody_waits_for_is_refused() {
    let mut scene = Scene::new();
    let (a, b) = scene.responded();
    while scene.ends[B].holds(B_QP) {
        scene.now = scene.ends[B].next_timeout().unwrap();
        let now = scene.now;
        scene.ends[B].advance(now);
        scene.lose(B);
    }
    assert_eq!(scene.event(B).id, b);
    scene.ends[A].ready(a, &[]).unwrap();
    scene.settle();
    assert_eq!(rejected(&scene.event(A).kind), (RejectReason::InvalidCommId, true));
    scene.assert_nothing_is_left();
}

/// The initiator gave up, and its message was lost.
#[test]
fn an_mra_that_nobody_waits_for_is_refused() {
    let mut scene = Scene::new();
    let (a, b) = scene.requested();
    let now = scene.now;
    scene.ends[A].close(a, now);
    scene.lose(A);
    scene.pass(second());
    scene.settle();
    let event = scene.event(B);
    assert_eq!((event.id, rejected(&event.kind)), (b, (RejectReason::InvalidCommId, false)));
    scene.assert_nothing_is_left();
}

#[test]
fn a_program_that_never_answers_holds_nothing_for_ever() {
    let mut scene = Scene::new();
    let (_, b) = scene.requested();
    scene.assert_nothing_is_left();
    let mut scene2 = Scene::new();
    scene2.responded();
    scene2.assert_nothing_is_left();
    let now = scene.now;
    assert_eq!(scene.ends[B].accept(b, &accept(), now), Err(CallError::Unknown));
}

#[test]
fn a_closed_connection_is_heard_of_no_more() {
    for state in 0..4 {
        let mut scene = Scene::new();
        let (a, b) = match state {
            0 | 1 => scene.requested(),
            2 => scene.responded(),
            _ => scene.established(),
        };
        let now = scene.now;
        if state == 1 {
            scene.ends[B].close(b, now);
        } else {
            scene.ends[A].close(a, now);
        }
        scene.settle();
        let (closed, other) = if state == 1 { (B, A) } else { (A, B) };
        assert_eq!(scene.events(other).len(), 1, "the other end is told");
        scene.pass_all();
        assert!(scene.events(closed).is_empty());
        scene.assert_nothing_is_left();
    }
}
