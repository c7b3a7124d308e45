// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids with ports of the connection manager's own: what datagram services and connections over
//! RoCE v2 have in common.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use iwarp_roce::cm::{Listen, ServiceId};
use iwarp_roce::wire::Transport;

use super::{Choices, IdCore, Phase, PortSpace, State};
use crate::cm::service::Serving;
use crate::engine::options::Wire;
use crate::engine::sync::Guard;
use crate::wire::roce::manager::ConnectionManager;

impl IdCore {
    pub(crate) const fn space(&self) -> PortSpace {
        self.kind.space
    }

    /// True if it is for a datagram service, not for connections.
    pub(crate) const fn has_datagrams(&self) -> bool {
        self.kind.datagrams
    }

    pub(super) fn manager(&self) -> io::Result<Arc<ConnectionManager>> {
        self.mux.connection_manager(&self.engine)
    }

    /// True if its ports are of a port space of the connection manager's, as on a RoCE card, and
    /// not TCP's: no stream is made or taken.
    pub(super) fn has_own_ports(&self) -> bool {
        self.kind.datagrams || self.speaks_roce()
    }

    /// Takes the port of an address in the id's port space.
    pub(super) fn take_port(
        &self,
        state: &mut Guard<'_, State>,
        addr: SocketAddr,
    ) -> io::Result<()> {
        // An address that is not this host's is noticed here, as with connections.
        let ip = addr.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !self.is_own(ip) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let Choices { share_address, ipv6_only, .. } = state.choices;
        let port =
            self.engine.service_ports.take(self.kind.space, addr, ipv6_only, share_address)?;
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

    /// Offers a datagram service, or takes connections over RoCE v2.
    pub(super) fn serve(self: &Arc<Self>, max_pending: usize) -> io::Result<()> {
        let manager = self.manager()?;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let local = state.local.unwrap_or(any);
        if state.service_port.is_none() {
            self.take_port(&mut state, local)?;
        }
        let local = state.local.unwrap_or(local);
        drop(state);
        let serving = self.offer(&manager, local, max_pending)?;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.phase = Phase::Serving { _serving: serving };
        state.max_pending = max_pending;
        Ok(())
    }

    /// Takes connections over RoCE v2 beside those over streams, where that can be.
    pub(super) fn serve_beside(
        self: &Arc<Self>,
        local: SocketAddr,
        max_pending: usize,
    ) -> Option<Serving> {
        self.try_serve_beside(local, max_pending)
            .inspect_err(|error| tracing::debug!(%error, %local, "no connections over RoCE v2"))
            .unwrap_or_default()
    }

    /// As [`Self::serve_beside`]; `None` where there are none over RoCE v2 here.
    pub(super) fn try_serve_beside(
        self: &Arc<Self>,
        local: SocketAddr,
        max_pending: usize,
    ) -> io::Result<Option<Serving>> {
        if self.engine.options.spoken() != Wire::Auto
            || self.mux.open_if_any(&self.engine).is_none()
        {
            return Ok(None);
        }
        self.offer(&self.manager()?, local, max_pending).map(Some)
    }

    /// Has peers ask at the port of the local address, which is this id's.
    fn offer(
        self: &Arc<Self>,
        manager: &Arc<ConnectionManager>,
        local: SocketAddr,
        max_pending: usize,
    ) -> io::Result<Serving> {
        let ipv6_only = self.state.lock().choices.ipv6_only;
        let address = Some(local.ip().to_canonical());
        let listen = Listen {
            service: ServiceId::new(self.kind.space, local.port()),
            // All addresses of IPv6 are those of IPv4, too, unless the program says otherwise.
            address: address.filter(|ip| !(ip.is_ipv6() && ip.is_unspecified()) || ipv6_only),
            transport: if self.kind.datagrams { Transport::Ud } else { Transport::Rc },
            header: true,
            backlog: max_pending,
        };
        Serving::start(manager, self.downgrade(), &listen)
    }
}
