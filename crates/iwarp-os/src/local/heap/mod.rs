// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of this process that others of its user map, to read and write where it lies.
//!
//! ```text
//!   arena     a sealed memfd of which blocks are given out
//!   region    the addresses of the arenas of a program's allocator
//!   blocks    blocks for that
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
//! then on, in memory of its own to which it copies what they hold. Its
//! fork handler does that, for which the parent's waits. A child that was made around the C library
//! does it with its first call of this library: before that it shares the blocks with its parent.

mod arena;
mod blocks;
mod free;
pub(crate) mod inherit;
mod mapped;
mod place;
mod region;
#[cfg(test)]
mod tests;

pub use self::blocks::Blocks;
pub use self::mapped::MappedArena;
pub use self::place::{ARENAS, ArenaPlace};

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp_mem::BufferSource;

use self::arena::Arena;
use self::blocks::Kept;
use self::free::Free;
use crate::fork::PerProcess;
use crate::local::huge::{self, HUGE, STEP};

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
    /// The addresses of the region that no arena has, once one was made.
    places: Option<Free>,
    /// Blocks that the program's allocator has taken back.
    kept: Kept,
}

/// True unless the system may have what was missing later.
fn is_for_good(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), FileTooLarge | InvalidInput | PermissionDenied | Unsupported)
}

/// Bytes.
fn memory_of_the_host() -> usize {
    let known = rustix::system::sysinfo();
    (known.totalram as usize).saturating_mul(known.mem_unit as usize)
}

/// The heap of this process as a source of memory for buffers.
#[derive(Debug)]
pub struct HeapBuffers;

/// The thread that has the heap locked, by the address of its `errno`; 0 for none.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

fn errno() -> *mut i32 {
    // SAFETY: it says an address.
    unsafe { libc::__errno_location() }
}

/// True in a call that has the heap locked: the program's allocator, which may be asked for memory
/// there, has to do without.
fn is_held_here() -> bool {
    HOLDER.load(Ordering::Relaxed) == errno().addr()
}

/// The heap, locked.
struct Locked(MutexGuard<'static, Heap>);

impl Deref for Locked {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Heap {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Relaxed);
    }
}

fn heap() -> Locked {
    let heap = HEAP.get().lock().unwrap_or_else(PoisonError::into_inner);
    HOLDER.store(errno().addr(), Ordering::Relaxed);
    Locked(heap)
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

    /// Has them lie in huge pages, as far as there are any.
    fn will_use(&self, addr: usize, len: usize) {
        if len < HUGE {
            return;
        }
        let (mut at, all) = (addr, addr + len);
        while at < all {
            // At huge pages, so that none is left out between two steps.
            let end = (at + STEP).next_multiple_of(HUGE).min(all);
            // A fork that comes meanwhile waits, as some systems show holes where pages move.
            let heap = heap();
            if heap.sharing(at, end - at).is_none() || !huge::collapse(at, end - at) {
                return;
            }
            at = end;
        }
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
        let arena = heap.sharing(addr, len)?;
        let offset = (addr - arena.first()) as u64;
        Some(ArenaPlace { arena: u32::try_from(arena.number()).ok()?, offset })
    }

    /// The arena that has these bytes, if others that map it see all of them.
    fn sharing(&self, addr: usize, len: usize) -> Option<&Arena> {
        self.arenas.iter().flatten().find(|arena| arena.shares(addr, len))
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
        arena.check_descriptor()?;
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
    /// be shown them any more ([`keep_for_itself`](Self::keep_for_itself)). A thread of this
    /// process that stores there meanwhile waits, where [`iwarp_mem::hold_stores`] can have it
    /// wait; elsewhere its bytes may get lost.
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
        self.take(len, false)
    }

    /// Whole pages of zeros among the addresses that are set aside.
    fn allocate_in_region(&mut self, len: usize) -> Option<NonNull<u8>> {
        self.take(len, true)
    }

    /// Whole pages of zeros of an arena, a new one if need be, which is in the region if it has to.
    fn take(&mut self, len: usize, in_region: bool) -> Option<NonNull<u8>> {
        let suits = |arena: &&mut Arena| !in_region || region::holds(arena.first());
        let mut arenas = self.arenas.iter_mut().flatten().filter(suits);
        let first = arenas.find_map(|arena| arena.allocate(len));
        if first.is_some() {
            return first;
        }
        let free = self.arenas.iter().position(Option::is_none);
        let number = free.unwrap_or(self.arenas.len());
        if number == ARENAS || self.is_refused {
            return None;
        }
        self.arenas.try_reserve(1).ok()?;
        let mut arena = self.create(number, len, in_region).ok()?;
        let first = arena.allocate(len);
        match self.arenas.get_mut(number) {
            Some(place) => *place = Some(arena),
            None => self.arenas.push(Some(arena)),
        }
        USED.store(true, Ordering::Relaxed);
        first
    }

    /// An arena with room for `len` bytes, in the region if that has room, or if it has to be.
    fn create(&mut self, number: usize, len: usize, in_region: bool) -> io::Result<Arena> {
        let all: usize = self.arenas.iter().flatten().map(Arena::len).sum();
        // Programs with much memory do without many arenas.
        let size = len.max(FIRST << (number / 8)).max(all / 4);
        let size = size.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        if in_region && all.saturating_add(len) > memory_of_the_host() {
            // The program's allocator knows what the system promises.
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if self.places.is_none() {
            self.places = region::unused();
        }
        let mut places = self.places.as_mut();
        let place = places.as_mut().and_then(|places| places.take(size, HUGE));
        match place {
            Some(at) => region::note_used(at + size),
            None if in_region => return Err(io::ErrorKind::OutOfMemory.into()),
            None => {}
        }
        let made = Arena::create(number, size, place);
        if let (Err(_), Some(places), Some(at)) = (&made, places, place) {
            region::vacate(at, size);
            places.put(at, size);
        }
        self.is_refused = made.as_ref().is_err_and(is_for_good);
        made
    }

    /// Takes the bytes of a block back. A child keeps those of its parent: false.
    fn free(&mut self, addr: usize, len: usize) -> bool {
        let len = len.next_multiple_of(rustix::param::page_size());
        let Ok(arena) = self.arena_of(addr, len) else { return false };
        let (number, may_go) = (arena.number(), arena.free(addr, len));
        // The first one stays for the next block. Others may know of one that was passed.
        if may_go && number > 0 {
            let (first, len) = (arena.first(), arena.len());
            self.arenas[number].take().into_iter().for_each(Arena::give_back);
            if let Some(places) = self.places.as_mut().filter(|_| region::holds(first)) {
                places.put(first, len);
            }
        }
        true
    }
}
