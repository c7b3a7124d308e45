// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion channels: waiting for completions instead of polling.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{EventFd, ProcessOwned};

use crate::engine::channel::{ChannelCore, Look};

/// A completion channel. Completion queues that were made with it raise events here.
///
/// A queue raises an event only when it is armed, and none for what it has already. So a thread
/// polls, arms, polls again, and only then sleeps:
///
/// ```
/// use iwarp::{CompletionChannel, CompletionQueue, Device, WorkCompletion};
///
/// fn next(channel: &CompletionChannel, cq: &CompletionQueue) -> std::io::Result<WorkCompletion> {
///     loop {
///         if let Some(completion) = cq.poll_one() {
///             return Ok(completion);
///         }
///         cq.request_notify(false);
///         if let Some(completion) = cq.poll_one() {
///             return Ok(completion);
///         }
///         // An event may be left over from before: then the loop goes round once more.
///         channel.wait(None)?;
///     }
/// }
///
/// let device = Device::open()?;
/// let channel = device.create_comp_channel()?;
/// let cq = device.create_cq(64, Some(&channel))?;
/// # let _ = (next, cq);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(crate) core: ProcessOwned<Arc<ChannelCore>>,
    /// Of the events: a child has it open as well.
    fd: Arc<EventFd>,
}

impl CompletionChannel {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::of(ChannelCore::new()?))
    }

    pub(crate) fn of(core: Arc<ChannelCore>) -> Self {
        Self { fd: Arc::clone(core.event_fd()), core: ProcessOwned::new(core) }
    }

    /// The descriptor on which the program waits for its events.
    pub(super) const fn event_fd(&self) -> &Arc<EventFd> {
        &self.fd
    }

    /// Waits for an event and returns the number of the completion queue that raised it; `None`
    /// when `timeout` passes first. This thread waits on the connections themselves.
    ///
    /// # Errors
    ///
    /// Errors of waiting, when the system is out of resources; `ENODEV` in a forked child.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        self.core.check()?.wait(timeout)
    }

    /// [`Self::wait`] in steps, for a caller whose thread may be cancelled while it sleeps
    /// ([`iwarp_os::cancel::wait_cancellable`]) and must own nothing then. Takes an event; or, if
    /// there is none, counts this thread among those that serve the connections, until it looks
    /// again and finds an event, calls [`Self::stop_looking`], or ends.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`]; the thread no longer serves the connections.
    pub fn look(&self) -> io::Result<Look> {
        self.core.check()?.look()
    }

    /// This thread will not look again.
    pub fn stop_looking() {
        ChannelCore::stop_looking();
    }

    /// Drops the events of the completion queue with this number, which the program has given up.
    pub fn discard(&self, cq: u64) {
        if let Some(core) = self.core.alive() {
            core.discard(cq);
        }
    }

    /// Takes an event if there is one.
    pub fn try_next(&self) -> Option<u64> {
        self.core.alive()?.take_ready()
    }

    /// Has an event of this queue come once more, which may find nothing: for faults on purpose.
    #[doc(hidden)]
    pub fn repeat(&self, cq: u64) {
        if let Some(core) = self.core.alive() {
            core.push_once(cq);
        }
    }
}

impl AsFd for CompletionChannel {
    /// Readable while events wait, for `poll` and similar calls; take them with [`Self::try_next`].
    /// The connections of queues that are armed
    /// ([`request_notify`](crate::CompletionQueue::request_notify)) move meanwhile.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
