// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pair numbers of one slot.
//!
//! The lower half of them is for queue pairs that are found by datagrams alone. In the upper half a
//! number begins with a TCP port that its queue pair has, too ([`ports`]), and the process that has
//! the port has the numbers.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;

use iwarp_mem::{OutOfMemory, filled};
use iwarp_os::slots::Layout;

/// The number of times that a number is drawn before the next one that is free will do.
const TRIES: usize = 16;

/// Numbers of a slot: its own bits above, an index below. They are drawn at random; those that
/// were in use come again only when there are no others, from the half that has rested longest.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The slot, where it stands in a number.
    base: u32,
    /// The number of indices.
    count: u32,
    /// A bit for each index that is in use or rests.
    touched: Box<[u64]>,
    untouched: u32,
    /// A bit for each that is in use.
    used: Box<[u64]>,
    resting: VecDeque<u32>,
}

impl Numbers {
    pub(super) fn new(slot: u16, layout: Layout) -> Result<Self, OutOfMemory> {
        let (first, below) = layout.range(slot);
        Self::with(first, 1 << (below - 1))
    }

    fn with(base: u32, count: u32) -> Result<Self, OutOfMemory> {
        let words = count.div_ceil(64) as usize;
        let (touched, used) = (filled(words, || 0)?, filled(words, || 0)?);
        let resting = VecDeque::new();
        let mut numbers = Self { base, count, touched, untouched: count, used, resting };
        // Numbers with a meaning to InfiniBand.
        for number in [0, 1, 0x00ff_ffff] {
            if let Some(index) = numbers.index(number) {
                numbers.touch(index);
            }
        }
        Ok(numbers)
    }

    /// A number that is not in use.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where all are in use, and without memory; `ENOSYS` where the system has no random
    /// numbers.
    pub(super) fn allocate(&mut self) -> io::Result<u32> {
        // So that there is room for each when it is given back.
        let touched = (self.count - self.untouched) as usize;
        self.resting.try_reserve(touched + 1 - self.resting.len()).map_err(|_| OutOfMemory)?;
        let index = if self.untouched > 0 {
            let mut index = getrandom::u32()? % self.count;
            for _ in 0..TRIES {
                if !has(&self.touched, index) {
                    break;
                }
                index = getrandom::u32()? % self.count;
            }
            let from = |start| (start..self.count).find(|&index| !has(&self.touched, index));
            let found = from(index).or_else(|| from(0));
            let index = found.ok_or(exhausted())?;
            self.touch(index);
            index
        } else {
            let half = self.resting.len().div_ceil(2);
            let place = if half == 0 { 0 } else { getrandom::u32()? as usize % half };
            self.resting.swap_remove_front(place).ok_or(exhausted())?
        };
        self.used[(index / 64) as usize] |= 1 << (index % 64);
        Ok(self.base | index)
    }

    /// The number is not in use any more. One that was not is left as it is.
    pub(super) fn free(&mut self, number: u32) {
        let Some(index) = self.index(number) else { return };
        if has(&self.used, index) {
            self.used[(index / 64) as usize] &= !(1 << (index % 64));
            self.resting.push_back(index);
        }
    }

    fn index(&self, number: u32) -> Option<u32> {
        number.checked_sub(self.base).filter(|index| *index < self.count)
    }

    fn touch(&mut self, index: u32) {
        self.touched[(index / 64) as usize] |= 1 << (index % 64);
        self.untouched -= 1;
    }
}

/// The TCP ports with which numbers of the slot's upper half begin.
pub(super) fn ports(slot: u16, layout: Layout) -> RangeInclusive<u16> {
    let (first, below) = layout.range(slot);
    let half = 1 << (below - 1);
    let port = |number: u32| (number >> 8) as u16;
    port(first + half)..=port(first + half + (half - 1))
}

fn has(bits: &[u64], index: u32) -> bool {
    bits[(index / 64) as usize] >> (index % 64) & 1 != 0
}

fn exhausted() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Covers: ROCE-181
    #[test]
    fn some_numbers_are_never_given() {
        for (base, count, never) in [(0, 256, 2), (0x00ff_ff00, 256, 1), (0x100, 64, 0)] {
            let mut numbers = Numbers::with(base, count).unwrap();
            let mut given = HashSet::new();
            for _ in 0..count - never {
                let number = numbers.allocate().unwrap();
                assert!(number >= base && number < base + count && given.insert(number));
            }
            assert!(![0, 1, 0x00ff_ffff].iter().any(|number| given.contains(number)));
            assert_eq!(numbers.allocate().unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }

    /// Covers: ROCE-181
    #[test]
    fn recently_used_ones_come_last() {
        let mut numbers = Numbers::with(0x4000, 256).unwrap();
        let mut before = HashSet::new();
        for _ in 0..256 {
            let number = numbers.allocate().unwrap();
            assert!(before.insert(number), "came again before all others had come");
            numbers.free(number);
            // Of no effect: it is not in use, or not ours.
            for other in [number, 0x3fff, 0x4100] {
                numbers.free(other);
            }
        }
        let mut last = VecDeque::new();
        for _ in 0..10_000 {
            let number = numbers.allocate().unwrap();
            assert!(!last.contains(&number), "came again before a half of the others");
            numbers.free(number);
            last.push_back(number);
            if last.len() > 100 {
                last.pop_front();
            }
        }
    }

    /// Covers: ROCE-175
    #[test]
    fn a_slot_has_ports_whose_numbers_it_does_not_give() {
        let [wide, narrow] = [Layout::new(4, 16), Layout::new(6, 48)];
        for (slot, layout) in [(1, narrow), (47, narrow), (48, narrow), (1071, narrow), (15, wide)]
        {
            let numbers = Numbers::new(slot, layout).unwrap();
            let ports = ports(slot, layout);
            let end = numbers.base + numbers.count;
            assert_eq!(end, u32::from(*ports.start()) << 8);
            assert_eq!((u32::from(*ports.end()) << 8 | 0xff) + 1, numbers.base + 2 * numbers.count);
            assert!(*ports.start() >= 1024);
        }
    }

    #[test]
    fn the_order_is_drawn() {
        let draw = || {
            let mut numbers = Numbers::new(5, Layout::new(6, 48)).unwrap();
            std::array::from_fn::<_, 4, _>(|_| numbers.allocate().unwrap())
        };
        let (one, other) = (draw(), draw());
        assert_ne!(one, other);
        assert!(one.iter().all(|number| number >> 18 == 5));
    }
}
