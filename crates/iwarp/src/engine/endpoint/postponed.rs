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
use crate::engine::sync::Ordering;

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
    pub(super) fn is_next(&self) -> bool {
        self.more || !self.completions.is_empty()
    }

    /// False where there is no memory to keep it in.
    #[cold]
    pub(super) fn push(&mut self, completion: &WorkCompletion) -> bool {
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

impl Endpoint {
    /// True if receives that complete now are to wait.
    #[inline]
    pub(super) fn is_to_postpone(&self, link: Option<&dyn StreamMover>) -> bool {
        self.recv_cq.is_asleep() || link.is_some_and(|link| link.is_writing())
    }

    /// True if some wait.
    #[inline]
    pub(crate) fn postpones(&self) -> bool {
        self.postpones.load(Ordering::Relaxed)
    }

    /// Reports those that wait.
    #[inline]
    pub(crate) fn hand_on_postponed(&self) {
        if self.postpones() {
            self.report_postponed();
        }
    }

    #[cold]
    fn report_postponed(&self) {
        let mut locked = self.core.lock();
        self.postpones.store(false, Ordering::Relaxed);
        let mut completions = std::mem::take(&mut locked.program.postponed.completions);
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
