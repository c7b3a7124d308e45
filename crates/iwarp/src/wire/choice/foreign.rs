// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library's side of a wire of the program's own: connections, arrivals and meetings.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::wing::{Call, Inbox, Request, Seeker, Wing};
use crate::connect::{
    self, Arrivals, By, ConnectError, ConnectParams, Connected, ConnectionState, EventKind,
    Exchange, Listener, Meeting, NamedQp, Owner, Peer, Retry, Watch, closed,
};
use crate::engine::ended::{ConnectionObserver, Ended};
use crate::engine::endpoint::Endpoint;
use crate::engine::fate;
use crate::engine::sync::Mutex;
use crate::engine::timers::Timers;
use crate::port::Port;
use crate::wire::iwarp::link::Link;

/// A connection of an id.
pub(crate) struct Connection {
    owner: Arc<dyn Owner>,
    timers: Timers,
    /// The wing may keep the connection.
    wing: Weak<dyn Wing>,
    name: &'static str,
    ends: (Option<SocketAddr>, SocketAddr),
    state: Mutex<ForeignState>,
}

enum ForeignState {
    /// The peer is to be asked, or is being asked.
    Calling(NamedQp, ConnectParams),
    /// The peer waits for the program's answer.
    Requested(Box<dyn Request>),
    /// The wing is told of the answer.
    Answering,
    Connected(Connected),
    /// The program knows of the end, or never had a connection.
    Over(Option<Connected>),
}

impl Connection {
    /// A connection that the program asks for.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no queue pair yet.
    pub(super) fn outgoing(
        wing: &Arc<dyn Wing>,
        timers: &Timers,
        call: connect::Call,
    ) -> io::Result<Arc<Self>> {
        let connect::Call { owner, local, peer, qp, params, .. } = call;
        let qp = qp.filter(|qp| qp.endpoint.is_some()).ok_or(io::ErrorKind::InvalidInput)?;
        let state = Mutex::new(ForeignState::Calling(qp, params));
        let (wing, name, timers) = (Arc::downgrade(wing), wing.name(), timers.clone());
        Ok(Arc::new(Self { owner, timers, wing, name, ends: (local, peer), state }))
    }

    /// True while the program waits for the peer.
    pub(super) fn is_wanted(&self) -> bool {
        !self.owner.is_gone() && matches!(*self.state.lock(), ForeignState::Calling(..))
    }

    /// The peer has accepted.
    pub(super) fn accepted(&self, stream: Box<dyn Port>, private_data: &[u8]) -> io::Result<()> {
        let (endpoint, depths) = match &*self.state.lock() {
            ForeignState::Calling(NamedQp { endpoint: Some(endpoint), .. }, params) => {
                (Arc::clone(endpoint), (params.ird, params.ord))
            }
            _ => return Err(closed()),
        };
        let is_calling = |state: &ForeignState| matches!(state, ForeignState::Calling(..));
        self.run(is_calling, &endpoint, stream, depths, private_data.to_vec()).inspect_err(
            |error| self.failed(ConnectError::Io(io::Error::new(error.kind(), error.to_string()))),
        )
    }

    /// There is no connection.
    pub(super) fn failed(&self, why: ConnectError) {
        let (local, peer) = self.ends;
        let qp = match &*self.state.lock() {
            ForeignState::Calling(qp, _) => Some(qp.number),
            _ => None,
        };
        if self.owner.failed(self) {
            fate::not_made(qp, local, peer, self.name, &why);
            self.owner.tell(why.into());
        }
    }

    /// Runs the stream of a connection that is in the state `before`, and tells the program.
    fn run(
        &self,
        before: impl FnOnce(&ForeignState) -> bool,
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        (ird, ord): (u16, u16),
        private_data: Vec<u8>,
    ) -> io::Result<()> {
        let number = endpoint.engine.worker.next_id();
        let watch = Watch::new(&self.owner, None);
        let connected = watch.connected(endpoint, number);
        {
            let mut state = self.state.lock();
            // Unless it was closed meanwhile.
            if !before(&state) {
                return Err(closed());
            }
            *state = ForeignState::Connected(connected.clone());
        }
        let (peer_ird, peer_ord) = (None, None);
        Link::attach_other(endpoint, stream, number, Arc::new(watch), || {
            let kind = EventKind::Established { private_data, ird, ord, peer_ird, peer_ord };
            self.owner.tell(kind);
        })?;
        // As above.
        if matches!(*self.state.lock(), ForeignState::Over(None)) {
            connected.end();
        }
        Ok(())
    }

