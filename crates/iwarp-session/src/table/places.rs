// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the send queue that are kept for permits, and who waits for one.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::state::Queue;
use super::{Core, Handle};
use crate::OperationError;
use crate::block::Lent;
use crate::cargo::Cargo;

/// A place that was taken. Dropping it gives it to the longest waiter.
pub(crate) struct Place {
    handle: Arc<Handle>,
    /// It is an operation's now.
    used: bool,
}

impl Place {
    pub(crate) fn of(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), used: false }
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.used
            && let Some(core) = self.handle.alive()
        {
            core.change(|state| state.reserved -= 1);
        }
    }
}

impl Core {
    /// Takes places in the send queue for permits, if there are so many.
    pub(crate) fn take_places(&self, count: usize) -> bool {
        let take = || {
            let mut state = self.lock();
            let has_room = state.has_room(Queue::Send, count, self.send_limit());
            state.reserved += if has_room { count } else { 0 };
            has_room
        };
        take() || (self.progress() > 0 && take())
    }

    /// Places that there are in the send queue, in all.
    pub(crate) const fn send_limit(&self) -> usize {
        self.limits[Queue::Send as usize]
    }

    /// Waits for so many in the line; the number there.
    pub(crate) fn join_line(&self, count: usize, waker: Option<&Waker>) -> u64 {
        self.change(|state| state.line.join(count, waker.cloned()))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn tell_line(&self, ticket: u64, waker: &Waker) {
        self.lock().line.tell(ticket, waker.clone());
    }

    /// Takes the places that were given to a waiter, if they were.
    pub(crate) fn collect_places(&self, ticket: u64) -> bool {
        self.lock().line.collect(ticket).is_some()
    }

    /// Blocks until a waiter has its places. False at the deadline.
    pub(crate) fn wait_for_places(
        &self,
        ticket: u64,
        deadline: Option<Instant>,
    ) -> Result<bool, OperationError> {
        self.wait_until(deadline, |state| state.line.is_served(ticket))
    }

    /// A waiter gives up.
    pub(crate) fn leave_line(&self, ticket: u64) {
        self.change(|state| {
            if let Some(count) = state.line.leave(ticket) {
                state.reserved -= count;
            }
        });
    }

    /// A reserved place becomes an operation's.
    pub(super) fn use_place(&self, mut place: Place, cargo: Cargo<Lent>) -> u64 {
        place.used = true;
        let mut state = self.lock();
        state.reserved -= 1;
        state.insert(Queue::Send, cargo)
    }
}
