// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connecting, accepting, refusing and ending.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use iwarp_os::addr::is_link_local;
use iwarp_types::{PortSpace, Time};

use super::ports::check_port;
use super::{Id, IdCore, IdState, Phase};
use crate::cm::{ConnectError, ConnectParams, EventKind};
use crate::connect::{By, Call, DatagramAttributes, Exchange, Meanwhile, NamedQp};
use crate::engine::fate;
use crate::faults;
use crate::verbs::QueuePair;

impl Id {
    /// Finds the local address from which the host reaches `dst`, unless `src` names it; ends in
    /// [`EventKind::AddressResolved`] or [`EventKind::AddressError`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the families differ or the id is in use; those of binding to `src`.
    pub fn resolve_addr(&self, src: Option<SocketAddr>, dst: SocketAddr) -> io::Result<()> {
        let core = self.core.check()?;
        let mut state = core.state.lock();
        let dst = connectable(dst);
        let is_bound = state.reserved.is_some() || state.service_port.is_some();
        let bound = state.local.filter(|_| is_bound);
        let families_differ =
            src.into_iter().chain(bound).any(|addr| addr.is_ipv4() != dst.is_ipv4());
        if !matches!(state.phase, Phase::Idle) || families_differ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if let Some(src) = src.filter(|_| bound.is_none()) {
            core.enter_device(src.ip())?;
        }
        if let Some(src) = src.filter(|_| bound.is_none() && core.has_own_ports()) {
            core.take_port(&mut state, src)?;
        } else if let Some(src) = src.filter(|_| bound.is_none()) {
            let reserved = state.choices.reserve(core.network(), src)?;
            state.local = Some(src);
            state.source = state.local;
            // If any port does, connecting chooses one, and knows more then.
            if src.port() != 0 {
                reserved.bequeath();
                state.reserved = Some(reserved);
            }
        }
        // A group is reached from the program's address, if it has chosen one.
        let chosen = state.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let source = match chosen.filter(|_| dst.ip().is_multicast()) {
            Some(source) => Ok(source),
            None => core.source_for(dst),
        };
        let source = source.and_then(|source| {
            if faults::is_pulled() {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            core.enter_device(chosen.unwrap_or(source))?;
            Ok(source)
        });
        let kind = match source {
            Ok(source) => {
                state.peer = Some(dst);
                let local = state.local;
                let unspecified = local.is_none_or(|local| local.ip().is_unspecified());
                let port = local.map_or(0, |local| local.port());
                state.local = if unspecified { Some(SocketAddr::new(source, port)) } else { local };
                if core.kind.datagrams && state.service_port.is_none() {
                    core.take_port(&mut state, SocketAddr::new(source, port))?;
                }
                EventKind::AddressResolved
            }
            Err(error) => EventKind::AddressError(error),
        };
        drop(state);
        core.push(kind);
        Ok(())
    }

    /// Ends in [`EventKind::RouteResolved`]; the transport itself finds the route.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the address is resolved.
    pub fn resolve_route(&self) -> io::Result<()> {
        let core = self.core.check()?;
        if core.state.lock().peer.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        core.push(EventKind::RouteResolved);
        Ok(())
    }

    /// Connects; ends in [`EventKind::Established`], [`EventKind::Rejected`],
    /// [`EventKind::Unreachable`] or [`EventKind::ConnectError`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the address is resolved, when the id is in use, for a queue pair of
    /// another device than the id's, or when there is too much private data; those of making a
    /// socket.
    pub fn connect(&self, qp: &QueuePair, params: &ConnectParams) -> io::Result<()> {
        let (core, qp) = (self.core.check()?, NamedQp::of(qp.endpoint()?));
        Ok(core.call(Some(qp), params, By::Worker).map(drop)?)
    }

    /// Connects to `dst`, from wherever the system likes, in this thread: returns when that has
    /// ended in an event, or is left to the worker, or at the time `until`.
    pub(crate) fn connect_here(
        &self,
        qp: &QueuePair,
        dst: SocketAddr,
        params: &ConnectParams,
        meanwhile: &Meanwhile,
        until: Time,
    ) -> Result<(), ConnectError> {
        let (core, qp) = (self.core.check()?, NamedQp::of(qp.endpoint()?));
        core.state.lock().peer = Some(connectable(dst));
        let exchange = core.call(Some(qp), params, By::Caller)?;
        Ok(exchange.drive(meanwhile, until)?)
    }

    /// As [`Self::connect`], but without a queue pair yet: ends in [`EventKind::Responded`] if the
    /// peer accepts; [`Self::establish`] must follow.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`]; `InvalidInput` where connections are over RoCE v2, whose first message
    /// names the queue pair ([`Self::connect_first_with`]).
    pub fn connect_first(&self, params: &ConnectParams) -> io::Result<()> {
        Ok(self.core.check()?.call(None, params, By::Worker).map(drop)?)
    }

    /// As [`Self::connect_first`], for a queue pair with that number, which over RoCE v2 the peer
    /// is told.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn connect_first_with(&self, number: u32, params: &ConnectParams) -> io::Result<()> {
        let core = self.core.check()?;
        let qp = core.has_packets_only().then_some(NamedQp { number, endpoint: None });
        Ok(core.call(qp, params, By::Worker).map(drop)?)
    }

