// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queue.

use crate::ring::Ring;
use crate::{PostError, QpId, Receive, RecvRequest, WcOp, WcStatus, WorkCompletion};

/// Posted receives in order.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    ring: Ring<Receive>,
    max_sge: usize,
}

impl ReceiveQueue {
    /// An empty queue for so many receives of so many elements each.
    pub const fn new(capacity: usize, max_sge: usize) -> Self {
        Self { ring: Ring::new(capacity), max_sge }
    }

    /// Receives that wait for a message.
    #[inline]
    pub const fn len(&self) -> usize {
        self.ring.len()
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the receive is not queued then.
    #[inline]
    pub fn post(&mut self, wr: &RecvRequest<'_>) -> Result<(), PostError> {
        if wr.sges.len() > self.max_sge {
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
    pub fn take(&mut self, into: &mut Receive) -> bool {
        let Some(front) = self.ring.front() else { return false };
        core::mem::swap(front, into);
        self.ring.pop();
        true
    }

    /// Completes every receive as flushed.
    pub fn flush(&mut self, qp: QpId, mut tell: impl FnMut(WorkCompletion)) {
        while let Some(receive) = self.ring.front() {
            tell(ended_receive(receive.wr_id, qp, WcStatus::Flushed));
            self.ring.pop();
        }
    }
}

/// The completion of a receive that got no message.
pub const fn ended_receive(wr_id: u64, qp: QpId, status: WcStatus) -> WorkCompletion {
    WorkCompletion::new(wr_id, qp, WcOp::Recv, status)
}
