// SPDX-License-Identifier: MIT OR Apache-2.0

//! The habits of a program with one queue pair, and what its posts and acknowledgements had better
//! do. Kept under the lock of the queue pair's core, which posts and receivers take anyway.

use super::Behaviours;
use super::awaiting::Awaiting;
use super::gather::Gather;
use super::piggyback::Piggyback;

/// The visible state of a program when it posts. Asked only for what matters.
pub(crate) trait Post {
    /// The time, in nanoseconds.
    fn now(&self) -> u64;
    /// Bytes of the requests.
    fn octets(&self) -> usize;
    /// The program may sleep until the worker completes something.
    fn is_asleep(&self) -> bool;
    /// A number that changes when the completion queue of sends is polled.
    fn polls(&self) -> u32;
    /// A number that changes when either completion queue is polled in vain.
    fn polls_in_vain(&self) -> u32;
}

/// The fate of a posted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// It goes out.
    Send,
    /// It goes out, and the caller thread stays for the answer.
    SendAndAwait,
    /// It waits, since this time, for what is going to be posted, until the next poll.
    Hold(u64),
}

/// The way in which the peer's messages came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// A caller received them, or the worker while the program sleeps until it does.
    Expected,
    /// The worker received them, and no caller had asked for them.
    Unasked,
    /// A post that stayed for the answer received them, or one of receives.
    InPost,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Habits {
    awaiting: Awaiting,
    gather: Gather,
    piggyback: Piggyback,
    without: Behaviours,
}

impl Habits {
    /// No habits are known. For a send queue of that depth, and a stream that takes so many bytes
    /// at a time.
    pub(crate) fn new(depth: usize, room: usize, without: Behaviours) -> Self {
        Self {
            awaiting: Awaiting::new(),
            gather: Gather::new(depth, room),
            piggyback: Piggyback::new(),
            without,
        }
    }

    /// The program has posted something.
    #[inline]
    pub(crate) fn posted(&mut self, post: &impl Post) -> Advice {
        self.piggyback.posted(|| post.polls_in_vain());
        let awaits = self.awaiting.posted(|| post.now());
        if !self.awaiting.is_likely() {
            let may_gather = !self.without.contains(Behaviours::GATHER) && !post.is_asleep();
            if may_gather
                && let Some(since) =
                    self.gather.posted(post.polls(), || post.octets(), || post.now())
            {
                return Advice::Hold(since);
            }
        } else if awaits && !post.is_asleep() {
            return Advice::SendAndAwait;
        }
        Advice::Send
    }

    /// The peer has sent so many messages.
    #[inline]
    pub(crate) fn arrived(&mut self, messages: u64, how: Arrival, now: impl FnOnce() -> u64) {
        if !self.awaiting.has_news(messages) {
            return;
        }
        match how {
            Arrival::Unasked if !self.without.contains(Behaviours::AWAITING) => {
                self.awaiting.answered(now());
            }
            Arrival::Unasked | Arrival::Expected => self.awaiting.is_driven(),
            Arrival::InPost => {}
        }
    }

    /// A post has stayed for the answer, and it has come or not.
    pub(crate) fn awaited(&mut self, came: bool) {
        self.awaiting.awaited(came);
    }

    /// The peer is to be told what was received, after so many polls in vain. True if that waits
    /// for the program's next message.
    pub(crate) fn may_wait_for_company(&mut self, polls_in_vain: u32) -> bool {
        !self.without.contains(Behaviours::PIGGYBACK) && self.piggyback.is_to_wait(polls_in_vain)
    }

    /// Something was held back, and the worker had to see to it.
    #[cold]
    pub(crate) fn found_by_worker(&mut self) {
        self.gather.found_by_worker();
        self.piggyback.found_by_worker();
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::super::table::{HABIT, QUICK};
    use super::*;

    /// A program of the test's, at some moment.
    #[derive(Clone, Copy, Default)]
    struct Program {
        now: u64,
        asleep: bool,
        polls: u32,
        polls_in_vain: u32,
    }

    impl Post for Program {
        fn now(&self) -> u64 {
            self.now
        }
        fn octets(&self) -> usize {
            64
        }
        fn is_asleep(&self) -> bool {
            self.asleep
        }
        fn polls(&self) -> u32 {
            self.polls
        }
        fn polls_in_vain(&self) -> u32 {
            self.polls_in_vain
        }
    }

    impl Program {
        /// Posts twice after each of some polls. Returns the advice to the last post.
        fn stream(mut self, habits: &mut Habits) -> Advice {
            let mut last = Advice::Send;
            for poll in 0..10 {
                self.polls = poll;
                assert_eq!(habits.posted(&self), Advice::Send);
                self.now += QUICK / 4;
                last = habits.posted(&self);
            }
            last
        }

        /// Asks and has the answer received for it, until a post stays for it.
        fn ask(self, habits: &mut Habits) -> Option<u64> {
            (1..100).find(|&round| {
                let advice = habits.posted(&self);
                habits.arrived(round, Arrival::Unasked, || self.now);
                advice == Advice::SendAndAwait
            })
        }
    }

    fn habits() -> Habits {
        Habits::new(128, 1 << 18, Behaviours::empty())
    }

    #[test]
    fn a_stream_of_posts_gathers_unless_the_program_sleeps_or_it_is_switched_off() {
        let program = Program::default();
        assert!(matches!(program.stream(&mut habits()), Advice::Hold(_)));
        let asleep = Program { asleep: true, ..program };
        assert_eq!(asleep.stream(&mut habits()), Advice::Send);
        let mut without = Habits::new(128, 1 << 18, Behaviours::GATHER);
        assert_eq!(program.stream(&mut without), Advice::Send);
    }

    #[test]
    fn answers_are_awaited_unless_the_program_sleeps_or_it_is_switched_off() {
        let program = Program::default();
        assert_eq!(program.ask(&mut habits()), Some(u64::from(HABIT) + 1));
        let asleep = Program { asleep: true, ..program };
        assert_eq!(asleep.ask(&mut habits()), None);
        assert_eq!(program.ask(&mut Habits::new(128, 1 << 18, Behaviours::AWAITING)), None);
    }

    #[test]
    fn a_program_that_may_await_answers_gathers_nothing() {
        let mut habits = habits();
        let program = Program::default();
        assert!(matches!(program.stream(&mut habits), Advice::Hold(_)));
        habits.arrived(1, Arrival::Unasked, || 0);
        assert_eq!(program.stream(&mut habits), Advice::Send);
        habits.arrived(2, Arrival::Expected, || 0);
        assert!(matches!(program.stream(&mut habits), Advice::Hold(_)));
    }

    #[test]
    fn an_acknowledgement_waits_unless_it_is_switched_off() {
        let last = |mut habits: Habits| {
            let answer = |habits: &mut Habits| {
                let waits = habits.may_wait_for_company(7);
                habits.posted(&Program { polls_in_vain: 7, ..Program::default() });
                waits
            };
            (0..10).map(|_| answer(&mut habits)).last().expect("ten answers")
        };
        assert!(last(habits()));
        assert!(!last(Habits::new(128, 1 << 18, Behaviours::PIGGYBACK)));
    }

    #[test]
    fn requests_that_the_worker_had_to_find_are_held_no_more() {
        let mut habits = habits();
        assert!(matches!(Program::default().stream(&mut habits), Advice::Hold(_)));
        habits.found_by_worker();
        assert_eq!(Program::default().stream(&mut habits), Advice::Send);
    }
}
