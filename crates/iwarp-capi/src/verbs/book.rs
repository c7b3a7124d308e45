// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that were handed out, and their acknowledgements.
//!
//! An object may not be freed while the program holds an event about it: destroying it waits for
//! the acknowledgements (`ibv_ack_cq_events`, `ibv_ack_async_event`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use iwarp::Log;
use iwarp::observe::WaitingCall;
use iwarp::verbs::OutOfMemory;
use iwarp_os::Heritable;

use crate::log::{PATIENCE, say};

/// Entries to reserve: other threads may take some meanwhile.
const ROOM: usize = 16;

/// The object that an event is about, as the library numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    Qp(u32),
    Cq(u64),
    Srq(u64),
}

impl Key {
    /// Tells the user that a thread waits to destroy the object for longer than any program means
    /// to.
    #[cold]
    fn tell_of_waiting(self, pending: u32) -> WaitingCall {
        let (call, what, acknowledge) = match self {
            Self::Qp(_) => ("ibv_destroy_qp", "queue pair", "ibv_ack_async_event"),
            Self::Cq(_) => {
                ("ibv_destroy_cq", "completion queue", "ibv_ack_cq_events (or ibv_ack_async_event)")
            }
            Self::Srq(_) => ("ibv_destroy_srq", "shared receive queue", "ibv_ack_async_event"),
        };
        let why = format!(
            "{call} waits until the program has acknowledged {pending} event(s) of the {what} that \
             it took: call {acknowledge} for each"
        );
        say(Log::Warn, format_args!("{why}"));
        WaitingCall::new(why)
    }
}

/// The objects that a source of events can name. A forked child begins with none: it enters those
/// of its parent's objects with which it goes on.
#[derive(Debug)]
pub(crate) struct Book(Heritable<Pages>);

#[derive(Debug, Default)]
struct Pages {
    entries: Mutex<Entries>,
    acknowledged: Condvar,
}

#[derive(Debug, Default)]
struct Entries {
    of: HashMap<Key, Entry>,
    /// Threads that wait for acknowledgements: to wake none costs a system call as well.
    striking: u32,
}

impl Default for Book {
    fn default() -> Self {
        Self(Heritable::new(Pages::default()))
    }
}

#[derive(Debug)]
struct Entry {
    /// Address of the object. Only handed out, never followed.
    object: usize,
    pending: u32,
}

impl Book {
    /// Makes room for another one, so that [`Self::enter`] needs no memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub(crate) fn prepare(&self) -> io::Result<()> {
        Ok(self.pages().entries().of.try_reserve(ROOM).map_err(|_| OutOfMemory)?)
    }

    #[inline]
    fn pages(&self) -> &Pages {
        let Self(pages) = self;
        match pages.get_or_make(|_| Ok::<_, Infallible>(Pages::default())) {
            Ok(own) => own,
        }
    }

    /// From now on events about `key` are about the object at this address.
    pub(crate) fn enter(&self, key: Key, object: usize) {
        self.pages().entries().of.insert(key, Entry { object, pending: 0 });
    }

    /// The object that an event is about; it must be acknowledged. `None` when it is gone.
    pub(crate) fn hand_out(&self, key: Key) -> Option<usize> {
        let mut entries = self.pages().entries();
        let entry = entries.of.get_mut(&key)?;
        entry.pending += 1;
        Some(entry.object)
    }

    /// Calls `f` with the object, which is not struck off meanwhile.
    pub(crate) fn with<R>(&self, key: Key, f: impl FnOnce(usize) -> R) -> Option<R> {
        let entries = self.pages().entries();
        Some(f(entries.of.get(&key)?.object))
    }

    /// `count` events were acknowledged.
    pub(crate) fn acknowledge(&self, key: Key, count: u32) {
        let pages = self.pages();
        let mut entries = pages.entries();
        if let Some(entry) = entries.of.get_mut(&key) {
            entry.pending = entry.pending.saturating_sub(count);
        }
        if entries.striking > 0 {
            pages.acknowledged.notify_all();
        }
    }

    /// Waits until every event about `key` that was handed out is acknowledged, and has no more
    /// handed out.
    pub(crate) fn strike(&self, key: Key) {
        let pages = self.pages();
        let mut entries = pages.entries();
        entries.striking += 1;
        let mut waiting = None;
        while let Some(pending) = entries.of.get(&key).map(|entry| entry.pending)
            && pending > 0
        {
            let waited = pages.acknowledged.wait_timeout(entries, PATIENCE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            entries = again;
            if timeout.timed_out() && waiting.is_none() {
                drop(entries);
                waiting = Some(key.tell_of_waiting(pending));
                entries = pages.entries();
            }
        }
        entries.striking -= 1;
        entries.of.remove(&key);
    }
}

impl Pages {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_key_that_is_gone_is_not_handed_out() {
        let book = Book::default();
        book.enter(Key::Qp(3), 64);
        assert_eq!(book.hand_out(Key::Qp(3)), Some(64));
        assert_eq!(book.hand_out(Key::Cq(3)), None);
        book.acknowledge(Key::Qp(3), 1);
        book.strike(Key::Qp(3));
        assert_eq!(book.hand_out(Key::Qp(3)), None);
    }

    #[test]
    fn striking_waits_for_the_acknowledgement() {
        let book = Arc::new(Book::default());
        book.enter(Key::Srq(1), 8);
        book.hand_out(Key::Srq(1));
        book.hand_out(Key::Srq(1));
        let struck = Arc::new(AtomicBool::new(false));
        let waiter = std::thread::spawn({
            let (book, struck) = (Arc::clone(&book), Arc::clone(&struck));
            move || {
                book.strike(Key::Srq(1));
                struck.store(true, Ordering::SeqCst);
            }
        });
        book.acknowledge(Key::Srq(1), 1);
        assert!(!struck.load(Ordering::SeqCst), "one is missing");
        book.acknowledge(Key::Srq(1), 1);
        waiter.join().unwrap();
        assert!(struck.load(Ordering::SeqCst));
    }
}
