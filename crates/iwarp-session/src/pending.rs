// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations under way.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use iwarp_types::{WcStatus, WorkCompletion};

use crate::cargo::Cargo;
use crate::list::List;
#[cfg(feature = "tokio")]
use crate::table::Core;
use crate::table::{Finished, Handle};
use crate::{Block, Failure, OperationError, Outcome};

/// An operation under way, posted already unless it is part of a [`Batch`](crate::Batch):
/// waiting adds nothing but knowledge.
///
/// Block on it with [`Self::wait`], or `.await` it with the feature `tokio`.
///
/// # Cancel safety
///
/// Dropping it gives up the knowledge only: the operation goes on, its blocks stay out of reach
/// until it is done and then go back to their pools. For a receive that knowledge is the message.
/// So wait for it by reference (`timeout(time, &mut pending).await`), which can be repeated, or by
/// [`Self::wait_timeout`], which gives it back; or take messages from a
/// [`Receiver`](crate::Receiver), which loses none however it is waited for.
#[must_use = "the blocks come back with it"]
pub struct Pending<T> {
    state: PendingState,
    outcome: PhantomData<fn() -> T>,
}

enum PendingState {
    /// Posted, or collected in the list.
    UnderWay(Arc<Handle>, u64, Option<Arc<List>>),
    /// It was refused.
    Refused(Box<Failure>),
    /// The outcome was taken.
    Over,
}

impl<T: Outcome> Pending<T> {
    pub(super) fn new(handle: &Arc<Handle>, posted: Result<u64, Failure>) -> Self {
        let state = match posted {
            Ok(id) => PendingState::UnderWay(Arc::clone(handle), id, None),
            Err(failure) => PendingState::Refused(Box::new(failure)),
        };
        Self { state, outcome: PhantomData }
    }

    /// As [`Self::new`], for an operation that was not posted, but collected.
    pub(super) fn collected(mut self, list: &Arc<List>) -> Self {
        if let PendingState::UnderWay(_, _, of) = &mut self.state {
            *of = Some(Arc::clone(list));
        }
        self
    }

    /// Posts what was collected, where the operation is part of that: it would never be done.
    pub(super) fn ensure_posted(&mut self) {
        if let PendingState::UnderWay(handle, _, list) = &mut self.state
            && let Some(core) = handle.alive()
            && let Some(list) = list.take()
        {
            // An operation that was not posted is told by its own wait.
            let _ = list.post(core);
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn core(&self) -> Result<Option<&Arc<Core>>, OperationError> {
        match &self.state {
            PendingState::UnderWay(handle, ..) => {
                handle.check().map(Some).map_err(OperationError::Wait)
            }
            PendingState::Refused(_) | PendingState::Over => Ok(None),
        }
    }

    /// The outcome, once there is one.
    ///
    /// # Panics
    ///
    /// After it was taken.
    pub(super) fn take(&mut self) -> Option<Result<T, Failure>> {
        self.take_or_wake(None)
    }

    /// As [`Self::take`]; `by` is woken when there is one, if there is none.
    pub(super) fn take_or_wake(&mut self, by: Option<&Waker>) -> Option<Result<T, Failure>> {
        match std::mem::replace(&mut self.state, PendingState::Over) {
            PendingState::UnderWay(handle, id, list) => {
                let ended = handle.alive().and_then(|core| core.take_or_wake(id, by));
                let Some(ended) = ended else {
                    self.state = PendingState::UnderWay(handle, id, list);
                    return None;
                };
                Some(outcome_of(ended))
            }
            PendingState::Refused(failure) => Some(Err(*failure)),
            PendingState::Over => panic!("the outcome of an operation is taken once"),
        }
    }

    /// Waits for the outcome, in this thread. A receive waits as long as the peer is silent.
    ///
    /// # Errors
    ///
    /// [`Failure`], with the blocks in it.
    pub fn wait(mut self) -> Result<T, Failure> {
        self.wait_until(None).unwrap_or_else(|| unreachable!("there was no deadline"))
    }

    /// Waits for the outcome, at most that long: `Err` with the operation itself when the time
    /// passes first.
    ///
    /// # Errors
    ///
    /// The operation, which is still under way.
    #[allow(clippy::missing_panics_doc, reason = "it has not been waited for before")]
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<Result<T, Failure>, Self> {
        let outcome = self.wait_until(Instant::now().checked_add(timeout));
        outcome.ok_or(self)
    }

    pub(super) fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Result<T, Failure>> {
        self.ensure_posted();
        if let PendingState::UnderWay(handle, id, _) = &self.state {
            let core = handle.check().map_err(OperationError::Wait);
            let ended = match core.and_then(|core| core.wait_and_take(*id, deadline)) {
                Ok(ended) => ended?,
                Err(error) => return Some(Err(Failure::new(error, None))),
            };
            self.state = PendingState::Over;
            return Some(outcome_of(ended));
        }
        self.take()
    }

    /// True if the outcome is there. An operation in a [`Batch`](crate::Batch) has none
    /// before the batch is posted.
    pub fn is_done(&self) -> bool {
        match &self.state {
            PendingState::UnderWay(handle, id, _) => {
                let Some(core) = handle.alive() else { return false };
                core.progress();
                core.is_done(*id)
            }
            PendingState::Refused(_) | PendingState::Over => true,
        }
    }
}

fn outcome_of<T: Outcome>((end, cargo): Finished) -> Result<T, Failure> {
    match end {
        Ok(completion) => outcome(&completion, cargo),
        Err(error) => Err(Failure::with(error, cargo)),
    }
}

fn outcome<T: Outcome>(completion: &WorkCompletion, cargo: Cargo<Block>) -> Result<T, Failure> {
    if completion.status != WcStatus::Success {
        return Err(Failure::with(completion.status, cargo));
    }
    let outcome = T::new(completion, cargo);
    outcome.ok_or_else(|| Failure::new(WcStatus::General, None))
}

impl<T> Pending<T> {
    pub(super) fn id(&self) -> Option<u64> {
        match &self.state {
            PendingState::UnderWay(_, id, _) => Some(*id),
            PendingState::Refused(_) | PendingState::Over => None,
        }
    }

    /// The reason why it was refused, if it was.
    pub(super) fn refusal(&mut self) -> Option<Failure> {
        match std::mem::replace(&mut self.state, PendingState::Over) {
            PendingState::Refused(failure) => Some(*failure),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Gives up the outcome.
    pub(super) fn leave(&mut self) {
        if let PendingState::UnderWay(handle, id, _) =
            std::mem::replace(&mut self.state, PendingState::Over)
            && let Some(core) = handle.alive()
        {
            core.leave(id);
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            PendingState::UnderWay(..) => "under way",
            PendingState::Refused(_) => "refused",
            PendingState::Over => "over",
        };
        f.debug_tuple("Pending").field(&state).finish()
    }
}
