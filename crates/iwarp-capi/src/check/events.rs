// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion events that the program took and has not acknowledged.
//!
//! Another thread may acknowledge while one waits to destroy the queue; so it is misuse only where
//! the thread that destroys has taken all of them itself.

use std::collections::HashMap;

use super::failures::thread;
use super::place::Place;
use super::report::{NOT_ACKNOWLEDGED, Reports};

#[derive(Debug)]
struct Taken {
    count: i64,
    /// The only thread that took any.
    thread: Option<usize>,
    last: Place,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// By address of the completion queue.
    of: HashMap<usize, Taken>,
}

impl Events {
    /// A completion queue at this address is new.
    pub(super) fn made(&mut self, queue: usize) {
        self.of.remove(&queue);
    }

    /// The program took an event of a completion queue.
    pub(super) fn taken(&mut self, queue: usize) {
        let (own, last) = (Some(thread()), Place::here());
        match self.of.get_mut(&queue) {
            Some(taken) => {
                taken.count += 1;
                taken.thread = taken.thread.filter(|one| Some(*one) == own);
                taken.last = last;
            }
            None => {
                self.of.insert(queue, Taken { count: 1, thread: own, last });
            }
        }
    }

    /// The program acknowledged so many.
    pub(super) fn acknowledged(&mut self, queue: usize, count: i64) {
        if let Some(taken) = self.of.get_mut(&queue) {
            taken.count -= count;
            if taken.count <= 0 {
                self.of.remove(&queue);
            }
        }
    }

    /// The program is about to destroy a completion queue.
    pub(super) fn destroys(&self, queue: usize, reports: &mut Reports) {
        let Some(taken) = self.of.get(&queue) else { return };
        if taken.thread != Some(thread()) {
            return;
        }
        let what = format!(
            "ibv_destroy_cq of {queue:#x} waits for {} event(s) that this thread took",
            taken.count
        );
        reports.report(&NOT_ACKNOWLEDGED, &what, &Place::here(), &[("last taken", &taken.last)]);
    }
}
