// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that were posted and wait to be sent, carried out in place of that.
//!
//! A program that always has some requests under way never posts one that finds all before it
//! arrived. So where the first one that waits is for memory that this process maps, nothing more is
//! sent until what was has been dealt with. Then it and those behind it are carried out here, and
//! the next that is posted finds nothing before it.
//!
//! None waits behind a request that needs something of the peer's program, such as a receive for a
//! Send: the program may be about to look for what this one writes.

use std::sync::Weak;

use iwarp_proto::qp::{Qp, WaitingRequest};
use iwarp_types::{Access, Payload, SendOp, SendRequest, Sge, Stag, TaggedOffset, Time};

use super::Link;
use crate::engine::policy::table::{DIRECT_MOST, DIRECT_REST, DIRECT_WAIT};
use crate::port::local::LocalPort;

/// Elements of a request that is carried out here, and bytes of one without elements, at most.
const ELEMENTS: usize = 4;
const INLINE: usize = 512;

/// The wait of the requests, which belongs to the holder of the transmit token.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    /// They wait until this time for the oldest request of this number.
    until: Option<Time>,
    oldest: u64,
    /// They have waited in vain, and do not again before.
    not_before: Option<Time>,
    /// The worker looks again at this time.
    looks_at: Option<Time>,
}

/// Bytes that a call carries out before others have their turn.
const BUDGET: u64 = 16 << 20;

/// A request, for use without the core's lock.
struct Waiting {
    number: u64,
    oldest: u64,
    others_end: Option<u64>,
    op: SendOp,
    stag: Stag,
    to: TaggedOffset,
    access: Access,
    sges: [Sge; ELEMENTS],
    inline: [u8; INLINE],
    /// Elements of the one kind, or bytes of the other.
    count: usize,
    is_inline: bool,
    len: u64,
}

impl Waiting {
    /// `None` for one that is sent.
    fn of(waiting: &WaitingRequest<'_>) -> Option<Self> {
        let WaitingRequest { number, oldest, request, others_end } = *waiting;
        let SendRequest { op, payload, .. } = request;
        let (stag, to, access) = match op {
            SendOp::Write { stag, to } => (stag, to, Access::REMOTE_WRITE),
            SendOp::Read { stag, to, .. } => (stag, to, Access::REMOTE_READ),
            SendOp::Atomic { stag, to, .. } => (stag, to, Access::REMOTE_ATOMIC),
            _ => return None,
        };
        let len = payload.len();
        if len == 0 || len > DIRECT_MOST {
            return None;
        }
        let (mut sges, mut inline) = ([Sge::default(); ELEMENTS], [0; INLINE]);
        let (count, is_inline) = match payload {
            Payload::Sges(all) => {
                sges.get_mut(..all.len())?.copy_from_slice(all);
                (all.len(), false)
            }
            Payload::Inline(octets) => {
                inline.get_mut(..octets.len())?.copy_from_slice(octets);
                (octets.len(), true)
            }
            _ => return None,
        };
        Some(Self {
            number,
            oldest,
            others_end,
            op,
            stag,
            to,
            access,
            sges,
            inline,
            count,
            is_inline,
            len,
        })
    }

    fn payload(&self) -> Payload<'_> {
        match self.is_inline {
            true => Payload::Inline(&self.inline[..self.count]),
            false => Payload::Sges(&self.sges[..self.count]),
        }
    }

    /// True if the peer shows the memory, for accesses of this kind, and this process maps it.
    fn is_shown(&self, port: &LocalPort) -> bool {
        port.shown(self.stag.0, self.to.0, self.len as usize, self.access)
            .is_some_and(|reach| reach.is_mapped())
    }
}

/// The outcome for the first request that waits.
enum Outcome {
    /// So many bytes were carried out.
    Done(u64),
    /// It is to wait.
    Waits,
    /// It is to be sent; or there is none.
    Sent,
}

