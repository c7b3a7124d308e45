// SPDX-License-Identifier: MIT OR Apache-2.0

//! The descriptor that wakes a thread which sleeps in a call of the library.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use iwarp_os::{EventFd, EventFdKind, FdPlace, ProcessOwned};

/// A thread's own, kept for the next time that it sleeps.
#[derive(Debug)]
pub(crate) struct WakeFd {
    fd: EventFd,
}

thread_local! {
    /// This thread has, or had, a [`WAKE_FD`]: without memory the C library cannot note that one is
    /// to be dropped with the thread, and ends the process.
    static HAS_WAKE_FD: Cell<bool> = const { Cell::new(false) };
    static WAKE_FD: Cell<Option<ProcessOwned<Arc<WakeFd>>>> = const { Cell::new(None) };
}

impl WakeFd {
    /// The calling thread's; a thread that is ending keeps none.
    pub(crate) fn of_thread() -> io::Result<Arc<Self>> {
        if !HAS_WAKE_FD.get() {
            iwarp_mem::afford()?;
            HAS_WAKE_FD.set(true);
        }
        let kept = WAKE_FD.try_with(Cell::take).ok().flatten();
        let wake_fd = match kept.and_then(ProcessOwned::into_alive) {
            Some(wake_fd) => wake_fd,
            None => {
                let fd = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
                Arc::new(Self { fd })
            }
        };
        let keep = ProcessOwned::new(Arc::clone(&wake_fd));
        let _ = WAKE_FD.try_with(|kept| kept.set(Some(keep)));
        Ok(wake_fd)
    }

    pub(crate) fn signal(&self) {
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.fd.signal();
    }

    /// Forgets that it was signalled.
    pub(crate) fn drain(&self) {
        let _ = self.fd.drain();
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
