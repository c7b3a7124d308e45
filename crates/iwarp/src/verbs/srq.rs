//! Shared receive queues.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use iwarp_os::ForkGeneration;
use iwarp_proto::qp::{PostError, Receive, RecvRequest};

use crate::engine::endpoint::Endpoint;
use crate::engine::keep_inherited;
use crate::engine::sync::Mutex;
use crate::verbs::event::{AsyncEvent, AsyncQueue};

#[derive(Debug)]
pub(crate) struct SrqCore {
    number: u64,
    max_sge: usize,
    depth: usize,
    state: Mutex<State>,
    events: Arc<AsyncQueue>,
    process: ForkGeneration,
}

#[derive(Debug, Default)]
struct State {
    posted: VecDeque<Receive>,
    /// Slots whose storage is kept.
    spare: Vec<Receive>,
    /// Queue pairs with messages that wait for receives.
    waiting: VecDeque<Weak<Endpoint>>,
    limit: usize,
}

impl SrqCore {
    pub(crate) fn new(number: u64, depth: usize, max_sge: usize, events: Arc<AsyncQueue>) -> Self {
        let (state, process) = (Mutex::new(State::default()), ForkGeneration::new());
        Self { number, max_sge, depth, state, events, process }
    }

    fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.process.forked() {
            return Err(PostError::WrongState);
        }
        if request.sges.len() > self.max_sge {
            return Err(PostError::TooManySges);
        }
        let mut state = self.state.lock();
        if state.posted.len() >= self.depth {
            return Err(PostError::QueueFull);
        }
        let mut receive = state.spare.pop().unwrap_or_default();
        receive.set(request);
        state.posted.push_back(receive);
        let waiting = state.waiting.len();
        drop(state);
        // Each once: who still waits afterwards stands in the queue again.
        (0..waiting).for_each(|_| self.serve_one());
        Ok(())
    }

    /// The queue pair that waits longest gets what there is.
    fn serve_one(&self) {
        let first = {
            let mut state = self.state.lock();
            if state.posted.is_empty() { None } else { state.waiting.pop_front() }
        };
        if let Some(endpoint) = first.and_then(|endpoint| endpoint.upgrade()) {
            endpoint.deliver_parked();
        }
    }

    /// Messages of `endpoint` wait for receives. False when there are some.
    pub(crate) fn await_receives(&self, endpoint: &Arc<Endpoint>) -> bool {
        let mut state = self.state.lock();
        if !state.posted.is_empty() {
            return false;
        }
        if !state.waiting.iter().any(|waiting| waiting.as_ptr() == Arc::as_ptr(endpoint)) {
            state.waiting.push_back(Arc::downgrade(endpoint));
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

/// A shared receive queue: receives for any number of queue pairs.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) core: Arc<SrqCore>,
}

impl SharedReceiveQueue {
    /// Its number, as events name it.
    pub fn number(&self) -> u64 {
        self.core.number
    }

    /// Posts a receive for whichever queue pair gets a message first.
    ///
    /// # Errors
    ///
    /// When the queue is full or the list too long.
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.core.post(request)
    }

    /// Raises [`AsyncEvent::SrqLimitReached`] once, when fewer than `limit` receives are left
    /// (at the next one that is taken); 0 switches it off. It may be set again any time.
    pub fn set_limit(&self, limit: usize) {
        if !self.core.process.forked() {
            self.core.state.lock().limit = limit;
        }
    }

    /// The limit that is armed; 0 when none is.
    pub fn limit(&self) -> usize {
        if self.core.process.forked() { 0 } else { self.core.state.lock().limit }
    }

    /// Receives it can hold.
    pub fn depth(&self) -> usize {
        self.core.depth
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        keep_inherited(self.core.process, &self.core);
    }
}
