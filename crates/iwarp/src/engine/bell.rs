//! What wakes a thread that sleeps in a call of the library.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use iwarp_os::{EventFd, EventFdKind, FdPlace, ForkGeneration};

/// A thread's own, kept for the next time that it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: EventFd,
    process: ForkGeneration,
}

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// That of the calling thread.
    pub(crate) fn of_thread() -> io::Result<Arc<Self>> {
        BELL.with_borrow_mut(|kept| {
            if let Some(bell) = kept.as_ref().filter(|bell| !bell.process.forked()) {
                return Ok(Arc::clone(bell));
            }
            let fd = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
            let bell = Arc::new(Self { fd, process: ForkGeneration::new() });
            *kept = Some(Arc::clone(&bell));
            Ok(bell)
        })
    }

    pub(crate) fn ring(&self) {
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.fd.signal();
    }

    /// Takes back that it was rung.
    pub(crate) fn still(&self) {
        let _ = self.fd.drain();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
