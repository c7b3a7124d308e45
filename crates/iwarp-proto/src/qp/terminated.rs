// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer's Terminate.

use iwarp_types::SendOp;

use crate::ddp::wire::Header;
use crate::qp::{Event, Qp};
use crate::rdmap::terminate::status_of_terminate;
use crate::rdmap::wire::{Opcode, TerminateCode, split_control};
use crate::types::Qn;

impl Qp {
    /// The peer's Terminate has arrived: nothing is answered (RFC 5040 §5.4).
    pub(crate) fn terminated(&mut self, code: TerminateCode, at_fault: Option<Header>) {
        self.events.push_back(Event::Terminated(code));
        if let Some(number) = self.request_at_fault(code, at_fault) {
            let sent = self.sq.at(number).op.is_one_way();
            self.sq.acknowledged(number);
            self.sq.fail(number, status_of_terminate(code, sent));
        }
        self.end_stream();
    }

    /// The request that the peer found a fault with, by the header that its Terminate quotes. Of
    /// one-way requests only where acknowledgements are waited for; then the oldest, if it is a
    /// fault with a message and none is quoted. A local catastrophe of the peer's (no header is
    /// quoted with those) is most often a receive whose memory is gone.
    fn request_at_fault(&mut self, code: TerminateCode, at_fault: Option<Header>) -> Option<u64> {
        match at_fault {
            Some(Header::Untagged(h)) if h.qn == Qn::READ_REQUEST => self.orq.request_with(h.msn),
            Some(Header::Untagged(h)) if h.qn == Qn::SEND => {
                self.sq.find_sent(|wqe| wqe.msn == Some(h.msn))
            }
            Some(Header::Tagged(h)) if split_control(h.rsvd_ulp).1 == Opcode::Write as u8 => {
                self.sq.find_sent(|wqe| match wqe.op {
                    SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. } => {
                        let offset = h.to.0.wrapping_sub(to.0);
                        stag == h.stag && offset < u64::from(wqe.length)
                    }
                    _ => false,
                })
            }
            Some(_) => None,
            None if code.layer < 2 => self.sq.find_sent(|_| true),
            None => None,
        }
    }
}
