// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks for an allocator of the program (`malloc` and its kin), which need not know in which
//! process they were given out.
//!
//! ```text
//!   page boundary                 multiple of the alignment
//!   | ...       | distance | room | the program's bytes ...                    | page boundary
//!                 distance: from the first boundary to the program's bytes; room: of those
//! ```
//!
//! The two words in front lie in the block, so that a forked child can tell the length of what its
//! parent was given.

use std::ptr::{NonNull, with_exposed_provenance_mut};

use rustix::mm::Advice;

use super::{Heap, heap, is_held_here, region};

/// Bytes of blocks at most that were taken back and are kept, with their pages, for the next that
/// are given out: the system takes microseconds for each page that comes anew.
const KEPT: usize = 64 << 20;
/// Their number at most.
const MOST_KEPT: usize = 64;

/// Blocks that are kept, as first addresses and lengths, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    blocks: Vec<(usize, usize)>,
    bytes: usize,
}

impl Kept {
    /// One of that length, or a bit longer.
    fn take(&mut self, len: usize) -> Option<(usize, usize)> {
        let suits = |there: usize| there >= len && there - len <= len / 4;
        let at = self.blocks.iter().rposition(|(_, there)| suits(*there))?;
        let block = self.blocks.remove(at);
        self.bytes -= block.1;
        Some(block)
    }

    /// False for one that is not kept.
    fn put(&mut self, first: usize, len: usize) -> bool {
        let may = len <= KEPT && self.blocks.try_reserve(1).is_ok();
        if may {
            self.blocks.push((first, len));
            self.bytes += len;
        }
        may
    }

    /// The oldest, where they are too many.
    fn pop_surplus(&mut self) -> Option<(usize, usize)> {
        if self.bytes <= KEPT && self.blocks.len() <= MOST_KEPT {
            return None;
        }
        let oldest = self.blocks.remove(0);
        self.bytes -= oldest.1;
        Some(oldest)
    }
}

impl Heap {
    /// A block of whole pages in the region, with its length, and whether it is zeros.
    fn take_block(&mut self, len: usize) -> Option<(NonNull<u8>, usize, bool)> {
        if let Some((first, len)) = self.kept.take(len) {
            let first = NonNull::new(with_exposed_provenance_mut(first))?;
            return Some((first, len, false));
        }
        Some((self.allocate_in_region(len)?, len, true))
    }

    /// Takes one back. False in a child of the process that has given it out.
    fn put_block(&mut self, first: usize, len: usize) -> bool {
        let Ok(arena) = self.arena_of(first, len) else { return false };
        if !(arena.shares(first, len) && self.kept.put(first, len)) {
            self.free(first, len);
        }
        while let Some((first, len)) = self.kept.pop_surplus() {
            self.free(first, len);
        }
        true
    }
}

/// Bytes in front of a block, at least.
const WORDS: usize = 2 * size_of::<usize>();
/// The alignment of a block, at least: of a cache line.
const LEAST_ALIGNMENT: usize = 64;

/// The blocks of this process and of those that it descends from.
#[derive(Debug)]
pub struct Blocks;

impl Blocks {
    /// Sets addresses aside for blocks, and says the first one and their number. Each block is
    /// there, and nothing else. `None` where the system has none.
    pub fn reserve() -> Option<(usize, usize)> {
        region::reserve()
    }

    /// A block of `len` bytes at a multiple of `align`, a power of two, which are zero if `zeroed`.
    /// `None` where memory of others is to be had: without a region, in a shortage, and within a
    /// call of the heap.
    pub fn allocate(len: usize, align: usize, zeroed: bool) -> Option<NonNull<u8>> {
        let align = align.max(LEAST_ALIGNMENT);
        let whole = len.checked_add(align)?.checked_next_multiple_of(rustix::param::page_size())?;
        if is_held_here() {
            return None;
        }
        let (first, whole, is_zero) = heap().take_block(whole)?;
        let block = first.map_addr(|first| {
            let block = (first.get() + WORDS).next_multiple_of(align);
            block.try_into().expect("behind an address that is not 0")
        });
        let distance = block.addr().get() - first.addr().get();
        // SAFETY: in the block, as its distance from the beginning is no less than that of a line.
        unsafe { words(block).write([distance, whole - distance]) };
        if zeroed && !is_zero {
            // SAFETY: the block has so many bytes, and is no other's.
            unsafe { block.write_bytes(0, len) };
        }
        Some(block)
    }

    /// The bytes that the program may use of a block.
    ///
    /// # Safety
    ///
    /// The block was given out, and not taken back.
    pub unsafe fn room(block: NonNull<u8>) -> usize {
        // SAFETY: the caller's promise.
        let [_, room] = unsafe { words(block).read() };
        room
    }

    /// Takes a block back. One of the parent's is only emptied.
    ///
    /// # Safety
    ///
    /// As of [`Self::room`], and it is not used any more.
    pub unsafe fn free(block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        let [distance, room] = unsafe { words(block).read() };
        let first = block.addr().get().wrapping_sub(distance);
        let len = distance.wrapping_add(room);
        let page = rustix::param::page_size();
        if !region::holds(first) || first % page != 0 || len % page != 0 {
            // As the C library does with what it has not given out.
            eprintln!("free(): invalid pointer {block:p} in the shared heap");
            std::process::abort();
        }
        if is_held_here() || !heap().put_block(first, len) {
            let first = with_exposed_provenance_mut(first);
            // SAFETY: no other has these pages.
            let _ = unsafe { rustix::mm::madvise(first, len, Advice::LinuxDontNeed) };
        }
    }
}

/// The words in front of a block.
fn words(block: NonNull<u8>) -> *mut [usize; 2] {
    block.as_ptr().wrapping_sub(WORDS).cast()
}
