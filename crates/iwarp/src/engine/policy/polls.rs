// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of times that the callers of a completion queue have polled it.
//!
//! One word, and the only atomic of the policies: threads that post read what threads that poll
//! write, and neither may take a lock of the other's for it. A poll stores the word without asking
//! whether another thread has changed it meanwhile, because a read-modify-write in each poll would
//! cost more than the rare mistake, after which a post goes out alone or a little late.

use crate::engine::sync::{AtomicU64, Ordering};

/// Posts are held back until the next poll.
const HOLDS: u64 = 1;
/// One poll that found nothing, and the bits that count them.
const IN_VAIN: u64 = 2;
const ALL_IN_VAIN: u64 = POLL - IN_VAIN;
/// One poll: the upper half counts them, and falls off at the top.
const POLL: u64 = 1 << 32;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Polls(AtomicU64);

impl Polls {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts a poll. True when posts were held back that must go out now.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store((word & !HOLDS).wrapping_add(POLL), Ordering::Relaxed);
        word & HOLDS != 0
    }

    /// The poll has found nothing. Returns how many polls have found something: a number that
    /// changes with them.
    #[inline]
    pub(crate) fn count_in_vain(&self) -> u32 {
        let word = self.0.load(Ordering::Relaxed);
        let in_vain = word.wrapping_add(IN_VAIN) & ALL_IN_VAIN;
        self.0.store(word & !ALL_IN_VAIN | in_vain, Ordering::Relaxed);
        polls(word).wrapping_sub(polls_in_vain(in_vain))
    }

    /// Posts are held back until the next poll.
    pub(crate) fn hold(&self) {
        // Many posts are held one after the other, and the first says it for all.
        if self.0.load(Ordering::Relaxed) & HOLDS == 0 {
            self.0.fetch_or(HOLDS, Ordering::Relaxed);
        }
    }

    /// A number that changes when the completion queue is polled.
    #[inline]
    pub(crate) fn all(&self) -> u32 {
        polls(self.0.load(Ordering::Relaxed))
    }

    /// A number that changes when a poll finds nothing.
    #[inline]
    pub(crate) fn in_vain(&self) -> u32 {
        polls_in_vain(self.0.load(Ordering::Relaxed))
    }
}

const fn polls(word: u64) -> u32 {
    (word / POLL) as u32
}

const fn polls_in_vain(word: u64) -> u32 {
    (word as u32) / IN_VAIN as u32
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn polls_are_counted_and_release_what_is_held_once() {
        let polls = Polls::new();
        assert!(!polls.count());
        polls.hold();
        assert_eq!((polls.all(), polls.in_vain()), (1, 0));
        assert!(polls.count());
        assert!(!polls.count());
        assert_eq!((polls.all(), polls.in_vain()), (3, 0));
    }

    #[test]
    fn polls_in_vain_leave_the_others_count_alone() {
        let polls = Polls::new();
        polls.count();
        assert_eq!(polls.count_in_vain(), 0);
        polls.count();
        assert_eq!(polls.count_in_vain(), 0);
        polls.count();
        polls.count();
        polls.hold();
        assert_eq!(polls.count_in_vain(), 1, "one has found something");
        assert_eq!((polls.all(), polls.in_vain()), (4, 3));
        assert!(polls.count(), "what is held still is");
    }

    #[test]
    fn neither_count_runs_into_the_other() {
        let polls = Polls(AtomicU64::new(!HOLDS));
        assert!(!polls.count());
        assert_eq!((polls.all(), polls.in_vain()), (0, u32::MAX >> 1));
        polls.count_in_vain();
        assert_eq!((polls.all(), polls.in_vain()), (0, 0));
        assert!(!polls.count());
    }
}
