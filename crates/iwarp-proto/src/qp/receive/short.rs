// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of one short frame each.

use alloc::vec::Vec;
use core::ops::Range;

use iwarp_types::{Memory, ReceivePool, Sge};

use super::{Named, Receiver, place_list};
use crate::ddp::wire::Header;
use crate::framing::Deframe;
use crate::qp::inbound::{Follow, Plan};
use crate::qp::{Qp, Shared, short};

/// Octets of the ULPDU, at most: to take the queue pair once more would last longer than to copy
/// them.
const SHORT_MAX: usize = 96;

/// Messages that are taken while the queue pair is held: a thread that posts waits no longer than
/// for these.
const RUN: u32 = 16;

impl<D: Deframe> Receiver<D> {
    /// Short frames at the head of `input` that end their messages: each verified, then judged,
    /// placed and reported while the queue pair is held. Returns their octets; 0 where there are no
    /// such ones.
    #[inline]
    pub(super) fn short_step<S: Shared, M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        input: &mut [u8],
    ) -> usize {
        if !self.is_short(input) || !short::ways() || self.deframer.interleaves() {
            return 0;
        }
        // A fault is found again, by the step for frames of any kind.
        let Ok(Some(frame)) = self.deframer.next(input) else { return 0 };
        let (mut used, mut ulpdu) = (frame.consumed, frame.start..frame.start + frame.len);
        let begin = self.frame;
        let done = qp.with(|qp: &mut Qp| {
            let mut done = self.take_short(qp, memory, pool, &input[ulpdu.clone()]);
            for _ in 1..RUN {
                if used == input.len() || !matches!(done, Ok(Follow::Nothing)) {
                    break;
                }
                let Some((consumed, next)) = self.next_short(&mut input[used..]) else { break };
                ulpdu = used + next.start..used + next.end;
                self.frame = begin + used as u64;
                used += consumed;
                done = self.take_short(qp, memory, pool, &input[ulpdu.clone()]);
            }
            done
        });
        match done {
            Ok(follow) => self.follow(qp, memory, follow),
            Err(plan) => {
                let ulpdu = &input[ulpdu];
                if !self.carry_out(qp, memory, plan, ulpdu) {
                    self.hold(qp, ulpdu);
                }
            }
        }
        used
    }

    /// The octets of another short frame at the head of `behind`, and of its ULPDU in it.
    #[inline(never)]
    fn next_short(&mut self, behind: &mut [u8]) -> Option<(usize, Range<usize>)> {
        if !self.is_short(behind) {
            return None;
        }
        let frame = self.deframer.next(behind).ok()??;
        Some((frame.consumed, frame.start..frame.start + frame.len))
    }

    /// Judges, places and reports a message. The plan, where that is more than to place it.
    #[inline(always)]
    fn take_short<M: Memory, P: ReceivePool + ?Sized>(
        &mut self,
        qp: &mut Qp,
        memory: &M,
        pool: &P,
        ulpdu: &[u8],
    ) -> Result<Follow, Plan> {
        let plan = judge(qp, pool, ulpdu, ulpdu.len(), &mut self.sges);
        let payload = Header::payload_of(ulpdu);
        let placed = match plan {
            Plan::Nothing => Ok(()),
            Plan::Tagged(stag, to) => {
                self.named = Named { stag, read: false };
                memory.place_remote(self.who, stag, to, payload)
            }
            Plan::Local(_) => place_list(memory, self.receives, &self.sges, payload),
            plan => return Err(plan),
        };
        let follow = qp.end_segment(placed);
        self.note_end(qp.receives());
        Ok(follow)
    }

    /// True if a short frame stands there that ends its message, where nothing is interleaved.
    #[inline]
    fn is_short(&self, input: &[u8]) -> bool {
        matches!(self.deframer.peek_short(input), Some((len, control))
            if usize::from(len) <= SHORT_MAX && Header::is_last(control))
    }
}

/// The decision of the queue pair on a segment, when it was given a receive if it needs one.
#[inline]
pub(super) fn judge<P: ReceivePool + ?Sized>(
    qp: &mut Qp,
    pool: &P,
    head: &[u8],
    ulpdu_len: usize,
    sges: &mut Vec<Sge>,
) -> Plan {
    match qp.begin_segment(head, ulpdu_len, sges) {
        Plan::NeedReceive => {
            qp.give_receive(|receive| pool.take(receive));
            qp.begin_segment(head, ulpdu_len, sges)
        }
        plan => plan,
    }
}
