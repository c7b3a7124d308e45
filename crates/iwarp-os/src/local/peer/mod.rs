// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of another process of this host, copied out of it by the system
//! (`process_vm_readv`), also while that process sleeps or is stopped.
//!
//! The system lets a process read another's memory that may also debug it. So this gives no
//! process a right that it did not have. The other process need do nothing, and cannot tell that
//! its memory is read.

mod copy;
mod part;
#[cfg(test)]
mod tests;

pub use self::part::RemotePart;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use super::status::shown::ShownStatus;
use crate::part::IoPartMut;
use crate::unix::SeqSocket;

/// Pieces of either side that one call takes.
pub const MAX_PARTS: usize = 1024;

/// Another process, whose memory this one reads.
///
/// A forked child may do nothing with one that it inherits: its calls are refused.
#[derive(Debug)]
pub struct PeerMemory {
    /// 0 where none of its own memory is read.
    process: i32,
    status: ShownStatus,
}

/// Bytes of another process were not read, or do not count. Room for them may hold some all the
/// same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The process has ended, or runs another program, or its thread that
    /// [stands for it](super::StatusPage::hold) has ended.
    Dead,
    /// The process has [taken memory back](super::StatusPage::revoke) since the addresses were
    /// passed: perhaps other memory than that which was read.
    Revoked,
    /// The system does not let this process read the other, or any process another: `EPERM`,
    /// `ENOSYS`, any error of a sandbox.
    Refused,
    /// The first byte is not there, or the first of the room for it (`EFAULT`): it is not mapped,
    /// may not be accessed, or is no ordinary memory.
    Gone,
    /// The system is short of memory. A later call may do.
    Shortage,
}

impl PeerMemory {
    /// The process at the other end of the socket, by its [page](super::StatusPage), which it has
    /// passed. Which process that is the system alone says (`SO_PEERCRED`).
    ///
    /// That the page is that process's is not sure before [`probe`](Self::probe) says so.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the descriptor is no such page, or the process is no more;
    /// `Unsupported` where the process has no number here, as it is in an outer PID namespace, or
    /// is another user's, whom this process may read only by a privilege; shortages.
    pub fn open(peer: &SeqSocket, page: BorrowedFd<'_>) -> io::Result<Self> {
        let process = peer.peer_process().ok_or(io::ErrorKind::Unsupported)?;
        if peer.peer_user()? != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Self::of_process(process, page)
    }

    fn of_process(process: u32, page: BorrowedFd<'_>) -> io::Result<Self> {
        // To the system, 0 is no process.
        let process = i32::try_from(process).ok().filter(|process| *process > 0);
        let process = process.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { process, status: ShownStatus::open(page)? })
    }

    /// A process of whose memory only that is to be accessed which this one maps, by its page.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the descriptor is no such page, or the process is no more; shortages.
    pub fn of_page(page: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { process: 0, status: ShownStatus::open(page)? })
    }

    /// True if the system may let this process read the other's own memory.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.process > 0
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.process.unsigned_abs()
    }

    /// True while the process lives and runs the program of which it has shown the page. Two loads,
    /// no system call.
    #[inline]
    pub fn lives(&self) -> bool {
        !self.status.is_inherited() && self.status.lives()
    }

    /// Reads random bytes of the process and compares half of them with its page: the page is that
    /// process's, and this process may read it. Returns the other half, by which that process knows
    /// that it was read.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Refused` also where the bytes are others.
    pub fn probe(&self) -> Result<[u8; 16], ReadError> {
        let [mut nonce, mut secret] = [[0; 16]; 2];
        if !self.is_read() {
            return Err(ReadError::Refused);
        }
        let from = RemotePart::new(self.status.nonce_at, 32).ok_or(ReadError::Gone)?;
        let mut room = [IoPartMut::new(&mut nonce), IoPartMut::new(&mut secret)];
        let read = self.status.alive(|| copy::copy(self.process, &[from], &mut room))?;
        let is_its = read == 32 && nonce == self.status.nonce;
        is_its.then_some(secret).ok_or(ReadError::Refused)
    }

    /// True while the process lives and has taken no memory back since its count was `at`.
    #[inline]
    pub fn is_at(&self, at: u64) -> bool {
        self.status.since(at, || Ok(())).is_ok()
    }

    /// The result of `copy`, which copies out of memory of the process that this one maps, if the
    /// bytes count.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[inline]
    pub fn since<T>(
        &self,
        at: u64,
        copy: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.status.since(at, copy)
    }

    /// Copies bytes from the other process's memory, by one system call, and says how many. They
    /// are fewer than both sides have where the next byte of either side cannot be accessed or
    /// there are more than [`MAX_PARTS`] pieces on one: another call, for the rest, tells. It is 0
    /// only where one side has none.
    ///
    /// `at` is the count that the process passed with the addresses
    /// ([`StatusPage::revocations`](super::StatusPage::revocations)).
    ///
    /// The other process, or others, may write to that memory meanwhile: then a mixture of
    /// old and new bytes is read. A page that the process has mapped from a file whose server does
    /// not answer holds the caller, even against SIGKILL.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. Where the process has ended or taken memory back, that goes before all else,
    /// and any bytes that were copied do not count.
    pub fn read(
        &self,
        at: u64,
        from: &[RemotePart],
        to: &mut [IoPartMut<'_>],
    ) -> Result<usize, ReadError> {
        if !self.is_read() {
            return Err(ReadError::Refused);
        }
        self.status.since(at, || copy::copy(self.process, from, to))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => "the process has ended",
            Self::Revoked => "the process has taken memory back",
            Self::Refused => "the system does not let this process read the other's memory",
            Self::Gone => "the memory is not there",
            Self::Shortage => "the system is short of memory",
        })
    }
}

impl std::error::Error for ReadError {}
