// SPDX-License-Identifier: MIT OR Apache-2.0

//! The choice who looks after a poll group: its callers or the worker.
//!
//! The worker's epoll holds each group once, one-shot. While the group is *armed* there, the
//! first thing that happens wakes the worker. If callers look after the group at that moment
//! (they poll, which gives them a lease for a while, or they are blocked on it), the worker
//! leaves it alone: it *watches* it by a timer, and when nothing moves any more although a
//! caller is blocked, *parks* it without one. No wake-up is lost: an armed group has the epoll,
//! a watched one the timer, a parked one the caller, who arms it when leaving. A caller that goes
//! to sleep elsewhere, on a descriptor of its own, ends its lease and arms a watched group itself.
//!
//! - *Armed*: the worker serves the group. When its epoll has reported the group, the worker serves
//!   it and arms it again, or watches while a lease lasts.
//! - *Watched*: callers serve the group, and the worker's timer checks again. This ends when the
//!   lease is over (the worker serves the group), when a caller arms the completion queue (armed),
//!   or when a caller blocks and nothing moves (parked).
//! - *Parked*: the caller that is blocked on the group serves it. When the last blocked caller
//!   leaves, that arms the group.
//!
//! A poll gives the program a lease of 0.5 ms, or much less if the worker has found that something
//! waited for the lease to end. A caller inside a poll, or in a loop of polls, may merely lack a
//! CPU. The worker, which would take the CPU from another thread, waits a while longer for that
//! caller, as long as such calls follow each other. Arming a queue (`request_notify`) ends the
//! lease and makes the worker responsible at once, because the program may be about to sleep on the
//! channel's descriptor, unless the program was seen blocking in the library's own wait. A program
//! that has armed its queue many times in vain keeps its lease, and the worker looks when that is
//! over (`linger`).
//!
//! # Writers of the fields
//!
//! - `turn` (watched, parked; how many callers are blocked): the worker, callers that block and
//!   leave, and those that go to sleep. Each change is one atomic read-modify-write.
//! - `presence`: callers that poll, post, drive or go to sleep, and tasks that drive. It is a hint,
//!   by plain stores.
//! - `lease`: callers. A poll and a held post lengthen it; going to sleep ends it, before `turn`
//!   changes.
//! - `span`: the worker, from its `watcher`.
//! - `lingers`: a caller that arms its queue and goes on sets it, an event or a caller that goes to
//!   sleep clears it. `far`: the worker, as it sets its timer, and the caller that has it look
//!   sooner.
//! - `watcher`: the worker, under its lock, which no other thread takes.

mod presence;
mod watcher;

pub(crate) use self::presence::Call;
use self::presence::{Presence, PresenceWord};
use self::watcher::{Advice, Seen, WATCH, Watcher};
use crate::engine::policy::table::LEASE;
use crate::engine::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::flaw::{self, Flaw};

/// The reason for which the worker looks at a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its epoll has reported the group, and disarmed it.
    Fired,
    /// The time of [`Duty::Watch`] has come.
    Time,
}

/// The duty of the worker to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Serve it now, then [`Handover::served`].
    Serve,
    /// Come back at this time.
    Watch(u64),
    /// No duty: a caller is blocked on it and will arm it, a timer is set, or it is armed.
    Leave,
    /// Arm it at once: the caller that was blocked has just left, or nothing moves.
    Arm,
}

/// The keepers of the group, and how many callers are blocked on it: one word, which changes by one
/// read-modify-write at a time, so that a caller that leaves and the worker that leaves the group
/// to it agree.
///
/// Without either bit the group is armed; with both it is parked.
const WATCHED: u32 = 1;
const PARKED: u32 = 2;
/// One blocked caller.
const BLOCKED: u32 = 4;

/// State shared by the callers and the worker.
#[derive(Debug)]
pub(crate) struct Handover {
    /// See [`WATCHED`].
    turn: AtomicU32,
    presence: PresenceWord,
    /// When the callers' lease ends.
    lease: AtomicU64,
    /// The length of the lease of one poll: the watcher's, for callers to read.
    span: AtomicU64,
    /// The queue is armed, and its caller most likely polls on.
    lingers: AtomicBool,
    /// The worker's next look may be long after the lease.
    far: AtomicBool,
    /// The worker's own.
    watcher: Mutex<Watcher>,
}

