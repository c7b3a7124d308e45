// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server of events: code of the library above verbs that takes them on the worker's thread,
//! where no call of the program's waits for them.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::engine::sync::{AtomicBool, AtomicU32, Ordering};
use crate::engine::worker::Worker;

/// See the [module](self).
pub(crate) struct Server {
    worker: Weak<Worker>,
    serve: Arc<dyn Fn() + Send + Sync>,
    /// It is going to be called.
    is_due: Arc<AtomicBool>,
    /// The thread that sleeps on the channel and takes its events; 0 where none does.
    waiter: AtomicU32,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("waiter", &self.waiter).finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(worker: &Arc<Worker>, serve: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            worker: Arc::downgrade(worker),
            serve,
            is_due: Arc::new(AtomicBool::new(false)),
            waiter: AtomicU32::new(0),
        }
    }

    /// This thread is about to sleep on the channel. False where another does.
    pub(crate) fn begin_wait(&self) -> bool {
        let (own, seq) = (iwarp_os::thread::id(), Ordering::SeqCst);
        let waiter = self.waiter.load(seq);
        if waiter != 0 && waiter != own && iwarp_os::thread::is_alive(waiter) {
            return false;
        }
        self.waiter.compare_exchange(waiter, own, seq, seq).is_ok()
    }

    /// This thread does not sleep there any more.
    pub(crate) fn end_wait(&self) {
        let (own, seq) = (iwarp_os::thread::id(), Ordering::SeqCst);
        let _ = self.waiter.compare_exchange(own, 0, seq, seq);
    }

    /// True if a thread sleeps there. One that was cancelled has not said that it left.
    fn has_waiter(&self) -> bool {
        let waiter = self.waiter.load(Ordering::SeqCst);
        waiter != 0 && iwarp_os::thread::is_alive(waiter)
    }

    /// Has the worker serve, soon. False where a thread waits that does so.
    pub(crate) fn call(&self) -> bool {
        if self.has_waiter() {
            return false;
        }
        if !self.is_due.swap(true, Ordering::SeqCst)
            && let Some(worker) = self.worker.upgrade()
        {
            let (serve, is_due) = (Arc::clone(&self.serve), Arc::clone(&self.is_due));
            worker.soon(Box::new(move || {
                is_due.store(false, Ordering::SeqCst);
                serve();
            }));
        }
        true
    }
}