    /// True if its connection is RoCE v2's: always ([`Options::wire`](crate::Options::wire)), or
    /// because either end has asked for one.
    pub fn speaks_roce(&self) -> bool {
        let Some(core) = self.core.alive() else { return false };
        core.has_packets_only() || core.exchange().is_some_and(|exchange| exchange.speaks_roce())
    }

    /// Gives `qp` the connection that the peer has accepted: it is up when this returns. No event
    /// follows on this side.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless [`EventKind::Responded`] was the last that happened; when the
    /// connection broke, or the peer accepted on terms that cannot be kept.
    pub fn establish(&self, qp: &QueuePair) -> io::Result<()> {
        let (core, qp) = (self.core.check()?, NamedQp::of(qp.endpoint()?));
        core.check_device(Some(&qp))?;
        core.exchange().ok_or(io::ErrorKind::InvalidInput)?.establish(&qp)
    }

    /// Over RoCE v2: the program has set up a queue pair of its own as
    /// [`Self::packet_attributes`] says. Of an id that a peer has accepted this is the end of
    /// connecting, and no event follows on this side; a request of a peer's it accepts, and
    /// [`EventKind::Established`] follows.
    ///
    /// # Errors
    ///
    /// As [`Self::establish`] and [`Self::accept`].
    pub fn use_number(&self, number: u32, params: &ConnectParams) -> io::Result<()> {
        let exchange = self.core.check()?.exchange().ok_or(io::ErrorKind::InvalidInput)?;
        let qp = NamedQp { number, endpoint: None };
        match Arc::clone(&exchange).establish(&qp) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Ok(exchange.accept(&qp, params, None)?)
            }
            done => done,
        }
    }

    /// Over RoCE v2: how a queue pair of the program's own is to be set up; `None` where that is
    /// not known.
    #[doc(hidden)]
    pub fn packet_attributes(&self, params: &ConnectParams) -> Option<DatagramAttributes> {
        self.core.alive()?.exchange()?.attributes(params)
    }

    /// Accepts a connection request; [`EventKind::Established`] follows.
    ///
    /// # Errors
    ///
    /// When the peer has gone or broken the rules meanwhile, or `params` does not fit.
    pub fn accept(&self, qp: &QueuePair, params: &ConnectParams) -> io::Result<()> {
        self.try_accept(qp, params).map_err(|error| match error {
            ConnectError::Io(error) | ConnectError::Unreachable(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }

    /// As [`Self::accept`], and says in full what went wrong.
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(hidden)]
    pub fn try_accept(&self, qp: &QueuePair, params: &ConnectParams) -> Result<(), ConnectError> {
        let (core, qp) = (self.core.check()?, NamedQp::of(qp.endpoint()?));
        let exchange = core.exchange().ok_or_else(invalid)?;
        let wire = exchange.wire();
        if let Some((local, peer)) = core.ends() {
            fate::step(Some(qp.number), local, peer, wire, "accepting");
        }
        core.accept(exchange, &qp, params).inspect_err(|error| {
            if let Some((local, peer)) = core.ends() {
                fate::not_made(Some(qp.number), local, peer, wire, error);
            }
        })
    }

    /// Refuses a connection request.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when there is none, or too much private data; those of sending.
    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let core = self.core.check()?;
        let exchange = core.exchange().ok_or_else(invalid)?;
        exchange.reject(private_data)?;
        if let Some((local, peer)) = core.ends().filter(|_| !core.kind.datagrams) {
            fate::rejected(local, peer, exchange.wire(), private_data.len());
        }
        Ok(())
    }

    /// Ends the connection in good order; [`EventKind::Disconnected`] follows. Data accepted before
    /// still go out.
    pub fn disconnect(&self) {
        if let Some(exchange) = self.core.alive().and_then(|core| core.exchange()) {
            exchange.disconnect();
        }
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// A peer's address that is unspecified means this host.
fn connectable(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), v4.port())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v6.port())
        }
        addr => addr,
    }
}

