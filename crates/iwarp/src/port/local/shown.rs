// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory of this process that another process of its user reads where it lies.
//!
//! The other sees by a page of memory whether this process lives and how often it has revoked
//! memory that others may be reading. Each process has a page of its own, which goes as the two
//! have no connection any more.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Weak};

use iwarp_mem::Readers;
use iwarp_os::PassedFd;
use iwarp_os::local::{Life, StatusPage};

use crate::port::lock;

thread_local! {
    /// In the worker's thread, which lives as long as there are connections.
    static LIVES: RefCell<Vec<(Weak<Shown>, Life)>> = const { RefCell::new(Vec::new()) };
}

/// All that this process shows, of the memory of one table.
#[derive(Debug, Default)]
pub(crate) struct Showings(Mutex<Vec<Weak<Shown>>>);

/// The showing to one process: see the [module](self).
#[derive(Debug)]
pub(crate) struct Shown(StatusPage);

impl Showings {
    /// The showings of the memory whose readers these are.
    pub(crate) fn of(readers: &Readers) -> Arc<Self> {
        let showings = Arc::<Self>::default();
        let all = Arc::clone(&showings);
        readers.when_revoked(move || all.revoke());
        showings
    }

    /// One more, with a descriptor to pass to the other process. To be called by the thread whose
    /// end is the end of all connections.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system cannot tell others of this process's end; shortages.
    pub(crate) fn begin(&self) -> io::Result<(Arc<Shown>, PassedFd)> {
        let (page, descriptor) = StatusPage::create()?;
        let life = page.hold()?;
        let shown = Arc::new(Shown(page));
        let weak = Arc::downgrade(&shown);
        LIVES.with_borrow_mut(|lives| {
            lives.retain(|(shown, _)| shown.strong_count() > 0);
            lives.push((Weak::clone(&weak), life));
        });
        let mut all = lock(&self.0);
        all.retain(|shown| shown.strong_count() > 0);
        all.push(weak);
        Ok((shown, descriptor))
    }

    fn revoke(&self) {
        for shown in lock(&self.0).iter().filter_map(Weak::upgrade) {
            shown.0.revoke();
        }
    }
}

impl Shown {
    /// The number of times that memory was revoked: goes along with an address that others get, and
    /// for which the caller has a guard.
    pub(super) fn revocations(&self) -> u64 {
        self.0.revocations()
    }
}
