// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that arm a completion queue again and again without sleeping.
//!
//! Event loops such as UCX's poll, arm the queue, look at their descriptors without waiting, and
//! poll again. Each arming makes the worker responsible, so that it and the program run after the
//! bytes side by side, for two CPUs' time. A queue that was mostly armed in vain is left to its
//! program for one lease more each time.

use super::Behaviours;
use super::table::{FEW, LOOP};

/// See the [module](self). Kept under the queue's lock.
#[derive(Debug)]
pub(crate) struct Arming {
    /// Armings in vain, less [`FEW`] for each event that the worker raised.
    in_vain: u32,
    /// The number of polls at the last arming.
    polls: u32,
    without: Behaviours,
}

impl Arming {
    pub(crate) const fn new(without: Behaviours) -> Self {
        Self { in_vain: 0, polls: 0, without }
    }

    /// The program arms the queue, after so many polls, `again` if no event was raised since it did
    /// so last. True if it is likely to poll again before it sleeps. A program that does not poll
    /// what it arms relies on the event.
    pub(crate) fn armed(&mut self, again: bool, polls: u32) -> bool {
        if std::mem::replace(&mut self.polls, polls) == polls {
            return false;
        }
        self.in_vain = (self.in_vain + u32::from(again)).min(2 * LOOP);
        self.in_vain >= LOOP && !self.without.contains(Behaviours::ARMING)
    }

    /// The worker has found what the program waited for.
    pub(crate) fn raised_by_worker(&mut self) {
        self.in_vain = self.in_vain.saturating_sub(FEW);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// Armings in vain, each after one poll: how many keep the lease.
    fn in_vain(arming: &mut Arming, times: u32) -> u32 {
        (0..times).map(|_| u32::from(arming.armed(true, arming.polls + 1))).sum()
    }

    #[test]
    fn a_loop_that_arms_in_vain_is_known_after_a_while() {
        let mut arming = Arming::new(Behaviours::empty());
        assert_eq!(in_vain(&mut arming, LOOP + 9), 10);
        // Events that its own polls raise say nothing.
        assert!(arming.armed(false, arming.polls + 1));
    }

    #[test]
    fn a_program_that_sleeps_each_time_is_not_taken_for_one() {
        let mut arming = Arming::new(Behaviours::empty());
        for _ in 0..1000 {
            arming.raised_by_worker();
            assert!(!arming.armed(false, arming.polls + 1));
            // It looks at other descriptors in between.
            assert_eq!(in_vain(&mut arming, FEW), 0);
        }
    }

    /// It waits for the other queue of its channel, and arms this one along with it.
    #[test]
    fn a_queue_that_is_not_polled_is_the_workers() {
        let mut arming = Arming::new(Behaviours::empty());
        assert_eq!(in_vain(&mut arming, 2 * LOOP), LOOP + 1);
        assert!((0..1000).all(|_| !arming.armed(true, arming.polls)));
    }

    #[test]
    fn sleep_ends_the_habit_soon() {
        let mut arming = Arming::new(Behaviours::empty());
        assert_eq!(in_vain(&mut arming, 10 * LOOP), 9 * LOOP + 1);
        let kept = std::iter::repeat_with(|| {
            arming.raised_by_worker();
            arming.armed(false, arming.polls + 1)
        });
        assert_eq!(kept.take_while(|kept| *kept).count() as u32, LOOP / FEW);
    }

    #[test]
    fn it_can_be_left_out() {
        let mut arming = Arming::new(Behaviours::ARMING);
        assert_eq!(in_vain(&mut arming, 10 * LOOP), 0);
    }
}
