// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that leave the program's signals alone.

use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A thread. Dropping this lets it run on.
#[derive(Debug)]
pub struct Thread {
    id: libc::pthread_t,
}

// A pointer with some C libraries, a number with others.
// SAFETY: it names the thread to the C library, which takes it from any thread; nothing here looks
// at what it may point to.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

/// Starts a thread in which every signal is blocked from its first instruction on, so that the
/// program's handlers run in the program's threads and interrupt none of ours. (The C library
/// keeps the few that it needs itself.)
///
/// By the C library and not by std, which takes a lock of its own as a thread begins: in a forked
/// child it may be held for ever.
///
/// The kernel shows the first 15 bytes of `name`.
///
/// # Errors
///
/// When the system allows no more threads.
///
/// # Panics
///
/// If `name` holds a NUL.
pub fn spawn_blocked<F>(name: &str, f: F) -> io::Result<Thread>
where
    F: FnOnce() + Send + 'static,
{
    let name: String = name.chars().take(15).collect();
    let name = CString::new(name).expect("a name without NUL");
    let start = Box::into_raw(Box::new(Start { name, f }));
    let mut id = MaybeUninit::uninit();
    let error = {
        // A thread inherits the mask of the one that starts it.
        let _restored = BlockedSignals::all();
        // SAFETY: `run` gets what it takes, once, and owns it from then on.
        unsafe { libc::pthread_create(id.as_mut_ptr(), std::ptr::null(), run::<F>, start.cast()) }
    };
    if error != 0 {
        // SAFETY: there is no thread that could have it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: written by the call.
    Ok(Thread { id: unsafe { id.assume_init() } })
}

impl Thread {
    /// Whether this is the calling thread.
    pub fn is_current(&self) -> bool {
        // SAFETY: compares two numbers.
        unsafe { libc::pthread_equal(self.id, libc::pthread_self()) != 0 }
    }

    /// Waits for its end; not to be called by itself.
    pub fn join(self) {
        // SAFETY: it was neither joined nor detached: this is the only handle. Cannot fail but for
        // a thread that waits for itself, which does nothing.
        unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
        std::mem::forget(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.id) };
    }
}

struct Start<F> {
    name: CString,
    f: F,
}

extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn_blocked` gives its box away.
    let Start { name, f } = *unsafe { Box::from_raw(start.cast::<Start<F>>()) };
    // SAFETY: a string of at most 15 bytes and a NUL, for the kernel to copy.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // A panic was reported when it happened; the C library is not to be unwound into.
    let _ = catch_unwind(AssertUnwindSafe(f));
    std::ptr::null_mut()
}

/// All signals blocked in this thread until dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises `all`; `pthread_sigmask` reads it and writes the mask
        // in force to `before`. With a valid `how` neither can fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals { before: before.assume_init() }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that `all` found; a null pointer means: not interested.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: libc::c_int) -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: without a new mask, `pthread_sigmask` writes the one in force to `mask`, which
        // `sigismember` then reads.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn signals_are_blocked_in_the_thread_and_nowhere_else() {
        let before: Vec<bool> = (1..=31).map(blocked).collect();
        let (sender, inside) = std::sync::mpsc::channel();
        let thread = spawn_blocked("iwarp-test-with-a-long-name", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            let all = (1..=31)
                .filter(|&signal| signal != libc::SIGKILL && signal != libc::SIGSTOP)
                .all(blocked);
            sender.send((name, all)).unwrap();
        });
        thread.unwrap().join();
        let (name, all) = inside.recv().unwrap();
        assert_eq!(name.trim_end(), "iwarp-test-with");
        assert!(all);
        let after: Vec<bool> = (1..=31).map(blocked).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn a_thread_that_panics_ends_alone() {
        let thread = spawn_blocked("iwarp-test", || panic!("on purpose")).unwrap();
        assert!(!thread.is_current());
        thread.join();
    }
}
