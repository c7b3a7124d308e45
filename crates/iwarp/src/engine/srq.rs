// SPDX-License-Identifier: MIT OR Apache-2.0

//! A shared receive queue: the receives that wait for messages, and the queue pairs whose messages
//! wait for receives.
//!
//! If messages wait for receives, the thread that posts a receive delivers them: to its own queue
//! pair, or to those that wait at the shared receive queue. A stalled stream is not read, and not
//! waited for either.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use iwarp_types::{PdId, PostError, Receive, RecvRequest};

use crate::engine::census::{self, Described, Kind, Place};
use crate::engine::event::AsyncEvent;
use crate::engine::event_queue::AsyncQueue;
use crate::engine::slots::Returned;
use crate::engine::sync::Mutex;
use crate::report::Object;

/// A queue pair whose messages may wait for receives.
pub(crate) trait Parking: Send + Sync + std::fmt::Debug {
    /// There may be receives now.
    fn deliver(self: Arc<Self>);
    /// It cannot wait: there is no memory to note it.
    fn fail(&self);
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SrqCore {
    number: u64,
    pd: PdId,
    max_sge: usize,
    depth: usize,
    state: Mutex<SrqState>,
    /// Counts the receives whose completions were polled.
    returned: Arc<Returned>,
    events: Arc<AsyncQueue>,
}

#[derive(Debug, Default)]
struct SrqState {
    /// Receives that were ever posted, as a number that wraps.
    taken: u32,
    posted: VecDeque<Receive>,
    /// Slots whose storage is kept; with room for all that were made.
    spare: Vec<Receive>,
    made: usize,
    /// Queue pairs with messages that wait for receives.
    waiting: VecDeque<Weak<dyn Parking>>,
    limit: usize,
}

impl SrqState {
    /// One whose storage is kept, or a new one.
    fn slot(&mut self) -> Result<Receive, PostError> {
        if let Some(slot) = self.spare.pop() {
            return Ok(slot);
        }
        self.spare.try_reserve(self.made + 1)?;
        self.made += 1;
        Ok(Receive::default())
    }
}

impl Described for SrqCore {
    fn describe(&self, to: &mut Object) {
        let state = self.state.lock();
        to.number("number", self.number);
        to.count("depth", self.depth);
        to.count("posted", state.posted.len());
        to.count("waiting", state.waiting.len());
        to.count("limit", state.limit);
    }
}

impl Drop for SrqCore {
    fn drop(&mut self) {
        census::leave(self.place());
    }
}

impl SrqCore {
    pub(crate) fn new(
        number: u64,
        pd: PdId,
        depth: usize,
        max_sge: usize,
        events: Arc<AsyncQueue>,
    ) -> Arc<Self> {
        let (state, returned) = (Mutex::default(), Returned::of_shared_queue());
        let this = Arc::new(Self { number, pd, max_sge, depth, state, returned, events });
        let described: Weak<dyn Described> = Arc::<Self>::downgrade(&this);
        census::enter(this.place(), described);
        this
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    fn place(&self) -> Place {
        census::of(Kind::SharedReceives, self)
    }

    /// The protection domain that the memory of its receives is in, whichever queue pair takes
    /// them.
    pub(crate) const fn pd(&self) -> PdId {
        self.pd
    }

    /// The limit that is armed; 0 when none is.
    pub(crate) fn limit(&self) -> usize {
        self.state.lock().limit
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.state.lock().limit = limit;
    }

    /// Adds a receive, and delivers the messages that waited for one.
    pub(crate) fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if request.sges.len() > self.max_sge {
            return Err(PostError::TooManySges);
        }
        let mut state = self.state.lock();
        if !self.returned.leaves_room(state.taken, self.depth) {
            return Err(PostError::QueueFull);
        }
        state.posted.try_reserve(1)?;
        let mut receive = state.slot()?;
        let set = receive.set(request);
        if set.is_err() {
            state.spare.push(receive);
            return set;
        }
        state.taken = state.taken.wrapping_add(1);
        state.posted.push_back(receive);
        if let Some(observer) = self.events.observer() {
            observer.posted_shared_receive(self.number, request);
        }
        let waiting = state.waiting.len();
        drop(state);
        // Each once: a queue pair that still waits afterwards stands in line again.
        (0..waiting).for_each(|_| self.serve_one());
        Ok(())
    }

    pub(crate) const fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    /// The queue pair that waits longest gets what there is.
    fn serve_one(&self) {
        let first = {
            let mut state = self.state.lock();
            if state.posted.is_empty() { None } else { state.waiting.pop_front() }
        };
        if let Some(endpoint) = first.and_then(|endpoint| endpoint.upgrade()) {
            endpoint.deliver();
        }
    }

    /// Messages of `endpoint` wait for receives. False when there are some.
    pub(crate) fn await_receives(&self, endpoint: &Arc<impl Parking + 'static>) -> bool {
        let mut state = self.state.lock();
        if !state.posted.is_empty() {
            return false;
        }
        if state
            .waiting
            .iter()
            .any(|waiting| std::ptr::addr_eq(waiting.as_ptr(), Arc::as_ptr(endpoint)))
        {
            return true;
        }
        if state.waiting.try_reserve(1).is_ok() {
            let waiting = Arc::downgrade(endpoint);
            state.waiting.push_back(waiting);
        } else {
            drop(state);
            // Its messages would wait for ever.
            endpoint.fail();
        }
        true
    }

    pub(crate) fn take(&self, into: &mut Receive) -> bool {
        let mut state = self.state.lock();
        let Some(mut receive) = state.posted.pop_front() else { return false };
        std::mem::swap(into, &mut receive);
        state.spare.push(receive);
        if state.posted.len() < state.limit {
            state.limit = 0;
            self.events.push(AsyncEvent::SrqLimitReached { srq: self.number });
        }
        true
    }
}
