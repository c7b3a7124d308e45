// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of one short FPDU.

use alloc::vec::Vec;

use iwarp_types::{Memory, ReceivePool, Sge};

use super::{Receiver, place_list};
use crate::ddp::wire::Header;
use crate::qp::inbound::Plan;
use crate::qp::{Qp, Shared, short};

/// Octets of the ULPDU, at most: to take the queue pair once more would last longer than to copy
/// them.
const SHORT_MAX: usize = 96;

impl Receiver {
    /// A short FPDU at the head of `input` that ends its message: verified, then judged, placed and
    /// reported while the queue pair is held. 0 where there is no such one.
    #[inline]
    pub(super) fn short_step<S: Shared, M: Memory, P: ReceivePool>(
        &mut self,
        qp: &S,
        memory: &M,
        pool: &P,
        input: &mut [u8],
    ) -> usize {
        let is_short = matches!(*input, [0, len, control, ..]
            if usize::from(len) <= SHORT_MAX && Header::is_last(control));
        if !is_short || !short::ways() || self.deframer.markers() {
            return 0;
        }
        // A fault is found again, by the step for FPDUs of any kind.
        let Ok(Some(fpdu)) = self.deframer.next(input) else { return 0 };
        let ulpdu = &input[fpdu.start..fpdu.start + fpdu.len];
        let Self { who, receives, sges, .. } = self;
        let done = qp.with(|qp: &mut Qp| {
            let plan = judge(qp, pool, ulpdu, ulpdu.len(), sges);
            let payload = Header::payload_of(ulpdu);
            let placed = match plan {
                Plan::Nothing => Ok(()),
                Plan::Tagged(stag, to) => memory.place_remote(*who, stag, to, payload),
                Plan::Local(_) => place_list(memory, *receives, sges, payload),
                plan => return Err(plan),
            };
            Ok(qp.end_segment(placed))
        });
        match done {
            Ok(follow) => self.follow(qp, memory, follow),
            Err(plan) => {
                if !self.carry_out(qp, memory, plan, ulpdu) {
                    self.hold(qp, ulpdu);
                }
            }
        }
        fpdu.consumed
    }
}

/// The decision of the queue pair on a segment, when it was given a receive if it needs one.
#[inline]
pub(super) fn judge<P: ReceivePool>(
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
