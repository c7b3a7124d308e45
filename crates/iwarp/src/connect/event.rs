// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of the connection manager, and the states that they lead to.

use std::io;
use std::net::IpAddr;

use iwarp_types::AddressVector;

use super::ConnectError;
use crate::engine::ended::Ended;

/// The kind of event.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The peer's address is known to be reachable from a local one.
    AddressResolved,
    /// The route to the peer is known.
    RouteResolved,
    /// A peer wants to connect: accept or reject.
    #[non_exhaustive]
    ConnectRequest {
        /// The peer's private data.
        private_data: Vec<u8>,
        /// Reads that the peer will serve at a time, where it says so.
        ird: Option<u16>,
        /// Reads that the peer will have outstanding, where it says so.
        ord: Option<u16>,
        /// The number of times that the peer has this end send a message again that finds no
        /// receive there, where it says so: over RoCE v2.
        rnr_retry: Option<u8>,
        /// The number of times that either end sends a message again for want of an answer, where
        /// the peer says it: over RoCE v2.
        retry_count: Option<u8>,
    },
    /// The connection is up.
    #[non_exhaustive]
    Established {
        /// The accepting side's private data; empty on that side itself.
        private_data: Vec<u8>,
        /// Reads of the peer's that are served at a time.
        ird: u16,
        /// Reads of our own that are outstanding at a time.
        ord: u16,
        /// The IRD in the peer's frame; 0x3FFF leaves it to the programs.
        peer_ird: Option<u16>,
        /// The ORD in the peer's frame, likewise.
        peer_ord: Option<u16>,
    },
    /// The peer accepted, and waits for [`Id::establish`](crate::cm::Id::establish): only after
    /// [`Id::connect_first`](crate::cm::Id::connect_first).
    #[non_exhaustive]
    Responded {
        /// The peer's private data.
        private_data: Vec<u8>,
        /// Reads of the peer's that are going to be served at a time.
        ird: u16,
        /// Reads of our own that may be outstanding at a time.
        ord: u16,
    },
    /// The peer refused.
    #[non_exhaustive]
    Rejected {
        /// The peer's private data.
        private_data: Vec<u8>,
        /// The IRD it would have, where it says so (RFC 6581 §9.1).
        ird: Option<u16>,
        /// The ORD it would want, likewise.
        ord: Option<u16>,
        /// The cause, over RoCE v2: the reason of the REJ (28: its program refused, 8: no program
        /// listens).
        reason: Option<u16>,
    },
    /// There is no way to the peer's address, or none from the local one.
    AddressError(io::Error),
    /// There is no way to the peer, or no program listens at its address.
    Unreachable(io::Error),
    /// Start-up failed.
    ConnectError(ConnectError),
    /// The connection is over.
    Disconnected(Ended),
    /// Over RoCE v2: the queue pair of a connection that is over may have another.
    TimewaitExit,
    /// A peer asks for the queue pair of a datagram service: answer or reject.
    #[non_exhaustive]
    ServiceRequest {
        /// The peer's private data: 180 bytes, filled up with zeros.
        private_data: Vec<u8>,
        /// The way to the peer.
        address: AddressVector,
    },
    /// The queue pair of the datagram service is known.
    #[non_exhaustive]
    ServiceFound {
        /// The peer's private data: 136 bytes, filled up with zeros.
        private_data: Vec<u8>,
        /// The way to the peer.
        address: AddressVector,
        /// The queue pair there.
        qp: u32,
        /// Its Q_Key.
        qkey: u32,
    },
    /// The peer does not offer the datagram service, or its program refused.
    #[non_exhaustive]
    ServiceRefused {
        /// Status of the answer: 1 no such service, 2 refused, 3 no queue pair.
        status: u8,
    },
    /// Datagrams for a multicast group can be sent; a queue pair gets them once it is attached
    /// ([`QueuePair::attach_multicast`](crate::QueuePair::attach_multicast)).
    #[non_exhaustive]
    MulticastJoined {
        /// The group.
        group: IpAddr,
        /// The way to the group.
        address: AddressVector,
        /// The queue pair that datagrams to the group name.
        qp: u32,
        /// Their Q_Key.
        qkey: u32,
    },
    /// The program's own, from [`Id::notify`](crate::cm::Id::notify).
    User {
        /// As given there.
        status: i32,
        /// As given there.
        argument: u64,
    },
}

impl EventKind {
    /// The error of the connection that this event says was not made; `None` where it says
    /// something else.
    pub fn into_error(self) -> Option<ConnectError> {
        match self {
            Self::Rejected { private_data, ird, ord, .. } => {
                Some(ConnectError::Rejected { private_data, ird, ord })
            }
            Self::Unreachable(error) | Self::AddressError(error) => {
                Some(ConnectError::Unreachable(error))
            }
            Self::ConnectError(error) => Some(error),
            Self::AddressResolved
            | Self::RouteResolved
            | Self::ConnectRequest { .. }
            | Self::Established { .. }
            | Self::Responded { .. }
            | Self::Disconnected(_)
            | Self::TimewaitExit
            | Self::ServiceRequest { .. }
            | Self::ServiceFound { .. }
            | Self::ServiceRefused { .. }
            | Self::MulticastJoined { .. }
            | Self::User { .. } => None,
        }
    }
}

/// The event that tells of a connection that was not made.
impl From<ConnectError> for EventKind {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Rejected { private_data, ird, ord } => {
                Self::Rejected { private_data, ird, ord, reason: None }
            }
            ConnectError::Unreachable(error) => Self::Unreachable(error),
            error => Self::ConnectError(error),
        }
    }
}

/// The state of an [`Id`](crate::cm::Id)'s connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// There is no connection, and none is being made.
    Idle,
    /// Connections come in here; each belongs to another id.
    Listening,
    /// The connection is being made.
    Connecting,
    /// A peer has requested it and waits for [`Id::accept`](crate::cm::Id::accept) or
    /// [`Id::reject`](crate::cm::Id::reject).
    Requested,
    /// The peer has accepted it and waits for [`Id::establish`](crate::cm::Id::establish).
    Responded,
    /// It is up; or it has ended and the program has not yet taken [`EventKind::Disconnected`].
    Connected,
    /// It is over, and the program knows: the program has taken that event, or refused the request,
    /// or failed to accept it.
    Over,
}
