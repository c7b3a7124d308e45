// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues.

use std::sync::Arc;

use iwarp_os::ProcessOwned;
use iwarp_types::{PostError, RecvRequest};

use crate::engine::srq::SrqCore;

/// A shared receive queue: receives for any number of queue pairs.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) core: ProcessOwned<Arc<SrqCore>>,
    pub(super) number: u64,
    pub(super) depth: usize,
}

impl SharedReceiveQueue {
    /// True in a forked child of the process that made it: then it is dead.
    pub fn is_inherited(&self) -> bool {
        self.core.is_inherited()
    }

    /// Its number, as events name it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Posts a receive for the first queue pair that gets a message.
    ///
    /// # Errors
    ///
    /// When the queue is full or the list too long; `WrongState` in a forked child.
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.core.alive().ok_or(PostError::WrongState)?.post(request)
    }

    /// Raises [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached) once, when fewer
    /// than `limit` receives are left (at the next one that is taken); 0 switches it off. It may be
    /// set again any time.
    pub fn set_limit(&self, limit: usize) {
        if let Some(core) = self.core.alive() {
            core.set_limit(limit);
        }
    }

    /// The armed limit; 0 if there is none.
    pub fn limit(&self) -> usize {
        self.core.alive().map_or(0, |core| core.limit())
    }

    /// The number of receives that it can hold, including finished ones whose completion was not
    /// polled.
    pub fn depth(&self) -> usize {
        self.depth
    }
}
