// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections of the connection manager's ids over iWARP (RFC 5044 §7, RFC 6581).
//!
//! ```text
//!   outgoing   the attempts to connect: the MPA Request, the Reply
//!   incoming   the Requests that come in at an id which listens
//! ```

mod incoming;
mod outgoing;

use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Weak};

use iwarp_proto::mpa::startup::Negotiated;
use iwarp_types::Time;

pub(crate) use self::incoming::Listening;
use self::outgoing::Outgoing;
use crate::connect::{
    By, Call, ConnectError, ConnectParams, Connected, ConnectionState, EventKind, Exchange,
    Meanwhile, NamedQp, Owner, Watch, closed,
};
use crate::engine::Engine;
use crate::engine::endpoint::Endpoint;
use crate::engine::fate::IWARP;
use crate::engine::profile::Profile;
use crate::engine::sync::Mutex;
use crate::port::Port;
use crate::wire::iwarp::link::{Agreed, Link};
use crate::wire::iwarp::startup::line::Answering;

/// Private data of a refusal: the devices of the address take no streams, though another device's
/// listener has the port. A peer of our own kind takes it for a port on which nothing listens.
const NO_STREAMS: &[u8] = b"iwarp: no RDMA device takes streams at this address";

/// A connection over iWARP, from the first attempt or the peer's Request on.
pub(crate) struct Connection {
    engine: Arc<Engine>,
    owner: Arc<dyn Owner>,
    state: Mutex<StreamState>,
}

enum StreamState {
    Connecting(Arc<Outgoing>),
    /// The peer waits for the program's answer.
    Requested(Box<Answering>),
    /// The peer's answer is here, and the program has to name a queue pair.
    Responded(Box<dyn Port>, Box<Agreed>),
    Connected(Connected),
    /// The program knows of the end, or never had a connection. Its posted requests may outlive
    /// that.
    Over(Option<Connected>),
}

impl StreamState {
    /// The connection that there is or was.
    const fn connected(&self) -> Option<&Connected> {
        match self {
            Self::Connected(connected) | Self::Over(Some(connected)) => Some(connected),
            _ => None,
        }
    }

    /// Takes what the program answers with: once only, even if that fails, so the state is its end
    /// then. A state in which there is nothing to answer stays.
    fn answer<T>(&mut self, pick: impl FnOnce(Self) -> Result<T, Self>) -> io::Result<T> {
        pick(mem::replace(self, Self::Over(None))).map_err(|other| {
            *self = other;
            io::ErrorKind::InvalidInput.into()
        })
    }

    /// The peer's request, which waits for an answer.
    fn request(self) -> Result<Box<Answering>, Self> {
        match self {
            Self::Requested(answering) => Ok(answering),
            other => Err(other),
        }
    }

    /// The peer's answer, which waits for a queue pair.
    fn response(self) -> Result<(Box<dyn Port>, Box<Agreed>), Self> {
        match self {
            Self::Responded(stream, agreed) => Ok((stream, agreed)),
            other => Err(other),
        }
    }
}

