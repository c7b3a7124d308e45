// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page of another process.

use std::io;
use std::os::fd::BorrowedFd;

use super::nonce;
use super::robust::{HOLDER, HOLDER_DIED};
use super::{LIVES, OCTETS, Shared, VERSION};
use crate::local::damage;
use crate::local::memory::SharedMemory;
use crate::local::peer::ReadError;
use crate::sync::{AtomicU32, Ordering, fence};

/// The page that another process shows.
#[derive(Debug)]
pub(crate) struct ShownStatus {
    memory: SharedMemory,
    /// The places of the words of which the system marks one.
    lives_at: [usize; LIVES],
    /// The numbers that are there meanwhile.
    holders: [u32; LIVES],
    pub(crate) nonce: [u8; nonce::OCTETS],
    pub(crate) nonce_at: u64,
}

impl ShownStatus {
    /// Maps what the other process has passed. All but what [`lives`](Self::lives) and
    /// [`since`](Self::since) look at is read once, here.
    ///
    /// # Errors
    ///
    /// `InvalidData` where it is something else, or one in which no thread says that the process
    /// lives; shortages.
    pub(crate) fn open(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let memory = SharedMemory::map_to_read(fd, OCTETS)?;
        let shared = shared(&memory);
        if shared.version.load(Ordering::Relaxed) != VERSION {
            return Err(damage("the peer's status is laid out otherwise"));
        }
        let within = size_of::<Shared>()..=OCTETS - size_of::<u32>();
        let mut lives_at = [0; LIVES];
        for (at, told) in lives_at.iter_mut().zip(&shared.lives_at) {
            *at = usize::try_from(told.load(Ordering::Acquire)).unwrap_or(0);
            if !within.contains(at) || !at.is_multiple_of(size_of::<u32>()) {
                return Err(damage("no thread of the peer holds its status"));
            }
        }
        let [one, other] = &shared.nonce;
        let words = [one, other].map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let nonce = std::array::from_fn(|at| words[at / 8][at % 8]);
        let nonce_at = shared.nonce_at.load(Ordering::Relaxed);
        let holders = lives_at.map(|at| life(&memory, at));
        if holders.iter().any(|holder| *holder == 0 || holder & HOLDER_DIED != 0) {
            return Err(damage("no thread of the peer holds its status any more"));
        }
        Ok(Self { memory, lives_at, holders, nonce, nonce_at })
    }

    /// True while the process lives, and runs the program of which it has shown the page. Not to
    /// be called in a forked child.
    #[inline]
    pub(crate) fn lives(&self) -> bool {
        self.lives_at.map(|at| life(&self.memory, at)) == self.holders
    }

    /// The result of `copy`, if the process has lived all the time.
    #[inline]
    pub(crate) fn alive<T>(
        &self,
        copy: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if self.memory.is_inherited() {
            return Err(ReadError::Refused);
        }
        if !self.lives() {
            return Err(ReadError::Dead);
        }
        let copied = copy();
        fence(Ordering::SeqCst);
        if self.lives() { copied } else { Err(ReadError::Dead) }
    }

    /// As [`alive`](Self::alive), if besides the process has taken no memory back since its count
    /// was `at`.
    #[inline]
    pub(crate) fn since<T>(
        &self,
        at: u64,
        copy: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.alive(|| {
            let copied = shared(&self.memory).revocations.since(at, copy);
            copied.unwrap_or(Err(ReadError::Revoked))
        })
    }

    /// True in a forked child, which has no mapping of it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.memory.is_inherited()
    }
}

fn shared(memory: &SharedMemory) -> &Shared {
    // SAFETY: it consists of atomics only.
    unsafe { memory.at(0) }
}

fn life(memory: &SharedMemory, at: usize) -> u32 {
    // SAFETY: an atomic.
    let word = unsafe { memory.at::<AtomicU32>(at) };
    word.load(Ordering::Acquire) & (HOLDER | HOLDER_DIED)
}
