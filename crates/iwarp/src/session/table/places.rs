// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the send queue that are kept for permits, and who waits for one.

use std::task::Waker;
use std::time::Instant;

use super::Core;
use super::state::Queue;
use crate::session::block::Lent;
use crate::session::cargo::Cargo;
use crate::session::metrics::Counted;
use crate::session::{OperationError, Permit};

impl Core {
    /// Takes a place in the send queue for a permit, if there is one.
    pub(in crate::session) fn take_place(&self) -> bool {
        let take = || {
            let mut state = self.lock();
            let has_room = state.has_room(Queue::Send, self.limits[Queue::Send as usize]);
            state.reserved += usize::from(has_room);
            has_room
        };
        take() || (self.progress() > 0 && take())
    }

    /// Waits for one in the line; the number there.
    pub(in crate::session) fn join_line(&self, waker: Option<&Waker>) -> u64 {
        self.change(|state| state.line.join(waker.cloned()))
    }

    #[cfg(feature = "tokio")]
    pub(in crate::session) fn tell_line(&self, ticket: u64, waker: &Waker) {
        self.lock().line.tell(ticket, waker.clone());
    }

    /// Takes the place that was given to a waiter, if it was.
    pub(in crate::session) fn collect_place(&self, ticket: u64) -> bool {
        self.lock().line.collect(ticket).is_some()
    }

    /// Blocks until a waiter has its place. False at the deadline.
    pub(in crate::session) fn wait_for_place(
        &self,
        ticket: u64,
        deadline: Option<Instant>,
    ) -> Result<bool, OperationError> {
        self.wait_until(deadline, |state| state.line.is_served(ticket))
    }

    /// A waiter gives up.
    pub(in crate::session) fn leave_line(&self, ticket: u64) {
        self.change(|state| {
            if state.line.leave(ticket).is_some() {
                state.reserved -= 1;
            }
        });
    }

    /// A permit is given back.
    pub(in crate::session) fn release_place(&self) {
        self.change(|state| state.reserved -= 1);
    }

    /// The place of a permit becomes an operation's.
    pub(super) fn use_place(
        &self,
        permit: Permit,
        counted: Option<Counted>,
        cargo: Cargo<Lent>,
    ) -> u64 {
        permit.spend();
        let mut state = self.lock();
        state.reserved -= 1;
        state.insert(Queue::Send, counted, cargo)
    }
}
