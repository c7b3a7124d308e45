// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of an existing or future connection.
//!
//! An id has an [`Exchange`] with a peer, or listens. The exchange keeps the state of the
//! connection; the [choice](crate::wire::choice) of the device makes it, and says by which wire.
//!
//! ```text
//!   calls       connecting, accepting, ending
//!   listening   requests that come in
//!   datagrams   ids for datagram services
//!   ports       where an id is bound, and on which device
//!   candidates  a peer with several addresses
//!   inherit     an id that a forked child goes on with
//!   owner       an id as its exchange and its listener know it
//! ```

mod calls;
mod candidates;
mod datagrams;
mod inherit;
mod listening;
mod owner;
mod ports;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp_os::ProcessOwned;
pub use iwarp_types::PortSpace;
use iwarp_types::Source;

pub(crate) use self::owner::WeakId;
use crate::cm::events::{self, Subject};
use crate::connect::{Arrivals, ConnectionState, EventKind, Exchange, Make};
use crate::engine::Engine;
use crate::engine::census::{self, Described};
use crate::engine::endpoint::Endpoint;
use crate::engine::service_ports::ServicePort;
use crate::engine::sync::Mutex;
use crate::engine::tasks::next_id;
use crate::port::{Network, Reservation};
use crate::report::Object;
use crate::wire::choice::Wires;

/// One end of a connection, like `struct rdma_cm_id`: the program makes it to listen or to connect,
/// or gets it with a connection request.
#[derive(Clone)]
pub struct Id {
    core: ProcessOwned<Arc<IdCore>>,
}

pub(crate) struct IdCore {
    channel: Destination,
    /// The wires of the devices that it may be on.
    home: Arc<Wires>,
    /// The wires of its device, once that is known by its local address.
    wires: Mutex<Arc<Wires>>,
    kind: Kind,
    state: Mutex<IdState>,
    /// Its number, for other processes.
    number: u64,
}

/// The purpose of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    space: PortSpace,
    /// Datagram services, not connections.
    datagrams: bool,
}

const CONNECTIONS: Kind = Kind { space: PortSpace::CONNECTIONS, datagrams: false };

/// The events of a channel.
pub(crate) type Events = events::Events<IdCore>;

/// The channel to which the events of an id go. Weak: connection requests that wait there hold
/// their ids.
#[derive(Clone)]
struct Destination(Arc<Mutex<Weak<Events>>>);

impl Destination {
    fn new(channel: &Arc<Events>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(channel))))
    }

    fn change(&self, channel: &Arc<Events>) {
        *self.0.lock() = Arc::downgrade(channel);
    }

    /// Calls `f` with the channel, which stays the id's during the call.
    fn with(&self, f: impl FnOnce(&Arc<Events>)) {
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
struct IdState {
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

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    /// Requests come in by each of these.
    Listening(Vec<Arc<dyn Arrivals>>),
    Talking(Arc<dyn Exchange>),
}

impl Phase {
    /// True if it is that exchange.
    fn is(&self, exchange: &dyn Exchange) -> bool {
        matches!(self, Self::Talking(own) if std::ptr::addr_eq(Arc::as_ptr(own), exchange))
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
        match &core.state.lock().phase {
            Phase::Idle => ConnectionState::Idle,
            Phase::Listening(_) => ConnectionState::Listening,
            Phase::Talking(exchange) => exchange.state(),
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
        let reserved = (state.reserved.take(), state.service_port.take());
        let phase = std::mem::take(&mut state.phase);
        drop(state);
        drop(reserved);
        match phase {
            Phase::Idle => {}
            Phase::Listening(arrivals) => arrivals.iter().for_each(|arrivals| arrivals.stop()),
            Phase::Talking(exchange) => exchange.close(),
        }
    }

    /// The local address, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.core.alive()?.state.lock().local
    }

    /// The peer's address, once there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.core.alive()?.state.lock().peer
    }
}

impl Described for IdCore {
    fn describe(&self, to: &mut Object) {
        let (local, peer, exchange, listens) = {
            let state = self.state.lock();
            let (exchange, listens) = match &state.phase {
                Phase::Idle => (None, false),
                Phase::Listening(_) => (None, true),
                Phase::Talking(exchange) => (Some(Arc::clone(exchange)), false),
            };
            (state.local, state.peer, exchange, listens)
        };
        to.number("number", self.number);
        if let Some(local) = local {
            to.text("local", local);
        }
        if let Some(peer) = peer {
            to.text("peer", peer);
        }
        to.flag("datagrams", self.kind.datagrams);
        let state = match &exchange {
            Some(exchange) => exchange.state(),
            None if listens => ConnectionState::Listening,
            None => ConnectionState::Idle,
        };
        to.text("state", format_args!("{state:?}"));
        if let Some(endpoint) = exchange.and_then(|exchange| exchange.endpoint()) {
            to.number("qp", endpoint.id());
        }
    }
}

