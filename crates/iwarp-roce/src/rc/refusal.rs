// SPDX-License-Identifier: MIT OR Apache-2.0

//! The refused access to memory, for the log.

use iwarp_types::{AccessError, Memory, Refusal, RefusedBy, RemoteAccess, Sge, WcOp};

use super::Rc;
use super::responder::{self, Inside, operation};
use crate::wire::{AtomicEth, Message, Packet, Reth};

impl Rc {
    /// The responder refuses a request.
    #[cold]
    pub(super) fn note_refused(&mut self, packet: &Packet<'_>, refusal: &responder::Refusal) {
        let Some(by) = refusal.access else { return self.refusal = None };
        let responder = &self.responder;
        self.refusal = match (packet.header.message, responder.inside, by) {
            (Message::Send { .. }, _, RefusedBy::Memory(error)) => {
                let receive = &responder.receive;
                Some(Refusal::of_receive(receive.wr_id, &receive.sges, error))
            }
            (Message::WriteBegin { reth, .. }, ..)
            | (Message::WriteMore { .. }, Inside::Write(reth, _), _) => {
                Some(Refusal::of_peer(WcOp::Write, RemoteAccess::Write, of_reth(&reth), by))
            }
            (Message::ReadRequest(reth), ..) => Some(refused_read(&reth, by)),
            (Message::Atomic(AtomicEth { va, rkey, kind }), ..) => {
                let memory = Sge { addr: va.0, length: 8, lkey: rkey };
                let op = operation(kind).completes_as();
                Some(Refusal::of_peer(op, RemoteAccess::Atomic, memory, by))
            }
            _ => None,
        };
    }

    /// The answer to a Read can no longer be read from memory.
    #[cold]
    pub(super) fn note_unanswered(&mut self) {
        let refused = self.replies.refused.take();
        self.refusal = refused.map(|(reth, error)| refused_read(&reth, RefusedBy::Memory(error)));
    }

    /// The memory of the oldest request refuses its answer.
    #[cold]
    pub(super) fn note_oldest(&mut self, error: AccessError) {
        self.refusal = self.sq.oldest_started().map(|wqe| wqe.refused_here(error));
    }

    /// The memory of a request cannot be read; it is reported when the request ends in turn.
    #[cold]
    pub(super) fn note_unreadable<M: Memory + ?Sized>(&mut self, number: u64, memory: &M) {
        let who = self.accessor();
        let wqe = self.sq.at(number);
        let list = wqe.payload.sges();
        let refused = list.iter().find_map(|sge| memory.check_local(who, *sge, false).err());
        // All is granted, so the memory itself is missing.
        let first = list.first().map_or(0, |sge| sge.addr);
        self.requester.refusal =
            Some(wqe.refused_here(refused.unwrap_or(AccessError::BadAddress(first))));
    }
}

fn refused_read(reth: &Reth, by: RefusedBy) -> Refusal {
    Refusal::of_peer(WcOp::Read, RemoteAccess::Read, of_reth(reth), by)
}

const fn of_reth(reth: &Reth) -> Sge {
    Sge { addr: reth.va.0, length: reth.length, lkey: reth.rkey }
}