    /// Takes the peer's request to answer it: once only, even if that fails.
    fn take_request(&self, after: ForeignState) -> io::Result<Box<dyn Request>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, after) {
            ForeignState::Requested(request) => Ok(request),
            other => {
                *state = other;
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }

    /// The connection that there is or was.
    fn connected(&self) -> Option<Connected> {
        match &*self.state.lock() {
            ForeignState::Connected(connected) | ForeignState::Over(Some(connected)) => {
                Some(connected.clone())
            }
            _ => None,
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
            ForeignState::Calling(..) => ConnectionState::Connecting,
            ForeignState::Requested(_) => ConnectionState::Requested,
            ForeignState::Answering | ForeignState::Connected(_) => ConnectionState::Connected,
            ForeignState::Over(_) => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        self.name
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.connected().map(|connected| connected.endpoint)
    }

    fn begin(self: Arc<Self>, _: By) -> Result<(), ConnectError> {
        let (qp, private_data) = match &*self.state.lock() {
            ForeignState::Calling(qp, params) => (qp.number, params.private_data.clone()),
            _ => return Err(closed().into()),
        };
        let (Some(local), peer) = self.ends else { return Err(invalid().into()) };
        let wing = self.wing.upgrade().ok_or_else(closed)?;
        fate::step(Some(qp), Some(local), peer, self.name, "connecting");
        wing.connect(Call::new(self, (local, peer), private_data));
        Ok(())
    }

    fn accept(
        self: Arc<Self>,
        qp: &NamedQp,
        params: &ConnectParams,
        _traffic_class: Option<u8>,
    ) -> Result<(), ConnectError> {
        let endpoint = qp.endpoint.as_ref().ok_or_else(invalid)?;
        let request = self.take_request(ForeignState::Answering)?;
        let answered = request.accept(&params.private_data).and_then(|stream| {
            let is_answering = |state: &ForeignState| matches!(state, ForeignState::Answering);
            let depths = (params.ird, params.ord);
            self.run(is_answering, endpoint, stream, depths, Vec::new())
        });
        Ok(answered.inspect_err(|_| *self.state.lock() = ForeignState::Over(None))?)
    }

    fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        self.take_request(ForeignState::Over(None))?.reject(private_data)
    }

    fn disconnect(self: Arc<Self>) {
        if let Some(connected) = self.connected() {
            connected.end();
        }
    }

    fn close(self: Arc<Self>) {
        let before = std::mem::replace(&mut *self.state.lock(), ForeignState::Over(None));
        // Dropping a request refuses it.
        if let ForeignState::Connected(connected) | ForeignState::Over(Some(connected)) = before {
            connected.end();
        }
    }

    fn abandon(self: Arc<Self>) {
        let is_over = match &*self.state.lock() {
            ForeignState::Connected(connected) => connected.is_over(),
            ForeignState::Over(_) => true,
            ForeignState::Calling(..) | ForeignState::Requested(_) | ForeignState::Answering => {
                false
            }
        };
        if !is_over {
            // The wing's code may run then, which has locks of its own.
            let timers = self.timers.clone();
            timers.soon(Box::new(move || self.close()));
        }
    }

    fn is_told_of_the_end(&self) {
        let mut state = self.state.lock();
        if let ForeignState::Connected(connected) = &*state {
            *state = ForeignState::Over(Some(connected.clone()));
        }
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// A peer asks for a connection: the program gets it as an event of the id that listens.
pub(super) fn asked(
    listener: &dyn Listener,
    (wing, name): (&Weak<dyn Wing>, &'static str),
    timers: &Timers,
    (local, peer): (SocketAddr, SocketAddr),
    private_data: Vec<u8>,
    request: Box<dyn Request>,
) {
    fate::step(None, Some(local), peer, name, "a peer asks for a connection");
    let (ird, ord, rnr_retry, retry_count) = (None, None, None, None);
    let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
    let make = |owner| {
        let state = Mutex::new(ForeignState::Requested(request));
        let ends = (Some(local), peer);
        let (wing, timers) = (Weak::clone(wing), timers.clone());
        Arc::new(Connection { owner, timers, wing, name, ends, state }) as Arc<dyn Exchange>
    };
    listener.requested(Some(local), peer, Box::new(make), kind);
}

/// The listener of a wing, until it is stopped or dropped.
pub(super) struct Listening(Mutex<Option<Box<dyn Any + Send + Sync>>>);

impl Listening {
    pub(super) fn start(
        wing: &Arc<dyn Wing>,
        timers: &Timers,
        addr: SocketAddr,
        listener: Arc<dyn Listener>,
    ) -> io::Result<Arc<Self>> {
        let listening = wing.listen(addr, Inbox::new(wing, timers, listener))?;
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
    /// The wing may keep the meeting.
    wing: Weak<dyn Wing>,
    /// The queue pair has the meeting.
    endpoint: Weak<Endpoint>,
    peer: Mutex<Option<Peer>>,
}

impl Meet {
    pub(super) fn new(wing: &Arc<dyn Wing>, endpoint: &Arc<Endpoint>) -> Arc<Self> {
        let (wing, endpoint) = (Arc::downgrade(wing), Arc::downgrade(endpoint));
        Arc::new(Self { wing, endpoint, peer: Mutex::new(None) })
    }

    pub(super) fn is_wanted(&self, peer: &Peer) -> bool {
        *self.peer.lock() == Some(*peer)
    }

    pub(super) fn met(&self, peer: &Peer, stream: Box<dyn Port>) -> io::Result<()> {
        let endpoint = self.endpoint.upgrade().filter(|_| self.is_wanted(peer));
        let endpoint = endpoint.ok_or_else(closed)?;
        attach(&endpoint, stream, Arc::new(Nobody))
    }
}

/// Runs a connected stream on a core that is not iWARP's, without any start-up. The observer is
/// told of its end.
pub(crate) fn attach(
    endpoint: &Arc<Endpoint>,
    stream: Box<dyn Port>,
    observer: Arc<dyn ConnectionObserver>,
) -> io::Result<()> {
    let number = endpoint.engine.worker.next_id();
    Link::attach_other(endpoint, stream, number, observer, || {})
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
        let wing = self.wing.upgrade().ok_or_else(closed)?;
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

impl ConnectionObserver for Nobody {
    fn disconnected(&self, _: Ended) {}
}
