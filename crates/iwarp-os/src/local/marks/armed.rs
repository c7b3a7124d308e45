// SPDX-License-Identifier: MIT OR Apache-2.0

//! The completion queues of one side that are armed: a word for each.
//!
//! A program that waits for an event sleeps on a descriptor of its own. Its side puts the number of
//! that descriptor into the queue's word when the program arms the queue. A sender that has put a
//! message into a ring which completes there takes the word out, and signals the descriptor: the
//! program comes without a thread in between. The words say so much and no more: a sender that
//! finds none, or cannot signal, wakes the other side as for any other message. `tests/loom`
//! compiles this file once more, with the atomics of a model checker.

use crate::sync::{AtomicU32, Ordering, fence};

/// In a word: only a message with a solicited event counts.
const SOLICITED: u32 = 1 << 31;

/// The words of one side, which it writes itself, but for those that the other takes out.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Armed<const QUEUES: usize>(pub(crate) [AtomicU32; QUEUES]);

impl<const QUEUES: usize> Armed<QUEUES> {
    /// The queue is armed: the next message that completes there, or the next solicited one, is to
    /// signal the descriptor of that number, which is not 0. To be followed by a look at what has
    /// come, as a sender that was faster has not seen it. False where it was not armed before, or
    /// the other side has taken that word out.
    pub(crate) fn arm(&self, queue: usize, descriptor: u32, solicited_only: bool) -> bool {
        let word = descriptor | if solicited_only { SOLICITED } else { 0 };
        let before = self.0[queue].swap(word, Ordering::AcqRel);
        // Of this and a sender's look, which comes behind its message, one sees the other.
        fence(Ordering::SeqCst);
        before != 0
    }

    /// The queue is armed no more. False where it was not, or the other side was faster.
    pub(crate) fn disarm(&self, queue: usize) -> bool {
        let word = &self.0[queue];
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
    }

    /// True if the queue, if there is one of that number, was armed a moment ago.
    #[inline]
    pub(crate) fn is_armed(&self, queue: usize) -> bool {
        self.0.get(queue).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// The other side has put in a message that completes in the queue. Takes the word out where
    /// that is to signal a descriptor, and `may` says that the number is a known one. The caller
    /// signals it.
    pub(crate) fn take<T>(
        &self,
        queue: usize,
        is_solicited: bool,
        may: impl FnOnce(u32) -> Option<T>,
    ) -> Option<T> {
        fence(Ordering::SeqCst);
        let word = &self.0[queue];
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 || (seen & SOLICITED != 0 && !is_solicited) {
            return None;
        }
        let known = may(seen & !SOLICITED)?;
        let (taken, not) = (Ordering::AcqRel, Ordering::Relaxed);
        word.compare_exchange(seen, 0, taken, not).is_ok().then_some(known)
    }
}
