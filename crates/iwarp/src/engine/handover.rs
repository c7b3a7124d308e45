//! Whether a poll group is looked after by its callers or by the worker.
//!
//! The worker's epoll holds each group once, one-shot. While the group is *armed* there, the
//! first thing that happens wakes the worker. If callers look after the group at that moment
//! (they poll, which gives them a lease for a while, or they are blocked on it), the worker
//! leaves it alone: it *watches* it by a timer, and when nothing moves any more although a
//! caller is blocked, *parks* it without one. No wake-up is lost: an armed group has the epoll,
//! a watched one the timer, a parked one the caller, who arms it when leaving.

use crate::engine::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const ARMED: u8 = 0;
const WATCHED: u8 = 1;
const PARKED: u8 = 2;

/// How long one poll keeps the worker away, in nanoseconds.
pub(crate) const LEASE: u64 = 500_000;
/// How often the worker looks at a group it watches.
pub(crate) const WATCH: u64 = 1_000_000;

/// What the worker is to do with a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Serve it now, then [`Handover::served`].
    Serve,
    /// Come back at this time.
    Watch(u64),
    /// Nothing: a caller is blocked on it and will arm it.
    Leave,
    /// Arm it at once: the caller that was blocked has just left.
    Arm,
}

/// State shared by the callers and the worker.
#[derive(Debug)]
pub(crate) struct Handover {
    state: AtomicU8,
    lease: AtomicU64,
    waiters: AtomicU32,
    activity: AtomicU32,
    seen: AtomicU32,
}

impl Handover {
    /// A group that is about to be armed.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(ARMED),
            lease: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            activity: AtomicU32::new(0),
            seen: AtomicU32::new(0),
        }
    }

    /// A caller polls and will go on doing so for a while.
    pub(crate) fn lease(&self, now: u64) {
        self.lease.store(now + LEASE, Ordering::Release);
    }

    /// A caller moved something.
    pub(crate) fn moved(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller blocks on the group from now on.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// It does no more. True when the group must be armed by the caller.
    #[must_use]
    pub(crate) fn leave(&self, now: u64) -> bool {
        self.lease(now);
        self.waiters.fetch_sub(1, Ordering::SeqCst) == 1
            && self
                .state
                .compare_exchange(PARKED, ARMED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    /// The worker's epoll fired for the group, or the time of [`Duty::Watch`] has come.
    pub(crate) fn worker_turn(&self, now: u64) -> Duty {
        self.state.store(WATCHED, Ordering::SeqCst);
        let lease = self.lease.load(Ordering::Acquire);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let activity = self.activity.load(Ordering::Relaxed);
            if self.seen.swap(activity, Ordering::Relaxed) != activity || lease > now {
                return Duty::Watch(now + WATCH);
            }
            return self.park();
        }
        if lease > now { Duty::Watch(lease) } else { Duty::Serve }
    }

    fn park(&self) -> Duty {
        self.state.store(PARKED, Ordering::SeqCst);
        // The last caller may have left between the look and the parking, and seen no parking.
        let left = self.waiters.load(Ordering::SeqCst) == 0
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

    /// Whether callers look after the group now, so that the worker should stop serving it.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0 || self.lease.load(Ordering::Acquire) > now
    }
}
