// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for something of which there is not enough: first come, first served.
//!
//! A thing that becomes free is handed to the waiter that has waited longest, and belongs to it
//! even before it looks. So no later waiter can snatch it, and a waiter that gives up hands it on.
//! A waiter may need several at once: the first in the line gets them when there are so many, and
//! no other overtakes it meanwhile.

use std::collections::VecDeque;

/// A queue of waiters. `W` is how a waiter is told, unless it is a thread that looks by itself; `G`
/// is what they wait for.
#[derive(Debug)]
pub(super) struct Line<W, G> {
    waiting: VecDeque<Waiter<W>>,
    served: Vec<(u64, G)>,
    next: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: u64,
    need: usize,
    told: Option<W>,
}

impl<W, G> Default for Line<W, G> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), served: Vec::new(), next: 0 }
    }
}

impl<W, G> Line<W, G> {
    /// Joins at the end, for so many; the number is the waiter's.
    pub(super) fn join(&mut self, need: usize, told: Option<W>) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back(Waiter { ticket, need, told });
        ticket
    }

    /// The number that the first needs, if anybody waits.
    pub(super) fn need(&self) -> Option<usize> {
        self.waiting.front().map(|waiter| waiter.need)
    }

    /// Hands `goods` to the first: its number, and how to tell it.
    ///
    /// # Errors
    ///
    /// The goods, if the line is empty.
    pub(super) fn serve(&mut self, goods: G) -> Result<(u64, Option<W>), G> {
        match self.waiting.pop_front() {
            Some(Waiter { ticket, told, .. }) => {
                self.served.push((ticket, goods));
                Ok((ticket, told))
            }
            None => Err(goods),
        }
    }

    /// True if a waiter was not served yet.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_served(&self, ticket: u64) -> bool {
        self.served.iter().any(|(other, _)| *other == ticket)
    }

    /// Takes what the waiter was handed; it is in the line no more then.
    pub(super) fn collect(&mut self, ticket: u64) -> Option<G> {
        let at = self.served.iter().position(|(other, _)| *other == ticket)?;
        Some(self.served.swap_remove(at).1)
    }

    /// Leaves the line. The caller puts back what the waiter was handed meanwhile.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<G> {
        self.waiting.retain(|waiter| waiter.ticket != ticket);
        self.collect(ticket)
    }

    /// Has a waiter told in another way from now on.
    #[cfg(feature = "tokio")]
    pub(super) fn tell(&mut self, ticket: u64, told: W) {
        if let Some(waiter) = self.waiting.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.told = Some(told);
        }
    }

    /// The wakers of those that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().filter_map(|waiter| waiter.told.as_ref())
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_served_first_and_hands_on_what_it_does_not_take() {
        let mut line = Line::<char, u8>::default();
        let (one, two) = (line.join(1, Some('a')), line.join(2, None));
        let three = line.join(1, Some('c'));
        assert_eq!(line.need(), Some(1));
        assert_eq!(line.serve(1), Ok((one, Some('a'))));
        assert!(line.is_served(one) && !line.is_served(two) && line.has_waiting());
        assert_eq!(line.need(), Some(2));
        assert_eq!(line.leave(one), Some(1));
        assert_eq!(line.serve(1), Ok((two, None)));
        assert_eq!(line.collect(two), Some(1));
        assert_eq!((line.collect(two), line.leave(three)), (None, None));
        assert_eq!(line.serve(2), Err(2));
    }
}
