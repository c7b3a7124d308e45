// SPDX-License-Identifier: MIT OR Apache-2.0

//! One connection: its state, and the messages that it sends.

use alloc::boxed::Box;
use core::time::Duration;

use iwarp_types::{Access, AddressVector, QpId, Time};

use super::event::{CommId, Event, EventKind};
use super::listener::BacklogSlot;
use super::mad::{MAD_LEN, Mad};
use super::message::{Apr, Drep, Dreq, Message, Mra, PrivateData, Rej, Rejected};
use super::reason::RejectReason;
use super::time::TimeCode;
use super::way;
use crate::config::Attributes;
use crate::wire::{Mtu, Path, Pkey, Psn, RnrTimer};

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CmState {
    /// The REQ is out.
    ReqSent(Retry),
    /// The program has been told of the REQ.
    ReqReceived(Patience),
    /// The program has been told of the REP.
    RepReceived(Patience),
    /// The REP is out.
    RepSent(Retry),
    /// Ready to use.
    Established,
    /// The DREQ is out.
    DreqSent(Retry),
    /// Over, except for packets that are still under way.
    Timewait,
    /// Refused by this end; the REJ is kept for repeated messages.
    Refused,
}

/// Repetition of a message until its answer comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Retry {
    /// Times that it may be sent again.
    pub(super) left: u8,
    /// Set if the peer has asked for time since the message was last sent; for a REP, since it was
    /// first sent.
    pub(super) extended: bool,
}

impl Retry {
    pub(super) fn new(left: u8) -> Self {
        Self { left, extended: false }
    }
}

/// The wait of the peer for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    /// Set if the peer has been asked for time.
    pub(super) asked: bool,
    /// Time from which the peer cannot be waiting any more.
    pub(super) gone: Time,
}

/// The known facts for the setup of the queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) address: AddressVector,
    pub(super) pkey: Pkey,
    pub(super) mtu: Mtu,
    /// Chosen by the peer (ROCE-147).
    pub(super) sq_psn: Psn,
    /// Chosen here, for the peer.
    pub(super) rq_psn: Psn,
    pub(super) ack_timeout: TimeCode,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    /// Reads and Atomics of this end's.
    pub(super) depth: u8,
    /// Reads and Atomics of the peer's.
    pub(super) resources: u8,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u32,
    /// Unknown until the peer has answered.
    pub(super) remote_id: Option<u32>,
    /// Set if this end sent the REQ.
    pub(super) active: bool,
    pub(super) state: CmState,
    /// The way to the peer's connection manager.
    pub(super) way: Path,
    pub(super) tid: u64,
    /// GUID of the peer's device.
    pub(super) guid: u64,
    pub(super) remote_qpn: u32,
    pub(super) qp: Option<QpId>,
    pub(super) setup: Setup,
    /// Time after which a message is sent again.
    pub(super) interval: Duration,
    pub(super) retries: u8,
    /// The time that the peer waits for this end's answers.
    pub(super) peer_waits: Duration,
    /// The message that is sent again.
    pub(super) stored: Option<Box<[u8; MAD_LEN]>>,
    /// Its place among the requests that wait for the program's answer or the peer's RTU.
    pub(super) slot: Option<BacklogSlot>,
    /// Set if the REQ is of our own kind, and so is the REP (ROCE-172).
    pub(super) own_kind: bool,
    /// Set if the program wants no more events of it.
    pub(super) silent: bool,
}

impl Connection {
    /// The peer's communication id, in messages; 0 if unknown.
    pub(super) fn peer_id(&self) -> u32 {
        self.remote_id.unwrap_or_default()
    }

    pub(super) fn is_with(&self, remote_id: u32) -> bool {
        self.remote_id == Some(remote_id)
    }

    pub(super) fn event(&self, kind: EventKind) -> Option<Event> {
        (!self.silent).then_some(Event { id: CommId(self.id), kind })
    }

    /// A datagram about this connection, with the transaction id of the REQ.
    pub(super) fn mad(&self, message: impl Into<Message>) -> Mad {
        Mad { tid: self.tid, modifier: 0, message: message.into() }
    }

    pub(super) fn store(&mut self, mad: &Mad) -> [u8; MAD_LEN] {
        let octets = mad.write();
        self.stored = Some(Box::new(octets));
        octets
    }

