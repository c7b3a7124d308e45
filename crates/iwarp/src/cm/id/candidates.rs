// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that may have several addresses: one is tried after another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Id, IdCore, Phase};
use crate::cm::{Addresses, EventKind};

impl Id {
    /// As [`Self::resolve_addr`] from any local address, for the first of the peer's addresses.
    /// [`Self::resolve_next`] goes on with the next.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the id is not idle; when the thread that asks the resolver cannot be
    /// made; `ENODEV` in a forked child.
    #[doc(hidden)]
    pub fn resolve(&self, peer: Addresses) -> io::Result<()> {
        let core = self.core.check()?;
        if !matches!(core.state.lock().phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let id = core.downgrade();
        peer.look_up(move |found| {
            let Some(core) = id.upgrade() else { return };
            match found {
                Ok(found) => {
                    core.set_candidates(found);
                    core.resolve_next();
                }
                Err(error) => core.push(EventKind::AddressError(error)),
            }
        })
    }

    /// Goes on with the peer's next address, once a connection to the one before was not made.
    /// False where there is none, and where the id is not idle.
    #[doc(hidden)]
    pub fn resolve_next(&self) -> bool {
        self.core.alive().is_some_and(IdCore::resolve_next)
    }
}

impl IdCore {
    /// The peer has these addresses.
    pub(crate) fn set_candidates(&self, found: Vec<SocketAddr>) {
        self.state.lock().candidates = found.into();
    }

    /// The next of the peer's addresses.
    pub(crate) fn next_candidate(&self) -> Option<SocketAddr> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return None;
        }
        let next = state.candidates.pop_front()?;
        if state.source.is_none() {
            // It was right for the one before.
            state.local = None;
        }
        Some(next)
    }

    fn resolve_next(self: &Arc<Self>) -> bool {
        let Some(next) = self.next_candidate() else { return false };
        if let Err(error) = Id::of(Arc::clone(self)).resolve_addr(None, next) {
            self.push(EventKind::AddressError(error));
        }
        true
    }
}
