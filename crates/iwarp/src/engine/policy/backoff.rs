// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time that a program that polls an empty queue keeps its CPU.
//!
//! Its peer may need that CPU: then every poll that finds nothing is better a yield. The length of
//! a yield tells whether another thread wanted the CPU. If several yields in a row were taken up
//! and brought nothing, or one took milliseconds, because some other program had the CPU, the
//! caller had better sleep for a moment: a thread that sleeps gets the CPU back as soon as
//! something has come.
//!
//! Kept by the driver of a poll group, which each such poll becomes.
//!
//! A poll that is about to yield first lends a hand to other groups: see `Group::lend_a_hand`.

use std::time::Duration;

use super::Behaviours;
use super::penalty::Penalty;
use super::table::{FEW, HABIT, LEASE, LOOP, PAUSE, PENALTY, TAKEN};

/// A yield that takes less was taken up by no other thread, even if the shortest was far shorter.
const UNTAKEN: u64 = LEASE / 250;
/// A yield that takes more was taken up by a thread that is not answering.
const LONG: u64 = LEASE;
/// The number of times that the length of a sleep doubles, where completions come in another way
/// than from what it waits for.
const DOUBLINGS: u32 = HABIT;

/// The next act of a caller whose poll has found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// It polls again.
    None,
    /// It moves what is ready for others.
    Lend,
    /// It does that, and where there was nothing gives its CPU to another thread.
    Yield,
    /// Likewise, or where there are no others sleeps until something comes, or for so long.
    Sleep(Duration),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Polls in a row that found nothing.
    empty: u32,
    /// Polls that have found something, as of the last that did not.
    found: u32,
    /// The number that is enough.
    polls: u32,
    /// Likewise, since a yield that no other thread took up.
    until: u32,
    least: u32,
    /// The only CPU that the thread may run on. The peer may need it.
    cpu: Option<usize>,
    /// Yields on it in a row that no other thread took up.
    untaken: u32,
    /// The shortest yield.
    shortest: u64,
    /// Yields in a row that were taken up, and after which nothing had come.
    in_vain: u32,
    /// Yields are left out, and it sleeps, where one took too long.
    wary: Penalty,
    /// Sleeps in a row that were in vain.
    overslept: u32,
    without: Behaviours,
}

impl Backoff {
    pub(crate) fn new(without: Behaviours) -> Self {
        let cpu = iwarp_os::clock::only_cpu();
        Self {
            empty: 0,
            found: 0,
            polls: if cpu.is_some() { 0 } else { LOOP },
            until: 0,
            least: u32::from(cpu.is_none()),
            cpu,
            untaken: 0,
            shortest: LONG,
            in_vain: 0,
            wary: Penalty::between(FEW, PENALTY),
            overslept: 0,
            without,
        }
    }

    /// A poll has moved something.
    pub(crate) const fn moved(&mut self) {
        self.empty = 0;
        self.until = 0;
        self.in_vain = 0;
    }

    /// A poll has found nothing. `found`: how many have found something so far.
    pub(crate) fn found_nothing(&mut self, found: u32) -> Rest {
        if std::mem::replace(&mut self.found, found) != found {
            self.moved();
        }
        let empty = self.empty;
        self.empty = empty.saturating_add(1);
        if empty >= self.polls.max(self.until) {
            self.rest()
        } else if empty >= LOOP {
            Rest::Lend
        } else {
            Rest::None
        }
    }

    fn rest(&mut self) -> Rest {
        if self.wary.applies() {
            return self.sleep();
        }
        if self.in_vain < HABIT {
            return Rest::Yield;
        }
        // Then a yield is tried again, which tells whether the CPU is still wanted.
        self.in_vain = HABIT - 1;
        self.sleep()
    }

    fn sleep(&self) -> Rest {
        Rest::Sleep(Duration::from_nanos(PAUSE) * (1 << self.overslept))
    }

    /// The caller has slept; `came`: something has come.
    pub(crate) fn has_slept(&mut self, came: bool) {
        self.overslept = if came { 0 } else { (self.overslept + 1).min(DOUBLINGS) };
    }

    /// A yield took so many nanoseconds. True where it matters now by which CPU input comes: then
    /// [`Self::input_came_by`].
    pub(crate) fn has_yielded(&mut self, took: u64) -> bool {
        if self.without.contains(Behaviours::BACKOFF) {
            return false;
        }
        self.shortest = self.shortest.min(took);
        self.wary.judge(took >= LONG);
        if took < UNTAKEN.max(TAKEN * self.shortest) {
            self.in_vain = 0;
            if self.cpu.is_some() {
                self.untaken += 1;
                return self.untaken >= LOOP;
            }
            self.polls = (self.polls + 1).min(LOOP);
            // A completion that comes in the time that a yield takes is noticed late.
            self.until = self.empty.saturating_add(self.polls);
            return false;
        }
        self.untaken = 0;
        self.in_vain = self.in_vain.saturating_add(1);
        self.polls = (self.polls / 2).max(self.least);
        false
    }

