// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exchanges with peers, each on behalf of an id.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_types::{PortSpace, Time};

use super::{
    ConnectError, ConnectParams, ConnectionState, DatagramAttributes, EventKind, Meanwhile,
};
use crate::engine::endpoint::Endpoint;
use crate::port::Reservation;

/// A connection of an id, being made or there, or a question for the queue pair of a datagram
/// service.
///
/// A call that does not fit the state is refused with `InvalidInput`, and so is one that the wire
/// does not have.
pub(crate) trait Exchange: fmt::Debug + Send + Sync {
    /// Its progress, as the program knows it.
    fn state(&self) -> ConnectionState;

    /// The name of its protocol, for the log.
    fn wire(&self) -> &'static str;

    /// True if that is RoCE v2.
    fn speaks_roce(&self) -> bool {
        false
    }

    /// The queue pair that uses the connection, if there is one and the library knows it.
    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        None
    }

    /// Asks the peer. The outcome may be told before this returns; after an error, nothing is.
    fn begin(self: Arc<Self>, _by: By) -> Result<(), ConnectError> {
        Err(unfit().into())
    }

    /// Moves it in this thread, if it was begun [by the caller](By::Caller): until it needs none
    /// any more, or the time `until`. Moves `meanwhile` as well.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    fn drive(&self, _meanwhile: &Meanwhile, _until: Time) -> io::Result<()> {
        Ok(())
    }

    /// Accepts the connection that the peer asks for.
    fn accept(
        self: Arc<Self>,
        _qp: &NamedQp,
        _params: &ConnectParams,
        _traffic_class: Option<u8>,
    ) -> Result<(), ConnectError> {
        Err(unfit().into())
    }

    /// Refuses what the peer asks for.
    fn reject(&self, _private_data: &[u8]) -> io::Result<()> {
        Err(unfit())
    }

    /// Gives a queue pair to the connection that the peer has accepted.
    fn establish(self: Arc<Self>, _qp: &NamedQp) -> io::Result<()> {
        Err(unfit())
    }

    /// Names the queue pair of a datagram service, with its Q_Key, to the peer that asks for it.
    fn answer(&self, _qp: u32, _qkey: u32, _private_data: &[u8]) -> io::Result<()> {
        Err(unfit())
    }

    /// The attributes with which the program is to set up a queue pair of its own, once they are
    /// known.
    fn attributes(&self, _params: &ConnectParams) -> Option<DatagramAttributes> {
        None
    }

    /// Ends the connection in good order; the owner is told.
    fn disconnect(self: Arc<Self>) {}

    /// Ends it in any state, for an owner that wants to hear no more.
    fn close(self: Arc<Self>);

    /// As [`Self::close`], from a thread that may have a queue pair locked.
    fn abandon(self: Arc<Self>);

    /// The program knows that the connection is over.
    fn is_told_of_the_end(&self) {}
}

/// The error of a call that does not fit the state, or the wire.
fn unfit() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// The id that has an exchange. Must not be called with a lock of the exchange's held.
pub(crate) trait Owner: Send + Sync {
    /// True if the program has let go of it.
    fn is_gone(&self) -> bool;

    /// Tells the program.
    fn tell(&self, kind: EventKind);

    /// The connection has this address here.
    fn is_at(&self, local: SocketAddr);

    /// The exchange with the peer has come to nothing, and the id may begin another. True if it was
    /// the id's until now.
    fn failed(&self, exchange: &dyn Exchange) -> bool;

    /// No program listens for what this exchange asks. The id begins one of another wire in its
    /// place, where the device has one: true then.
    fn goes_on(&self, exchange: &dyn Exchange, qp: &NamedQp, params: &ConnectParams) -> bool;
}

/// A queue pair by its number. One without an endpoint the program sets up by itself.
#[derive(Clone, Debug)]
pub(crate) struct NamedQp {
    pub(crate) number: u32,
    pub(crate) endpoint: Option<Arc<Endpoint>>,
}

impl NamedQp {
    pub(crate) fn of(endpoint: &Arc<Endpoint>) -> Self {
        Self { number: endpoint.id(), endpoint: Some(Arc::clone(endpoint)) }
    }
}

/// The thread that moves an exchange at first. Later it is the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Worker,
    /// The thread that begins it, by [`Exchange::drive`].
    Caller,
}

/// The connection that a program asks for.
pub(crate) struct Call {
    pub(crate) owner: Arc<dyn Owner>,
    pub(crate) peer: SocketAddr,
    /// The local address, as far as it is known.
    pub(crate) local: Option<SocketAddr>,
    /// The local address that the program has chosen; its port may be 0.
    pub(crate) source: Option<SocketAddr>,
    /// Holds the local port of the transport, where the program has chosen one.
    pub(crate) reserved: Option<Box<dyn Reservation>>,
    pub(crate) traffic_class: Option<u8>,
    /// The peer has no other address to try.
    pub(crate) is_last: bool,
    /// Absent where the program names one once the peer has accepted.
    pub(crate) qp: Option<NamedQp>,
    pub(crate) params: ConnectParams,
}

/// A question for the queue pair of a datagram service.
pub(crate) struct Question<'a> {
    pub(crate) owner: Arc<dyn Owner>,
    pub(crate) space: PortSpace,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) traffic_class: u8,
    pub(crate) private_data: &'a [u8],
}
