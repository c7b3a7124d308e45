// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random bytes in memory that no other process has.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::fork::ForkGeneration;

/// Length in bytes of what is shown, and of what is not.
pub(crate) const OCTETS: usize = 16;

const LEN: usize = 2 * OCTETS;

/// Random bytes that a forked child does not inherit. Who finds the first half at this address has
/// found this process, and who knows the second half has read it.
#[derive(Debug)]
pub(super) struct Nonce {
    place: NonNull<[[u8; OCTETS]; 2]>,
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
        let mut octets = [[0; OCTETS]; 2];
        getrandom::fill(octets.as_flattened_mut())?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the system likes it.
        let page = unsafe { mmap_anonymous(null_mut(), LEN, rights, MapFlags::PRIVATE)? };
        let place = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let nonce = Self { place, process: ForkGeneration::new() };
        // SAFETY: the mapping that was just made, which nothing else uses.
        unsafe {
            madvise(page, LEN, Advice::LinuxDontFork)?;
            place.write(octets);
        }
        Ok(nonce)
    }

    pub(super) fn address(&self) -> usize {
        self.place.as_ptr().addr()
    }

    /// Both halves. Not to be called in a child.
    pub(super) fn octets(&self) -> [[u8; OCTETS]; 2] {
        // SAFETY: mapped by `new` in this process, and written before.
        unsafe { self.place.read() }
    }
}

impl Drop for Nonce {
    fn drop(&mut self) {
        // A child has no mapping there, or one of its own.
        if !self.process.forked() {
            // SAFETY: mapped by `new`, and nothing refers to it any more.
            let _ = unsafe { munmap(self.place.as_ptr().cast(), LEN) };
        }
    }
}
