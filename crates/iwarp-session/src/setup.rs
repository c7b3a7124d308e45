// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making sessions: connecting and accepting.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iwarp::cm::{Addresses, ConnectError, ConnectParams, EventChannel, EventKind, Id};
use iwarp::verbs::ProtectionDomain;
use iwarp_mem::RegisterError;
use iwarp_types::Access;

use crate::readable::wait_readable;
use crate::table::Handle;
use crate::{Config, Exposed, OperationError, Pending, Received, Request, Room, Session};

impl Session {
    /// Connects to a [`Listener`](super::Listener) with default sizes.
    ///
    /// `addr` may be an address, several, or a name: `"localhost:7471"`. To an address it connects
    /// at once. A name is looked up at once, by a thread of its own, so that no call and no task
    /// blocks; the connection is made when the program waits, and to the next address, where there
    /// is one, if nothing answers at the first.
    ///
    /// [`Config`] has other sizes, and [`Config::prepare`] receives that are there when the peer
    /// sends first.
    pub fn connect(pd: &ProtectionDomain, addr: impl Into<Addresses>) -> Connecting {
        Config::default().connect(pd, addr)
    }

    /// Accepts a request with default sizes.
    pub fn accept(request: Request) -> Connecting {
        Config::default().accept(request)
    }
}

impl Config {
    /// Makes a session that has no peer yet, so that receives can be posted before one can send.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made.
    pub fn prepare(&self, pd: &ProtectionDomain) -> Result<Unconnected, ConnectError> {
        let handle = Handle::new(pd, self).map_err(|error| match error {
            OperationError::Wait(error) => ConnectError::Io(error),
            error => ConnectError::Io(io::Error::other(error)),
        })?;
        Ok(Unconnected { handle: Arc::new(handle), params: self.params.clone() })
    }

    /// Connects to a [`Listener`](super::Listener), as [`Session::connect`] does.
    pub fn connect(&self, pd: &ProtectionDomain, addr: impl Into<Addresses>) -> Connecting {
        match self.prepare(pd) {
            Ok(prepared) => prepared.connect(addr),
            Err(error) => Connecting::failed(error),
        }
    }

    /// Accepts a request.
    pub fn accept(&self, request: Request) -> Connecting {
        match self.prepare(request.pd()) {
            Ok(prepared) => prepared.accept(request),
            Err(error) => Connecting::failed(error),
        }
    }
}

/// A session that has no peer yet.
pub struct Unconnected {
    pub(super) handle: Arc<Handle>,
    params: ConnectParams,
}

impl Unconnected {
    /// As [`Session::recv`].
    pub fn recv<B: Room>(&self, blocks: B) -> Pending<Received<B>> {
        Pending::new(&self.handle, self.handle.post_recv(blocks.into_cargo(), &[]))
    }

    /// As [`Session::expose`]: memory whose grant may go to the peer with the connection.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had.
    pub fn expose(&self, len: usize, access: Access) -> Result<Exposed, RegisterError> {
        self.handle.expose(len, access)
    }

    /// Keeps the memory beside the ring of a connection that moves to shared memory.
    pub(super) fn keep_annex(&self) {
        if let Some(core) = self.handle.alive() {
            core.qp.keep_annex();
        }
    }

    /// Says something else to the peer when connecting than [`Config::params`].
    pub fn set_private_data(&mut self, octets: &[u8]) {
        self.params.private_data = octets.to_vec();
    }

    /// Has `channel`, to which the id's events go, note how the connection ends.
    fn channel(&self, channel: EventChannel) -> io::Result<EventChannel> {
        channel.watch(Arc::clone(&self.handle.end) as _)?;
        Ok(channel)
    }

    /// Connects to a [`Listener`](super::Listener), as [`Session::connect`] does.
    pub fn connect(self, addr: impl Into<Addresses>) -> Connecting {
        let started = || {
            let channel = self.channel(EventChannel::of(&self.handle.pd)?)?;
            let id = Id::new(&channel)?;
            id.resolve(addr.into())?;
            Ok((channel, id))
        };
        match started() {
            Ok((channel, id)) => Connecting::begun(self, channel, id, Vec::new()),
            Err(error) => Connecting::failed(ConnectError::Io(error)),
        }
    }

    /// Accepts a request.
    pub fn accept(self, request: Request) -> Connecting {
        let Request { id, private_data, pd } = request;
        let started = || {
            let channel = self.channel(EventChannel::of(&pd)?)?;
            id.migrate(&channel);
            id.try_accept(&self.handle.check()?.qp, &self.params)?;
            Ok(channel)
        };
        match started() {
            Ok(channel) => Connecting::begun(self, channel, id, private_data),
            Err(error) => Connecting::failed(error),
        }
    }
}

