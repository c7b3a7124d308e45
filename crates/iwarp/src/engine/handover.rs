//! Whether a poll group is looked after by its callers or by the worker.
//!
//! The worker's epoll holds each group once, one-shot. While the group is *armed* there, the
//! first thing that happens wakes the worker. If callers look after the group at that moment
//! (they poll, which gives them a lease for a while, or they are blocked on it), the worker
//! leaves it alone: it *watches* it by a timer, and when nothing moves any more although a
//! caller is blocked, *parks* it without one. No wake-up is lost: an armed group has the epoll,
//! a watched one the timer, a parked one the caller, who arms it when leaving. A caller that goes
//! to sleep elsewhere, on a descriptor of its own, ends its lease and arms a watched group itself.

use crate::engine::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence, guess};

const ARMED: u8 = 0;
const WATCHED: u8 = 1;
const PARKED: u8 = 2;

/// How long one poll keeps the worker away, in nanoseconds.
pub(crate) const LEASE: u64 = 500_000;
/// The shortest lease, for programs that stop polling and wait for something by other means.
const SHORT_LEASE: u64 = 8_000;
/// A lease lasts for at least so many polls of a program that does nothing else: where system calls
/// are slow, or other threads want the CPU, a short one would be over before the next poll.
const POLLS: u64 = 4;
/// How often the worker looks at a group it watches.
pub(crate) const WATCH: u64 = 1_000_000;
/// Looks in a row that found the lease over although the program had polled since the one before,
/// until a longer lease is tried.
const MANY: u32 = 64;
/// How long the worker waits for a caller that has stopped in the middle of a loop of polls.
const GRACE: u64 = 2_000_000;
/// Looks in a row that find the caller in the same call, presumably without a CPU, before the worker
/// steps in.
const TRUSTED: u32 = 16;
/// How often the pause between two looks doubles where a program polls all the time: each look
/// disturbs it for a few messages.
const DOUBLINGS: u32 = 2;

/// Why the worker looks at a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its epoll has reported the group, and disarmed it.
    Fired,
    /// The time of [`Duty::Watch`] has come.
    Time,
}

/// What the worker is to do with a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Serve it now, then [`Handover::served`].
    Serve,
    /// Come back at this time.
    Watch(u64),
    /// Nothing: a caller is blocked on it and will arm it, a timer is set, or it is armed.
    Leave,
    /// Arm it at once: the caller that was blocked has just left.
    Arm,
}

/// A caller is inside a call that looks after the group, until this is dropped.
pub(crate) struct Within<'a>(&'a guess::AtomicBool);

impl<'a> Within<'a> {
    fn new(flag: &'a guess::AtomicBool) -> Self {
        flag.store(true, Ordering::Release);
        Self(flag)
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// State shared by the callers and the worker.
#[derive(Debug)]
pub(crate) struct Handover {
    state: AtomicU8,
    lease: AtomicU64,
    /// How long the lease of one poll is.
    span: AtomicU64,
    /// When a caller polled last.
    polled: guess::AtomicU64,
    /// Time between two polls in a row: an average of some.
    pause: guess::AtomicU64,
    waiters: AtomicU32,
    /// A caller is moving streams at this moment, whatever its lease says.
    driven: guess::AtomicBool,
    /// The caller's last polls found nothing: it is going to poll again.
    looping: guess::AtomicBool,
    /// A caller is in a call that moves streams, perhaps without a CPU: it will go on when it has one.
    calling: guess::AtomicBool,
    /// How many such calls there were, and how many the worker has seen.
    calls: guess::AtomicU32,
    seen_calls: guess::AtomicU32,
    /// The last caller sleeps where only the worker can wake it.
    left: guess::AtomicBool,
    /// Looks in a row that found the caller in the same call.
    trusted: guess::AtomicU32,
    activity: AtomicU32,
    /// The worker's own: the activity it has seen, and whether it has a timer for the group.
    seen: AtomicU32,
    timer: AtomicBool,
    /// When the last poll was that the worker has seen, and how many looks in a row found another.
    seen_poll: guess::AtomicU64,
    late: guess::AtomicU32,
    /// Looks in a row that found a full lease renewed.
    renewals: AtomicU32,
}

impl Handover {
    /// A group that is about to be armed.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(ARMED),
            lease: AtomicU64::new(0),
            span: AtomicU64::new(LEASE),
            polled: guess::AtomicU64::new(0),
            pause: guess::AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            driven: guess::AtomicBool::new(false),
            looping: guess::AtomicBool::new(false),
            calling: guess::AtomicBool::new(false),
            calls: guess::AtomicU32::new(0),
            seen_calls: guess::AtomicU32::new(0),
            left: guess::AtomicBool::new(false),
            trusted: guess::AtomicU32::new(0),
            activity: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            timer: AtomicBool::new(false),
            seen_poll: guess::AtomicU64::new(0),
            late: guess::AtomicU32::new(0),
            renewals: AtomicU32::new(0),
        }
    }

