// SPDX-License-Identifier: MIT OR Apache-2.0

//! A memfd of which blocks are given out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, with_exposed_provenance_mut};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::free::Free;
use super::{inherit, region};
use crate::fd::PassedFd;
use crate::local::huge::{self, HUGE};
use crate::local::memory::{SharedMemory, memfd, seal};

/// See the [module](self). A page of it that is in no block holds zeros. It stays mapped once
/// another process knows it by its number.
#[derive(Debug)]
pub(super) struct Arena {
    number: usize,
    first: NonNull<u8>,
    len: usize,
    fd: PassedFd,
    free: Free,
    /// Pages that are this process's alone, from and to.
    taken: Vec<[usize; 2]>,
    /// Another process may know it.
    is_passed: bool,
}

// SAFETY: a mapping belongs to no thread. This type touches no byte of it.
unsafe impl Send for Arena {}

const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Arena {
    /// Makes the arena of this number, at the `place` that is set aside for it or where the system
    /// likes it. A size is whole huge pages, and a place begins with one.
    ///
    /// # Errors
    ///
    /// Shortages; `Unsupported` where the system would kill a process for want of room for a page
    /// (`vm.overcommit_memory` 2), and `FileTooLarge` where it would for the length.
    pub(super) fn create(number: usize, len: usize, place: Option<usize>) -> io::Result<Self> {
        if counts_all_memory() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        may_be_so_long(len)?;
        inherit::prepare()?;
        let fd = PassedFd::from(memfd(c"iwarp-memory")?);
        rustix::fs::ftruncate(&fd, len as u64)?;
        seal(fd.as_fd())?;
        let first = match place.map(with_exposed_provenance_mut) {
            // SAFETY: a new mapping in the place of nothing.
            Some(place) => unsafe {
                rustix::mm::mmap(place, len, RIGHTS, MapFlags::SHARED | MapFlags::FIXED, &fd, 0)?
            },
            None => huge::map(len, RIGHTS, MapFlags::SHARED, fd.as_fd())?,
        };
        let first = NonNull::new(first.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let arena = Self {
            number,
            first,
            len,
            fd,
            free: Free::all(len),
            taken: Vec::new(),
            is_passed: false,
        };
        // Systems and sandboxes without it keep the pages of blocks that are freed.
        arena.clear(0, rustix::param::page_size()).inspect_err(|_| arena.unmap())?;
        inherit::note(number, first.as_ptr().expose_provenance(), len, arena.fd.as_fd());
        Ok(arena)
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Its descriptor goes to another process.
    pub(super) fn note_passed(&mut self) {
        self.is_passed = true;
    }

    /// Unmaps one that has no block, and that no other process knows.
    pub(super) fn give_back(self) {
        inherit::forget(self.number);
        self.unmap();
    }

    /// Undoes the mapping of one that nothing knows.
    fn unmap(&self) {
        if region::holds(self.first()) {
            return region::vacate(self.first(), self.len);
        }
        // SAFETY: made by `create`, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.len) };
    }

    pub(super) fn first(&self) -> usize {
        self.first.as_ptr().addr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True if all of these bytes are of it.
    pub(super) fn holds(&self, addr: usize, len: usize) -> bool {
        let at = addr.checked_sub(self.first());
        at.and_then(|at| at.checked_add(len)).is_some_and(|end| end <= self.len)
    }

    /// True if, besides, others that map it see all of them.
    pub(super) fn shares(&self, addr: usize, len: usize) -> bool {
        self.holds(addr, len) && {
            let (at, end) = (addr - self.first(), addr - self.first() + len);
            self.taken.iter().all(|[from, to]| end <= *from || at >= *to)
        }
    }

    /// Whole pages of zeros, not used by another.
    pub(super) fn allocate(&mut self, len: usize) -> Option<NonNull<u8>> {
        let align = if len >= HUGE { HUGE } else { 1 };
        let at = self.free.take(len, align)?;
        NonNull::new(self.first.as_ptr().wrapping_add(at))
    }

    /// Gives the pages of a block back to the system. True if it may go itself then.
    pub(super) fn free(&mut self, addr: usize, len: usize) -> bool {
        let at = addr - self.first();
        let cleared = self.clear(at, len);
        // A peer may still store into pages that were taken away: the place stays unused.
        if !self.shares(addr, len) {
            let place = self.first.as_ptr().wrapping_add(at).cast();
            // SAFETY: no other has these bytes.
            let _ = unsafe { rustix::mm::madvise(place, len, Advice::LinuxDontNeed) };
        } else if cleared.is_ok() {
            self.free.put(at, len);
        }
        !self.is_passed && self.free.is_all(self.len)
    }

    /// Has bytes be zeros, without pages.
    fn clear(&self, at: usize, len: usize) -> io::Result<()> {
        self.check_descriptor()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::io::retry_on_intr(|| fallocate(&self.fd, flags, at as u64, len as u64))?)
    }

    /// # Errors
    ///
    /// `NotFound` where the program has closed the descriptor: its number may be a file's now.
    pub(super) fn check_descriptor(&self) -> io::Result<()> {
        let is_there = SharedMemory::is_under(self.fd.as_fd().as_raw_fd());
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// The pages of these bytes, from and to.
    fn pages_of(&self, addr: usize, len: usize) -> [usize; 2] {
        let page = rustix::param::page_size();
        let at = addr - self.first();
        [at & !(page - 1), (at + len).next_multiple_of(page).min(self.len)]
    }

    /// No process is shown these bytes from now on. Says the address and length of their pages.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(super) fn keep_for_itself(
        &mut self,
        addr: usize,
        len: usize,
    ) -> io::Result<(usize, usize)> {
        let [at, end] = self.pages_of(addr, len);
        self.taken.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.taken.push([at, end]);
        Ok((self.first() + at, end - at))
    }

    /// A memfd of its own with the bytes from `at` to `end`, of which some may be this process's
    /// alone already.
    fn copy(&self, at: usize, end: usize) -> io::Result<OwnedFd> {
        may_be_so_long(end - at)?;
        let copy = memfd(c"iwarp-memory")?;
        rustix::fs::ftruncate(&copy, (end - at) as u64)?;
        let mut from = at;
        while from < end {
            let (bytes, to) = (self.first.as_ptr().wrapping_add(from), (from - at) as i64);
            // SAFETY: the system reads bytes of the mapping, which others may change meanwhile.
            let written = unsafe { libc::pwrite64(copy.as_raw_fd(), bytes.cast(), end - from, to) };
            match usize::try_from(written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => from += written,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(copy)
    }

    /// Has a copy be in the place of the pages from `at` to `end`. Stores are lost that come
    /// meanwhile and are not held up.
    fn exchange(&self, at: usize, end: usize, are_held: bool) -> io::Result<()> {
        let (place, len) = (self.first.as_ptr().wrapping_add(at).cast(), end - at);
        let protect = |rights| {
            // SAFETY: pages of the arena; stores that come before they have all rights again wait.
            let protected = unsafe { rustix::mm::mprotect(place, len, rights) };
            protected.map_err(io::Error::from)
        };
        if are_held {
            protect(MprotectFlags::READ)?;
        }
        let exchanged = self.copy(at, end).and_then(|copy| {
            // Without room for the note a child shares these pages with the peers.
            let note = inherit::note_taken(self.number, at, end);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: it takes the place of pages of the arena, with the bytes that they hold.
            let moved = unsafe { rustix::mm::mmap(place, len, RIGHTS, flags, &copy, 0) };
            if moved.is_err() {
                note.into_iter().for_each(inherit::NotedPart::forget);
            }
            moved.map(drop).map_err(io::Error::from)
        });
        if exchanged.is_err() && are_held {
            protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        exchanged
    }

    /// See [`Heap::take_away`](super::Heap::take_away).
    pub(super) fn take_away(&mut self, addr: usize, len: usize) -> io::Result<()> {
        let [at, end] = self.pages_of(addr, len);
        let (first, len) = (self.first() + at, end - at);
        iwarp_mem::hold_stores(first, len, |are_held| self.exchange(at, end, are_held))?;
        // Of the old pages, those that a peer stores into come back.
        let _ = self.clear(at, len);
        Ok(())
    }
}

/// A process that makes a longer file than it may is killed.
fn may_be_so_long(len: usize) -> io::Result<()> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if most.is_some_and(|most| most < len as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

/// True where the system promises no more memory than it has, so that a page may be refused when it
/// is first used, by a signal. An allocator is refused before.
fn counts_all_memory() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}
