// SPDX-License-Identifier: MIT OR Apache-2.0

//! An id as its exchange, its listener and the channel know it.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::{Destination, Events, IdCore, Kind};
use crate::connect::{ConnectParams, EventKind, Exchange, Listener, Make, NamedQp, Owner};
use crate::engine::profile::Profile;

/// An id as others know it, who must not keep it: when the program lets go of it, its port is
/// free and its connection ends.
#[derive(Clone)]
pub(crate) struct WeakId {
    core: Weak<IdCore>,
    channel: Destination,
    kind: Kind,
}

impl WeakId {
    pub(super) const fn new(core: Weak<IdCore>, channel: Destination, kind: Kind) -> Self {
        Self { core, channel, kind }
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<IdCore>> {
        self.core.upgrade()
    }

    /// Calls `f` with the channel where its events go, while the program can take them there.
    pub(super) fn with_channel(&self, f: impl FnOnce(&Arc<Events>)) {
        self.channel.with(f);
    }

    pub(crate) fn push(&self, kind: EventKind) {
        self.with_channel(|channel| channel.push(Weak::clone(&self.core), kind));
    }

    fn is_dropped(&self) -> bool {
        self.core.strong_count() == 0
    }
}

impl Owner for WeakId {
    fn is_gone(&self) -> bool {
        self.is_dropped()
    }

    fn tell(&self, kind: EventKind) {
        self.push(kind);
    }

    fn is_at(&self, local: SocketAddr) {
        if let Some(core) = self.upgrade() {
            core.state.lock().local = Some(local);
        }
    }

    fn failed(&self, exchange: &dyn Exchange) -> bool {
        self.upgrade().is_some_and(|core| core.leave(exchange))
    }

    fn goes_on(&self, exchange: &dyn Exchange, qp: &NamedQp, params: &ConnectParams) -> bool {
        self.upgrade().is_some_and(|core| core.connect_otherwise(exchange, qp, params))
    }
}

impl Listener for WeakId {
    fn is_gone(&self) -> bool {
        self.is_dropped()
    }

    fn device_at(&self, local: Option<SocketAddr>) -> Option<Arc<Profile>> {
        let wires = self.upgrade()?.wires_at(local).ok()?;
        Some(Arc::clone(&wires.profile))
    }

    fn requested(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        make: Make<'_>,
        kind: EventKind,
    ) {
        let mut waiting = Some((make, kind));
        self.with_channel(|channel| {
            let Some((make, kind)) = waiting.take() else { return };
            let id = IdCore::requested(channel, self.kind, (local, peer), make);
            channel.push_request(id, Weak::clone(&self.core), kind);
        });
        // Outside of the lock: dropping it refuses.
        drop(waiting);
    }
}
