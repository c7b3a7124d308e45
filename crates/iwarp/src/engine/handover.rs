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
/// The same for programs that stop polling and wait for something by other means.
const SHORT_LEASE: u64 = 8_000;
/// A lease lasts for so many polls at least, of a program that does nothing else: where system calls
/// are slow, or others want the CPU, a short one would be over before the next.
const POLLS: u64 = 4;
/// How often the worker looks at a group it watches.
pub(crate) const WATCH: u64 = 1_000_000;
/// Looks in a row that found the lease over, and that the program had polled since the one before.
const MANY: u32 = 64;
/// How long the worker waits for a caller that has stopped in the middle of a loop of polls.
const GRACE: u64 = 2_000_000;
/// Looks in a row at a group whose caller is in a call that does not go on, as others have its CPU,
/// before the worker steps in.
const TRUSTED: u32 = 16;
/// Each look at a group whose program polls all the time disturbs it for a few messages: the pause
/// doubles so often.
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
    /// Looks in a row that found nothing but that.
    trusted: guess::AtomicU32,
    activity: AtomicU32,
    /// The worker's own: the activity it has seen, and whether it has a timer for the group.
    seen: AtomicU32,
    timer: AtomicBool,
    /// The same of polls, and looks in a row that found that there had been one.
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

    /// A poll has found something: nobody knows what the program does next.
    pub(crate) fn found(&self) {
        self.looping.store(false, Ordering::Relaxed);
    }

    /// Whether the caller has stopped in the middle of a loop of polls, as far as is known. True
    /// once: it may have lost its CPU to whoever asks.
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

    /// Whether that was the last that a caller did.
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

    /// Whether the caller that is within is to be trusted: it has come there since the last look, or
    /// has not been without a CPU for long. Who takes that for granted may wait for a thread that was
    /// killed.
    fn is_trusted(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let goes_on = self.seen_calls.swap(calls, Ordering::Relaxed) != calls;
        let trusted = if goes_on { 0 } else { self.trusted.load(Ordering::Relaxed) };
        self.trusted.store(trusted + 1, Ordering::Relaxed);
        trusted < TRUSTED
    }

    /// A caller has moved something: a lease that is shorter than that may take begins now.
    pub(crate) fn renew_short_lease(&self, clock: impl FnOnce() -> u64) {
        let span = self.span();
        if span < LEASE {
            self.lease.store(clock() + span, Ordering::Release);
        }
    }

    /// A caller moved something.
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

    /// Whether nobody needs the epoll to report anything: the worker comes by a timer, and no caller
    /// sleeps.
    pub(crate) fn is_watched(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WATCHED && !self.has_waiters()
    }

    /// It does no more. True when the group must be armed by the caller.
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
        let span = self.span.load(Ordering::Relaxed);
        self.span.store((span * 2).min(LEASE), Ordering::Relaxed);
        if span < LEASE {
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
            let span = self.span.load(Ordering::Relaxed);
            self.span.store((span * 2).min(LEASE), Ordering::Relaxed);
        }
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

#[cfg(all(test, not(model)))]
mod tests {
    use super::{
        Cause, DOUBLINGS, Duty, GRACE, Handover, LEASE, MANY, SHORT_LEASE, TRUSTED, WATCH,
    };

    #[test]
    fn a_group_without_callers_is_served() {
        let handover = Handover::new();
        assert_eq!(handover.worker_turn(1, Cause::Fired), Duty::Serve);
    }

