// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that are mapped into the process, as memory of regions.

use std::ffi::c_int;
use std::io;

/// A file that is mapped, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(super) start: *mut u8,
    length: usize,
}

// SAFETY: memory belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the pages of `length` bytes at `offset`.
    pub(super) fn new(fd: c_int, offset: u64, length: usize, write: bool) -> io::Result<Self> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let rights = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping where the system likes it.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, fd, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the region of it, which came before, is no more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
