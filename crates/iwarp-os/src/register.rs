// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places of which processes hold some, each at most one process at a time.
//!
//! They are record locks of a file in memory that has no name: only who was given the file can hold a
//! place, the system takes it back from a process that ends, however it does, and a forked child has
//! none of its parent's. A process has the file but once: all of its places go when it closes any
//! descriptor of it.

use std::ffi::{c_int, c_short};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::fd::{FdPlace, OurFd, as_fd};

/// See the [module](self).
#[derive(Debug)]
pub struct Register {
    fd: OurFd,
}

impl Register {
    /// One of whose places none is held.
    ///
    /// # Errors
    ///
    /// Those of `memfd_create(2)`, which sandboxes may refuse.
    pub fn create() -> io::Result<Self> {
        Ok(memfd_create(c"iwarp-register", MemfdFlags::CLOEXEC)?.into())
    }

    /// Takes a place, which this process may have already. False where another has it.
    ///
    /// # Errors
    ///
    /// Shortages; `EINVAL`, `EBADF` of files that have no places.
    pub fn hold(&self, place: u32) -> io::Result<bool> {
        match lock(self.as_fd(), libc::F_SETLK, place) {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Whether another process has the place.
    ///
    /// # Errors
    ///
    /// As [`Self::hold`].
    pub fn is_held(&self, place: u32) -> io::Result<bool> {
        lock(self.as_fd(), libc::F_GETLK, place).map(|kind| kind != libc::F_UNLCK as c_short)
    }
}

/// What becomes of a lock for writing of one byte, or stands in its way.
fn lock(fd: BorrowedFd<'_>, command: c_int, place: u32) -> io::Result<c_short> {
    // SAFETY: zeroes are a value of this structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = place as libc::off_t;
    lock.l_len = 1;
    // SAFETY: the structure is the one that these commands read and write, and outlives the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type) }
}

as_fd!(Register);

/// Takes over what came from another process.
impl From<OwnedFd> for Register {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: FdPlace::Internal.put(fd) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes have places in the tests of the port that processes share.
    #[test]
    fn places_are_ones_own() {
        let register = Register::create().unwrap();
        for place in [0, 1, 63, u32::MAX] {
            assert!(!register.is_held(place).unwrap());
            assert!(register.hold(place).unwrap() && register.hold(place).unwrap());
            assert!(!register.is_held(place).unwrap(), "by another");
        }
    }
}
