// SPDX-License-Identifier: MIT OR Apache-2.0

//! The worker's decisions, the hand-over and the ready list, beside a model of what carries them
//! out: the worker's one-shot epoll, its timers and a bell. In all interleavings.

use loom::sync::Arc;
use loom::thread;

use super::{Attended, Served, enter, leave, leave_to_worker, linger, look_after};
use crate::engine::handover::{Cause, Handover};
use crate::engine::policy::table::LEASE;
use crate::engine::ready_list::{Bell, ReadyList};
use crate::engine::sync::{AtomicBool, Mutex, Ordering, explore};

/// Turns of the worker of which more show that it spins. It looks 16 times where the word that says
/// what callers do has remained behind them, as it rarely may.
const SPINNING: u32 = 12 + 16;
/// The only stream.
const STREAM: u64 = 7;

/// The state that the kernel and the worker's timers hold.
#[derive(Default)]
struct Outside {
    armed: bool,
    /// The worker's epoll has reported the group, which disarmed it.
    fired: bool,
    /// The times at which the worker is to look again.
    timers: Vec<u64>,
    /// The group's own epoll reports the stream, which has a descriptor.
    readable: bool,
    /// It reports the bell.
    rings: bool,
    /// Turns of the worker, to show that it does not spin.
    turns: u32,
}

impl Outside {
    fn settle(&mut self) {
        if self.armed && (self.readable || self.rings) {
            self.armed = false;
            self.fired = true;
        }
    }
}

struct ModelBell(Arc<Mutex<Outside>>);

impl Bell for ModelBell {
    fn ring(&self) {
        let mut outside = self.0.lock();
        outside.rings = true;
        outside.settle();
    }

    fn silence(&self) {
        self.0.lock().rings = false;
    }
}

/// By what the stream says that bytes have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Described,
    Woken,
}

struct World {
    port: Port,
    handover: Handover,
    list: ReadyList<ModelBell>,
    outside: Arc<Mutex<Outside>>,
    /// Bytes wait in the stream without a descriptor.
    input: AtomicBool,
    /// The token of the group's driver.
    driver: Mutex<()>,
}

/// The world at a time.
struct At<'a>(&'a World, u64);

impl Attended for At<'_> {
    fn handover(&self) -> &Handover {
        &self.0.handover
    }

    fn nanos(&self) -> u64 {
        self.1
    }

    fn listen(&self) {
        self.0.listen();
    }

    fn report_once(&self) {
        let mut outside = self.0.outside.lock();
        outside.armed = true;
        outside.settle();
    }

    fn look_again(&self, at: u64) {
        self.0.outside.lock().timers.push(at);
    }

    fn serve(&self) -> Served {
        Served { moved: self.0.drive(false), left: false }
    }
}

impl World {
    fn new(port: Port) -> Arc<Self> {
        let outside = Outside { armed: true, ..Outside::default() };
        let outside = Arc::new(Mutex::new(outside));
        let list = ReadyList::new(ModelBell(Arc::clone(&outside)));
        let world = Self {
            port,
            handover: Handover::new(),
            list,
            outside,
            input: AtomicBool::new(false),
            driver: Mutex::new(()),
        };
        if port == Port::Woken {
            world.list.add(STREAM).unwrap();
            // No octets have come yet.
            world.drive(false);
            let mut outside = world.outside.lock();
            (outside.armed, outside.fired) = (true, false);
        }
        Arc::new(world)
    }

    /// A thread needs the group's epoll from now on.
    fn listen(&self) {
        if self.port == Port::Woken {
            self.list.listen();
        }
    }

    fn octets_arrive(&self) {
        match self.port {
            Port::Described => {
                let mut outside = self.outside.lock();
                outside.readable = true;
                outside.settle();
            }
            Port::Woken => {
                self.input.store(true, Ordering::Release);
                self.list.put(STREAM);
            }
        }
    }

    fn octets_wait(&self) -> bool {
        self.input.load(Ordering::Acquire) || self.outside.lock().readable
    }

