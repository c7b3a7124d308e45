// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that are up, and what is to be known of them.

use std::sync::Arc;

use super::{EventKind, Owner};
use crate::engine::ended::{ConnectionObserver, Ended};
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::{AtomicBool, Mutex, Ordering};

/// A stream's connection that there is or was.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Its number: the queue pair may have another one later.
    number: u64,
    over: Arc<AtomicBool>,
}

impl Connected {
    /// True if it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Ends it in good order.
    pub(crate) fn end(&self) {
        self.endpoint.disconnect_if(self.number);
    }
}

/// Passes on what happens to a connection.
pub(crate) struct Watch {
    owner: Arc<dyn Owner>,
    /// The event that tells of the connection, where it is up only when the peer's first frame has
    /// come.
    established: Mutex<Option<EventKind>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new(owner: &Arc<dyn Owner>, established: Option<EventKind>) -> Self {
        let owner = Arc::clone(owner);
        Self { owner, established: Mutex::new(established), over: Arc::new(AtomicBool::new(false)) }
    }

    /// The connection that it watches, by its number.
    pub(crate) fn connected(&self, endpoint: &Arc<Endpoint>, number: u64) -> Connected {
        Connected { endpoint: Arc::clone(endpoint), number, over: Arc::clone(&self.over) }
    }
}

impl ConnectionObserver for Watch {
    fn first_heard(&self) {
        let established = self.established.lock().take();
        if let Some(kind) = established {
            self.owner.tell(kind);
        }
    }

    fn disconnected(&self, why: Ended) {
        self.over.store(true, Ordering::SeqCst);
        self.owner.tell(EventKind::Disconnected(why));
    }
}
