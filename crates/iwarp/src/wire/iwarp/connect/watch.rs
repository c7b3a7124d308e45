// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that are up, and what is to be known of them.

use std::sync::Arc;

use iwarp_proto::mpa::startup::Negotiated;

use crate::connect::{EventKind, Owner};
use crate::engine::ended::{Ended, Observer};
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::{AtomicBool, Ordering};

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
    /// The terms, where the connection is up only when the peer's first frame has come.
    established: Option<Negotiated>,
    over: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new(owner: &Arc<dyn Owner>, established: Option<Negotiated>) -> Self {
        let owner = Arc::clone(owner);
        Self { owner, established, over: Arc::new(AtomicBool::new(false)) }
    }

    /// The connection that it watches, by its number.
    pub(crate) fn connected(&self, endpoint: &Arc<Endpoint>, number: u64) -> Connected {
        Connected { endpoint: Arc::clone(endpoint), number, over: Arc::clone(&self.over) }
    }
}

impl Observer for Watch {
    fn first_heard(&self) {
        if let Some(terms) = &self.established {
            self.owner.tell(established(terms, Vec::new()));
        }
    }

    fn disconnected(&self, why: Ended) {
        self.over.store(true, Ordering::SeqCst);
        self.owner.tell(EventKind::Disconnected(why));
    }
}

/// The event that tells of a connection on these terms.
pub(super) fn established(terms: &Negotiated, private_data: Vec<u8>) -> EventKind {
    let Negotiated { ird, ord, peer_ird, peer_ord, .. } = *terms;
    EventKind::Established { private_data, ird, ord, peer_ird, peer_ord }
}
