// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asynchronous events of a device.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use iwarp_os::{EventFd, EventFdKind, FdPlace};

use crate::engine::observe::SomeObserver;
use crate::engine::sync::Mutex;

/// An event of an object, not of a work request. Named after `enum ibv_event_type`. With
/// [`Personality::Roce`](crate::Personality::Roce) those of a queue pair that has failed come only
/// where no work request of this end says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue was full when a completion came: the completion is lost, and its queue
    /// pair goes to the error state. Reported once for each queue.
    CqError {
        /// Number of the queue.
        cq: u64,
    },
    /// A fault of this side or the peer ended a queue pair's stream.
    QpFatal {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair's stream ended because the peer tried to write, read or change memory without
    /// the right to it, or memory that the program has unmapped, protected or truncated while
    /// registered.
    QpAccessError {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair has ended because the peer made a forbidden request or broke a rule; no work
    /// request reports it.
    QpRequestError {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A packet of the peer arrived while the queue pair was still in RTR.
    CommunicationEstablished {
        /// Number of the queue pair.
        qp: u32,
    },
    /// Everything that was started before the queue pair went to SQD has completed.
    SendQueueDrained {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair takes no more receives of its shared receive queue.
    LastReceiveReached {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A shared receive queue has fewer receives than its limit. One-shot.
    SrqLimitReached {
        /// Number of the queue.
        srq: u64,
    },
}

/// Events that wait, with a descriptor that is readable while there are some.
#[derive(Debug)]
pub(crate) struct AsyncQueue {
    events: Mutex<VecDeque<AsyncEvent>>,
    fd: Arc<EventFd>,
    observer: Option<SomeObserver>,
}

impl AsyncQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::on(EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?))
    }

    /// One whose events this descriptor counts.
    pub(crate) fn on(fd: EventFd) -> Self {
        Self { events: Mutex::new(VecDeque::new()), fd: Arc::new(fd), observer: None }
    }

    /// The queue, whose events are told to an observer as well.
    pub(crate) fn observed(self, observer: Option<SomeObserver>) -> Self {
        Self { observer, ..self }
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        if let Some(SomeObserver(observer)) = &self.observer {
            observer.event(&event);
        }
        // The descriptor is changed under the lock, so that it is readable exactly while there
        // are events.
        let mut events = self.events.lock();
        if events.try_reserve(1).is_err() {
            tracing::error!(?event, "out of memory: an asynchronous event is lost");
            return;
        }
        events.push_back(event);
        // Only fails beyond 2^64 events.
        let _ = self.fd.signal();
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        let _ = self.fd.try_wait();
        Some(event)
    }

    /// Drops the events that `which` picks, of an object that is gone.
    pub(crate) fn discard(&self, which: impl Fn(&AsyncEvent) -> bool) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event| !which(event));
        for _ in events.len()..before {
            let _ = self.fd.try_wait();
        }
    }

    /// Readable while there are some.
    pub(crate) const fn fd(&self) -> &Arc<EventFd> {
        &self.fd
    }
}
