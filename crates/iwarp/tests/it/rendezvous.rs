// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that meet without the connection manager: (GID, number) against (GID, number).

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use iwarp::{
    AtomicOp, CompletionQueue, ModifyError, Options, Peer, Personality, PostError, QpState,
    QueuePairAttributes, Retry, SendRequest, Stag, TaggedOffset, WcStatus,
};

use crate::common;
use crate::common::census::{descriptors, workers};
use crate::common::meet::{LOOPBACK, Model, PAUSE, Side, TestHost, exchange, gid};
use crate::common::process::{
    Child, listen_to_parent, passed_apart, role, say, setting, this_test,
};
use crate::common::reports::Reports;
use crate::common::scene::Scene;
use crate::common::{DEADLINE, next, until};

/// Work waits at least so long for a connection.
const LEAST: Duration = Duration::from_secs(3);

fn port(side: &Side) -> SocketAddr {
    SocketAddr::new(LOOPBACK.parse().unwrap(), (side.qp.number() >> 8) as u16)
}

/// True if a program listens there.
fn listens(addr: SocketAddr) -> bool {
    TcpStream::connect(addr).is_ok()
}

/// The worker may be about to take a connection, and has the socket until then.
fn until_nothing_listens(addr: SocketAddr) {
    until("the port to be closed", || (!listens(addr)).then_some(()));
}

/// All ways to mix three steps of one end with three of the other.
fn mixtures() -> Vec<Vec<bool>> {
    let all = (0..1_u32 << 6).filter(|mask| mask.count_ones() == 3);
    all.map(|mask| (0..6).map(|bit| mask & (1 << bit) != 0).collect()).collect()
}

#[test]
fn ends_meet_in_every_order() {
    let (one, other) = (TestHost::new(), TestHost::new());
    let mixtures = mixtures();
    assert_eq!(mixtures.len(), 20);
    for order in mixtures {
        let ends = [one.end(), other.end()];
        let mut done = [0; 2];
        for which in order.iter().map(|first| usize::from(!first)) {
            let (end, peer) = (&ends[which], &ends[1 - which]);
            match done[which] {
                0 => end.init(),
                1 => end.rtr(peer),
                _ => end.rts(),
            }
            done[which] += 1;
        }
        exchange(&ends[0], &ends[1]);
        exchange(&ends[1], &ends[0]);
    }
}

#[test]
fn both_at_once() {
    let (one, other) = (TestHost::new(), TestHost::new());
    for round in 0..50 {
        let ends = [one.end(), other.end()];
        ends.iter().for_each(Side::init);
        // With the messages posted at once, so that it shows if one gets lost.
        ends.iter().for_each(|end| end.post_recv(1));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    end.rtr(peer);
                    end.rts();
                    end.send(2, format!("round {round}").as_bytes());
                });
            }
        });
        for end in &ends {
            assert_eq!(end.received(), format!("round {round}").as_bytes());
            end.sent();
        }
    }
}

#[test]
fn either_address_family() {
    let options = Options::default;
    for addr in ["127.0.0.1", "::1"] {
        let (one, other) = (TestHost::with(options(), addr), TestHost::with(options(), addr));
        let (a, b) = (one.end(), other.end());
        a.all_the_way(&b);
        b.all_the_way(&a);
        exchange(&a, &b);
    }
}

/// All other addresses of this host, link-local ones included.
#[test]
fn every_address_of_the_host() {
    let host = TestHost::new();
    for gid in host.device.gids().unwrap() {
        let (mut a, mut b) = (host.end(), host.end());
        (a.gid, b.gid) = (gid.clone(), gid.clone());
        a.all_the_way(&b);
        b.all_the_way(&a);
        exchange(&a, &b);
        assert_eq!(a.qp.peer().unwrap().gid, gid.addr);
    }
}

