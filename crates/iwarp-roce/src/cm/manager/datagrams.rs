// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIDR, requests for datagram services: both ends.

use alloc::boxed::Box;

use iwarp_types::Time;

use super::super::call::{Answer, CallError, Resolve};
use super::super::event::{CommId, Ece, Event, EventKind, Request, Resolved, Unreachable};
use super::super::mad::Mad;
use super::super::message::{
    CMA_HEADER_LEN, PrivateData, SidrRep, SidrReq, SidrStatus, field, limits,
};
use super::super::settings::Random;
use super::super::sidr::{Sidr, SidrState, rep};
use super::super::time::TimeCode;
use super::super::way;
use super::Manager;
use super::calls::headed;
use super::request::header;
use crate::wire::{MULTICAST_QP, Path, Pkey, Transport};

/// Time that an answer is kept: 8.6 s, in which a Linux peer asks twice more.
const KEPT: TimeCode = TimeCode::new(21);

impl<R: Random> Manager<R> {
    /// Asks for the queue pair of a datagram service. `Resolved` or `Unreachable` follows.
    ///
    /// # Errors
    ///
    /// [`CallError`]: too much private data.
    pub fn resolve(&mut self, resolve: &Resolve<'_>, now: Time) -> Result<CommId, CallError> {
        let Resolve { path, service, source_port, private_data } = *resolve;
        let private_data = headed(&path, source_port, private_data, limits::SIDR_REQ)?;
        let id = self.fresh_id().ok_or(CallError::Invalid)?;
        let tid = self.fresh_tid(id);
        let message =
            SidrReq { request_id: id, pkey: Pkey::DEFAULT, service_id: service, private_data };
        let octets = Mad { tid, modifier: 0, message: message.into() }.write();
        let sidr = Sidr {
            id,
            request_id: id,
            state: SidrState::Asked(self.settings.retries()),
            way: path,
            tid,
            service,
            stored: Some(Box::new(octets)),
            slot: None,
        };
        self.table.insert_sidr(sidr, false);
        self.table.set_deadline(id, Some(now.plus(self.settings.interval())));
        self.send(path, octets);
        Ok(CommId(id))
    }

