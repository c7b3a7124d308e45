// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of an existing or future connection.
//!
//! An id is over a stream, over datagrams (SIDR), or an exchange of management datagrams. A listener
//! whose wire is `auto` takes streams and REQs. Ids of the C API keep no state of the connection:
//! `Id::state` holds it as the program knows it.

mod candidates;
mod datagrams;
mod exchange;
mod inherit;
mod service;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use iwarp_os::{FamilyClaim, ProcessOwned};
pub use iwarp_types::PortSpace;
use iwarp_types::Time;

use crate::cm::channel::{ChannelCore, Mailbox};
use crate::cm::datagrams::{Inquiry, SidrRequest};
use crate::cm::incoming::{Accepting, Listening};
use crate::cm::meanwhile::Meanwhile;
pub use exchange::PacketAttributes;

use crate::cm::outgoing::{By, Origin, Outgoing};
use crate::cm::packets::{Exchange, Step};
use crate::cm::service::Serving;
use crate::cm::watch::{Connected, Watch};
use crate::cm::{ConnectError, ConnectParams, EventChannel, EventKind};
use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::endpoint::Endpoint;
use crate::engine::fate;
use crate::engine::service_ports::ServicePort;
use crate::engine::sync::{Guard, Mutex};
use crate::port::{Acceptor, Ipv6Listen, Network, Port, Reservation, Sharing};
use crate::report;
use crate::verbs::QueuePair;
use crate::wire::iwarp::link::{Agreed, Link};
use crate::wire::roce::mux::MuxPlace;

/// Least number of connections that the system holds for the worker, even if the program says
/// fewer: they have not been asked yet what they want. With fewer, a good peer's attempt would be
/// dropped in a flood, and repeated after a second only.
const LEAST_BACKLOG: u32 = 4096;

/// One end of a connection, like `struct rdma_cm_id`: the program makes it to listen or to connect,
/// or gets it with a connection request.
#[derive(Clone)]
pub struct Id {
    core: ProcessOwned<Arc<IdCore>>,
}

/// The state of an [`Id`]'s connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// There is no connection, and none is being made.
    Idle,
    /// Connections come in here; each belongs to another id.
    Listening,
    /// The connection is being made.
    Connecting,
    /// A peer has requested it and waits for [`Id::accept`] or [`Id::reject`].
    Requested,
    /// The peer has accepted it and waits for [`Id::establish`].
    Responded,
    /// It is up; or it has ended and the program has not yet taken [`EventKind::Disconnected`].
    Connected,
    /// It is over, and the program knows: the program has taken that event, or refused the request,
    /// or failed to accept it.
    Over,
}

pub(crate) struct IdCore {
    channel: Destination,
    engine: Arc<Engine>,
    mux: Arc<MuxPlace>,
    kind: Kind,
    state: Mutex<State>,
}

/// The purpose of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    space: PortSpace,
    /// Datagram services, not connections.
    datagrams: bool,
}

const CONNECTIONS: Kind = Kind { space: PortSpace::CONNECTIONS, datagrams: false };

/// The channel to which the events of an id go. Weak: connection requests that wait there hold
/// their ids.
#[derive(Clone)]
struct Destination(Arc<Mutex<Weak<ChannelCore>>>);

impl Destination {
    fn new(channel: &Arc<ChannelCore>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(channel))))
    }

    fn change(&self, channel: &Arc<ChannelCore>) {
        *self.0.lock() = Arc::downgrade(channel);
    }

    /// Calls `f` with the channel, which stays the id's during the call.
    fn with(&self, f: impl FnOnce(&Arc<ChannelCore>)) {
        let destination = self.0.lock();
        let channel = destination.upgrade();
        if let Some(channel) = &channel {
            f(channel);
        }
        // This may be the last reference, and takes waiting requests along: not under the lock.
        drop(destination);
    }
}

