//! The receive queue.

use alloc::collections::VecDeque;

use iwarp_types::{PostError, QpId, Receive, RecvRequest, WcOp, WcStatus, WorkCompletion};

use crate::qp::ring::Ring;
use crate::qp::{Config, Event};

/// Posted receives in order.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Ring<Receive>,
}

impl ReceiveQueue {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { ring: Ring::new(capacity) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn post(&mut self, config: &Config, wr: &RecvRequest<'_>) -> Result<(), PostError> {
        if wr.sges.len() > config.max_recv_sge {
            return Err(PostError::TooManySges);
        }
        if self.ring.is_full() {
            return Err(PostError::QueueFull);
        }
        self.ring.next_slot()?.set(wr)?;
        self.ring.push();
        Ok(())
    }

    /// Moves the oldest receive into `into`, swapping storage.
    #[inline(always)]
    pub(crate) fn take(&mut self, into: &mut Receive) -> bool {
        let Some(front) = self.ring.front() else { return false };
        core::mem::swap(front, into);
        self.ring.pop();
        true
    }

    /// Completes every receive as flushed.
    pub(crate) fn flush(&mut self, qp: QpId, events: &mut VecDeque<Event>) {
        while let Some(receive) = self.ring.front() {
            events.push_back(Event::ReceiveCompleted(ended(receive.wr_id, qp, WcStatus::Flushed)));
            self.ring.pop();
        }
    }
}

/// The completion of a receive that got no message.
pub(crate) const fn ended(wr_id: u64, qp: QpId, status: WcStatus) -> WorkCompletion {
    WorkCompletion::new(wr_id, qp, WcOp::Recv, status)
}
