// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages about connections that exist.

use alloc::boxed::Box;

use iwarp_types::Time;

use super::super::connection::{CmState, Connection, Patience, Retry, apr, drep, rejected, stray};
use super::super::event::{Ece, EventKind, Response};
use super::super::mad::Mad;
use super::super::message::{Drep, Dreq, Lap, Message, Mra, PrivateData, Rej, Rejected, Rep, Rtu};
use super::super::own_kind::{OwnKind, Role, Told};
use super::super::reason::RejectReason;
use super::super::settings::Random;
use super::super::time::TimeCode;
use super::super::way;
use super::Manager;
use crate::wire::{MULTICAST_QP, Path};

impl<R: Random> Manager<R> {
    /// Takes a datagram that came to queue pair 1 by `path`, whose source is the sender. A wrong
    /// one is dropped (ROCE-145), or refused if there is an answer for it.
    pub fn receive(&mut self, octets: &[u8], path: &Path, now: Time) {
        let Ok(Mad { tid, modifier, message }) = Mad::parse(octets) else {
            self.dropped += 1;
            return;
        };
        match message {
            Message::Req(req) => self.on_req((tid, modifier), &req, path, now),
            Message::Rep(rep) => self.on_rep((tid, modifier), &rep, path, now),
            Message::Rtu(rtu) => self.on_rtu(tid, &rtu, path),
            Message::Mra(mra) => self.on_mra(tid, &mra, path, now),
            Message::Rej(rej) => self.on_rej(&rej, path, now),
            Message::Dreq(dreq) => self.on_dreq(tid, &dreq, path, now),
            Message::Drep(drep) => self.on_drep(&drep, path, now),
            Message::SidrReq(req) => self.on_sidr_req(tid, &req, path, now),
            Message::SidrRep(rep) => self.on_sidr_rep(&rep, path),
            Message::Lap(lap) => self.on_lap(tid, &lap, path),
            // This end sends no LAP.
            Message::Apr(_) => self.dropped += 1,
        }
    }

    /// The connection of an id, if the datagram came from the end that it is with.
    fn genuine(&mut self, id: u32, path: &Path) -> Option<&mut Connection> {
        let found = self.table.get(id).is_some_and(|one| way::is_from(path, &one.way));
        if !found {
            self.dropped += 1;
            return None;
        }
        self.table.get_mut(id)
    }

    /// The connection that both ids belong to.
    fn between(&mut self, id: u32, remote_id: u32, path: &Path) -> Option<&mut Connection> {
        if !self.table.get(id).is_some_and(|one| one.is_with(remote_id)) {
            self.dropped += 1;
            return None;
        }
        self.genuine(id, path)
    }

    fn on_rep(&mut self, (tid, modifier): (u64, u32), rep: &Rep, path: &Path, now: Time) {
        let (id, remote_id) = (rep.remote_comm_id, rep.local_comm_id);
        if self.table.get(id).is_none() {
            let reason = RejectReason::InvalidCommId;
            let rej = stray(tid, id, remote_id, Rejected::Rep, reason);
            return self.answer(way::back(path), &rej);
        }
        let service_timeout = self.settings.service_timeout;
        let Some(connection) = self.genuine(id, path) else { return };
        let way = connection.way;
        let again = match connection.state {
            CmState::ReqSent(_) => return self.on_first_rep((tid, modifier), rep, path, now),
            _ if !connection.active || !connection.is_with(remote_id) => None,
            CmState::RepReceived(patience) => {
                let mra = connection.mra(Rejected::Rep, service_timeout).write();
                let waits = connection.peer_waits;
                let gone = self.gone(waits, now);
                let deadline = patience.asked.then_some(gone);
                if let Some(connection) = self.table.get_mut(id) {
                    connection.state = CmState::RepReceived(Patience { gone, ..patience });
                }
                if deadline.is_some() {
                    self.table.set_deadline(id, deadline);
                }
                deadline.map(|_| mra)
            }
            CmState::Established | CmState::Refused => connection.stored.as_deref().copied(),
            // The peer must not wait for an RTU.
            CmState::Timewait => {
                let reason = RejectReason::StaleConnection;
                Some(stray(tid, id, remote_id, Rejected::Rep, reason).write())
            }
            _ => None,
        };
        if let Some(octets) = again {
            self.send(way, octets);
        }
    }

