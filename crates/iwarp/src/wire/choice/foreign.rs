// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library's side of a wire of the program's own: connections, arrivals and meetings.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::wing::{Call, Inbox, Request, Seeker, Wing};
use crate::connect::{
    self, Arrivals, By, ConnectError, ConnectParams, ConnectionState, EventKind, Exchange,
    Listener, Meeting, NamedQp, Owner, Peer, Retry, closed,
};
use crate::engine::ended::{Ended, Observer};
use crate::engine::endpoint::Endpoint;
use crate::engine::fate;
use crate::engine::sync::Mutex;
use crate::port::Port;
use crate::wire::iwarp::link::Link;

/// A connection of an id.
pub(crate) struct Connection {
    owner: Arc<dyn Owner>,
    wing: Arc<dyn Wing>,
    ends: (Option<SocketAddr>, SocketAddr),
    state: Mutex<State>,
}

enum State {
    /// The peer is to be asked, or is being asked.
    Calling(NamedQp, ConnectParams),
    /// The peer waits for the program's answer.
    Requested(Box<dyn Request>),
    Connected(Arc<Endpoint>),
    /// The program knows of the end, or never had a connection.
    Over(Option<Arc<Endpoint>>),
}

impl Connection {
    /// A connection that the program asks for.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no queue pair yet.
    pub(super) fn outgoing(wing: &Arc<dyn Wing>, call: connect::Call) -> io::Result<Arc<Self>> {
        let connect::Call { owner, local, peer, qp, params, .. } = call;
        let qp = qp.filter(|qp| qp.endpoint.is_some()).ok_or(io::ErrorKind::InvalidInput)?;
        let state = Mutex::new(State::Calling(qp, params));
        Ok(Arc::new(Self { owner, wing: Arc::clone(wing), ends: (local, peer), state }))
    }

    /// The peer has accepted.
    pub(super) fn accepted(&self, stream: Box<dyn Port>, private_data: &[u8]) -> io::Result<()> {
        let called = {
            let mut state = self.state.lock();
            let State::Calling(NamedQp { endpoint: Some(endpoint), .. }, params) = &*state else {
                return Err(closed());
            };
            let called = (Arc::clone(endpoint), params.ird, params.ord);
            *state = State::Connected(Arc::clone(&called.0));
            called
        };
        let (endpoint, ird, ord) = called;
        self.run(&endpoint, stream, (ird, ord), private_data.to_vec()).inspect_err(|error| {
            self.failed(ConnectError::Io(io::Error::new(error.kind(), error.to_string())));
        })
    }

    /// There is no connection.
    pub(super) fn failed(&self, why: ConnectError) {
        let (local, peer) = self.ends;
        if self.owner.failed(self) {
            fate::not_made(None, local, peer, self.wing.name(), &why);
            self.owner.tell(why.into());
        }
    }

    /// Runs the stream, and tells the program of the connection.
    fn run(
        &self,
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        (ird, ord): (u16, u16),
        private_data: Vec<u8>,
    ) -> io::Result<()> {
        let observer = Arc::new(TellOwner(Arc::clone(&self.owner)));
        let (peer_ird, peer_ord) = (None, None);
        Link::attach_other(endpoint, stream, observer, || {
            let kind = EventKind::Established { private_data, ird, ord, peer_ird, peer_ord };
            self.owner.tell(kind);
        })
    }

    /// Takes the peer's request to answer it: once only, even if that fails.
    fn take_request(&self) -> io::Result<Box<dyn Request>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Over(None)) {
            State::Requested(request) => Ok(request),
            other => {
                *state = other;
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
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
            State::Calling(..) => ConnectionState::Connecting,
            State::Requested(_) => ConnectionState::Requested,
            State::Connected(_) => ConnectionState::Connected,
            State::Over(_) => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        self.wing.name()
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match &*self.state.lock() {
            State::Connected(endpoint) | State::Over(Some(endpoint)) => Some(Arc::clone(endpoint)),
            _ => None,
        }
    }

    fn begin(self: Arc<Self>, _: By) -> Result<(), ConnectError> {
        let private_data = match &*self.state.lock() {
            State::Calling(_, params) => params.private_data.clone(),
            _ => return Err(closed().into()),
        };
        let (Some(local), peer) = self.ends else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        };
        let wing = Arc::clone(&self.wing);
        wing.connect(Call::new(self, (local, peer), private_data));
        Ok(())
    }

    fn accept(
        self: Arc<Self>,
        qp: &NamedQp,
        params: &ConnectParams,
        _traffic_class: Option<u8>,
    ) -> Result<(), ConnectError> {
        let endpoint = qp.endpoint.as_ref().ok_or_else(closed)?;
        let stream = self.take_request()?.accept(&params.private_data)?;
        *self.state.lock() = State::Connected(Arc::clone(endpoint));
        let run = self.run(endpoint, stream, (params.ird, params.ord), Vec::new());
        Ok(run.inspect_err(|_| self.is_told_of_the_end())?)
    }

    fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        self.take_request()?.reject(private_data)
    }

    fn disconnect(self: Arc<Self>) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.disconnect();
        }
    }

    fn close(self: Arc<Self>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Over(None));
        // Dropping a request refuses it.
        if let State::Connected(endpoint) | State::Over(Some(endpoint)) = before {
            endpoint.disconnect();
        }
    }

    fn abandon(self: Arc<Self>) {
        let engine = self.endpoint().map(|endpoint| Arc::clone(&endpoint.engine));
        match engine {
            Some(engine) => engine.worker.soon(Box::new(move || self.close())),
            None => self.close(),
        }
    }

    fn is_told_of_the_end(&self) {
        let mut state = self.state.lock();
        if let State::Connected(endpoint) = &*state {
            *state = State::Over(Some(Arc::clone(endpoint)));
        }
    }
}

