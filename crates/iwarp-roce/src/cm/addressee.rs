// SPDX-License-Identifier: MIT OR Apache-2.0

//! The destination of a datagram, where several processes share queue pair 1.

use super::mad::Mad;
use super::message::Message;
use super::reason::RejectReason;
use super::service::ServiceId;

/// The process that is to have a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The one that chose this communication id, one of its
    /// [`Settings::comm_ids`](super::Settings::comm_ids).
    CommId(u32),
    /// The one that listens for connections to this service.
    Service(ServiceId),
    /// The one that listens for SIDR requests for this datagram service.
    Datagrams(ServiceId),
    /// Unknown: all processes are to have it.
    Anyone,
}

impl Addressee {
    /// The destination of a datagram; `None` if it is no message of the connection manager.
    ///
    /// A repeated REQ goes to its listener again, which knows its answer (ROCE-153).
    pub fn of(octets: &[u8]) -> Option<Self> {
        let id = match Mad::parse(octets).ok()?.message {
            Message::Req(req) => return Some(Self::Service(req.service_id)),
            Message::SidrReq(req) => return Some(Self::Datagrams(req.service_id)),
            // A requester that gave up waiting for a REP does not know the acceptor's id.
            Message::Rej(rej) if rej.reason == RejectReason::Timeout && rej.remote_comm_id == 0 => {
                return Some(Self::Anyone);
            }
            Message::Mra(mra) => mra.remote_comm_id,
            Message::Rej(rej) => rej.remote_comm_id,
            Message::Rep(rep) => rep.remote_comm_id,
            Message::Rtu(rtu) => rtu.remote_comm_id,
            Message::Dreq(dreq) => dreq.remote_comm_id,
            Message::Drep(drep) => drep.remote_comm_id,
            Message::SidrRep(rep) => rep.request_id,
            Message::Lap(lap) => lap.remote_comm_id,
            Message::Apr(apr) => apr.remote_comm_id,
        };
        Some(Self::CommId(id))
    }
}
