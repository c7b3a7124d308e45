// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives that are reported a moment after they have completed.
//!
//! A program's Send completes before its peer's answer comes, as far as a program with a card can
//! tell: the card has the acknowledgement first. Here the thread that sends may still be on its way
//! back from the system call when the answer is there, and then another thread receives it. That
//! thread leaves the receive to the one that sends. Nor does a program that sleeps wake up and
//! answer before all that came together was looked at: behind a message there may be the question
//! whether it arrived, and the reply to that goes out first.

use iwarp_types::WorkCompletion;

use super::Endpoint;
use crate::engine::mover::StreamMover;
use crate::engine::sync::{AtomicBool, Ordering};
use crate::engine::writing::Writing;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Postponed {
    completions: Vec<WorkCompletion>,
    /// Receives that complete now are to wait.
    pub(super) more: bool,
}

impl Postponed {
    /// True if the next one is to wait: those behind it wait as well.
    #[inline]
    fn is_next(&self) -> bool {
        self.more || !self.completions.is_empty()
    }

    /// False where there is no memory to keep it in.
    #[cold]
    fn push(&mut self, completion: &WorkCompletion) -> bool {
        let has_room = self.completions.try_reserve(1).is_ok();
        if has_room {
            self.completions.push(*completion);
        }
        has_room
    }

    /// There was a reset.
    pub(super) fn forget(&mut self) {
        self.completions.clear();
    }
}

/// The mark that some receives wait. It changes with the endpoint's lock and is read without: the
/// thread that has set it reads it, and so does the one that sends, to which the token shows it.
#[derive(Debug)]
pub(super) struct Postpones(AtomicBool);

impl Postpones {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// True if some wait.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has a receive wait if the next one is to. False where it is to be reported now.
    #[inline]
    pub(super) fn keep(&self, completion: &WorkCompletion, waiting: &mut Postponed) -> bool {
        let kept = waiting.is_next() && waiting.push(completion);
        if kept {
            self.0.store(true, Ordering::Relaxed);
        }
        kept
    }

    /// Takes those that wait, to be reported before the lock is given up.
    fn take(&self, waiting: &mut Postponed) -> Vec<WorkCompletion> {
        self.0.store(false, Ordering::Relaxed);
        std::mem::take(&mut waiting.completions)
    }

    /// Has those that wait reported, or `leave` ask the thread that writes to look for them: it may
    /// have looked already.
    #[inline]
    fn hand_on(&self, writing: &Writing, leave: impl FnOnce(), report: impl FnOnce()) {
        if !self.any() {
            return;
        }
        if writing.is_on() {
            leave();
        } else {
            report();
        }
    }
}

impl Endpoint {
    /// True if receives that complete now are to wait.
    #[inline]
    pub(super) fn is_to_postpone(&self, link: Option<&dyn StreamMover>) -> bool {
        self.recv_cq.is_asleep() || link.is_some_and(|link| link.is_writing())
    }

    /// True if some wait.
    #[inline]
    pub(crate) fn postpones(&self) -> bool {
        self.postpones.any()
    }

    /// Reports those that wait.
    #[inline]
    pub(crate) fn hand_on_postponed(&self) {
        if self.postpones() {
            self.report_postponed();
        }
    }

    /// Reports those that wait, or leaves them to the thread that writes.
    #[inline]
    pub(crate) fn hand_on_or_leave(&self, writing: &Writing, leave: impl FnOnce()) {
        self.postpones.hand_on(writing, leave, || self.report_postponed());
    }

    #[cold]
    fn report_postponed(&self) {
        let mut locked = self.core.lock();
        let mut completions = self.postpones.take(&mut locked.program.postponed);
        let mut overrun = false;
        for completion in completions.drain(..) {
            overrun |= !self.report_receive(completion, &mut locked.program);
        }
        // Its memory serves the next.
        locked.program.postponed.completions = completions;
        if overrun && locked.core.is_connected() {
            locked.core.fail_locally("completion queue overrun");
            self.hand_on(&mut locked);
        }
    }
}

#[cfg(all(test, model))]
mod model;
