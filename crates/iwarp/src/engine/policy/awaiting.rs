// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding out whether a program awaits the answer to what it posts by spinning on memory.
//!
//! Such a program never polls its completion queue for the answer, so the worker would receive it,
//! and handing it over costs several times what TCP does. It is served in the post instead: the
//! call that posts stays on the connection until the answer is there, for a bounded time. Which
//! programs these are is learned: a fixed number of posts, then a message of the peer's that the
//! worker had to receive, several times in a row.
//!
//! The post waits on the poll group for 0.1 ms at most, and fruitless waits make that rare. This
//! never happens to programs that poll, block or arm their queues.

use super::table::{HABIT, LEASE, PAUSE, PENALTY};

/// The delay with which an answer may come. Until a caller's lease is over the worker is late
/// itself.
const LATE: u64 = LEASE + 2 * PAUSE;

/// The knowledge about one queue pair.
#[derive(Debug)]
pub(super) struct Awaiting {
    /// Posts since the last message of the peer's.
    posts: u32,
    /// Posts of a round, as they were last.
    round: u32,
    /// Rounds in a row that looked like it.
    score: u32,
    posted_at: u64,
    /// Messages of the peer's that were counted.
    seen: u64,
    /// Rounds it takes: more, after posts have waited in vain.
    needed: u32,
}

impl Awaiting {
    pub(super) const fn new() -> Self {
        Self { posts: 0, round: 0, score: 0, posted_at: 0, seen: 0, needed: HABIT }
    }

    /// The program has posted something, now. True when it is likely to do nothing but
    /// wait for an answer from now on.
    #[inline]
    pub(super) fn posted(&mut self, clock: impl FnOnce() -> u64) -> bool {
        self.posts = self.posts.saturating_add(1);
        if self.score == 0 {
            return false;
        }
        self.posted_at = clock();
        self.score >= self.needed && self.posts == self.round
    }

    /// True if the program may be one that awaits answers.
    #[inline]
    pub(super) const fn is_likely(&self) -> bool {
        self.score > 0
    }

    /// The peer has sent so many messages. True if some of them are new.
    #[inline]
    pub(super) const fn has_news(&mut self, arrivals: u64) -> bool {
        std::mem::replace(&mut self.seen, arrivals) != arrivals
    }

    /// The worker has received something from the peer.
    pub(super) const fn answered(&mut self, now: u64) {
        let posts = std::mem::replace(&mut self.posts, 0);
        let round = std::mem::replace(&mut self.round, posts);
        self.score = if posts == 0 {
            0
        } else if self.score == 0 || round != posts {
            1
        } else if now.saturating_sub(self.posted_at) > LATE {
            0
        } else {
            self.score.saturating_add(1)
        };
    }

    /// The program looks after its connections itself.
    #[inline]
    pub(super) const fn is_driven(&mut self) {
        self.posts = 0;
        self.score = 0;
    }

    /// A post has waited, and the answer has come or not.
    pub(super) fn awaited(&mut self, came: bool) {
        if came {
            self.posts = 0;
            self.needed = (self.needed / 2).max(HABIT);
        } else {
            self.score = 0;
            self.needed = (self.needed * 4).min(4 * PENALTY);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// Rounds of `posts` posts and an answer that the worker receives, until a post waits.
    fn learn(awaiting: &mut Awaiting, posts: u32, after: u64) -> Option<u32> {
        for round in 0..1000 {
            for post in 1..=posts {
                if awaiting.posted(|| 0) {
                    assert_eq!(post, posts, "there are more to come");
                    return Some(round);
                }
            }
            awaiting.answered(after);
        }
        None
    }

    #[test]
    fn question_and_answer_is_learned() {
        for posts in [1, 3, 100] {
            assert_eq!(learn(&mut Awaiting::new(), posts, 20_000), Some(HABIT));
        }
    }

    #[test]
    fn late_answers_and_silent_programs_are_something_else() {
        assert_eq!(learn(&mut Awaiting::new(), 1, 2 * LATE), None);
        assert_eq!(learn(&mut Awaiting::new(), 0, 20_000), None);
    }

    #[test]
    fn rounds_of_different_lengths_are_something_else() {
        let mut awaiting = Awaiting::new();
        for round in 0..100 {
            assert!((0..1 + round % 2).all(|_| !awaiting.posted(|| 0)));
            awaiting.answered(1);
        }
    }

    #[test]
    fn a_program_that_polls_is_left_alone() {
        let mut awaiting = Awaiting::new();
        for _ in 0..100 {
            assert!(!awaiting.posted(|| 0));
            awaiting.answered(1);
            assert!(!awaiting.posted(|| 0));
            awaiting.is_driven();
        }
    }

    #[test]
    fn waiting_in_vain_gets_rare() {
        let mut awaiting = Awaiting::new();
        let mut waits = 0;
        for _ in 0..10_000 {
            if awaiting.posted(|| 0) {
                waits += 1;
                awaiting.awaited(false);
            }
            awaiting.answered(1);
        }
        assert!((2..=14).contains(&waits), "{waits}");
    }

    #[test]
    fn a_wait_that_pays_is_repeated() {
        let mut awaiting = Awaiting::new();
        learn(&mut awaiting, 1, 1);
        for _ in 0..100 {
            awaiting.awaited(true);
            assert!(awaiting.posted(|| 0));
        }
    }

    #[test]
    fn a_message_is_news_once() {
        let mut awaiting = Awaiting::new();
        assert!(awaiting.has_news(2));
        assert!(!awaiting.has_news(2));
        assert!(awaiting.has_news(3));
    }
}
