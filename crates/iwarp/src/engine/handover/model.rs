//! The hand-over beside a model of the worker's one-shot epoll and its timers, in all interleavings.

use loom::sync::Arc;
use loom::thread;

use super::{Cause, Duty, Handover};
use crate::engine::sync::Mutex;

/// What the kernel and the worker's timers hold.
#[derive(Default)]
struct Outside {
    armed: bool,
    /// The worker's epoll has reported the group, which disarmed it.
    fired: bool,
    timer: bool,
    /// Octets wait in a socket of the group.
    pending: bool,
    /// Turns of the worker, to show that it does not spin.
    turns: u32,
}

struct World {
    handover: Handover,
    outside: Mutex<Outside>,
}

impl World {
    fn new() -> Arc<Self> {
        let outside = Outside { armed: true, ..Outside::default() };
        Arc::new(Self { handover: Handover::new(), outside: Mutex::new(outside) })
    }

    fn settle(outside: &mut Outside) {
        if outside.armed && outside.pending {
            outside.armed = false;
            outside.fired = true;
        }
    }

    fn arm(&self) {
        let mut outside = self.outside.lock();
        outside.armed = true;
        Self::settle(&mut outside);
    }

    fn octets_arrive(&self) {
        let mut outside = self.outside.lock();
        outside.pending = true;
        Self::settle(&mut outside);
    }

    fn drive(&self) {
        self.outside.lock().pending = false;
    }

    fn caller_blocks_and_leaves(&self) {
        self.handover.enter();
        let call = self.handover.call();
        self.drive();
        drop(call);
        if self.handover.leave(0) {
            self.arm();
        }
    }

    /// A caller polls, arms the queue and goes to sleep on a descriptor of its own.
    fn caller_polls_and_sleeps(&self) {
        let mut call = self.handover.poll();
        self.handover.lease(1);
        self.drive();
        call.found_nothing();
        drop(call);
        if self.handover.end_lease() {
            self.arm();
        }
    }

    /// One turn of the worker, if it has a reason. False when it would sleep for ever.
    fn worker(&self, now: u64) -> bool {
        let cause = {
            let mut outside = self.outside.lock();
            outside.turns += 1;
            if std::mem::take(&mut outside.fired) {
                Cause::Fired
            } else if std::mem::take(&mut outside.timer) {
                Cause::Time
            } else {
                return false;
            }
        };
        match self.handover.worker_turn(now, cause) {
            Duty::Serve => {
                self.drive();
                self.handover.served();
                self.arm();
            }
            Duty::Watch(_) => self.outside.lock().timer = true,
            Duty::Leave => {}
            Duty::Arm => self.arm(),
        }
        true
    }

    /// All callers have gone: the worker alone must find what is left, and then sleep.
    fn end(&self) {
        while self.worker(u64::MAX / 2) {}
        let outside = self.outside.lock();
        assert!(!outside.pending, "octets wait and no thread will look");
        assert!(outside.armed, "the group is not armed");
        assert!(outside.turns < 12, "the worker spins");
    }
}

/// Octets arrive while a caller does that, and the worker looks at these times.
fn beside_the_worker(call: fn(&World), looks: [u64; 2]) -> Arc<World> {
    let world = World::new();
    let caller = {
        let world = Arc::clone(&world);
        thread::spawn(move || call(&world))
    };
    let worker = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for now in looks {
                world.worker(now);
            }
        })
    };
    world.octets_arrive();
    caller.join().unwrap();
    worker.join().unwrap();
    world
}

/// Complete exploration takes hours; every known bug of this kind needs two preemptions.
fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

#[test]
fn no_wake_up_is_lost_when_a_caller_leaves() {
    explore(5, || {
        let world = beside_the_worker(World::caller_blocks_and_leaves, [1, 2]);
        world.end();
    });
}

#[test]
fn no_wake_up_is_lost_between_two_callers() {
    explore(2, || {
        let world = World::new();
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

/// A caller that sleeps elsewhere is not left to a timer.
#[test]
fn a_caller_that_sleeps_is_served_at_once() {
    explore(5, || {
        let world = beside_the_worker(World::caller_polls_and_sleeps, [2, 3]);
        world.octets_arrive();
        {
            let outside = world.outside.lock();
            assert!(outside.fired, "what arrives now waits for a timer");
        }
        world.end();
    });
}