#[test]
fn a_lid_leads_to_a_host_of_the_same_network() {
    let host = TestHost::new();
    let lid = host.device.lid().unwrap();
    assert_ne!(lid, 0);
    let (a, b) = (host.end(), host.end());
    for (end, peer) in [(&a, &b), (&b, &a)] {
        end.init();
        let (number, psn) = (peer.qp.number(), peer.qp.psn());
        let peer = Peer::from_lid(&host.device, lid, number, psn).unwrap();
        assert_eq!(peer.gid, peer.local);
        end.qp.connect_to(&peer).unwrap();
        end.rts();
    }
    exchange(&a, &b);
    let other = Peer::from_lid(&host.device, 0x0102, 7, 0).unwrap();
    let (IpAddr::V4(own), IpAddr::V4(other)) = (other.local, other.gid) else {
        panic!("{other:?}")
    };
    assert_eq!(own.octets()[..2], other.octets()[..2]);
    assert_eq!(other.octets()[2..], [1, 2]);
}

#[test]
fn early_sends_wait_for_the_peer() {
    let model = Model::default();
    let (host, clock) = (model.host(), &model.clock);
    for leader_is_late in [false, true] {
        let (low, high) = host.ordered();
        let (early, late) = if leader_is_late { (high, low) } else { (low, high) };
        early.all_the_way(&late);
        for n in 0..8_u8 {
            early.send(u64::from(n), &[n; 16]);
        }
        late.init();
        (0..8).for_each(|n| late.post_recv(n));
        // Some attempts; less than work waits.
        clock.advance(PAUSE * 3);
        assert!(!early.qp.is_connected());
        assert!(early.send_cq.poll_one().is_none());
        late.rtr(&early);
        // The next attempt of either, and the time for which one in RTR keeps it.
        until("the connection", || {
            clock.advance(Duration::from_millis(1));
            late.qp.is_connected().then_some(())
        });
        for n in 0..8_u8 {
            assert_eq!(early.sent().wr_id, u64::from(n));
        }
        (0..8).for_each(|_| drop(late.received()));
        late.rts();
        exchange(&early, &late);
    }
}

/// Without work that waits there is no limit.
#[test]
fn a_peer_may_come_late() {
    let model = Model::default();
    let (host, clock) = (model.host(), &model.clock);
    let (early, late) = host.ordered();
    early.all_the_way(&late);
    early.post_recv(7);
    clock.advance(LEAST * 100);
    assert_eq!(early.qp.state(), QpState::Rts);
    late.all_the_way(&early);
    clock.advance(PAUSE);
    late.send(1, b"late");
    assert_eq!(early.received(), b"late");
}

/// On a machine that stands still for long both ends stand still, and neither is to blame.
#[test]
fn a_machine_that_stood_still_is_waited_for() {
    let model = Model::default();
    let (host, clock) = (model.host(), &model.clock);
    let (early, late) = host.ordered();
    early.all_the_way(&late);
    early.send(1, b"early");
    for _ in 0..4 {
        clock.jump(LEAST * 10);
    }
    assert_eq!(early.qp.state(), QpState::Rts);
    late.init();
    late.post_recv(1);
    late.rtr(&early);
    late.rts();
    clock.advance(PAUSE);
    assert_eq!(late.received(), b"early");
    early.sent();
}

#[test]
fn a_queue_pair_can_be_its_own_peer() {
    for (addr, personality) in [
        ("127.0.0.1", Personality::Iwarp),
        ("::1", Personality::Iwarp),
        (LOOPBACK, Personality::Roce),
    ] {
        let host = TestHost::with(Options::new().personality(personality), addr);
        for _ in 0..3 {
            let end = host.end();
            end.all_the_way(&end);
            exchange(&end, &end);
            let depth = end.qp.read_depths();
            assert_eq!(depth, (16, 16));
            end.qp.modify(QpState::Reset).unwrap();
            end.all_the_way(&end);
            exchange(&end, &end);
        }
    }
}

#[test]
fn strangers_are_refused() {
    let model = Model::default();
    let (host, clock) = (model.host(), &model.clock);
    let (low, high) = host.ordered();
    let third = host.end();
    // `low` expects the third, whose peer is somebody else.
    low.all_the_way(&third);
    high.all_the_way(&low);
    third.init();
    high.post_recv(1);
    high.send(1, b"to nobody");
    high.send(2, b"neither");
    // Waiting work is looked for now and then.
    clock.advance(LEAST);
    assert_eq!(high.qp.state(), QpState::Rts);
    assert!(high.send_cq.poll_one().is_none());
    clock.advance(PAUSE);
    assert_eq!(high.status(), WcStatus::RetryExceeded);
    assert_eq!(high.status(), WcStatus::Flushed);
    assert_eq!(next(&high.recv_cq).status, WcStatus::Flushed);
    assert_eq!(high.qp.state(), QpState::Err);
    // That has not hurt anybody else.
    assert_eq!(low.qp.state(), QpState::Rts);
    third.rtr(&low);
    third.rts();
    clock.advance(PAUSE);
    exchange(&low, &third);
}

