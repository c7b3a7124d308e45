// SPDX-License-Identifier: MIT OR Apache-2.0

//! The devices of a process, as its rsockets use them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use iwarp::cm::{Event, EventChannel, EventKind};
use iwarp::{Device, ProtectionDomain};

use crate::settings::Settings;
use crate::socket::Inner;

/// Gives the devices of a process by their places.
pub trait Devices: Send + Sync {
    /// The device at this place.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be opened.
    fn at(&self, place: usize) -> io::Result<Device>;
}

/// A host: what the rsockets of a process have in common.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    devices: Box<dyn Devices>,
    domains: Mutex<HashMap<usize, ProtectionDomain>>,
    pub(crate) events: EventChannel,
    pub(crate) settings: Settings,
    /// Sockets that their program has closed, until their connections are over.
    closing: Mutex<Vec<Arc<Inner>>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The devices that stand beside one.
struct Siblings(Device);

impl Devices for Siblings {
    fn at(&self, place: usize) -> io::Result<Device> {
        self.0.named_sibling(place)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole in itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// The host of a device, and of those beside it.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made; `ENODEV` in a forked child.
    pub fn new(device: &Device) -> io::Result<Self> {
        Self::with(device, Box::new(Siblings(device.sibling()?)), Settings::default())
    }

    /// The host of the devices that `devices` gives, of which `device` is one, with these settings.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with(
        device: &Device,
        devices: Box<dyn Devices>,
        settings: Settings,
    ) -> io::Result<Self> {
        let itself = Arc::new(OnceLock::<Weak<Core>>::new());
        let served = Arc::clone(&itself);
        let serve = move || {
            if let Some(core) = served.get().and_then(Weak::upgrade) {
                core.serve();
            }
        };
        let events = EventChannel::served(device, Arc::new(serve))?;
        let (domains, closing) = (Mutex::default(), Mutex::default());
        let core = Arc::new(Core { devices, domains, events, settings, closing });
        let _ = itself.set(Arc::downgrade(&core));
        Ok(Self { core })
    }
}

impl Core {
    /// The protection domain of a device's rsockets.
    pub(crate) fn domain(&self, place: usize) -> io::Result<ProtectionDomain> {
        let mut domains = lock(&self.domains);
        if let Some(domain) = domains.get(&place) {
            return Ok(domain.clone());
        }
        let domain = self.devices.at(place)?.alloc_pd();
        domains.insert(place, domain.clone());
        Ok(domain)
    }

    /// Hands the events of ids to their sockets.
    fn serve(&self) {
        while let Some(Event { id, listener, kind, .. }) = self.events.try_next() {
            match listener {
                Some(listener) => match (Inner::of(&listener), kind) {
                    (Some(socket), EventKind::ConnectRequest { private_data, .. }) => {
                        socket.requested(id, private_data);
                    }
                    // A request is refused when its id is dropped.
                    _ => drop(id),
                },
                None => {
                    if let Some(socket) = Inner::of(&id) {
                        socket.happened(kind);
                    }
                }
            }
        }
    }

    /// Keeps a socket that its program has closed until its connection is over.
    pub(crate) fn keep(&self, socket: Arc<Inner>) {
        lock(&self.closing).push(socket);
    }

    /// The connection of a closed socket is over.
    pub(crate) fn release(&self, socket: &Inner) {
        let mut closing = lock(&self.closing);
        let place = closing.iter().position(|other| std::ptr::eq(&**other, socket));
        let gone = place.map(|place| closing.swap_remove(place));
        drop(closing);
        drop(gone);
    }
}
