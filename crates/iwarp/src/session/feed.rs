//! Receives that are posted anew as their blocks come back.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
#[cfg(feature = "tokio")]
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::session::table::Core;
use crate::session::{Block, BlockPool, OperationError};

/// Keeps a number of receives of a session posted, with blocks of a pool. While the feed lacks one,
/// the thread that gives a block back posts it, in that call.
pub(super) struct Feed {
    core: Weak<Core>,
    pool: BlockPool,
    state: Mutex<State>,
    /// Told when a receive was posted, or none will be.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Receives that are to be posted.
    depth: usize,
    /// Receives in the order of posting, in which they are done, too.
    posted: VecDeque<u64>,
    /// Blocks for more of them.
    blocks: Vec<Block>,
    /// A thread is posting `blocks`, with one in its hands.
    posting: bool,
    /// It is in the pool's line.
    waiting: bool,
    /// Why it posts no more.
    over: Option<OperationError>,
    #[cfg(feature = "tokio")]
    waker: Option<Waker>,
}

impl State {
    fn count(&self) -> usize {
        self.posted.len() + self.blocks.len() + usize::from(self.posting)
    }
}

impl Feed {
    pub(super) fn new(core: &Arc<Core>, pool: &BlockPool, depth: usize) -> Arc<Self> {
        let feed = Arc::new(Self {
            core: Arc::downgrade(core),
            pool: pool.clone(),
            state: Mutex::new(State { depth: depth.max(1), ..State::default() }),
            changed: Condvar::new(),
        });
        feed.fill();
        feed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Posts as many receives as it lacks and the pool has blocks for; for the others it waits in
    /// the pool's line.
    pub(super) fn fill(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.waiting || state.over.is_some() || state.count() >= state.depth {
                return;
            }
            // Before it joins the line: it may be served at once.
            state.waiting = true;
            drop(state);
            let Some(block) = self.pool.take_for(self) else { return };
            self.post(block);
        }
    }

    /// Takes the block that it has waited for.
    pub(super) fn supply(self: &Arc<Self>, block: Block) {
        self.post(block);
        self.fill();
    }

    /// One thread at a time posts, so that the order is known. Another one, or the same one that has
    /// completed operations by posting, leaves it the block.
    fn post(&self, block: Block) {
        let mut state = self.lock();
        state.waiting = false;
        state.blocks.push(block);
        if state.posting {
            return;
        }
        state.posting = true;
        while let Some(block) = state.blocks.pop() {
            if state.over.is_some() {
                drop(state);
                drop(block);
                state = self.lock();
                continue;
            }
            drop(state);
            let posted = match self.core.upgrade() {
                Some(core) => core.post_recv(Some(block), None).map_err(|failure| failure.error),
                None => Err(OperationError::Disconnected),
            };
            state = self.lock();
            match posted {
                Ok(id) => state.posted.push_back(id),
                // The program has posted others itself: it gets along with those that there are.
                Err(OperationError::QueueFull) if !state.posted.is_empty() => {
                    state.depth = state.posted.len();
                }
                Err(error) => state.over = Some(error),
            }
        }
        state.posting = false;
        self.tell(state);
    }

    /// Has its receiver look again.
    pub(super) fn nudge(&self) {
        self.tell(self.lock());
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        #[cfg(feature = "tokio")]
        let mut state = state;
        #[cfg(feature = "tokio")]
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        waker.into_iter().for_each(Waker::wake);
    }

    /// The receive that is done first.
    pub(super) fn front(&self) -> Option<u64> {
        self.lock().posted.front().copied()
    }

    /// The first receive is done, and its outcome was taken.
    pub(super) fn pop(&self) {
        self.lock().posted.pop_front();
    }

    /// Why it posts no more, where nothing is posted any more either.
    pub(super) fn take_over(&self) -> Option<OperationError> {
        let mut state = self.lock();
        match state.posted.is_empty() && state.blocks.is_empty() && !state.posting {
            // Told once; afterwards it is the connection's end.
            true => state
                .over
                .as_mut()
                .map(|over| std::mem::replace(over, OperationError::Disconnected)),
            false => None,
        }
    }

    /// Posts no more; what is posted.
    pub(super) fn stop(&self) -> VecDeque<u64> {
        let mut state = self.lock();
        state.over.get_or_insert(OperationError::Disconnected);
        std::mem::take(&mut state.posted)
    }

    /// Receives that are posted, or are about to be.
    pub(super) fn posted(&self) -> usize {
        self.lock().count()
    }

    /// Whether it waits for blocks.
    pub(super) fn is_waiting(&self) -> bool {
        self.lock().waiting
    }

    /// Has a task told of what is posted next. False where something is posted, or will never be.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_when_posted(&self, by: &Waker) -> bool {
        let mut state = self.lock();
        if !state.posted.is_empty() || state.over.is_some() {
            return false;
        }
        state.waker = Some(by.clone());
        true
    }

    /// Blocks until a receive is posted, or none will be; at most that long.
    pub(super) fn wait_posted(&self, deadline: Option<Instant>, pause: Option<Duration>) {
        let state = self.lock();
        if !state.posted.is_empty() || state.over.is_some() {
            return;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        drop(match [left, pause].into_iter().flatten().min() {
            Some(time) => {
                let waited = self.changed.wait_timeout(state, time);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        });
    }
}
