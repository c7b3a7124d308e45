//! Completion channels: waiting for completions instead of polling.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::{Epoll, EventFd, EventFdKind, Events, FdPlace, Interest};

use crate::engine::group::{Group, Waiting};
use crate::engine::now;
use crate::engine::sync::Mutex;

/// Token of the descriptor that says that events wait; groups have their own numbers.
const EVENT: u64 = 0;

/// Completion events that wait, and the poll groups that can bring more.
#[derive(Debug)]
pub(crate) struct ChannelCore {
    events: Mutex<VecDeque<u64>>,
    fd: EventFd,
    /// The event descriptor and the groups, for a caller that blocks.
    epoll: Epoll,
    groups: Mutex<Vec<Weak<Group>>>,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let core = Self {
            events: Mutex::new(VecDeque::new()),
            fd: EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?,
            epoll: Epoll::new(FdPlace::Internal)?,
            groups: Mutex::new(Vec::new()),
        };
        core.epoll.add(&core.fd, EVENT, Interest::READ)?;
        Ok(Arc::new(core))
    }

    pub(crate) fn attach(&self, group: &Arc<Group>) -> io::Result<()> {
        self.epoll.add(group.epoll(), group.id(), Interest::READ)?;
        self.groups.lock().push(Arc::downgrade(group));
        Ok(())
    }

    pub(crate) fn detach(&self, group: &Arc<Group>) {
        // Both are ours and open.
        let _ = self.epoll.delete(group.epoll());
        self.groups.lock().retain(|other| other.as_ptr() != Arc::as_ptr(group));
        let number = group.id();
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event| *event != number);
        for _ in events.len()..before {
            let _ = self.fd.try_wait();
        }
    }

    pub(crate) fn push(&self, cq: u64) {
        self.events.lock().push_back(cq);
        let _ = self.fd.signal();
    }

    fn pop(&self) -> Option<u64> {
        let event = self.events.lock().pop_front()?;
        let _ = self.fd.try_wait();
        Some(event)
    }

    fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        if let Some(event) = self.pop() {
            return Ok(Some(event));
        }
        let mut scratch = SCRATCH.take().unwrap_or_else(Scratch::new);
        let result = self.wait_with(&mut scratch, timeout);
        scratch.waiting.clear();
        SCRATCH.set(Some(scratch));
        result
    }

    fn wait_with(
        &self,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> io::Result<Option<u64>> {
        let deadline = timeout.map(|timeout| now().plus(timeout));
        let Scratch { ready, waiting } = scratch;
        self.wait_on_groups(waiting);
        loop {
            if let Some(event) = self.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match self.epoll.wait(ready, left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            for event in ready.iter().filter(|ready| ready.token != EVENT) {
                let group = waiting.iter().find(|waiting| waiting.group().id() == event.token);
                let Some(waiting) = group else {
                    // A queue that was made meanwhile.
                    self.wait_on_groups(waiting);
                    break;
                };
                if !waiting.group().drive() {
                    // Somebody else is at it and may need this CPU.
                    iwarp_os::clock::yield_now();
                }
            }
        }
    }

    fn wait_on_groups(&self, waiting: &mut Vec<Waiting>) {
        let groups = self.groups.lock();
        let groups = groups.iter().filter_map(Weak::upgrade);
        let before = waiting.len();
        waiting.extend(groups.map(|group| group.wait_on()));
        waiting.drain(..before);
    }
}

/// What a blocked caller needs; kept by its thread for the next time.
struct Scratch {
    ready: Events,
    waiting: Vec<Waiting>,
}

impl Scratch {
    fn new() -> Self {
        Self { ready: Events::with_capacity(16), waiting: Vec::new() }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

/// A completion channel. Completion queues that were made with it raise events here.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(crate) core: Arc<ChannelCore>,
}

impl CompletionChannel {
    /// Waits for an event and returns the number of the completion queue that raised it; `None`
    /// when `timeout` passes first. Waits on the connections themselves, in this thread.
    ///
    /// # Errors
    ///
    /// Those of waiting, when the system is out of resources.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        self.core.wait(timeout)
    }

    /// Ready while events wait or a connection is: for a task that moves the connections itself.
    #[cfg(feature = "tokio")]
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.core.epoll.as_fd()
    }

    /// Takes an event if there is one.
    pub fn try_next(&self) -> Option<u64> {
        self.core.pop()
    }
}

impl AsFd for CompletionChannel {
    /// Readable while events wait, for `poll` and its kin; take them with [`Self::try_next`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.fd.as_fd()
    }
}
