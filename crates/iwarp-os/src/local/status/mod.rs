// SPDX-License-Identifier: MIT OR Apache-2.0

//! A page that a process shows to others which read its memory: it lives, and how often it has
//! taken memory back.
//!
//! ```text
//!   robust       mutexes whose word the system marks when its holder ends
//!   revocations  how often memory was taken back
//!   nonce        random bytes by which a reader knows that it reads this process
//!   shown        the page as another process has it
//! ```
//!
//! A number (pid) names a process only until that has ended, and then may name another. Robust
//! mutexes in the page are locked by a thread for as long as that lives. The system marks a mutex
//! at the end of the process and when it runs another program, before the number is free and before
//! the memory is another program's. Readers look at the marks before and after each copy, which
//! takes no system call. A forked child that ends changes nothing.
//!
//! The list that leads the system to the mutexes also leads through the page, and the C library
//! follows it. So no other process may write there: the page is sealed
//! (`F_SEAL_FUTURE_WRITE`, Linux 5.1), and a process that has the descriptor can map it to read
//! alone. It learns an address in the memory of the thread that holds them. The page
//! is meant for processes that may read all of this process's memory anyway.

mod nonce;
pub(crate) mod revocations;
mod robust;
pub(super) mod shown;
#[cfg(test)]
mod tests;

use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::Arc;

use self::nonce::Nonce;
use self::revocations::Revocations;
use super::memory::SharedMemory;
use crate::fd::PassedFd;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The layout of the page. Both processes must be of one build in this.
const VERSION: u64 = u64::from_be_bytes(*b"iwarpS\0\x02");

/// Bytes of the page: one, with most systems.
const OCTETS: usize = 4096;

/// The place of the mutexes: with most processors their words are in one cache line with the count
/// of revocations, as all are read for each copy.
const MUTEXES: usize = size_of::<Shared>();

const MUTEX: usize = size_of::<libc::pthread_mutex_t>();

const _: () = {
    assert!(MUTEXES.is_multiple_of(align_of::<libc::pthread_mutex_t>()));
    assert!(MUTEXES + LIVES * MUTEX <= OCTETS);
    assert!(offset_of!(Shared, revocations) == 128);
};

/// The mutexes that tell of the life of a process.
///
/// The system marks a word only if it has the number of the thread that ends. A thread that runs
/// another program, and is not the first of its process, takes the first one's number before that,
/// which is the process's. So there is a mutex besides whose word has that number.
const LIVES: usize = 2;

/// The words that readers look at. The process writes them before it passes the descriptor, but for
/// the last.
#[repr(C)]
#[derive(Debug)]
struct Shared {
    version: AtomicU64,
    nonce: [AtomicU64; 2],
    /// The address of the nonce in the process's own memory.
    nonce_at: AtomicU64,
    /// The places of the mutexes' words in the page; 0 until a thread has locked them.
    lives_at: [AtomicU64; LIVES],
    _unused: [AtomicU64; 10],
    revocations: Revocations,
}

/// The page of this process, for others to read.
///
/// The methods do nothing in a forked child, which has no mapping of it.
#[derive(Debug)]
pub struct StatusPage {
    page: Arc<Page>,
}

/// A thread by whose life others know that this process lives. Dropping it ends that: for those
/// who have the page, this process is dead.
#[derive(Debug)]
#[must_use]
pub struct Life {
    page: Arc<Page>,
    /// The number of this thread, once it has locked the second mutex.
    second: Option<u32>,
    /// A mutex is unlocked by the thread that has locked it.
    _here: PhantomData<*mut ()>,
}

#[derive(Debug)]
struct Page {
    memory: SharedMemory,
    nonce: Nonce,
}

impl StatusPage {
    /// Makes one, and a descriptor to pass to other processes once a thread [holds](Self::hold) it.
    ///
    /// # Errors
    ///
    /// `Unsupported` where there are no robust mutexes; `InvalidInput` before Linux 5.1; shortages,
    /// which leave nothing behind.
    pub fn create() -> io::Result<(Self, PassedFd)> {
        let (memory, fd) = SharedMemory::create_to_show(c"iwarp-status", OCTETS)?;
        let page = Page { memory, nonce: Nonce::new()? };
        // SAFETY: memory of this process alone so far, with room for it, where it stays: while a
        // thread has it locked, a `Life` has the page.
        unsafe { robust::init(page.mutex(0))? };
        let shared = page.shared();
        let [nonce, _] = page.nonce.octets();
        for (word, octets) in shared.nonce.iter().zip(nonce.chunks_exact(8)) {
            let octets = octets.try_into().expect("eight");
            word.store(u64::from_ne_bytes(octets), Ordering::Relaxed);
        }
        shared.nonce_at.store(page.nonce.address() as u64, Ordering::Relaxed);
        shared.version.store(VERSION, Ordering::Relaxed);
        Ok((Self { page: Arc::new(page) }, fd))
    }

