// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mark that a stream is given bytes whose work requests have not completed yet.

use crate::engine::sync::{AtomicBool, Ordering};

/// Set and cleared by the thread that has the transmit token.
///
/// No ordering is needed. A receiver that has the answer to what was written sees the mark, or a
/// later one, because the bytes passed through the stream. Where it sees the mark gone, the work
/// requests have completed under the endpoint's lock, which the receiver takes to report.
#[derive(Debug)]
pub(crate) struct Writing(AtomicBool);

impl Writing {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Has `write` give bytes to the stream and complete the work requests that this ends.
    #[inline]
    pub(crate) fn during<R>(&self, write: impl FnOnce() -> R) -> R {
        self.0.store(true, Ordering::Relaxed);
        let written = write();
        self.0.store(false, Ordering::Relaxed);
        written
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
