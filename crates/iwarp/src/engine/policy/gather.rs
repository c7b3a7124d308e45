// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posts that wait for the next ones, to go out together.
//!
//! A message that goes out alone costs a system call, a wake-up of the peer, and a short burst on
//! the stream. A program that keeps many requests under way posts several in quick succession
//! between two polls of its completion queue: the first goes out at once, the others together, with
//! the poll or when they are many. If a program did not poll, so that the worker had to find what
//! waited, it is not done again for a long time.
//!
//! A stream whose posts are gathered is marked as full and its poll group as writable, so the next
//! driver of the group sends. A list of requests always goes out together. While a socket is full,
//! posts gather in any case.

use super::penalty::Penalty;
use super::table::{BATCH, HABIT, QUICK};

/// As fast as a CPU writes at least, in most cases.
const OCTETS_PER_NANOSECOND: u64 = 4;

/// The knowledge about one stream.
#[derive(Debug)]
pub(super) struct Gather {
    /// The poll after which these were posted and wait.
    poll: u32,
    posts: u32,
    octets: usize,
    /// When something was posted last, of what was not the first after a poll: that one asks for no
    /// clock.
    last: u64,
    /// Polls that were followed by posts.
    known: u32,
    /// Posts go out at once after the worker had to see to some.
    penalty: Penalty,
    /// Of the send queue, what may wait.
    limit: u32,
    /// Bytes that go out together: more gain nothing by waiting.
    room: usize,
}

impl Gather {
    /// For a send queue of that depth, and a stream that takes so many bytes at a time.
    pub(super) fn new(depth: usize, room: usize) -> Self {
        Self {
            poll: u32::MAX,
            posts: 0,
            octets: 0,
            last: 0,
            known: 0,
            penalty: Penalty::new(),
            limit: u32::try_from(depth / 4).unwrap_or(BATCH).min(BATCH),
            room,
        }
    }

    /// Requests are posted after so many polls. Returns the time since which they wait, if they do.
    #[inline]
    pub(super) fn posted(
        &mut self,
        polls: u32,
        octets: impl FnOnce() -> usize,
        clock: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if self.poll != polls {
            // The first since: it goes out, and counts for nothing.
            if self.posts > 0 {
                self.released(false);
            }
            self.poll = polls;
            self.known = self.known.saturating_add(1);
            return None;
        }
        if self.known <= HABIT {
            return None;
        }
        let now = clock();
        let quick = now.saturating_sub(std::mem::replace(&mut self.last, now)) < QUICK;
        if !quick || self.penalty.applies() {
            return None;
        }
        self.posts += 1;
        self.octets = self.octets.saturating_add(octets());
        if self.posts >= self.limit || self.octets >= self.room {
            // They are sent in this post, which takes its time: the next may still be quick.
            self.last = now.saturating_add(self.octets as u64 / OCTETS_PER_NANOSECOND);
            self.begin();
            return None;
        }
        Some(now)
    }

    const fn begin(&mut self) {
        self.posts = 0;
        self.octets = 0;
    }

    /// A message that waited has gone out by the program's own doing, or the worker had to see to
    /// it.
    fn released(&mut self, by_worker: bool) {
        self.penalty.judge(by_worker);
        self.begin();
    }

    /// The worker had to see to what waited.
    pub(super) fn found_by_worker(&mut self) {
        if self.posts > 0 {
            self.released(true);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    const ROOM: usize = 256 << 10;

    /// Posts something at this time; true if it waits.
    fn posts(gather: &mut Gather, now: u64, polls: u32, octets: usize) -> bool {
        gather.posted(polls, || octets, || now).is_some()
    }

    /// A program that has polled often.
    fn polling(depth: usize) -> Gather {
        let mut gather = Gather::new(depth, ROOM);
        for poll in 0..=HABIT {
            assert!(!posts(&mut gather, 0, poll, 64), "it is the only one after a poll");
        }
        gather
    }

    #[test]
    fn several_posts_wait_for_the_poll_or_until_they_are_many() {
        let mut gather = polling(1024);
        let waited = (0..100).take_while(|_| posts(&mut gather, 0, HABIT, 64)).count();
        assert_eq!(waited as u32, BATCH - 1);
        let waited = (0..100).take_while(|_| posts(&mut gather, 0, HABIT, 65_536)).count();
        assert_eq!(waited, ROOM / 65_536 - 1);
    }

    #[test]
    fn the_time_that_sending_takes_does_not_make_the_next_post_slow() {
        let mut gather = polling(1024);
        let full = ROOM / 65_536 - 1;
        assert!((0..full).all(|_| posts(&mut gather, 0, HABIT, 65_536)));
        assert!(!posts(&mut gather, 0, HABIT, 65_536));
        let sent = QUICK + ROOM as u64 / OCTETS_PER_NANOSECOND / 2;
        assert!(posts(&mut gather, sent, HABIT, 65_536));
        assert!(!posts(&mut gather, sent + QUICK, HABIT, 65_536));
    }

    #[test]
    fn a_short_queue_is_not_filled() {
        let mut gather = polling(8);
        assert!(posts(&mut gather, 0, HABIT, 64));
        assert!(!posts(&mut gather, 0, HABIT, 64));
    }

    #[test]
    fn a_program_that_never_polls_is_left_alone() {
        let mut gather = Gather::new(128, ROOM);
        assert!((0..100).all(|_| !posts(&mut gather, 0, 0, 64)));
    }

    #[test]
    fn a_post_now_and_then_goes_out_at_once() {
        let mut gather = polling(128);
        assert!((1..100).all(|number| !posts(&mut gather, number * QUICK, HABIT, 64)));
    }

    #[test]
    fn waiting_gets_rare_where_the_worker_had_to_find_requests() {
        let mut gather = polling(128);
        let mut found = 0;
        for _ in 0..10_000 {
            if posts(&mut gather, 0, HABIT, 64) {
                gather.found_by_worker();
                found += 1;
            }
        }
        assert!((2..=5).contains(&found), "{found}");
    }

    #[test]
    fn polls_that_send_in_time_lower_the_penalty() {
        let mut gather = polling(128);
        assert!(posts(&mut gather, 0, HABIT, 64));
        gather.found_by_worker();
        let wait = |gather: &mut Gather, poll| {
            (1..).find(|_| posts(gather, 0, poll, 64)).expect("some wait")
        };
        assert_eq!(wait(&mut gather, HABIT), 257, "it is left out for a while");
        // Polls send what waits, which is remembered when the next one is posted.
        posts(&mut gather, 0, HABIT + 1, 64);
        assert_eq!(wait(&mut gather, HABIT + 1), 1);
        posts(&mut gather, 0, HABIT + 2, 64);
        gather.found_by_worker();
        assert_eq!(wait(&mut gather, HABIT + 2), 1, "nothing waited that it could have found");
    }
}