    /// A REJ. `guid` is this end's, told if it gives up waiting.
    pub(super) fn rej(
        &self,
        rejected: Rejected,
        reason: RejectReason,
        guid: Option<u64>,
        private_data: [u8; 148],
    ) -> Mad {
        let mut info = [0; 72];
        let mut info_len = 0;
        if let Some(guid) = guid {
            info[..8].copy_from_slice(&guid.to_be_bytes());
            info_len = 8;
        }
        let local_comm_id =
            if matches!(self.state, CmState::ReqReceived(Patience { asked: false, .. })) {
                0
            } else {
                self.id
            };
        let remote_comm_id = self.peer_id();
        self.mad(Rej {
            local_comm_id,
            remote_comm_id,
            rejected,
            info_len,
            reason,
            info,
            private_data,
        })
    }

    pub(super) fn mra(&self, received: Rejected, service_timeout: TimeCode) -> Mad {
        self.mad(Mra {
            local_comm_id: self.id,
            remote_comm_id: self.peer_id(),
            received,
            service_timeout,
            private_data: [0; 222],
        })
    }

    pub(super) fn dreq(&self, tid: u64, private_data: [u8; 220]) -> Mad {
        let message = Dreq {
            local_comm_id: self.id,
            remote_comm_id: self.peer_id(),
            remote_qpn: self.remote_qpn,
            private_data,
        };
        Mad { tid, modifier: 0, message: message.into() }
    }

    /// The duration of timewait, during which ids and queue pair are not used again (ROCE-148,
    /// ROCE-149).
    ///
    /// The peer chose the ACK timeout, so the duration is limited.
    pub(super) fn timewait(&self) -> Duration {
        self.setup.ack_timeout.min(LONGEST_TIMEWAIT).duration()
    }

    /// The attributes with which the queue pair is to be set up, as by Linux's connection manager
    /// (ROCE-164, ROCE-165).
    pub(super) fn attributes(&self) -> Attributes {
        let setup = &self.setup;
        let own = self.qp.map_or(0, |QpId(qp)| qp);
        let port = way::source_port(setup.address.flow_label, own, self.remote_qpn);
        Attributes {
            path: Path {
                address: setup.address,
                source_port: port,
                destination_port: self.way.destination_port,
            },
            dest_qp: self.remote_qpn,
            pkey: setup.pkey,
            mtu: setup.mtu,
            sq_psn: setup.sq_psn,
            rq_psn: setup.rq_psn,
            timeout: setup.ack_timeout.code(),
            retry_count: setup.retry_count,
            rnr_retry: setup.rnr_retry,
            min_rnr_timer: RnrTimer::new(0),
            max_rd_atomic: setup.depth,
            max_dest_rd_atomic: setup.resources,
            access: access(setup.resources),
            qkey: 0,
        }
    }
}

/// The rights of the peer, with so many Reads and Atomics at a time (ROCE-167).
pub(super) fn access(resources: u8) -> Access {
    if resources > 0 { Access::REMOTE } else { Access::REMOTE_WRITE }
}

/// 69 s.
const LONGEST_TIMEWAIT: TimeCode = TimeCode::new(24);

/// The answer to a DREQ (ROCE-159).
pub(super) fn drep(tid: u64, dreq: &Dreq) -> Mad {
    let message = Drep {
        local_comm_id: dreq.remote_comm_id,
        remote_comm_id: dreq.local_comm_id,
        private_data: [0; 224],
    };
    Mad { tid, modifier: 0, message: message.into() }
}

/// The answer to a LAP (ROCE-169).
pub(super) fn apr(tid: u64, local_comm_id: u32, remote_comm_id: u32) -> Mad {
    let status = super::message::APR_UNSUPPORTED;
    let message = Apr { local_comm_id, remote_comm_id, info_len: 0, status, rest: [0; 220] };
    Mad { tid, modifier: 0, message: message.into() }
}

/// A REJ of a message that belongs to no connection here.
pub(super) fn stray(
    tid: u64,
    local_comm_id: u32,
    remote_comm_id: u32,
    rejected: Rejected,
    reason: RejectReason,
) -> Mad {
    let message = Rej {
        local_comm_id,
        remote_comm_id,
        rejected,
        info_len: 0,
        reason,
        info: [0; 72],
        private_data: [0; 148],
    };
    Mad { tid, modifier: 0, message: message.into() }
}

/// The event of a REJ.
pub(super) fn rejected(rej: &Rej, timewait: bool) -> EventKind {
    let private_data = PrivateData::of(&rej.private_data);
    EventKind::Rejected { reason: rej.reason, private_data, timewait }
}