#[derive(Default)]
struct State {
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Other addresses of the peer, to be tried if nothing comes of that one.
    candidates: VecDeque<SocketAddr>,
    /// The address that the program wants to connect from.
    source: Option<SocketAddr>,
    /// Holds the port of an id that was bound, until it listens or connects.
    reserved: Option<Box<dyn Reservation>>,
    /// The port of an id whose ports are not TCP's ([`IdCore::has_own_ports`]).
    service_port: Option<ServicePort>,
    /// Of a listener for streams: takes connections over RoCE v2 as well.
    beside: Option<Serving>,
    choices: Choices,
    /// Of one that listens: how many connections may wait.
    max_pending: usize,
    context: Option<Arc<dyn Any + Send + Sync>>,
    phase: Phase,
}

/// The choices of the program for its connections.
#[derive(Clone, Copy, Debug, Default)]
struct Choices {
    share_address: bool,
    ipv6_only: bool,
    traffic_class: Option<u8>,
}

impl Choices {
    fn reserve(self, network: &dyn Network, addr: SocketAddr) -> io::Result<Box<dyn Reservation>> {
        let ipv6 = if self.ipv6_only { Ipv6Listen::Only } else { Ipv6Listen::DualStack };
        let sharing = if self.share_address { Sharing::Shared } else { Sharing::Exclusive };
        network.reserve(addr, ipv6, sharing)
    }

