//! How long a program that polls an empty queue keeps its CPU.
//!
//! Its peer may need that CPU: then every poll that finds nothing is better a yield. How long a
//! yield takes tells whether another thread wanted the CPU. Where several yields in a row were
//! taken up and brought nothing, or one took milliseconds, because some other program had the CPU,
//! the caller had better sleep for a moment: a thread that sleeps gets the CPU back as soon as
//! something has come.

use std::time::Duration;

use crate::engine::sync::{AtomicU32, AtomicU64, Ordering};

/// Empty polls before the caller's CPU is offered to others, as long as nothing is known; also
/// before a caller that has asked for an event counts as one that polls nevertheless.
pub(crate) const POLLS_BEFORE_YIELD: u32 = 64;
/// A yield that takes less, in nanoseconds, was taken up by no other thread; where system calls are
/// slow, one that takes less than so many times the shortest.
const UNTAKEN: u64 = 2_000;
const SHORTEST: u64 = 4;
/// One that takes more was taken up by a thread that is not answering.
const LONG: u64 = 500_000;
/// Yields that were taken up and brought nothing, before the caller sleeps.
const IN_VAIN: u32 = 4;
/// Rests for which it sleeps rather than yields, after a long one.
const WARY: u32 = 256;
/// How long it sleeps at most: completions may come in another way than from what it waits for. Twice
/// as long with each time that was in vain.
const NAP: Duration = Duration::from_micros(100);
const DOUBLINGS: u32 = 4;

