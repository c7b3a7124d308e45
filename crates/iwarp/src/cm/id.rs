//! One end of a connection that is made or to be made.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use iwarp_os::{Ipv6Listen, TcpSocket};
use iwarp_proto::mpa::startup::Negotiated;

use crate::cm::channel::ChannelCore;
use crate::cm::incoming::{Accepting, Listening};
use crate::cm::outgoing::Outgoing;
use crate::cm::{ConnectError, ConnectParams, EventChannel, EventKind};
use crate::engine::endpoint::{Ended, Endpoint, Observer};
use crate::engine::sync::Mutex;
use crate::engine::{Engine, now};
use crate::verbs::QueuePair;

/// Connections that the system takes before the worker does, where the program does not say.
const DEFAULT_BACKLOG: u32 = 128;

/// One end of a connection, like `struct rdma_cm_id`: made by hand to listen or to connect, or
/// handed out with a connection request.
#[derive(Clone)]
pub struct Id {
    core: Arc<IdCore>,
}

pub(crate) struct IdCore {
    channel: Destination,
    engine: Arc<Engine>,
    state: Mutex<State>,
}

/// Where the events of an id go. Weak: connection requests that wait there hold their ids.
#[derive(Clone)]
struct Destination(Arc<Mutex<Weak<ChannelCore>>>);

impl Destination {
    fn new(channel: &Arc<ChannelCore>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(channel))))
    }

    fn change(&self, channel: &Arc<ChannelCore>) {
        *self.0.lock() = Arc::downgrade(channel);
    }

    fn channel(&self) -> Option<Arc<ChannelCore>> {
        self.0.lock().upgrade()
    }
}

#[derive(Default)]
struct State {
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Holds a port for an id that was bound and does not listen yet.
    reserved: Option<TcpSocket>,
    phase: Phase,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Listening(Arc<Listening>),
    Connecting(Arc<Outgoing>),
    Requested(Accepting),
    /// With the number of the connection: the queue pair may have another one later.
    Connected(Arc<Endpoint>, u64),
}

impl State {
    fn take_request(&mut self) -> io::Result<Accepting> {
        match std::mem::take(&mut self.phase) {
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
        let state = self.core.state.lock();
        f.debug_struct("Id").field("local", &state.local).field("peer", &state.peer).finish()
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for Id {}

impl Id {
    /// Makes an id whose events go to `channel`.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn new(channel: &EventChannel) -> io::Result<Self> {
        Ok(Self::on(&channel.core, State::default()))
    }

    fn on(channel: &Arc<ChannelCore>, state: State) -> Self {
        let engine = Arc::clone(&channel.engine);
        let channel = Destination::new(channel);
        let core = IdCore { channel, engine, state: Mutex::new(state) };
        Self { core: Arc::new(core) }
    }

    /// The id of a connection that came in.
    pub(crate) fn requested(channel: &Arc<ChannelCore>, accepting: Accepting) -> Self {
        let state = State {
            local: accepting.local_addr(),
            peer: accepting.peer_addr(),
            reserved: None,
            phase: Phase::Requested(accepting),
        };
        Self::on(channel, state)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }

    /// Has its events go to another channel from now on.
    pub fn migrate(&self, channel: &EventChannel) {
        self.core.channel.change(&channel.core);
    }

    /// Binds to a local address; port 0 lets the system choose one, which is taken from then on.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`; `InvalidInput` when it is bound already.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut state = self.core.state.lock();
        if state.local.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Listening without backlog is what reserves a port against other listeners; the socket
        // makes way when the id listens or connects.
        let socket = TcpSocket::listen(addr, 0, Ipv6Listen::DualStack)?;
        state.local = Some(socket.local_addr()?);
        state.reserved = Some(socket);
        Ok(())
    }

    /// Listens. Requests arrive as events. At least `backlog` connections may be in start-up or
    /// wait for the program's answer, and as many as [`Options::max_pending`] says if that is
    /// more; beyond that they are closed. A `backlog` of 0 leaves the choice to the options.
    ///
    /// [`Options::max_pending`]: crate::Options::max_pending
    ///
    /// # Errors
    ///
    /// Those of listening; `InvalidInput` when the id connects or listens already.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let mut state = self.core.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let addr = state.local.unwrap_or(any);
        drop(state.reserved.take());
        let queue = if backlog == 0 { DEFAULT_BACKLOG } else { backlog };
        let socket = TcpSocket::listen(addr, queue, Ipv6Listen::DualStack)?;
        state.local = Some(socket.local_addr()?);
        state.phase =
            Phase::Listening(Listening::start(socket, backlog as usize, self.downgrade())?);
        Ok(())
    }

