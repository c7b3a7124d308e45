// SPDX-License-Identifier: MIT OR Apache-2.0

//! REQ: a peer asks for a connection.

use alloc::boxed::Box;

use iwarp_types::{AddressVector, Time};

use super::super::connection::{CmState, Connection, Patience, Setup, stray};
use super::super::event::{Ece, EventKind, ListenerId, Request};
use super::super::listener::Listener;
use super::super::mad::Mad;
use super::super::message::{
    CMA_HEADER_LEN, CmaHeader, PrivateData, Rejected, Req, TransportType, gid,
};
use super::super::own_kind::{OwnKind, Role, Told};
use super::super::reason::RejectReason;
use super::super::settings::Random;
use super::super::way;
use super::Manager;
use super::calls::believed;
use crate::wire::{MULTICAST_QP, Mtu, Path, Pkey, Psn, Transport};

/// A REQ that may be reported to the program.
struct Admitted {
    listener: ListenerId,
    transport: Transport,
    mtu: Mtu,
    header: Option<CmaHeader>,
}

impl<R: Random> Manager<R> {
    pub(super) fn on_req(
        &mut self,
        (tid, modifier): (u64, u32),
        req: &Req,
        path: &Path,
        now: Time,
    ) {
        let back = way::back(path);
        if let Some(id) = self.table.by_remote_id(req.local_ca_guid, req.local_comm_id) {
            if !self.was_refused_before(id, tid, path) {
                return self.on_repeated_req(id, tid, req, path, now);
            }
            self.forget(id);
        }
        let refuse = |reason| stray(tid, 0, req.local_comm_id, Rejected::Req, reason);
        if let Some(stale) = self.table.by_remote_qp(req.local_ca_guid, req.local_qpn) {
            self.answer(back, &refuse(RejectReason::StaleConnection));
            return self.end_stale(stale, path, now);
        }
        if !matches!(req.local_qpn, 2..MULTICAST_QP) || req.local_comm_id == 0 {
            self.dropped += 1;
            return;
        }
        let admitted = match self.admit(req, path) {
            Ok(admitted) => admitted,
            Err(reason) => {
                let mad = Mad { tid, modifier, message: (*req).into() };
                let waits = reason == RejectReason::InvalidServiceId
                    && self.vacancies.hold(req.service_id, path, mad, now);
                if !waits {
                    self.answer(back, &refuse(reason));
                }
                return;
            }
        };
        let (here, there) = (path.address.destination, path.address.source);
        let slot = self.listeners.enter(req.service_id, false, here, there);
        let (Some(slot), Some(id)) = (slot, self.fresh_id()) else {
            // The peer asks again, when some of the waiting requests have been answered.
            self.dropped += 1;
            if let Some(slot) = slot {
                self.listeners.leave(slot);
            }
            return;
        };
        let told = Told { vendor_id: req.vendor_id, options: modifier, qkey: req.local_qkey };
        let own_kind = OwnKind::read(told, Role::Request);
        let mut connection = self.requested(id, tid, req, &admitted, back);
        connection.slot = Some(slot);
        connection.own_kind = own_kind.is_some();
        let (patience, deadline) = self.await_program(connection.peer_waits, now);
        connection.state = CmState::ReqReceived(patience);
        let skipped = if admitted.header.is_some() { CMA_HEADER_LEN } else { 0 };
        let request = Request {
            listener: admitted.listener,
            service: req.service_id,
            transport: admitted.transport,
            path: connection.attributes().path,
            peer: admitted.header.map(|header| (header.source, header.source_port)),
            remote_qp: req.local_qpn,
            responder_resources: connection.setup.resources,
            initiator_depth: connection.setup.depth,
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry,
            flow_control: req.flow_control,
            srq: req.srq,
            ece: Ece { vendor_id: req.vendor_id, options: modifier },
            own_kind,
            private_data: PrivateData::of(&req.private_data[skipped..]),
        };
        let event = connection.event(EventKind::ConnectRequest(Box::new(request)));
        self.table.insert(connection);
        self.table.set_deadline(id, Some(deadline));
        self.tell(event);
    }

    /// True if the id was that of another REQ, which was refused and which the peer has forgotten.
    fn was_refused_before(&self, id: u32, tid: u64, path: &Path) -> bool {
        self.table.get(id).is_some_and(|refused| {
            refused.state == CmState::Refused
                && !refused.active
                && refused.tid != tid
                && way::is_from(path, &refused.way)
        })
    }

