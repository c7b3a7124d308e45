//! Which acknowledgements wait for the program's next message.
//!
//! A peer of our kind may ask, behind each of its messages, whether it was received. The answer by
//! itself costs a system call here, and one there. A program that answers each message by one of
//! its own is about to send something: the two go out together. Which programs these are is
//! learned: several times in a row a post came before the program had polled in vain. A poll in
//! vain sends what waits, and where the worker had to do so, as the program went elsewhere, it is
//! not done again for a long time.

use crate::engine::penalty::Penalty;
use crate::engine::sync::{AtomicBool, AtomicU32, Ordering};

/// Acknowledgements in a row that would have had company, before one waits.
const ENOUGH: u32 = 4;

/// What was learned of one stream. All of it is a hint: races between threads cost some time at
/// worst.
#[derive(Debug)]
pub(crate) struct Piggyback {
    /// An acknowledgement has been due since so many polls in vain, whether it waits or went out.
    since: AtomicU32,
    due: AtomicBool,
    waits: AtomicBool,
    /// Those in a row that were followed by a post.
    score: AtomicU32,
    /// Acknowledgements go out at once after the worker had to send one.
    penalty: Penalty,
}

impl Piggyback {
    pub(crate) fn new() -> Self {
        Self {
            since: AtomicU32::new(0),
            due: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            score: AtomicU32::new(0),
            penalty: Penalty::new(),
        }
    }

    /// The peer is to be told what was received, after so many polls in vain. Whether that waits.
    pub(crate) fn is_to_wait(&self, polls: u32) -> bool {
        if self.due.load(Ordering::Relaxed) && self.since.load(Ordering::Relaxed) != polls {
            self.score.store(0, Ordering::Relaxed);
        }
        self.since.store(polls, Ordering::Relaxed);
        self.due.store(true, Ordering::Relaxed);
        if self.score.load(Ordering::Relaxed) < ENOUGH || self.penalty.applies() {
            return false;
        }
        self.waits.store(true, Ordering::Relaxed);
        true
    }

    /// The program has posted a message.
    pub(crate) fn posted(&self, polls: impl FnOnce() -> u32) {
        if !self.due.load(Ordering::Relaxed) {
            return;
        }
        self.due.store(false, Ordering::Relaxed);
        let soon = self.since.load(Ordering::Relaxed) == polls();
        let score = if soon { self.score.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.score.store(score, Ordering::Relaxed);
    }

    /// What waited goes out, by the program's own doing or because the worker sees to it.
    pub(crate) fn released(&self, by_worker: bool) {
        if !self.waits.load(Ordering::Relaxed) || !self.waits.swap(false, Ordering::Relaxed) {
            return;
        }
        self.penalty.judge(by_worker);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// A program that has answered messages for a while.
    fn answering() -> Piggyback {
        let piggyback = Piggyback::new();
        for poll in 0..ENOUGH {
            assert!(!piggyback.is_to_wait(poll));
            piggyback.posted(|| poll);
        }
        piggyback
    }

    #[test]
    fn an_acknowledgement_waits_for_the_answer_of_a_program_that_answers() {
        let piggyback = answering();
        for poll in 0..10 {
            assert!(piggyback.is_to_wait(poll));
            piggyback.posted(|| poll);
            piggyback.released(false);
        }
    }

    #[test]
    fn a_program_that_only_receives_is_left_alone() {
        let piggyback = Piggyback::new();
        assert!((0..100).all(|poll| !piggyback.is_to_wait(poll)));
        let piggyback = answering();
        assert!(piggyback.is_to_wait(0));
        // It has stopped answering: what waited went out with a poll in vain.
        assert!((1..100).all(|poll| !piggyback.is_to_wait(poll)));
    }

    #[test]
    fn an_answer_after_a_poll_in_vain_is_late() {
        let piggyback = Piggyback::new();
        for poll in 0..100 {
            assert!(!piggyback.is_to_wait(poll));
            piggyback.posted(|| poll + 1);
        }
    }

    #[test]
    fn what_the_worker_had_to_send_does_not_wait_again_soon() {
        let piggyback = answering();
        let mut waited = 0;
        for _ in 0..10_000 {
            if piggyback.is_to_wait(0) {
                waited += 1;
                piggyback.released(true);
            }
            piggyback.posted(|| 0);
        }
        assert!((2..=5).contains(&waited), "{waited}");
    }
}
