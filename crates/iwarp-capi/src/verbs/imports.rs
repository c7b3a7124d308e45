// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handles by which a device file would know objects: contexts that were imported by a
//! descriptor of another share them (`ibv_import_device`). The handles of memory regions are their
//! keys.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iwarp::{Buffer, ProtectionDomain};
use iwarp_os::token::{self, TokenId};
use iwarp_os::{PerProcess, ProcessOwned};

use super::Life;
use crate::guard::Errno;
use crate::refuse::{decline, refuse};

/// The objects that can be imported.
#[derive(Clone, Debug)]
pub(crate) enum Importable {
    Domain(ProtectionDomain),
    Memory(Weak<Memory>),
}

/// Device memory, which a context and those imported from it may share.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(super) buffer: Arc<Buffer>,
    /// Held by regions.
    pub(super) life: Life,
}

/// The objects of a context, and of those that were imported from it.
#[derive(Debug)]
pub(crate) struct Imports {
    /// The device's place in the list.
    place: usize,
    /// `None` where there is no descriptor to import it by.
    token: Option<TokenId>,
    next: AtomicU32,
    known: ProcessOwned<Mutex<HashMap<u32, Importable>>>,
}

/// By the tokens that are their descriptors.
static SHARED: PerProcess<Mutex<HashMap<TokenId, Weak<Imports>>>> = PerProcess::new();

fn shared() -> MutexGuard<'static, HashMap<TokenId, Weak<Imports>>> {
    SHARED.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Imports {
    /// For a new context of the device at `place`, and the descriptor that others are imported by;
    /// that is missing where a sandbox refuses it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub(crate) fn new(place: usize) -> Result<(Arc<Self>, Option<OwnedFd>), Errno> {
        let fd = token::create().ok();
        let token = fd.as_ref().and_then(|fd| token::id(fd).ok().flatten());
        let known = ProcessOwned::new(Mutex::default());
        let imports = Arc::new(Self { place, token, next: AtomicU32::new(1), known });
        if let Some(token) = token {
            let mut shared = shared();
            shared.try_reserve(1).map_err(|_| refuse!(ENOMEM, "out of memory"))?;
            shared.insert(token, Arc::downgrade(&imports));
        }
        Ok((imports, fd))
    }

    /// The objects of the context that a descriptor belongs to.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where it is of a context of another process, `EINVAL` where of none, `EBADF`
    /// where there is no descriptor.
    pub(crate) fn of(fd: impl AsFd) -> Result<Arc<Self>, Errno> {
        let token = token::id(fd)?
            .ok_or_else(|| refuse!(EINVAL, "the descriptor is not that of a context (cmd_fd)"))?;
        let found = shared().get(&token).and_then(Weak::upgrade);
        found.ok_or_else(|| decline!(EOPNOTSUPP, "the context is another process's, or closed"))
    }

    /// The device's place in the list.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// A handle for another object.
    pub(crate) fn next_handle(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The object can be imported by this handle from now on; in a forked child nothing can be.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub(crate) fn enter(&self, handle: u32, object: Importable) -> Result<(), Errno> {
        if let Some(mut known) = self.known() {
            known.try_reserve(1).map_err(|_| refuse!(ENOMEM, "out of memory"))?;
            known.insert(handle, object);
        }
        Ok(())
    }

    /// The object is no more.
    pub(crate) fn leave(&self, handle: u32) {
        if let Some(mut known) = self.known() {
            known.remove(&handle);
        }
    }

    /// The protection domain of this handle; `ENOENT` where there is none.
    pub(crate) fn domain(&self, handle: u32) -> Result<ProtectionDomain, Errno> {
        match self.find(handle) {
            Some(Importable::Domain(domain)) => Ok(domain),
            _ => Err(refuse!(ENOENT, "there is no protection domain with the handle {handle}")),
        }
    }

    /// The device memory of this handle; `ENOENT` where there is none.
    pub(crate) fn memory(&self, handle: u32) -> Result<Arc<Memory>, Errno> {
        let found = match self.find(handle) {
            Some(Importable::Memory(memory)) => memory.upgrade(),
            _ => None,
        };
        found.ok_or_else(|| refuse!(ENOENT, "there is no device memory with the handle {handle}"))
    }

    fn find(&self, handle: u32) -> Option<Importable> {
        self.known()?.get(&handle).cloned()
    }

    fn known(&self) -> Option<MutexGuard<'_, HashMap<u32, Importable>>> {
        Some(self.known.alive()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Imports {
    fn drop(&mut self) {
        if let Some(token) = self.token
            && self.known.alive().is_some()
        {
            shared().remove(&token);
        }
    }
}
