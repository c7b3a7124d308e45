// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory of this process that another process of its user reads where it lies, or
//! stores into.
//!
//! The other sees by a page of memory whether this process lives and how often it has revoked
//! memory that others may be accessing. Each process has a page of its own, which goes as the two
//! have no connection any more.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Weak};

use iwarp_mem::{Readers, Span};
use iwarp_os::local::{Life, Ring, StatusPage};
use iwarp_os::{PassedFd, PerProcess};
use iwarp_types::Stag;

use super::Channel;
use super::writers::Writer;
use crate::flaw::{self, Flaw};
use crate::port::lock;

thread_local! {
    /// In the worker's thread, which lives as long as there are connections.
    static LIVES: RefCell<Vec<(Weak<Shown>, Life)>> = const { RefCell::new(Vec::new()) };
}

/// All of the process: several devices may have memory in one arena.
static ALL: PerProcess<Mutex<Vec<Weak<Showings>>>> = PerProcess::new();

/// All that this process shows, of the memory of one table.
#[derive(Debug, Default)]
pub(crate) struct Showings(Mutex<Vec<Weak<Shown>>>);

/// The showing to one process: see the [module](self).
#[derive(Debug)]
pub(crate) struct Shown {
    page: StatusPage,
    /// The connections with it that may store into memory of this process.
    writers: Mutex<Vec<Writer>>,
}

impl Showings {
    /// The showings of the memory whose readers these are.
    pub(crate) fn of(readers: &Readers) -> Arc<Self> {
        let showings = Arc::<Self>::default();
        let mut known = lock(ALL.get());
        known.retain(|showings| showings.strong_count() > 0);
        known.push(Arc::downgrade(&showings));
        drop(known);
        let all = Arc::clone(&showings);
        readers.when_revoked(move |stag, memory| all.revoke(stag, memory));
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
        let shown = Arc::new(Shown { page, writers: Mutex::default() });
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

    /// All others lose their rights, before any is waited for.
    fn revoke(&self, stag: Stag, memory: Span) {
        if flaw::is(Flaw::RevokesNothing) {
            return;
        }
        self.void().iter().for_each(|writer| writer.settle(stag.0, memory));
    }

    /// Voids what was shown before. Says who may be storing by it still.
    fn void(&self) -> Vec<Writer> {
        let all: Vec<Arc<Shown>> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|shown| shown.page.revoke());
        all.iter().flat_map(|shown| lock(&shown.writers).clone()).collect()
    }

    /// As [`Self::void`], of all memory of this process.
    pub(super) fn void_all() -> Vec<Writer> {
        let all: Vec<Arc<Self>> = lock(ALL.get()).iter().filter_map(Weak::upgrade).collect();
        all.iter().flat_map(|showings| showings.void()).collect()
    }
}

impl Shown {
    /// See [`StatusPage::secret`].
    pub(crate) fn secret(&self) -> Option<[u8; 16]> {
        self.page.secret()
    }

    /// The number of times that memory was revoked: goes along with an address that others get, and
    /// for which the caller has a guard.
    pub(super) fn revocations(&self) -> u64 {
        self.page.revocations()
    }

    /// The peer at the other end of this ring may store into memory of this process, which it is
    /// shown next. False for want of memory.
    pub(super) fn let_write(&self, ring: &Arc<Ring>, channel: &Arc<Channel>) -> bool {
        let mut writers = lock(&self.writers);
        if writers.iter().any(|writer| writer.is(ring)) {
            return true;
        }
        writers.retain(Writer::is_there);
        let has_room = writers.try_reserve(1).is_ok();
        if has_room {
            writers.push(Writer::new(ring, channel));
        }
        has_room
    }
}
