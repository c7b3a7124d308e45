// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses and ports that an id is bound to, and the device and its port that these are of.
//!
//! The ports of addresses are TCP's, or of a port space of the connection manager's own: for
//! datagram services, and wherever no stream is made or taken.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{Choices, Id, IdCore, IdState};
use crate::connect::NamedQp;
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::Guard;
use crate::port::{Ipv6Listen, Network, Reservation, Sharing};
use crate::report;

impl Id {
    /// Binds to a local address; with port 0 the system chooses one, which is reserved from then
    /// on.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`; `ENODEV` for an address of this host that no device has;
    /// `InvalidInput` when it is bound already.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let core = self.core.check()?;
        let mut state = core.state.lock();
        if state.local.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        core.enter_device(addr.ip())?;
        if core.has_own_ports() {
            return core.take_port(&mut state, addr);
        }
        let reserved = state.choices.reserve_to_listen(core.network(), addr)?;
        reserved.bequeath();
        reserved.admit_program();
        state.local = Some(reserved.local_addr()?);
        state.source = state.local;
        state.reserved = Some(reserved);
        Ok(())
    }
}

impl Id {
    /// The place of its device among those of the process, once that is known: when the id is bound
    /// to an address, or that is resolved.
    pub fn device_place(&self) -> Option<usize> {
        let core = self.core.alive()?;
        let local = core.state.lock().local?;
        if local.ip().is_unspecified() { None } else { Some(core.wires().profile.place) }
    }
}

impl Id {
    /// The number of the port of its device that has its address, once that is known, as with
    /// [`Self::device_place`].
    pub fn port_number(&self) -> Option<u8> {
        let core = self.core.alive()?;
        let local = core.state.lock().local?.ip();
        if local.is_unspecified() { None } else { core.wires().profile.port_at(local) }
    }
}

impl IdCore {
    /// Is on the device from now on that has its local address, where that says which one.
    ///
    /// # Errors
    ///
    /// `ENODEV` where no device has it that the id may be on; `AddrNotAvailable` where this host
    /// has not.
    pub(super) fn enter_device(&self, local: IpAddr) -> io::Result<()> {
        if local.is_unspecified() {
            // Nor on the one of an address that it could not have.
            *self.wires.lock() = Arc::clone(&self.home);
            return Ok(());
        }
        let wires = self.home.at(local).map_err(|error| match self.is_own(local) {
            true => error,
            false => io::ErrorKind::AddrNotAvailable.into(),
        })?;
        *self.wires.lock() = wires;
        Ok(())
    }

    /// The address from which it reaches a peer: its device's.
    pub(super) fn source_for(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        self.home.profile.source_for(peer.ip(), self.network().source_for(peer))
    }

    /// As [`Self::source_for`], for a queue pair: one on a port reaches the peer from there.
    pub(super) fn source_of(&self, qp: Option<&NamedQp>, peer: SocketAddr) -> io::Result<IpAddr> {
        match port_of(qp).filter(|endpoint| self.home.admits(&endpoint.profile)) {
            Some(on) => on.home().source_for(peer.ip(), self.network().source_for(peer)),
            None => self.source_for(peer),
        }
    }

    /// True if its ports are of a port space of the connection manager's, as on a RoCE card, and
    /// not TCP's: no stream is made or taken.
    pub(super) fn has_own_ports(&self) -> bool {
        self.kind.datagrams || self.wires().has_own_ports()
    }

    /// Takes the port of an address in the id's port space.
    pub(super) fn take_port(
        &self,
        state: &mut Guard<'_, IdState>,
        addr: SocketAddr,
    ) -> io::Result<()> {
        // An address that is not this host's is noticed here, as with connections.
        let ip = addr.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !self.is_own(ip) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let Choices { share_address, ipv6_only, .. } = state.choices;
        let port =
            self.engine().service_ports.take(self.kind.space, addr, ipv6_only, share_address)?;
        let mut local = addr;
        local.set_port(port.number());
        state.local = Some(local);
        state.source = state.local;
        state.service_port = Some(port);
        Ok(())
    }

