// SPDX-License-Identifier: MIT OR Apache-2.0

//! Questions for the queue pairs of datagram services, rule by rule.

use std::time::Duration;

use iwarp_roce::cm::message::{Message, SidrRep, SidrStatus, limits};
use iwarp_roce::cm::{
    Answer, CallError, Event, EventKind, Mad, RejectReason, Resolve, ServiceId, TimeCode, UDP_QKEY,
    Unreachable,
};
use iwarp_roce::wire::{Pkey, Transport};
use iwarp_types::PortSpace;
use iwarp_types::QpId;

use crate::cm::scene::*;

const OTHER: ServiceId = ServiceId::new(PortSpace::Ib, 7);

fn answer() -> Answer<'static> {
    Answer { qp: QpId(0x47), qkey: UDP_QKEY, private_data: b"here" }
}

fn refusal(event: &Event) -> SidrStatus {
    match event.kind {
        EventKind::Unreachable(Unreachable::Service(status)) => status,
        ref other => panic!("{other:?}"),
    }
}

/// Covers: ROCE-170, ROCE-171
#[test]
fn a_datagram_service_tells_its_queue_pair() {
    let mut scene = Scene::new();
    let now = scene.now;
    let asked = scene.ends[A].resolve(&resolve(), now).unwrap();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, request) = scene.request();
    assert_eq!((request.transport, request.service), (Transport::Ud, DATAGRAMS));
    assert_eq!(request.peer, Some((address(A), 40_000)));
    assert_eq!(request.private_data.len(), limits::SIDR_REQ);
    assert!(request.private_data.starts_with(b"where\0"));
    assert_eq!(request.path.address.destination, address(A));
    scene.give(B, &req);
    assert!(scene.events(B).is_empty() && scene.lose(B).is_empty(), "not answered yet");
    scene.ends[B].answer_datagrams(b, &answer(), now).unwrap();
    let rep = scene.lose(B);
    assert_eq!(rep[0].tid, req.tid);
    scene.give(B, &req);
    assert_eq!(scene.lose(B), rep, "once more");
    scene.give(A, &rep[0]);
    scene.give(A, &rep[0]);
    let Event { id, kind: EventKind::Resolved(resolved) } = scene.event(A) else { panic!() };
    assert_eq!((id, resolved.qp, resolved.qkey), (asked, 0x47, 0x0123_4567));
    assert_eq!(resolved.path, way(A));
    assert_eq!(resolved.private_data.len(), limits::SIDR_REP);
    assert!(resolved.private_data.starts_with(b"here\0"));
    assert!(scene.ends[A].is_clean());
    scene.assert_nothing_is_left();
}

/// A question is another one where its transaction is, although an answered one had its id: its
/// peer may be a later process.
#[test]
fn an_id_that_comes_again_with_another_transaction_asks_anew() {
    let mut scene = Scene::new();
    let now = scene.now;
    scene.ends[A].resolve(&resolve(), now).unwrap();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (first, _) = scene.request();
    scene.ends[B].answer_datagrams(first, &answer(), now).unwrap();
    scene.lose(B);
    let other = Mad { tid: req.tid ^ 1 << 40, ..req.clone() };
    scene.give(B, &other);
    let (second, _) = scene.request();
    assert!(first != second && scene.lose(B).is_empty());
    // Not while it waits for the program: one of them is late.
    scene.give(B, &req);
    assert!(scene.events(B).is_empty() && scene.lose(B).is_empty());
    scene.ends[B].answer_datagrams(second, &answer(), now).unwrap();
    assert_eq!(scene.lose(B)[0].tid, other.tid);
    scene.give(B, &other);
    assert_eq!(scene.lose(B)[0].tid, other.tid, "once more");
}

/// Covers: ROCE-170
#[test]
fn a_service_that_comes_back_finds_what_was_asked_meanwhile() {
    let mut scene = Scene::new();
    let now = scene.now;
    let offered = scene.ends[B].listen(&listen(OTHER, Transport::Ud)).unwrap();
    scene.ends[B].unlisten(offered);
    let question = Resolve { service: OTHER, ..resolve() };
    scene.ends[A].resolve(&question, now).unwrap();
    scene.settle();
    assert_eq!(scene.sent(), "a SIDR_REQ");
    scene.ends[B].listen(&listen(OTHER, Transport::Ud)).unwrap();
    scene.pass(Duration::ZERO);
    assert_eq!(scene.request().1.service, OTHER);
}

