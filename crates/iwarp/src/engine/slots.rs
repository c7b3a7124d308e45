// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slots of the work queues: a post takes one, and it is free again when the program has polled
//! the completion.
//!
//! The drivers of RNICs have it so, which advance their queues in `poll_cq`, and programs rely on
//! it: they post until a queue is full, and make the completion queue as deep as the queues that
//! end there. A request without a completion gives its slot back with the next one of its queue
//! that has one. A program that asks for none at all would wait for ever with such a driver; here
//! the slots of requests that are done without a completion are forgiven while none waits to be
//! polled, unless the user wants it as there (`IWARP_STRICT`).
//!
//! The posting thread counts what is taken, under the queue pair's lock. A completion names the
//! queue and the number of slots that it frees; the thread that polls adds that up, under the
//! completion queue's lock.

use std::sync::Arc;

use crate::engine::sync::{AtomicU32, Ordering};

/// Slots that came back, as a number that wraps.
#[derive(Debug)]
pub(crate) struct Returned {
    slots: AtomicU32,
    /// They come back through several completion queues.
    by_several: bool,
}

impl Returned {
    /// Slots of a queue that completes in one completion queue.
    fn of_queue_pair() -> Arc<Self> {
        Arc::new(Self { slots: AtomicU32::new(0), by_several: false })
    }

    /// Slots of a shared receive queue.
    pub(crate) fn of_shared_queue() -> Arc<Self> {
        Arc::new(Self { slots: AtomicU32::new(0), by_several: true })
    }

    /// Called with the one completion queue locked, unless several count here.
    #[inline]
    pub(crate) fn add(&self, slots: u32) {
        if self.by_several {
            self.slots.fetch_add(slots, Ordering::Relaxed);
        } else {
            // Cheaper than to exclude others, of whom there are none.
            let before = self.slots.load(Ordering::Relaxed);
            self.slots.store(before.wrapping_add(slots), Ordering::Relaxed);
        }
    }

    /// A program that has polled in one thread and posts in another makes the one come before the
    /// other itself.
    fn count(&self) -> u32 {
        self.slots.load(Ordering::Relaxed)
    }

    /// True if fewer than `capacity` of so many slots are still taken.
    pub(crate) fn leaves_room(&self, taken: u32, capacity: usize) -> bool {
        (taken.wrapping_sub(self.count()) as usize) < capacity
    }

    fn left_of(&self, taken: u32, capacity: usize) -> usize {
        capacity.saturating_sub(taken.wrapping_sub(self.count()) as usize)
    }
}

/// Slots of a send queue.
#[derive(Debug)]
pub(crate) struct SendSlots {
    capacity: usize,
    taken: u32,
    /// The places that will have come back when all completions are polled that there are.
    reported: u32,
    /// Requests without a completion that are done and stand behind the last one that has one.
    silent: u32,
    /// Requests without a completion that were posted in a row.
    unsignaled: usize,
    /// No slots are forgiven.
    strict: bool,
    returned: Arc<Returned>,
}

impl SendSlots {
    pub(crate) fn new(capacity: usize, strict: bool) -> Self {
        let returned = Returned::of_queue_pair();
        Self { capacity, taken: 0, reported: 0, silent: 0, unsignaled: 0, strict, returned }
    }

    pub(crate) const fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    /// True where requests without a completion are forgiven now.
    fn forgives(&self) -> bool {
        !self.strict && self.returned.count() == self.reported
    }

    /// True if a request may be posted, as far as completions are concerned: the queue itself knows
    /// what is not done.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.returned.leaves_room(self.taken, self.capacity) || self.forgives()
    }

    /// True if the program has polled all but fewer than so many.
    pub(crate) fn has_fewer_than(&self, few: usize) -> bool {
        self.returned.leaves_room(self.taken, few)
    }

    /// The number that may be posted while so many are not done.
    pub(crate) fn room(&self, outstanding: usize) -> usize {
        match self.forgives() {
            true => self.capacity.saturating_sub(outstanding),
            false => self.returned.left_of(self.taken, self.capacity),
        }
    }

    /// A request is posted. True for the first that no other device would take, as no request among
    /// as many as the queue holds has a completion that could be polled.
    pub(crate) const fn take(&mut self, signaled: bool) -> bool {
        self.taken = self.taken.wrapping_add(1);
        self.unsignaled = if signaled { 0 } else { self.unsignaled.saturating_add(1) };
        self.unsignaled == self.capacity.saturating_add(1)
    }

    /// A request is not posted, as the queue is full. True for the first where nothing that is
    /// posted has a completion, which would fill the queue of any other device for good.
    pub(crate) const fn refuse(&mut self) -> bool {
        let first = self.unsignaled == self.capacity;
        if first {
            self.unsignaled += 1;
        }
        first
    }

    /// So many requests are done without a completion, and the next has one.
    pub(crate) fn pass_over(&mut self, silent: u32) {
        if self.forgives() {
            // Forgiven.
            self.taken = self.taken.wrapping_sub(silent);
        } else {
            self.silent = silent;
        }
    }

    /// A request has a completion. Returns the number of slots that come back with it.
    pub(crate) fn report(&mut self) -> u32 {
        let slots = 1 + std::mem::take(&mut self.silent);
        self.reported = self.reported.wrapping_add(slots);
        slots
    }

    /// Requests that were posted, and whose end the core has not told.
    pub(crate) const fn untold(&self) -> u32 {
        self.taken.wrapping_sub(self.reported).wrapping_sub(self.silent)
    }

    /// As new. The completion queue has forgotten what would still come back.
    pub(crate) fn reset(&mut self) {
        (self.taken, self.reported, self.silent, self.unsignaled) = (0, 0, 0, 0);
        self.returned.slots.store(0, Ordering::Relaxed);
    }
}