    /// True if an address is this host's.
    fn is_own(&self, ip: IpAddr) -> bool {
        self.network().source_for(SocketAddr::new(ip, 0)).is_ok_and(|source| source == ip)
    }
}

/// The queue pair, if it is on one of several ports.
fn port_of(qp: Option<&NamedQp>) -> Option<&Endpoint> {
    let endpoint = qp.and_then(|qp| qp.endpoint.as_deref());
    endpoint.filter(|endpoint| endpoint.port() > 0)
}

/// A queue pair on a port has connections from and to that port's addresses only.
///
/// # Errors
///
/// `InvalidInput` for another address.
pub(super) fn check_port(qp: Option<&NamedQp>, local: Option<SocketAddr>) -> io::Result<()> {
    let Some(local) = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified()) else {
        return Ok(());
    };
    match port_of(qp).map(Endpoint::home).filter(|home| !home.has(local)) {
        None => Ok(()),
        Some(home) => {
            let why = format!("the queue pair is on {home}, and the id at {local}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

impl Choices {
    pub(super) fn reserve(
        self,
        network: &dyn Network,
        addr: SocketAddr,
    ) -> io::Result<Box<dyn Reservation>> {
        let ipv6 = if self.ipv6_only { Ipv6Listen::Only } else { Ipv6Listen::DualStack };
        let sharing = if self.share_address { Sharing::Shared } else { Sharing::Exclusive };
        network.reserve(addr, ipv6, sharing)
    }

    /// As [`Self::reserve`], for a listener: the program may have a TCP listener of that number,
    /// too.
    pub(super) fn reserve_to_listen(
        self,
        network: &dyn Network,
        addr: SocketAddr,
    ) -> io::Result<Box<dyn Reservation>> {
        let ipv6 = if self.ipv6_only { Ipv6Listen::Only } else { Ipv6Listen::DualStack };
        match self.reserve(network, addr) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let reserved = network.reserve_beside_program(addr, ipv6)?;
                report!(
                    INFO, %addr,
                    "the program has a TCP socket of this number: clients of this library come to \
                     the listener for RDMA, all others to the socket"
                );
                Ok(reserved)
            }
            reserved => reserved,
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use crate::cm::EventChannel;
    use crate::cm::PortSpace;
    use crate::engine::options::Options;
    use crate::verbs::Device;

    use super::*;

    fn channel() -> EventChannel {
        EventChannel::new(&Device::with_options(Options::default()).unwrap()).unwrap()
    }

    fn at(ip: [u8; 4]) -> SocketAddr {
        SocketAddr::from((ip, 0))
    }

    #[test]
    fn an_id_is_bound_once() {
        let channel = channel();
        for id in [Id::new(&channel), Id::for_datagrams(&channel, PortSpace::DATAGRAMS)] {
            let id = id.unwrap();
            id.bind(at([127, 0, 0, 1])).unwrap();
            let bound = id.local_addr();
            let error = id.bind(at([127, 0, 0, 1])).unwrap_err();
            assert_eq!((error.kind(), id.local_addr()), (io::ErrorKind::InvalidInput, bound));
        }
    }

    /// An address of the documentation's, which no host has.
    #[test]
    fn an_address_of_another_host_leaves_the_id_free() {
        let channel = channel();
        for id in [Id::new(&channel), Id::for_datagrams(&channel, PortSpace::DATAGRAMS)] {
            let id = id.unwrap();
            let error = id.bind(at([192, 0, 2, 1])).unwrap_err();
            assert_eq!((error.kind(), id.local_addr()), (io::ErrorKind::AddrNotAvailable, None));
            id.bind(at([127, 0, 0, 1])).unwrap();
        }
    }

    #[test]
    fn an_id_at_all_addresses_is_on_no_device_yet() {
        let channel = channel();
        let (all, one) = (Id::new(&channel).unwrap(), Id::new(&channel).unwrap());
        all.bind(at([0, 0, 0, 0])).unwrap();
        one.bind(at([127, 0, 0, 1])).unwrap();
        assert_eq!((all.device_place(), one.device_place()), (None, Some(0)));
    }
}