    /// A caller polls and will go on doing so for a while. `again`: it has found nothing and done
    /// nothing since it polled last.
    pub(crate) fn lease(&self, now: u64, again: bool) {
        let last = self.polled.load(Ordering::Relaxed);
        self.polled.store(now, Ordering::Relaxed);
        self.looping.store(again, Ordering::Relaxed);
        self.left.store(false, Ordering::Relaxed);
        if again {
            let pause = self.pause.load(Ordering::Relaxed);
            let this = now.saturating_sub(last).min(LEASE / POLLS);
            self.pause.store(pause - pause / 8 + this / 8, Ordering::Relaxed);
        }
        self.lease.store(now + self.span(), Ordering::Release);
    }

    /// A poll has found something: what the program does next is not known.
    pub(crate) fn found(&self) {
        self.looping.store(false, Ordering::Relaxed);
    }

    /// Whether the caller has stopped in the middle of a loop of polls, as far as is known. True
    /// once: it may have lost its CPU to the worker, which asks.
    fn was_interrupted(&self) -> bool {
        self.looping.load(Ordering::Relaxed) && self.looping.swap(false, Ordering::Relaxed)
    }

    fn span(&self) -> u64 {
        self.span.load(Ordering::Relaxed).max(POLLS * self.pause.load(Ordering::Relaxed))
    }

    /// A caller is certain to come back soon.
    pub(crate) fn lease_in_full(&self, now: u64) {
        self.left.store(false, Ordering::Relaxed);
        self.lease.store(now + LEASE, Ordering::Release);
    }

    /// The worker came when the lease was over, and something had been waiting: the program does
    /// not poll all the time.
    pub(crate) fn was_late(&self) {
        self.late.store(0, Ordering::Relaxed);
        let span = self.span.load(Ordering::Relaxed);
        self.span.store((span / 4).max(SHORT_LEASE), Ordering::Relaxed);
    }

    /// A caller will sleep where only the worker can wake it. True when the caller must arm the
    /// group.
    #[must_use]
    pub(crate) fn end_lease(&self) -> bool {
        self.looping.store(false, Ordering::Relaxed);
        self.left.store(true, Ordering::Relaxed);
        self.lease.store(0, Ordering::Release);
        // Either this sees that the worker watches, or the worker sees that the lease has ended.
        fence(Ordering::SeqCst);
        self.state.compare_exchange(WATCHED, ARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether no caller has come since one went to sleep elsewhere.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// A caller moves streams until the result is dropped. One does at a time.
    pub(crate) fn driven(&self) -> Within<'_> {
        Within::new(&self.driven)
    }

    /// A caller is in a poll or a post until the result is dropped. Where several are, it may end
    /// early.
    pub(crate) fn calling(&self) -> Within<'_> {
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Within::new(&self.calling)
    }

    fn is_within(&self) -> bool {
        self.driven.load(Ordering::Acquire) || self.calling.load(Ordering::Acquire)
    }

    /// Whether to keep waiting for the thread inside a library call: a new call began since the last
    /// look, or fewer than [`TRUSTED`] looks found the same one. Bounded, as that thread may have been
    /// killed.
    fn is_trusted(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let goes_on = self.seen_calls.swap(calls, Ordering::Relaxed) != calls;
        let trusted = if goes_on { 0 } else { self.trusted.load(Ordering::Relaxed) };
        self.trusted.store(trusted + 1, Ordering::Relaxed);
        trusted < TRUSTED
    }

    /// A caller has moved something, which may have taken longer than a short lease: it begins anew.
    pub(crate) fn renew_short_lease(&self, clock: impl FnOnce() -> u64) {
        let span = self.span();
        if span < LEASE {
            self.lease.store(clock() + span, Ordering::Release);
        }
    }

