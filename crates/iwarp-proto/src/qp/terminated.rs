// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer's Terminate.

use iwarp_types::{Refusal, RefusedBy, RemoteAccess, Sge, WcOp};

use crate::ddp::wire::{Header, TAGGED_LEN, Tagged};
use crate::qp::sq::SendWqe;
use crate::qp::{Event, Qp};
use crate::rdmap::terminate::status_of_terminate;
use crate::rdmap::wire::{Opcode, TerminateCode, split_control};
use crate::types::Qn;

impl Qp {
    /// The peer's Terminate has arrived: nothing is answered (RFC 5040 §5.4). `at_fault`: the
    /// header that it quotes, and the octets of that segment.
    pub(crate) fn terminated(&mut self, code: TerminateCode, at_fault: Option<(Header, u16)>) {
        self.events.push_back(Event::Terminated(code));
        let number = self.request_at_fault(code, at_fault.map(|(header, _)| header));
        self.refusal = match (number, at_fault) {
            (Some(number), _) => Some(self.sq.at(number).refused_there()),
            (None, Some((header, length))) => self.refused_long_ago(&header, length),
            (None, None) => None,
        };
        if let Some(number) = number {
            let sent = self.sq.at(number).op.is_one_way();
            self.sq.arrived_before(number);
            self.sq.fail(number, status_of_terminate(code, sent));
        }
        self.end_stream();
    }

    /// The request that the peer found a fault with, by the header that its Terminate quotes. Of
    /// one-way requests only where acknowledgements are waited for; then the oldest, if it is a
    /// fault with a message and none is quoted. A local catastrophe of the peer's (no header is
    /// quoted with those) is most often a receive whose memory is gone.
    fn request_at_fault(&mut self, code: TerminateCode, at_fault: Option<Header>) -> Option<u64> {
        // An event is never in want of memory.
        let takes_back = self.reserve_events(self.sq.may_be_taken_back()).is_ok();
        match at_fault {
            Some(Header::Untagged(h)) if h.qn == Qn::READ_REQUEST => self.orq.request_with(h.msn),
            Some(Header::Untagged(h)) if h.qn == Qn::SEND => {
                self.sq.find_refused(takes_back, |wqe| wqe.msn == Some(h.msn))
            }
            Some(Header::Tagged(h)) if is_write(&h) => {
                self.sq.find_refused(takes_back, |wqe| is_of(wqe, &h))
            }
            Some(_) => None,
            None if code.layer < 2 => self.sq.find_sent(|_| true),
            None => None,
        }
    }

    /// A one-way request that had ended when the peer found a fault with it. One
    /// that is forgotten is what the peer quotes of it, a segment of `length` octets.
    fn refused_long_ago(&self, header: &Header, length: u16) -> Option<Refusal> {
        let found = match header {
            Header::Untagged(h) if h.qn == Qn::SEND => {
                self.sq.find_latest(|wqe| wqe.msn == Some(h.msn))
            }
            Header::Tagged(h) if is_write(h) => self.sq.find_latest(|wqe| is_of(wqe, h)),
            _ => return None,
        };
        match (found, header) {
            (Some(wqe), _) => Some(wqe.refused_there()),
            (None, Header::Tagged(h)) => {
                let length = u32::from(length).saturating_sub(TAGGED_LEN as u32);
                let memory = Sge { addr: h.to.0, length, lkey: h.stag };
                let by = RefusedBy::Peer;
                Some(Refusal::of_peer(WcOp::Write, RemoteAccess::Write, memory, by))
            }
            (None, Header::Untagged(_)) => None,
        }
    }
}

/// True for a segment of a Write.
pub(crate) fn is_write(header: &Tagged) -> bool {
    split_control(header.rsvd_ulp).1 == Opcode::Write as u8
}

/// True where a request is the Write that a segment is of.
fn is_of(wqe: &SendWqe, segment: &Tagged) -> bool {
    wqe.op.target().is_some_and(|(access, stag, to)| {
        let offset = segment.to.0.wrapping_sub(to.0);
        access == RemoteAccess::Write && stag == segment.stag && offset < u64::from(wqe.length)
    })
}
