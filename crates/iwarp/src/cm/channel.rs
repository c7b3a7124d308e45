//! Events of the connection manager.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{EventFd, EventFdKind, FdPlace, poll};
use iwarp_proto::mpa::startup::Negotiated;

use crate::cm::id::WeakId;
use crate::cm::{ConnectError, Id};
use crate::engine::endpoint::Ended;
use crate::engine::sync::Mutex;
use crate::engine::{Engine, now};
use crate::verbs::Device;

/// Something that happened to an [`Id`].
#[derive(Debug)]
pub struct Event {
    /// What it happened to; a new one for [`EventKind::ConnectRequest`].
    pub id: Id,
    /// Where the connection came in.
    pub listener: Option<Id>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug)]
pub enum EventKind {
    /// The peer's address is known to be reachable from a local one.
    AddressResolved,
    /// So is the route.
    RouteResolved,
    /// A peer wants to connect: accept or reject.
    ConnectRequest {
        /// What it says.
        private_data: Vec<u8>,
        /// Reads it will serve at a time, where it says so.
        ird: Option<u16>,
        /// Reads it will have outstanding, where it says so.
        ord: Option<u16>,
    },
    /// The connection is up.
    Established {
        /// What the accepting side said; empty on that side itself.
        private_data: Vec<u8>,
        /// Reads of the peer's that are served at a time.
        ird: u16,
        /// Reads of our own that are outstanding at a time.
        ord: u16,
        /// What the peer's frame gave as its IRD; 0x3FFF leaves it to the programs.
        peer_ird: Option<u16>,
        /// What the peer's frame gave as its ORD, likewise.
        peer_ord: Option<u16>,
    },
    /// The peer refused.
    Rejected {
        /// What it says.
        private_data: Vec<u8>,
        /// The IRD it would have, where it says so (RFC 6581 §9.1).
        ird: Option<u16>,
        /// The ORD it would want, likewise.
        ord: Option<u16>,
    },
    /// There is no way to the peer, or nobody listens there.
    Unreachable(io::Error),
    /// Start-up failed.
    ConnectError(ConnectError),
    /// The connection is over.
    Disconnected(Ended),
}

impl EventKind {
    pub(crate) fn established(terms: &Negotiated, private_data: Vec<u8>) -> Self {
        let Negotiated { ird, ord, peer_ird, peer_ord, .. } = *terms;
        Self::Established { private_data, ird, ord, peer_ird, peer_ord }
    }
}

/// An event that nobody has taken yet. It keeps no id: what happened to one that is gone
/// interests nobody.
struct Waiting {
    id: Holder,
    listener: Option<WeakId>,
    kind: EventKind,
}

enum Holder {
    /// A connection request's, which nobody has yet.
    New(Id),
    Known(WeakId),
}

impl Waiting {
    fn take(self) -> Option<Event> {
        let id = match self.id {
            Holder::New(id) => id,
            Holder::Known(id) => id.upgrade()?,
        };
        let listener = match self.listener {
            Some(listener) => Some(listener.upgrade()?),
            None => None,
        };
        Some(Event { id, listener, kind: self.kind })
    }
}

pub(crate) struct ChannelCore {
    events: Mutex<VecDeque<Waiting>>,
    fd: EventFd,
    pub(crate) engine: Arc<Engine>,
}

impl fmt::Debug for ChannelCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelCore").finish_non_exhaustive()
    }
}

impl ChannelCore {
    /// Something happened to `id`.
    pub(crate) fn push(&self, id: WeakId, kind: EventKind) {
        self.add(Waiting { id: Holder::Known(id), listener: None, kind });
    }

    /// `listener` was asked for a connection, which is `id`.
    pub(crate) fn push_request(&self, id: Id, listener: WeakId, kind: EventKind) {
        self.add(Waiting { id: Holder::New(id), listener: Some(listener), kind });
    }

    fn add(&self, event: Waiting) {
        self.events.lock().push_back(event);
        // Only fails beyond 2^64 events.
        let _ = self.fd.signal();
    }

    pub(crate) fn pop(&self) -> Option<Event> {
        loop {
            let waiting = self.events.lock().pop_front()?;
            let _ = self.fd.try_wait();
            if let Some(event) = waiting.take() {
                return Some(event);
            }
        }
    }
}

/// Where the events of ids arrive.
#[derive(Clone, Debug)]
pub struct EventChannel {
    pub(crate) core: Arc<ChannelCore>,
}

impl EventChannel {
    /// Makes a channel.
    ///
    /// # Errors
    ///
    /// Those of making a descriptor.
    pub fn new(device: &Device) -> io::Result<Self> {
        Self::on(device.engine())
    }

    pub(crate) fn on(engine: &Arc<Engine>) -> io::Result<Self> {
        Ok(Self {
            core: Arc::new(ChannelCore {
                events: Mutex::new(VecDeque::new()),
                fd: EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?,
                engine: Arc::clone(engine),
            }),
        })
    }

    /// Waits for an event; `None` when `timeout` passes first.
    ///
    /// # Errors
    ///
    /// Those of waiting.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        let deadline = timeout.map(|timeout| now().plus(timeout));
        loop {
            if let Some(event) = self.try_next() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match poll::wait_readable([self.as_fd()], left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes an event if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.core.pop()
    }
}

impl AsFd for EventChannel {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.fd.as_fd()
    }
}
