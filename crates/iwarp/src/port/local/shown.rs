// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory of this process that other processes of its user read where it lies.
//!
//! They see by a page of memory whether this process lives and how often it has revoked memory
//! that they may be reading.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use iwarp_mem::Readers;
use iwarp_os::PassedFd;
use iwarp_os::local::{Life, StatusPage};

thread_local! {
    /// In the worker's thread, which lives as long as there are connections.
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Shown {
    page: Arc<StatusPage>,
    descriptor: PassedFd,
}

impl Shown {
    /// To be called by the thread whose end is the end of all connections.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the system cannot tell others of this process's end; shortages.
    pub(crate) fn new(readers: &Arc<Readers>) -> io::Result<Arc<Self>> {
        let (page, descriptor) = StatusPage::create()?;
        LIFE.set(Some(page.hold()?));
        let page = Arc::new(page);
        let its = Arc::clone(&page);
        readers.when_revoked(move || its.revoke());
        Ok(Arc::new(Self { page, descriptor }))
    }

    /// The page, for another process.
    ///
    /// # Errors
    ///
    /// Shortages.
    pub(crate) fn page(&self) -> io::Result<PassedFd> {
        self.descriptor.as_fd().try_clone_to_owned().map(PassedFd::from)
    }

    /// The number of times that memory was revoked: goes along with an address that others get, and
    /// for which the caller has a guard.
    pub(super) fn revocations(&self) -> u64 {
        self.page.revocations()
    }
}