    /// Moves what is ready, unless another thread drives.
    fn drive(&self, as_caller: bool) -> bool {
        let Some(_driver) = self.driver.try_lock() else { return false };
        if self.port == Port::Described {
            return std::mem::take(&mut self.outside.lock().readable);
        }
        let mut moved = false;
        for _ in 0..self.list.len() {
            let Some(stream) = self.list.take() else { break };
            if self.input.swap(false, Ordering::AcqRel) {
                moved = true;
                if self.input.load(Ordering::Acquire) {
                    self.list.put(stream);
                }
            }
        }
        if as_caller {
            self.list.hush(|| self.handover.is_watched());
        }
        moved
    }

    fn caller_blocks_and_leaves(&self) {
        enter(&At(self, 0));
        let call = self.handover.call();
        self.drive(true);
        drop(call);
        leave(&At(self, 0));
    }

    fn poll(&self) {
        let mut call = self.handover.poll();
        self.handover.lease(1);
        self.drive(true);
        call.found_nothing();
    }

    /// A caller polls, arms the queue and goes to sleep on a descriptor of its own.
    fn caller_polls_and_sleeps(&self) {
        self.poll();
        leave_to_worker(&At(self, 1));
    }

    /// A caller polls, arms the queue as it has often done in vain, and goes to sleep this time.
    fn caller_polls_and_lingers(&self) {
        self.poll();
        linger(&At(self, 1));
    }

    /// A caller polls for long, and the bell is hushed.
    fn caller_polls_for_long(&self) {
        self.handover.lease(2);
        self.drive(true);
    }

    /// A task moves what is there and sleeps until its runtime tells it of more. It never is told.
    fn task_sleeps(&self) {
        let call = self.handover.call();
        self.handover.lease(1);
        self.drive(true);
        drop(call);
        self.handover.wait_for_runtime();
    }

    /// One turn of the worker, at that time or when its timer comes, if it has a reason. False when
    /// it would sleep for ever.
    fn worker(&self, now: u64) -> bool {
        let (cause, at) = {
            let mut outside = self.outside.lock();
            outside.turns += 1;
            if std::mem::take(&mut outside.fired) {
                (Cause::Fired, 0)
            } else {
                let first = outside.timers.iter().min().copied();
                let Some(at) = first else { return false };
                outside.timers.retain(|timer| *timer != at);
                (Cause::Time, at)
            }
        };
        look_after(&At(self, now), cause, at);
        true
    }

    /// All callers have gone: the worker alone must find what is left, and then sleep.
    fn end(&self) {
        while self.worker(u64::MAX / 2) {}
        assert!(!self.octets_wait(), "octets wait and no thread will look");
        let outside = self.outside.lock();
        assert!(outside.armed, "the group is not armed");
        assert!(outside.turns < SPINNING, "the worker spins");
    }
}

/// Bytes arrive while a caller does that, and the worker looks at these times.
fn beside_the_worker(port: Port, call: fn(&World), looks: &'static [u64]) -> Arc<World> {
    let world = World::new(port);
    let caller = {
        let world = Arc::clone(&world);
        thread::spawn(move || call(&world))
    };
    let worker = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for now in looks {
                world.worker(*now);
            }
        })
    };
    world.octets_arrive();
    caller.join().unwrap();
    worker.join().unwrap();
    world
}

fn caller_leaves(port: Port) {
    beside_the_worker(port, World::caller_blocks_and_leaves, &[1, 2]).end();
}

#[test]
fn no_wake_up_is_lost_when_a_caller_leaves() {
    explore(4, || caller_leaves(Port::Described));
}

#[test]
fn nor_is_that_of_a_port_without_a_descriptor() {
    explore(4, || caller_leaves(Port::Woken));
}

#[test]
fn no_wake_up_is_lost_between_two_callers() {
    explore(3, || {
        let world = World::new(Port::Described);
        world.octets_arrive();
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.caller_blocks_and_leaves())
            })
            .collect();
        world.worker(1);
        world.octets_arrive();
        for caller in callers {
            caller.join().unwrap();
        }
        world.end();
    });
}

