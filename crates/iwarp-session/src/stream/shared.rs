// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state that the halves of a byte stream have in common.

use std::sync::Mutex;

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
}
