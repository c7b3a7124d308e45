// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a socket.

use std::any::Any;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use bitflags::bitflags;
use iwarp::cm::Id;
use iwarp_sockets::stream::{self, Condition, Readiness};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::host::Core;
use crate::listening::Listening;
use crate::settings::Settings;
use crate::shown::{By, Shown, Waited};

/// The family of a socket's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// `AF_INET`
    Ipv4,
    /// `AF_INET6`
    Ipv6,
}

impl Domain {
    /// The address of all interfaces.
    pub(crate) const fn any(self) -> IpAddr {
        match self {
            Self::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    pub(crate) const fn has(self, addr: SocketAddr) -> bool {
        addr.is_ipv4() == matches!(self, Self::Ipv4)
    }
}

/// A direction of a connection, for which a thread may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Data, a connection to accept, or the end.
    Read,
    /// So many bytes, or the end.
    ReadAtLeast(usize),
    /// Room for data, or the connection.
    Write,
    /// All that was sent, and the end of it, was handed to the transport.
    Flush,
}

bitflags! {
    /// Properties of a new descriptor.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u8 {
        /// `SOCK_CLOEXEC`
        const CLOEXEC = 1 << 0;
        /// `SOCK_NONBLOCK`
        const NONBLOCK = 1 << 1;
    }
}

/// A descriptor on which a thread sleeps until it is worth another try. A number, not a borrow:
/// another thread may close the socket meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleep {
    /// The descriptor.
    pub fd: RawFd,
    /// Wait until it is writable, and not until it is readable.
    pub writable: bool,
}

/// A stream socket over RDMA. All calls but those that say so are for any thread at any time.
///
/// The calls that begin with `try_` never wait: they end with `WouldBlock` where the others do.
#[derive(Clone)]
pub struct Socket {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) host: Arc<Core>,
    pub(crate) domain: Domain,
    pub(crate) itself: Weak<Self>,
    state: Mutex<State>,
}

/// The state of a socket, behind its lock.
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// `None` for a connection that the program has not accepted yet, and behind the close.
    pub(crate) shown: Option<Shown>,
    pub(crate) settings: Settings,
    pub(crate) choices: Choices,
    /// The error that `SO_ERROR` tells.
    pub(crate) error: Option<Errno>,
    /// The thread that sleeps on the connection, and for what.
    pub(crate) sleeper: Option<(ThreadId, Direction)>,
    /// Threads sleep on the descriptor, too.
    pub(crate) has_others: bool,
    /// The socket at which its connection came in.
    pub(crate) parent: Weak<Inner>,
    /// The program has closed it.
    pub(crate) is_closed: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// The choices of the program for its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choices {
    pub(crate) keepalive: bool,
    pub(crate) share_address: bool,
    pub(crate) ipv6_only: bool,
    pub(crate) traffic_class: Option<u8>,
}

/// The progress of a socket.
pub(crate) enum Phase {
    /// Without an address.
    New,
    Bound(Id),
    Listening(Box<Listening>),
    /// The connection is being made, by this end or by a peer.
    Opening(Box<Connection>),
    Connected(Box<Connection>),
    /// The connection was not made; [`State::error`] says why, until it was told.
    Failed,
    Closed,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("domain", &self.inner.domain).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(settings: Settings, choices: Choices) -> Self {
        Self {
            phase: Phase::New,
            shown: None,
            settings,
            choices,
            error: None,
            sleeper: None,
            has_others: false,
            parent: Weak::new(),
            is_closed: false,
            local: None,
            peer: None,
        }
    }

