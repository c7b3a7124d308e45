// SPDX-License-Identifier: MIT OR Apache-2.0

//! An id as its exchange, the wires that it listens at and the channel know it.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::{Destination, Events, IdCore, Kind};
use crate::connect::{ConnectParams, EventKind, Exchange, Listener, Make, NamedQp, Owner};
use crate::engine::profile::{Profile, Profiles};

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

/// An id as the wires know it at which it listens.
///
/// They call it while they serve the id's socket, and to end the id is to end that. So no call
/// keeps the id, not for a moment: the program may let go of it just then, and leave its end to the
/// call.
pub(super) struct ListeningId {
    id: WeakId,
    profiles: Arc<Profiles>,
    /// The device that it may be on, or the one that stands for all.
    home: Arc<Profile>,
}

impl ListeningId {
    pub(super) fn new(core: &Arc<IdCore>) -> Arc<Self> {
        let home = &core.home;
        Arc::new(Self {
            id: core.downgrade(),
            profiles: Arc::clone(home.profiles()),
            home: Arc::clone(&home.profile),
        })
    }
}

impl Listener for ListeningId {
    fn is_gone(&self) -> bool {
        self.id.is_dropped()
    }

    fn device_at(&self, local: Option<SocketAddr>) -> Option<Arc<Profile>> {
        let found = match local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()) {
            Some(local) => self.profiles.at_within(&self.home, local),
            None => Some(&self.home),
        };
        found.cloned()
    }

    fn requested(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        make: Make<'_>,
        kind: EventKind,
    ) {
        let listener = &self.id;
        let mut waiting = Some((make, kind));
        listener.with_channel(|channel| {
            let Some((make, kind)) = waiting.take() else { return };
            let id = IdCore::requested(channel, listener.kind, (local, peer), make);
            channel.push_request(id, Weak::clone(&listener.core), kind);
        });
        // Outside of the lock: dropping it refuses.
        drop(waiting);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use crate::cm::{EventChannel, Id};
    use crate::engine::options::Options;
    use crate::verbs::Device;

    use super::*;

    /// Were the id kept for it, the thread that serves a listener could be the last to have it.
    #[test]
    fn the_device_of_a_listener_is_found_without_its_id() {
        let device = Device::with_options(Options::default()).unwrap();
        let id = Id::new(&EventChannel::new(&device).unwrap()).unwrap();
        let listener = ListeningId::new(id.core().unwrap());
        assert!(!listener.is_gone());
        drop(id);
        assert!(listener.is_gone());
        let local = SocketAddr::from(([127, 0, 0, 1], 7471));
        for local in [Some(local), None] {
            assert_eq!(listener.device_at(local).map(|device| device.place), Some(0));
        }
    }
}
