// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections, rule by rule: how they are made.

use std::time::Duration;

use iwarp_roce::Attributes;
use iwarp_roce::cm::message::{Message, Rejected, Req, TooLong, TransportType, limits};
use iwarp_roce::cm::{
    Accept, CallError, Connect, EventKind, Mad, Manager, OwnKind, Parameters, RejectReason,
    Settings, TimeCode, Unreachable, VENDOR_ID,
};
use iwarp_roce::wire::{Mtu, Path, Pkey, Transport};
use iwarp_types::{Access, AddressVector, CommIds, QpId};

use crate::cm::scene::*;

/// Covers: ROCE-147, ROCE-150, ROCE-155, ROCE-164, ROCE-165, ROCE-166, ROCE-167, ROCE-168
#[test]
fn both_ends_set_their_queue_pairs_up_alike() {
    let mut scene = Scene::new();
    let asked = Parameters {
        responder_resources: 5,
        initiator_depth: 3,
        retry_count: 4,
        rnr_retry: 2,
        flow_control: true,
        srq: true,
    };
    let connect = Connect { parameters: asked, mtu: Mtu::Mtu2048, ..connect() };
    let now = scene.now;
    let a = scene.ends[A].connect(&connect, now).unwrap();
    scene.settle();
    let (b, request) = scene.request();
    assert_eq!(request.listener, scene.listener);
    assert_eq!((request.remote_qp, request.transport), (A_QP.0, Transport::Rc));
    assert_eq!((request.responder_resources, request.initiator_depth), (3, 5));
    assert_eq!((request.retry_count, request.rnr_retry), (4, 2));
    assert!(request.flow_control && request.srq);
    assert_eq!(request.peer, Some((address(A), 40_000)));
    assert_eq!(request.private_data.len(), limits::REQ);
    assert!(request.private_data.starts_with(b"please\0"));
    let given = Parameters {
        responder_resources: 7,
        initiator_depth: 4,
        retry_count: 1,
        rnr_retry: 6,
        ..Parameters::default()
    };
    let accept = Accept { parameters: given, ..accept() };
    let theirs = scene.ends[B].attributes(b, &accept).unwrap();
    scene.ends[B].accept(b, &accept, now).unwrap();
    scene.settle();
    let (id, response) = scene.response();
    assert_eq!(id, a);
    let ours = response.attributes;
    // Each end starts with the PSN that the other expects.
    assert_eq!((ours.sq_psn, ours.rq_psn), (theirs.rq_psn, theirs.sq_psn));
    assert_ne!(ours.sq_psn, ours.rq_psn);
    assert_eq!((ours.dest_qp, theirs.dest_qp), (B_QP.0, A_QP.0));
    assert_eq!((ours.mtu, theirs.mtu), (Mtu::Mtu2048, Mtu::Mtu2048));
    // No end has more Reads under way than the other serves.
    let served =
        |attributes: &Attributes| (attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
    assert_eq!((served(&ours), served(&theirs)), ((3, 4), (4, 3)));
    assert_eq!((response.initiator_depth, response.responder_resources), (3, 4));
    // The REQ says how often the acceptor tries, the REP how often the initiator does after RNR.
    assert_eq!((ours.retry_count, theirs.retry_count), (4, 4));
    assert_eq!((ours.rnr_retry, theirs.rnr_retry), (6, 2));
    assert_eq!((ours.timeout, theirs.timeout), (17, 17));
    assert_eq!((ours.min_rnr_timer.code(), theirs.min_rnr_timer.code()), (0, 0));
    assert_eq!((ours.access, theirs.access), (Access::REMOTE, Access::REMOTE));
    assert_eq!(ours.path.address.destination, address(B));
    assert_eq!(theirs.path.address.destination, address(A));
    assert_eq!((ours.path.destination_port, theirs.path.destination_port), (4791, 4791));
    assert_eq!(response.private_data.len(), limits::REP);
    assert!(response.private_data.starts_with(b"gladly\0"));
    assert_eq!(response.own_kind, None);
    scene.ends[A].ready(a, b"").unwrap();
    scene.settle();
    assert!(matches!(scene.event(B).kind, EventKind::Established { .. }));
    assert_eq!(scene.sent(), "a REQ, b REP, a RTU");
    let never = scene.ends.iter().all(|end| end.next_timeout().is_none());
    assert!(never, "an established connection has no deadline");
}

/// Covers: ROCE-167
#[test]
fn without_resources_the_peer_may_only_write() {
    let mut scene = Scene::new();
    let parameters = Parameters { responder_resources: 0, ..Parameters::default() };
    let now = scene.now;
    scene.ends[A].connect(&Connect { parameters, ..connect() }, now).unwrap();
    scene.settle();
    let (b, request) = scene.request();
    assert_eq!(request.initiator_depth, 0);
    let theirs = scene.ends[B].attributes(b, &accept()).unwrap();
    assert_eq!((theirs.max_rd_atomic, theirs.access), (0, Access::REMOTE));
    scene.accept(b);
    scene.settle();
    let (_, response) = scene.response();
    assert_eq!(response.attributes.access, Access::REMOTE_WRITE);
}

/// Covers: ROCE-166
#[test]
fn a_rep_gets_no_more_than_was_asked_for() {
    let mut scene = Scene::new();
    let (_, b) = scene.requested();
    scene.accept(b);
    let mut rep = scene.lose(B).remove(0);
    let Message::Rep(message) = &mut rep.message else { panic!() };
    (message.responder_resources, message.initiator_depth) = (200, 201);
    scene.give(A, &rep);
    let attributes = scene.response().1.attributes;
    assert_eq!((attributes.max_rd_atomic, attributes.max_dest_rd_atomic), (1, 1));
}

/// Covers: ROCE-152
#[test]
fn a_request_without_a_listener_is_refused() {
    let mut scene = Scene::new();
    let now = scene.now;
    let a = scene.ends[A].connect(&Connect { service: DATAGRAMS, ..connect() }, now).unwrap();
    scene.settle();
    let event = scene.event(A);
    assert_eq!((event.id, rejected(&event.kind)), (a, (RejectReason::InvalidServiceId, false)));
    let [(_, req), (_, rej)] = &scene.sent[..] else { panic!() };
    let Message::Rej(message) = &rej.message else { panic!() };
    assert_eq!(rej.tid, req.tid);
    assert_eq!((message.local_comm_id, message.remote_comm_id), (0, a.0));
    assert_eq!(message.rejected, Rejected::Req);
    assert!(scene.ends[A].is_clean() && scene.ends[B].is_clean());
}

/// As perftest does with `-R`: it listens anew for its second connection.
///
/// Covers: ROCE-152
#[test]
fn a_listener_that_comes_back_finds_what_was_asked_meanwhile() {
    let mut scene = Scene::new();
    let listener = scene.listener;
    scene.ends[B].unlisten(listener);
    let a = scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    scene.give(B, &req);
    assert!(scene.lose(B).is_empty(), "neither refused nor told");
    scene.pass(second() / 2);
    scene.listener = scene.ends[B].listen(&listen(SERVICE, Transport::Rc)).unwrap();
    scene.pass(Duration::ZERO);
    let (b, _) = scene.request();
    scene.accept(b);
    scene.settle();
    assert_eq!(scene.response().0, a);
}

/// Covers: ROCE-152
#[test]
fn a_listener_that_stays_away_is_waited_for_once() {
    let mut scene = Scene::new();
    let listener = scene.listener;
    scene.ends[B].unlisten(listener);
    for wait in [second(), Duration::ZERO] {
        scene.connect();
        scene.settle();
        assert_eq!(scene.events(A).len(), usize::from(wait.is_zero()));
        scene.pass(wait);
        scene.settle();
        if !wait.is_zero() {
            let refused = scene.event(A).kind;
            assert_eq!(rejected(&refused), (RejectReason::InvalidServiceId, false));
        }
    }
    assert!(scene.ends[A].is_clean() && scene.ends[B].is_clean());
}

/// Covers: ROCE-152
#[test]
fn few_requests_wait_for_a_listener() {
    let mut scene = Scene::new();
    let listener = scene.listener;
    scene.ends[B].unlisten(listener);
    scene.connect();
    let mut req = scene.lose(A).remove(0);
    for number in 0..100 {
        let Message::Req(message) = &mut req.message else { panic!() };
        (message.local_comm_id, message.local_qpn) = (1000 + number, 2000 + number);
        scene.give(B, &req);
    }
    assert_eq!(scene.lose(B).len(), 100 - 16);
    // Requests of another peer wait nevertheless.
    let mut path = way(A);
    path.address.source = [192, 0, 2, 1].into();
    let Message::Req(message) = &mut req.message else { panic!() };
    (message.local_comm_id, message.local_qpn) = (1, 2);
    let now = scene.now;
    scene.ends[B].receive(&req.write(), &path, now);
    assert!(scene.lose(B).is_empty());
    scene.pass(second());
    assert_eq!(scene.lose(B).len(), 16 + 1);
}

/// Covers: ROCE-153
#[test]
fn a_repeated_request_gets_its_last_answer_and_is_told_once() {
    let mut scene = Scene::new();
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, _) = scene.request();
    scene.give(B, &req);
    assert!(scene.lose(B).is_empty(), "the program has not answered yet");
    scene.accept(b);
    let rep = scene.lose(B);
    scene.give(B, &req);
    assert_eq!(scene.lose(B), rep);
    scene.give(A, &rep[0]);
    let (a, _) = scene.response();
    scene.ends[A].ready(a, &[]).unwrap();
    scene.settle();
    scene.give(B, &req);
    scene.event(B);
    assert_eq!(scene.lose(B), rep, "established, but the request was under way");
    // A refusal is repeated as well.
    let mut scene = Scene::new();
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, _) = scene.request();
    let now = scene.now;
    scene.ends[B].reject(b, RejectReason::Consumer, b"no", now).unwrap();
    let rej = scene.lose(B);
    scene.give(B, &req);
    assert_eq!(scene.lose(B), rej);
    assert!(scene.events(B).is_empty());
    scene.give(A, &rej[0]);
    let kind = scene.event(A).kind;
    assert!(
        matches!(&kind, EventKind::Rejected { reason: RejectReason::Consumer, private_data, .. }
        if private_data.len() == limits::REJ && private_data.starts_with(b"no\0"))
    );
    scene.assert_nothing_is_left();
}

