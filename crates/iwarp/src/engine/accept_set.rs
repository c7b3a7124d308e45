// SPDX-License-Identifier: MIT OR Apache-2.0

//! The poll set of a listener: its sockets in start-up, which the caller that is blocked for a
//! connection drives, and the worker otherwise.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::{Epoll, Events};

use crate::engine::handover::Handover;
use crate::engine::poll_set::{By, PollSet};
use crate::engine::sync::Mutex;
use crate::engine::tasks::{Tasks, next_id};
use crate::engine::worker::Worker;
use crate::port::Clock;

/// Sockets that one look at the epoll reports at most.
const EVENTS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct AcceptSet {
    id: u64,
    tasks: Arc<Tasks>,
    driver: Mutex<Events>,
    handover: Handover,
    worker: Arc<Worker>,
}

impl AcceptSet {
    /// One without sockets, which the worker looks after.
    pub(crate) fn new(worker: &Arc<Worker>) -> io::Result<Arc<Self>> {
        let set = Arc::new(Self {
            id: next_id(),
            tasks: Tasks::new()?,
            driver: Mutex::new(Events::with_capacity(EVENTS)),
            handover: Handover::new(),
            worker: Arc::clone(worker),
        });
        let itself = Arc::downgrade(&set) as Weak<dyn PollSet>;
        worker.add_accept_set(set.id, itself, set.tasks.epoll())?;
        Ok(set)
    }

    pub(crate) const fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }
}

impl Drop for AcceptSet {
    /// Connections whose Request has not come yet end with the listener.
    fn drop(&mut self) {
        self.tasks.clear();
    }
}

impl PollSet for AcceptSet {
    fn id(&self) -> u64 {
        self.id
    }

    fn epoll(&self) -> io::Result<&Epoll> {
        Ok(self.tasks.epoll())
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn clock(&self) -> &Clock {
        self.worker.clock()
    }

    fn report_once(&self) {
        self.worker.report_once(self.id, self.tasks.epoll());
    }

    fn look_again(&self, at: u64) {
        self.worker.look_again(self, at);
    }

    fn listen(&self) {}

    fn drive(&self, by: By) -> bool {
        let Some(mut events) = self.driver.try_lock() else { return false };
        match self.tasks.epoll().wait(&mut events, Some(Duration::ZERO)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let _call = (by != By::Worker).then(|| self.handover.call());
        for ready in events.iter() {
            if let Some(task) = self.tasks.find(ready.token) {
                task.ready(ready);
            }
        }
        true
    }
}
