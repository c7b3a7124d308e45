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

#[cfg(all(test, not(model)))]
mod tests {
    use crate::cm::EventChannel;
    use crate::connect::Owner;
    use crate::engine::options::Options;
    use crate::verbs::Device;

    use super::*;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7471))
    }

    fn id() -> Id {
        let device = Device::with_options(Options::default()).unwrap();
        Id::new(&EventChannel::new(&device).unwrap()).unwrap()
    }

    /// The next address may be reached from another local one.
    #[test]
    fn a_local_address_that_was_found_is_forgotten_with_the_peer_s() {
        let id = id();
        let core = id.core().unwrap();
        core.set_candidates(vec![addr(1), addr(2)]);
        assert_eq!(core.next_candidate(), Some(addr(1)));
        core.downgrade().is_at(addr(9));
        assert_eq!((core.next_candidate(), id.local_addr()), (Some(addr(2)), None));
        assert_eq!(core.next_candidate(), None);
    }

    #[test]
    fn a_local_address_that_the_program_chose_stays() {
        let id = id();
        id.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (core, bound) = (id.core().unwrap(), id.local_addr());
        core.set_candidates(vec![addr(1)]);
        assert_eq!(core.next_candidate(), Some(addr(1)));
        assert!(bound.is_some_and(|addr| addr.port() != 0));
        assert_eq!(id.local_addr(), bound);
    }

    #[test]
    fn an_id_that_listens_tries_no_address() {
        let id = id();
        id.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        id.listen(1).unwrap();
        id.core().unwrap().set_candidates(vec![addr(1)]);
        assert!(!id.resolve_next());
        assert!(id.resolve(Addresses::from(addr(1))).is_err());
    }
}
