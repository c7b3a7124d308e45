// SPDX-License-Identifier: MIT OR Apache-2.0

//! Beginning a Send or Write that nothing holds up, and sending a short one.

use iwarp_types::{AccessError, QpState, SendOp};

use super::{Body, Current, Kind, Next, Scratch, Segments, is_write};
use crate::ddp::tx::{Message, Run, Segment};
use crate::ddp::wire::Header;
use crate::qp::sq::SendWqe;
use crate::qp::{Qp, Stream, short};
use crate::rdmap::requester;
use iwarp_types::list::sub_list;

/// The outcome of deciding, and of framing a short message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShortFraming {
    /// The decision is for the caller.
    Decided,
    /// A short message was framed, or its source was refused.
    Done,
    /// A short message was framed, and nothing stands behind it.
    Last,
}

impl Qp {
    /// Decides what is sent next, in at most `most` segments of at most `mulpdu` octets, and puts
    /// it into `next`, which is to be [`Next::Idle`] before. A Send or Write that nothing holds up,
    /// of at most `short` octets, is framed at once instead: by `frame`, as one segment, which says
    /// where that ends in the stream.
    #[inline(always)]
    pub(crate) fn next_or_frame(
        &mut self,
        (mulpdu, most, short): (usize, u32, Option<u32>),
        scratch: &mut Scratch,
        next: &mut Next,
        frame: impl FnOnce(&Header, (Body, u32), &Scratch) -> Result<u64, AccessError>,
    ) -> ShortFraming {
        if self.may_begin_plain() {
            if self.sq.has_none_waiting() && !self.outbound.owes_farewell() {
                self.start_nothing();
                return ShortFraming::Decided;
            }
            if let Some((number, mut message)) = self.start_plain() {
                if short.is_none_or(|short| message.length() > short) {
                    if let Some(segments) = self.begun(number, message, mulpdu, most, scratch) {
                        *next = Next::Segments(segments);
                    }
                    return ShortFraming::Decided;
                }
                let Segment { header, len, .. } = message.whole();
                let body = whole_body(self.sq.at(number), scratch);
                return match frame(&header, (body, len), scratch) {
                    Ok(position) => {
                        self.outbound.wrote = is_write(&message);
                        self.sq.built(number, position);
                        if self.nothing_follows() { ShortFraming::Last } else { ShortFraming::Done }
                    }
                    Err(error) => {
                        let kind = Kind::Request(number);
                        self.outbound.current = Some(Current { message, kind });
                        self.gather_failed(0, error);
                        ShortFraming::Done
                    }
                };
            }
        }
        *next = self.next_of_rare(mulpdu, most, scratch);
        ShortFraming::Decided
    }

    /// The first segments of a request that was started.
    #[inline(always)]
    fn begun(
        &mut self,
        number: u64,
        mut message: Message,
        mulpdu: usize,
        most: u32,
        scratch: &mut Scratch,
    ) -> Option<Segments> {
        // A message that begins has at least one.
        let run = message.next_run(mulpdu, most)?;
        let body = request_body(self.sq.at(number), &run, scratch);
        let last = message.is_done() && self.nothing_follows();
        self.outbound.current = Some(Current { message, kind: Kind::Request(number) });
        Some(Segments { run, body, last })
    }

    /// True if no message is half sent, and nothing is to be sent before the first waiting request.
    #[inline(always)]
    fn may_begin_plain(&self) -> bool {
        short::ways()
            && self.outbound.current.is_none()
            && !self.outbound.holds_requests
            && self.stream == Stream::Operating
            && self.outbound.terminate.is_none()
            && !self.gated()
            && !self.outbound.has_own()
            && !self.wants_greeting()
            && matches!(self.state, QpState::Rtr | QpState::Rts)
            && self.irq.is_empty()
            && !self.sq.wants_acknowledgement()
    }

    /// Does what [`Self::start_message`] would where nothing waits.
    #[inline(always)]
    fn start_nothing(&mut self) {
        self.sq.set_waits_for_peer_kind(false);
        self.outbound.answer_next = true;
    }

    /// Does what [`Self::start_request`] would, without the questions that do not arise. The
    /// request's number, and its message.
    #[inline(always)]
    fn start_plain(&mut self) -> Option<(u64, Message)> {
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
        self.sq.is_started() && self.irq.is_empty() && self.outbound.due.is_empty()
    }
}

/// The source of all octets of a Send or Write.
#[inline(always)]
fn whole_body(wqe: &mut SendWqe, scratch: &mut Scratch) -> Body {
    if wqe.is_inline() {
        // They are not asked for again.
        core::mem::swap(&mut scratch.octets, &mut wqe.inline);
        return Body::Octets;
    }
    sub_list(&wqe.sges, 0, wqe.length as usize, &mut scratch.sges);
    Body::Local
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
