// SPDX-License-Identifier: MIT OR Apache-2.0

//! Observers of the accesses that the network makes to registered memory.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use iwarp_types::AccessError;

use crate::region::MemoryTable;

/// Bytes of registered memory, by the addresses of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The first byte.
    pub addr: usize,
    /// The number of bytes.
    pub len: usize,
}

/// Writes the bytes of a span that lie in this range of it.
pub type Store<'a> = &'a mut dyn FnMut(Range<usize>) -> Result<(), AccessError>;

/// Observer of all accesses to the memory of a table. Each method does nothing by default.
///
/// The methods are called by the thread that accesses the memory, while the STag is in use: an
/// observer takes a note, blocks on nothing and calls nothing of the table. Only [`Self::place`]
/// may take its time.
pub trait AccessObserver: Debug + Send + Sync {
    /// Bytes were read, on behalf of a local work request or of a peer.
    fn gathered(&self, _qp: u32, _span: Span) {}

    /// Bytes were written, on behalf of a peer's message, a Read Response or an Atomic.
    fn placed(&self, _qp: u32, _span: Span) {}

    /// Has the bytes of `span` written, but those of an Atomic. `store` writes the part of them
    /// that it is given, the last byte of it last. All parts together are the whole span, in
    /// any order and with any time between.
    ///
    /// # Errors
    ///
    /// The first of `store`, behind which nothing more is written.
    fn place(&self, _qp: u32, span: Span, store: Store<'_>) -> Result<(), AccessError> {
        store(0..span.len)
    }
}

impl MemoryTable {
    /// An empty table, whose accesses are told to `observer`.
    pub fn observed(observer: Option<Arc<dyn AccessObserver>>) -> Self {
        Self { observer, ..Self::new() }
    }

    /// The observer of accesses that a caller makes itself, by a [`Guard`](crate::Guard).
    #[inline]
    pub fn observer(&self) -> Option<&dyn AccessObserver> {
        self.observer.as_deref()
    }
}