impl IdCore {
    fn on(channel: &Arc<Events>, kind: Kind, state: IdState) -> Arc<Self> {
        let home = Arc::clone(&channel.wires);
        let wires = Mutex::new(Arc::clone(&home));
        let channel = Destination::new(channel);
        let (state, number) = (Mutex::new(state), next_id());
        let id = Arc::new(Self { channel, home, wires, kind, state, number });
        let described: Weak<dyn Described> = Arc::<Self>::downgrade(&id);
        census::enter(census::of(census::Kind::Id, &*id), described);
        id
    }

    pub(crate) fn for_connections(channel: &Arc<Events>) -> Arc<Self> {
        Self::on(channel, CONNECTIONS, IdState::default())
    }

    /// An id for datagram services of that port space.
    pub(crate) fn for_datagrams(channel: &Arc<Events>, space: PortSpace) -> Arc<Self> {
        Self::on(channel, Kind { space, datagrams: true }, IdState::default())
    }

    /// The id of a request that came in at one of this kind.
    fn requested(
        channel: &Arc<Events>,
        kind: Kind,
        (local, peer): (Option<SocketAddr>, SocketAddr),
        make: Make<'_>,
    ) -> Arc<Self> {
        let state = IdState { local, peer: Some(peer), ..IdState::default() };
        let id = Self::on(channel, kind, state);
        if let Some(Ok(wires)) = local.map(|local| id.home.at(local.ip())) {
            *id.wires.lock() = wires;
        }
        let exchange = make(Arc::new(id.downgrade()));
        id.state.lock().phase = Phase::Talking(exchange);
        id
    }

    /// The wires of its device, or of any that it may be on.
    pub(crate) fn wires(&self) -> Arc<Wires> {
        Arc::clone(&self.wires.lock())
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.home.engine
    }

    /// True if its connections are over packets always.
    fn has_packets_only(&self) -> bool {
        !self.kind.datagrams && self.wires().has_packets_only()
    }

    fn network(&self) -> &dyn Network {
        &*self.home.engine.network
    }

    /// Between which addresses it is, once the peer's is known.
    pub(crate) fn ends(&self) -> Option<(Option<SocketAddr>, SocketAddr)> {
        let state = self.state.lock();
        Some((state.local, state.peer?))
    }

    /// The exchange with a peer, if there is one.
    fn exchange(&self) -> Option<Arc<dyn Exchange>> {
        match &self.state.lock().phase {
            Phase::Talking(exchange) => Some(Arc::clone(exchange)),
            Phase::Idle | Phase::Listening(_) => None,
        }
    }

    /// The queue pair that uses its connection, if it has or had one.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.exchange()?.endpoint()
    }

    pub(crate) fn move_to(&self, channel: &Arc<Events>) {
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

    pub(crate) fn push(self: &Arc<Self>, kind: EventKind) {
        self.downgrade().push(kind);
    }

    pub(crate) fn downgrade(self: &Arc<Self>) -> WeakId {
        WeakId::new(Arc::downgrade(self), self.channel.clone(), self.kind)
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

impl Subject for IdCore {
    fn source(&self) -> Option<Source> {
        self.ends().map(|(_, peer)| Source::of(peer.ip()))
    }

    fn is_told_of_the_end(&self) {
        if let Some(exchange) = self.exchange() {
            exchange.is_told_of_the_end();
        }
    }

    fn redirect(&self, events: &Arc<Events>) {
        self.channel.change(events);
    }
}

impl Drop for IdCore {
    fn drop(&mut self) {
        census::leave(census::of(census::Kind::Id, self));
        self.forget_events();
        // The thread that passes an event on may be the last to have the channel, and with it the
        // ids that wait there, and has the queue pair locked.
        let phase = std::mem::take(&mut self.state.lock().phase);
        match phase {
            Phase::Idle => {}
            Phase::Listening(arrivals) => arrivals.iter().for_each(|arrivals| arrivals.stop()),
            Phase::Talking(exchange) => exchange.abandon(),
        }
    }
}
