//! Shared receive queues.

use std::sync::Arc;

use iwarp_types::{PostError, RecvRequest};

use crate::engine::keep_inherited;
use crate::engine::srq::SrqCore;

/// A shared receive queue: receives for any number of queue pairs.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) core: Arc<SrqCore>,
}

impl SharedReceiveQueue {
    /// Its number, as events name it.
    pub fn number(&self) -> u64 {
        self.core.number()
    }

    /// Posts a receive for whichever queue pair gets a message first.
    ///
    /// # Errors
    ///
    /// When the queue is full or the list too long.
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.core.post(request)
    }

    /// Raises [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached) once, when fewer than `limit` receives are left
    /// (at the next one that is taken); 0 switches it off. It may be set again any time.
    pub fn set_limit(&self, limit: usize) {
        self.core.set_limit(limit);
    }

    /// The limit that is armed; 0 when none is.
    pub fn limit(&self) -> usize {
        self.core.limit()
    }

    /// Receives it can hold, those included that are done and whose completion was not polled.
    pub fn depth(&self) -> usize {
        self.core.depth()
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        keep_inherited(self.core.process, &self.core);
    }
}