#[test]
fn a_queue_pair_has_one_connection() {
    let model = Model::default();
    let host = model.host();
    let (a, b) = model.couple(&host);
    // One more wants it.
    let c = host.end();
    c.all_the_way(&a);
    c.send(1, b"me too");
    model.clock.advance(LEAST + PAUSE);
    assert_eq!(c.status(), WcStatus::RetryExceeded);
    exchange(&a, &b);
}

#[test]
fn reset_and_again() {
    let (one, other) = (TestHost::new(), TestHost::new());
    let (a, b) = (one.end(), other.end());
    for round in 0..4 {
        a.all_the_way(&b);
        b.all_the_way(&a);
        exchange(&a, &b);
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        first.qp.modify(QpState::Reset).unwrap();
        assert_eq!(first.qp.peer(), None);
        // The other end sees it go.
        until("the connection to end", || (second.qp.state() == QpState::Err).then_some(()));
        if round > 1 {
            // And may be late: until then it is not taken for its former self.
            first.all_the_way(second);
            assert!(!first.qp.is_connected());
        }
        second.qp.modify(QpState::Reset).unwrap();
        while a.recv_cq.poll_one().is_some() || b.recv_cq.poll_one().is_some() {}
        if round > 1 {
            second.all_the_way(first);
            exchange(first, second);
            a.qp.modify(QpState::Reset).unwrap();
            b.qp.modify(QpState::Reset).unwrap();
        }
    }
}

#[test]
fn err_flushes_what_waits() {
    let model = Model::default();
    let host = model.host();
    let (a, b) = (host.end(), host.end());
    a.all_the_way(&b);
    a.post_recv(1);
    a.send(2, b"never");
    a.qp.modify(QpState::Err).unwrap();
    assert_eq!(a.status(), WcStatus::Flushed);
    assert_eq!(next(&a.recv_cq).status, WcStatus::Flushed);
    // And no peer comes any more.
    b.all_the_way(&a);
    b.send(1, b"hello?");
    model.clock.advance(LEAST + PAUSE);
    assert_eq!(b.status(), WcStatus::RetryExceeded);
}

/// Programs for InfiniBand poll for the last message and take a flushed request behind it for a
/// failure: they get time to leave.
#[test]
fn a_peer_that_leaves_in_good_order_is_missed_after_a_moment() {
    const MOMENT: Duration = Duration::from_secs(1);
    const NEARLY: Duration = Duration::from_millis(990);
    let scene = Scene::new();
    let host = scene.host();
    let couple = || {
        let (a, b) = (host.end(), host.end());
        a.all_the_way(&b);
        b.all_the_way(&a);
        let are_connected = || a.qp.is_connected() && b.qp.is_connected();
        scene.until("the connection", || are_connected().then_some(()));
        exchange(&a, &b);
        (a, b)
    };
    for posts in [false, true] {
        let (a, b) = couple();
        a.post_recv(7);
        drop(b);
        if posts {
            // The stream would still take it before it is seen that the peer has left.
            scene.pass(Duration::from_millis(5));
            a.send(8, b"still there?");
        }
        scene.pass(NEARLY);
        assert_eq!((a.send_cq.waiting(), a.recv_cq.waiting()), (0, 0));
        assert_eq!(a.qp.state(), QpState::Rts);
        scene.pass(MOMENT - NEARLY + Duration::from_millis(1));
        assert_eq!((a.send_cq.waiting(), a.recv_cq.waiting()), (usize::from(posts), 1));
        assert_eq!(next(&a.recv_cq).status, WcStatus::Flushed);
        if posts {
            assert_eq!(a.status(), WcStatus::RetryExceeded);
        }
        assert_eq!(a.qp.state(), QpState::Err);
        // One that leaves meanwhile is gone at once.
        drop(couple());
        scene.pass(Duration::from_millis(5));
        assert_eq!(host.device.connections(), 0);
    }
}

