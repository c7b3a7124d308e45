// SPDX-License-Identifier: MIT OR Apache-2.0

//! Being asked for sessions.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use iwarp::cm::{Addresses, Event, EventChannel, EventKind, Id};
use iwarp::verbs::ProtectionDomain;
use iwarp_types::setters;

use crate::readable::wait_readable;

/// The settings of a [`Listener`]: the defaults, and by chained setters what differs from them.
///
/// ```
/// use iwarp_session::ListenConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pd = iwarp::Device::open()?.alloc_pd();
/// let listener = ListenConfig::new().backlog(16).bind(&pd, "localhost:0")?;
/// println!("at {:?}", listener.local_addr());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListenConfig {
    /// Connection requests that may wait until the program accepts or rejects them; at least one
    /// may. `None`: [`Options::max_pending`](iwarp::Options::max_pending), 1024 by default.
    ///
    /// When so many wait, the listener closes each further connection without an answer, and the
    /// peer gets [`ConnectError::Startup`](iwarp::cm::ConnectError::Startup) at once; over RoCE v2
    /// it passes over the request, which the peer repeats. A request that is accepted, rejected or
    /// dropped makes room for one. A peer cannot take all the room there is: an address with few
    /// requests (a sixteenth of the backlog, at least one) may add to those that wait, up to twice
    /// the backlog in all.
    ///
    /// As many connections may be in start-up, before their request has come. Beyond that the
    /// oldest is closed of the address that has most.
    pub backlog: Option<usize>,
}

impl ListenConfig {
    /// The backlog of the device's options.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        into backlog: Option<usize>,
    }

    /// As [`Listener::bind`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn bind(&self, pd: &ProtectionDomain, addr: impl Into<Addresses>) -> io::Result<Listener> {
        let channel = EventChannel::of(pd)?;
        let id = addr.into().try_each(|addr| {
            let id = Id::new(&channel)?;
            id.bind(addr)?;
            id.listen_for(self.backlog)?;
            Ok(id)
        })?;
        Ok(Listener { pd: pd.clone(), channel, id })
    }
}

/// Takes connection requests at an address.
#[derive(Debug)]
pub struct Listener {
    pd: ProtectionDomain,
    channel: EventChannel,
    id: Id,
}

impl Listener {
    /// Listens at `addr`, or at the first of several [`Addresses`] where that is possible; port 0
    /// lets the system choose one. Sessions are of domain `pd` unless they are prepared for
    /// another. [`ListenConfig`] has more to choose.
    ///
    /// A name is looked up in this thread, which may take a while: a program that must not block
    /// here passes addresses.
    ///
    /// # Errors
    ///
    /// Errors of the resolver and of listening.
    pub fn bind(pd: &ProtectionDomain, addr: impl Into<Addresses>) -> io::Result<Self> {
        ListenConfig::default().bind(pd, addr)
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The next request: [`wait`](Accepting::wait) for it, or `.await` it with the feature `tokio`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the result at any moment loses no request.
    pub fn accept(&self) -> Accepting<'_> {
        Accepting {
            listener: self,
            #[cfg(feature = "tokio")]
            readiness: None,
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) const fn channel(&self) -> &EventChannel {
        &self.channel
    }

    pub(super) fn next(&self) -> Option<Request> {
        loop {
            let Event { id, kind, .. } = self.channel.try_next()?;
            if let EventKind::ConnectRequest { private_data, .. } = kind {
                return Some(Request { id, private_data, pd: self.pd.clone() });
            }
        }
    }
}

/// Waiting for a connection request: [`wait`](Self::wait) for it, or `.await` it with the feature
/// `tokio`.
///
/// # Cancel safety
///
/// Dropping it at any moment loses no request: the next one that waits gets it.
#[must_use = "requests are taken by waiting"]
pub struct Accepting<'a> {
    pub(super) listener: &'a Listener,
    #[cfg(feature = "tokio")]
    pub(super) readiness: Option<crate::readiness::Readiness>,
}

impl Accepting<'_> {
    /// Waits for a request.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    pub fn wait(self) -> io::Result<Request> {
        loop {
            if let Some(request) = self.listener.next() {
                return Ok(request);
            }
            wait_readable(&self.listener.channel, None)?;
        }
    }

    /// Waits for a request, at most that long.
    ///
    /// # Errors
    ///
    /// `TimedOut`; those of waiting.
    pub fn wait_timeout(self, timeout: Duration) -> io::Result<Request> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(request) = self.listener.next() {
                return Ok(request);
            }
            if !wait_readable(&self.listener.channel, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl fmt::Debug for Accepting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting").field("listener", self.listener).finish_non_exhaustive()
    }
}

/// A connection request: a peer waits for an answer. Dropping it closes the connection without
/// one.
#[derive(Debug)]
pub struct Request {
    pub(super) id: Id,
    pub(super) private_data: Vec<u8>,
    pub(super) pd: ProtectionDomain,
}

impl Request {
    /// The private data of the peer.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The listener's domain.
    pub const fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Refuses, and tells the peer why.
    ///
    /// # Errors
    ///
    /// Too much private data; those of sending.
    pub fn reject(self, private_data: &[u8]) -> io::Result<()> {
        self.id.reject(private_data)
    }
}
