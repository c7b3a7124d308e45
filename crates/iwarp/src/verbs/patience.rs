//! How long a program that polls an empty queue keeps its CPU.
//!
//! Its peer may need that CPU: then every poll that finds nothing is better a yield. If it is some
//! other program that wants it, a yield costs milliseconds. How long one takes tells them apart.

use crate::engine::sync::{AtomicU32, AtomicU64, Ordering};

/// Empty polls before the caller's CPU is offered to others, as long as nothing is known; also
/// before a caller that has asked for an event counts as one that polls nevertheless.
pub(crate) const POLLS_BEFORE_YIELD: u32 = 64;
/// At most, where others take the CPU for long.
const MOST: u32 = 4096;
/// A yield that takes less found nobody, in nanoseconds. Where system calls are slow, what takes
/// less than a few of the shortest.
const NOBODY: u64 = 2_000;
const FEW: u64 = 4;
/// One that takes more found somebody who is not answering.
const LONG: u64 = 500_000;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Patience {
    polls: AtomicU32,
    least: u32,
    /// The shortest yield.
    shortest: AtomicU64,
}

impl Patience {
    pub(crate) fn new() -> Self {
        // With one CPU there is no doubt.
        let alone = iwarp_os::clock::cpus() == 1;
        Self {
            polls: AtomicU32::new(if alone { 0 } else { POLLS_BEFORE_YIELD }),
            least: u32::from(!alone),
            shortest: AtomicU64::new(LONG),
        }
    }

    /// Whether so many polls in a row that found nothing are enough.
    pub(crate) fn is_over(&self, empty: u32) -> bool {
        empty >= self.polls.load(Ordering::Relaxed)
    }

    /// A yield took so many nanoseconds.
    pub(crate) fn learn(&self, took: u64) {
        if self.least == 0 {
            return;
        }
        let shortest = self.shortest.load(Ordering::Relaxed).min(took);
        self.shortest.store(shortest, Ordering::Relaxed);
        let polls = self.polls.load(Ordering::Relaxed);
        let polls = if took < NOBODY.max(FEW * shortest) {
            (polls + 1).min(POLLS_BEFORE_YIELD)
        } else if took < LONG {
            (polls / 2).max(self.least)
        } else {
            (polls * 2).min(MOST)
        };
        self.polls.store(polls, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn patience(polls: u32) -> Patience {
        let shortest = AtomicU64::new(300);
        Patience { polls: AtomicU32::new(polls), least: 1, shortest }
    }

    #[test]
    fn a_peer_on_the_same_cpu_gets_it_at_once() {
        let patience = patience(POLLS_BEFORE_YIELD);
        assert!(!patience.is_over(POLLS_BEFORE_YIELD - 1));
        (0..10).for_each(|_| patience.learn(8_000));
        assert!(patience.is_over(1));
        // It has gone elsewhere.
        (0..POLLS_BEFORE_YIELD).for_each(|_| patience.learn(300));
        assert!(!patience.is_over(POLLS_BEFORE_YIELD - 1));
    }

    #[test]
    fn who_takes_the_cpu_for_long_gets_it_seldom() {
        let patience = patience(POLLS_BEFORE_YIELD);
        (0..20).for_each(|_| patience.learn(3_000_000));
        assert!(!patience.is_over(MOST - 1));
        assert!(patience.is_over(MOST));
        patience.learn(300);
        assert!(patience.is_over(POLLS_BEFORE_YIELD));
    }

    #[test]
    fn slow_system_calls_are_not_a_peer() {
        let patience = Patience { shortest: AtomicU64::new(LONG), ..patience(POLLS_BEFORE_YIELD) };
        (0..10).for_each(|_| patience.learn(15_000));
        assert!(!patience.is_over(POLLS_BEFORE_YIELD - 1));
    }

    #[test]
    fn with_one_cpu_there_is_nothing_to_learn() {
        let patience = Patience { least: 0, ..patience(0) };
        patience.learn(3_000_000);
        assert!(patience.is_over(0));
    }
}