/// Covers: ROCE-155
#[test]
fn a_rep_is_sent_again_until_its_retries_are_used_up() {
    let mut scene = Scene::new();
    let (_, b) = scene.requested();
    scene.accept(b);
    let mut reps = scene.lose(B).len();
    let start = scene.now;
    while scene.ends[B].next_timeout().is_some() {
        scene.now = scene.ends[B].next_timeout().unwrap();
        let now = scene.now;
        scene.ends[B].advance(now);
        let sent = scene.lose(B);
        reps += sent.iter().filter(|mad| matches!(mad.message, Message::Rep(_))).count();
    }
    assert_eq!(reps, 16);
    let took = scene.now.0 - start.0;
    assert_eq!(took, TimeCode::new(18).duration() * 16);
    let event = scene.event(B);
    assert_eq!(event.id, b);
    assert!(matches!(event.kind, EventKind::Unreachable(Unreachable::Silent)));
    // The peer is told as well.
    let Message::Rej(rej) = &scene.sent.last().unwrap().1.message else { panic!() };
    assert_eq!((rej.reason, rej.guid()), (RejectReason::Timeout, settings(B).guid));
    assert!(!scene.ends[B].holds(B_QP));
}

/// Covers: ROCE-156
#[test]
fn a_repeated_rep_gets_its_rtu_again() {
    let mut scene = Scene::new();
    let (a, _, rep) = scene.responded_by();
    scene.give(A, &rep);
    assert!(scene.events(A).is_empty() && scene.lose(A).is_empty());
    scene.ends[A].ready(a, b"now").unwrap();
    let rtu = scene.lose(A);
    scene.give(A, &rep);
    assert_eq!(scene.lose(A), rtu);
    // One of another connection does not.
    let mut other = rep.clone();
    let Message::Rep(message) = &mut other.message else { panic!() };
    message.local_comm_id ^= 1;
    scene.give(A, &other);
    assert!(scene.lose(A).is_empty());
}

