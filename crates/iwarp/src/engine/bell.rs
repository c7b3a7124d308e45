//! What wakes a thread that sleeps in a call of the library.

use std::cell::Cell;
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
    /// This thread has, or had, a [`BELL`]: without memory the C library cannot note that one is to
    /// be dropped with the thread, and ends the process.
    static HAS_BELL: Cell<bool> = const { Cell::new(false) };
    static BELL: Cell<Option<Arc<Bell>>> = const { Cell::new(None) };
}

impl Bell {
    /// The calling thread's; a thread that is ending keeps none.
    pub(crate) fn of_thread() -> io::Result<Arc<Self>> {
        if !HAS_BELL.get() {
            iwarp_mem::afford()?;
            HAS_BELL.set(true);
        }
        let kept = BELL.try_with(Cell::take).ok().flatten();
        let bell = match kept.filter(|bell| !bell.process.forked()) {
            Some(bell) => bell,
            None => {
                let fd = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
                Arc::new(Self { fd, process: ForkGeneration::new() })
            }
        };
        let _ = BELL.try_with(|kept| kept.set(Some(Arc::clone(&bell))));
        Ok(bell)
    }

    pub(crate) fn ring(&self) {
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.fd.signal();
    }

    /// Forgets that it was rung.
    pub(crate) fn still(&self) {
        let _ = self.fd.drain();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
