//! Whether a program awaits the answer to what it posts by spinning on memory.
//!
//! Such a program never polls its completion queue for the answer, so the worker would receive it,
//! and handing it over costs several times what TCP does. It is served in the post instead: the
//! call that posts stays on the connection until the answer is there, for a bounded time. Which
//! programs these are is learned: a fixed number of posts, then a message of the peer's that the
//! worker had to receive, several times in a row.

use crate::engine::sync::{AtomicU32, AtomicU64, Ordering};

/// Rounds that look like it before a post waits.
const ENOUGH: u32 = 3;
/// Rounds it takes at most, after posts have waited in vain.
const MANY: u32 = 1 << 10;
/// Posts of a round.
const MOST_POSTS: u32 = 4;
/// How late an answer may come, in nanoseconds. Until a caller's lease is over the worker is late
/// itself.
const LATE: u64 = 700_000;
/// How long a post waits for the answer, in nanoseconds.
pub(crate) const LONGEST_WAIT: u64 = 100_000;

/// What was learned of one queue pair. All of it is a hint: races between threads cost some time
/// at worst.
#[derive(Debug)]
pub(crate) struct Awaiting {
    /// Posts since the last message of the peer's.
    posts: AtomicU32,
    /// Posts of a round, as they were last.
    round: AtomicU32,
    /// Rounds in a row that looked like it.
    score: AtomicU32,
    /// Rounds it takes.
    needed: AtomicU32,
    posted_at: AtomicU64,
    /// Messages of the peer's that were counted.
    seen: AtomicU64,
}

impl Awaiting {
    pub(crate) fn new() -> Self {
        Self {
            posts: AtomicU32::new(0),
            round: AtomicU32::new(0),
            score: AtomicU32::new(0),
            needed: AtomicU32::new(ENOUGH),
            posted_at: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }

    /// The program has posted something, now. True when it is likely to do nothing but
    /// wait for an answer from now on.
    pub(crate) fn posted(&self, clock: impl FnOnce() -> u64) -> bool {
        let posts = self.posts.load(Ordering::Relaxed).saturating_add(1);
        self.posts.store(posts, Ordering::Relaxed);
        let score = self.score.load(Ordering::Relaxed);
        if score == 0 {
            return false;
        }
        self.posted_at.store(clock(), Ordering::Relaxed);
        posts == self.round.load(Ordering::Relaxed) && score >= self.needed.load(Ordering::Relaxed)
    }

    /// Whether the program may be one that awaits answers.
    pub(crate) fn is_likely(&self) -> bool {
        self.score.load(Ordering::Relaxed) > 0
    }

    /// The peer has sent so many messages. Whether some of them are new.
    pub(crate) fn has_news(&self, arrivals: u64) -> bool {
        self.seen.load(Ordering::Relaxed) != arrivals
            && self.seen.swap(arrivals, Ordering::Relaxed) != arrivals
    }

    /// The worker has received something from the peer.
    pub(crate) fn answered(&self, now: u64) {
        let posts = self.posts.swap(0, Ordering::Relaxed);
        let score = self.score.load(Ordering::Relaxed);
        let score = if posts == 0 || posts > MOST_POSTS {
            0
        } else if score == 0 || self.round.swap(posts, Ordering::Relaxed) != posts {
            self.round.store(posts, Ordering::Relaxed);
            1
        } else if now.saturating_sub(self.posted_at.load(Ordering::Relaxed)) > LATE {
            0
        } else {
            score.saturating_add(1)
        };
        self.score.store(score, Ordering::Relaxed);
    }

    /// The program looks after its connections itself.
    pub(crate) fn is_driven(&self) {
        self.posts.store(0, Ordering::Relaxed);
        if self.score.load(Ordering::Relaxed) > 0 {
            self.score.store(0, Ordering::Relaxed);
        }
    }

    /// A post has waited, and the answer has come or not.
    pub(crate) fn awaited(&self, came: bool) {
        let needed = self.needed.load(Ordering::Relaxed);
        if came {
            self.posts.store(0, Ordering::Relaxed);
            self.needed.store((needed / 2).max(ENOUGH), Ordering::Relaxed);
        } else {
            self.score.store(0, Ordering::Relaxed);
            self.needed.store((needed * 4).min(MANY), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// Rounds of `posts` posts and an answer that the worker receives, until a post waits.
    fn learn(awaiting: &Awaiting, posts: u32, after: u64) -> Option<u32> {
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
        assert_eq!(learn(&Awaiting::new(), 1, 20_000), Some(ENOUGH));
        assert_eq!(learn(&Awaiting::new(), 3, 20_000), Some(ENOUGH));
    }

    #[test]
    fn late_answers_long_rounds_and_silent_programs_are_something_else() {
        assert_eq!(learn(&Awaiting::new(), 1, 2 * LATE), None);
        assert_eq!(learn(&Awaiting::new(), MOST_POSTS + 1, 20_000), None);
        assert_eq!(learn(&Awaiting::new(), 0, 20_000), None);
    }

    #[test]
    fn a_program_that_polls_is_left_alone() {
        let awaiting = Awaiting::new();
        for _ in 0..100 {
            assert!(!awaiting.posted(|| 0));
            awaiting.answered(1);
            assert!(!awaiting.posted(|| 0));
            awaiting.is_driven();
        }
    }

    #[test]
    fn waiting_in_vain_gets_rare() {
        let awaiting = Awaiting::new();
        let mut waits = 0;
        for _ in 0..1000 {
            if awaiting.posted(|| 0) {
                waits += 1;
                awaiting.awaited(false);
            }
            awaiting.answered(1);
        }
        assert!((2..=6).contains(&waits), "{waits}");
    }

    #[test]
    fn a_wait_that_pays_is_repeated() {
        let awaiting = Awaiting::new();
        learn(&awaiting, 1, 1);
        for _ in 0..100 {
            awaiting.awaited(true);
            assert!(awaiting.posted(|| 0));
        }
    }
}
