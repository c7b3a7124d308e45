// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of this process that others of its user map, to read and write where it lies.
//!
//! ```text
//!   arena     a sealed memfd of which blocks are given out
//!   free      the bytes of an arena that no block has
//!   place     the names that other processes have for its bytes
//!   mapped    an arena of another process, mapped
//!   inherit   the mappings of arenas in a forked child
//! ```
//!
//! A process that has the descriptor of an arena can write to all of it, at any time. So only those
//! get one that could write to all of this process's memory anyway. Pages come into being as they
//! are used, as an allocator's do.
//!
//! A block begins on a page, and its pages are no other block's. Freed pages go back to the system,
//! and a process that stores there later stores into new pages, which are cleared again before a
//! block has them: a block is zeros at first, also after that. A process that stores into a block
//! after it was told not to is kept from that: its owner waits for it, and if it does not come to
//! an end, [takes the pages away](Heap::take_away).
//!
//! # Forked children
//!
//! A child keeps the blocks of its parent, as it does with all memory, by mappings of its own
//! (`MAP_PRIVATE`): what it stores there the parent does not see. Until it has stored into a page it
//! may see what the parent stores. The child's first call of this library, or its fork handler,
//! makes the change; a child that was made around the C library and stores before that stores into
//! the parent's memory.

mod arena;
mod free;
pub(crate) mod inherit;
mod mapped;
mod place;
#[cfg(test)]
mod tests;

pub use self::mapped::MappedArena;
pub use self::place::{ARENAS, ArenaPlace};

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp_mem::BufferSource;

use self::arena::Arena;
use crate::fork::PerProcess;

/// Bytes of the first arenas. Every eight of them the size doubles.
const FIRST: usize = 4 << 20;

/// See [`Heap::is_used`].
static USED: AtomicBool = AtomicBool::new(false);

static HEAP: PerProcess<Mutex<Heap>> = PerProcess::new();

/// The arenas of this process.
#[derive(Debug, Default)]
pub struct Heap {
    arenas: Vec<Arena>,
}

/// The heap of this process as a source of memory for buffers.
#[derive(Debug)]
pub struct HeapBuffers;

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl BufferSource for HeapBuffers {
    fn allocate(&self, len: usize) -> Option<NonNull<u8>> {
        heap().allocate(len)
    }

    unsafe fn free(&self, first: NonNull<u8>, len: usize) {
        heap().free(first.as_ptr().addr(), len);
    }

    fn holds(&self, addr: usize, len: usize) -> bool {
        Heap::find(addr, len).is_some()
    }
}

impl Heap {
    /// True once this process has an arena.
    #[inline]
    pub fn is_used() -> bool {
        USED.load(Ordering::Relaxed)
    }

    /// The place of these bytes in an arena; `None` where they are not in one, or were
    /// [taken away](Self::take_away).
    pub fn find(addr: usize, len: usize) -> Option<ArenaPlace> {
        let heap = heap();
        let at = heap.arenas.iter().position(|arena| arena.shares(addr, len))?;
        let offset = addr - heap.arenas[at].first();
        Some(ArenaPlace { arena: u32::try_from(at).ok()?, offset: offset as u64 })
    }

    /// Calls `pass` with the descriptor of an arena and its length in bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such arena; those of `pass`.
    pub fn pass<T>(
        arena: u32,
        pass: impl FnOnce(BorrowedFd<'_>, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let heap = heap();
        let arena = usize::try_from(arena).ok().and_then(|number| heap.arenas.get(number));
        let arena = arena.ok_or(io::ErrorKind::NotFound)?;
        pass(arena.descriptor(), arena.len() as u64)
    }

    /// Gives this process other pages in the place of those of these bytes, with what they hold,
    /// and has no other process map those: one that stores there stores where nothing looks. Bytes
    /// that this process stores meanwhile may get lost.
    ///
    /// # Errors
    ///
    /// `NotFound` where the bytes are not in an arena; shortages. Then the pages stay.
    pub fn take_away(addr: usize, len: usize) -> io::Result<()> {
        let mut heap = heap();
        let arena = heap.arenas.iter_mut().find(|arena| arena.holds(addr, len));
        arena.ok_or(io::ErrorKind::NotFound)?.take_away(addr, len)
    }

    fn allocate(&mut self, len: usize) -> Option<NonNull<u8>> {
        let len = len.checked_next_multiple_of(rustix::param::page_size())?;
        if let Some(first) = self.arenas.iter_mut().find_map(|arena| arena.allocate(len)) {
            return Some(first);
        }
        let number = self.arenas.len();
        if number == ARENAS {
            return None;
        }
        self.arenas.try_reserve(1).ok()?;
        let size = len.max(FIRST << (number / 8));
        let mut arena = Arena::create(number, size).ok()?;
        let first = arena.allocate(len);
        self.arenas.push(arena);
        USED.store(true, Ordering::Relaxed);
        first
    }

    /// Takes the bytes of a block back. A child keeps those of its parent.
    fn free(&mut self, addr: usize, len: usize) {
        let len = len.next_multiple_of(rustix::param::page_size());
        if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.holds(addr, len)) {
            arena.free(addr, len);
        }
    }
}
