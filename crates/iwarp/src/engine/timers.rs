// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tasks that are due at some time of the device's clock.

use std::sync::Arc;

use iwarp_types::Time;

use crate::engine::worker::{Deadline, Worker};
use crate::port::clock::{Clock, Scheduled};

/// The clock by which connections are made. The worker calls what is due; where a clock that is set
/// by hand stands beside a worker with a thread, the one that sets it does.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    worker: Arc<Worker>,
    clock: Clock,
}

/// A call that is not made once this is dropped. (It may be under way then.)
#[derive(Debug)]
pub(crate) enum Alarm {
    Worker { _deadline: Deadline },
    Manual { _call: Scheduled },
}

impl Timers {
    pub(crate) const fn new(worker: Arc<Worker>, clock: Clock) -> Self {
        Self { worker, clock }
    }

    /// True if the worker takes its turns by itself.
    pub(crate) fn has_thread(&self) -> bool {
        self.worker.has_thread()
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Calls `what` at that time, unless the result is dropped before.
    pub(crate) fn at(&self, at: Time, what: Box<dyn FnOnce() + Send>) -> Alarm {
        match self.clock.as_manual().filter(|_| self.worker.has_thread()) {
            None => Alarm::Worker { _deadline: self.worker.deadline(at, what) },
            Some(clock) => Alarm::Manual { _call: clock.call(at, what) },
        }
    }

    /// Calls `what` on the worker as soon as it can.
    pub(crate) fn soon(&self, what: Box<dyn FnOnce() + Send>) {
        self.worker.soon(what);
    }
}
