//! Where connections that come in are received: by the caller that is blocked there for one, by
//! the worker otherwise.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{Epoll, Events};

use crate::engine::handover::Handover;
use crate::engine::sync::Mutex;
use crate::engine::tasks::{Tasks, next_id};
use crate::engine::tended::{By, Tended};
use crate::engine::worker::Worker;

/// Sockets looked at in one go.
const EVENTS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Desk {
    id: u64,
    tasks: Arc<Tasks>,
    driver: Mutex<Events>,
    handover: Handover,
    worker: Arc<Worker>,
}

impl Desk {
    /// One without sockets, which the worker looks after.
    pub(crate) fn new(worker: &Arc<Worker>) -> io::Result<Arc<Self>> {
        let desk = Arc::new(Self {
            id: next_id(),
            tasks: Tasks::new()?,
            driver: Mutex::new(Events::with_capacity(EVENTS)),
            handover: Handover::new(),
            worker: Arc::clone(worker),
        });
        worker.add_desk(Arc::clone(&desk) as Arc<dyn Tended>)?;
        Ok(desk)
    }

    pub(crate) const fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }
}

impl Drop for Desk {
    /// Connections whose Request has not come yet end with the listener.
    fn drop(&mut self) {
        self.tasks.clear();
    }
}

impl Tended for Desk {
    fn id(&self) -> u64 {
        self.id
    }

    fn epoll(&self) -> &Epoll {
        self.tasks.epoll()
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn arm(&self) {
        self.worker.arm(self);
    }

    fn rouse(&self) {}

    fn drive(&self, by: By) -> bool {
        let Some(mut events) = self.driver.try_lock() else { return false };
        match self.epoll().wait(&mut events, Some(Duration::ZERO)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let driven = (by != By::Worker).then(|| self.handover.driven());
        for ready in events.iter() {
            if let Some(task) = self.tasks.find(ready.token) {
                task.ready(ready);
            }
        }
        self.handover.moved();
        drop(driven);
        true
    }
}
