// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that ask an id which listens.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_os::FamilyClaim;

use super::{EventKind, Exchange, Owner};
use crate::engine::profile::Profile;
use crate::port::Acceptor;

/// The requests of one wire that come in at an id, until they are [stopped](Self::stop) or dropped.
pub(crate) trait Arrivals: Send + Sync {
    /// Takes no more: when this returns, the port is free.
    fn stop(&self);

    /// The part of it with which a forked child goes on; `None` where the child has to begin anew.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where a thread of the parent was just using it.
    fn inherit(&self) -> io::Result<Option<Heirloom>> {
        Ok(None)
    }
}

/// A listening socket of a parent's, and the claim by which a forked child takes it over.
pub(crate) type Heirloom = (Box<dyn Acceptor>, Arc<FamilyClaim>);

/// Makes the exchange for the id of a request. Dropping it refuses.
pub(crate) type Make<'a> = Box<dyn FnOnce(Arc<dyn Owner>) -> Arc<dyn Exchange> + 'a>;

/// The id that listens.
pub(crate) trait Listener: Send + Sync {
    /// True if the program has let go of it.
    fn is_gone(&self) -> bool;

    /// The device that a peer reaches at this address; `None` where the id has none there.
    fn device_at(&self, local: Option<SocketAddr>) -> Option<Arc<Profile>>;

    /// The peer asks: the program gets a new id, between these addresses.
    fn requested(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        make: Make<'_>,
        kind: EventKind,
    );
}