#[test]
fn sqd_holds_back_and_rts_goes_on() {
    let host = TestHost::new();
    let (a, b) = (host.end(), host.end());
    a.all_the_way(&b);
    b.all_the_way(&a);
    exchange(&a, &b);
    a.qp.modify(QpState::Sqd).unwrap();
    assert_eq!(a.qp.state(), QpState::Sqd);
    b.post_recv(1);
    a.send(1, b"held");
    // A message there and its acknowledgement pass what is held back.
    a.post_recv(2);
    b.send(2, b"not held");
    assert_eq!(a.received(), b"not held");
    b.sent();
    assert!(b.recv_cq.poll_one().is_none());
    a.rts();
    assert_eq!(b.received(), b"held");
}

#[test]
fn only_what_the_verbs_allow() {
    let host = TestHost::new();
    let (a, b) = (host.end(), host.end());
    assert!(matches!(a.qp.modify(QpState::Rts), Err(ModifyError::Transition(_))));
    a.init();
    assert!(matches!(a.qp.modify(QpState::Rts), Err(ModifyError::Transition(_))));
    a.rtr(&b);
    let again = a.qp.connect_to(&b.as_peer_of(&a.gid));
    assert!(matches!(again, Err(ModifyError::Transition(_))));
    // The connection manager's queue pairs are not found this way.
    let cq = host.device.create_cq(8, None).unwrap();
    let plain = host.pd.create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
    let refused = plain.connect_to(&b.as_peer_of(&a.gid));
    assert!(matches!(refused, Err(ModifyError::System(_))));
}

#[test]
fn attributes_are_told_as_they_were_set() {
    let host = TestHost::new();
    let (a, b) = (host.end(), host.end());
    let limits = a.qp.capabilities();
    assert_eq!((limits.max_send_wr, limits.max_recv_wr), (64, 64));
    assert_eq!(a.qp.retry(), Retry::default());
    let retry = Retry::new(Duration::from_secs(1), 4);
    a.init();
    let peer = b.as_peer_of(&a.gid).ird(3).ord(5);
    a.qp.connect_to(&peer).unwrap();
    a.qp.set_retry(retry);
    assert_eq!((a.qp.peer(), a.qp.retry()), (Some(peer), retry));
    a.rts();
    b.init();
    b.qp.connect_to(&a.as_peer_of(&b.gid).ird(4).ord(9)).unwrap();
    b.rts();
    exchange(&a, &b);
    // Outbound, inbound: no more than the other end serves.
    assert_eq!(a.qp.read_depths(), (4, 3));
    assert_eq!(b.qp.read_depths(), (3, 4));
}

#[test]
fn the_first_state_is_that_of_the_kind_of_device() {
    for (personality, state) in
        [(Personality::Iwarp, QpState::Init), (Personality::Roce, QpState::Reset)]
    {
        let host = TestHost::with(Options::new().personality(personality), LOOPBACK);
        let (a, b) = (host.end(), host.end());
        assert_eq!(a.qp.state(), state);
        let name = host.device.name();
        assert_eq!(name, if state == QpState::Init { "iwarp0" } else { "roce0" });
        a.all_the_way(&b);
        b.all_the_way(&a);
        exchange(&a, &b);
    }
}

#[test]
fn a_port_does_not_listen_before_the_program_says_so() {
    // A child that another test starts has all sockets until it executes its program.
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let host = TestHost::new();
    let (a, b) = (host.end(), host.end());
    assert_eq!(port(&a), port(&b), "256 of them share a port");
    assert!(!listens(port(&a)));
    // But the port is taken.
    TcpListener::bind(port(&a)).unwrap_err();
    for _ in 0..2 {
        for end in [&a, &b] {
            end.init();
            assert!(!listens(port(&a)), "it expects nobody");
        }
        // Neither peer is there.
        let absent = |own: &Side| Peer::new(&own.gid, own.gid.addr, 0x0004_0102, 0);
        a.qp.connect_to(&absent(&a)).unwrap();
        assert!(listens(port(&a)));
        b.qp.connect_to(&absent(&b)).unwrap();
        a.qp.modify(QpState::Reset).unwrap();
        assert!(listens(port(&a)), "for the other one");
        b.qp.modify(QpState::Err).unwrap();
        until_nothing_listens(port(&a));
        TcpListener::bind(port(&a)).unwrap_err();
        b.qp.modify(QpState::Reset).unwrap();
    }
    a.init();
    a.rtr(&b);
    let addr = port(&a);
    assert!(listens(addr));
    drop(a);
    until_nothing_listens(addr);
}

