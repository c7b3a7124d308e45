// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wire of a program's own under the whole library. No promise of stability.
//!
//! A [`Wing`] makes the cores of queue pairs, and their streams: for the ids of the connection
//! manager that connect or listen, and for queue pairs that meet without it. Programs then use the
//! verbs, the connection manager and sessions as they do over iWARP.
//! [`Device::on_wing`](crate::Device::on_wing) opens a device of one.
//!
//! Ports of ids are a port space of the process, as on a RoCE card. A wing has neither datagram
//! services nor queue pairs of other types than RC.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp_types::{Accessor, BoxedCore};

use super::foreign::{self, Connection, Meet};

use crate::connect::{ConnectError, Listener, Peer};
use crate::engine::timers::Timers;
use crate::port::Port;

/// A wire. Its calls do not wait.
pub trait Wing: Debug + Send + Sync {
    /// Its name, for the log.
    fn name(&self) -> &'static str;

    /// Makes the core of a queue pair, which uses memory as `who`.
    fn core(&self, who: Accessor) -> BoxedCore;

    /// A program asks the peer for a connection: the answer ends the call.
    fn connect(&self, call: Call);

    /// A program listens at an address, until the result is dropped.
    ///
    /// # Errors
    ///
    /// Errors of listening, for the program.
    fn listen(&self, addr: SocketAddr, inbox: Inbox) -> io::Result<Box<dyn Any + Send + Sync>>;

    /// A queue pair is to meet the peer that its program names, whose program does likewise.
    fn meet(&self, seeker: Seeker);
}

/// A connection that a program asks for. Dropping it tells the program that the peer refuses.
#[derive(Debug)]
pub struct Call {
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The program's words for the peer's.
    pub private_data: Vec<u8>,
    connection: Option<Arc<Connection>>,
}

impl Call {
    pub(super) fn new(
        connection: Arc<Connection>,
        (local, peer): (SocketAddr, SocketAddr),
        private_data: Vec<u8>,
    ) -> Self {
        Self { local, peer, private_data, connection: Some(connection) }
    }

    /// True while the program waits for the peer.
    pub fn is_wanted(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_wanted())
    }

    /// The peer has accepted: its stream is here, and its program's words.
    ///
    /// # Errors
    ///
    /// `NotConnected` where the program has given it up; errors of using the stream.
    pub fn accepted(mut self, stream: Box<dyn Port>, private_data: &[u8]) -> io::Result<()> {
        let connection = self.connection.take().ok_or(io::ErrorKind::NotConnected)?;
        connection.accepted(stream, private_data)
    }

    /// The peer's program refuses.
    pub fn rejected(self, private_data: &[u8]) {
        let private_data = private_data.to_vec();
        self.failed(ConnectError::Rejected { private_data, ird: None, ord: None });
    }

    /// There is no connection.
    pub fn failed(mut self, why: ConnectError) {
        if let Some(connection) = self.connection.take() {
            connection.failed(why);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let refused = io::ErrorKind::ConnectionRefused;
            connection.failed(ConnectError::Unreachable(refused.into()));
        }
    }
}

/// The program that listens at an address.
#[derive(Clone)]
pub struct Inbox {
    listener: Arc<dyn Listener>,
    timers: Timers,
    wing: Weak<dyn Wing>,
    name: &'static str,
}

impl Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("wing", &self.name).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn new(wing: &Arc<dyn Wing>, timers: &Timers, listener: Arc<dyn Listener>) -> Self {
        let (timers, name) = (timers.clone(), wing.name());
        Self { listener, timers, wing: Arc::downgrade(wing), name }
    }

    /// A peer asks for a connection: the program gets an event.
    pub fn asked(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        private_data: Vec<u8>,
        request: Box<dyn Request>,
    ) {
        let Self { listener, timers, wing, name } = self;
        foreign::asked(&**listener, (wing, *name), timers, (local, peer), private_data, request);
    }
}

/// A peer's request for a connection, until the program has answered. Dropping it refuses, which
/// any thread may do: a wing calls [`Inbox::asked`] and drops a [`Call`] without locks of its own.
pub trait Request: Send + Sync {
    /// The program accepts: tells the peer, and returns the stream to it.
    ///
    /// # Errors
    ///
    /// When the peer cannot be waiting any more.
    fn accept(self: Box<Self>, private_data: &[u8]) -> io::Result<Box<dyn Port>>;

    /// The program refuses.
    ///
    /// # Errors
    ///
    /// As [`Self::accept`].
    fn reject(self: Box<Self>, private_data: &[u8]) -> io::Result<()>;
}

/// A queue pair that is to meet its peer.
#[derive(Debug)]
pub struct Seeker {
    /// Its number.
    pub number: u32,
    /// The peer that the program has named.
    pub peer: Peer,
    meet: Arc<Meet>,
}

impl Seeker {
    pub(super) const fn new(number: u32, peer: Peer, meet: Arc<Meet>) -> Self {
        Self { number, peer, meet }
    }

    /// True while the program wants the peer.
    pub fn is_wanted(&self) -> bool {
        self.meet.is_wanted(&self.peer)
    }

    /// The peer is found: this is the stream to it.
    ///
    /// # Errors
    ///
    /// `NotConnected` where the program has given it up; errors of using the stream.
    pub fn met(self, stream: Box<dyn Port>) -> io::Result<()> {
        self.meet.met(&self.peer, stream)
    }
}