    fn on_first_rep(&mut self, (tid, modifier): (u64, u32), rep: &Rep, path: &Path, now: Time) {
        let (id, remote_id) = (rep.remote_comm_id, rep.local_comm_id);
        if !matches!(rep.local_qpn, 2..MULTICAST_QP) || remote_id == 0 {
            self.dropped += 1;
            return;
        }
        let guid = rep.local_ca_guid;
        let known = self.table.by_remote_id(guid, remote_id).is_some();
        let stale = self.table.by_remote_qp(guid, rep.local_qpn);
        if known || stale.is_some() {
            let reason = RejectReason::StaleConnection;
            self.answer(way::back(path), &stray(tid, id, remote_id, Rejected::Rep, reason));
            if let Some(stale) = stale {
                self.end_stale(stale, path, now);
            }
            return;
        }
        let told = Told { vendor_id: rep.vendor_id, options: modifier, qkey: rep.local_qkey };
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.remote_id = Some(remote_id);
        connection.guid = guid;
        connection.remote_qpn = rep.local_qpn;
        let setup = &mut connection.setup;
        setup.sq_psn = rep.starting_psn;
        setup.rnr_retry = rep.rnr_retry;
        setup.depth = setup.depth.min(rep.responder_resources);
        setup.resources = setup.resources.min(rep.initiator_depth);
        let lifetime = TimeCode::new(setup.ack_timeout.code().saturating_sub(1));
        setup.ack_timeout = TimeCode::ack_timeout(rep.target_ack_delay, lifetime);
        let response = Response {
            attributes: connection.attributes(),
            responder_resources: connection.setup.resources,
            initiator_depth: connection.setup.depth,
            flow_control: rep.flow_control,
            srq: rep.srq,
            ece: Ece { vendor_id: rep.vendor_id, options: modifier },
            own_kind: OwnKind::read(told, Role::Reply),
            private_data: PrivateData::of(&rep.private_data),
        };
        connection.stored = None;
        let event = connection.event(EventKind::ConnectResponse(Box::new(response)));
        let waits = connection.peer_waits;
        let (patience, deadline) = self.await_program(waits, now);
        self.table.meet(id);
        self.enter(id, CmState::RepReceived(patience), Some(deadline));
        self.tell(event);
    }

    fn on_rtu(&mut self, tid: u64, rtu: &Rtu, path: &Path) {
        let (id, remote_id) = (rtu.remote_comm_id, rtu.local_comm_id);
        if self.table.get(id).is_none() {
            // The connection was given up here, and the REJ was lost: the peer still believes in
            // it.
            let reason = RejectReason::InvalidCommId;
            let rej = stray(tid, id, remote_id, Rejected::Other, reason);
            return self.answer(way::back(path), &rej);
        }
        if self.between(id, remote_id, path).is_some() {
            self.establish(id, PrivateData::of(&rtu.private_data));
        }
    }

    /// Establishes the connection: the peer has had the REP.
    pub(super) fn establish(&mut self, id: u32, private_data: PrivateData) {
        let Some(connection) = self.table.get(id) else { return };
        if matches!(connection.state, CmState::RepSent(_)) {
            let event = connection.event(EventKind::Established { private_data });
            self.free_slot(id);
            self.enter(id, CmState::Established, None);
            self.tell(event);
        }
    }

