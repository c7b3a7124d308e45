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
    /// Armings in vain, less [`FEW`] for each service of the worker that moved something.
    in_vain: u32,
    /// The worker's services by then.
    services: u32,
    without: Behaviours,
}

impl Arming {
    pub(crate) const fn new(without: Behaviours) -> Self {
        Self { in_vain: 0, services: 0, without }
    }

    /// The program arms the queue, `again` if no event was raised since it did so last; the worker
    /// has moved something for it so many times in all. True if it is likely to poll again before
    /// it sleeps.
    pub(crate) fn armed(&mut self, again: bool, services: u32) -> bool {
        let served = services.wrapping_sub(std::mem::replace(&mut self.services, services));
        self.in_vain = self.in_vain.saturating_sub(served.saturating_mul(FEW));
        self.in_vain = (self.in_vain + u32::from(again)).min(2 * LOOP);
        self.in_vain >= LOOP && !self.without.contains(Behaviours::ARMING)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn in_vain(arming: &mut Arming, times: u32, services: u32) -> u32 {
        (0..times).map(|_| u32::from(arming.armed(true, services))).sum()
    }

    #[test]
    fn a_loop_that_arms_in_vain_is_known_after_a_while() {
        let mut arming = Arming::new(Behaviours::empty());
        assert_eq!(in_vain(&mut arming, LOOP + 9, 0), 10);
        // Events that its own polls raise say nothing.
        assert!(arming.armed(false, 0));
    }

    #[test]
    fn a_program_that_sleeps_each_time_is_not_taken_for_one() {
        let mut arming = Arming::new(Behaviours::empty());
        for event in 0..1000 {
            assert!(!arming.armed(false, event));
            // It looks at other descriptors in between.
            assert_eq!(in_vain(&mut arming, FEW, event), 0);
        }
    }

    #[test]
    fn sleep_ends_the_habit_soon() {
        let mut arming = Arming::new(Behaviours::empty());
        assert_eq!(in_vain(&mut arming, 10 * LOOP, 0), 9 * LOOP + 1);
        let kept = (1..).take_while(|services| arming.armed(false, *services));
        assert_eq!(kept.count() as u32, LOOP / FEW);
    }

    #[test]
    fn it_can_be_left_out() {
        let mut arming = Arming::new(Behaviours::ARMING);
        assert_eq!(in_vain(&mut arming, 10 * LOOP, 0), 0);
    }
}
