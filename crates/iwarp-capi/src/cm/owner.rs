// SPDX-License-Identifier: MIT OR Apache-2.0

//! The owners of events: ids, as far as events and their acknowledgement need them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use iwarp::Log;
use iwarp::observe::WaitingCall;
use iwarp_os::ProcessOwned;

use super::abi::rdma_cm_id;
use crate::log::{PATIENCE, say};

/// The part of an id that events and their acknowledgement need; the id may be gone.
pub(super) struct Shared {
    id: AtomicPtr<rdma_cm_id>,
    events: ProcessOwned<Events>,
}

/// Events of an id that the program has.
#[derive(Default)]
struct Events {
    count: Mutex<Count>,
    acknowledged: Condvar,
}

impl Events {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Count {
    handed_out: u32,
    gone: bool,
}

impl Shared {
    /// For an id that is made later.
    pub(super) fn new() -> Arc<Self> {
        let events = ProcessOwned::new(Events::default());
        Arc::new(Self { id: AtomicPtr::new(null_mut()), events })
    }

    /// It is of this id.
    pub(super) fn lead_to(&self, id: *mut rdma_cm_id) {
        self.id.store(id, Ordering::Release);
    }

    /// The id, which stays until an event that is to be made is acknowledged; `None` when it is
    /// being destroyed, or this is a forked child.
    pub(super) fn hand_out(&self) -> Option<*mut rdma_cm_id> {
        let mut count = self.events.alive()?.count();
        if count.gone {
            return None;
        }
        count.handed_out += 1;
        Some(self.id.load(Ordering::Acquire))
    }

    /// An event was acknowledged.
    pub(super) fn acknowledge(&self) {
        let Some(events) = self.events.alive() else { return };
        let mut count = events.count();
        count.handed_out = count.handed_out.saturating_sub(1);
        drop(count);
        events.acknowledged.notify_all();
    }

    /// Waits until all events are acknowledged.
    pub(super) fn settle(&self) {
        let Some(events) = self.events.alive() else { return };
        let mut count = events.count();
        let mut waiting = None;
        while count.handed_out > 0 {
            let waited = events.acknowledged.wait_timeout(count, PATIENCE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            count = again;
            let pending = count.handed_out;
            if timeout.timed_out() && pending > 0 && waiting.is_none() {
                drop(count);
                let why = format!(
                    "rdma_destroy_id waits until the program has acknowledged {pending} event(s) \
                     of the id that it took with rdma_get_cm_event: call rdma_ack_cm_event for each"
                );
                say(Log::Warn, format_args!("{why}"));
                waiting = Some(WaitingCall::new(why));
                count = events.count();
            }
        }
    }

    /// No event is handed out any more.
    pub(super) fn retire(&self) {
        if let Some(events) = self.events.alive() {
            events.count().gone = true;
        }
    }
}
