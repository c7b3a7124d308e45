// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager at queue pair 1 of the port that an engine uses.

use std::io;
use std::sync::Arc;

use iwarp_roce::cm::{MAD_LEN, Settings};
use iwarp_roce::wire::{Mtu, Path};

use crate::engine::Engine;
use crate::port::share::Listening;
use crate::wire::roce::manager::{Carrier, ConnectionManager, ManagerCell};
use crate::wire::roce::mux::{Mux, MuxPlace};

impl MuxPlace {
    /// The device's connection manager over management datagrams. Waits for the share of the port
    /// where that is to be opened.
    ///
    /// # Errors
    ///
    /// As for [`MuxPlace::open`].
    pub(crate) fn connection_manager(&self, engine: &Engine) -> io::Result<Arc<ConnectionManager>> {
        engine.kept::<ManagerCell>().get(&engine.timers, || on(&self.open(engine)?))
    }
}

/// The one that speaks by queue pair 1 of a port.
fn on(mux: &Arc<Mux>) -> io::Result<Arc<ConnectionManager>> {
    // Answers that name one of these come to this process.
    let comm_ids = mux.gsi().comm_ids()?;
    let manager = mux.gsi().handler_or(|| {
        let settings = Settings {
            guid: iwarp_os::guid::of_host(),
            comm_ids,
            mtu: UNKNOWN_MTU,
            ..Settings::default()
        };
        ConnectionManager::new(Arc::new(ByMux(Arc::clone(mux))), settings)
    });
    manager.look_at_interfaces();
    Ok(manager)
}

/// Of addresses that came after [`ConnectionManager::look_at_interfaces`]: what any Ethernet takes.
const UNKNOWN_MTU: Mtu = Mtu::Mtu1024;

/// Queue pair 1 of a port.
struct ByMux(Arc<Mux>);

impl Carrier for ByMux {
    fn send(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        let Self(mux) = self;
        mux.send_mad(path, mad);
    }

    fn listen(&self, service: u64) -> io::Result<Listening> {
        let Self(mux) = self;
        mux.gsi().listen(service)
    }

    fn unlisten(&self, service: u64) {
        let Self(mux) = self;
        mux.gsi().unlisten(service);
    }

    fn idle(&self) {
        let Self(mux) = self;
        mux.rest_later();
    }
}
