// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections leave nothing behind, and idle ones cost nothing.

use std::fs;
use std::time::{Duration, Instant};

use iwarp::cm::{Connection, Listener};
use iwarp::{
    CompletionChannel, CompletionQueue, Device, Look, Options, Payload, ProtectionDomain,
    QueuePair, QueuePairAttributes, RecvRequest, SendRequest, WcStatus,
};
use iwarp_os::cancel::wait_cancellable;

use crate::common::census::{descriptors, workers};
use crate::common::process::{goes_on, passed_apart, this_test};
use crate::common::scene::{Actor, Scene};
use crate::common::{DEADLINE, couple, next, until};

const CONNECTIONS: usize = 1000;

struct Fixture {
    client: Device,
    server: Device,
    listener: Listener,
    client_pd: ProtectionDomain,
    server_pd: ProtectionDomain,
    ours: CompletionQueue,
    theirs: CompletionQueue,
}

struct Pair {
    ours: QueuePair,
    theirs: QueuePair,
    connections: (Connection, Connection),
}

impl Fixture {
    fn new() -> Self {
        let client = Device::with_options(Options::default()).unwrap();
        let server = Device::with_options(Options::default()).unwrap();
        let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
        Self {
            client_pd: client.alloc_pd(),
            server_pd: server.alloc_pd(),
            ours: client.create_cq(4 * CONNECTIONS, None).unwrap(),
            theirs: server.create_cq(4 * CONNECTIONS, None).unwrap(),
            client,
            server,
            listener,
        }
    }

    fn pair(&self) -> Pair {
        let attributes = |cq| QueuePairAttributes::new(cq, cq).max_send_wr(4).max_recv_wr(4);
        let ours = self.client_pd.create_qp(&attributes(&self.ours)).unwrap();
        let theirs = self.server_pd.create_qp(&attributes(&self.theirs)).unwrap();
        let connections = couple(&self.client, &ours, &self.listener, &theirs);
        Pair { ours, theirs, connections }
    }

    /// One message through it.
    fn use_pair(&self, pair: &Pair) {
        pair.theirs.post_recv(&RecvRequest::new(1, &[])).unwrap();
        let request = SendRequest::send(2, Payload::Inline(b"")).signaled();
        pair.ours.post_send(&request).unwrap();
        assert_eq!(next(&self.theirs).status, WcStatus::Success);
        assert_eq!(next(&self.ours).status, WcStatus::Success);
    }

    fn wait_until_empty(&self) {
        until("all connections to end", || {
            (self.client.connections() + self.server.connections() == 0).then_some(())
        });
    }
}

/// Bytes of memory in use.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// The ways in which a pair is taken down: by either end, in good order or by dropping handles.
fn take_down(pair: Pair, number: usize) {
    let Pair { ours, theirs, connections: (near, far) } = pair;
    match number % 5 {
        0 => {
            near.disconnect();
            far.wait_disconnected(Some(DEADLINE));
        }
        1 => drop((far, near)),
        2 => drop((theirs, ours)),
        3 => {
            drop(ours);
            assert!(far.wait_disconnected(Some(DEADLINE)).is_some());
        }
        _ => ours.modify(iwarp::QpState::Reset).unwrap(),
    }
}

fn rounds(rounds: usize) {
    let fixture = Fixture::new();
    // Things that are made once and kept.
    let round = || {
        let step = |number: usize| {
            if number.is_multiple_of(100) {
                goes_on();
            }
        };
        let pair = |number| {
            step(number);
            fixture.pair()
        };
        let pairs: Vec<Pair> = (0..CONNECTIONS).map(pair).collect();
        for (number, pair) in pairs.iter().enumerate() {
            step(number);
            fixture.use_pair(pair);
        }
        for (number, pair) in pairs.into_iter().enumerate() {
            step(number);
            take_down(pair, number);
        }
        goes_on();
        while fixture.ours.poll_one().is_some() || fixture.theirs.poll_one().is_some() {}
        fixture.wait_until_empty();
    };
    let few = || {
        (0..20).for_each(|number| take_down(fixture.pair(), number));
        fixture.wait_until_empty();
    };
    few();
    // A thread gets its name when it runs first.
    until("the threads of both devices", || (workers() == 2).then_some(()));
    let fds = descriptors();
    let mut after_first = 0;
    for number in 0..rounds {
        let started = Instant::now();
        round();
        // Sockets are closed by the thread that uses them last, which may be a moment later.
        until("descriptors to be closed", || (descriptors() <= fds).then_some(()));
        assert_eq!(workers(), 2);
        let (took, now) = (started.elapsed(), resident());
        println!("round {number}: {CONNECTIONS} in {took:.1?}, {} KiB resident", now / 1024);
        if number == 0 {
            after_first = now;
        }
        let grown = now.saturating_sub(after_first);
        assert!(grown < 8 << 20, "{} KiB more than after the first round", grown / 1024);
    }
    // A device takes its thread and descriptors with it.
    drop(fixture);
    until("the devices to end", || (workers() == 0).then_some(()));
    until("their descriptors to be closed", || (descriptors() < fds).then_some(()));
}

