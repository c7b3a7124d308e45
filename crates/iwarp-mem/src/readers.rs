// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes that read registered memory where it lies, by addresses that they were given.
//!
//! A [`Guard`](crate::Guard) lasts for one system call, and such a read ends when the other process
//! likes. A thread that revokes an STag does not wait for that: it has the readers told that what
//! they read from now on does not count.

use std::fmt;
use std::sync::OnceLock;

/// The readers of the memory of one table.
#[derive(Default)]
pub struct Readers {
    tell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readers").field(&self.tell.get().is_some()).finish()
    }
}

impl Readers {
    /// Has `tell` called each time that memory is revoked of which others may have the address. It
    /// blocks on nothing and calls nothing of the table. To be called once.
    pub fn when_revoked(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// An STag was revoked whose memory others may read, and no guard is left.
    pub(crate) fn revoked(&self) {
        if let Some(tell) = self.tell.get() {
            tell();
        }
    }
}