    /// As [`Self::reserve`], for a listener: the program may have a TCP listener of that number, too.
    fn reserve_to_listen(
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

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Listening(Arc<Listening>),
    Connecting(Arc<Outgoing>),
    Requested(Accepting),
    /// The peer's answer is here, and the program has to name a queue pair.
    Responded(Box<dyn Port>, Box<Agreed>),
    Connected(Connected),
    /// The program knows of the end. Its posted requests may outlive that.
    Over(Option<Connected>),
    /// A connection over RoCE v2, being made or there.
    Exchanging(Arc<Exchange>),
    /// A datagram service is offered, or connections over RoCE v2 come in here.
    Serving {
        _serving: Serving,
    },
    /// The queue pair of a datagram service is being asked for.
    Asking(Arc<SidrRequest>),
    /// It is known.
    Found,
    /// A peer asks for the queue pair of the service.
    Inquired(Inquiry),
    /// It was told.
    Answered,
}

impl Phase {
    /// The connection that there is or was.
    const fn connected(&self) -> Option<&Connected> {
        match self {
            Self::Connected(connected) | Self::Over(Some(connected)) => Some(connected),
            _ => None,
        }
    }
}

impl State {
    fn take_request(&mut self) -> io::Result<Accepting> {
        // It can be answered once only, even if that fails.
        match std::mem::replace(&mut self.phase, Phase::Over(None)) {
            Phase::Requested(accepting) => Ok(accepting),
            other => {
                self.phase = other;
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(core) = self.core.alive() else { return f.write_str("Id(inherited)") };
        let state = core.state.lock();
        f.debug_struct("Id").field("local", &state.local).field("peer", &state.peer).finish()
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.core.is(&other.core)
    }
}

impl Eq for Id {}

impl Id {
    /// Makes an id whose events go to `channel`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `ENODEV` in a forked child.
    pub fn new(channel: &EventChannel) -> io::Result<Self> {
        iwarp_mem::afford()?;
        Ok(Self::of(IdCore::on(channel.core.check()?, CONNECTIONS, State::default())))
    }

    /// Makes an id for whose events only a blocked caller waits.
    pub(crate) fn with_mailbox(mailbox: &Mailbox) -> io::Result<Self> {
        Ok(Self::of(IdCore::on(mailbox.core()?, CONNECTIONS, State::default())))
    }

    pub(crate) fn of(core: Arc<IdCore>) -> Self {
        Self { core: ProcessOwned::new(core) }
    }

    /// The part of it that the library has.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn core(&self) -> io::Result<&Arc<IdCore>> {
        self.core.check()
    }

    /// The progress of its connection; `Idle` in a forked child.
    pub fn state(&self) -> ConnectionState {
        let Some(core) = self.core.alive() else { return ConnectionState::Idle };
        match core.state.lock().phase {
            Phase::Idle => ConnectionState::Idle,
            Phase::Listening(_) | Phase::Serving { .. } => ConnectionState::Listening,
            Phase::Exchanging(ref exchange) => match exchange.step() {
                Step::Asked => ConnectionState::Connecting,
                Step::Responded => ConnectionState::Responded,
                Step::Requested => ConnectionState::Requested,
                Step::Accepted | Step::Established | Step::Ended => ConnectionState::Connected,
                Step::Over => ConnectionState::Over,
            },
            Phase::Connecting(_) | Phase::Asking(_) => ConnectionState::Connecting,
            Phase::Requested(_) | Phase::Inquired(_) => ConnectionState::Requested,
            Phase::Responded(..) => ConnectionState::Responded,
            Phase::Connected(_) | Phase::Found | Phase::Answered => ConnectionState::Connected,
            Phase::Over(_) => ConnectionState::Over,
        }
    }

    /// Attaches a value of the program to the id, to find it again from events of the id.
    pub fn set_context(&self, context: Arc<dyn Any + Send + Sync>) {
        let Some(core) = self.core.alive() else { return };
        let before = core.state.lock().context.replace(context);
        drop(before);
    }

    /// The value that was attached last.
    pub fn context(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.core.alive()?.state.lock().context.clone()
    }

    /// Directs its events to another channel from now on, including those that already wait.
    pub fn migrate(&self, channel: &EventChannel) {
        if let (Some(core), Some(channel)) = (self.core.alive(), channel.core.alive()) {
            core.move_to(channel);
        }
    }

    /// Lets other ids with the same setting bind to the same address; one of them can listen. Set
    /// this before binding.
    pub fn set_share_address(&self, share: bool) {
        if let Some(core) = self.core.alive() {
            core.state.lock().choices.share_address = share;
        }
    }

    /// Keeps IPv4 out if the id listens on `::`. Set this before binding.
    pub fn set_ipv6_only(&self, only: bool) {
        if let Some(core) = self.core.alive() {
            core.state.lock().choices.ipv6_only = only;
        }
    }

    /// Sets the traffic class (IPv6) or type of service (IPv4) of the connection's packets, or of
    /// incoming connections. Set this before the id listens, connects or accepts.
    pub fn set_traffic_class(&self, class: u8) {
        if let Some(core) = self.core.alive() {
            core.state.lock().choices.traffic_class = Some(class);
        }
    }

    /// Raises an event of the program's own.
    pub fn notify(&self, status: i32, argument: u64) {
        if let Some(core) = self.core.alive() {
            core.push(EventKind::User { status, argument });
        }
    }

    /// Ends all activity of the id at once: when this returns, its port is free, its connection is
    /// being closed, and none of its events waits any more.
    pub fn close(&self) {
        let Some(core) = self.core.alive() else { return };
        core.forget_events();
        let mut state = core.state.lock();
        let reserved = (state.reserved.take(), state.service_port.take(), state.beside.take());
        let phase = std::mem::take(&mut state.phase);
        drop(state);
        drop(reserved);
        match phase {
            Phase::Listening(listening) => listening.stop(),
            Phase::Connecting(outgoing) => outgoing.cancel(),
            Phase::Connected(connected) | Phase::Over(Some(connected)) => connected.end(),
            Phase::Asking(question) => question.cancel(),
            Phase::Exchanging(exchange) => exchange.close(),
            Phase::Idle
            | Phase::Requested(_)
            | Phase::Responded(..)
            | Phase::Over(None)
            | Phase::Serving { .. }
            | Phase::Found
            | Phase::Inquired(_)
            | Phase::Answered => {}
        }
    }

    /// Binds to a local address; with port 0 the system chooses one, which is reserved from then
    /// on.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`; `InvalidInput` when it is bound already.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let core = self.core.check()?;
        let mut state = core.state.lock();
        if state.local.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
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

    /// Listens. Requests arrive as events. The larger of `backlog` and [`Options::max_pending`]
    /// limits the number of connections that may be in start-up or wait for the program's answer.
    /// Beyond that, the listener closes the oldest connection without a request; if all wait for
    /// the program's answer, it closes further ones, unless they come from an address that has few.
    /// A `backlog` of 0 leaves the choice to the options.
    ///
    /// [`Options::max_pending`]: crate::Options::max_pending
    ///
    /// # Errors
    ///
    /// Errors of listening; `InvalidInput` when the id connects or listens already.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let max_pending = self.core.check()?.engine.options.max_pending;
        self.listen_at(None, Some(max_pending.max(backlog as usize)))
    }

