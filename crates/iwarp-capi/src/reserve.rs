// SPDX-License-Identifier: MIT OR Apache-2.0

//! The libraries' allocator: the system's, and behind it a reserve for small objects.
//!
//! Calls that make something ask for room first and say `ENOMEM` where there is none
//! ([`iwarp::verbs::afford`]); anything large may be refused at any time. Small objects are left,
//! which Rust cannot do without: an event, a timer, a line for the log, a node of a map. The worker
//! makes some at any time, and to fail would end the process. So those come out of the reserve when
//! the system has nothing left. While some are there nothing new is made, so it lasts for what goes
//! on meanwhile; only when the reserve is used up as well does an allocation that cannot fail end
//! the process.
//!
//! The reserve has 512 KiB. The initial request of a call ([`iwarp::verbs::afford`]) is larger than
//! anything the reserve gives, so no new object is made out of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a block, and the greatest alignment of the objects in it.
const BLOCK: usize = 64;
/// Blocks of a page, each a bit of a word.
const BLOCKS: usize = u64::BITS as usize;
/// Bytes of the largest object: a page.
pub const LARGEST: usize = BLOCK * BLOCKS;
/// 512 KiB, which cost nothing before they are needed.
const PAGES: usize = 128;

/// The allocator of the drop-in libraries.
#[derive(Debug)]
pub struct Reserve {
    pages: UnsafeCell<Pages>,
    /// Blocks in use.
    used: [AtomicU64; PAGES],
}

#[derive(Debug)]
#[repr(C, align(4096))]
struct Pages([[u8; LARGEST]; PAGES]);

// SAFETY: a block is handed to one user at a time, which the bits of `used` decide.
unsafe impl Sync for Reserve {}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}

impl Reserve {
    /// A full reserve.
    pub const fn new() -> Self {
        Self {
            pages: UnsafeCell::new(Pages([[0; LARGEST]; PAGES])),
            used: [const { AtomicU64::new(0) }; PAGES],
        }
    }

    /// The bits of so many blocks in a row.
    const fn row(blocks: usize) -> u64 {
        u64::MAX >> (BLOCKS - blocks)
    }

    fn blocks(layout: &Layout) -> usize {
        layout.size().div_ceil(BLOCK).max(1)
    }

    /// Memory of the reserve; null where it has none for this.
    #[cold]
    fn take(&self, layout: &Layout) -> *mut u8 {
        let blocks = Self::blocks(layout);
        if blocks > BLOCKS || layout.align() > BLOCK {
            return ptr::null_mut();
        }
        for (page, used) in self.used.iter().enumerate() {
            let first = used.fetch_update(Ordering::Acquire, Ordering::Relaxed, |used| {
                Some(used | Self::row(blocks) << first_row(!used, blocks)?)
            });
            if let Ok(before) = first
                && let Some(first) = first_row(!before, blocks)
            {
                let at = page * LARGEST + first as usize * BLOCK;
                return self.pages.get().cast::<u8>().wrapping_add(at);
            }
        }
        ptr::null_mut()
    }

    /// The offset of memory in the reserve; `None` if it is not of the reserve.
    #[inline]
    fn place(&self, ptr: *mut u8) -> Option<usize> {
        let at = ptr.addr().wrapping_sub(self.pages.get().addr());
        (at < PAGES * LARGEST).then_some(at)
    }

    #[cold]
    fn give_back(&self, at: usize, layout: &Layout) {
        let row = Self::row(Self::blocks(layout)) << (at % LARGEST / BLOCK);
        self.used[at / LARGEST].fetch_and(!row, Ordering::Release);
    }

    /// Blocks in use, for tests.
    #[cfg(test)]
    fn in_use(&self) -> u32 {
        self.used.iter().map(|used| used.load(Ordering::Relaxed).count_ones()).sum()
    }
}

