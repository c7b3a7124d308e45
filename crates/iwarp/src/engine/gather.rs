//! Which posts wait for the next ones, to go out together.
//!
//! A message that goes out alone costs a system call, a wake-up of the peer, and a short burst on
//! the stream. A program that keeps many requests under way posts several in quick succession
//! between two polls of its completion queue: the first goes out at once, the others together, with
//! the poll or when they are many. Where a program did not poll, so that the worker had to find
//! what waited, it is not done again for a long time.

use crate::engine::penalty::Penalty;
use crate::engine::sync::{AtomicU32, AtomicU64, Ordering};

/// Octets that wait at most.
const MOST_OCTETS: u32 = 512 * 1024;
/// Requests that wait at most.
const MOST_POSTS: u32 = 32;
/// Time between two posts at most, in nanoseconds: the second may be one of many.
const QUICK: u64 = 50_000;
/// Posts after as many polls, before a program is known to do that.
const KNOWN: u32 = 4;

/// What was learned of one stream. All of it is a hint: races between threads cost some time at
/// worst.
#[derive(Debug)]
pub(crate) struct Gather {
    /// The poll after which these were posted.
    poll: AtomicU32,
    posts: AtomicU32,
    octets: AtomicU32,
    /// When something was posted last.
    last: AtomicU64,
    /// Polls that were followed by posts.
    known: AtomicU32,
    /// Posts go out at once after the worker had to see to some.
    penalty: Penalty,
    /// Of the send queue, what may wait.
    limit: u32,
}

impl Gather {
    /// For a send queue of that depth.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            poll: AtomicU32::new(u32::MAX),
            posts: AtomicU32::new(0),
            octets: AtomicU32::new(0),
            last: AtomicU64::new(0),
            known: AtomicU32::new(0),
            penalty: Penalty::new(),
            limit: u32::try_from(depth / 4).unwrap_or(MOST_POSTS).min(MOST_POSTS),
        }
    }

    /// Requests with so many octets were posted, after so many polls. Whether they wait; where they
    /// do not, [`Self::sent`] says when they had gone.
    pub(crate) fn posted(
        &self,
        polls: u32,
        octets: impl FnOnce() -> usize,
        clock: impl FnOnce() -> u64,
    ) -> bool {
        let known = self.known.load(Ordering::Relaxed);
        if self.poll.load(Ordering::Relaxed) != polls {
            // The first since: it goes out, and counts for nothing.
            self.poll.store(polls, Ordering::Relaxed);
            self.known.store(known.saturating_add(1), Ordering::Relaxed);
            self.begin();
            return false;
        }
        if known <= KNOWN {
            return false;
        }
        let now = clock();
        let quick = now.saturating_sub(self.last.load(Ordering::Relaxed)) < QUICK;
        self.last.store(now, Ordering::Relaxed);
        if !quick {
            return false;
        }
        if self.penalty.applies() {
            return false;
        }
        let octets = u32::try_from(octets()).unwrap_or(MOST_OCTETS);
        let octets = self.octets.load(Ordering::Relaxed).saturating_add(octets);
        let posts = self.posts.load(Ordering::Relaxed) + 1;
        if posts >= self.limit || octets >= MOST_OCTETS {
            self.begin();
            return false;
        }
        self.posts.store(posts, Ordering::Relaxed);
        self.octets.store(octets, Ordering::Relaxed);
        true
    }

    /// What was posted last had gone out at that time.
    pub(crate) fn sent(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
    }

    fn begin(&self) {
        self.posts.store(0, Ordering::Relaxed);
        self.octets.store(0, Ordering::Relaxed);
    }

    /// What waited has gone out by the program's own doing, or the worker had to see to it.
    pub(crate) fn released(&self, by_worker: bool) {
        self.penalty.judge(by_worker);
        self.begin();
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// A program that has polled often.
    fn polling(depth: usize) -> Gather {
        let gather = Gather::new(depth);
        for poll in 0..=KNOWN {
            assert!(!gather.posted(poll, || 64, || 0), "it is the only one after a poll");
        }
        gather
    }

    #[test]
    fn several_posts_wait_for_the_poll_or_until_they_are_many() {
        let gather = polling(1024);
        let waited = (0..100).take_while(|_| gather.posted(KNOWN, || 64, || 0)).count();
        assert_eq!(waited as u32, MOST_POSTS - 1);
        let waited = (0..100).take_while(|_| gather.posted(KNOWN, || 65_536, || 0)).count();
        assert_eq!(waited as u32, MOST_OCTETS / 65_536 - 1);
    }

    #[test]
    fn a_short_queue_is_not_filled() {
        let gather = polling(8);
        assert!(gather.posted(KNOWN, || 64, || 0));
        assert!(!gather.posted(KNOWN, || 64, || 0));
    }

    #[test]
    fn a_program_that_never_polls_is_left_alone() {
        let gather = Gather::new(128);
        assert!((0..100).all(|_| !gather.posted(0, || 64, || 0)));
    }

    #[test]
    fn a_post_now_and_then_goes_out_at_once() {
        let gather = polling(128);
        assert!((1..100).all(|number| !gather.posted(KNOWN, || 64, || number * QUICK)));
    }

    #[test]
    fn what_the_worker_had_to_find_does_not_happen_again_soon() {
        let gather = polling(128);
        let mut found = 0;
        for _ in 0..10_000 {
            if gather.posted(KNOWN, || 64, || 0) {
                gather.released(true);
                found += 1;
            }
        }
        assert!((2..=5).contains(&found), "{found}");
    }
}
