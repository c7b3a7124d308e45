// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that get no CPU for longer than an answer takes: deadlines of RC over RoCE v2 count from
//! when packets leave, and what has come counts before a deadline that is over.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iwarp::WcStatus;
use iwarp::port::{
    BurstCursor, DatagramCounters, DatagramNetwork, DatagramPort, DatagramSettings, Descriptors,
    Findings, Intake, ManualClock, Packets, Readiness, Sent, Waker,
};
use iwarp_roce::wire::Numbering;
use iwarp_types::Trains;

use crate::common::scene::Scene;
use crate::common::until;
use crate::rc::{HOSTS, Hosts, RoceEnd, end, join, options};

/// Two ends in the time of a scene, of which one has a port that holds it up.
fn held_up(scene: &Arc<Scene>) -> (Slow, [RoceEnd; 2]) {
    let hosts = Hosts::in_scene(1, scene);
    let slow = Slow::around(hosts.datagrams.host(HOSTS[0]), &scene.clock);
    let device = hosts.device_on(HOSTS[0], options(), Some(Arc::new(slow.clone())));
    let other = hosts.device(HOSTS[1], options());
    (slow, [end(&device, HOSTS[0]), end(&other, HOSTS[1])])
}

/// A thread that got no CPU finds an answer and its deadline: the answer counts.
///
/// Covers: ROCE-061
#[test]
fn an_answer_that_waits_to_be_read_is_not_overdue() {
    let scene = Scene::new();
    let _playing = scene.play();
    let (_, ends) = held_up(&scene);
    join(&ends, |way| way.timeout(10).retry_count(0));
    let [one, other] = &ends;
    (1..=2).for_each(|id| other.post_recv(id, &[]));
    one.send(1, &[]);
    assert_eq!(until("it has come", || other.recv_cq.poll_one()).status, WcStatus::Success);
    scene.clock.advance(OVERDUE);
    one.send(2, &[]);
    assert_eq!([one.sent(), one.sent()].map(|sent| sent.wr_id), [1, 2]);
}

/// Likewise an RNR NAK: the message is sent again when its time is over, and not when an answer
/// would be overdue.
///
/// Covers: ROCE-058
#[test]
fn an_rnr_nak_that_waits_to_be_read_has_its_time() {
    const TIMER: u8 = 22;
    const WAITS: Duration = Duration::from_micros(20_480);
    let scene = Scene::new();
    let _playing = scene.play();
    let (_, ends) = held_up(&scene);
    join(&ends, |way| way.timeout(10).retry_count(7).min_rnr_timer(TIMER));
    let [one, other] = &ends;
    one.send(1, &[]);
    // It has come, and is refused.
    assert_eq!(other.recv_cq.poll_one(), None);
    let refused = scene.clock.now();
    scene.clock.advance(OVERDUE);
    (1..=2).for_each(|id| other.post_recv(id, &[]));
    one.send(2, &[]);
    assert_eq!(other.recv_cq.poll_one(), None, "it is sent again before its time");
    assert_eq!(until("it has come", || other.recv_cq.poll_one()).status, WcStatus::Success);
    let waited = scene.clock.now() - refused;
    assert!(waited >= WAITS, "{waited:?}");
}

/// The time for an answer begins when the packet leaves, not when it was built.
///
/// Covers: ROCE-061
#[test]
fn a_packet_that_left_late_has_its_time() {
    let scene = Scene::new();
    let _playing = scene.play();
    let (slow, ends) = held_up(&scene);
    join(&ends, |way| way.timeout(10).retry_count(0));
    let [one, other] = &ends;
    other.post_recv(1, &[]);
    slow.hold_up(OVERDUE);
    one.send(1, &[]);
    slow.hold_up(Duration::ZERO);
    scene.turn();
    assert_eq!(one.sent().wr_id, 1);
}

/// More than an answer may take.
const OVERDUE: Duration = Duration::from_millis(5);

/// A network whose ports hold up a thread that sends: it has lost its CPU.
#[derive(Clone, Debug)]
struct Slow {
    inner: Arc<dyn DatagramNetwork>,
    thread: HeldUp,
}

#[derive(Clone)]
struct HeldUp {
    clock: ManualClock,
    micros: Arc<AtomicU64>,
}

impl std::fmt::Debug for HeldUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.micros.fmt(f)
    }
}

#[derive(Debug)]
struct SlowPort {
    inner: Box<dyn DatagramPort>,
    thread: HeldUp,
}

impl Slow {
    fn around(inner: Arc<dyn DatagramNetwork>, clock: &ManualClock) -> Self {
        Self { inner, thread: HeldUp { clock: clock.clone(), micros: Arc::default() } }
    }

    fn hold_up(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.thread.micros.store(micros, Ordering::Relaxed);
    }
}

impl DatagramNetwork for Slow {
    fn open(
        &self,
        addr: SocketAddr,
        settings: &DatagramSettings,
    ) -> io::Result<Box<dyn DatagramPort>> {
        let inner = self.inner.open(addr, settings)?;
        Ok(Box::new(SlowPort { inner, thread: self.thread.clone() }))
    }

    fn open_group(&self, group: SocketAddr, at: IpAddr) -> io::Result<Box<dyn DatagramPort>> {
        self.inner.open_group(group, at)
    }
}

impl DatagramPort for SlowPort {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn numbering(&self) -> Numbering {
        self.inner.numbering()
    }

    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        let HeldUp { clock, micros } = &self.thread;
        clock.advance(Duration::from_micros(micros.load(Ordering::Relaxed)));
        self.inner.send_until(burst, cursor, end)
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        self.inner.receive_all(take)
    }

    fn join(&self, group: IpAddr) -> io::Result<()> {
        self.inner.join(group)
    }

    fn leave(&self, group: IpAddr) {
        self.inner.leave(group);
    }

    fn has_input(&self) -> io::Result<bool> {
        self.inner.has_input()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inner.descriptors()
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> DatagramCounters {
        self.inner.counters()
    }

    fn overruns(&self) -> u64 {
        self.inner.overruns()
    }

    fn self_test(&self) -> io::Result<Findings> {
        self.inner.self_test()
    }
}
