// SPDX-License-Identifier: MIT OR Apache-2.0

//! Beginning a Send or Write that nothing holds up.

use iwarp_types::{QpState, SendOp};

use super::{Body, Current, Kind, Scratch, Segments};
use crate::ddp::tx::{Message, Run};
use crate::qp::sq::SendWqe;
use crate::qp::{Qp, Stream, short};
use crate::rdmap::requester;
use iwarp_types::list::sub_list;

impl Qp {
    /// Begins the first waiting request if it is such a one, as nearly all are: its first segments.
    /// No message is half sent, and no frame of our own waits.
    #[inline(always)]
    pub(super) fn begin_plain(
        &mut self,
        mulpdu: usize,
        most: u32,
        scratch: &mut Scratch,
    ) -> Option<Segments> {
        let (number, mut message) = self.start_plain()?;
        // A message that begins has at least one.
        let run = message.next_run(mulpdu, most)?;
        let body = request_body(self.sq.at(number), &run, scratch);
        let last = message.is_done() && self.nothing_follows();
        self.outbound.current = Some(Current { message, kind: Kind::Request(number) });
        Some(Segments { run, body, last })
    }

    /// Does what [`Self::start_request`] would, without the questions that do not arise. The
    /// request's number, and its message.
    #[inline(always)]
    fn start_plain(&mut self) -> Option<(u64, Message)> {
        if !short::ways()
            || self.stream != Stream::Operating
            || !matches!(self.state, QpState::Rtr | QpState::Rts)
            || !self.irq.is_empty()
            || self.sq.wants_acknowledgement()
        {
            return None;
        }
        let (number, wqe) = self.sq.next_unstarted()?;
        if wqe.fenced() {
            return None;
        }
        let length = wqe.length;
        let message = match wqe.op {
            SendOp::Write { stag, to } => requester::write(stag, to, length),
            SendOp::Send { solicited, invalidate } => {
                let msn = self.outbound.send_msn.take();
                wqe.msn = Some(msn);
                requester::send(solicited, invalidate, msn, length)
            }
            _ => return None,
        };
        self.sq.start_one_way();
        self.sq.set_waits_for_peer_kind(false);
        self.outbound.answer_next = true;
        Some((number, message))
    }

    /// True if nothing is to be sent behind the request that was started last.
    #[inline]
    pub(super) fn nothing_follows(&self) -> bool {
        self.sq.is_started() && self.irq.is_empty() && !self.outbound.nudge
    }
}

/// The source of the octets of a Send or Write.
#[inline(always)]
pub(super) fn request_body(wqe: &mut SendWqe, run: &Run, scratch: &mut Scratch) -> Body {
    let (offset, len) = (run.offset as usize, run.len as usize);
    if !wqe.is_inline() {
        sub_list(&wqe.sges, u64::from(run.offset), len, &mut scratch.sges);
        return Body::Local;
    }
    if len == wqe.inline.len() {
        // They are not asked for again.
        core::mem::swap(&mut scratch.octets, &mut wqe.inline);
    } else {
        scratch.octets.clear();
        scratch.octets.extend_from_slice(&wqe.inline[offset..offset + len]);
    }
    Body::Octets
}