impl Link {
    /// Carries out the requests that wait to be sent, as far as that is possible. Has them wait
    /// where it is going to be.
    #[cold]
    pub(super) fn carry_out_waiting(&self, hold: &mut Hold) {
        let Some(port) = self.stream.local() else { return };
        let mut done = 0;
        let waits = loop {
            match self.endpoint.carrying_out(|| self.carry_out_next(port, hold)) {
                Outcome::Done(len) => done += len,
                outcome => break matches!(outcome, Outcome::Waits),
            }
            if done >= BUDGET {
                self.hold_requests(true);
                self.go_on_soon();
                break true;
            }
        };
        if !waits && self.dealt.holds() {
            hold.until = None;
            self.hold_requests(false);
        }
    }

    /// Requests are not sent from now on, or are.
    fn hold_requests(&self, hold: bool) {
        self.dealt.hold(hold);
        self.endpoint.with_core_of(self, |qp: &mut Qp| qp.hold_requests(hold));
    }

    /// Has the worker go on, behind what waits for it.
    fn go_on_soon(&self) {
        self.endpoint.engine.worker.soon(self.looker());
    }

    /// A call that carries requests out if they wait still.
    fn looker(&self) -> Box<dyn FnOnce() + Send> {
        let weak = Weak::clone(&self.itself);
        Box::new(move || {
            if let Some(link) = weak.upgrade().filter(|link| link.dealt.holds()) {
                link.send();
                link.settle();
            }
        })
    }

    fn next_waiting(&self) -> Option<Waiting> {
        let next = self.endpoint.with_core_of(self, |qp: &mut Qp| {
            if !qp.has_waiting() {
                self.endpoint.leaves_nothing_to_do();
            }
            qp.next_waiting().as_ref().and_then(Waiting::of)
        });
        next.flatten()
    }

    fn carry_out_next(&self, port: &LocalPort, hold: &mut Hold) -> Outcome {
        let Some(next) = self.next_waiting().filter(|next| next.is_shown(port)) else {
            return Outcome::Sent;
        };
        // First the question that has the peer say what it has dealt with.
        let is_ready = || port.is_settled() && self.is_next(&next);
        if !is_ready() {
            if !self.may_wait(&next, port) || !self.may_hold(hold, next.oldest) {
                return Outcome::Sent;
            }
            // In this order: another thread that hears of the last completion, or of the last
            // bytes, finds that requests wait for it, or this one finds what that has heard.
            self.hold_requests(true);
            self.await_dealing();
            if !is_ready() {
                return Outcome::Waits;
            }
        }
        let request = SendRequest::new(0, next.op, next.payload());
        match self.endpoint.do_waiting(self, next.number, &request) {
            true => Outcome::Done(next.len),
            false => Outcome::Sent,
        }
    }

    /// True unless the program of the peer may have to do something first.
    fn may_wait(&self, next: &Waiting, port: &LocalPort) -> bool {
        let dealt = port.dealt_with().map(|upto| self.dealt.position(upto));
        next.others_end.zip(dealt).is_some_and(|(end, dealt)| end <= dealt)
    }

    /// True if requests may wait at this time, the oldest of that number among them: until when is
    /// noted, and the transmitter looks again then.
    fn may_hold(&self, hold: &mut Hold, oldest: u64) -> bool {
        let now = self.endpoint.now();
        match hold.until {
            Some(until) if now < until => {}
            // None has completed since.
            Some(_) if hold.oldest == oldest => {
                (hold.until, hold.not_before) = (None, Some(now.plus(DIRECT_REST)));
                return false;
            }
            None if hold.not_before.is_some_and(|before| now < before) => return false,
            _ => (hold.until, hold.oldest) = (Some(now.plus(DIRECT_WAIT)), oldest),
        }
        if let Some(until) = hold.until
            && hold.looks_at.is_none_or(|looks_at| looks_at <= now)
        {
            hold.looks_at = Some(until);
            self.endpoint.engine.worker.at(until, self.looker());
        }
        true
    }

    /// True if all requests before this one have completed, and it waits still.
    fn is_next(&self, next: &Waiting) -> bool {
        let is_next = |qp: &mut Qp| qp.may_be_done_next(next.number);
        self.endpoint.with_core_of(self, is_next).unwrap_or(false)
    }
}
