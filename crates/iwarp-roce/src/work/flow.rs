// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets of the send queue, and the completion of requests.

use alloc::vec::Vec;

use iwarp_types::{Accessor, Event, Memory, QpState, SendOp, Sge, WcStatus, WorkCompletion};

use super::Work;
use super::send::SendWqe;
use crate::wire::{Burst, Header, Path, Psn};

/// The turn of the oldest request: its next packet is to be sent.
pub(crate) struct Turn<'a> {
    pub(crate) wqe: &'a SendWqe,
    /// Octets of it that are sent.
    pub(crate) sent: u32,
    /// PSN of the next packet.
    pub(crate) psn: Psn,
    who: Accessor,
    pieces: &'a mut Vec<Sge>,
}

/// The end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// A packet is in the burst, and others are left.
    Part,
    /// The last packet is in the burst, or there is none.
    All,
    /// The request failed.
    Failed(WcStatus),
}

impl Turn<'_> {
    /// Puts a packet with the request's next `len` octets into the burst.
    pub(crate) fn push<M: Memory + ?Sized>(
        &mut self,
        burst: &mut Burst,
        path: &Path,
        header: &Header,
        len: u32,
        memory: &M,
    ) -> Done {
        let Self { wqe, sent, who, ref mut pieces, .. } = *self;
        let pushed = burst.push(path, header, len as usize, |out, digest| {
            wqe.payload.gather(sent.into(), out, digest, pieces, who, memory)
        });
        if pushed.is_err() {
            return Done::Failed(WcStatus::LocalProtection);
        }
        self.psn = self.psn.plus(1);
        self.sent += len;
        if self.sent < wqe.length { Done::Part } else { Done::All }
    }

    /// Performs a local operation; `None` for a request that sends.
    pub(crate) fn perform<M: Memory + ?Sized>(&self, memory: &M) -> Option<Done> {
        use iwarp_types::Invalidator::Local;
        let result = match self.wqe.op {
            SendOp::Bind(bind) => memory.bind_window(self.who, bind),
            SendOp::LocalInvalidate(stag) => memory.invalidate(self.who, stag, Local),
            _ => return None,
        };
        // InfiniBand's "memory management operation error", for both.
        Some(result.map_or(Done::Failed(WcStatus::WindowBind), |()| Done::All))
    }
}

impl Work {
    /// True if there is something to send: in Sqd only the rest of a request already begun.
    pub(crate) const fn wants_transmit(&self) -> bool {
        match self.state {
            QpState::Rts => !self.sends.is_empty(),
            QpState::Sqd => self.sent > 0,
            _ => false,
        }
    }

    /// Has `build` send the requests in order, a packet each time, until there is none or the burst
    /// is full.
    pub(crate) fn transmit(
        &mut self,
        burst: &mut Burst,
        mut build: impl FnMut(&mut Turn<'_>, &mut Burst) -> Done,
    ) {
        let who = self.accessor();
        while self.wants_transmit() && !burst.is_full() {
            let Some(wqe) = self.sends.front() else { return };
            let (sent, psn) = (self.sent, self.next_psn);
            let refused = wqe.refused.map(Done::Failed);
            let mut turn = Turn { wqe, sent, psn, who, pieces: &mut self.pieces };
            let done = refused.unwrap_or_else(|| build(&mut turn, burst));
            (self.sent, self.next_psn) = (turn.sent, turn.psn);
            match done {
                Done::Part => {}
                Done::All => self.end_send(WcStatus::Success),
                Done::Failed(status) => self.fail_send(status),
            }
        }
    }

    /// Fails the oldest request and flushes the rest; receives go on.
    pub(crate) fn fail_send(&mut self, status: WcStatus) {
        if self.sends.is_empty() {
            return;
        }
        self.end_send(status);
        self.state = QpState::Sqe;
        self.flush_sends();
    }

    /// There is no port: fails the oldest request, flushes everything else.
    pub(crate) fn unreachable(&mut self) {
        if !self.sends.is_empty() {
            self.end_send(WcStatus::RetryExceeded);
        }
        self.end();
    }

    pub(super) fn flush_sends(&mut self) {
        while !self.sends.is_empty() {
            self.end_send(WcStatus::Flushed);
        }
    }

    /// Ends the oldest request.
    fn end_send(&mut self, status: WcStatus) {
        let Some(wqe) = self.sends.front() else { return };
        self.sent = 0;
        if wqe.signaled || status != WcStatus::Success {
            let op = wqe.op.completes_as();
            let mut completion = WorkCompletion::new(wqe.wr_id, self.config.qp, op, status);
            completion.byte_len = wqe.length;
            if self.silent > 0 {
                self.events.push_back(Event::SilentSends(core::mem::take(&mut self.silent)));
            }
            self.events.push_back(Event::SendCompleted(completion));
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
        self.sends.pop();
        self.report_drained();
    }
}
