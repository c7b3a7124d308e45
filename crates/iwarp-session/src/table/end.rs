// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a connection, for those who ask and those who wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use iwarp::drive::{Background, ConnectionObserver};
use iwarp::verbs::Ended;

use super::Core;

/// Knows how a connection ended.
pub(crate) struct End {
    core: Weak<Core>,
    background: Background,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    why: Option<Ended>,
    wakers: Vec<(u64, Waker)>,
    #[cfg(feature = "tokio")]
    next: u64,
}

impl End {
    pub(crate) fn new(core: &Arc<Core>, background: Background) -> Arc<Self> {
        Arc::new(Self { core: Arc::downgrade(core), background, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn why(&self) -> Option<Ended> {
        self.lock().why
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn wake_when_over(&self, ticket: &mut Option<u64>, by: &Waker) {
        let mut state = self.lock();
        let own = ticket.and_then(|own| state.wakers.iter_mut().find(|(id, _)| *id == own));
        if let Some((_, waker)) = own {
            return waker.clone_from(by);
        }
        let id = state.next;
        state.next += 1;
        state.wakers.push((id, by.clone()));
        *ticket = Some(id);
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn forget(&self, ticket: u64) {
        let mut state = self.lock();
        let at = state.wakers.iter().position(|(id, _)| *id == ticket);
        let waker = at.map(|at| state.wakers.swap_remove(at));
        drop(state);
        drop(waker);
    }
}

impl ConnectionObserver for End {
    /// Only the first time: a connection ends once.
    fn disconnected(&self, why: Ended) {
        let mut state = self.lock();
        if state.why.is_some() {
            return;
        }
        state.why = Some(why);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        let core = Weak::clone(&self.core);
        // Not here, where the queue pair is locked: waking a task may drop one.
        self.background.soon(Box::new(move || {
            if let Some(core) = core.upgrade() {
                core.nudge();
            }
            wakers.into_iter().for_each(|(_, waker)| waker.wake());
        }));
    }
}
