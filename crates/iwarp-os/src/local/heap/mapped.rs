// SPDX-License-Identifier: MIT OR Apache-2.0

//! An arena of another process, as this one maps it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_types::AtomicOp;

use crate::local::SharedMemory;
use crate::part::{IoPart, IoPartMut, Place};

/// See [`MappedArena::is_any`].
static ANY: AtomicBool = AtomicBool::new(false);

/// An arena of another process, which this one reads and writes where it lies. It may be gone at
/// any moment, as its owner can punch holes into it: then accesses have the system find new pages.
///
/// A forked child has no mapping of it: its calls fail.
#[derive(Debug)]
pub struct MappedArena(SharedMemory);

impl MappedArena {
    /// Maps what the other process has passed.
    ///
    /// # Errors
    ///
    /// As [`SharedMemory::map`].
    pub fn map(fd: BorrowedFd<'_>, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let memory = SharedMemory::map_arena(fd, len)?;
        ANY.store(true, Ordering::Relaxed);
        Ok(Self(memory))
    }

    /// True once this process has mapped one.
    #[inline]
    pub fn is_any() -> bool {
        ANY.load(Ordering::Relaxed)
    }

    /// Copies bytes from `offset` on, as many as there is room for. False where they are not all
    /// there, or the room is not: some of it may hold bytes.
    pub fn read(&self, offset: u64, to: &mut [IoPartMut<'_>]) -> bool {
        let len = IoPartMut::total(to);
        let Some(place) = self.place(offset, len) else { return false };
        // SAFETY: the place is in our mapping, to which no Rust reference exists; no part is in it.
        unsafe { IoPartMut::scatter_from(to, &[place]).is_ok_and(|copied| copied == len) }
    }

    /// Places bytes from `offset` on, the last of them last. False where they are not all there, or
    /// the place is not: some may have been placed, and the last was not.
    pub fn write(&self, offset: u64, from: &[IoPart<'_>]) -> bool {
        let Some(place) = self.place(offset, IoPart::total(from)) else { return false };
        let _admitted = iwarp_mem::admit_faults();
        let mut to = place.first;
        from.iter().all(|part| {
            // SAFETY: as above; of a part its maker has said that it may be read or is not mapped.
            let placed = unsafe { iwarp_mem::place_at(to, part.as_ptr(), part.len()) };
            to = to.wrapping_add(part.len());
            placed.is_ok()
        })
    }

    /// Performs an operation on the 8 bytes at `offset`, and returns the value before. `None` where
    /// they are not aligned, or not there: nothing was done then.
    pub fn update(&self, offset: u64, op: AtomicOp) -> Option<u64> {
        let place = self.place(offset, size_of::<u64>())?;
        let _admitted = iwarp_mem::admit_faults();
        // SAFETY: as above.
        unsafe { iwarp_mem::update_at(place.first.cast(), op) }.ok()
    }

    fn place(&self, offset: u64, len: usize) -> Option<Place> {
        let at = usize::try_from(offset).ok()?;
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.0.len());
        let first = self.0.as_ptr().wrapping_add(at);
        (is_within && !self.0.is_inherited()).then_some(Place { first, len })
    }
}