/// Only at the address that the program uses, and no other program gets the port at another one.
#[test]
fn a_port_listens_only_where_a_peer_is_expected() {
    let host = TestHost::new();
    let (a, b) = (host.end(), host.end());
    a.all_the_way(&b);
    let number = port(&a).port();
    assert!(listens(port(&a)));
    let elsewhere = |addr: IpAddr| SocketAddr::new(addr, number);
    let others = host.device.gids().unwrap().into_iter().filter(|gid| gid.addr != a.gid.addr);
    let mut others: Vec<IpAddr> = others.map(|gid| gid.addr).collect();
    others.push("127.0.0.2".parse().unwrap());
    for addr in others {
        assert!(!listens(elsewhere(addr)), "{addr}");
        TcpListener::bind(elsewhere(addr)).unwrap_err();
    }
    b.all_the_way(&a);
    exchange(&a, &b);
}

#[test]
fn ports_come_from_the_range() {
    let free = TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port();
    let options = Options::new().ports(free..=free);
    let host = TestHost::with(options.clone(), LOOPBACK);
    let (a, b) = (host.end(), host.end());
    assert_eq!((port(&a).port(), port(&b).port()), (free, free));
    a.all_the_way(&b);
    b.all_the_way(&a);
    exchange(&a, &b);
    // No other device has it meanwhile, and another can have it at once afterwards.
    let second = TestHost::with(options.clone(), LOOPBACK);
    let cq = second.device.create_cq(8, None).unwrap();
    let attributes = QueuePairAttributes::new(&cq, &cq);
    second.pd.create_addressable_qp(&attributes).unwrap_err();
    drop((a, b));
    until("the connection to end", || (host.device.connections() == 0).then_some(()));
    drop(host);
    let third = until("the port", || second.pd.create_addressable_qp(&attributes).ok());
    assert_eq!((third.number() >> 8) as u16, free);
    third.modify(QpState::Init).unwrap();
}

#[test]
fn a_thousand() {
    let (one, other) = (TestHost::new(), TestHost::new());
    let cq = |host: &TestHost| host.device.create_cq(4096, None).unwrap();
    let (ours, theirs) = (cq(&one), cq(&other));
    let side = |host: &TestHost, cq: &CompletionQueue| host.end_on(cq.clone(), cq.clone());
    let pairs: Vec<_> = (0..500).map(|_| (side(&one, &ours), side(&other, &theirs))).collect();
    for (a, b) in &pairs {
        a.all_the_way(b);
        b.init();
    }
    for (a, b) in &pairs {
        b.rtr(a);
        b.rts();
        a.post_recv(1);
        b.send(2, b"one of many");
    }
    for (side, cq) in [(1, &ours), (2, &theirs)] {
        for _ in &pairs {
            let completion = common::succeeded(next(cq));
            assert_eq!(completion.wr_id, side);
        }
    }
    assert_eq!(one.device.connections(), 500);
}

