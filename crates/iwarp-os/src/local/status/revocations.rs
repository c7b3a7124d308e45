// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is taken back while others copy out of it: they notice afterwards.
//!
//! As with a sequence lock, a copy that has met anything written after the memory was taken back
//! finds the count changed. `tests/loom` compiles this file once more, with the atomics of a model
//! checker.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of times that a process has taken memory back which others may be reading.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Revocations(pub(crate) AtomicU64);

impl Revocations {
    /// The number so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Memory is taken back: no copy of it counts that ends later.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Bytes that are written to that memory from now on are written after the count has
        // changed, for all who see them.
        fence(Ordering::SeqCst);
    }

    /// The result of `copy`, if nothing has been taken back since the count was `at`.
    pub(crate) fn since<T>(&self, at: u64, copy: impl FnOnce() -> T) -> Option<T> {
        if self.count() != at {
            return None;
        }
        let copied = copy();
        fence(Ordering::SeqCst);
        (self.0.load(Ordering::Relaxed) == at).then_some(copied)
    }
}