    /// The driver has moved something.
    pub(crate) fn moved(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller blocks on the group from now on.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether some caller blocks on the group.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Whether no thread needs the epoll to report anything: the worker comes by a timer, and no
    /// caller sleeps.
    pub(crate) fn is_watched(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WATCHED && !self.has_waiters()
    }

    /// Whether the worker, in its turn, may leave the streams to callers of other groups. Not where a
    /// caller has armed this one meanwhile, even if it has polled again since: it arms an armed group
    /// no more, so a stream that was silenced now would stay so.
    pub(crate) fn may_be_left(&self) -> bool {
        !self.has_left() && self.is_watched()
    }

    /// A caller blocks on the group no more. True when it must arm the group.
    #[must_use]
    pub(crate) fn leave(&self, now: u64) -> bool {
        self.lease(now, false);
        self.waiters.fetch_sub(1, Ordering::SeqCst) == 1
            && self
                .state
                .compare_exchange(PARKED, ARMED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    /// The worker looks at the group.
    pub(crate) fn worker_turn(&self, now: u64, cause: Cause) -> Duty {
        match cause {
            Cause::Fired => self.state.store(WATCHED, Ordering::SeqCst),
            Cause::Time => {
                self.timer.store(false, Ordering::Relaxed);
                if self.state.load(Ordering::SeqCst) != WATCHED {
                    return Duty::Leave;
                }
            }
        }
        fence(Ordering::SeqCst);
        let mut lease = self.lease.load(Ordering::Acquire);
        if lease > now {
            self.trusted.store(0, Ordering::Relaxed);
        } else if self.is_within() && self.is_trusted() {
            lease = now + LEASE / 4;
        }
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let activity = self.activity.load(Ordering::Relaxed);
            if self.seen.swap(activity, Ordering::Relaxed) != activity || lease > now {
                return self.watch(now + WATCH);
            }
            return self.park();
        }
        if lease <= now {
            if self.was_interrupted() {
                return self.watch(now + GRACE);
            }
            if cause == Cause::Fired {
                self.grow_with_polls();
            }
            return Duty::Serve;
        }
        if cause == Cause::Fired {
            self.renewals.store(0, Ordering::Relaxed);
            return self.watch(lease);
        }
        // It has been renewed.
        if self.lengthen() < LEASE {
            return self.watch(lease);
        }
        let renewals = self.renewals.load(Ordering::Relaxed).min(DOUBLINGS);
        self.renewals.store(renewals + 1, Ordering::Relaxed);
        self.watch(lease.max(now + (WATCH << renewals)))
    }

    /// The lease was over although the program polls between any two looks: now and then a longer one
    /// is tried.
    fn grow_with_polls(&self) {
        let polled = self.polled.load(Ordering::Relaxed);
        let late = if self.seen_poll.swap(polled, Ordering::Relaxed) == polled {
            0
        } else {
            self.late.load(Ordering::Relaxed) + 1
        };
        self.late.store(late % MANY, Ordering::Relaxed);
        if late == MANY {
            self.lengthen();
        }
    }

    /// The lease of one poll gets longer. How long it was.
    fn lengthen(&self) -> u64 {
        let span = self.span.load(Ordering::Relaxed);
        self.span.store((span * 2).min(LEASE), Ordering::Relaxed);
        span
    }

    /// One timer is enough: it comes at most [`WATCH`] after it was set.
    fn watch(&self, at: u64) -> Duty {
        if self.timer.swap(true, Ordering::Relaxed) { Duty::Leave } else { Duty::Watch(at) }
    }

    fn park(&self) -> Duty {
        self.state.store(PARKED, Ordering::SeqCst);
        // The last caller may have left between the look and the parking, and seen no parking. A
        // read-modify-write sees it, or is seen by it.
        let left = self.waiters.fetch_add(0, Ordering::SeqCst) == 0
            && self
                .state
                .compare_exchange(PARKED, ARMED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if left { Duty::Arm } else { Duty::Leave }
    }

    /// The worker served the group and is about to arm it.
    pub(crate) fn served(&self) {
        self.state.store(ARMED, Ordering::SeqCst);
    }

    /// What is ready is left to callers of other groups that have the same streams: this one is
    /// watched, slowly, as the other is served when they do no more.
    pub(crate) fn watch_beside(&self, now: u64) -> Duty {
        self.watch(now + (WATCH << DOUBLINGS))
    }

    /// Whether callers look after the group now, so that the worker should stop serving it.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
            || self.is_within()
            || self.lease.load(Ordering::Acquire) > now
    }
}

#[cfg(all(test, model))]
mod model;
#[cfg(all(test, not(model)))]
mod tests;