#[test]
fn connections_leave_no_descriptors_behind() {
    // Others open and close things at the same time.
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let host = TestHost::new();
    let cq = host.device.create_cq(8, None).unwrap();
    // A port stays, what wakes this thread, made when it first sleeps, the name by which other
    // processes of this host agree on shared memory, and the memory of buffers. Descriptors that a
    // connection leaves are closed a moment after it has ended.
    let kept = descriptors() + 4;
    let settled = || until("descriptors to be closed", || (descriptors() <= kept).then_some(()));
    let (a, b) = (host.end(), host.end());
    a.all_the_way(&b);
    b.all_the_way(&a);
    exchange(&a, &b);
    drop((a, b));
    settled();
    // A port that has no queue pair in use goes, but for the last one.
    let many: Vec<_> = (0..2000).map(|_| host.end_on(cq.clone(), cq.clone())).collect();
    assert!(descriptors() > kept + 3);
    drop(many);
    settled();
    for round in 0..20 {
        let (a, b, own) = (host.end(), host.end(), host.end());
        own.all_the_way(&own);
        exchange(&own, &own);
        match round % 4 {
            // Never met.
            0 => a.all_the_way(&b),
            // Kept at the other end.
            1 => {
                b.init();
                a.all_the_way(&b);
            }
            2 => {
                a.all_the_way(&b);
                b.all_the_way(&a);
                exchange(&a, &b);
                a.qp.modify(QpState::Reset).unwrap();
            }
            _ => {
                a.all_the_way(&b);
                b.all_the_way(&a);
                exchange(&a, &b);
            }
        }
        drop((a, b, own));
        until("all connections to end", || (host.device.connections() == 0).then_some(()));
        settled();
    }
    let before = descriptors();
    let plain: Vec<_> =
        (0..300).map(|_| host.pd.create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap()).collect();
    assert!(descriptors() <= before, "a queue pair of the connection manager takes no port");
    assert!(plain.iter().all(|qp| qp.number() >> 8 < 1024));
}

#[test]
fn several_threads_may_serve() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let options = Options::new().workers(3);
    let host = TestHost::with(options, LOOPBACK);
    until("three threads", || (workers() == 3).then_some(()));
    for _ in 0..8 {
        let (a, b) = (host.end(), host.end());
        a.all_the_way(&b);
        b.all_the_way(&a);
        exchange(&a, &b);
        // No queue is polled: only the threads can have this done.
        b.post_recv(1);
        a.send(2, b"served");
        until("the receive to be served", || (b.qp.outstanding().1 == 0).then_some(()));
    }
    drop(host);
    until("the threads to end", || (workers() == 0).then_some(()));
}

#[test]
fn a_peer_that_never_comes_is_named() {
    // The whole process has to listen.
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let reports = Reports::listen();
    let model = Model::default();
    let (host, other) = (model.host(), model.host());
    let (a, b) = (host.end(), other.end());
    a.all_the_way(&b);
    a.qp.set_retry(Retry::new(Duration::from_millis(800), 4));
    a.send(1, b"anybody?");
    let patience = Duration::from_secs(4);
    model.clock.advance(patience);
    assert!(a.send_cq.poll_one().is_none());
    model.clock.advance(PAUSE);
    assert_eq!(a.status(), WcStatus::RetryExceeded);
    let reports = reports.lines();
    let [line] = &reports[..] else { panic!("{reports:?}") };
    let port = port(&b);
    for part in [format!("{:#08x}", b.qp.number()), port.to_string(), "refused".to_owned()] {
        assert!(line.contains(&part), "{part} in {line}");
    }
    assert!(!line.contains('\n'));
}

/// Programs that have a mistake here would not work over InfiniBand either.
#[test]
fn psns_that_differ_are_named() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let reports = Reports::listen();
    for wrong in [[1, 1], [1, 0], [0, 1]] {
        let model = Model::default();
        let (host, other) = (model.host(), model.host());
        let (a, b) = (host.end(), other.end());
        for ((end, peer), wrong) in [(&a, &b), (&b, &a)].into_iter().zip(wrong) {
            end.init();
            let mut peer = peer.as_peer_of(&end.gid);
            peer.psn ^= wrong;
            end.qp.connect_to(&peer).unwrap();
        }
        a.rts();
        b.rts();
        // Without work that waits they try for ever.
        until("each end to be told", || {
            model.clock.advance(Duration::from_millis(1));
            (reports.lines().len() == 2).then_some(())
        });
        a.send(1, b"who is there?");
        model.clock.advance(LEAST + PAUSE);
        assert_eq!(a.status(), WcStatus::RetryExceeded);
        b.qp.modify(QpState::Reset).unwrap();
        let reports = std::mem::take(&mut *reports.lines());
        // One for each end, and that work has failed.
        assert_eq!(reports.len(), 3, "{reports:?}");
        assert!(reports.iter().all(|line| line.contains("rq_psn of each must be sq_psn")));
        let number = format!("{:#08x}", b.qp.number());
        assert!(reports.iter().all(|line| line.contains(&number)), "{number} in {reports:?}");
    }
}

