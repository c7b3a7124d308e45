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
//! so a block is zeros at first. A process that stores into a block after it was told not to is
//! kept from that: its owner waits for it, and if it does not come to an end, [takes the pages
//! away](Heap::take_away).
//!
//! # Forked children
//!
//! A child keeps the blocks of its parent as it keeps all memory, each with its own contents from
//! then on, by mappings of its own (`MAP_PRIVATE`) of which it copies the pages that are there. Its
//! fork handler does that, for which the parent's waits. A child that was made around the C library
//! does it with its first call of this library: before that it shares the blocks with its parent.

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
    /// By their numbers.
    arenas: Vec<Option<Arena>>,
    /// The system lets this process have none.
    is_refused: bool,
}

/// True unless the system may have what was missing later.
fn is_for_good(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), FileTooLarge | InvalidInput | PermissionDenied | Unsupported)
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
        let arena = heap.arenas.iter().flatten().find(|arena| arena.shares(addr, len))?;
        let offset = (addr - arena.first()) as u64;
        Some(ArenaPlace { arena: u32::try_from(arena.number()).ok()?, offset })
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
        let mut heap = heap();
        let arena = heap.arenas.get_mut(arena as usize).and_then(Option::as_mut);
        let arena = arena.ok_or(io::ErrorKind::NotFound)?;
        arena.note_passed();
        pass(arena.descriptor(), arena.len() as u64)
    }

    /// [Finds](Self::find) nothing in the pages of these bytes any more, and says their address and
    /// length.
    ///
    /// # Errors
    ///
    /// `NotFound` where the bytes are not in an arena; `OutOfMemory`.
    pub fn keep_for_itself(addr: usize, len: usize) -> io::Result<(usize, usize)> {
        heap().arena_of(addr, len)?.keep_for_itself(addr, len)
    }

    /// Gives this process other pages in the place of those of these bytes, with what they hold: a
    /// process that maps the old ones and stores there stores where nothing looks. No process may
    /// be shown them any more ([`keep_for_itself`](Self::keep_for_itself)). Bytes that this process
    /// stores meanwhile may get lost.
    ///
    /// # Errors
    ///
    /// `NotFound` where the bytes are not in an arena; shortages. Then the pages stay.
    pub fn take_away(addr: usize, len: usize) -> io::Result<()> {
        heap().arena_of(addr, len)?.take_away(addr, len)
    }

    /// The arena that has these bytes.
    fn arena_of(&mut self, addr: usize, len: usize) -> io::Result<&mut Arena> {
        let arena = self.arenas.iter_mut().flatten().find(|arena| arena.holds(addr, len));
        Ok(arena.ok_or(io::ErrorKind::NotFound)?)
    }

    fn allocate(&mut self, len: usize) -> Option<NonNull<u8>> {
        let len = len.checked_next_multiple_of(rustix::param::page_size())?;
        let first = self.arenas.iter_mut().flatten().find_map(|arena| arena.allocate(len));
        if first.is_some() {
            return first;
        }
        let free = self.arenas.iter().position(Option::is_none);
        let number = free.unwrap_or(self.arenas.len());
        if number == ARENAS || self.is_refused {
            return None;
        }
        self.arenas.try_reserve(1).ok()?;
        let size = len.max(FIRST << (number / 8));
        let made = Arena::create(number, size);
        if made.as_ref().is_err_and(is_for_good) {
            self.is_refused = true;
        }
        let mut arena = made.ok()?;
        let first = arena.allocate(len);
        match self.arenas.get_mut(number) {
            Some(place) => *place = Some(arena),
            None => self.arenas.push(Some(arena)),
        }
        USED.store(true, Ordering::Relaxed);
        first
    }

    /// Takes the bytes of a block back. A child keeps those of its parent.
    fn free(&mut self, addr: usize, len: usize) {
        let len = len.next_multiple_of(rustix::param::page_size());
        let Ok(arena) = self.arena_of(addr, len) else { return };
        let (number, may_go) = (arena.number(), arena.free(addr, len));
        // The first one stays for the next block. Others may know of one that was passed.
        if may_go && number > 0 {
            self.arenas[number].take().into_iter().for_each(Arena::give_back);
        }
    }
}