impl Connection {
    /// A connection that the program asks for, of that device.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(crate) fn outgoing(
        engine: &Arc<Engine>,
        profile: &Arc<Profile>,
        call: Call,
    ) -> io::Result<Arc<Self>> {
        iwarp_mem::afford()?;
        let owner = Arc::clone(&call.owner);
        let engine = Arc::clone(engine);
        Ok(Arc::new_cyclic(|itself| {
            let outgoing = Outgoing::new(&engine, profile, call, Weak::clone(itself));
            Self { engine, owner, state: Mutex::new(StreamState::Connecting(outgoing)) }
        }))
    }

    /// A connection that a peer asks for.
    fn requested(engine: Arc<Engine>, owner: Arc<dyn Owner>, answering: Answering) -> Arc<Self> {
        let state = Mutex::new(StreamState::Requested(Box::new(answering)));
        Arc::new(Self { engine, owner, state })
    }

    /// The attempt that is being made.
    fn attempt(&self) -> Option<Arc<Outgoing>> {
        match &*self.state.lock() {
            StreamState::Connecting(outgoing) => Some(Arc::clone(outgoing)),
            _ => None,
        }
    }

    /// The peer has accepted, and there is no queue pair yet.
    fn responded(&self, stream: Box<dyn Port>, agreed: Agreed) -> io::Result<()> {
        let mut state = self.state.lock();
        // Unless it was closed meanwhile.
        if !matches!(*state, StreamState::Connecting(_)) {
            return Err(closed());
        }
        *state = StreamState::Responded(stream, Box::new(agreed));
        Ok(())
    }

    /// The peer has accepted, and `endpoint` gets the stream now, under that number. Returns the
    /// observer of what becomes of it.
    fn connected(&self, endpoint: &Arc<Endpoint>, number: u64) -> io::Result<Watch> {
        let watch = Watch::new(&self.owner, None);
        let mut state = self.state.lock();
        // As above.
        if !matches!(*state, StreamState::Connecting(_)) {
            return Err(closed());
        }
        *state = StreamState::Connected(watch.connected(endpoint, number));
        Ok(watch)
    }

    /// Ends a connection whose stream is attached by now, if it was closed before that.
    fn end_if_closed(&self, endpoint: &Arc<Endpoint>, number: u64) {
        if matches!(*self.state.lock(), StreamState::Over(None)) {
            endpoint.disconnect_if(number);
        }
    }

    /// Replaces a state by its end, and returns it.
    fn take(&self) -> StreamState {
        mem::replace(&mut *self.state.lock(), StreamState::Over(None))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Exchange for Connection {
    fn state(&self) -> ConnectionState {
        match &*self.state.lock() {
            StreamState::Connecting(_) => ConnectionState::Connecting,
            StreamState::Requested(_) => ConnectionState::Requested,
            StreamState::Responded(..) => ConnectionState::Responded,
            StreamState::Connected(_) => ConnectionState::Connected,
            StreamState::Over(_) => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        IWARP
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.state.lock().connected().map(|connected| Arc::clone(&connected.endpoint))
    }

    fn begin(self: Arc<Self>, by: By) -> Result<(), ConnectError> {
        self.attempt().ok_or_else(closed)?.start(by)
    }

    fn drive(&self, meanwhile: &Meanwhile, until: Time) -> io::Result<()> {
        self.attempt().map_or(Ok(()), |attempt| attempt.drive(meanwhile, until))
    }

    fn accept(
        self: Arc<Self>,
        qp: &NamedQp,
        params: &ConnectParams,
        traffic_class: Option<u8>,
    ) -> Result<(), ConnectError> {
        let invalid = io::ErrorKind::InvalidInput;
        let endpoint = qp.endpoint.as_ref().ok_or_else(|| io::Error::from(invalid))?;
        let mut state = self.state.lock();
        let mut answering = state.answer(StreamState::request)?;
        if let Some(class) = traffic_class {
            answering.port().set_traffic_class(class)?;
        }
        answering.is_accepted();
        let (stream, terms) = answering.accept(&self.engine, params)?;
        let connection = self.engine.worker.next_id();
        let waits = terms.peer_to_peer;
        let watch = Watch::new(&self.owner, waits.then(|| established(&terms, Vec::new())));
        *state = StreamState::Connected(watch.connected(endpoint, connection));
        drop(state);
        let agreed = Agreed { terms, rnr_retry: params.rnr_retry };
        let attached =
            Link::attach(endpoint, stream, &agreed, connection, Some(Arc::new(watch)), || {
                if !waits {
                    self.owner.tell(established(&terms, Vec::new()));
                }
            });
        attached.inspect_err(|_| self.is_told_of_the_end())?;
        self.end_if_closed(endpoint, connection);
        Ok(())
    }

    fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        // Locked until the peer has its answer: a thread that closes the connection comes later.
        self.state.lock().answer(StreamState::request)?.reject(private_data)
    }

    fn establish(self: Arc<Self>, qp: &NamedQp) -> io::Result<()> {
        let endpoint = qp.endpoint.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let mut state = self.state.lock();
        let (stream, agreed) = state.answer(StreamState::response)?;
        let connection = self.engine.worker.next_id();
        if let Some(fault) = agreed.terms.fault {
            drop(state);
            self.owner.failed(&*self);
            Link::attach(endpoint, stream, &agreed, connection, None, || {})?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, ConnectError::Terms(fault)));
        }
        let watch = Watch::new(&self.owner, None);
        *state = StreamState::Connected(watch.connected(endpoint, connection));
        drop(state);
        let attached =
            Link::attach(endpoint, stream, &agreed, connection, Some(Arc::new(watch)), || {});
        attached.inspect_err(|_| {
            self.owner.failed(&*self);
        })?;
        self.end_if_closed(endpoint, connection);
        Ok(())
    }

    fn disconnect(self: Arc<Self>) {
        let connected = self.state.lock().connected().cloned();
        if let Some(connected) = connected {
            connected.end();
        }
    }

    fn close(self: Arc<Self>) {
        match self.take() {
            StreamState::Connecting(outgoing) => outgoing.cancel(),
            StreamState::Connected(connected) | StreamState::Over(Some(connected)) => {
                connected.end()
            }
            // Dropping a request refuses it.
            StreamState::Requested(_) | StreamState::Responded(..) | StreamState::Over(None) => {}
        }
    }

    fn abandon(self: Arc<Self>) {
        match self.take() {
            StreamState::Connecting(outgoing) => outgoing.cancel(),
            StreamState::Connected(connected) if !connected.is_over() => {
                self.engine.worker.soon(Box::new(move || connected.end()));
            }
            StreamState::Requested(_)
            | StreamState::Responded(..)
            | StreamState::Connected(_)
            | StreamState::Over(_) => {}
        }
    }

    fn is_told_of_the_end(&self) {
        let mut state = self.state.lock();
        if let StreamState::Connected(connected) = &*state {
            *state = StreamState::Over(Some(connected.clone()));
        }
    }
}

/// The event that tells of a connection on these terms.
pub(super) fn established(terms: &Negotiated, private_data: Vec<u8>) -> EventKind {
    let Negotiated { ird, ord, peer_ird, peer_ord, .. } = *terms;
    EventKind::Established { private_data, ird, ord, peer_ird, peer_ord }
}