    /// The calling thread is the one by whose life others know that this process lives: until what
    /// this returns is dropped, the thread or the process ends, or the process runs another
    /// program. One thread at a time.
    ///
    /// A process that opens the page while one thread holds it knows nothing of the next.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` where another thread is it; `Unsupported` where the system does not keep the
    /// list of a thread's robust mutexes, or does not tell of it (sandboxes).
    pub fn hold(&self) -> io::Result<Life> {
        if self.page.memory.is_inherited() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let numbers = [rustix::thread::gettid(), rustix::process::getpid()];
        let [thread, process] = numbers.map(|number| number.as_raw_nonzero().get().cast_unsigned());
        // SAFETY: made in `create`, and it stays there: `Life` has the page.
        unsafe { robust::try_lock(self.page.mutex(0))? };
        // Unlocks it if anything is wrong.
        let mut life = Life { page: Arc::clone(&self.page), second: None, _here: PhantomData };
        let first_at = self.page.locked_at(0, thread)?;
        // SAFETY: who has the first mutex has the second, too, so no thread has it locked, or one
        // that has ended without unlocking it. It stays there, as above.
        unsafe {
            robust::init(self.page.mutex(1))?;
            robust::try_lock(self.page.mutex(1))?;
        }
        life.second = Some(thread);
        let second_at = self.page.locked_at(1, thread)?;
        self.page.word(second_at).store(process, Ordering::Relaxed);
        for (word, at) in self.page.shared().lives_at.iter().zip([first_at, second_at]) {
            word.store(at as u64, Ordering::Release);
        }
        Ok(life)
    }

    /// Random bytes that another process knows only if it has [read](super::PeerMemory::probe) this
    /// one's memory; `None` in a forked child.
    pub fn secret(&self) -> Option<[u8; 16]> {
        (!self.page.memory.is_inherited()).then(|| self.page.nonce.octets()[1])
    }

    /// The number of times that memory was taken back: goes along with an address that others are
    /// to read.
    pub fn revocations(&self) -> u64 {
        if self.page.memory.is_inherited() {
            return 0;
        }
        self.page.shared().revocations.count()
    }

    /// Memory is taken back of which others may have the address, whether they are copying just now
    /// or not. No copy counts that ends after this, by any address that was passed before it. Waits
    /// for no other process.
    pub fn revoke(&self) {
        if !self.page.memory.is_inherited() {
            self.page.shared().revocations.add();
        }
    }
}

impl Page {
    fn shared(&self) -> &Shared {
        // SAFETY: it consists of atomics only.
        unsafe { self.memory.at(0) }
    }

    fn mutex(&self, which: usize) -> *mut libc::pthread_mutex_t {
        self.memory.as_ptr().wrapping_add(MUTEXES + which * MUTEX).cast()
    }

    /// The place in the page of the word of this mutex, which the calling thread has just locked.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system would not mark it.
    fn locked_at(&self, which: usize, thread: u32) -> io::Result<usize> {
        let word = robust::last_locked().ok_or(io::ErrorKind::Unsupported)?;
        let at = word.wrapping_sub(self.memory.as_ptr().addr());
        let begin = MUTEXES + which * MUTEX;
        let is_its = (begin..=begin + MUTEX - size_of::<u32>()).contains(&at)
            && at.is_multiple_of(size_of::<u32>());
        if is_its && self.word(at).load(Ordering::Relaxed) == thread {
            Ok(at)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: an atomic.
        unsafe { self.memory.at(at) }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // A child has no mapping there.
        if self.page.memory.is_inherited() {
            return;
        }
        if let Some(thread) = self.second {
            // The C library may want to find the number that it has written.
            let at = self.page.shared().lives_at[1].load(Ordering::Relaxed);
            if at != 0 {
                self.page.word(at as usize).store(thread, Ordering::Relaxed);
            }
            // SAFETY: locked by `hold` in this thread.
            unsafe { robust::unlock(self.page.mutex(1)) };
        }
        // SAFETY: as above.
        unsafe { robust::unlock(self.page.mutex(0)) };
    }
}