    /// As [`Self::listen`], with exactly so many connections, or as many as the options say. The
    /// thread that drives `accept_set` receives them, the worker without one.
    pub(crate) fn listen_at(
        &self,
        accept_set: Option<&AcceptSet>,
        max_pending: Option<usize>,
    ) -> io::Result<()> {
        let core = self.core.check()?;
        let max_pending = max_pending.unwrap_or(core.engine.options.max_pending);
        if core.has_own_ports() {
            return core.serve(max_pending);
        }
        let mut state = core.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let reserved = match state.reserved.take() {
            Some(reserved) => reserved,
            None => {
                let addr = state.local.unwrap_or(any);
                state.choices.reserve_to_listen(core.network(), addr)?
            }
        };
        reserved.bequeath();
        reserved.admit_program();
        if let Some(class) = state.choices.traffic_class {
            reserved.set_traffic_class(class)?;
        }
        let local = reserved.local_addr()?;
        state.local = Some(local);
        let backlog = u32::try_from(max_pending).unwrap_or(u32::MAX).max(LEAST_BACKLOG);
        let acceptor = match reserved.listen(backlog) {
            Ok(acceptor) => acceptor,
            Err((reserved, error)) => {
                state.reserved = Some(reserved);
                return Err(error);
            }
        };
        let claim = Arc::new(FamilyClaim::new()?);
        core.take_connections(state, acceptor, max_pending, accept_set, claim)?;
        let beside = core.serve_beside(local, max_pending);
        core.state.lock().beside = beside;
        Ok(())
    }

    /// The local address, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.core.alive()?.state.lock().local
    }

