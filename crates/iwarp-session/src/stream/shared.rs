// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state that the halves of a byte stream have in common.

use std::sync::Mutex;

use iwarp::verbs::Annex;

use crate::metrics::Way;
use crate::{Receiver, Session};

/// Held by both halves; the connection is closed when both are gone.
pub(super) struct Shared {
    pub(super) session: Session,
    /// The reading half's, but it also hears what the peer says to the writing half.
    pub(super) receiver: Mutex<Receiver>,
}

impl Shared {
    pub(super) const fn new(session: Session, receiver: Receiver) -> Self {
        Self { session, receiver: Mutex::new(receiver) }
    }

    /// The memory beside the ring of the connection, if it has one; also when it is over.
    pub(super) fn annex(&self) -> Option<Annex> {
        self.session.handle.alive()?.qp.annex()
    }

    /// So many bytes were left there, and the peer was told.
    pub(super) fn count_left(&self, annex: &Annex, octets: usize) {
        annex.has_left(octets);
        if let Some(core) = self.session.handle.alive() {
            core.passed_beside(Way::Out, octets);
        }
    }

    /// So many bytes were fetched from there.
    pub(super) fn count_fetched(&self, octets: usize) {
        if let Some(core) = self.session.handle.alive() {
            core.passed_beside(Way::In, octets);
        }
    }

    /// That memory, if the peer has it as well, and neither end wants CRCs.
    pub(super) fn annex_to_leave(&self) -> Option<Annex> {
        self.session.handle.alive()?.qp.annex_to_leave()
    }
}
