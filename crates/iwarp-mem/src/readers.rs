// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes that reach registered memory where it lies, by addresses that they were given.
//!
//! A [`Guard`](crate::Guard) lasts for one system call, and such an access ends when the other
//! process likes. A thread that revokes an STag has the readers told that what they read from now
//! on does not count, and does not wait for them. Those that can write there are waited for, within
//! bounds.

use std::fmt;
use std::sync::OnceLock;

use iwarp_types::Stag;

use crate::observe::Span;

/// Called with an STag that is revoked, and the memory that it granted.
type Tell = Box<dyn Fn(Stag, Span) + Send + Sync>;

/// The readers of the memory of one table.
#[derive(Default)]
pub struct Readers {
    tell: OnceLock<Tell>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readers").field(&self.tell.get().is_some()).finish()
    }
}

impl Readers {
    /// Has `tell` called each time that memory is revoked of which others may have the address.
    /// When it returns, they write there no more. It calls nothing of the table. To be called once.
    pub fn when_revoked(&self, tell: impl Fn(Stag, Span) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// An STag was revoked whose memory others may read, and no guard is left.
    pub(crate) fn revoked(&self, stag: Stag, memory: Span) {
        if let Some(tell) = self.tell.get() {
            tell(stag, memory);
        }
    }
}
