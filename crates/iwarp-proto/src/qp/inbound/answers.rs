// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that come in answer to requests of this side's own.

use alloc::vec::Vec;

use iwarp_types::{Invalidator, SendOp, Sge};

use super::{Beyond, Follow, Pending, Plan, check_single};
use crate::ddp::error::DdpError;
use crate::ddp::wire::{Tagged, Untagged};
use crate::qp::Qp;
use crate::rdmap::error::RdmapError;
use crate::rdmap::reads::{Awaits, Purpose};
use crate::rdmap::terminate::Fault;
use crate::rdmap::wire::{self, AtomicResponse, Opcode};
use iwarp_types::list::sub_list;

impl Qp {
    /// RFC 5040 §5.2.2. A response must be the one that is due: otherwise a peer could write
    /// anywhere the program may.
    pub(super) fn read_response(
        &mut self,
        header: &Tagged,
        len: usize,
        sges: &mut Vec<Sge>,
    ) -> Result<Plan, Fault> {
        let due = self.orq.front().filter(|due| matches!(due.awaits, Awaits::Read { .. }));
        let Some(due) = due else {
            return Err(match len {
                0 => RdmapError::UnexpectedOpcode(Opcode::ReadResponse as u8).into(),
                _ => DdpError::InvalidStag.into(),
            });
        };
        let Awaits::Read { sink_stag, sink_to, size, received } = due.awaits else {
            unreachable!()
        };
        if len > 0 {
            if header.stag != sink_stag {
                return Err(DdpError::InvalidStag.into());
            }
            if due.wqe().is_none() {
                // It asked for nothing. Linux siw answers with as many octets as the Read before it
                // had, where another thread of that host posts at that moment (seen with 7.3). They
                // have no place, and to end the connection for them would help neither end.
                self.inbound.pending = Pending::ReadResponse { len: 0, last: header.last };
                return Ok(Plan::Nothing);
            }
            let left = u64::from(size - received);
            if header.to != sink_to.advanced(u64::from(received)) || len as u64 > left {
                return Err(DdpError::Bounds.into());
            }
        }
        if header.last && (received as usize + len) != size as usize {
            return Err(RdmapError::Stream("Read Response is shorter than the request").into());
        }
        let wqe = due.wqe();
        self.inbound.pending = Pending::ReadResponse { len: len as u32, last: header.last };
        sges.clear();
        match wqe {
            Some(number) if len > 0 => {
                let room = sub_list(&self.sq.at(number).sges, u64::from(received), len, sges);
                let due = size - received - len as u32;
                Ok(Plan::Local(Beyond { room: room.min(due), due: Some(due) }))
            }
            _ => Ok(Plan::Nothing),
        }
    }

    /// RFC 7306 §5.2.2: the MSN finds the request, its identifier must agree.
    pub(super) fn atomic_response(
        &mut self,
        h: &Untagged,
        len: usize,
        body: &[u8],
        sges: &mut Vec<Sge>,
    ) -> Result<Plan, Fault> {
        let due = self.orq.front().copied();
        let Some((number, expected)) = due.and_then(|due| match (due.wqe(), due.awaits) {
            (Some(number), Awaits::Atomic { request_id }) => Some((number, request_id)),
            _ => None,
        }) else {
            return Err(RdmapError::UnexpectedOpcode(Opcode::AtomicResponse as u8).into());
        };
        self.inbound.atomic_responses.check_msn(h, 1)?;
        check_single(h, len, wire::ATOMIC_RESPONSE_LEN)?;
        let response = AtomicResponse::parse(body)
            .ok_or(RdmapError::Stream("Atomic Response header has the wrong size"))?;
        if response.request_id != expected {
            return Err(RdmapError::Stream("Atomic Response answers no request").into());
        }
        self.inbound.pending = Pending::AtomicResponse;
        sub_list(&self.sq.at(number).sges, 0, 8, sges);
        Ok(Plan::Value(response.original.to_ne_bytes()))
    }

    pub(super) fn read_response_placed(&mut self, len: u32, last: bool) -> Follow {
        let Some(due) = self.orq.front() else { return Follow::Nothing };
        if let Awaits::Read { received, .. } = &mut due.awaits {
            *received += len;
        }
        if !last {
            return Follow::Nothing;
        }
        let Some(number) = self.answered() else {
            self.reap();
            return Follow::Nothing;
        };
        if let SendOp::Read { invalidate: Some(stag), .. } = self.sq.at(number).op {
            self.inbound.pending = Pending::ReadResponse { len: 0, last: true };
            self.outbound.invalidating = Some(number);
            return Follow::Invalidate(stag, Invalidator::Local);
        }
        self.sq.complete(number);
        self.reap();
        Follow::Nothing
    }

    /// The oldest request of ours was answered: its work request, where it has one. The peer had
    /// everything that was sent before it.
    pub(super) fn answered(&mut self) -> Option<u64> {
        match self.orq.pop()?.purpose {
            Purpose::Request(number) => {
                self.sq.acknowledged(number);
                Some(number)
            }
            Purpose::Acknowledgement(below) => {
                self.sq.acknowledged(below);
                None
            }
            Purpose::Rtr => None,
        }
    }
}