    fn on_mra(&mut self, tid: u64, mra: &Mra, path: &Path, now: Time) {
        let lifetime = self.settings.packet_lifetime.duration();
        let (id, remote_id) = (mra.remote_comm_id, mra.local_comm_id);
        if self.table.get(id).is_none() {
            // As with an RTU: the connection that the peer needs time for was given up.
            let rejected =
                if mra.received == Rejected::Rep { Rejected::Rep } else { Rejected::Other };
            let reason = RejectReason::InvalidCommId;
            let rej = stray(tid, id, remote_id, rejected, reason);
            return self.answer(way::back(path), &rej);
        }
        let Some(connection) = self.genuine(id, path) else { return };
        let state = match (connection.state, mra.received) {
            (CmState::ReqSent(retry), Rejected::Req) if !retry.extended => {
                CmState::ReqSent(Retry { extended: true, ..retry })
            }
            (CmState::RepSent(retry), Rejected::Rep)
                if !retry.extended && connection.is_with(remote_id) =>
            {
                CmState::RepSent(Retry { extended: true, ..retry })
            }
            _ => return,
        };
        let asked = mra.service_timeout.min(self.settings.service_timeout);
        let deadline = now.plus(asked.duration()).plus(lifetime);
        self.enter(id, state, Some(deadline));
    }

    fn on_rej(&mut self, rej: &Rej, path: &Path, now: Time) {
        let gave_up = rej.reason == RejectReason::Timeout;
        let id = if gave_up && rej.remote_comm_id == 0 {
            // The peer does not know this end's id, having had no answer.
            self.table.by_remote_id(rej.guid(), rej.local_comm_id).unwrap_or_default()
        } else {
            rej.remote_comm_id
        };
        let Some(connection) = self.genuine(id, path) else { return };
        let ours = connection.is_with(rej.local_comm_id);
        // `timewait`: true if timewait follows; else the queue pair may be used at once.
        let stale = rej.reason == RejectReason::StaleConnection;
        let timewait = match connection.state {
            CmState::ReqSent(_) if rej.rejected != Rejected::Rep => stale,
            CmState::ReqReceived(_) if ours => false,
            CmState::RepSent(_) if ours => stale,
            CmState::RepReceived(_) | CmState::Established | CmState::DreqSent(_)
                if ours && rej.rejected != Rejected::Req =>
            {
                true
            }
            _ => return,
        };
        if matches!(connection.state, CmState::DreqSent(_)) {
            return self.disconnected(id, PrivateData::EMPTY, now);
        }
        let event = connection.event(rejected(rej, timewait));
        self.tell(event);
        if timewait {
            self.enter_timewait(id, now);
        } else {
            self.forget(id);
        }
    }

    fn on_dreq(&mut self, tid: u64, dreq: &Dreq, path: &Path, now: Time) {
        let (id, remote_id) = (dreq.remote_comm_id, dreq.local_comm_id);
        if !self.table.get(id).is_some_and(|one| one.is_with(remote_id)) {
            return self.answer(way::back(path), &drep(tid, dreq));
        }
        let Some(connection) = self.genuine(id, path) else { return };
        let way = connection.way;
        let ours = connection.qp.is_some_and(|qp| qp.0 == dreq.remote_qpn);
        let over = match connection.state {
            CmState::Refused => true,
            _ if !ours => return,
            CmState::Timewait => true,
            CmState::RepSent(_)
            | CmState::RepReceived(_)
            | CmState::Established
            | CmState::DreqSent(_) => false,
            CmState::ReqSent(_) | CmState::ReqReceived(_) => return,
        };
        self.answer(way, &drep(tid, dreq));
        if !over {
            self.disconnected(id, PrivateData::of(&dreq.private_data), now);
        }
    }

    fn on_drep(&mut self, drep: &Drep, path: &Path, now: Time) {
        let (id, remote_id) = (drep.remote_comm_id, drep.local_comm_id);
        let Some(connection) = self.between(id, remote_id, path) else { return };
        if matches!(connection.state, CmState::DreqSent(_)) {
            self.disconnected(id, PrivateData::of(&drep.private_data), now);
        }
    }

    fn on_lap(&mut self, tid: u64, lap: &Lap, path: &Path) {
        let (id, remote_id) = (lap.remote_comm_id, lap.local_comm_id);
        let Some(connection) = self.between(id, remote_id, path) else { return };
        if connection.state == CmState::Established {
            let way = connection.way;
            self.answer(way, &apr(tid, id, remote_id));
        }
    }
}
