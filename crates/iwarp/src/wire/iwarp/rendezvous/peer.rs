// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer as the ends of a rendezvous know it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::connect::Peer;
use crate::engine::numbers::port_of;
use crate::wire::iwarp::rendezvous::listener::LocalAddr;
use crate::wire::iwarp::rendezvous::proof::Party;

impl Peer {
    /// The address at which its queue pair is found.
    pub(super) fn addr(&self) -> SocketAddr {
        scoped(self.gid, port_of(self.qpn), self.scope)
    }

    /// The address at which this end is found.
    pub(super) const fn own_addr(&self) -> LocalAddr {
        LocalAddr { ip: self.local, scope: self.scope }
    }

    /// The peer, as both ends name it.
    pub(super) const fn party(&self) -> Party {
        Party { gid: self.gid, qpn: self.qpn }
    }

    /// The address that this end connects from.
    pub(super) fn origin(&self) -> SocketAddr {
        scoped(self.local, 0, self.scope)
    }
}

fn scoped(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
        ip => SocketAddr::new(ip, port),
    }
}