/// `max_rd_atomic` of 0, whichever way it was said: on either wire, before and after the ends have
/// met.
#[test]
fn a_queue_pair_that_allows_no_reads_posts_none() {
    for personality in [Personality::Iwarp, Personality::Roce] {
        let host = TestHost::with(Options::new().personality(personality), LOOPBACK);
        for by_setter in [true, false] {
            let (a, b) = (host.end(), host.end());
            for (end, peer) in [(&a, &b), (&b, &a)] {
                end.init();
                let ord = if by_setter { 4 } else { 0 };
                end.qp.connect_to(&peer.as_peer_of(&end.gid).ord(ord)).unwrap();
                if by_setter {
                    end.qp.set_reads(false);
                }
                end.rts();
            }
            let sge = [a.sge(8)];
            let read = SendRequest::read(1, &sge, Stag(7), TaggedOffset(0));
            let add = SendRequest::atomic(
                1,
                &sge,
                Stag(7),
                TaggedOffset(0),
                AtomicOp::FetchAdd { add: 1, mask: 0 },
            );
            if by_setter {
                assert_eq!(a.qp.post_send(&read), Err(PostError::Invalid));
            }
            exchange(&a, &b);
            for request in [&read, &add] {
                assert_eq!(a.qp.post_send(request), Err(PostError::Invalid), "{personality:?}");
            }
            exchange(&b, &a);
            a.qp.modify(QpState::Err).unwrap();
            a.qp.post_send(&read).unwrap();
            assert_eq!(a.status(), WcStatus::Flushed);
        }
    }
}

/// One of the two numbers is not what the other end was told: neither end may send or receive,
/// whichever of them comes first.
#[test]
fn one_psn_that_differs_is_enough() {
    for lower_is_wrong in [true, false] {
        for order in mixtures() {
            let model = Model::default();
            let host = model.host();
            let (lower, upper) = host.ordered();
            let ends = [(&lower, &upper, lower_is_wrong), (&upper, &lower, !lower_is_wrong)];
            let mut done = [0; 2];
            for which in order.iter().map(|first| usize::from(!first)) {
                let (end, peer, wrong) = ends[which];
                match done[which] {
                    0 => end.init(),
                    1 => {
                        let mut peer = peer.as_peer_of(&end.gid);
                        peer.psn ^= u32::from(wrong);
                        end.qp.connect_to(&peer).unwrap();
                    }
                    _ => end.rts(),
                }
                done[which] += 1;
            }
            for (end, ..) in ends {
                end.post_recv(1);
                end.send(2, b"who is there?");
            }
            until("both to give up", || {
                assert!(ends.iter().all(|(end, ..)| !end.qp.is_connected()));
                model.clock.advance(PAUSE / 50);
                ends.iter().all(|(end, ..)| end.qp.state() == QpState::Err).then_some(())
            });
            for (end, ..) in ends {
                assert_eq!(end.status(), WcStatus::RetryExceeded);
                assert_eq!(next(&end.recv_cq).status, WcStatus::Flushed);
            }
        }
    }
}

/// An end that only receives stays in RTR, and one of the two numbers is known to both: they meet.
/// When it goes on to RTS, the other number counts as well.
#[test]
fn an_end_in_rtr_finds_out_later() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let reports = Reports::listen();
    for (lower_receives, wrong) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let host = TestHost::new();
        let (lower, upper) = host.ordered();
        let (receiver, sender) = if lower_receives { (lower, upper) } else { (upper, lower) };
        receiver.init();
        receiver.post_recv(1);
        receiver.rtr(&sender);
        sender.init();
        let mut peer = receiver.as_peer_of(&sender.gid);
        peer.psn ^= wrong;
        sender.qp.connect_to(&peer).unwrap();
        sender.rts();
        sender.send(2, b"hello");
        assert_eq!(receiver.received(), b"hello");
        sender.sent();
        assert!(reports.lines().is_empty());
        receiver.post_recv(3);
        receiver.qp.modify(QpState::Rts).unwrap();
        if wrong == 0 {
            exchange(&sender, &receiver);
            continue;
        }
        assert_eq!(next(&receiver.recv_cq).status, WcStatus::Flushed);
        assert_eq!(receiver.qp.state(), QpState::Err);
        until("the other end to see it", || (sender.qp.state() == QpState::Err).then_some(()));
        sender.send(4, b"still there?");
        assert_eq!(sender.status(), WcStatus::Flushed);
        let lines = std::mem::take(&mut *reports.lines());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("rq_psn of each must be sq_psn"), "{lines:?}");
    }
}

