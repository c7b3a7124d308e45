// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers without threads: a simulator says when each takes its turn.
//!
//! `Worker::turn` is one wait on the epoll, its events, and the timers that are due. A worker's
//! thread calls it in a loop. A simulator calls it at times of its choice, but only when that
//! thread would have woken, so a missing wake-up is missing in the simulation too. When a caller
//! gives up its CPU within a call (`Clock::yield_now`, `Clock::sleep`), the simulator lets others
//! continue. The hot path asks the clock by one comparison with null, and reads the processor's
//! ticks as before.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{Interest, poll};

use crate::engine::Engine;
use crate::engine::worker::{Turner, Worker};

/// The workers of a device that has no threads. Each does in its turn what its thread would have
/// done; the owner of this says when, and by its clock for how long each has slept.
#[derive(Debug)]
pub struct Turns {
    workers: Vec<(Arc<Worker>, Turner)>,
}

impl Turns {
    pub(crate) fn new(engine: &Engine) -> Self {
        let workers = engine.workers().map(|worker| (Arc::clone(worker), worker.turner()));
        Self { workers: workers.collect() }
    }

    /// The number of workers; they are named by numbers from 0 on.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// When a worker wakes by itself, as it knew when it went to sleep; `None`: never.
    pub fn sleeps_until(&self, worker: usize) -> Option<Duration> {
        self.workers[worker].0.sleeps_until().map(|at| at.0)
    }

    /// True if a worker would be awake by now: something is ready for it, or its time has come.
    pub fn is_awake(&self, worker: usize) -> bool {
        let worker = &self.workers[worker].0;
        let now = worker.clock().now();
        worker.sleeps_until().is_some_and(|at| at <= now) || {
            let epoll = (worker.tasks().epoll().as_fd(), Interest::READ);
            poll::wait_ready([epoll], Some(Duration::ZERO)).is_ok_and(|[ready]| ready)
        }
    }

    /// A worker does what is ready and what is due, and goes to sleep again.
    ///
    /// # Panics
    ///
    /// When the system refuses to wait.
    pub fn turn(&mut self, worker: usize) {
        let (worker, turner) = &mut self.workers[worker];
        worker.turn(turner, Some(Duration::ZERO)).expect("an epoll can be waited on");
        worker.fall_asleep();
    }
}
