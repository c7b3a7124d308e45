// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events for a program, in the terms of `rdma_cm`.

use alloc::boxed::Box;
use core::net::IpAddr;

use iwarp_types::QpId;

use super::message::{PrivateData, SidrStatus};
use super::own_kind::OwnKind;
use super::reason::RejectReason;
use super::service::ServiceId;
use crate::config::Attributes;
use crate::wire::{Path, Transport};

/// The communication id of a connection, or of a SIDR request, of this end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommId(pub u32);

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// Something that happened to a connection.
#[derive(Clone, Debug)]
pub struct Event {
    /// The connection.
    pub id: CommId,
    /// The event itself.
    pub kind: EventKind,
}

/// The kind of event.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A peer asks for a connection, or for the queue pair of a datagram service. The program
    /// answers.
    ConnectRequest(Box<Request>),
    /// The peer has accepted. The queue pair is to be set up, then
    /// [`ready`](super::Manager::ready) is called, which establishes the connection.
    ConnectResponse(Box<Response>),
    /// The connection that was accepted here is established.
    Established {
        /// The peer's.
        private_data: PrivateData,
    },
    /// The datagram service has that queue pair. The id is forgotten.
    Resolved(Box<Resolved>),
    /// The peer refuses, or gives up. The id is forgotten, unless `timewait` is set.
    Rejected {
        /// The reason (ROCE-158).
        reason: RejectReason,
        /// The peer's.
        private_data: PrivateData,
        /// Set if a `TimewaitExit` follows.
        timewait: bool,
    },
    /// The request failed. The id is forgotten.
    Unreachable(Unreachable),
    /// The connection is over: the queue pair is to go to the error state. A `TimewaitExit`
    /// follows.
    Disconnected {
        /// The peer's; empty if this end disconnected and the peer sent none.
        private_data: PrivateData,
        /// Set if the peer did not answer (ROCE-161): the status is `ETIMEDOUT`.
        timed_out: bool,
    },
    /// The queue pair may be used for other connections. The id is forgotten.
    TimewaitExit {
        /// The queue pair.
        qp: QpId,
    },
}

/// The reason that a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// The peer does not answer.
    Silent,
    /// The program took longer to answer than the peer waits.
    TooSlow,
    /// The peer has no queue pair for the datagram service.
    Service(SidrStatus),
}

/// Options of a vendor, for enhanced connection establishment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ece {
    /// The vendor; 24 bits, 0 is none.
    pub vendor_id: u32,
    /// Its options.
    pub options: u32,
}

/// The request of a peer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The listener of the request.
    pub listener: ListenerId,
    /// The requested service.
    pub service: ServiceId,
    /// Type of the queue pairs; UD for a SIDR request, which wants only a queue pair's number.
    pub transport: Transport,
    /// The way to the peer.
    pub path: Path,
    /// Address and port of the peer's program; `None` if the request has no such header.
    pub peer: Option<(IpAddr, u16)>,
    /// The peer's queue pair; 0 for UD.
    pub remote_qp: u32,
    /// Reads and Atomics of the peer's that the program may serve at a time, at most.
    pub responder_resources: u8,
    /// Reads and Atomics that the program may have under way at a time, at most.
    pub initiator_depth: u8,
    /// Times that a request is sent again for want of an answer.
    pub retry_count: u8,
    /// Times that a request is sent again after an RNR NAK.
    pub rnr_retry: u8,
    /// The peer gives credits.
    pub flow_control: bool,
    /// The peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// Vendor and options that the peer tells.
    pub ece: Ece,
    /// The facts told by a peer of our own kind.
    pub own_kind: Option<OwnKind>,
    /// The peer's.
    pub private_data: PrivateData,
}

/// The response of a peer that accepts.
#[derive(Clone, Debug)]
pub struct Response {
    /// The attributes with which the queue pair is to be set up.
    pub attributes: Attributes,
    /// Reads and Atomics of the peer's that are served at a time.
    pub responder_resources: u8,
    /// Reads and Atomics that may be under way at a time.
    pub initiator_depth: u8,
    /// The peer gives credits.
    pub flow_control: bool,
    /// The peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// Vendor and options that the peer tells.
    pub ece: Ece,
    /// The facts told by a peer of our own kind.
    pub own_kind: Option<OwnKind>,
    /// The peer's.
    pub private_data: PrivateData,
}

/// Destination of a service's datagrams.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The way to the peer.
    pub path: Path,
    /// The peer's queue pair.
    pub qp: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// The peer's.
    pub private_data: PrivateData,
}