    /// The local address, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.core.state.lock().local
    }

    /// The peer's address, once there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.core.state.lock().peer
    }

    /// Finds the local address from which `dst` is reached, unless `src` says it; ends in
    /// [`EventKind::AddressResolved`] or [`EventKind::Unreachable`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the families differ or the id is in use.
    pub fn resolve_addr(&self, src: Option<SocketAddr>, dst: SocketAddr) -> io::Result<()> {
        let mut state = self.core.state.lock();
        let families_differ = src.is_some_and(|src| src.is_ipv4() != dst.is_ipv4());
        if !matches!(state.phase, Phase::Idle) || families_differ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let dst = connectable(dst);
        let kind = match iwarp_os::addr::source_for_scoped(dst) {
            Ok(source) => {
                state.peer = Some(dst);
                let local = state.local.or(src);
                let unspecified = local.is_none_or(|local| local.ip().is_unspecified());
                let port = local.map_or(0, |local| local.port());
                state.local = if unspecified { Some(SocketAddr::new(source, port)) } else { local };
                EventKind::AddressResolved
            }
            Err(error) => EventKind::Unreachable(error),
        };
        drop(state);
        self.push(kind);
        Ok(())
    }

    /// Ends in [`EventKind::RouteResolved`]: TCP finds the route.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the address is resolved.
    pub fn resolve_route(&self) -> io::Result<()> {
        if self.peer_addr().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.push(EventKind::RouteResolved);
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
        let mut state = self.core.state.lock();
        let (Phase::Idle, Some(peer)) = (&state.phase, state.peer) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // A port that the program chose; otherwise the system chooses one now.
        let local = state.reserved.take().and(state.local);
        let endpoint = Arc::clone(&qp.endpoint);
        let outgoing = Outgoing::start(local, peer, endpoint, params, self.downgrade())?;
        state.phase = Phase::Connecting(outgoing);
        Ok(())
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
        let mut state = self.core.state.lock();
        let accepting = state.take_request()?;
        let endpoint = Arc::clone(&qp.endpoint);
        let (stream, terms) = accepting.accept(self.engine(), params)?;
        let connection = self.engine().worker.next_id();
        state.phase = Phase::Connected(Arc::clone(&endpoint), connection);
        drop(state);
        let waits = terms.peer_to_peer;
        let established = waits.then_some(terms);
        let observer = Watch { id: self.downgrade(), established };
        endpoint.attach(stream, &terms, connection, Some(Arc::new(observer)), || {
            if !waits {
                self.push(EventKind::established(&terms, Vec::new()));
            }
        })?;
        Ok(())
    }

    /// Refuses a connection request.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when there is none, or too much private data; those of sending.
    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let mut state = self.core.state.lock();
        let accepting = state.take_request()?;
        drop(state);
        accepting.reject(private_data)
    }

    /// Ends the connection in good order; [`EventKind::Disconnected`] follows. What was
    /// accepted before goes out still.
    pub fn disconnect(&self) {
        let endpoint = match &self.core.state.lock().phase {
            Phase::Connected(endpoint, connection) => Some((Arc::clone(endpoint), *connection)),
            _ => None,
        };
        if let Some((endpoint, connection)) = endpoint {
            endpoint.disconnect_if(connection);
        }
    }

    /// An outgoing connection is up.
    pub(crate) fn established(
        &self,
        endpoint: Arc<Endpoint>,
        connection: u64,
        local: Option<SocketAddr>,
    ) {
        let mut state = self.core.state.lock();
        state.local = local.or(state.local);
        state.phase = Phase::Connected(endpoint, connection);
    }

    /// An outgoing connection was not made: the id may try again.
    pub(crate) fn failed(&self) {
        self.core.state.lock().phase = Phase::Idle;
    }

    pub(crate) fn push(&self, kind: EventKind) {
        self.downgrade().push(kind);
    }

    pub(crate) fn downgrade(&self) -> WeakId {
        WeakId { core: Arc::downgrade(&self.core), channel: self.core.channel.clone() }
    }
}

/// Wherever a peer says "any address" it means this host.
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

impl Drop for IdCore {
    fn drop(&mut self) {
        let state = self.state.lock();
        match &state.phase {
            Phase::Listening(listening) => listening.stop(&self.engine),
            Phase::Connecting(outgoing) => outgoing.cancel(),
            // Whoever passes an event on may be the last who has the channel, and with it the
            // ids that wait there, and has the queue pair locked.
            Phase::Connected(endpoint, connection) => {
                let (endpoint, connection) = (Arc::clone(endpoint), *connection);
                let end = move || endpoint.disconnect_if(connection);
                self.engine.worker.at(now(), Box::new(end));
            }
            Phase::Idle | Phase::Requested(_) => {}
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
    pub(crate) fn upgrade(&self) -> Option<Id> {
        self.core.upgrade().map(|core| Id { core })
    }

    /// Whether the program has let go of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.core.strong_count() == 0
    }

    /// Where its events go, while somebody can take them there.
    pub(crate) fn channel(&self) -> Option<Arc<ChannelCore>> {
        self.channel.channel()
    }

    pub(crate) fn push(&self, kind: EventKind) {
        if let Some(channel) = self.channel() {
            channel.push(self.clone(), kind);
        }
    }
}

/// Passes on what happens to a connection.
pub(crate) struct Watch {
    pub(crate) id: WeakId,
    /// The terms, where the connection is up only when the peer's first frame has come.
    pub(crate) established: Option<Negotiated>,
}

impl Observer for Watch {
    fn first_fpdu(&self) {
        if let Some(terms) = &self.established {
            self.id.push(EventKind::established(terms, Vec::new()));
        }
    }

    fn disconnected(&self, why: Ended) {
        self.id.push(EventKind::Disconnected(why));
    }
}
