// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls that a program makes to the connection manager.

use core::net::IpAddr;

use iwarp_types::QpId;
use thiserror::Error;

use super::message::TooLong;
use super::service::ServiceId;
use crate::wire::{Mtu, Path, Transport};

/// The peers from which a program wants requests.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// The service.
    pub service: ServiceId,
    /// The destination address of requests: one, any of IPv4 (`0.0.0.0`), any of IPv6 (`::`), or
    /// any of either (`None`).
    pub address: Option<IpAddr>,
    /// Type of the queue pairs.
    pub transport: Transport,
    /// Requests have the header with IP addresses (ROCE-150), as all but those of `AF_IB` ids.
    pub header: bool,
    /// Requests that may wait for the program's answer or, accepted, for the peer's RTU. Beyond
    /// that, requests are dropped until some are answered, and come again. Peers without a waiting
    /// request get a few places more.
    pub backlog: usize,
}

/// The parameters that the ends of a connection ask of each other: `rdma_conn_param`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Reads and Atomics of the peer's that are served at a time.
    pub responder_resources: u8,
    /// Reads and Atomics that are under way at a time.
    pub initiator_depth: u8,
    /// Times that a request is sent again for want of an answer: 0..7. An acceptor's is ignored:
    /// the REQ gives it for both ends (ROCE-164).
    pub retry_count: u8,
    /// Times that the peer sends a request again after an RNR NAK: 0..6; 7 is without end.
    pub rnr_retry: u8,
    /// Give credits.
    pub flow_control: bool,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry: 7,
            flow_control: false,
            srq: false,
        }
    }
}

/// The peer to which a program wants to connect.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The way to the peer's connection manager, and to its queue pair.
    pub path: Path,
    /// The service there.
    pub service: ServiceId,
    /// The program's own port, for the header with IP addresses; `None` leaves the header out.
    pub source_port: Option<u16>,
    /// The program's queue pair.
    pub qp: QpId,
    /// Its type: RC or UC.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: Mtu,
    /// The parameters asked of the peer.
    pub parameters: Parameters,
    /// 56 octets at most, 92 without the header (ROCE-174).
    pub private_data: &'a [u8],
}

/// The terms on which a program accepts a connection.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// The program's queue pair.
    pub qp: QpId,
    /// The parameters asked of the peer.
    pub parameters: Parameters,
    /// 196 octets at most.
    pub private_data: &'a [u8],
}

/// The datagram service whose queue pair a program asks for.
#[derive(Clone, Copy, Debug)]
pub struct Resolve<'a> {
    /// The way to the peer's connection manager.
    pub path: Path,
    /// The service there.
    pub service: ServiceId,
    /// The program's own port, for the header with IP addresses; `None` leaves the header out.
    pub source_port: Option<u16>,
    /// 180 octets at most, 216 without the header.
    pub private_data: &'a [u8],
}

/// The queue pair of a program's datagram service.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The queue pair.
    pub qp: QpId,
    /// Its Q_Key.
    pub qkey: u32,
    /// 136 octets at most.
    pub private_data: &'a [u8],
}

/// The reason that a call fails. It has then changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// The connection does not exist, or no longer does.
    #[error("no such connection")]
    Unknown,
    /// The connection is in a state that does not allow it.
    #[error("not in this state of the connection")]
    State,
    /// More private data than fit.
    #[error(transparent)]
    PrivateData(#[from] TooLong),
    /// The queue pair has a connection, or one in timewait (ROCE-149).
    #[error("the queue pair has a connection, or had one a moment ago")]
    QueuePairInUse,
    /// Not a number that a queue pair can have (ROCE-181).
    #[error("no queue pair has that number")]
    QueuePair,
    /// Another listener has the service.
    #[error("there is a listener for that service")]
    ServiceInUse,
    /// Source and destination are of different families, or the type of queue pair does not fit.
    #[error("the addresses or the type of queue pair do not fit")]
    Invalid,
}