    /// The connection, once it is up.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.phase {
            Phase::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// The protocol of the connection, once it is up.
    pub(crate) fn stream(&self) -> Option<&stream::Stream> {
        match &self.phase {
            Phase::Connected(connection) => connection.stream.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn condition(&self) -> Condition {
        match &self.phase {
            Phase::New | Phase::Bound(_) => Condition::Unconnected,
            Phase::Listening(listening) => {
                Condition::Listening { waiting: !listening.waiting.is_empty() }
            }
            Phase::Opening(_) => Condition::Connecting,
            Phase::Connected(connection) => match &connection.stream {
                Some(stream) => stream.condition(),
                None => Condition::Connecting,
            },
            Phase::Failed => Condition::Gone { untold: self.error.is_some() },
            Phase::Closed => Condition::Gone { untold: false },
        }
    }

    pub(crate) fn readiness(&self) -> Readiness {
        match self.condition() {
            // Linux says POLLHUP as well, which a descriptor of this kind cannot take back.
            Condition::Unconnected => Readiness { writable: true, ..Readiness::default() },
            condition => condition.readiness(),
        }
    }

    /// True if a call in that direction ends at once.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        let readiness = self.readiness();
        match direction {
            Direction::Read | Direction::ReadAtLeast(_) | Direction::Write if self.is_closed => {
                true
            }
            Direction::Read => readiness.readable || readiness.hangup,
            Direction::ReadAtLeast(bytes) => {
                readiness.read_closed || readiness.hangup || self.readable() >= bytes
            }
            Direction::Write => readiness.writable || readiness.hangup,
            Direction::Flush => match &self.phase {
                Phase::Connected(connection) => {
                    let is_over = |stream: &stream::Stream| {
                        stream.is_flushed() && (!self.is_closed || connection.is_torn_down)
                    };
                    connection.stream.as_ref().is_none_or(is_over)
                }
                _ => true,
            },
        }
    }

    /// Moves the connection. True if data have come.
    pub(crate) fn progress(&mut self) -> bool {
        let Some(connection) = self.connection() else { return false };
        connection.progress();
        connection.stream.as_mut().is_some_and(|stream| stream.wakes().reader)
    }

    /// Moves the connection, and tells of what has come.
    pub(crate) fn advance(&mut self, by: By) {
        let is_news = self.progress();
        self.settle(by, is_news);
    }

    /// To be called last, with the lock held: the descriptor shows the readiness, threads that
    /// sleep are woken, and what comes next brings the server.
    pub(crate) fn settle(&mut self, by: By, is_news: bool) {
        if let Some(connection) = self.connection() {
            connection.pump();
            connection.arm();
        }
        let readiness = self.readiness();
        let waited = match self.sleeper {
            Some((_, direction)) if !self.has_others => Waited {
                read: matches!(direction, Direction::Read | Direction::ReadAtLeast(_)),
                write: direction == Direction::Write,
            },
            _ => Waited::default(),
        };
        if let Some(shown) = &mut self.shown {
            shown.show(readiness, by, waited, is_news);
        }
        if let Some((thread, direction)) = self.sleeper
            && thread != thread::current().id()
            && self.is_ready(direction)
            && let Some(connection) = self.connection()
        {
            connection.drive.wake();
        }
    }

    /// Bytes that wait to be received.
    pub(crate) fn readable(&self) -> usize {
        self.stream().map_or(0, stream::Stream::readable)
    }

    /// The number of the descriptor.
    pub(crate) fn number(&self) -> io::Result<RawFd> {
        Ok(self.shown.as_ref().ok_or(Errno::BADF)?.pair().number())
    }

    pub(crate) fn attach(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }
}

/// The error of a call for which a connection has to be there.
pub(crate) fn not_connected(phase: &Phase) -> Errno {
    match phase {
        Phase::Opening(_) => Errno::AGAIN,
        Phase::Closed => Errno::BADF,
        _ => Errno::NOTCONN,
    }
}

impl Inner {
    pub(crate) fn new(host: &Arc<Core>, domain: Domain, state: State) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            host: Arc::clone(host),
            domain,
            itself: Weak::clone(itself),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, of a socket that is not closed.
    pub(crate) fn open(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.lock();
        if state.is_closed { Err(Errno::BADF) } else { Ok(state) }
    }

    /// The socket of an id.
    pub(crate) fn of(id: &Id) -> Option<Arc<Self>> {
        id.context()?.downcast_ref::<Weak<Self>>()?.upgrade()
    }

    /// The context of this socket's ids.
    pub(crate) fn as_context(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(Weak::clone(&self.itself))
    }

    /// The server of this socket's connection.
    pub(crate) fn server(&self) -> Arc<dyn Fn() + Send + Sync> {
        let itself = Weak::clone(&self.itself);
        Arc::new(move || {
            if let Some(this) = itself.upgrade() {
                this.lock().advance(By::Event);
            }
        })
    }
}

pub(crate) fn shown(flags: Flags) -> io::Result<Shown> {
    Shown::new(flags.contains(Flags::CLOEXEC), flags.contains(Flags::NONBLOCK))
}