#[test]
fn a_queue_pair_that_is_its_own_peer_has_one_psn() {
    let host = TestHost::new();
    let end = host.end();
    end.init();
    let mut peer = end.as_peer_of(&end.gid);
    peer.psn ^= 1;
    end.qp.connect_to(&peer).unwrap();
    end.post_recv(1);
    end.qp.modify(QpState::Rts).unwrap();
    assert_eq!(next(&end.recv_cq).status, WcStatus::Flushed);
}

/// The words that a process tells the other: address and numbers.
fn tell(side: &Side) -> String {
    format!("{} {} {}", side.gid.addr, side.qp.number(), side.qp.psn())
}

fn told(own: &Side, line: &str) -> Peer {
    let words: Vec<_> = line.split(' ').collect();
    let [addr, number, psn] = words[..] else { panic!("{line}") };
    Peer::new(&own.gid, addr.parse().unwrap(), number.parse().unwrap(), psn.parse().unwrap())
}

#[test]
fn two_processes() {
    if let Some(role) = role() {
        let host = TestHost::new();
        let side = host.end();
        if role != "before init" {
            side.init();
        }
        say("here", tell(&side));
        let peer = told(&side, &setting("PEER"));
        match role.as_str() {
            "all" => {
                side.post_recv(1);
                side.qp.connect_to(&peer).unwrap();
                side.rts();
                side.send(2, b"from the child");
                assert_eq!(side.received(), b"from the parent");
                side.sent();
            }
            "until rtr" => {
                side.qp.connect_to(&peer).unwrap();
                until("the connection", || side.qp.is_connected().then_some(()));
            }
            _ => {}
        }
        say("done", "");
        listen_to_parent();
        return;
    }
    let test = this_test!();
    // Beside each other: how long it takes to give up is not for the caller to say.
    thread::scope(|scope| {
        for role in ["all", "until rtr", "until init", "before init"] {
            scope.spawn(move || meets_another_process(test, role));
        }
    });
}

/// The parent's part in [`two_processes`].
fn meets_another_process(test: &str, role: &str) {
    let host = TestHost::new();
    let side = host.end();
    side.init();
    side.post_recv(1);
    let settings = [("PEER", tell(&side))];
    let mut child = Child::start(test, role, &settings);
    let peer = told(&side, &child.hear("here", DEADLINE));
    side.qp.connect_to(&peer).unwrap();
    side.rts();
    if role == "all" {
        assert_eq!(side.received(), b"from the child");
        side.send(3, b"from the parent");
        side.sent();
        child.hear("done", DEADLINE);
        child.tell("go");
        child.succeeds(DEADLINE);
        return;
    }
    child.hear("done", DEADLINE);
    if role == "until rtr" {
        until("the connection", || side.qp.is_connected().then_some(()));
    }
    child.kill();
    child.wait(DEADLINE);
    let gone = Instant::now();
    if role == "until rtr" {
        // The end of the connection is seen.
        assert_eq!(next(&side.recv_cq).status, WcStatus::Flushed);
        assert!(gone.elapsed() < Duration::from_secs(3), "{:?}", gone.elapsed());
        assert_eq!(side.qp.state(), QpState::Err);
    } else {
        side.send(3, b"too late");
        assert_eq!(side.status(), WcStatus::RetryExceeded);
        assert_eq!(next(&side.recv_cq).status, WcStatus::Flushed);
    }
}

#[test]
fn a_gid_is_found_by_its_address() {
    let host = TestHost::new();
    let gids = host.device.gids().unwrap();
    let first = &gids[0];
    assert_eq!(first.index, 0);
    assert_eq!(gid(&host.device, first.addr).as_ref(), Some(first));
    assert_eq!(host.device.sibling().unwrap().gids().unwrap(), gids);
    assert_ne!(host.device.node_guid(), 0);
}