/// The first of so many free blocks in a row.
fn first_row(free: u64, blocks: usize) -> Option<u32> {
    // Each round leaves the bits that begin a row one longer.
    let begins = (1..blocks).fold(free, |begins, _| begins & begins >> 1);
    (begins != 0).then(|| begins.trailing_zeros())
}

// SAFETY: memory of the system goes back to the system, and memory of the reserve to the reserve:
// the address says which. The reserve's blocks have the size and alignment asked for, and belong to
// one user at a time.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { self.take(&layout) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = self.take(&layout);
        if !memory.is_null() {
            // SAFETY: so much was taken just now.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match self.place(ptr) {
            // SAFETY: the caller's promise, passed on: it came from the system.
            None => unsafe { System.dealloc(ptr, layout) },
            Some(at) => self.give_back(at, &layout),
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if self.place(ptr).is_none() {
            // SAFETY: the caller's promise, passed on: it came from the system.
            let memory = unsafe { System.realloc(ptr, layout, new_size) };
            if !memory.is_null() {
                return memory;
            }
        }
        // SAFETY: the caller promises that it is a valid size for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller promises that it is not 0.
        let memory = unsafe { self.alloc(new) };
        if !memory.is_null() {
            // SAFETY: both are as large as the smaller of the two, and not the same memory. The
            // caller gives the old one up.
            unsafe {
                memory.copy_from_nonoverlapping(ptr, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static RESERVE: Reserve = Reserve::new();

    #[test]
    fn blocks_are_given_once_and_come_back() {
        let layouts = [(1, 1), (64, 64), (65, 8), (1000, 16), (LARGEST, 8), (40, 8)]
            .map(|(size, align)| Layout::from_size_align(size, align).unwrap());
        let mut held: Vec<(*mut u8, Layout)> = Vec::new();
        // Until nothing fits any more.
        while let Some(more) = layouts
            .iter()
            .map(|layout| (RESERVE.take(layout), *layout))
            .find(|(memory, _)| !memory.is_null())
        {
            held.push(more);
            let layout = layouts[held.len() % layouts.len()];
            let memory = RESERVE.take(&layout);
            if !memory.is_null() {
                held.push((memory, layout));
            }
        }
        assert_eq!(RESERVE.in_use() as usize, PAGES * BLOCKS);
        held.sort_by_key(|(memory, _)| memory.addr());
        for (memory, layout) in &held {
            assert!(memory.addr().is_multiple_of(layout.align()));
            // SAFETY: no other thread has it; that is what is tested.
            unsafe { memory.write_bytes(0x5a, layout.size()) };
        }
        for two in held.windows(2) {
            assert!(two[0].0.addr() + two[0].1.size() <= two[1].0.addr(), "given twice");
        }
        for (memory, layout) in held {
            // SAFETY: from the reserve, with this layout.
            unsafe { RESERVE.dealloc(memory, layout) };
        }
        assert_eq!(RESERVE.in_use(), 0);
    }

    #[test]
    fn large_requests_are_refused() {
        static OTHER: Reserve = Reserve::new();
        for (size, align) in [(LARGEST + 1, 1), (64, 128)] {
            assert!(OTHER.take(&Layout::from_size_align(size, align).unwrap()).is_null());
        }
    }

    #[test]
    fn memory_of_the_reserve_can_grow_and_shrink() {
        static OTHER: Reserve = Reserve::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        let memory = OTHER.take(&layout);
        // SAFETY: taken with this layout, and each result with the size that it was asked for.
        unsafe {
            memory.write_bytes(7, 100);
            let memory = OTHER.realloc(memory, layout, 5000);
            assert!(OTHER.place(memory).is_none(), "the system has memory");
            assert_eq!(std::slice::from_raw_parts(memory, 100), [7; 100]);
            OTHER.dealloc(memory, Layout::from_size_align(5000, 8).unwrap());
        }
        assert_eq!(OTHER.in_use(), 0);
    }
}
