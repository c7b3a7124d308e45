// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections that callers that block for the connection manager move meanwhile.

use std::sync::Arc;

use crate::engine::endpoint::Endpoint;
use crate::engine::poll_set::Waiting;

/// The streams of a queue pair's completion queues, until this is dropped: the worker need not
/// wake for them. Streams on which another caller is blocked already are left out: both would wake
/// for all that comes.
pub(crate) struct Meanwhile {
    endpoint: Arc<Endpoint>,
    waiting: Vec<Waiting>,
}

impl Meanwhile {
    pub(crate) fn of(endpoint: &Arc<Endpoint>) -> Self {
        let [receives, sends] = endpoint.groups();
        let sends = Some(sends).filter(|sends| !Arc::ptr_eq(receives, sends));
        let groups = [Some(receives), sends].into_iter().flatten();
        let alone = groups.filter(|group| !group.handover.has_waiters());
        let waiting = alone.map(|group| group.wait_on()).collect();
        Self { endpoint: Arc::clone(endpoint), waiting }
    }

    pub(crate) fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.waiting.clear();
        // A caller that leaves has a lease, and another thread may be asleep.
        self.endpoint.leave_to_worker_if_asleep();
    }
}