    #[test]
    fn a_poller_keeps_the_worker_away_until_its_lease_ends() {
        let handover = Handover::new();
        handover.lease(10, false);
        assert!(handover.is_leased(10));
        assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
        assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Serve);
    }

    #[test]
    fn a_busy_blocked_caller_is_watched_and_an_idle_one_parked() {
        let handover = Handover::new();
        handover.enter();
        handover.moved();
        assert_eq!(handover.worker_turn(5, Cause::Fired), Duty::Watch(5 + WATCH));
        assert_eq!(handover.worker_turn(5 + WATCH, Cause::Time), Duty::Leave);
        assert!(handover.leave(9), "the caller arms a parked group");
    }

    #[test]
    fn only_the_last_caller_arms() {
        let handover = Handover::new();
        handover.enter();
        handover.enter();
        assert_eq!(handover.worker_turn(5, Cause::Fired), Duty::Leave);
        assert!(!handover.leave(6));
        assert!(handover.leave(7));
    }

    #[test]
    fn an_armed_group_is_not_armed_again_by_a_caller() {
        let handover = Handover::new();
        handover.enter();
        assert!(!handover.leave(1));
    }

    #[test]
    fn a_caller_that_goes_to_sleep_takes_the_worker_off_its_timer() {
        let handover = Handover::new();
        handover.lease(10, false);
        assert!(!handover.end_lease(), "it is armed already");
        handover.lease(10, false);
        assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
        assert!(handover.end_lease());
        // The timer that is set finds nothing to do; the armed epoll does.
        assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Leave);
        assert_eq!(handover.worker_turn(10 + LEASE, Cause::Fired), Duty::Serve);
    }

    #[test]
    fn the_worker_stays_away_from_a_group_that_a_caller_drives() {
        let handover = Handover::new();
        let driven = handover.driven();
        assert_eq!(handover.worker_turn(7, Cause::Fired), Duty::Watch(7 + LEASE / 4));
        assert!(handover.is_leased(9));
        drop(driven);
        assert_eq!(handover.worker_turn(7 + LEASE / 4, Cause::Time), Duty::Serve);
    }

    #[test]
    fn a_caller_without_a_cpu_is_waited_for_but_not_for_ever() {
        let handover = Handover::new();
        let calling = handover.calling();
        assert_eq!(handover.worker_turn(7, Cause::Fired), Duty::Watch(7 + LEASE / 4));
        let mut now = 7;
        let looks = (1..=2 * TRUSTED).take_while(|_| {
            now += LEASE / 4;
            handover.worker_turn(now, Cause::Time) != Duty::Serve
        });
        assert_eq!(looks.count() as u32, TRUSTED - 1);
        drop(calling);
    }

    #[test]
    fn a_caller_that_comes_again_and_again_is_waited_for() {
        let handover = Handover::new();
        let mut now = 0;
        for look in 0..4 * TRUSTED {
            let _calling = handover.calling();
            let cause = if look == 0 { Cause::Fired } else { Cause::Time };
            let Duty::Watch(at) = handover.worker_turn(now, cause) else { panic!("look {look}") };
            now = at;
        }
        assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Serve);
    }

    #[test]
    fn a_loop_of_polls_that_was_interrupted_is_waited_for_once() {
        let looping = || {
            let handover = Handover::new();
            handover.lease(1, true);
            handover
        };
        let late = 1 + 2 * LEASE;
        let handover = looping();
        assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Watch(late + GRACE));
        assert_eq!(handover.worker_turn(late + GRACE, Cause::Time), Duty::Serve);
        // It has ended by itself.
        let handover = looping();
        handover.found();
        assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Serve);
        let handover = looping();
        assert!(!handover.end_lease(), "it is armed");
        assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Serve);
    }

    #[test]
    fn a_short_lease_begins_when_the_work_is_done() {
        let handover = Handover::new();
        (0..10).for_each(|_| handover.was_late());
        handover.lease(0, false);
        handover.renew_short_lease(|| 1_000_000);
        assert!(handover.is_leased(1_000_000 + SHORT_LEASE - 1));
    }

    #[test]
    fn a_lease_lasts_for_some_polls_however_slow_they_are() {
        let handover = Handover::new();
        (0..10).for_each(|_| handover.was_late());
        let pause = 3 * SHORT_LEASE;
        let mut now = 0;
        for _ in 0..50 {
            now += pause;
            handover.lease(now, true);
        }
        assert!(handover.is_leased(now + 2 * pause));
        // One that does other things between is left early all the same.
        let handover = Handover::new();
        (0..10).for_each(|_| handover.was_late());
        (0..50).for_each(|poll| handover.lease(poll * pause, false));
        assert!(!handover.is_leased(49 * pause + SHORT_LEASE));
    }

    #[test]
    fn a_lease_that_is_always_over_grows_where_the_program_polls() {
        let pause = 10 * SHORT_LEASE;
        let is_over = |polls: bool| {
            let handover = Handover::new();
            (0..10).for_each(|_| handover.was_late());
            (1..=6 * u64::from(MANY)).all(|turn| {
                let poll = if polls { turn * pause } else { 1 };
                handover.lease(poll, false);
                handover.worker_turn(poll + pause, Cause::Fired) == Duty::Serve
            })
        };
        assert!(!is_over(true));
        assert!(is_over(false), "it is the same poll");
    }

    #[test]
    fn the_lease_fits_the_program() {
        let handover = Handover::new();
        for _ in 0..10 {
            handover.was_late();
        }
        handover.lease(0, false);
        assert_eq!(handover.worker_turn(1, Cause::Fired), Duty::Watch(SHORT_LEASE));
        // And now it polls all the time.
        let mut now = 0;
        for _ in 0..10 {
            handover.lease(now + 1, false);
            assert!(matches!(handover.worker_turn(now + 2, Cause::Time), Duty::Watch(_)));
            now += LEASE;
        }
        for renewals in [DOUBLINGS; 3] {
            handover.lease(now, false);
            let next = now + (WATCH << renewals);
            assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Watch(next));
            now = next;
        }
    }

    #[test]
    fn there_is_one_timer() {
        let handover = Handover::new();
        handover.lease(10, false);
        assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
        assert!(handover.end_lease());
        handover.lease(30, false);
        assert_eq!(handover.worker_turn(40, Cause::Fired), Duty::Leave);
        let now = 10 + LEASE;
        assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Watch(now + WATCH));
    }
}