impl IdCore {
    /// Asks the peer for a connection.
    fn call(
        self: &Arc<Self>,
        qp: Option<NamedQp>,
        params: &ConnectParams,
        by: By,
    ) -> Result<Arc<dyn Exchange>, ConnectError> {
        if self.has_own_ports() {
            self.wires().prepare()?;
        }
        let call = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Idle) || self.kind.datagrams {
                return Err(invalid().into());
            }
            let source = self.settle_device(&state, qp.as_ref())?;
            self.check_device(qp.as_ref())?;
            if self.has_own_ports() {
                self.settle_local(&mut state, qp.as_ref())?;
            }
            check_port(qp.as_ref(), source.or(state.local))?;
            let call = self.call_from(&mut state, qp, params)?;
            match source {
                // In place of a reservation at all addresses.
                Some(_) => Call { source, reserved: None, ..call },
                None => call,
            }
        };
        let exchange = self.wires().connect(call)?;
        self.begin(&exchange, None, by)?;
        Ok(exchange)
    }

    /// Asks the peer by another wire than that of `refused`, which has come to nothing. False where
    /// there is none.
    pub(super) fn connect_otherwise(
        self: &Arc<Self>,
        refused: &dyn Exchange,
        qp: &NamedQp,
        params: &ConnectParams,
    ) -> bool {
        let wires = self.wires();
        if !wires.has_another(qp) || wires.prepare().is_err() {
            return false;
        }
        let call = {
            let mut state = self.state.lock();
            if !state.phase.is(refused) || self.settle_local(&mut state, Some(qp)).is_err() {
                return false;
            }
            self.call_from(&mut state, Some(qp.clone()), params)
        };
        let next = call.map_err(io::Error::from).and_then(|call| wires.connect_otherwise(call));
        next.is_ok_and(|next| self.begin(&next, Some(refused), By::Worker).is_ok())
    }

    /// Has an exchange begin that takes the place of `before`.
    pub(super) fn begin(
        &self,
        exchange: &Arc<dyn Exchange>,
        before: Option<&dyn Exchange>,
        by: By,
    ) -> Result<(), ConnectError> {
        let mut state = self.state.lock();
        let is_free = match before {
            None => matches!(state.phase, Phase::Idle),
            Some(before) => state.phase.is(before),
        };
        if !is_free {
            return Err(invalid().into());
        }
        let before = std::mem::replace(&mut state.phase, Phase::Talking(Arc::clone(exchange)));
        drop(state);
        drop(before);
        Arc::clone(exchange).begin(by).inspect_err(|_| {
            self.leave(&**exchange);
        })
    }

    /// The id has this exchange no more, and may begin another. False where it had it no more.
    pub(super) fn leave(&self, exchange: &dyn Exchange) -> bool {
        let mut state = self.state.lock();
        if !state.phase.is(exchange) {
            return false;
        }
        let before = std::mem::take(&mut state.phase);
        drop(state);
        drop(before);
        true
    }

    /// The call for a connection between the id's addresses.
    fn call_from(
        self: &Arc<Self>,
        state: &mut IdState,
        qp: Option<NamedQp>,
        params: &ConnectParams,
    ) -> Result<Call, ConnectError> {
        Ok(Call {
            owner: Arc::new(self.downgrade()),
            peer: state.peer.ok_or_else(invalid)?,
            local: state.local,
            source: state.source,
            reserved: state.reserved.take(),
            traffic_class: state.choices.traffic_class,
            is_last: state.candidates.is_empty(),
            qp,
            params: params.clone(),
        })
    }

    /// Is on the device from whose address it connects. Returns that address where the system would
    /// perhaps choose another device's.
    fn settle_device(
        &self,
        state: &IdState,
        qp: Option<&NamedQp>,
    ) -> Result<Option<SocketAddr>, ConnectError> {
        if self.home.is_one_with_all() {
            return Ok(None);
        }
        let peer = state.peer.ok_or_else(invalid)?;
        let chosen = state.local.filter(|local| !local.ip().is_unspecified());
        let source = match chosen {
            Some(chosen) => chosen.ip(),
            None => self.source_of(qp, peer).map_err(ConnectError::Unreachable)?,
        };
        self.enter_device(source).map_err(ConnectError::Unreachable)?;
        let is_chosen = state.source.is_some_and(|source| !source.ip().is_unspecified());
        // A link-local address says nothing without its interface, which the peer's names.
        let is_open = self.home.profile.is_bound() && !is_chosen && !is_link_local(source);
        let port = state.source.map_or(0, |source| source.port());
        Ok(is_open.then(|| SocketAddr::new(source, port)))
    }

    /// A queue pair has connections of its own device only.
    fn check_device(&self, qp: Option<&NamedQp>) -> io::Result<()> {
        let profile = qp.and_then(|qp| Some(&qp.endpoint.as_ref()?.profile));
        let wires = self.wires();
        match profile.filter(|profile| !wires.admits(profile)) {
            None => Ok(()),
            Some(other) => {
                let (own, other) = (&wires.profile.name, &other.name);
                let why = format!("the queue pair is of the device {other}, and the id on {own}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// Packets leave from a known address, with a port of the connection manager's.
    fn settle_local(&self, state: &mut IdState, qp: Option<&NamedQp>) -> Result<(), ConnectError> {
        let peer = state.peer.ok_or_else(invalid)?;
        let mut local = match state.local.filter(|local| !local.ip().is_unspecified()) {
            Some(local) => local,
            None => {
                let source = self.source_of(qp, peer).map_err(ConnectError::Unreachable)?;
                SocketAddr::new(source, state.local.map_or(0, |local| local.port()))
            }
        };
        if local.port() == 0 {
            let ports = &self.engine().service_ports;
            let port = ports.take(PortSpace::CONNECTIONS, local, false, false)?;
            local.set_port(port.number());
            state.service_port = Some(port);
        }
        state.local = Some(local);
        Ok(())
    }

    fn accept(
        &self,
        exchange: Arc<dyn Exchange>,
        qp: &NamedQp,
        params: &ConnectParams,
    ) -> Result<(), ConnectError> {
        self.check_device(Some(qp))?;
        check_port(Some(qp), self.state.lock().local)?;
        let mut _holding = None;
        self.channel.with(|channel| _holding = Some(channel.hold_requests()));
        let class = self.state.lock().choices.traffic_class;
        exchange.accept(qp, params, class)
    }
}