    /// The last input came by that CPU: a peer on this host runs there, and then its thread has no
    /// need of the caller's. If it is the caller's own, or is not known, all stays as it is.
    pub(crate) fn input_came_by(&mut self, cpu: Option<usize>) {
        self.untaken = 0;
        if cpu.is_some() && cpu != self.cpu {
            self.cpu = None;
            (self.polls, self.least) = (LOOP, 1);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    const NAP: Rest = Rest::Sleep(Duration::from_nanos(PAUSE));

    fn backoff() -> Backoff {
        Backoff {
            polls: LOOP,
            least: 1,
            cpu: None,
            shortest: 300,
            ..Backoff::new(Behaviours::empty())
        }
    }

    /// Polls that find nothing until the caller is to do something, and what that is.
    fn until_rest(backoff: &mut Backoff) -> (u32, Rest) {
        (1..)
            .find_map(|polls| match backoff.found_nothing(backoff.found) {
                Rest::None => None,
                rest => Some((polls, rest)),
            })
            .expect("some time")
    }

    #[test]
    fn a_peer_on_the_same_cpu_gets_it_at_once() {
        let mut backoff = backoff();
        assert_eq!(until_rest(&mut backoff), (LOOP + 1, Rest::Yield));
        for _ in 0..10 {
            assert_eq!(until_rest(&mut backoff).1, Rest::Yield);
            backoff.has_yielded(8_000);
            backoff.moved();
        }
        assert_eq!(until_rest(&mut backoff), (2, Rest::Yield));
        // It has gone elsewhere.
        (0..LOOP).for_each(|_| {
            backoff.has_yielded(300);
        });
        backoff.moved();
        assert_eq!(until_rest(&mut backoff), (LOOP + 1, Rest::Yield));
    }

    #[test]
    fn among_many_that_want_the_cpu_one_sleeps() {
        let mut backoff = backoff();
        for _ in 0..HABIT {
            assert_eq!(until_rest(&mut backoff).1, Rest::Yield);
            backoff.has_yielded(8_000);
        }
        assert_eq!(until_rest(&mut backoff).1, NAP);
        // Are they still there?
        assert_eq!(until_rest(&mut backoff).1, Rest::Yield);
        backoff.has_yielded(8_000);
        assert_eq!(until_rest(&mut backoff).1, NAP);
        backoff.moved();
        assert_eq!(until_rest(&mut backoff).1, Rest::Yield);
    }

    /// Naps until the next yield.
    fn naps(backoff: &mut Backoff) -> u32 {
        let rests = std::iter::repeat_with(|| {
            backoff.moved();
            until_rest(backoff).1
        });
        rests.take_while(|rest| *rest == NAP).count() as u32
    }

    #[test]
    fn a_thread_that_takes_the_cpu_for_long_gets_it_ever_more_seldom() {
        let mut backoff = backoff();
        for expected in [FEW, 4 * FEW, PENALTY, PENALTY] {
            backoff.has_yielded(3_000_000);
            assert_eq!(naps(&mut backoff), expected);
        }
        // It is gone.
        (0..LOOP).for_each(|_| {
            backoff.has_yielded(300);
        });
        backoff.has_yielded(3_000_000);
        assert_eq!(naps(&mut backoff), FEW);
    }

    #[test]
    fn a_caller_that_sleeps_in_vain_sleeps_longer() {
        let mut backoff = backoff();
        backoff.has_yielded(3_000_000);
        for doubling in [0, 1, 2, 3, 4, 4] {
            let time = Duration::from_nanos(PAUSE << doubling);
            assert_eq!(until_rest(&mut backoff).1, Rest::Sleep(time));
            backoff.has_slept(false);
        }
        backoff.has_slept(true);
        assert_eq!(until_rest(&mut backoff).1, NAP);
    }

    #[test]
    fn slow_system_calls_are_not_a_peer() {
        let mut backoff = Backoff { shortest: LONG, ..backoff() };
        (0..10).for_each(|_| {
            backoff.has_yielded(15_000);
        });
        assert_eq!(until_rest(&mut backoff), (LOOP + 1, Rest::Yield));
    }

    #[test]
    fn on_its_only_cpu_a_program_yields_until_input_comes_by_another() {
        let mut backoff = Backoff { polls: 0, least: 0, cpu: Some(3), ..backoff() };
        for cpu in [None, Some(3), Some(3), Some(2)] {
            for yields in 1..=LOOP {
                assert_eq!(until_rest(&mut backoff), (1, Rest::Yield));
                assert_eq!(backoff.has_yielded(300), yields == LOOP);
            }
            backoff.input_came_by(cpu);
        }
        backoff.moved();
        assert_eq!(until_rest(&mut backoff), (LOOP + 1, Rest::Yield));
        assert!(!backoff.has_yielded(300));
    }

    #[test]
    fn yields_that_nobody_takes_up_are_seldom() {
        let mut backoff = backoff();
        let mut polls_until_yield = || {
            let rests = std::iter::repeat_with(|| backoff.found_nothing(backoff.found));
            let polls = 1 + rests.take_while(|rest| *rest != Rest::Yield).count();
            backoff.has_yielded(300);
            polls as u32
        };
        assert_eq!([polls_until_yield(), polls_until_yield()], [LOOP + 1; 2]);
    }

    #[test]
    fn a_poll_that_finds_something_ends_the_count() {
        let mut backoff = backoff();
        (0..LOOP).for_each(|_| assert_eq!(backoff.found_nothing(5), Rest::None));
        assert_eq!(backoff.found_nothing(6), Rest::None);
        assert_eq!(until_rest(&mut backoff), (LOOP, Rest::Yield));
    }

    #[test]
    fn without_it_a_caller_yields_after_many_polls() {
        let mut backoff = Backoff { without: Behaviours::BACKOFF, ..backoff() };
        (0..10).for_each(|_| {
            backoff.has_yielded(3_000_000);
        });
        assert_eq!(until_rest(&mut backoff), (LOOP + 1, Rest::Yield));
    }
}