fn caller_sleeps(port: Port) {
    let world = beside_the_worker(port, World::caller_polls_and_sleeps, &[2, 3]);
    world.octets_arrive();
    assert!(world.outside.lock().fired, "what arrives now waits for a timer");
    world.end();
}

/// A caller that sleeps elsewhere is not left to a timer.
#[test]
fn a_caller_that_sleeps_is_served_at_once() {
    explore(4, || caller_sleeps(Port::Described));
}

#[test]
fn so_is_one_with_a_port_without_a_descriptor() {
    explore(3, || caller_sleeps(Port::Woken));
}

fn caller_lingers(port: Port) {
    let world = beside_the_worker(port, World::caller_polls_and_lingers, &[0, 2]);
    world.octets_arrive();
    world.end();
}

/// A caller that sleeps although it has polled on each time before.
#[test]
fn a_caller_that_lingers_is_served() {
    explore(3, || caller_lingers(Port::Described));
    explore(3, || caller_lingers(Port::Woken));
}

#[test]
fn so_is_one_that_lingers_beside_one_that_polls() {
    explore(2, || beside_one_that_polls(World::caller_polls_and_lingers));
}

fn caller_computes(port: Port) {
    let world = beside_the_worker(port, World::poll, &[0, 2]);
    world.octets_arrive();
    world.end();
}

/// A caller polls once, and calls no more.
#[test]
fn octets_that_come_after_the_last_poll_are_served() {
    explore(4, || caller_computes(Port::Described));
    explore(3, || caller_computes(Port::Woken));
}

/// The thread of a task has gone to do something else.
#[test]
fn octets_that_a_task_leaves_are_served() {
    explore(4, || {
        let world = beside_the_worker(Port::Described, World::task_sleeps, &[2, LEASE + 2]);
        world.octets_arrive();
        world.end();
    });
}

/// A caller polls, and the bell is hushed; another one goes to sleep on the group's epoll, until
/// `wake`.
fn sleeper_is_woken(sleep: fn(&World), wake: fn(&World)) {
    let world = World::new(Port::Woken);
    // The worker only watches.
    world.poll();
    world.octets_arrive();
    world.worker(0);
    let poller = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.poll())
    };
    let sleeper = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            sleep(&world);
            world.drive(true);
        })
    };
    world.octets_arrive();
    poller.join().unwrap();
    sleeper.join().unwrap();
    let rings = world.outside.lock().rings;
    assert!(rings || !world.octets_wait(), "octets wait, and the caller sleeps");
    wake(&world);
    world.end();
}

#[test]
fn a_caller_that_blocks_is_woken_by_a_port_without_a_descriptor() {
    explore(4, || sleeper_is_woken(|world| enter(&At(world, 0)), |world| leave(&At(world, 0))));
}

#[test]
fn a_caller_that_naps_is_woken_by_a_port_without_a_descriptor() {
    explore(4, || {
        sleeper_is_woken(|world| world.list.will_sleep(), |world| world.list.has_slept())
    });
}

/// A caller that does that beside one that polls for long, and the worker, is served.
fn beside_one_that_polls(call: fn(&World)) {
    let world = World::new(Port::Woken);
    world.handover.lease(0);
    world.octets_arrive();
    assert!(world.worker(1));
    world.drive(false);
    let others: Vec<_> = [call, World::caller_polls_for_long]
        .into_iter()
        .map(|call| {
            let world = Arc::clone(&world);
            thread::spawn(move || call(&world))
        })
        .collect();
    world.octets_arrive();
    world.worker(LEASE);
    for other in others {
        other.join().unwrap();
    }
    world.octets_arrive();
    world.end();
}

#[test]
fn no_bell_is_hushed_under_a_caller_that_blocks() {
    explore(2, || beside_one_that_polls(World::caller_blocks_and_leaves));
}

#[test]
fn no_bell_is_hushed_under_a_caller_that_sleeps_elsewhere() {
    explore(2, || beside_one_that_polls(World::caller_polls_and_sleeps));
}