impl Handover {
    /// A group that is about to be armed.
    pub(crate) fn new() -> Self {
        let watcher = Watcher::new();
        Self {
            turn: AtomicU32::new(0),
            presence: PresenceWord::new(),
            lease: AtomicU64::new(0),
            span: AtomicU64::new(watcher.span),
            lingers: AtomicBool::new(false),
            far: AtomicBool::new(false),
            watcher: Mutex::new(watcher),
        }
    }

    /// A caller polls and will go on doing so for a while.
    pub(crate) fn lease(&self, now: u64) {
        let span = if flaw::is(Flaw::LeaseForEver) { u64::MAX / 2 } else { self.span() };
        self.lease.store(now + span, Ordering::Release);
    }

    fn span(&self) -> u64 {
        self.span.load(Ordering::Relaxed)
    }

    /// A caller is certain to come back soon.
    pub(crate) fn lease_in_full(&self, now: u64) {
        self.lease.store(now + LEASE, Ordering::Release);
    }

    /// A caller has moved something, which may have taken longer than a short lease: it begins
    /// anew. Not for a caller that looks once more before it sleeps elsewhere, whose lease has
    /// ended.
    pub(crate) fn renew_short_lease(&self, clock: impl FnOnce() -> u64) {
        let span = self.span();
        if span < LEASE && self.presence.load().0 != Presence::Asleep {
            self.lease.store(clock() + span, Ordering::Release);
        }
    }

    /// A caller will sleep where only the worker can wake it. True when the caller must arm the
    /// group.
    #[must_use]
    pub(crate) fn end_lease(&self) -> bool {
        self.presence.set(Presence::Asleep);
        self.end_linger();
        if !flaw::is(Flaw::LeaseForEver) {
            self.lease.store(0, Ordering::Release);
        }
        // Either this sees that the worker watches, or the worker sees that the lease has ended.
        self.turn.fetch_and(!WATCHED, Ordering::SeqCst) & WATCHED != 0
    }

    /// A caller may sleep where only the worker can wake it, but most likely polls before: the
    /// worker serves the group when its lease is over. Returns the time at which the worker has to
    /// be told to look, where it would look too late by itself.
    #[must_use]
    pub(crate) fn linger(&self, now: u64) -> Option<u64> {
        // Not a loop of polls, for which the worker would wait beyond the lease.
        self.presence.set(Presence::Absent);
        let until = now + self.span();
        self.lease.store(until, Ordering::Release);
        // Either this sees that the look is far, or the worker sees that a caller lingers.
        self.lingers.store(true, Ordering::SeqCst);
        let is_far = self.far.load(Ordering::SeqCst) && self.far.swap(false, Ordering::SeqCst);
        is_far.then_some(until)
    }

    /// The event has come for which it lingered, or another.
    pub(crate) fn end_linger(&self) {
        self.lingers.store(false, Ordering::Relaxed);
    }

    /// A task or an event loop goes to sleep until it is told that something has come.
    pub(crate) fn wait_for_runtime(&self) {
        if self.presence.load().0 != Presence::Waiting {
            self.presence.set(Presence::Waiting);
        }
    }

    /// That one is no more.
    pub(crate) fn end_wait_for_runtime(&self) {
        self.presence.set(Presence::Absent);
    }

