// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive that the next message gets.

use iwarp_types::{
    Event, Memory, Receive, ReceivePool, Refusal, SourceQp, WcOp, WcStatus, WorkCompletion,
    ended_receive,
};

use super::Work;
use crate::payload::place;

/// The content of a receive's completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) op: WcOp,
    pub(crate) byte_len: u32,
    pub(crate) immediate: Option<[u8; 4]>,
    pub(crate) solicited: bool,
    pub(crate) source_qp: Option<SourceQp>,
}

impl Work {
    /// Takes a receive for the next message, unless one is held; false if there is none. It is held
    /// until it [is completed](Self::complete_receive).
    pub(crate) fn hold_receive(&mut self, pool: &dyn ReceivePool) -> bool {
        if self.is_held {
            return true;
        }
        // Room for its completion first: a receive that was taken must end in an event.
        self.is_held = if self.config.shared_receive {
            self.reserve_events(1).is_ok() && pool.take(&mut self.held)
        } else {
            self.receives.take(&mut self.held)
        };
        if !self.is_held {
            self.drops.no_receive += 1;
        }
        self.is_held
    }

    /// Octets of the receive's buffer.
    pub(crate) fn capacity(&self) -> u64 {
        self.held.capacity()
    }

    /// Places octets in the receive's buffer, `offset` behind its start. If its memory is refused,
    /// the queue pair ends, and the result is false.
    pub(crate) fn place<M: Memory + ?Sized>(
        &mut self,
        offset: u64,
        data: &[u8],
        memory: &M,
    ) -> bool {
        let who = self.config.receiver();
        let placed = place(&self.held.sges, offset, data, &mut self.pieces, who, memory);
        if let Err(error) = placed {
            let Receive { wr_id, sges, .. } = &self.held;
            self.refusal = Some(Refusal::of_receive(*wr_id, sges, error));
            self.end_receive(WcStatus::LocalProtection);
            self.fault("buffer of a receive refused");
        }
        placed.is_ok()
    }

    /// Completes the receive with a whole message.
    pub(crate) fn complete_receive(&mut self, arrival: &Arrival) {
        let qp = self.config.qp;
        let mut completion =
            WorkCompletion::new(self.held.wr_id, qp, arrival.op, WcStatus::Success);
        completion.byte_len = arrival.byte_len;
        completion.immediate = arrival.immediate.map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
        completion.solicited = arrival.solicited;
        completion.source_qp = arrival.source_qp;
        self.is_held = false;
        self.arrived += 1;
        self.events.push_back(Event::ReceiveCompleted(completion));
    }

    /// Counts a message that took no receive.
    pub(crate) const fn count_arrival(&mut self) {
        self.arrived += 1;
    }

    /// Ends the receive, if there is one, without a message.
    pub(crate) fn end_receive(&mut self, status: WcStatus) {
        if core::mem::take(&mut self.is_held) {
            let ended = ended_receive(self.held.wr_id, self.config.qp, status);
            self.events.push_back(Event::ReceiveCompleted(ended));
        }
    }

    pub(super) fn flush_receives(&mut self) {
        self.end_receive(WcStatus::Flushed);
        let events = &mut self.events;
        let tell = |completion| events.push_back(Event::ReceiveCompleted(completion));
        self.receives.flush(self.config.qp, tell);
        if self.config.shared_receive && !self.last_receive_reported {
            self.last_receive_reported = true;
            self.events.push_back(Event::LastReceiveReached);
        }
    }
}