    /// The peer's address, once there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.core.alive()?.state.lock().peer
    }

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
            None => core.network().source_for(dst),
        };
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
    /// `InvalidInput` before the address is resolved, when the id is in use, or when there is
    /// too much private data; those of making a socket.
    pub fn connect(&self, qp: &QueuePair, params: &ConnectParams) -> io::Result<()> {
        let (core, endpoint) = (self.core.check()?, qp.endpoint()?);
        let endpoint = Some(Arc::clone(endpoint));
        if core.speaks_roce() {
            return core.start_exchange(qp.number(), endpoint, params);
        }
        Ok(core.start_connecting(endpoint, params, By::Worker).map(drop)?)
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
        let (core, endpoint) = (self.core.check()?, qp.endpoint()?);
        let dst = connectable(dst);
        core.state.lock().peer = Some(dst);
        let endpoint = Some(Arc::clone(endpoint));
        if core.speaks_roce() {
            let source = core.network().source_for(dst).map_err(ConnectError::Unreachable)?;
            core.state.lock().local = Some(SocketAddr::new(source, 0));
            return Ok(core.start_exchange(qp.number(), endpoint, params)?);
        }
        let outgoing = core.start_connecting(endpoint, params, By::Caller)?;
        Ok(outgoing.drive(meanwhile, until)?)
    }

    /// As [`Self::connect`], but without a queue pair yet: ends in [`EventKind::Responded`] if the
    /// peer accepts; [`Self::establish`] must follow.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn connect_first(&self, params: &ConnectParams) -> io::Result<()> {
        Ok(self.core.check()?.start_connecting(None, params, By::Worker).map(drop)?)
    }

    /// Gives `qp` the connection that the peer has accepted: it is up when this returns. No event
    /// follows on this side.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless [`EventKind::Responded`] was the last that happened; when the
    /// connection broke, or the peer accepted on terms that cannot be kept.
    pub fn establish(&self, qp: &QueuePair) -> io::Result<()> {
        let (core, endpoint) = (self.core.check()?, qp.endpoint()?);
        let mut state = core.state.lock();
        let (stream, agreed) = match std::mem::take(&mut state.phase) {
            Phase::Responded(stream, agreed) => (stream, agreed),
            other => {
                state.phase = other;
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        let connection = core.engine.worker.next_id();
        if let Some(fault) = agreed.terms.fault {
            drop(state);
            Link::attach(endpoint, stream, &agreed, connection, None, || {})?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, ConnectError::Terms(fault)));
        }
        let watch = Watch::new(core.downgrade(), None);
        state.phase = Phase::Connected(watch.connected(endpoint, connection));
        drop(state);
        let attached =
            Link::attach(endpoint, stream, &agreed, connection, Some(Arc::new(watch)), || {});
        attached.inspect_err(|_| core.failed())
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

    pub(crate) fn try_accept(
        &self,
        qp: &QueuePair,
        params: &ConnectParams,
    ) -> Result<(), ConnectError> {
        let (core, endpoint) = (self.core.check()?, qp.endpoint()?);
        let wire = core.wire();
        if let Some((local, peer)) = core.ends() {
            fate::step(Some(endpoint.id()), local, peer, wire, "accepting");
        }
        accept_with(core, endpoint, params).inspect_err(|error| {
            if let Some((local, peer)) = core.ends() {
                fate::not_made(Some(endpoint.id()), local, peer, wire, error);
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
        if core.kind.datagrams {
            return core.take_inquiry(Phase::Over(None))?.reject(private_data);
        }
        let wire = core.wire();
        match core.exchange() {
            Some(exchange) => exchange.reject(private_data)?,
            None => {
                let accepting = core.state.lock().take_request()?;
                accepting.reject(private_data)?;
            }
        }
        if let Some((local, peer)) = core.ends() {
            fate::rejected(local, peer, wire, private_data.len());
        }
        Ok(())
    }

    /// Ends the connection in good order; [`EventKind::Disconnected`] follows. Data accepted before
    /// still go out.
    pub fn disconnect(&self) {
        let Some(core) = self.core.alive() else { return };
        if let Some(exchange) = core.exchange() {
            return exchange.disconnect();
        }
        let connected = core.state.lock().phase.connected().cloned();
        if let Some(connected) = connected {
            connected.end();
        }
    }
}

/// Accepts the connection that a peer asks for, with a queue pair.
fn accept_with(
    core: &Arc<IdCore>,
    endpoint: &Arc<Endpoint>,
    params: &ConnectParams,
) -> Result<(), ConnectError> {
    if let Some(exchange) = core.exchange() {
        return Ok(exchange.accept(endpoint.id(), Some(endpoint), params)?);
    }
    let mut _holding = None;
    core.downgrade().with_channel(|channel| _holding = Some(channel.hold_requests()));
    let mut state = core.state.lock();
    let accepting = state.take_request()?;
    let class = state.choices.traffic_class;
    let (stream, terms) = accepting.accept(&core.engine, params, class)?;
    let connection = core.engine.worker.next_id();
    let waits = terms.peer_to_peer;
    let observer = Watch::new(core.downgrade(), waits.then_some(terms));
    state.phase = Phase::Connected(observer.connected(endpoint, connection));
    drop(state);
    let agreed = Agreed { terms, rnr_retry: params.rnr_retry };
    let attached =
        Link::attach(endpoint, stream, &agreed, connection, Some(Arc::new(observer)), || {
            if !waits {
                core.push(EventKind::established(&terms, Vec::new()));
            }
        });
    Ok(attached.inspect_err(|_| core.is_told_of_the_end())?)
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
    fn on(channel: &Arc<ChannelCore>, kind: Kind, state: State) -> Arc<Self> {
        let (engine, mux) = (Arc::clone(&channel.engine), Arc::clone(&channel.mux));
        let channel = Destination::new(channel);
        Arc::new(Self { channel, engine, mux, kind, state: Mutex::new(state) })
    }

    /// The id of a connection that came in.
    pub(crate) fn requested(channel: &Arc<ChannelCore>, accepting: Accepting) -> Arc<Self> {
        let state = State {
            local: accepting.local_addr(),
            peer: Some(accepting.peer_addr()),
            phase: Phase::Requested(accepting),
            ..State::default()
        };
        Self::on(channel, CONNECTIONS, state)
    }

    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Between which addresses it is, once the peer's is known.
    pub(crate) fn ends(&self) -> Option<(Option<SocketAddr>, SocketAddr)> {
        let state = self.state.lock();
        Some((state.local, state.peer?))
    }

    /// The protocol of the connection that it has or is asked for, for the log.
    fn wire(&self) -> &'static str {
        if self.exchange().is_some() { fate::ROCE } else { fate::IWARP }
    }

    pub(crate) const fn mux(&self) -> &Arc<MuxPlace> {
        &self.mux
    }

    fn network(&self) -> &dyn Network {
        &*self.engine.network
    }

    /// The queue pair that uses its connection, if it has or had one.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        if let Some(exchange) = self.exchange() {
            return exchange.endpoint();
        }
        self.state.lock().phase.connected().map(|connected| Arc::clone(&connected.endpoint))
    }

    pub(crate) fn move_to(&self, channel: &Arc<ChannelCore>) {
        let mut destination = self.channel.0.lock();
        let before = destination.upgrade();
        *destination = Arc::downgrade(channel);
        if let Some(before) = &before
            && !Arc::ptr_eq(before, channel)
        {
            channel.put(before.remove(self));
        }
        drop(destination);
        // Perhaps the last reference to the old channel.
        drop(before);
    }

    /// A connection request's id goes with the event.
    pub(crate) fn redirect(&self, channel: &Arc<ChannelCore>) {
        self.channel.change(channel);
    }

    /// Connections come in at `acceptor` from now on.
    fn take_connections(
        self: &Arc<Self>,
        mut state: Guard<'_, State>,
        acceptor: Box<dyn Acceptor>,
        max_pending: usize,
        accept_set: Option<&AcceptSet>,
        claim: Arc<FamilyClaim>,
    ) -> io::Result<()> {
        let id = self.downgrade();
        let listening = Listening::start(acceptor, max_pending, id, accept_set, claim)?;
        state.phase = Phase::Listening(listening);
        state.max_pending = max_pending;
        Ok(())
    }

    fn start_connecting(
        self: &Arc<Self>,
        endpoint: Option<Arc<Endpoint>>,
        params: &ConnectParams,
        by: By,
    ) -> Result<Arc<Outgoing>, ConnectError> {
        let mut state = self.state.lock();
        let (Phase::Idle, Some(peer)) = (&state.phase, state.peer) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        };
        let origin = Origin {
            reserved: state.reserved.take(),
            local: state.source,
            traffic_class: state.choices.traffic_class,
            is_last: state.candidates.is_empty(),
        };
        let outgoing = Outgoing::start(origin, peer, endpoint, params, self.downgrade(), by)?;
        state.phase = Phase::Connecting(Arc::clone(&outgoing));
        Ok(outgoing)
    }

    /// An outgoing connection is up. Returns its observer.
    pub(crate) fn established(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        connection: u64,
        local: Option<SocketAddr>,
    ) -> Watch {
        let watch = Watch::new(self.downgrade(), None);
        let mut state = self.state.lock();
        state.local = local.or(state.local);
        state.phase = Phase::Connected(watch.connected(endpoint, connection));
        watch
    }

    /// The peer of an outgoing connection accepts, and there is no queue pair yet.
    pub(crate) fn responded(
        &self,
        stream: Box<dyn Port>,
        agreed: Agreed,
        local: Option<SocketAddr>,
    ) {
        let mut state = self.state.lock();
        // Unless it was closed meanwhile.
        if matches!(state.phase, Phase::Connecting(_)) {
            state.local = local.or(state.local);
            state.phase = Phase::Responded(stream, Box::new(agreed));
        }
    }

    /// An outgoing connection was not made: the id may try again.
    pub(crate) fn failed(&self) {
        self.state.lock().phase = Phase::Idle;
    }

    pub(crate) fn push(self: &Arc<Self>, kind: EventKind) {
        self.downgrade().push(kind);
    }

    pub(crate) fn downgrade(self: &Arc<Self>) -> WeakId {
        WeakId { core: Arc::downgrade(self), channel: self.channel.clone() }
    }

    /// The program takes the event that says that the connection is over, or learns it otherwise.
    pub(crate) fn is_told_of_the_end(&self) {
        if let Some(exchange) = self.exchange() {
            return exchange.is_told_of_the_end();
        }
        let mut state = self.state.lock();
        state.phase = match std::mem::take(&mut state.phase) {
            Phase::Connected(connected) => Phase::Over(Some(connected)),
            other => other,
        };
    }

    /// From now on the program is told nothing about it.
    fn forget_events(&self) {
        let mut destination = self.channel.0.lock();
        let channel = std::mem::take(&mut *destination).upgrade();
        drop(destination);
        if let Some(channel) = channel {
            // Requests among them are refused here.
            drop(channel.remove(self));
        }
    }
}

