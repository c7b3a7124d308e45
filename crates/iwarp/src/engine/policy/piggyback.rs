// SPDX-License-Identifier: MIT OR Apache-2.0

//! Acknowledgements that wait for the program's next message.
//!
//! A peer of our kind may ask, behind each of its messages, whether it was received. The answer by
//! itself costs a system call here, and one there. A program that answers each message by one of
//! its own is about to send something: the two go out together. Which programs these are is
//! learned: several times in a row a post came before the program had polled in vain. A poll in
//! vain sends what waits, and where the worker had to do so, as the program went elsewhere, it is
//! not done again for a long time.

use super::penalty::Penalty;
use super::table::HABIT;

/// The knowledge about one stream.
#[derive(Debug)]
pub(super) struct Piggyback {
    /// An acknowledgement has been due since so many polls in vain, whether it waits or went out.
    since: u32,
    due: bool,
    waits: bool,
    /// Acknowledgements in a row that were followed by a post.
    score: u32,
    /// Acknowledgements go out at once after the worker had to send one.
    penalty: Penalty,
}

impl Piggyback {
    pub(super) const fn new() -> Self {
        Self { since: 0, due: false, waits: false, score: 0, penalty: Penalty::new() }
    }

    /// The peer is to be told what was received, after so many polls in vain. True if that waits.
    pub(super) fn is_to_wait(&mut self, polls: u32) -> bool {
        self.settle();
        if self.due && self.since != polls {
            self.score = 0;
        }
        self.since = polls;
        self.due = true;
        self.waits = self.score >= HABIT && !self.penalty.applies();
        self.waits
    }

    /// The program has posted a message.
    #[inline]
    pub(super) fn posted(&mut self, polls: impl FnOnce() -> u32) {
        if !std::mem::replace(&mut self.due, false) {
            return;
        }
        self.settle();
        let soon = self.since == polls();
        self.score = if soon { self.score.saturating_add(1) } else { 0 };
    }

    /// An acknowledgement that waited has gone out by the program's own doing: the worker reports
    /// those that it sends.
    fn settle(&mut self) {
        if std::mem::replace(&mut self.waits, false) {
            self.penalty.judge(false);
        }
    }

    /// The worker had to see to what waited.
    pub(super) fn found_by_worker(&mut self) {
        if std::mem::replace(&mut self.waits, false) {
            self.penalty.judge(true);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// A program that has answered messages for a while.
    fn answering() -> Piggyback {
        let mut piggyback = Piggyback::new();
        for poll in 0..HABIT {
            assert!(!piggyback.is_to_wait(poll));
            piggyback.posted(|| poll);
        }
        piggyback
    }

    #[test]
    fn an_acknowledgement_waits_for_the_answer_of_a_program_that_answers() {
        let mut piggyback = answering();
        for poll in 0..10 {
            assert!(piggyback.is_to_wait(poll));
            piggyback.posted(|| poll);
        }
    }

    #[test]
    fn a_program_that_only_receives_is_left_alone() {
        let mut piggyback = Piggyback::new();
        assert!((0..100).all(|poll| !piggyback.is_to_wait(poll)));
        let mut piggyback = answering();
        assert!(piggyback.is_to_wait(0));
        // It has stopped answering: what waited went out with a poll in vain.
        assert!((1..100).all(|poll| !piggyback.is_to_wait(poll)));
    }

    #[test]
    fn an_answer_after_a_poll_in_vain_is_late() {
        let mut piggyback = Piggyback::new();
        for poll in 0..100 {
            assert!(!piggyback.is_to_wait(poll));
            piggyback.posted(|| poll + 1);
        }
    }

    #[test]
    fn waiting_gets_rare_where_the_worker_had_to_send() {
        let mut piggyback = answering();
        let mut waited = 0;
        for _ in 0..10_000 {
            if piggyback.is_to_wait(0) {
                waited += 1;
                piggyback.found_by_worker();
            }
            piggyback.posted(|| 0);
        }
        assert!((2..=5).contains(&waited), "{waited}");
    }
}
