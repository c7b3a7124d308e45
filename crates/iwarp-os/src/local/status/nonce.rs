// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random bytes in memory that no other process has.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::fork::ForkGeneration;

/// Length in bytes.
pub(crate) const OCTETS: usize = 16;

/// Random bytes that a forked child does not inherit: who finds them at this address has found
/// this process.
#[derive(Debug)]
pub(super) struct Nonce {
    place: NonNull<[u8; OCTETS]>,
    process: ForkGeneration,
}

// SAFETY: bytes that are written once, before this is made, and never again.
unsafe impl Send for Nonce {}
// SAFETY: as above.
unsafe impl Sync for Nonce {}

impl Nonce {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// Shortages, of randomness as well.
    pub(super) fn new() -> io::Result<Self> {
        let mut octets = [0; OCTETS];
        getrandom::fill(&mut octets)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the system likes it.
        let page = unsafe { mmap_anonymous(null_mut(), OCTETS, rights, MapFlags::PRIVATE)? };
        let place = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let nonce = Self { place, process: ForkGeneration::new() };
        // SAFETY: the mapping that was just made, which nothing else uses.
        unsafe {
            madvise(page, OCTETS, Advice::LinuxDontFork)?;
            place.write(octets);
        }
        Ok(nonce)
    }

    pub(super) fn address(&self) -> usize {
        self.place.as_ptr().addr()
    }

    /// Not to be called in a child.
    pub(super) fn octets(&self) -> [u8; OCTETS] {
        // SAFETY: mapped by `new` in this process, and written before.
        unsafe { self.place.read() }
    }
}

impl Drop for Nonce {
    fn drop(&mut self) {
        // A child has no mapping there, or one of its own.
        if !self.process.forked() {
            // SAFETY: mapped by `new`, and nothing refers to it any more.
            let _ = unsafe { munmap(self.place.as_ptr().cast(), OCTETS) };
        }
    }
}
