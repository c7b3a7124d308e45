// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which access a segment asked for that was refused: for the line of the log that names it.

use iwarp_types::{Access, AccessError, Refusal, RefusedBy, RemoteAccess, Sge, WcOp};

use super::Pending;
use crate::ddp::error::DdpError;
use crate::ddp::wire::{Header, TAGGED_LEN};
use crate::qp::Qp;
use crate::qp::terminated::is_write;
use crate::rdmap::error::RdmapError;
use crate::rdmap::reads::Asked;
use crate::rdmap::terminate::Fault;
use crate::rdmap::wire::ReadRequest;

impl Qp {
    /// The access by which the stream ended, once.
    pub const fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Memory refuses what the segment under way asks for.
    #[cold]
    pub(super) fn note_refused(&mut self, error: AccessError) {
        let by = RefusedBy::Memory(error);
        self.refusal = match self.inbound.pending {
            Pending::Write { .. } => self.written(by),
            Pending::ReadRequest(request) => Some(refused_read(&request, by)),
            Pending::AtomicRequest(ref asked) => Some(refused_request(asked, by)),
            Pending::ReadResponse { .. } | Pending::AtomicResponse => {
                let number = self.orq.front().and_then(|due| due.wqe());
                number.map(|number| self.sq.at(number).refused_here(error))
            }
            _ => {
                let receive = &self.inbound.receive;
                Some(Refusal::of_receive(receive.wr_id, &receive.sges, error))
            }
        };
    }

    /// A segment is refused by its start: notes it if the queue pair does not let the peer do what
    /// it asks for.
    #[cold]
    pub(super) fn note_judged(&mut self, fault: &Fault) {
        let may_be_it = matches!(
            fault,
            Fault::Ddp(DdpError::InvalidStag)
                | Fault::Rdmap(
                    RdmapError::UnexpectedOpcode(_) | RdmapError::Protection(AccessError::Rights)
                )
        );
        let granted = self.remote_access.unwrap_or(Access::REMOTE);
        let by = RefusedBy::QueuePair;
        let asked = match self.inbound.pending {
            Pending::ReadRequest(request) => Some(refused_read(&request, by)),
            Pending::AtomicRequest(ref asked) => Some(refused_request(asked, by)),
            _ => self.written(by),
        };
        self.refusal = asked.filter(|asked| may_be_it && !granted.contains(asked.right));
    }

    /// An answer to the peer's oldest request may not be had from memory.
    #[cold]
    pub(crate) fn note_unanswered(&mut self, error: AccessError) {
        let by = RefusedBy::Memory(error);
        self.refusal = self.irq.front().map(|(asked, _)| refused_request(asked, by));
    }

    /// The segment under way, if it is a Write's.
    fn written(&self, by: RefusedBy) -> Option<Refusal> {
        let inbound = &self.inbound;
        let head = &inbound.quote[..inbound.quote_len];
        let Ok(Header::Tagged(header)) = Header::parse(head) else { return None };
        if !is_write(&header) {
            return None;
        }
        let length = inbound.ulpdu_len.saturating_sub(TAGGED_LEN) as u32;
        let memory = Sge { addr: header.to.0, length, lkey: header.stag };
        Some(Refusal::of_peer(WcOp::Write, RemoteAccess::Write, memory, by))
    }
}

fn refused_request(asked: &Asked, by: RefusedBy) -> Refusal {
    match *asked {
        Asked::Read(request) => refused_read(&request, by),
        Asked::Atomic { stag, to, op, .. } => {
            let memory = Sge { addr: to.0, length: 8, lkey: stag };
            Refusal::of_peer(op.completes_as(), RemoteAccess::Atomic, memory, by)
        }
    }
}

fn refused_read(request: &ReadRequest, by: RefusedBy) -> Refusal {
    let ReadRequest { source_stag, source_to, size, .. } = *request;
    let memory = Sge { addr: source_to.0, length: size, lkey: source_stag };
    Refusal::of_peer(WcOp::Read, RemoteAccess::Read, memory, by)
}
