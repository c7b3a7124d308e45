// SPDX-License-Identifier: MIT OR Apache-2.0

//! A memfd of which blocks are given out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::free::Free;
use super::inherit;
use crate::fd::PassedFd;
use crate::local::memory::{memfd, seal};

/// See the [module](self). It is never unmapped: peers know it by its number.
#[derive(Debug)]
pub(super) struct Arena {
    number: usize,
    first: NonNull<u8>,
    len: usize,
    fd: PassedFd,
    free: Free,
    /// Pages that are this process's alone, from and to.
    taken: Vec<[usize; 2]>,
}

// SAFETY: a mapping belongs to no thread. This type touches no byte of it.
unsafe impl Send for Arena {}

const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Arena {
    /// Makes the arena of this number. A size is whole pages.
    ///
    /// # Errors
    ///
    /// Shortages; `Unsupported` where the system would kill a process for want of room for a page
    /// (`vm.overcommit_memory` 2), and `FileTooLarge` where it would for the length.
    pub(super) fn create(number: usize, len: usize) -> io::Result<Self> {
        if counts_all_memory() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| most < len as u64) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let fd = PassedFd::from(memfd(c"iwarp-memory")?);
        rustix::fs::ftruncate(&fd, len as u64)?;
        seal(fd.as_fd())?;
        // SAFETY: a new mapping where the system likes it.
        let first = unsafe { rustix::mm::mmap(null_mut(), len, RIGHTS, MapFlags::SHARED, &fd, 0)? };
        let first = NonNull::new(first.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        inherit::note(number, first.as_ptr().expose_provenance(), len, fd.as_fd());
        Ok(Self { number, first, len, fd, free: Free::all(len), taken: Vec::new() })
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
        let at = self.free.take(len)?;
        if self.clear(at, len).is_err() {
            self.free.put(at, len);
            return None;
        }
        NonNull::new(self.first.as_ptr().wrapping_add(at))
    }

    /// Gives the pages of a block back to the system.
    pub(super) fn free(&mut self, addr: usize, len: usize) {
        let at = addr - self.first();
        // Where pages were taken away, a peer may still store into those that were there before:
        // the place stays unused.
        if !self.shares(addr, len) {
            let advice = rustix::mm::Advice::LinuxDontNeed;
            let place = self.first.as_ptr().wrapping_add(at).cast();
            // SAFETY: no other has these bytes.
            let _ = unsafe { rustix::mm::madvise(place, len, advice) };
            return;
        }
        // Without that they are cleared when a block has them again.
        let _ = self.clear(at, len);
        self.free.put(at, len);
    }

    /// Has bytes be zeros, without pages.
    fn clear(&self, at: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::io::retry_on_intr(|| fallocate(&self.fd, flags, at as u64, len as u64))?)
    }

    /// See [`Heap::take_away`](super::Heap::take_away).
    pub(super) fn take_away(&mut self, addr: usize, len: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let at = (addr - self.first()) & !(page - 1);
        let end = (addr - self.first() + len).next_multiple_of(page).min(self.len);
        self.taken.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (place, len) = (self.first.as_ptr().wrapping_add(at), end - at);
        // SAFETY: a new mapping where the system likes it.
        let own = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), len, RIGHTS, MapFlags::PRIVATE)?.cast::<u8>()
        };
        // SAFETY: both are mapped, of this length and apart; others may write to the first.
        let copied = unsafe { iwarp_mem::copy_out(own, place, len) };
        let moved =
            copied.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory)).and_then(|()| {
                if !inherit::note_taken(self.number, at, end) {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                // SAFETY: it takes the place of pages of the arena, and holds the same bytes.
                unsafe {
                    let flags = MremapFlags::MAYMOVE;
                    rustix::mm::mremap_fixed(own.cast(), len, len, flags, place.cast())?;
                }
                Ok(())
            });
        if moved.is_err() {
            // SAFETY: made above, and not moved.
            let _ = unsafe { rustix::mm::munmap(own.cast(), len) };
            return moved;
        }
        self.taken.push([at, end]);
        Ok(())
    }
}

/// True where the system promises no more memory than it has, so that a page may be refused when it
/// is first used, by a signal. An allocator is refused before.
fn counts_all_memory() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}