    /// The connection that a REQ describes, from this end's view.
    fn requested(
        &mut self,
        id: u32,
        tid: u64,
        req: &Req,
        admitted: &Admitted,
        back: Path,
    ) -> Connection {
        let address = AddressVector {
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            ..back.address
        };
        Connection {
            id,
            remote_id: Some(req.local_comm_id),
            active: false,
            state: CmState::Established,
            way: back,
            tid,
            guid: req.local_ca_guid,
            remote_qpn: req.local_qpn,
            qp: None,
            setup: Setup {
                address,
                pkey: Pkey::DEFAULT,
                mtu: admitted.mtu,
                sq_psn: req.starting_psn,
                rq_psn: Psn::new(self.random.next()),
                ack_timeout: req.primary.local_ack_timeout,
                retry_count: req.retry_count,
                rnr_retry: req.rnr_retry,
                depth: req.responder_resources,
                resources: req.initiator_depth,
            },
            interval: believed(req.local_response_timeout.duration()),
            retries: req.max_cm_retries,
            peer_waits: believed(req.remote_response_timeout.duration()),
            stored: None,
            slot: None,
            own_kind: false,
            silent: false,
        }
    }

    /// Checks that a REQ may be reported to the program; else gives the reason (ROCE-152,
    /// ROCE-168).
    fn admit(&self, req: &Req, path: &Path) -> Result<Admitted, RejectReason> {
        let (here, there) = (path.address.destination, path.address.source);
        let listener = self
            .listeners
            .find(req.service_id, false, here)
            .ok_or(RejectReason::InvalidServiceId)?;
        let transport = match req.transport {
            TransportType::Rc => Transport::Rc,
            TransportType::Uc => Transport::Uc,
            TransportType::Rd | TransportType::Extended => {
                return Err(RejectReason::InvalidTransport);
            }
        };
        if transport != listener.transport {
            return Err(RejectReason::InvalidTransport);
        }
        let (to, from) = (req.primary.remote_gid, req.primary.local_gid);
        if to != gid(here.to_canonical()) || from != gid(there.to_canonical()) {
            return Err(RejectReason::InvalidGid);
        }
        if !Pkey::DEFAULT.admits(req.pkey) {
            return Err(RejectReason::Unsupported);
        }
        let mtu = Mtu::from_code(req.mtu).filter(|mtu| *mtu <= self.mtu(here));
        Ok(Admitted {
            listener: listener.id,
            transport,
            mtu: mtu.ok_or(RejectReason::InvalidMtu)?,
            header: header(listener, &req.private_data, path)?,
        })
    }

    /// Answers a repeated REQ as before, if it was answered (ROCE-153).
    fn on_repeated_req(&mut self, id: u32, tid: u64, req: &Req, path: &Path, now: Time) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if !way::is_from(path, &connection.way) || connection.active {
            self.dropped += 1;
            return;
        }
        let back = connection.way;
        match connection.state {
            CmState::ReqReceived(patience) => {
                let waits = connection.peer_waits;
                let again = patience
                    .asked
                    .then(|| connection.mra(Rejected::Req, self.settings.service_timeout));
                let patience = Patience { gone: self.gone(waits, now), ..patience };
                if let Some(mra) = again {
                    self.answer(back, &mra);
                    self.enter(id, CmState::ReqReceived(patience), Some(patience.gone));
                } else if let Some(connection) = self.table.get_mut(id) {
                    connection.state = CmState::ReqReceived(patience);
                }
            }
            CmState::RepSent(_) | CmState::Established | CmState::Refused => {
                let stored = connection.stored.as_deref().copied();
                if let Some(octets) = stored {
                    self.send(back, octets);
                }
            }
            CmState::DreqSent(_) | CmState::Timewait => {
                let reason = RejectReason::StaleConnection;
                let rej = stray(tid, id, req.local_comm_id, Rejected::Req, reason);
                self.answer(back, &rej);
            }
            CmState::ReqSent(_) | CmState::RepReceived(_) => {}
        }
    }

    /// Ends an old connection: the peer has a new one with its queue pair (ROCE-154).
    ///
    /// Only for a message from that peer's address: GUID and queue pair are no secrets.
    pub(super) fn end_stale(&mut self, id: u32, path: &Path, now: Time) {
        let Some(connection) = self.table.get(id) else { return };
        let same = way::is_from(path, &connection.way);
        if same && connection.state == CmState::Established {
            self.start_dreq(id, [0; 220], now);
        }
    }
}

/// The header with IP addresses, for a listener that wants one.
pub(super) fn header(
    listener: &Listener,
    private_data: &[u8],
    path: &Path,
) -> Result<Option<CmaHeader>, RejectReason> {
    if !listener.header {
        return Ok(None);
    }
    // Linux's answer to a header that it does not understand.
    let header = CmaHeader::read(private_data).ok_or(RejectReason::Consumer)?;
    let fits = header.source.to_canonical() == path.address.source.to_canonical()
        && header.destination.to_canonical() == path.address.destination.to_canonical();
    if fits { Ok(Some(header)) } else { Err(RejectReason::Consumer) }
}