/// Tells the owner how the stream ends.
struct TellOwner(Arc<dyn Owner>);

impl Observer for TellOwner {
    fn disconnected(&self, why: Ended) {
        let Self(owner) = self;
        owner.tell(EventKind::Disconnected(why));
    }
}

/// A peer asks for a connection: the program gets it as an event of the id that listens.
pub(super) fn asked(
    listener: &dyn Listener,
    wing: &Arc<dyn Wing>,
    (local, peer): (SocketAddr, SocketAddr),
    private_data: Vec<u8>,
    request: Box<dyn Request>,
) {
    fate::step(None, Some(local), peer, wing.name(), "a peer asks for a connection");
    let (ird, ord, rnr_retry, retry_count) = (None, None, None, None);
    let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
    let make = |owner| {
        let state = Mutex::new(State::Requested(request));
        let ends = (Some(local), peer);
        Arc::new(Connection { owner, wing: Arc::clone(wing), ends, state }) as Arc<dyn Exchange>
    };
    listener.requested(Some(local), peer, Box::new(make), kind);
}

/// The listener of a wing, until it is stopped or dropped.
pub(super) struct Listening(Mutex<Option<Box<dyn Any + Send + Sync>>>);

impl Listening {
    pub(super) fn start(
        wing: &Arc<dyn Wing>,
        addr: SocketAddr,
        listener: Arc<dyn Listener>,
    ) -> io::Result<Arc<Self>> {
        let listening = wing.listen(addr, Inbox::new(wing, listener))?;
        Ok(Arc::new(Self(Mutex::new(Some(listening)))))
    }
}

impl Arrivals for Listening {
    fn stop(&self) {
        let Self(listening) = self;
        let before = listening.lock().take();
        drop(before);
    }
}

/// A queue pair that meets its peer.
pub(crate) struct Meet {
    wing: Arc<dyn Wing>,
    /// The queue pair has the meeting.
    endpoint: Weak<Endpoint>,
    peer: Mutex<Option<Peer>>,
}

impl Meet {
    pub(super) fn new(wing: &Arc<dyn Wing>, endpoint: &Arc<Endpoint>) -> Arc<Self> {
        let (wing, endpoint) = (Arc::clone(wing), Arc::downgrade(endpoint));
        Arc::new(Self { wing, endpoint, peer: Mutex::new(None) })
    }

    pub(super) fn is_wanted(&self, peer: &Peer) -> bool {
        *self.peer.lock() == Some(*peer)
    }

    pub(super) fn met(&self, peer: &Peer, stream: Box<dyn Port>) -> io::Result<()> {
        let endpoint = self.endpoint.upgrade().filter(|_| self.is_wanted(peer));
        let endpoint = endpoint.ok_or_else(closed)?;
        Link::attach_other(&endpoint, stream, Arc::new(Nobody), || {})
    }
}

impl fmt::Debug for Meet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meet").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Meeting for Meet {
    fn list(self: Arc<Self>, _: &Peer) -> io::Result<()> {
        Ok(())
    }

    fn seek(self: Arc<Self>, peer: &Peer) -> io::Result<()> {
        let endpoint = self.endpoint.upgrade().ok_or_else(closed)?;
        *self.peer.lock() = Some(*peer);
        let wing = Arc::clone(&self.wing);
        wing.meet(Seeker::new(endpoint.id(), *peer, self));
        Ok(())
    }

    fn tell_psn(&self, _: u32) {}

    fn withdraw(&self) {
        *self.peer.lock() = None;
    }

    fn peer(&self) -> Option<Peer> {
        *self.peer.lock()
    }

    fn set_retry(&self, _: Retry) {}
}

/// A queue pair that has met its peer says itself how that ends.
struct Nobody;

impl Observer for Nobody {
    fn disconnected(&self, _: Ended) {}
}