/// Slots of a queue pair's own receive queue: each receive has a completion.
#[derive(Debug)]
pub(crate) struct ReceiveSlots {
    capacity: usize,
    taken: u32,
    returned: Arc<Returned>,
}

impl ReceiveSlots {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, taken: 0, returned: Returned::of_queue_pair() }
    }

    pub(crate) const fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    pub(crate) fn has_room(&self) -> bool {
        self.returned.leaves_room(self.taken, self.capacity)
    }

    pub(crate) fn room(&self) -> usize {
        self.returned.left_of(self.taken, self.capacity)
    }

    pub(crate) const fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// As [`SendSlots::reset`].
    pub(crate) fn reset(&mut self) {
        self.taken = 0;
        self.returned.slots.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::SendSlots;

    /// Posts as many as there is room for; nothing is done meanwhile.
    fn fill(slots: &mut SendSlots, outstanding: usize) -> usize {
        let room = slots.room(outstanding);
        for _ in 0..room {
            assert!(slots.has_room());
            slots.take(true);
        }
        room
    }

    #[test]
    fn a_slot_is_free_when_its_completion_was_polled() {
        let mut slots = SendSlots::new(4, false);
        // So that all numbers wrap.
        slots.taken = u32::MAX - 2;
        slots.reported = u32::MAX - 2;
        slots.returned.slots.store(u32::MAX - 2, super::Ordering::Relaxed);
        for _ in 0..10 {
            assert_eq!(fill(&mut slots, 0), 4);
            for _ in 0..4 {
                assert_eq!(slots.report(), 1);
                assert!(!slots.has_room());
            }
            for free in 1..=4 {
                slots.returned.add(1);
                assert!(slots.has_room());
                assert_eq!(slots.room(0), free);
            }
        }
    }

    #[test]
    fn silent_requests_go_with_the_next_that_has_a_completion() {
        let mut slots = SendSlots::new(4, false);
        assert_eq!(fill(&mut slots, 0), 4);
        assert_eq!(slots.report(), 1);
        slots.pass_over(2);
        assert_eq!(slots.report(), 3);
        assert!(!slots.has_room());
        slots.returned.add(1);
        assert_eq!(slots.room(0), 1);
        slots.returned.add(3);
        assert_eq!(slots.room(0), 4);
    }

    #[test]
    fn silent_requests_are_forgiven_while_no_completion_waits() {
        let mut slots = SendSlots::new(4, false);
        for _ in 0..25 {
            // All four are done without a completion.
            assert_eq!(fill(&mut slots, 0), 4);
        }
        // The last but one has a completion, which is not polled.
        slots.pass_over(98);
        assert_eq!(slots.report(), 1);
        assert_eq!(fill(&mut slots, 1), 2);
        assert!(!slots.has_room());
        slots.returned.add(1);
        assert_eq!(slots.room(3), 1);
        slots.reset();
        assert_eq!(slots.room(0), 4);
    }

    #[test]
    fn a_strict_queue_without_completions_stays_full() {
        let mut slots = SendSlots::new(4, true);
        assert_eq!(fill(&mut slots, 0), 4);
        // All four are done, and none has a completion.
        assert!(!slots.has_room());
        assert_eq!(slots.room(0), 0);
        slots.reset();
        for _ in 0..3 {
            slots.take(false);
        }
        slots.take(true);
        slots.pass_over(3);
        assert_eq!(slots.report(), 4);
        assert!(!slots.has_room());
        slots.returned.add(4);
        assert_eq!(slots.room(0), 4);
    }

    #[test]
    fn the_first_request_too_many_without_a_completion_is_noticed() {
        let mut slots = SendSlots::new(4, false);
        let noticed: Vec<_> = (0..8).map(|_| slots.take(false)).collect();
        assert_eq!(noticed, [false, false, false, false, true, false, false, false]);
        assert!(!slots.take(true));
        assert!(!(0..4).any(|_| slots.take(false)), "as many as it holds, after one with one");
        assert!(slots.take(false));
    }

    #[test]
    fn the_first_refusal_is_noticed_of_a_queue_without_completions() {
        let mut slots = SendSlots::new(4, true);
        assert_eq!(fill(&mut slots, 0), 4);
        assert!(!slots.refuse(), "full, of requests with completions");
        slots.reset();
        assert!(!(0..4).any(|_| slots.take(false)));
        assert_eq!([slots.refuse(), slots.refuse()], [true, false]);
    }
}
