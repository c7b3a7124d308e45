// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that mean no good.

use std::net::{IpAddr, Ipv4Addr};

use iwarp_roce::cm::message::{CMA_HEADER_LEN, CmaHeader, Message, gid};
use iwarp_roce::cm::{Accept, EventKind, Mad, RejectReason, Settings};
use iwarp_types::QpId;

use crate::cm::scene::*;

/// An address that is neither end's.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// REQs of different strangers: one for each number.
struct Flood {
    req: Mad,
}

impl Flood {
    fn new() -> Self {
        let mut scene = Scene::new();
        scene.connect();
        Self { req: scene.lose(A).remove(0) }
    }

    /// Gives B one of them, from an address.
    fn give(&self, scene: &mut Scene, number: u32, source: IpAddr) {
        let mut mad = self.req.clone();
        let mut path = way(A);
        path.address.source = source;
        let Message::Req(req) = &mut mad.message else { panic!() };
        req.local_comm_id = 1 + number;
        req.local_qpn = 2 + number;
        req.primary.local_gid = gid(source);
        let header = CmaHeader { source_port: 1, source, destination: address(B) };
        req.private_data[..CMA_HEADER_LEN].copy_from_slice(&header.write());
        let now = scene.now;
        scene.ends[B].receive(&mad.write(), &path, now);
    }

    /// Gives B ten thousand of them, each from its `source`, and calls `after` behind each.
    fn pour(
        &self,
        scene: &mut Scene,
        first: u32,
        source: impl Fn(u32) -> IpAddr,
        after: impl Fn(&mut Scene, u32),
    ) {
        for number in 0..10_000 {
            self.give(scene, first + number, source(number));
            after(scene, number);
        }
    }
}

fn requests(scene: &mut Scene) -> usize {
    let events = scene.events(B);
    assert!(events.iter().all(|event| matches!(event.kind, EventKind::ConnectRequest(_))));
    events.len()
}

#[test]
fn a_flood_of_requests_is_bounded_and_keeps_nobody_out() {
    let flood = Flood::new();
    let mut scene = Scene::new();
    flood.pour(&mut scene, 0, |_| STRANGER, |_, _| {});
    assert_eq!(requests(&mut scene), 8, "the backlog");
    assert_eq!(scene.ends[B].len(), 8);
    scene.connect();
    scene.settle();
    assert_eq!(requests(&mut scene), 1, "another address has its share");
    // From ever new addresses, there is an end to that as well.
    let source = |number: u32| [198, 18, (number >> 8) as u8, number as u8].into();
    flood.pour(&mut scene, 20_000, source, |_, _| {});
    assert_eq!(scene.ends[B].len(), 16);
    assert!(scene.ends[B].dropped() >= 19_900);
    scene.events(A);
    scene.assert_nothing_is_left();
}

/// Peers that leave their REPs unanswered have a place as long as these are repeated.
#[test]
fn accepted_requests_without_an_rtu_are_bounded_and_keep_nobody_out() {
    let flood = Flood::new();
    let mut scene = Scene::new();
    let accept_it = |scene: &mut Scene, number| {
        let now = scene.now;
        for event in scene.events(B) {
            let qp = QpId(0x1_0000 + number);
            scene.ends[B].accept(event.id, &Accept { qp, ..accept() }, now).unwrap();
        }
        scene.lose(B);
    };
    flood.pour(&mut scene, 0, |_| STRANGER, accept_it);
    assert_eq!(scene.ends[B].len(), 8, "the backlog");
    scene.established();
    // A peer that answers gives its place back.
    assert_eq!(scene.ends[B].len(), 9);
    scene.pass_all();
    scene.events(B);
    flood.give(&mut scene, 20_000, STRANGER);
    assert_eq!(requests(&mut scene), 1, "places come back");
}

/// A peer that asks for hours whenever it can gets as much as one that asks once.
#[test]
fn a_peer_that_asks_for_time_again_and_again_is_given_up() {
    use iwarp_roce::cm::TimeCode;
    use iwarp_roce::cm::message::{Mra, Rejected};
    let mut scene = Scene::new();
    let (a, b) = scene.requested();
    scene.accept(b);
    let start = scene.now;
    scene.lose(B);
    while !scene.ends[B].is_empty() {
        let mra = Mra {
            local_comm_id: a.0,
            remote_comm_id: b.0,
            received: Rejected::Rep,
            service_timeout: TimeCode::new(31),
            private_data: [0; 222],
        };
        scene.give(B, &Mad { tid: 1, modifier: 0, message: mra.into() });
        scene.now = scene.ends[B].next_timeout().unwrap();
        let now = scene.now;
        scene.ends[B].advance(now);
        scene.lose(B);
    }
    let took = scene.now.0 - start.0;
    let longest = TimeCode::new(20).duration() * 16 + TimeCode::new(24).duration();
    assert!(took <= longest + second(), "{took:?}");
}

#[test]
fn refusals_that_are_kept_are_bounded() {
    let flood = Flood::new();
    let few = Settings { stored_answers: 4, ..settings(B) };
    let mut scene = Scene::with([settings(A), few]);
    let now = scene.now;
    for number in 0..1000 {
        flood.give(&mut scene, number, address(A));
        let (b, _) = scene.request();
        scene.ends[B].reject(b, RejectReason::Consumer, &[], now).unwrap();
        scene.lose(B);
        assert!(scene.ends[B].len() <= 4);
    }
    // The latest are still known.
    flood.give(&mut scene, 999, address(A));
    assert!(scene.events(B).is_empty());
    flood.give(&mut scene, 0, address(A));
    assert_eq!(requests(&mut scene), 1);
    scene.assert_nothing_is_left();
}

#[test]
fn datagrams_that_nobody_takes_out_are_bounded() {
    let mut scene = Scene::new();
    let now = scene.now;
    let (a, _) = scene.established();
    scene.disconnect(A, a);
    let mut dreq = scene.lose(A).remove(0);
    let Message::Dreq(message) = &mut dreq.message else { panic!() };
    message.remote_comm_id ^= 1;
    for _ in 0..5000 {
        scene.ends[B].receive(&dreq.write(), &way(A), now);
    }
    assert_eq!(scene.lose(B).len(), 1024);
}

/// A peer that asks for hours gets seconds.
#[test]
fn times_of_a_peer_are_believed_within_bounds() {
    use iwarp_roce::cm::TimeCode;
    for code in [0, 31] {
        let mut scene = Scene::new();
        scene.connect();
        let mut mad = scene.lose(A).remove(0);
        let Message::Req(req) = &mut mad.message else { panic!() };
        req.local_response_timeout = TimeCode::new(code);
        req.remote_response_timeout = TimeCode::new(code);
        req.primary.local_ack_timeout = TimeCode::new(code);
        scene.give(B, &mad);
        let (b, _) = scene.request();
        let start = scene.now;
        scene.accept(b);
        let interval = scene.ends[B].next_timeout().unwrap().0 - start.0;
        let (shortest, longest) = (TimeCode::new(16).duration(), TimeCode::new(20).duration());
        assert!((shortest..=longest).contains(&interval));
        scene.ends[B].packet_arrived(B_QP);
        scene.events(B);
        scene.disconnect(B, b);
        scene.pass_all();
        let took = scene.now.0 - start.0;
        assert!(took <= 17 * longest + TimeCode::new(24).duration(), "{took:?}");
        scene.assert_nothing_is_left();
    }
}
