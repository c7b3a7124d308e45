// SPDX-License-Identifier: MIT OR Apache-2.0

//! The conclusions of the worker from what it sees of a poll group: policy, which the worker alone
//! keeps.

use super::Cause;
use super::presence::Presence;
use crate::engine::policy::table::{FEW, LEASE, LOOP, SHORT_LEASE};

/// The time that the worker stays away from a group whose callers poll all the time: each look
/// disturbs them for a few messages.
pub(super) const WATCH: u64 = 8 * LEASE;
/// The most of that time, for one whose task has always come in time.
const LONG_WATCH: u64 = 8 * WATCH;
/// The time that it waits for a caller that is blocked, or has stopped in the middle of a loop of
/// polls.
pub(super) const GRACE: u64 = 4 * LEASE;

/// The visible state of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) cause: Cause,
    pub(super) now: u64,
    /// When the callers' lease ends.
    pub(super) lease: u64,
    /// Some caller is blocked on it.
    pub(super) blocked: bool,
    /// The queue is armed, and its caller most likely polls on.
    pub(super) lingers: bool,
    pub(super) presence: Presence,
    /// Another with each call.
    pub(super) epoch: u32,
}

/// The advice on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    Serve,
    /// Look again at this time.
    Watch(u64),
    /// A caller is blocked on it and nothing moves: leave it to that caller.
    Park,
    /// Streams move no more: come when one does.
    Arm,
}

#[derive(Debug)]
pub(super) struct Watcher {
    /// The length of the lease of one poll.
    pub(super) span: u64,
    /// The time of the next look, where one is due.
    timer: Option<u64>,
    /// The epoch that the last look saw.
    epoch: u32,
    /// Looks in a row that found the caller in one call.
    in_same_call: u32,
    /// The call after which a caller that polled in a loop was waited for.
    waited_for: Option<u32>,
    /// Looks in a row that found the lease over, and another call than the one before.
    late: u32,
    /// Something has come, and the task that moves it has been waited for since.
    waits_for_task: bool,
    /// The time by which the next look is put off at a group whose task has come in time every
    /// time.
    watch: u64,
}

impl Watcher {
    pub(super) const fn new() -> Self {
        Self {
            span: LEASE,
            timer: None,
            epoch: 0,
            in_same_call: 0,
            waited_for: None,
            late: 0,
            waits_for_task: false,
            watch: WATCH,
        }
    }

    /// The time of a look has come: of the one that is known, or of another, for which an earlier
    /// one was set then. In that case the known one is still due.
    pub(super) fn timer_has_come(&mut self, now: u64) {
        self.timer = self.timer.filter(|at| *at > now);
    }

    /// A look is wanted at that time. False where one is due by then: one timer is enough.
    pub(super) fn set_timer(&mut self, at: u64) -> bool {
        let sets = self.timer.is_none_or(|earlier| at < earlier);
        if sets {
            self.timer = Some(at);
        }
        sets
    }

    /// The worker came when the lease was over, and something had been waiting: the program does
    /// not poll all the time.
    pub(super) fn was_late(&mut self) {
        self.late = 0;
        self.span = (self.span / 4).max(SHORT_LEASE);
        self.watch = WATCH;
    }

    pub(super) fn look(&mut self, seen: &Seen) -> Advice {
        let came = std::mem::replace(&mut self.epoch, seen.epoch) != seen.epoch;
        let Seen { now, cause, .. } = *seen;
        let mut lease = seen.lease;
        if lease > now {
            self.in_same_call = 0;
        } else if seen.presence == Presence::InCall && self.is_trusted(came) {
            lease = now + LEASE / 4;
        }
        if seen.blocked {
            return if came || lease > now { Advice::Watch(now + GRACE) } else { Advice::Park };
        }
        let waited = std::mem::take(&mut self.waits_for_task);
        if lease <= now {
            if seen.presence == Presence::Waiting && self.span == LEASE {
                return self.look_at_task(cause, now, waited && !came);
            }
            let loops = seen.presence == Presence::Polling && !seen.lingers;
            if loops && self.waited_for != Some(seen.epoch) {
                // It may have lost its CPU to this very thread.
                self.waited_for = Some(seen.epoch);
                return Advice::Watch(now + GRACE);
            }
            if cause == Cause::Fired {
                self.grow_with_calls(came);
            }
            return Advice::Serve;
        }
        if cause == Cause::Fired {
            return Advice::Watch(lease);
        }
        // It has been renewed.
        if self.lengthen() < LEASE || seen.lingers {
            return Advice::Watch(lease);
        }
        let sleeps = seen.presence == Presence::Waiting;
        Advice::Watch(now + if sleeps { self.look_seldom() } else { WATCH })
    }

    /// A task's thread mostly gets the CPU of the thread that wakes it, and keeps it. If this very
    /// look has another CPU awake at that moment it gets that one, and each message wakes the
    /// other's CPU from then on.
    fn look_seldom(&mut self) -> u64 {
        let watch = self.watch;
        self.watch = (watch * 2).min(LONG_WATCH);
        watch
    }

    /// A task is told of what comes as soon as the worker is, and has been in time so far: it is
    /// given some, as the two would be in each other's way. It has not come at all where it
    /// `is_late`.
    const fn look_at_task(&mut self, cause: Cause, now: u64, is_late: bool) -> Advice {
        match cause {
            Cause::Fired => {
                self.waits_for_task = true;
                Advice::Watch(now + GRACE)
            }
            Cause::Time if is_late => Advice::Serve,
            Cause::Time => Advice::Arm,
        }
    }

    /// True if the thread inside a library call is waited for still: a new call began since the
    /// last look, or fewer than [`FEW`] looks found this one.
    const fn is_trusted(&mut self, came: bool) -> bool {
        let looks = if came { 0 } else { self.in_same_call };
        self.in_same_call = looks + 1;
        looks < FEW
    }

    /// The lease was over although a caller comes between any two looks: now and then a longer one
    /// is tried.
    fn grow_with_calls(&mut self, came: bool) {
        self.late = if came { self.late + 1 } else { 0 };
        if self.late == LOOP {
            self.late = 0;
            self.lengthen();
        }
    }

    /// Makes the lease of one poll longer. Returns its former length.
    fn lengthen(&mut self) -> u64 {
        let span = self.span;
        self.span = (span * 2).min(LEASE);
        span
    }
}