/// Covers: ROCE-170
#[test]
fn an_answer_says_that_there_is_no_service() {
    let mut scene = Scene::new();
    let now = scene.now;
    let elsewhere = Resolve { service: SERVICE, ..resolve() };
    scene.ends[A].resolve(&elsewhere, now).unwrap();
    scene.settle();
    assert_eq!(refusal(&scene.event(A)), SidrStatus::NoService);
    assert_eq!(scene.sent(), "a SIDR_REQ, b SIDR_REP 1");
    // The program refuses.
    scene.ends[A].resolve(&resolve(), now).unwrap();
    scene.settle();
    let (b, _) = scene.request();
    scene.ends[B].reject(b, RejectReason::Consumer, b"no", now).unwrap();
    let again = scene.ends[B].reject(b, RejectReason::Consumer, b"no", now);
    assert_eq!(again, Err(CallError::State));
    scene.settle();
    assert_eq!(refusal(&scene.event(A)), SidrStatus::Refused);
    // Another's partition, another's addresses.
    scene.sent.clear();
    for change in 0..2 {
        scene.ends[A].resolve(&resolve(), now).unwrap();
        let mut mad = scene.lose(A).remove(0);
        let Message::SidrReq(req) = &mut mad.message else { panic!() };
        if change == 0 {
            req.pkey = Pkey(0x1234);
        } else {
            req.private_data[19] ^= 1;
        }
        scene.give(B, &mad);
        scene.settle();
        assert_eq!(refusal(&scene.event(A)), SidrStatus::Refused);
        assert!(scene.events(B).is_empty());
    }
    scene.assert_nothing_is_left();
}

#[test]
fn a_question_is_repeated_and_ends() {
    let mut scene = Scene::new();
    let now = scene.now;
    scene.ends[A].resolve(&resolve(), now).unwrap();
    let mut asked = scene.lose(A).len();
    while let Some(due) = scene.ends[A].next_timeout() {
        scene.ends[A].advance(due);
        asked += scene.lose(A).len();
    }
    assert_eq!(asked, 16);
    let kind = scene.event(A).kind;
    assert!(matches!(kind, EventKind::Unreachable(Unreachable::Silent)));
    assert!(scene.ends[A].is_clean());
    // A program that does not answer is told when no peer waits any more.
    scene.ends[A].resolve(&resolve(), now).unwrap();
    scene.settle();
    let (b, _) = scene.request();
    scene.pass(TimeCode::new(24).duration() + Duration::from_secs(1));
    let events = scene.events(B);
    assert!(
        events.iter().any(|event| event.id == b
            && matches!(event.kind, EventKind::Unreachable(Unreachable::TooSlow)))
    );
    let late = scene.ends[B].answer_datagrams(b, &answer(), now);
    assert_eq!(late, Err(CallError::Unknown));
    scene.assert_nothing_is_left();
}

#[test]
fn answers_to_other_questions_are_dropped() {
    let mut scene = Scene::new();
    let now = scene.now;
    scene.ends[A].resolve(&resolve(), now).unwrap();
    scene.settle();
    let (b, _) = scene.request();
    scene.ends[B].answer_datagrams(b, &answer(), now).unwrap();
    let rep = scene.lose(B).remove(0);
    let changed = |change: &dyn Fn(&mut SidrRep)| {
        let mut mad = rep.clone();
        let Message::SidrRep(message) = &mut mad.message else { panic!() };
        change(message);
        mad
    };
    scene.give(A, &changed(&|message| message.service_id = SERVICE));
    scene.give(A, &changed(&|message| message.request_id ^= 1));
    let mut stranger = way(B);
    stranger.address.source = [10, 77, 0, 99].into();
    scene.ends[A].receive(&rep.write(), &stranger, now);
    assert!(scene.events(A).is_empty());
    assert_eq!(scene.ends[A].dropped(), 3);
    // No queue pair has that number.
    scene.give(A, &changed(&|message| message.qpn = 1));
    assert_eq!(refusal(&scene.event(A)), SidrStatus::NoQueuePair);
}

/// Covers: ROCE-174
#[test]
fn private_data_of_questions_have_limits() {
    let octets = [7; 217];
    let too_long =
        |len, limit| CallError::PrivateData(iwarp_roce::cm::message::TooLong { len, limit });
    let mut scene = Scene::new();
    let now = scene.now;
    let mut asks = |len: usize, source_port| {
        let resolve = Resolve { private_data: &octets[..len], source_port, ..resolve() };
        scene.ends[A].resolve(&resolve, now).err()
    };
    assert_eq!(asks(181, Some(1)), Some(too_long(181, 180)));
    assert_eq!(asks(217, None), Some(too_long(217, 216)));
    assert_eq!(asks(180, Some(1)), None);
    scene.settle();
    let (b, request) = scene.request();
    assert_eq!(request.private_data[..], octets[..180]);
    let answer = |len| Answer { private_data: &octets[..len], ..answer() };
    let refused = scene.ends[B].answer_datagrams(b, &answer(137), now);
    assert_eq!(refused, Err(too_long(137, 136)));
    scene.ends[B].answer_datagrams(b, &answer(136), now).unwrap();
    scene.settle();
    let EventKind::Resolved(resolved) = scene.event(A).kind else { panic!() };
    assert_eq!(resolved.private_data[..], octets[..136]);
}

#[test]
fn closed_questions_are_heard_of_no_more() {
    let mut scene = Scene::new();
    let now = scene.now;
    let a = scene.ends[A].resolve(&resolve(), now).unwrap();
    scene.settle();
    scene.ends[A].close(a, now);
    let (b, _) = scene.request();
    scene.ends[B].close(b, now);
    scene.settle();
    assert!(scene.events(A).is_empty() && scene.events(B).is_empty());
    assert!(scene.ends[A].is_clean());
    scene.assert_nothing_is_left();
}
