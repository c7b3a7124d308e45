// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of an id and its peer.

use std::net::SocketAddr;

use iwarp_roce::cm::Request;
use iwarp_roce::wire::{GSI_QP, Path, source_port};
use iwarp_types::AddressVector;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) traffic_class: u8,
}

impl Ends {
    /// Destination and source of a request.
    pub(super) fn of(request: &Request) -> Self {
        let Request { path, service, peer, .. } = request;
        let port = service.port().map_or(0, |(_, port)| port);
        let (address, its_port) = peer.unwrap_or((path.address.destination, 0));
        let local = SocketAddr::new(path.address.source, port);
        Self { local, peer: SocketAddr::new(address, its_port), traffic_class: 0 }
    }

    /// The way to the peer's connection manager.
    pub(super) fn path(&self) -> Path {
        let (local, peer) = (self.local.ip().to_canonical(), self.peer.ip().to_canonical());
        let address =
            AddressVector { traffic_class: self.traffic_class, ..AddressVector::new(local, peer) };
        Path::new(address, source_port(0, GSI_QP, GSI_QP))
    }
}
