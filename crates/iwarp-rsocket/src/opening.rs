// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that are being made, and their ends.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp::cm::{ConnectError, EventKind, Id};
use iwarp_sockets::wire::{ConnData, ConnDataError};
use rustix::io::Errno;

use crate::connection::{Connection, now};
use crate::shown::By;
use crate::socket::{Inner, Phase, Socket, State};

impl Socket {
    /// Begins to connect to `addr`; the socket is writable when that has ended.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` when it has begun; `EALREADY` while it goes on; `EISCONN`; the error with
    /// which it ended, once; those of making a socket.
    pub fn try_connect(&self, addr: SocketAddr) -> io::Result<()> {
        let mut state = self.inner.lock();
        match &state.phase {
            Phase::New | Phase::Bound(_) => {}
            Phase::Opening(_) => return Err(Errno::ALREADY.into()),
            Phase::Connected(_) | Phase::Listening(_) => return Err(Errno::ISCONN.into()),
            Phase::Closed => return Err(Errno::BADF.into()),
            Phase::Failed => {
                state.phase = Phase::New;
                if let Some(error) = state.error.take() {
                    return Err(error.into());
                }
            }
        }
        if !self.inner.domain.has(addr) {
            return Err(Errno::AFNOSUPPORT.into());
        }
        let id = match std::mem::replace(&mut state.phase, Phase::New) {
            Phase::Bound(id) => id,
            _ => self.inner.make_id(&state)?,
        };
        let begun = self.inner.begin_connecting(&mut state, id, addr);
        state.settle(By::Call, false);
        begun?;
        Err(Errno::INPROGRESS.into())
    }

    /// The outcome of [`Self::try_connect`], for a caller that has waited.
    ///
    /// # Errors
    ///
    /// `EALREADY` while it goes on; the error with which it ended, once.
    pub fn finish_connect(&self) -> io::Result<()> {
        let mut state = self.inner.lock();
        match &state.phase {
            Phase::Connected(_) => Ok(()),
            Phase::Opening(_) => Err(Errno::ALREADY.into()),
            Phase::Closed => Err(Errno::BADF.into()),
            _ => {
                let error = state.error.take().unwrap_or(Errno::CONNABORTED);
                state.settle(By::Call, false);
                Err(error.into())
            }
        }
    }
}

impl Inner {
    /// An id with the choices of the program.
    pub(crate) fn make_id(&self, state: &State) -> io::Result<Id> {
        let id = Id::new(&self.host.events)?;
        id.set_context(self.as_context());
        id.set_share_address(state.choices.share_address);
        id.set_ipv6_only(state.choices.ipv6_only);
        if let Some(class) = state.choices.traffic_class {
            id.set_traffic_class(class);
        }
        Ok(id)
    }

    /// The steps that end in events follow one another at once: over these wires none has to be
    /// waited for but the last.
    fn begin_connecting(
        self: &Arc<Self>,
        state: &mut State,
        id: Id,
        addr: SocketAddr,
    ) -> io::Result<()> {
        id.resolve_addr(None, addr)?;
        if id.peer_addr().is_none() {
            state.fail(Errno::NETUNREACH);
            return Ok(());
        }
        let pd = self.host.domain(id.device_place().unwrap_or(0))?;
        let connection = Connection::new(&pd, id, &state.settings, self.server())?;
        connection.connect()?;
        state.local = connection.id.local_addr();
        state.peer = Some(addr);
        state.phase = Phase::Opening(Box::new(connection));
        Ok(())
    }

    /// Something happened to the connection of this socket.
    pub(crate) fn happened(self: &Arc<Self>, kind: EventKind) {
        let mut state = self.lock();
        match kind {
            EventKind::Established { private_data, .. } => {
                self.established(&mut state, &private_data)
            }
            EventKind::Disconnected(_) => {
                if let Some(connection) = state.connection() {
                    connection.disconnected();
                }
                let is_closed = state.is_closed;
                state.settle(By::Event, true);
                drop(state);
                if is_closed {
                    self.host.release(self);
                }
                return;
            }
            kind if matches!(state.phase, Phase::Opening(_)) => match kind.into_error() {
                Some(error) => state.fail(as_errno(&error)),
                None => return,
            },
            _ => return,
        }
        state.settle(By::Event, true);
        let parent = state.parent.upgrade().map(|parent| (parent, Weak::clone(&self.itself)));
        drop(state);
        if let Some((parent, itself)) = parent {
            parent.has_opened(&itself);
        }
        self.keep_alive();
    }

    fn established(&self, state: &mut State, private_data: &[u8]) {
        let idle = state.choices.keepalive.then_some(state.settings.keepalive);
        let Phase::Opening(connection) = &mut state.phase else { return };
        let peer = match connection.peer_data(private_data) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!("the peer of an rsocket's connection is none: {error}");
                connection.id.disconnect();
                return state.fail(Errno::NOTSUP);
            }
        };
        match connection.begin(&peer, idle) {
            Ok(()) => {
                let local = connection.id.local_addr();
                let phase = std::mem::replace(&mut state.phase, Phase::Failed);
                let Phase::Opening(mut connection) = phase else { return };
                connection.progress();
                state.local = local.or(state.local);
                state.phase = Phase::Connected(connection);
            }
            Err(errno) => {
                connection.id.disconnect();
                state.fail(errno);
            }
        }
    }

    /// Has the worker look for a keepalive when one is due.
    pub(crate) fn keep_alive(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some(connection) = state.connection() else { return };
        let deadline = connection.stream.as_ref().and_then(|stream| stream.deadline());
        let (Some(deadline), Some(worker)) = (deadline, connection.drive.background()) else {
            return;
        };
        let itself = Weak::clone(&self.itself);
        worker.after(
            deadline.0.saturating_sub(now().0),
            Box::new(move || {
                if let Some(this) = itself.upgrade() {
                    let mut state = this.lock();
                    if let Some(connection) = state.connection() {
                        connection.pump();
                    }
                    drop(state);
                    this.keep_alive();
                }
            }),
        );
    }
}

impl State {
    /// The connection is not made.
    fn fail(&mut self, errno: Errno) {
        self.phase = Phase::Failed;
        self.error = Some(errno);
    }
}

impl Connection {
    /// The private data of the peer: of its request, or of its reply.
    fn peer_data(&self, reply: &[u8]) -> Result<ConnData, ConnDataError> {
        match &self.requested {
            Some(requested) => Ok(*requested),
            None => ConnData::read(reply),
        }
    }
}

fn as_errno(error: &ConnectError) -> Errno {
    match error {
        ConnectError::Unreachable(error) | ConnectError::Io(error) => {
            match (Errno::from_io_error(error), error.kind()) {
                (Some(errno), _) => errno,
                (None, io::ErrorKind::TimedOut) => Errno::TIMEDOUT,
                (None, io::ErrorKind::HostUnreachable) => Errno::HOSTUNREACH,
                (None, io::ErrorKind::NetworkUnreachable) => Errno::NETUNREACH,
                (None, io::ErrorKind::ConnectionReset) => Errno::CONNRESET,
                (None, _) => Errno::CONNREFUSED,
            }
        }
        ConnectError::Rejected { .. } => Errno::CONNREFUSED,
        ConnectError::Timeout => Errno::TIMEDOUT,
        // It speaks something else.
        _ => Errno::PROTO,
    }
}