/// The hand-over beside a model of the worker's one-shot epoll and its timers.
#[cfg(all(test, model))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::{Cause, Duty, Handover};
    use crate::engine::sync::Mutex;

    /// What the kernel and the worker's timers hold.
    #[derive(Default)]
    struct Outside {
        armed: bool,
        /// The worker's epoll has reported the group, which disarmed it.
        fired: bool,
        timer: bool,
        /// Octets wait in a socket of the group.
        pending: bool,
        /// Turns of the worker, to show that it does not spin.
        turns: u32,
    }

    struct World {
        handover: Handover,
        outside: Mutex<Outside>,
    }

    impl World {
        fn new() -> Arc<Self> {
            let outside = Outside { armed: true, ..Outside::default() };
            Arc::new(Self { handover: Handover::new(), outside: Mutex::new(outside) })
        }

        fn settle(outside: &mut Outside) {
            if outside.armed && outside.pending {
                outside.armed = false;
                outside.fired = true;
            }
        }

        fn arm(&self) {
            let mut outside = self.outside.lock();
            outside.armed = true;
            Self::settle(&mut outside);
        }

        fn octets_arrive(&self) {
            let mut outside = self.outside.lock();
            outside.pending = true;
            Self::settle(&mut outside);
        }

        fn drive(&self) {
            self.outside.lock().pending = false;
            self.handover.moved();
        }

        fn caller_blocks_and_leaves(&self) {
            self.handover.enter();
            self.drive();
            if self.handover.leave(0) {
                self.arm();
            }
        }

        /// A caller polls, arms the queue and goes to sleep on a descriptor of its own.
        fn caller_polls_and_sleeps(&self) {
            self.handover.lease(1, true);
            self.drive();
            if self.handover.end_lease() {
                self.arm();
            }
        }

        /// One turn of the worker, if it has a reason. False when it would sleep for ever.
        fn worker(&self, now: u64) -> bool {
            let cause = {
                let mut outside = self.outside.lock();
                outside.turns += 1;
                if std::mem::take(&mut outside.fired) {
                    Cause::Fired
                } else if std::mem::take(&mut outside.timer) {
                    Cause::Time
                } else {
                    return false;
                }
            };
            match self.handover.worker_turn(now, cause) {
                Duty::Serve => {
                    self.drive();
                    self.handover.served();
                    self.arm();
                }
                Duty::Watch(_) => self.outside.lock().timer = true,
                Duty::Leave => {}
                Duty::Arm => self.arm(),
            }
            true
        }

        /// Everybody has gone: the worker alone must find whatever is left, and then sleep.
        fn end(&self) {
            while self.worker(u64::MAX / 2) {}
            let outside = self.outside.lock();
            assert!(!outside.pending, "octets wait and nobody will look");
            assert!(outside.armed, "the group is not armed");
            assert!(outside.turns < 12, "the worker spins");
        }
    }

    #[test]
    fn no_wake_up_is_lost_when_a_caller_leaves() {
        loom::model(|| {
            let world = World::new();
            let caller = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.caller_blocks_and_leaves())
            };
            let worker = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.worker(1);
                    world.worker(2);
                })
            };
            world.octets_arrive();
            caller.join().unwrap();
            worker.join().unwrap();
            world.end();
        });
    }

    #[test]
    fn no_wake_up_is_lost_between_two_callers() {
        let mut builder = loom::model::Builder::new();
        // Complete exploration takes hours; every known bug of this kind needs two.
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let world = World::new();
            world.octets_arrive();
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.caller_blocks_and_leaves())
                })
                .collect();
            world.worker(1);
            world.octets_arrive();
            for caller in callers {
                caller.join().unwrap();
            }
            world.end();
        });
    }

    /// Whoever sleeps elsewhere is not left to a timer.
    #[test]
    fn a_caller_that_sleeps_is_served_at_once() {
        loom::model(|| {
            let world = World::new();
            let caller = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.caller_polls_and_sleeps())
            };
            let worker = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.worker(2);
                    world.worker(3);
                })
            };
            world.octets_arrive();
            caller.join().unwrap();
            worker.join().unwrap();
            world.octets_arrive();
            {
                let outside = world.outside.lock();
                assert!(outside.fired, "what arrives now waits for a timer");
            }
            world.end();
        });
    }
}
