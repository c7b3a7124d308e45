// SPDX-License-Identifier: MIT OR Apache-2.0

//! The asynchronous events of a device that wait for the program.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use iwarp_os::{EventFd, EventFdKind, FdPlace};

use crate::engine::event::AsyncEvent;
use crate::engine::observe::SomeObserver;
use crate::engine::sync::Mutex;

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

    /// The observer of the device.
    pub(crate) fn observer(&self) -> Option<&SomeObserver> {
        self.observer.as_ref()
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
