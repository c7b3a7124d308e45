// SPDX-License-Identifier: MIT OR Apache-2.0

//! A condition variable that costs nothing where no thread waits.
//!
//! std's makes a system call for each notification, also where no thread waits: several for each
//! message of a session, in which a thread mostly finds what it needs without waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

/// See the [module](self). It belongs to one mutex, under which the program changes what threads
/// wait for.
#[derive(Debug, Default)]
pub struct Bell {
    /// Threads that wait, or are about to: each has counted itself with the mutex held.
    waiting: AtomicUsize,
    condvar: Condvar,
}

impl Bell {
    /// One for which no thread waits.
    pub const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), condvar: Condvar::new() }
    }

    /// Wakes all threads that wait. To be called after the change, with the mutex held or released:
    /// a thread that takes it later sees the change, and one that has held it before is counted.
    #[inline]
    pub fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }

    /// Releases the mutex and blocks until the bell rings, or for no reason; then holds it again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _counted = Counted::new(&self.waiting);
        self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::wait`], for `time` at most.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        let _counted = Counted::new(&self.waiting);
        self.condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    /// Each turn waits for the other thread's, so a ring that is lost would be the end.
    #[test]
    fn no_ring_is_lost() {
        let (turn, bell) = (Mutex::new(0_u32), Bell::new());
        let play = |mine: u32| {
            for _ in 0..20_000 {
                let mut turn = turn.lock().unwrap();
                while *turn % 2 != mine {
                    turn = bell.wait(turn);
                }
                *turn += 1;
                drop(turn);
                bell.ring();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
        assert_eq!(*turn.lock().unwrap(), 40_000);
        assert_eq!(bell.waiting.into_inner(), 0);
    }

    #[test]
    fn a_wait_has_an_end() {
        let (state, bell) = (Mutex::new(()), Bell::new());
        drop(bell.wait_timeout(state.lock().unwrap(), Duration::from_millis(1)));
        assert_eq!(bell.waiting.into_inner(), 0);
    }
}
