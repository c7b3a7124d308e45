// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places that processes hold, each place at most one process at a time.
//!
//! They are record locks of a file in memory that has no name: only a process that was given the
//! file can hold a place, the system takes it back from a process that ends, however it does, and a
//! forked child has none of its parent's. A process has the file but once: all of its places go
//! when it closes any descriptor of it. Beside its places it has words, which every process that
//! was given it may read and change.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_short};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{pread, pwrite};

use crate::fd::{FdPlace, OurFd, as_fd};

/// The name of registers' files in `/proc`.
pub const LINK: &str = "/memfd:iwarp-register";

/// See the [module](self).
#[derive(Debug)]
pub struct Register {
    fd: OurFd,
}

impl Register {
    /// One with no place held.
    ///
    /// # Errors
    ///
    /// As for `memfd_create(2)`, which sandboxes may refuse.
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

    /// Gives a place back.
    ///
    /// # Errors
    ///
    /// `EBADF` where the file is not ours any more.
    pub fn release(&self, place: u32) -> io::Result<()> {
        set(self.as_fd(), libc::F_SETLK, libc::F_UNLCK, place).map(drop)
    }

    /// True if another process has the place.
    ///
    /// # Errors
    ///
    /// As [`Self::hold`].
    pub fn is_held(&self, place: u32) -> io::Result<bool> {
        Ok(self.holder(place)?.is_some())
    }

    /// The other process that has the place: its number, 0 where it has none in our PID namespace.
    ///
    /// # Errors
    ///
    /// As [`Self::hold`].
    pub fn holder(&self, place: u32) -> io::Result<Option<u32>> {
        let lock = lock(self.as_fd(), libc::F_GETLK, place)?;
        let process = u32::try_from(lock.l_pid).unwrap_or(0);
        Ok((lock.l_type != libc::F_UNLCK as c_short).then_some(process))
    }

    /// Processes that hold places of any register, or locks that look like such, as far as they
    /// have numbers in our PID namespace and the system tells.
    pub fn holders() -> BTreeSet<u32> {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        locks.lines().filter_map(holder_in).collect()
    }

    /// The value of the word; 0 if it was never written.
    ///
    /// # Errors
    ///
    /// `EBADF` where the file is not ours any more.
    pub fn word(&self, word: u32) -> io::Result<u64> {
        let mut octets = [0; 8];
        // A file that is shorter reads less.
        pread(self, &mut octets, u64::from(word) * 8)?;
        Ok(u64::from_ne_bytes(octets))
    }

    /// Writes a word.
    ///
    /// # Errors
    ///
    /// As [`Self::word`]; `ENOMEM`, `ENOSPC`.
    pub fn set_word(&self, word: u32, value: u64) -> io::Result<()> {
        Ok(pwrite(self, &value.to_ne_bytes(), u64::from(word) * 8).map(drop)?)
    }
}

/// The holder in a line of `/proc/locks`, if it is for writing of one byte.
fn holder_in(line: &str) -> Option<u32> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    match words[..] {
        [_, "POSIX", _, "WRITE", process, _, first, last] if first == last => {
            process.parse().ok().filter(|process| *process > 0)
        }
        _ => None,
    }
}

/// Takes a lock for writing of one byte, or returns the one that stands in its way.
fn lock(fd: BorrowedFd<'_>, command: c_int, place: u32) -> io::Result<libc::flock> {
    set(fd, command, libc::F_WRLCK, place)
}

fn set(fd: BorrowedFd<'_>, command: c_int, kind: c_int, place: u32) -> io::Result<libc::flock> {
    // SAFETY: zeroes are a value of this structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = place as libc::off_t;
    lock.l_len = 1;
    // SAFETY: the structure is the one that these commands read and write, and outlives the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

as_fd!(Register);

/// Takes over a register that came from another process.
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
            register.release(place).unwrap();
        }
    }

    #[test]
    fn holders_are_known() {
        let register = Register::create().unwrap();
        register.hold(7).unwrap();
        assert_eq!(holder_in("4: POSIX  ADVISORY  WRITE 5301 00:01:3077 19 19"), Some(5301));
        for other in [
            "1: POSIX  ADVISORY  READ  5301 00:01:3077 19 19",
            "1: POSIX  ADVISORY  WRITE 5301 00:01:3077 0 EOF",
            "1: POSIX  ADVISORY  WRITE -1 00:01:3077 19 19",
            "1: FLOCK  ADVISORY  WRITE 5301 00:01:3077 0 0",
            "1: -> POSIX  ADVISORY  WRITE 5301 00:01:3077 19 19",
            "",
        ] {
            assert_eq!(holder_in(other), None, "{other}");
        }
        let told = std::fs::read("/proc/locks").is_ok_and(|locks| !locks.is_empty());
        assert!(!told || Register::holders().contains(&std::process::id()));
    }

    #[test]
    fn words_are_everybodys() {
        let register = Register::create().unwrap();
        let other = Register::from(register.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(register.word(3).unwrap(), 0);
        register.set_word(3, u64::MAX - 1).unwrap();
        other.set_word(0, 7).unwrap();
        assert_eq!((other.word(3).unwrap(), register.word(0).unwrap()), (u64::MAX - 1, 7));
        assert_eq!((other.word(1).unwrap(), other.word(4).unwrap()), (0, 0));
    }
}
