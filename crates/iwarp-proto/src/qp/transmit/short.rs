// SPDX-License-Identifier: MIT OR Apache-2.0

//! Short segments that go out: framed while the queue pair is held.

use iwarp_types::Memory;

use super::{Transmit, Transmitter, frame_copied};
use crate::ddp::tx::Run;
use crate::ddp::wire::UNTAGGED_LEN;
use crate::framing::Frame;
use crate::qp::outbound::{Next, Segments, ShortFraming};
use crate::qp::{Qp, short};

/// Payload octets, at most: to take the queue pair once more would last longer than to copy them.
const SHORT_MAX: usize = 256;

/// Segments that are framed while the queue pair is held: a thread that posts waits no longer than
/// for these.
const RUN: u32 = 16;

impl<F: Frame> Transmitter<F> {
    /// Payload octets of a short message at most; `None` where each is decided on first.
    pub(super) fn short_max(&self) -> Option<u32> {
        (!self.framer.interleaves()).then(|| SHORT_MAX.min(self.mulpdu - UNTAGGED_LEN) as u32)
    }

    /// Puts into `next`, which is to be [`Next::Idle`] before, the queue pair's next decision that
    /// is not to frame a short segment. Such a one, and those behind it, are framed here. False
    /// once there were enough of them, or no more may be built.
    #[inline]
    pub(super) fn next_long<M: Memory>(
        &mut self,
        qp: &mut Qp,
        memory: &M,
        out: &mut Transmit,
        budget: usize,
        next: &mut Next,
    ) -> bool {
        for _ in 0..RUN {
            let how = (self.mulpdu, self.most(out.room().min(budget - out.len())), self.short);
            let Self { framer, scratch, who, .. } = self;
            let step = qp.next_or_frame(how, scratch, next, |header, (body, len), scratch| {
                frame_copied(framer, header, (*who, body, len), scratch, memory, out)?;
                Ok(framer.position())
            });
            match step {
                ShortFraming::Last => return true,
                ShortFraming::Done => {}
                ShortFraming::Decided => {
                    let Next::Segments(segments) = next else { return true };
                    if !self.is_short(&segments.run) {
                        return true;
                    }
                    let segments = *segments;
                    *next = Next::Idle;
                    if self.frame_answer(&segments, qp, memory, out) {
                        return true;
                    }
                }
            }
            if !self.may_build(out, budget) {
                return false;
            }
        }
        false
    }

    #[inline]
    fn is_short(&self, run: &Run) -> bool {
        short::ways() && run.is_single() && self.short.is_some_and(|short| run.len <= short)
    }

    /// Frames a short segment of another message, or the end of a long one. True if nothing stands
    /// behind it.
    #[inline(never)]
    fn frame_answer<M: Memory>(
        &mut self,
        segments: &Segments,
        qp: &mut Qp,
        memory: &M,
        out: &mut Transmit,
    ) -> bool {
        match self.frame_one(&segments.run, segments.body, memory, out) {
            Ok(()) => qp.framed(self.framer.position()),
            Err(error) => {
                qp.gather_failed(0, error);
                return false;
            }
        }
        segments.last
    }
}