impl fmt::Debug for Unconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let qp = self.handle.alive().map(|core| core.qp.number());
        f.debug_struct("Unconnected").field("qp", &qp).finish()
    }
}

/// A session on its way: [`wait`](Self::wait) for it, or `.await` it with the feature `tokio`.
///
/// # Cancel safety
///
/// Dropping it gives the connection up: it is closed if it is up already, and a peer that was about
/// to accept is told. To go on waiting later, wait for it by reference (`&mut connecting`).
#[must_use = "dropping it gives the connection up"]
pub struct Connecting {
    attempt: Option<Attempt>,
    /// It ended before anybody waited.
    early: Option<Box<Result<Session, ConnectError>>>,
    #[cfg(feature = "tokio")]
    pub(super) readiness: Option<crate::readiness::Readiness>,
}

struct Attempt {
    prepared: Unconnected,
    channel: EventChannel,
    id: Id,
    private_data: Vec<u8>,
}

impl Connecting {
    fn failed(error: ConnectError) -> Self {
        Self {
            attempt: None,
            early: Some(Box::new(Err(error))),
            #[cfg(feature = "tokio")]
            readiness: None,
        }
    }

    fn begun(prepared: Unconnected, channel: EventChannel, id: Id, private_data: Vec<u8>) -> Self {
        let mut connecting = Self {
            early: None,
            attempt: Some(Attempt { prepared, channel, id, private_data }),
            #[cfg(feature = "tokio")]
            readiness: None,
        };
        // An address needs no look-up: connect now, not when the program waits.
        connecting.early = connecting.advance().map(Box::new);
        connecting
    }

    /// The channel whose events bring it further.
    pub(super) fn channel(&self) -> Option<&EventChannel> {
        self.attempt.as_ref().map(|attempt| &attempt.channel)
    }

    /// Takes what has happened into account.
    ///
    /// # Panics
    ///
    /// After it said how it ended.
    pub(super) fn advance(&mut self) -> Option<Result<Session, ConnectError>> {
        if let Some(early) = self.early.take() {
            return Some(*early);
        }
        loop {
            let attempt = self.attempt.as_mut().expect("a connection is made once");
            let event = attempt.channel.try_next()?;
            let failed = match event.kind {
                EventKind::AddressResolved => {
                    let prepared = &attempt.prepared;
                    let core = prepared.handle.check();
                    match core.and_then(|core| attempt.id.connect(&core.qp, &prepared.params)) {
                        Ok(()) => continue,
                        Err(error) => ConnectError::Io(error),
                    }
                }
                EventKind::Established { private_data, .. } => {
                    let Some(attempt) = self.attempt.take() else { unreachable!("just seen") };
                    let said =
                        if private_data.is_empty() { attempt.private_data } else { private_data };
                    let Attempt { prepared, channel, id, .. } = attempt;
                    prepared.handle.connected();
                    return Some(Ok(Session::new(prepared.handle, channel, id, said)));
                }
                EventKind::Disconnected(_) => {
                    ConnectError::Io(io::ErrorKind::ConnectionAborted.into())
                }
                other => match other.into_error() {
                    Some(error) => error,
                    None => continue,
                },
            };
            if failed.is_of_the_address() && attempt.id.resolve_next() {
                continue;
            }
            let failed = failed.at(attempt.id.peer_addr());
            // Dropping the id and its queue pair ends all that has come of it.
            self.attempt = None;
            return Some(Err(failed));
        }
    }

    /// Waits until the connection is up. The device's options bound how long that takes for each
    /// of the peer's addresses ([`startup_timeout`](iwarp::Options::startup_timeout)), and the
    /// system's resolver how long it takes to look a name up.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]
    pub fn wait(self) -> Result<Session, ConnectError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], and gives up after `timeout`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], among them `Timeout`.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Session, ConnectError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(mut self, deadline: Option<Instant>) -> Result<Session, ConnectError> {
        loop {
            if let Some(result) = self.advance() {
                return result;
            }
            let Some(channel) = self.channel() else { return Err(ConnectError::Timeout) };
            if !wait_readable(channel, deadline)? {
                return Err(ConnectError::Timeout);
            }
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.attempt.as_ref().map(|attempt| &attempt.id);
        f.debug_struct("Connecting").field("id", &id).finish_non_exhaustive()
    }
}
