//! Threads that leave the program's signals alone.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Starts a thread in which every signal is blocked from its first instruction on, so that the
/// program's handlers run in the program's threads and interrupt none of ours. (The C library
/// keeps the few that it needs itself.)
///
/// The kernel shows the first 15 octets of `name`.
///
/// # Errors
///
/// When the system allows no more threads.
///
/// # Panics
///
/// If `name` holds a NUL.
pub fn spawn_blocked<F, T>(name: &str, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let builder = Builder::new().name(name.to_owned());
    // A thread inherits the mask of the one that starts it.
    let _restored = BlockedSignals::all();
    builder.spawn(f)
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
        let inside = spawn_blocked("iwarp-test", || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            let all = (1..=31)
                .filter(|&signal| signal != libc::SIGKILL && signal != libc::SIGSTOP)
                .all(blocked);
            (name, all)
        });
        let (name, all) = inside.unwrap().join().unwrap();
        assert_eq!(name.trim_end(), "iwarp-test");
        assert!(all);
        let after: Vec<bool> = (1..=31).map(blocked).collect();
        assert_eq!(before, after);
    }
}