    /// Answers a peer's SIDR_REQ (ROCE-170). The id is forgotten.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub fn answer_datagrams(
        &mut self,
        id: CommId,
        answer: &Answer<'_>,
        now: Time,
    ) -> Result<(), CallError> {
        if !matches!(answer.qp.0, 2..MULTICAST_QP) {
            return Err(CallError::QueuePair);
        }
        let private_data = field(answer.private_data, limits::SIDR_REP)?;
        let service = (answer.qp.0, answer.qkey);
        self.answer_sidr(id, SidrStatus::Valid, service, private_data, now)
    }

    pub(super) fn refuse_datagrams(
        &mut self,
        id: CommId,
        private_data: &[u8],
        now: Time,
    ) -> Result<(), CallError> {
        let private_data = field(private_data, limits::SIDR_REP)?;
        self.answer_sidr(id, SidrStatus::Refused, (0, 0), private_data, now)
    }

    fn answer_sidr(
        &mut self,
        id: CommId,
        status: SidrStatus,
        service: (u32, u32),
        private_data: [u8; limits::SIDR_REP],
        now: Time,
    ) -> Result<(), CallError> {
        let sidr = self.table.sidr_mut(id.0).ok_or(CallError::Unknown)?;
        if sidr.state != SidrState::Received {
            return Err(CallError::State);
        }
        let answer = rep(sidr.tid, sidr.request_id, sidr.service, status, service, private_data);
        let octets = answer.write();
        sidr.stored = Some(Box::new(octets));
        sidr.state = SidrState::Answered;
        let way = sidr.way;
        self.free_slot(id.0);
        self.table.set_deadline(id.0, Some(now.plus(KEPT.duration())));
        self.send(way, octets);
        self.table.keep_answer(id.0, self.settings.stored_answers);
        Ok(())
    }

    pub(super) fn close_sidr(&mut self, id: CommId, now: Time) {
        match self.table.sidr(id.0).map(|sidr| sidr.state) {
            Some(SidrState::Asked(_)) => self.forget_sidr(id.0),
            // The private data are short enough, so this succeeds.
            Some(SidrState::Received) => _ = self.refuse_datagrams(id, &[], now),
            Some(SidrState::Answered) | None => {}
        }
    }

    fn forget_sidr(&mut self, id: u32) {
        self.free_slot(id);
        self.table.remove_sidr(id);
    }

    pub(super) fn on_sidr_req(&mut self, tid: u64, req: &SidrReq, path: &Path, now: Time) {
        let back = way::back(path);
        let peer = back.address.destination;
        if let Some(id) = self.table.by_request(peer, req.request_id) {
            let known = self.table.sidr(id).filter(|sidr| way::is_from(path, &sidr.way));
            let answered = known.filter(|sidr| sidr.state == SidrState::Answered);
            let Some(answered) = answered else { return };
            if answered.tid == tid {
                if let Some(octets) = answered.stored.as_deref().copied() {
                    self.send(back, octets);
                }
                return;
            }
            // Another request: the peer has forgotten the one that had this id.
            self.forget_sidr(id);
        }
        let (here, there) = (path.address.destination, path.address.source);
        let refuse = |status| rep(tid, req.request_id, req.service_id, status, (0, 0), [0; 136]);
        let Some(listener) = self.listeners.find(req.service_id, true, here) else {
            let mad = Mad { tid, modifier: 0, message: (*req).into() };
            if !self.vacancies.hold(req.service_id, path, mad, now) {
                self.answer(back, &refuse(SidrStatus::NoService));
            }
            return;
        };
        let header = header(listener, &req.private_data, path);
        let (Ok(header), true) = (header, Pkey::DEFAULT.admits(req.pkey)) else {
            return self.answer(back, &refuse(SidrStatus::Refused));
        };
        let slot = self.listeners.enter(req.service_id, true, here, there);
        let (Some(slot), Some(id)) = (slot, self.fresh_id()) else {
            self.dropped += 1;
            if let Some(slot) = slot {
                self.listeners.leave(slot);
            }
            return;
        };
        let skipped = if header.is_some() { CMA_HEADER_LEN } else { 0 };
        let request = Request {
            listener: slot.listener,
            service: req.service_id,
            transport: Transport::Ud,
            path: back,
            peer: header.map(|header| (header.source, header.source_port)),
            remote_qp: 0,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry: 0,
            flow_control: false,
            srq: false,
            ece: Ece::default(),
            own_kind: None,
            private_data: PrivateData::of(&req.private_data[skipped..]),
        };
        let sidr = Sidr {
            id,
            request_id: req.request_id,
            state: SidrState::Received,
            way: back,
            tid,
            service: req.service_id,
            stored: None,
            slot: Some(slot),
        };
        self.table.insert_sidr(sidr, true);
        // SIDR has no MRA, so the peer cannot be asked for time.
        let deadline = now.plus(self.settings.service_timeout.duration());
        self.table.set_deadline(id, Some(deadline));
        let kind = EventKind::ConnectRequest(Box::new(request));
        self.tell(Some(Event { id: CommId(id), kind }));
    }

    pub(super) fn on_sidr_rep(&mut self, rep: &SidrRep, path: &Path) {
        let id = rep.request_id;
        let asked = self.table.sidr(id).filter(|sidr| {
            matches!(sidr.state, SidrState::Asked(_))
                && sidr.service == rep.service_id
                && way::is_from(path, &sidr.way)
        });
        let Some(sidr) = asked else {
            self.dropped += 1;
            return;
        };
        let kind = match rep.status {
            SidrStatus::Valid if matches!(rep.qpn, 2..MULTICAST_QP) => {
                EventKind::Resolved(Box::new(Resolved {
                    path: sidr.way,
                    qp: rep.qpn,
                    qkey: rep.qkey,
                    private_data: PrivateData::of(&rep.private_data),
                }))
            }
            SidrStatus::Valid => {
                EventKind::Unreachable(Unreachable::Service(SidrStatus::NoQueuePair))
            }
            status => EventKind::Unreachable(Unreachable::Service(status)),
        };
        self.tell(Some(Event { id: CommId(id), kind }));
        self.forget_sidr(id);
    }

    pub(super) fn sidr_due(&mut self, id: u32, now: Time) {
        let interval = self.settings.interval();
        let Some(sidr) = self.table.sidr_mut(id) else { return };
        let cause = match sidr.state {
            SidrState::Asked(left) if left > 0 => {
                sidr.state = SidrState::Asked(left - 1);
                let (way, stored) = (sidr.way, sidr.stored.as_deref().copied());
                self.table.set_deadline(id, Some(now.plus(interval)));
                if let Some(octets) = stored {
                    self.send(way, octets);
                }
                return;
            }
            SidrState::Asked(_) => Some(Unreachable::Silent),
            SidrState::Received => Some(Unreachable::TooSlow),
            SidrState::Answered => None,
        };
        let event = |cause| Event { id: CommId(id), kind: EventKind::Unreachable(cause) };
        self.tell(cause.map(event));
        self.forget_sidr(id);
    }
}
