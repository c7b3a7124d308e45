// SPDX-License-Identifier: MIT OR Apache-2.0

//! A bounded queue whose slots keep their storage: steady state allocates nothing.

use alloc::vec::Vec;

use crate::PostError;

/// A queue of at most `capacity` items addressed by ever-rising numbers.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    slots: Vec<T>,
    capacity: usize,
    /// Slots are addressed modulo a power of two: a division would cost more than all the rest.
    mask: u64,
    head: u64,
    tail: u64,
}

impl<T: Default> Ring<T> {
    /// An empty one.
    pub const fn new(capacity: usize) -> Self {
        let mask = capacity.next_power_of_two() as u64 - 1;
        Self { slots: Vec::new(), capacity, mask, head: 0, tail: 0 }
    }

    /// Number of the oldest item.
    #[inline]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Number that the next item will have.
    #[inline]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Items at most.
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Items.
    #[inline]
    pub const fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// True if there is no room for another.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// The slot that the next item will have, which still holds what was there before;
    /// [`Self::push`] makes it the item. Not to be called while the ring is full.
    ///
    /// # Errors
    ///
    /// [`PostError::OutOfMemory`]
    #[inline]
    pub fn next_slot(&mut self) -> Result<&mut T, PostError> {
        debug_assert!(!self.is_full());
        let at = self.slot(self.tail);
        if at == self.slots.len() {
            self.grow()?;
        }
        Ok(&mut self.slots[at])
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Result<(), PostError> {
        self.slots.try_reserve(1)?;
        self.slots.push(T::default());
        Ok(())
    }

    /// Appends what [`Self::next_slot`] handed out.
    #[inline]
    pub fn push(&mut self) {
        self.tail += 1;
    }

    /// The item of that number, which must be between head and tail.
    #[inline]
    pub fn at(&mut self, number: u64) -> &mut T {
        debug_assert!(self.head <= number && number < self.tail);
        let at = self.slot(number);
        &mut self.slots[at]
    }

    /// The oldest item.
    #[inline]
    pub fn front(&mut self) -> Option<&mut T> {
        if self.is_empty() { None } else { Some(self.at(self.head)) }
    }

    /// The items that were pushed last, the latest first, dropped or not: as far back as their
    /// slots hold them.
    pub fn latest(&self) -> impl Iterator<Item = &T> {
        (self.first_remembered()..self.tail).rev().map(|number| &self.slots[self.slot(number)])
    }

    /// Drops the oldest item; its slot is used again later.
    #[inline]
    pub fn pop(&mut self) {
        debug_assert!(!self.is_empty());
        self.head += 1;
    }

    /// Number of the oldest item, dropped or not, whose slot still holds it.
    #[inline]
    pub const fn first_remembered(&self) -> u64 {
        self.tail.saturating_sub(self.slots.len() as u64)
    }

    /// The item of that number, dropped or not, if its slot still holds it.
    #[inline]
    pub fn remembered(&self, number: u64) -> Option<&T> {
        let is_there = self.first_remembered() <= number && number < self.tail;
        is_there.then(|| &self.slots[self.slot(number)])
    }

    /// Has the item of that number, which is [remembered](Self::remembered), be the oldest again if
    /// it was dropped.
    pub fn take_back(&mut self, number: u64) {
        debug_assert!(self.remembered(number).is_some());
        self.head = self.head.min(number);
    }

    /// Slots are made in order of first use, so a number's slot exists once it was pushed.
    const fn slot(&self, number: u64) -> usize {
        (number & self.mask) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn items_keep_their_numbers_and_slots_are_reused() {
        let mut ring = Ring::<u32>::new(3);
        for round in 0..10u32 {
            for item in [round, round + 100] {
                *ring.next_slot().unwrap() = item;
                ring.push();
            }
            assert_eq!(*ring.front().unwrap(), round);
            ring.pop();
            assert_eq!(*ring.front().unwrap(), round + 100);
            ring.pop();
        }
        assert!(ring.is_empty());
        assert_eq!((ring.head(), ring.tail()), (20, 20));
        assert!(ring.latest().eq(&[109, 9, 108, 8]));
        assert_eq!(Ring::<u32>::new(3).latest().next(), None);
    }

    #[test]
    fn items_are_taken_back_as_long_as_their_slots_hold_them() {
        let mut ring = Ring::<u32>::new(4);
        for item in 0..6 {
            *ring.next_slot().unwrap() = item;
            ring.push();
            ring.pop();
        }
        assert_eq!(
            (ring.remembered(1), ring.remembered(2), ring.remembered(6)),
            (None, Some(&2), None)
        );
        ring.take_back(4);
        assert_eq!((ring.len(), ring.front().copied()), (2, Some(4)));
        // One that was not dropped.
        ring.take_back(5);
        assert_eq!((ring.len(), ring.front().copied()), (2, Some(4)));
    }

    #[test]
    fn a_ring_is_full_at_its_capacity_and_a_slot_that_was_not_pushed_is_no_item() {
        let mut ring = Ring::<u32>::new(2);
        for item in 0..2 {
            assert!(!ring.is_full());
            *ring.next_slot().unwrap() = 100;
            assert_eq!(ring.len(), item);
            *ring.next_slot().unwrap() = item as u32;
            ring.push();
        }
        assert!(ring.is_full());
        assert_eq!(*ring.front().unwrap(), 0);
        ring.pop();
        assert!(!ring.is_full());
    }
}
