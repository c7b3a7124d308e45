// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state that the halves of a byte stream have in common.

use std::sync::Mutex;

use iwarp::verbs::Annex;

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

    /// That memory, if the peer has it as well.
    pub(super) fn annex_to_leave(&self) -> Option<Annex> {
        let core = self.session.handle.alive()?;
        if core.qp.moves_within_host() { core.qp.annex() } else { None }
    }
}
