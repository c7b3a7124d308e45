// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use std::io;
use std::sync::Arc;

use iwarp_os::ProcessOwned;
use iwarp_types::WorkCompletion;

use crate::engine::cq::CqCore;

/// A completion queue, which receives the completions of work requests.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) core: ProcessOwned<Arc<CqCore>>,
    number: u64,
}

impl CompletionQueue {
    pub(crate) fn new(core: Arc<CqCore>) -> Self {
        Self { number: core.number(), core: ProcessOwned::new(core) }
    }

    /// Its number, as events name it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Completions it can hold; 0 in a forked child.
    pub fn depth(&self) -> usize {
        self.core.alive().map_or(0, |core| core.depth())
    }

    /// Takes up to `max` completions, oldest first, appends them to `out` and returns their number.
    /// If there are none, this thread first moves the connections that complete here.
    ///
    /// This allocates only if `out` has no room for `max` more.
    pub fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.core.alive().map_or(0, |core| core.poll(out, max))
    }

    /// As [`Self::poll`], but hands each completion to `f`, which is called with the queue locked
    /// and must do no more than take a copy.
    pub fn poll_each(&self, max: usize, f: impl FnMut(WorkCompletion)) -> usize {
        self.core.alive().map_or(0, |core| core.poll_each(max, f))
    }

    /// Takes the oldest completion.
    pub fn poll_one(&self) -> Option<WorkCompletion> {
        let mut one = None;
        self.poll_each(1, |completion| one = Some(completion));
        one
    }

    /// The number of completions that wait to be polled. Moves nothing.
    #[doc(hidden)]
    pub fn waiting(&self) -> usize {
        self.core.alive().map_or(0, |core| core.waiting())
    }

    /// Makes the next completion raise an event on the queue's channel, once: any completion, or
    /// only one that was received with Solicited Event or has failed. Earlier completions raise
    /// none: poll again after this call, then wait.
    pub fn request_notify(&self, solicited_only: bool) {
        if let Some(core) = self.core.alive() {
            core.request_notify(solicited_only);
        }
    }

    /// Drops the completions of the queue pair with this number, which the program has given up.
    pub fn discard(&self, qp: u32) {
        if let Some(core) = self.core.alive() {
            core.discard(qp);
        }
    }

    /// Changes the number of completions that it can hold.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when more completions than that wait; `OutOfMemory`; `ENODEV` in a forked
    /// child.
    pub fn resize(&self, depth: usize) -> io::Result<()> {
        self.core.check()?.resize(depth)
    }
}