impl Drop for IdCore {
    fn drop(&mut self) {
        self.forget_events();
        let state = self.state.lock();
        match &state.phase {
            Phase::Listening(listening) => listening.stop(),
            Phase::Connecting(outgoing) => outgoing.cancel(),
            Phase::Asking(question) => question.cancel(),
            // The thread that passes an event on may be the last to have the channel, and with it
            // the ids that wait there, and has the queue pair locked.
            Phase::Connected(connected) if !connected.is_over() => {
                let connected = connected.clone();
                self.engine.worker.soon(Box::new(move || connected.end()));
            }
            // As above.
            Phase::Exchanging(exchange) => {
                let exchange = Arc::clone(exchange);
                self.engine.worker.soon(Box::new(move || exchange.close()));
            }
            Phase::Idle
            | Phase::Requested(_)
            | Phase::Responded(..)
            | Phase::Connected(_)
            | Phase::Over(_)
            | Phase::Serving { .. }
            | Phase::Found
            | Phase::Inquired(_)
            | Phase::Answered => {}
        }
    }
}

/// An id as others know it, who must not keep it: when the program lets go of it, its port is
/// free and its connection ends.
#[derive(Clone)]
pub(crate) struct WeakId {
    core: Weak<IdCore>,
    channel: Destination,
}

impl WeakId {
    pub(crate) fn upgrade(&self) -> Option<Arc<IdCore>> {
        self.core.upgrade()
    }

    /// True if the program has let go of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.core.strong_count() == 0
    }

    pub(crate) fn is(&self, id: *const IdCore) -> bool {
        std::ptr::eq(self.core.as_ptr(), id)
    }

    /// Calls `f` with the channel where its events go, while the program can take them there.
    pub(crate) fn with_channel(&self, f: impl FnOnce(&Arc<ChannelCore>)) {
        self.channel.with(f);
    }

    pub(crate) fn push(&self, kind: EventKind) {
        self.with_channel(|channel| channel.push(self.clone(), kind));
    }
}