    /// A caller is in a call that may move streams until the result is dropped.
    #[inline]
    pub(crate) fn call(&self) -> Call<'_> {
        self.presence.call()
    }

    /// As [`Self::call`], for a poll that is not the last look before its thread sleeps.
    #[inline]
    pub(crate) fn poll(&self) -> Call<'_> {
        self.presence.poll()
    }

    /// A poll has found something without a call that moves streams.
    #[inline]
    pub(crate) fn found(&self) {
        self.presence.found();
    }

    /// A caller blocks on the group from now on.
    pub(crate) fn enter(&self) {
        self.turn.fetch_add(BLOCKED, Ordering::SeqCst);
    }

    /// A caller blocks on the group no more. True when it must arm the group.
    #[must_use]
    pub(crate) fn leave(&self, now: u64) -> bool {
        self.presence.set(Presence::Absent);
        self.lease(now);
        let left = self.turn.fetch_sub(BLOCKED, Ordering::SeqCst) - BLOCKED;
        left < BLOCKED && left & PARKED != 0 && self.end_watch()
    }

    /// The group is to be armed. True where that is for this thread to do; otherwise the one that
    /// took the bits away does.
    fn end_watch(&self) -> bool {
        self.turn.fetch_and(!(PARKED | WATCHED), Ordering::SeqCst) & (PARKED | WATCHED) != 0
    }

    /// True if some caller blocks on the group.
    pub(crate) fn has_waiters(&self) -> bool {
        self.turn.load(Ordering::SeqCst) >= BLOCKED
    }

    /// True if no thread needs the epoll to report anything: the worker comes by a timer, and no
    /// caller is blocked.
    pub(crate) fn is_watched(&self) -> bool {
        self.turn.load(Ordering::SeqCst) == WATCHED
    }

    /// True if the worker, in its turn, may leave the streams to callers of other groups. False if
    /// a caller has armed this one meanwhile, even if it has polled again since: it arms an armed
    /// group no more, so a bell that was hushed now would stay so. False if a caller sleeps.
    pub(crate) fn may_be_left(&self) -> bool {
        self.presence.load().0 != Presence::Asleep && self.is_watched()
    }

    /// True if callers look after the group now, so that the worker should stop serving it.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        self.has_waiters()
            || self.presence.load().0 == Presence::InCall
            || self.lease.load(Ordering::Acquire) > now
    }

    /// The worker looks at the group.
    pub(crate) fn worker_turn(&self, now: u64, cause: Cause) -> Duty {
        let mut watcher = self.watcher.lock();
        let turn = match cause {
            Cause::Fired => self.turn.fetch_or(WATCHED, Ordering::SeqCst),
            Cause::Time => {
                watcher.timer_has_come(now);
                let turn = self.turn.load(Ordering::SeqCst);
                if turn & (WATCHED | PARKED) != WATCHED {
                    return Duty::Leave;
                }
                turn
            }
        };
        let lingers = self.lingers.load(Ordering::SeqCst);
        let (presence, epoch) = self.presence.load();
        let lease = self.lease.load(Ordering::Acquire);
        let blocked = turn >= BLOCKED;
        let seen = Seen { cause, now, lease, blocked, lingers, presence, epoch };
        let advice = watcher.look(&seen);
        self.span.store(watcher.span, Ordering::Relaxed);
        match advice {
            Advice::Serve => Duty::Serve,
            Advice::Watch(at) => self.watch(&mut watcher, now, at),
            Advice::Park => self.park(),
            Advice::Arm if self.end_watch() => Duty::Arm,
            Advice::Arm => Duty::Leave,
        }
    }

    fn park(&self) -> Duty {
        // The last caller may have left between the look and the parking, and seen no parking.
        let turn = self.turn.fetch_or(PARKED, Ordering::SeqCst);
        if turn < BLOCKED && self.end_watch() { Duty::Arm } else { Duty::Leave }
    }

    /// The worker served the group and is about to arm it.
    pub(crate) fn served(&self) {
        self.end_watch();
    }

    /// See [`Watcher::was_late`].
    pub(crate) fn was_late(&self) {
        let mut watcher = self.watcher.lock();
        watcher.was_late();
        self.span.store(watcher.span, Ordering::Relaxed);
    }

    /// Streams that are ready are left to callers of other groups that have them too: this group is
    /// watched, slowly, as the other is served when they look after it no more.
    pub(crate) fn watch_beside(&self, now: u64) -> Duty {
        let pause = if self.lingers.load(Ordering::SeqCst) { LEASE } else { WATCH };
        self.watch(&mut self.watcher.lock(), now, now + pause)
    }

    /// The next look comes at that time: sooner if a caller lingers that has not been seen.
    fn watch(&self, watcher: &mut Watcher, now: u64, at: u64) -> Duty {
        let soon = now + LEASE;
        self.far.store(at > soon, Ordering::SeqCst);
        let unseen = at > soon && self.lingers.load(Ordering::SeqCst);
        let at = if unseen && self.far.swap(false, Ordering::SeqCst) { soon } else { at };
        if watcher.set_timer(at) { Duty::Watch(at) } else { Duty::Leave }
    }
}

#[cfg(all(test, not(model)))]
mod tests;