/// Covers: ROCE-157
#[test]
fn the_first_packet_counts_as_rtu() {
    let mut scene = Scene::new();
    let (a, b) = scene.responded();
    scene.ends[A].ready(a, &[]).unwrap();
    let rtu = scene.lose(A).remove(0);
    scene.ends[B].packet_arrived(B_QP);
    let event = scene.event(B);
    assert_eq!(event.id, b);
    assert!(
        matches!(&event.kind, EventKind::Established { private_data } if private_data.is_empty())
    );
    scene.give(B, &rtu);
    scene.ends[B].packet_arrived(B_QP);
    scene.ends[B].packet_arrived(QpId(77));
    assert!(scene.events(B).is_empty());
    assert!(scene.ends[B].next_timeout().is_none());
}

/// Covers: ROCE-162
#[test]
fn a_slow_program_s_peer_is_asked_for_time() {
    let mut scene = Scene::new();
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, _) = scene.request();
    let half = TimeCode::new(18).duration() / 2;
    let start = scene.now;
    assert_eq!(scene.ends[B].next_timeout(), Some(start.plus(half)));
    scene.now = start.plus(half);
    let now = scene.now;
    scene.ends[B].advance(now);
    let mra = scene.lose(B).remove(0);
    assert_eq!(mra.tid, req.tid);
    let Message::Mra(message) = &mra.message else { panic!() };
    assert_eq!((message.received, message.service_timeout.code()), (Rejected::Req, 24));
    assert_eq!(message.local_comm_id, b.0);
    scene.give(B, &req);
    assert_eq!(scene.lose(B), [mra]);
    scene.accept(b);
    scene.lose(B);
    assert_eq!(scene.sent(), "a REQ, b MRA 24, b MRA 24, b REP");
    // The initiator's program may be slow as well.
    let mut scene = Scene::new();
    let (a, _, rep) = scene.responded_by();
    scene.now = scene.now.plus(half);
    let now = scene.now;
    scene.ends[A].advance(now);
    let mra = scene.lose(A).remove(0);
    let Message::Mra(message) = &mra.message else { panic!() };
    assert_eq!((message.received, message.service_timeout.code()), (Rejected::Rep, 24));
    scene.give(A, &rep);
    assert_eq!(scene.lose(A), [mra]);
    scene.ends[A].ready(a, &[]).unwrap();
}