/// What a caller does whose polls have found nothing for long enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    Yield,
    /// Until something comes, or for so long.
    Sleep(Duration),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Backoff {
    polls: AtomicU32,
    least: u32,
    /// The shortest yield.
    shortest: AtomicU64,
    /// Yields in a row that were taken up, and after which nothing had come.
    in_vain: AtomicU32,
    /// Rests for which it still sleeps.
    wary: AtomicU32,
    /// Sleeps in a row that were in vain.
    overslept: AtomicU32,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        // With one CPU there is no doubt.
        let alone = iwarp_os::clock::cpus() == 1;
        Self {
            polls: AtomicU32::new(if alone { 0 } else { POLLS_BEFORE_YIELD }),
            least: u32::from(!alone),
            shortest: AtomicU64::new(LONG),
            in_vain: AtomicU32::new(0),
            wary: AtomicU32::new(0),
            overslept: AtomicU32::new(0),
        }
    }

    /// Whether so many polls in a row that found nothing are enough.
    pub(crate) fn is_over(&self, empty: u32) -> bool {
        empty >= self.polls.load(Ordering::Relaxed)
    }

    /// How to rest then.
    pub(crate) fn rest(&self) -> Rest {
        let wary = self.wary.load(Ordering::Relaxed);
        if wary > 0 {
            self.wary.store(wary - 1, Ordering::Relaxed);
            return self.sleep();
        }
        if self.in_vain.load(Ordering::Relaxed) < IN_VAIN {
            return Rest::Yield;
        }
        // Then a yield is tried again, which tells whether the CPU is still wanted.
        self.in_vain.store(IN_VAIN - 1, Ordering::Relaxed);
        self.sleep()
    }

    fn sleep(&self) -> Rest {
        Rest::Sleep(NAP * (1 << self.overslept.load(Ordering::Relaxed)))
    }

    /// It has slept. Whether something came.
    pub(crate) fn has_slept(&self, came: bool) {
        let overslept = self.overslept.load(Ordering::Relaxed);
        let overslept = if came { 0 } else { (overslept + 1).min(DOUBLINGS) };
        self.overslept.store(overslept, Ordering::Relaxed);
    }

    /// A poll has found something.
    pub(crate) fn is_rewarded(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// A yield took so many nanoseconds.
    pub(crate) fn learn(&self, took: u64) {
        let shortest = self.shortest.load(Ordering::Relaxed).min(took);
        self.shortest.store(shortest, Ordering::Relaxed);
        let polls = self.polls.load(Ordering::Relaxed);
        if took < UNTAKEN.max(SHORTEST * shortest) {
            self.in_vain.store(0, Ordering::Relaxed);
            if self.least > 0 {
                self.polls.store((polls + 1).min(POLLS_BEFORE_YIELD), Ordering::Relaxed);
            }
            return;
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        self.in_vain.store(in_vain.saturating_add(1), Ordering::Relaxed);
        self.polls.store((polls / 2).max(self.least), Ordering::Relaxed);
        if took >= LONG {
            self.wary.store(WARY, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn backoff(polls: u32) -> Backoff {
        let new = Backoff { least: 1, ..Backoff::new() };
        new.polls.store(polls, Ordering::Relaxed);
        new.shortest.store(300, Ordering::Relaxed);
        new
    }

    #[test]
    fn a_peer_on_the_same_cpu_gets_it_at_once() {
        let backoff = backoff(POLLS_BEFORE_YIELD);
        assert!(!backoff.is_over(POLLS_BEFORE_YIELD - 1));
        for _ in 0..10 {
            assert_eq!(backoff.rest(), Rest::Yield);
            backoff.learn(8_000);
            backoff.is_rewarded();
        }
        assert!(backoff.is_over(1));
        // It has gone elsewhere.
        (0..POLLS_BEFORE_YIELD).for_each(|_| backoff.learn(300));
        assert!(!backoff.is_over(POLLS_BEFORE_YIELD - 1));
        assert_eq!(backoff.rest(), Rest::Yield);
    }

    #[test]
    fn among_many_that_want_the_cpu_one_sleeps() {
        let backoff = backoff(POLLS_BEFORE_YIELD);
        for _ in 0..IN_VAIN {
            assert_eq!(backoff.rest(), Rest::Yield);
            backoff.learn(8_000);
        }
        assert_eq!(backoff.rest(), Rest::Sleep(NAP));
        // Are they still there?
        assert_eq!(backoff.rest(), Rest::Yield);
        backoff.learn(8_000);
        assert_eq!(backoff.rest(), Rest::Sleep(NAP));
        backoff.is_rewarded();
        assert_eq!(backoff.rest(), Rest::Yield);
    }

    #[test]
    fn who_takes_the_cpu_for_long_gets_it_seldom() {
        let backoff = backoff(POLLS_BEFORE_YIELD);
        backoff.learn(3_000_000);
        for _ in 0..WARY {
            assert_eq!(backoff.rest(), Rest::Sleep(NAP));
            backoff.is_rewarded();
        }
        assert_eq!(backoff.rest(), Rest::Yield);
    }

    #[test]
    fn who_sleeps_in_vain_sleeps_longer() {
        let backoff = backoff(POLLS_BEFORE_YIELD);
        backoff.learn(3_000_000);
        for doubling in [0, 1, 2, 3, 4, 4] {
            assert_eq!(backoff.rest(), Rest::Sleep(NAP * (1 << doubling)));
            backoff.has_slept(false);
        }
        backoff.has_slept(true);
        assert_eq!(backoff.rest(), Rest::Sleep(NAP));
    }

    #[test]
    fn slow_system_calls_are_not_a_peer() {
        let backoff = Backoff { shortest: AtomicU64::new(LONG), ..backoff(POLLS_BEFORE_YIELD) };
        (0..10).for_each(|_| backoff.learn(15_000));
        assert!(!backoff.is_over(POLLS_BEFORE_YIELD - 1));
        assert_eq!(backoff.rest(), Rest::Yield);
    }

    #[test]
    fn with_one_cpu_there_is_nothing_to_learn() {
        let backoff = Backoff { least: 0, ..backoff(0) };
        (0..POLLS_BEFORE_YIELD).for_each(|_| backoff.learn(300));
        assert!(backoff.is_over(0));
    }
}