#[test]
fn closed_connections_leave_nothing_behind() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    rounds(1);
}

#[test]
#[ignore = "10 rounds"]
fn closed_connections_leave_nothing_behind_full() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    rounds(10);
}

/// Devices that come and go.
#[test]
fn closed_devices_leave_nothing_behind() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let (fds, tasks) = (descriptors(), workers());
    for number in 0..50 {
        goes_on();
        let fixture = Fixture::new();
        let pair = fixture.pair();
        fixture.use_pair(&pair);
        // In either order, and with requests that were not taken.
        if number % 2 == 0 {
            drop(fixture);
            drop(pair);
        } else {
            drop(pair);
            drop(fixture);
        }
    }
    until("descriptors to be closed", || (descriptors() <= fds).then_some(()));
    until("threads to end", || (workers() <= tasks).then_some(()));
}

/// A request to connect that is not answered, and one whose program has gone.
#[test]
fn requests_that_nobody_takes_leave_nothing_behind() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let (fds, tasks) = (descriptors(), workers());
    for _ in 0..20 {
        goes_on();
        let fixture = Fixture::new();
        let addr = fixture.listener.local_addr().unwrap();
        let qp = fixture
            .client_pd
            .create_qp(&QueuePairAttributes::new(&fixture.ours, &fixture.ours))
            .unwrap();
        let params = iwarp::cm::ConnectParams::default();
        let short = Duration::from_millis(1);
        let outcome = iwarp::cm::connect(&fixture.client, addr, &qp, &params, short);
        assert!(outcome.is_err());
        drop(fixture);
        drop(qp);
    }
    until("descriptors to be closed", || (descriptors() <= fds).then_some(()));
    until("threads to end", || (workers() <= tasks).then_some(()));
}

/// Workers that nothing wakes take no turns.
#[test]
fn idle_connections_use_no_cpu() {
    let scene = Scene::new();
    let pairs: Vec<_> = (0..20).map(|_| scene.connect(&Options::default())).collect();
    let use_pair = |[client, server]: &[Actor; 2]| {
        server.post_recv(1, &[]);
        client.send(1, &[]);
        client.sent(&scene);
        server.received(&scene);
    };
    pairs.iter().for_each(use_pair);
    // A caller that polled lately is left alone for a while; then nothing happens any more.
    scene.pass(Duration::from_secs(1));
    let turns = scene.pass(Duration::from_secs(60));
    assert!(turns <= 40, "{turns} turns in a minute");
    // They still work.
    pairs.iter().for_each(use_pair);
}

/// A caller thread that is blocked on connections spins neither itself nor by way of the worker.
#[test]
fn a_blocked_caller_uses_no_cpu() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    server.post_recv(1, &[]);
    client.send(1, &[]);
    client.sent(&scene);
    server.received(&scene);
    let Look::Nothing(fd) = server.recv_channel.look().unwrap() else { panic!("an event") };
    scene.pass(Duration::from_secs(1));
    let turns = scene.pass(Duration::from_secs(60));
    assert!(turns <= 4, "{turns} turns in a minute");
    assert!(
        !wait_cancellable(fd, Some(Duration::ZERO)).unwrap(),
        "something is ready all the time"
    );
    CompletionChannel::stop_looking();
}
