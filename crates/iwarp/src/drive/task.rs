// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of the interface that sessions use beyond the public one: turns of a task whose runtime
//! tells it of the stream itself, collecting beside it, and the worker.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use iwarp_types::WorkCompletion;

use super::{Drive, Driven};
use crate::engine::cq;
use crate::engine::group::Polled;
use crate::engine::mover::ReactorStream;
use crate::engine::poll_set::PollSet;
use crate::engine::worker::Worker;

/// The next act of a task after its turn.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskTurn {
    /// There may be more: the next turn.
    Next,
    /// The woken tasks have their turns, then it has its next.
    AfterOthers,
    /// There is nothing left: it sleeps until the descriptor is ready, as all that comes from now
    /// on makes it.
    Sleep,
    /// Likewise, and what comes on the stream makes only the stream ready.
    SleepOnStream,
}

/// The caller takes what completes until this is dropped: see [`Drive::collecting`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Collecting<'a>(#[allow(dead_code, reason = "held")] cq::Collecting<'a>);

/// The device's worker, for what a caller must not do itself.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Background(Arc<Worker>);

impl Background {
    /// Calls `what` on the worker's thread as soon as it can.
    pub fn soon(&self, what: Box<dyn FnOnce() + Send>) {
        self.0.soon(what);
    }

    /// Calls `what` on the worker's thread after that time of the device's clock.
    pub fn after(&self, time: Duration, what: Box<dyn FnOnce() + Send>) {
        self.0.at(self.0.clock().now().plus(time), what);
    }
}

/// Completions that one turn hands over at most: a loop that posts for each, and whose posts
/// complete at once, has other work as well.
const MOST: usize = 256;

impl Driven {
    pub(super) fn collect(&self, completed: impl FnMut(WorkCompletion)) -> usize {
        let taken = iter::from_fn(|| self.cq.take_one()).take(MOST);
        taken.map(completed).count()
    }

    pub(super) fn turn(
        &self,
        stream: Option<&dyn ReactorStream>,
        completed: impl FnMut(WorkCompletion),
    ) -> TaskTurn {
        let group = self.cq.group();
        let collecting = self.cq.collecting();
        let polled = group.poll();
        let done = self.collect(completed);
        if done > 1 && stream.is_some_and(|stream| stream.gather()) {
            return TaskTurn::AfterOthers;
        }
        // A completion by others from now on raises an event.
        let left = collecting.end_armed();
        let is_told = stream.is_some_and(|stream| stream.is_told_by_reactor());
        match polled {
            Polled::Nothing(_) if done == 0 && !left => {}
            // That was all.
            Polled::Moved if is_told && !left => {}
            // Another thread that moves the connection may have looked before the last of it came.
            Polled::Nothing(_) | Polled::Moved | Polled::Taken => return TaskTurn::Next,
        }
        group.handover.wait_for_runtime();
        if is_told {
            return TaskTurn::SleepOnStream;
        }
        // Nor does what comes wait for the worker's timer.
        group.listen();
        TaskTurn::Sleep
    }
}

#[doc(hidden)]
impl Drive {
    /// As [`Self::turn`], of a task that its runtime's reactor tells of `stream`, the only one
    /// here. Events are left on the [channel](Self::channel). If the turn has completed several
    /// requests, the tasks that it has woken will post: that is gathered until the next turn, and
    /// goes out in one system call. In a forked child there is nothing to do.
    pub fn turn_of_task(
        &self,
        stream: Option<&dyn ReactorStream>,
        completed: impl FnMut(WorkCompletion),
    ) -> TaskTurn {
        if let Some(stream) = stream {
            stream.send_gathered();
        }
        self.driven.alive().map_or(TaskTurn::Sleep, |driven| driven.turn(stream, completed))
    }

    /// The last look of a thread before it waits on the [channel](Self::channel): moves what can be
    /// moved, and hands over completions. True if there were none, and the next one raises an
    /// event. What the look itself completes raises none, which would cost two system calls.
    pub fn may_sleep(&self, completed: impl FnMut(WorkCompletion)) -> bool {
        // The wait tells of a forked child.
        let Some(driven) = self.driven.alive() else { return true };
        let collecting = driven.cq.collecting();
        driven.cq.group().poll();
        let done = driven.collect(completed);
        let left = collecting.end_armed();
        done == 0 && !left
    }

    /// The task has no more turns: what it would have moved is the worker's.
    pub fn end_turns(&self) {
        if let Some(driven) = self.driven.alive() {
            driven.cq.group().handover.end_wait_for_runtime();
        }
    }

    /// The caller [takes](Self::take) what completes until the result is dropped, so that it
    /// need not raise an event; what is left then raises one. `None` in a forked child.
    pub fn collecting(&self) -> Option<Collecting<'_>> {
        Some(Collecting(self.driven.alive()?.cq.collecting()))
    }

    /// Moves what can be moved on the connections.
    pub fn advance(&self) {
        if let Some(driven) = self.driven.alive() {
            driven.cq.group().poll();
        }
    }

    /// The worker; `None` in a forked child.
    pub fn background(&self) -> Option<Background> {
        Some(Background(Arc::clone(&self.driven.alive()?.worker)))
    }
}