/// Covers: ROCE-163
#[test]
fn a_peer_that_asks_for_time_has_it() {
    let wait = TimeCode::new(24).duration() + TimeCode::new(16).duration();
    let mut scene = Scene::new();
    scene.requested();
    scene.pass(second());
    let mra = scene.lose(B).remove(0);
    scene.give(A, &mra);
    let asked = scene.now;
    assert_eq!(scene.ends[A].next_timeout(), Some(asked.plus(wait)));
    scene.now = asked.plus(second());
    scene.give(A, &mra);
    assert_eq!(scene.ends[A].next_timeout(), Some(asked.plus(wait)), "it has asked already");
    scene.now = asked.plus(wait);
    let now = scene.now;
    scene.ends[A].advance(now);
    assert!(matches!(scene.lose(A)[0].message, Message::Req(_)));
    assert!(scene.ends[A].next_timeout().unwrap() < scene.now.plus(2 * second()));
    // Of a REP.
    let mut scene = Scene::new();
    scene.responded();
    scene.pass(second());
    let mra = scene.lose(A).remove(0);
    scene.lose(B);
    scene.give(B, &mra);
    assert_eq!(scene.ends[B].next_timeout(), Some(scene.now.plus(wait)));
}

/// Covers: ROCE-168
#[test]
fn a_path_mtu_that_is_too_large_is_refused() {
    let small = Settings { mtu: Mtu::Mtu1024, ..settings(B) };
    let mut scene = Scene::with([settings(A), small]);
    let now = scene.now;
    scene.ends[A].connect(&Connect { mtu: Mtu::Mtu2048, ..connect() }, now).unwrap();
    scene.settle();
    assert_eq!(rejected(&scene.event(A).kind), (RejectReason::InvalidMtu, false));
    assert!(scene.events(B).is_empty());
    // An initiator does not ask for more than it has.
    let small = Settings { mtu: Mtu::Mtu512, ..settings(A) };
    let mut scene = Scene::with([small, settings(B)]);
    let (_, b) = scene.requested();
    assert_eq!(scene.ends[B].attributes(b, &accept()).unwrap().mtu, Mtu::Mtu512);
    // Interfaces of a device may differ.
    for (mtu, fits) in [(Some(Mtu::Mtu512), false), (None, true)] {
        let mut scene = Scene::new();
        scene.ends[B].set_mtu(address(B), Some(Mtu::Mtu256));
        scene.ends[B].set_mtu(address(B), mtu);
        scene.connect();
        scene.settle();
        assert_eq!(scene.events(B).len(), usize::from(fits));
    }
}

