// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of the worker for a poll set, look by look.

use std::cell::{Cell, RefCell};

use super::{Attended, Served, linger, look_after};
use crate::engine::handover::{Cause, Handover};
use crate::engine::policy::table::LEASE;

/// A poll set that notes what is done.
struct Set {
    handover: Handover,
    now: Cell<u64>,
    looks: RefCell<Vec<u64>>,
    serves: Cell<u32>,
    arms: Cell<u32>,
}

impl Set {
    fn new() -> Self {
        Self {
            handover: Handover::new(),
            now: Cell::new(0),
            looks: RefCell::default(),
            serves: Cell::new(0),
            arms: Cell::new(0),
        }
    }
}

impl Attended for Set {
    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn nanos(&self) -> u64 {
        self.now.get()
    }

    fn listen(&self) {}

    fn report_once(&self) {
        self.arms.set(self.arms.get() + 1);
    }

    fn look_again(&self, at: u64) {
        self.looks.borrow_mut().push(at);
    }

    fn serve(&self) -> Served {
        self.serves.set(self.serves.get() + 1);
        Served::default()
    }
}

/// The clock of callers is cheap, and may be behind that of the timers.
#[test]
fn a_look_is_not_too_early_by_another_clock() {
    let set = Set::new();
    set.handover.lease(0);
    look_after(&set, Cause::Fired, 0);
    assert_eq!(set.looks.take(), [LEASE]);
    set.now.set(LEASE - 300_000);
    look_after(&set, Cause::Time, LEASE);
    assert_eq!((set.serves.get(), set.arms.get()), (1, 1));
    assert!(set.looks.take().is_empty());
}

#[test]
fn a_caller_that_lingers_calls_the_worker_from_a_far_look() {
    let set = Set::new();
    set.handover.lease(0);
    look_after(&set, Cause::Fired, 0);
    set.handover.lease(LEASE - 1);
    look_after(&set, Cause::Time, LEASE);
    let looks = set.looks.take();
    assert!(looks[1] > 2 * LEASE, "it has seen a program that polls: {looks:?}");
    set.now.set(LEASE + 5);
    linger(&set);
    linger(&set);
    assert_eq!(set.looks.take(), [2 * LEASE + 5]);
    look_after(&set, Cause::Time, 2 * LEASE + 5);
    assert_eq!(set.serves.get(), 1);
}
