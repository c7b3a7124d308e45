// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of times that a thing which turned out badly is left out.

use super::table::PENALTY;

/// The knowledge about one thing that is tried now and then.
#[derive(Debug)]
pub(super) struct Penalty {
    /// Times to come that it is left out.
    left: u32,
    /// The number that it will be when it turns out badly again.
    next: u32,
    least: u32,
    most: u32,
}

impl Penalty {
    /// It is left out so many times at first, and at most.
    pub(super) const fn between(least: u32, most: u32) -> Self {
        Self { left: 0, next: least, least, most }
    }

    pub(super) const fn new() -> Self {
        Self::between(PENALTY, u32::MAX)
    }

    /// It could be done now. True if it is left out, which counts.
    pub(super) const fn applies(&mut self) -> bool {
        let applies = self.left > 0;
        self.left = self.left.saturating_sub(1);
        applies
    }

    /// It was done, and turned out badly or well.
    pub(super) fn judge(&mut self, badly: bool) {
        if badly {
            self.left = self.next;
            self.next = self.next.saturating_mul(4).min(self.most);
        } else {
            self.next = (self.next / 2).max(self.least);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// Times that it is left out.
    fn left_out(penalty: &mut Penalty) -> u32 {
        (0..).take_while(|_| penalty.applies()).count() as u32
    }

    #[test]
    fn a_penalty_grows_with_bad_outcomes_and_shrinks_with_good_ones() {
        let mut penalty = Penalty::new();
        assert_eq!(left_out(&mut penalty), 0);
        for times in [1, 4, 16] {
            penalty.judge(true);
            assert_eq!(left_out(&mut penalty), times * PENALTY);
        }
        (0..3).for_each(|_| penalty.judge(false));
        penalty.judge(true);
        assert_eq!(left_out(&mut penalty), 8 * PENALTY);
        (0..20).for_each(|_| penalty.judge(false));
        penalty.judge(true);
        assert_eq!(left_out(&mut penalty), PENALTY);
        (0..40).for_each(|_| penalty.judge(true));
        assert_eq!(penalty.next, u32::MAX);
    }
}