#[test]
fn requests_that_are_wrong_are_refused_with_a_reason() {
    let refused = |change: &dyn Fn(&mut Req)| {
        let mut scene = Scene::new();
        scene.connect();
        let mut mad = scene.lose(A).remove(0);
        let Message::Req(req) = &mut mad.message else { panic!() };
        change(req);
        scene.give(B, &mad);
        assert!(scene.events(B).is_empty());
        let answers = scene.lose(B);
        assert!(scene.ends[B].is_clean());
        answers.first().map(|mad| match &mad.message {
            Message::Rej(rej) => rej.reason,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(
        refused(&|req| req.transport = TransportType::Uc),
        Some(RejectReason::InvalidTransport)
    );
    assert_eq!(
        refused(&|req| req.transport = TransportType::Rd),
        Some(RejectReason::InvalidTransport)
    );
    assert_eq!(
        refused(&|req| req.transport = TransportType::Extended),
        Some(RejectReason::InvalidTransport)
    );
    assert_eq!(refused(&|req| req.primary.local_gid[15] ^= 1), Some(RejectReason::InvalidGid));
    assert_eq!(refused(&|req| req.primary.remote_gid[0] ^= 1), Some(RejectReason::InvalidGid));
    assert_eq!(refused(&|req| req.pkey = Pkey(0x1234)), Some(RejectReason::Unsupported));
    assert_eq!(refused(&|req| req.mtu = 0), Some(RejectReason::InvalidMtu));
    assert_eq!(refused(&|req| req.mtu = 6), Some(RejectReason::InvalidMtu));
    // The header with IP addresses: version, family, addresses.
    for octet in [0, 1, 19, 35] {
        assert_eq!(refused(&|req| req.private_data[octet] ^= 0x10), Some(RejectReason::Consumer));
    }
    for qpn in [0, 1, 0xff_ffff] {
        assert_eq!(refused(&|req| req.local_qpn = qpn), None);
    }
    assert_eq!(refused(&|req| req.local_comm_id = 0), None);
}

/// Covers: ROCE-172
#[test]
fn our_own_kind_knows_each_other_and_nobody_else() {
    let own = |port| OwnKind { udp_port: Some(port), tcp_port: Some(port + 1), no_icrc: true };
    let with = |a, b| {
        let own_kind = |end: usize, kind| Settings { own_kind: kind, ..settings(end) };
        Scene::with([own_kind(A, a), own_kind(B, b)])
    };
    let told = |mut scene: Scene, change: &dyn Fn(&mut Mad)| {
        scene.connect();
        let mut req = scene.lose(A).remove(0);
        change(&mut req);
        scene.give(B, &req);
        let (b, request) = scene.request();
        assert_eq!(request.ece.options, req.modifier);
        assert!(request.private_data.starts_with(b"please\0"));
        scene.accept(b);
        let rep = scene.lose(B).remove(0);
        scene.give(A, &rep);
        (request.own_kind, scene.response().1.own_kind, rep)
    };
    let (asked, answered, _) = told(with(Some(own(7000)), Some(own(8000))), &|_| {});
    assert_eq!((asked, answered), (Some(own(7000)), Some(own(8000))));
    let (asked, answered, rep) = told(with(Some(own(7000)), None), &|_| {});
    assert_eq!((asked, answered, rep.modifier), (Some(own(7000)), None, 0));
    let (asked, answered, _) = told(with(None, Some(own(8000))), &|_| {});
    assert_eq!((asked, answered), (None, None));
    // A foreign vendor is answered as if it had said nothing.
    let (asked, answered, rep) = told(with(None, Some(own(8000))), &|req| {
        req.modifier = 0x1234_5678;
        let Message::Req(message) = &mut req.message else { panic!() };
        message.vendor_id = 0x15_b300;
    });
    let Message::Rep(message) = &rep.message else { panic!() };
    assert_eq!((asked, answered, message.vendor_id, rep.modifier), (None, None, 0, 0));
    // Linux says again what it was told.
    let mut scene = with(Some(own(7000)), None);
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (b, _) = scene.request();
    scene.accept(b);
    let mut rep = scene.lose(B).remove(0);
    rep.modifier = req.modifier;
    let Message::Rep(message) = &mut rep.message else { panic!() };
    message.vendor_id = VENDOR_ID;
    scene.give(A, &rep);
    assert_eq!(scene.response().1.own_kind, None);
}

/// Covers: ROCE-173
#[test]
fn answers_are_told_to_take_less_than_two_seconds() {
    let mut scene = Scene::new();
    scene.connect();
    let Message::Req(req) = scene.lose(A).remove(0).message else { panic!() };
    assert!(req.local_response_timeout.duration() < 2 * second());
    assert!(req.remote_response_timeout.duration() < 2 * second());
    assert!(scene.ends[A].next_timeout().unwrap().0 - scene.now.0 < 2 * second());
}

/// Covers: ROCE-174
#[test]
fn private_data_have_limits() {
    let octets = [7; 225];
    let too_long = |len, limit| Err(CallError::PrivateData(TooLong { len, limit }));
    let mut scene = Scene::new();
    let now = scene.now;
    let asks = |scene: &mut Scene, len: usize, source_port| {
        let connect = Connect { private_data: &octets[..len], source_port, ..connect() };
        scene.ends[A].connect(&connect, now).map(|_| ())
    };
    assert_eq!(asks(&mut scene, 57, Some(1)), too_long(57, 56));
    assert_eq!(asks(&mut scene, 93, None), too_long(93, 92));
    assert_eq!(asks(&mut scene, 56, Some(1)), Ok(()));
    scene.settle();
    let (b, request) = scene.request();
    assert_eq!(request.private_data[..], octets[..56]);
    assert_eq!(
        scene.ends[B].reject(b, RejectReason::Consumer, &octets[..149], now),
        too_long(149, 148)
    );
    let accept = |len| Accept { private_data: &octets[..len], ..accept() };
    assert_eq!(scene.ends[B].accept(b, &accept(197), now), too_long(197, 196));
    scene.ends[B].accept(b, &accept(196), now).unwrap();
    scene.settle();
    let (a, response) = scene.response();
    assert_eq!(response.private_data[..], octets[..196]);
    assert_eq!(scene.ends[A].ready(a, &octets), too_long(225, 224));
    scene.ends[A].ready(a, &octets[..224]).unwrap();
    scene.settle();
    scene.event(B);
    assert_eq!(scene.ends[A].disconnect(a, &octets[..221], now), too_long(221, 220));
    scene.ends[A].disconnect(a, &octets[..220], now).unwrap();
    scene.settle();
    assert!(matches!(&scene.event(B).kind, EventKind::Disconnected { private_data, .. }
        if private_data[..] == octets[..220]));
    let mut scene = Scene::new();
    let (_, b) = scene.requested();
    scene.ends[B].reject(b, RejectReason::Consumer, &octets[..148], now).unwrap();
    scene.settle();
    assert!(matches!(&scene.event(A).kind, EventKind::Rejected { private_data, .. }
        if private_data[..] == octets[..148]));
}

#[test]
fn a_process_may_connect_to_itself() {
    let mut scene = Scene::new();
    let path = Path::new(AddressVector::new(address(B), address(B)), 1);
    let now = scene.now;
    let end = &mut scene.ends[B];
    let settle = |end: &mut Manager<_>| {
        while let Some((path, octets)) = end.poll_transmit() {
            end.receive(&octets, &path, now);
        }
    };
    let a = end.connect(&Connect { path, ..connect() }, now).unwrap();
    settle(end);
    let b = end.poll_event().unwrap().id;
    end.accept(b, &accept(), now).unwrap();
    settle(end);
    assert_eq!(end.poll_event().unwrap().id, a);
    end.ready(a, &[]).unwrap();
    settle(end);
    assert!(matches!(end.poll_event().unwrap().kind, EventKind::Established { .. }));
    end.disconnect(a, &[], now).unwrap();
    settle(end);
    assert_eq!([end.poll_event().unwrap().id, end.poll_event().unwrap().id], [b, a]);
    scene.assert_nothing_is_left();
}

/// A peer remembers some refusals and answers. It takes nothing new for something repeated.
#[test]
fn an_id_comes_again_late() {
    let comm_ids = CommIds { first: 0x2a << 20, free_bits: 10 };
    let mut scene = Scene::with([Settings { comm_ids, ..settings(A) }, settings(B)]);
    let now = scene.now;
    let mut last = std::collections::VecDeque::new();
    for turn in 0..2000 {
        let id = if turn % 2 == 0 {
            scene.ends[A].resolve(&resolve(), now).unwrap()
        } else {
            let qp = QpId(0x1000 + turn);
            scene.ends[A].connect(&Connect { qp, ..connect() }, now).unwrap()
        };
        assert!(!last.contains(&id), "again after {} others", last.len());
        last.push_back(id);
        if last.len() > 500 {
            last.pop_front();
        }
        scene.settle();
        let (b, _) = scene.request();
        scene.ends[B].reject(b, RejectReason::Consumer, &[], now).unwrap();
        scene.settle();
        assert_eq!(scene.event(A).id, id);
    }
}

/// A REQ is another one where its transaction is, although a refused one had its id: its peer may
/// be a later process.
#[test]
fn an_id_that_comes_again_with_another_transaction_asks_anew() {
    let mut scene = Scene::new();
    let now = scene.now;
    scene.connect();
    let req = scene.lose(A).remove(0);
    scene.give(B, &req);
    let (first, _) = scene.request();
    scene.ends[B].reject(first, RejectReason::Consumer, &[], now).unwrap();
    scene.lose(B);
    scene.give(B, &req);
    assert_eq!(scene.lose(B)[0].tid, req.tid, "once more");
    let other = Mad { tid: req.tid ^ 1 << 40, ..req };
    scene.give(B, &other);
    let (second, _) = scene.request();
    assert!(first != second && scene.lose(B).is_empty());
    scene.accept(second);
    assert_eq!(scene.lose(B)[0].tid, other.tid);
}

/// Communication ids are those of their process.
#[test]
fn ids_tell_their_process() {
    let comm_ids = CommIds { first: 0x2a << 20, free_bits: 20 };
    let mut scene = Scene::with([Settings { comm_ids, ..settings(A) }, settings(B)]);
    for qp in 100..200 {
        let now = scene.now;
        let id = scene.ends[A].connect(&Connect { qp: QpId(qp), ..connect() }, now).unwrap();
        assert_eq!(id.0 >> 20, 0x2a);
    }
}
