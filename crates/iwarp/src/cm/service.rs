// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services that a program offers to peers that ask by management datagrams: connections over
//! RoCE v2, and the queue pairs of datagram services.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_roce::cm::{Listen, Request};

use crate::cm::datagrams::{self, Inquiry};
use crate::cm::id::WeakId;
use crate::cm::packets;
use crate::wire::roce::manager::{Communication, ConnectionManager, Host, Listening};

/// A service of an id's, as long as it is offered.
pub(crate) struct Serving {
    _listening: Listening,
    _reception: Arc<Reception>,
}

impl Serving {
    pub(crate) fn start(
        manager: &Arc<ConnectionManager>,
        id: WeakId,
        listen: &Listen,
    ) -> io::Result<Self> {
        let reception = Arc::new(Reception(id));
        let host = Arc::downgrade(&reception);
        Ok(Self { _listening: manager.listen(listen, host)?, _reception: reception })
    }
}

/// The program, which gets requests as events of its id.
struct Reception(WeakId);

impl Host for Reception {
    fn requested(self: Arc<Self>, communication: Communication, request: Box<Request>) {
        let Self(listener) = &*self;
        // Its last reference must not go under the lock.
        let Some(id) = listener.upgrade() else { return };
        let (local, peer) = ends(&request);
        if id.has_datagrams() {
            let inquiry = Inquiry { communication, local, peer };
            datagrams::requested(listener, id.space(), inquiry, &request);
        } else {
            packets::requested(listener, communication, local, peer, &request);
        }
    }
}

/// Destination and source of a request.
fn ends(request: &Request) -> (SocketAddr, SocketAddr) {
    let Request { path, service, peer, .. } = request;
    let port = service.port().map_or(0, |(_, port)| port);
    let (address, its_port) = peer.unwrap_or((path.address.destination, 0));
    (SocketAddr::new(path.address.source, port), SocketAddr::new(address, its_port))
}
