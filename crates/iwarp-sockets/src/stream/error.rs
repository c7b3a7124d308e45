// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of streams, and faults of peers by name.

use thiserror::Error;

use crate::wire::{UnknownMessage, Unspannable};

/// Private data with which no stream can work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unusable {
    /// The peer would never take a message.
    #[error("the peer has posted no receives")]
    NoCredits,
    /// The peer's SGL cannot be written by the protocol.
    #[error("the peer has {0} SGL entries, and the protocol needs 2")]
    SglEntries(u32),
    /// The peer has nowhere to put data.
    #[error("the half of the peer's receive ring has no octets")]
    NoRing,
    /// Addresses run over.
    #[error("the peer's private data names memory that cannot be: {0}")]
    Memory(#[from] Unspannable),
}

/// A fault of the peer. It ends the connection, with `EIO` for the program (RS-MSG-08).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// The word is no message.
    #[error("the peer has sent something else than a message: {0}")]
    Unknown(#[from] UnknownMessage),
    /// A Send of another length than a message has.
    #[error("the peer has sent {0} octets as a message, which has 4")]
    MessageLen(usize),
    /// A message says that nothing was written.
    #[error("the peer says that it has written 0 octets")]
    EmptyData,
    /// Data that the announced memory does not hold, or that begin in one half of the ring and end
    /// in the other.
    #[error("the peer says that it has written {octets} octets where {room} were free")]
    DataBeyondRoom {
        /// Octets of the message.
        octets: u32,
        /// Octets that were free in the half.
        room: u32,
    },
    /// Data behind the peer's own end.
    #[error("the peer has sent data after the end of its data")]
    DataAfterEnd,
    /// More messages than receives were announced for.
    #[error("the peer has sent more messages than it has credits for")]
    BeyondCredits,
    /// An index that the iomap table does not have.
    #[error("the peer says that it has written iomap entry {index} of {entries}")]
    IomapIndex {
        /// The index.
        index: u32,
        /// Entries of the table.
        entries: u32,
    },
    /// Memory in an SGL or iomap entry that runs over the last address or offset.
    #[error("the peer has announced memory that cannot be: {0}")]
    Memory(#[from] Unspannable),
    /// Credits for more messages than the peer has receives, or for fewer than it gave before.
    #[error(
        "the peer gives credits up to message {limit}, with {sent} sent, {queue} receives, and \
         credits up to {before} so far"
    )]
    Credits {
        /// The new limit.
        limit: u16,
        /// The limit before.
        before: u16,
        /// Messages sent.
        sent: u16,
        /// Receives that the peer has announced.
        queue: u16,
    },
}

/// The reason why nothing can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The program has shut this direction down: `EPIPE`.
    #[error("this end has shut down writing")]
    ShutDown,
    /// The peer has ended both directions: `EPIPE`.
    #[error("the peer has closed the connection")]
    PeerClosed,
    /// The connection is gone; [`take_error`](super::Stream::take_error) says why.
    #[error("the connection is lost")]
    Lost,
    /// The peer has mapped nothing at this offset: `riowrite` answers 0.
    #[error("the peer has mapped nothing at this offset")]
    Unmapped,
}

/// The reason why memory cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// The peer's table has no entry left, or never had one: `ENOMEM`.
    #[error("the peer's iomap table has no free entry: it needs RDMA_IOMAPSIZE above {0}")]
    Full(u32),
    /// Addresses or offsets run over: `EINVAL`.
    #[error(transparent)]
    Memory(#[from] Unspannable),
    /// There is no connection any more: `ENOTCONN`.
    #[error("the connection is over")]
    NotConnected,
}

/// The error of a connection, which a call that receives, or `SO_ERROR`, tells once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The connection ended without a word of the peer's: `ECONNRESET` (RS-CLOSE-06).
    #[error("the connection ended before the peer said so")]
    Reset,
    /// The peer does not keep to the protocol: `EIO`.
    #[error(transparent)]
    Violation(#[from] Violation),
}
