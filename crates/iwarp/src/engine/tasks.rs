// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors that are waited for on behalf of others.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use iwarp_os::{Epoll, FdPlace, Interest, Ready};

use crate::engine::sync::{Mutex, Ordering};
use crate::port::Descriptors;

/// The token of a worker's wake-up descriptor; no object has it.
pub(crate) const WAKE: u64 = 0;

/// Something that waits for a descriptor.
pub(crate) trait Task: Send + Sync {
    /// The descriptor is ready.
    fn ready(&self, ready: Ready);
}

/// Tasks and their epoll, which may have other descriptors as well.
pub(crate) struct Tasks {
    epoll: Epoll,
    tasks: Mutex<HashMap<u64, Arc<dyn Task>>>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl Tasks {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let epoll = Epoll::new(FdPlace::Internal)?;
        Ok(Arc::new(Self { epoll, tasks: Mutex::new(HashMap::new()) }))
    }

    pub(crate) const fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// Serves `task` whenever its descriptor is ready (level-triggered).
    pub(crate) fn add(
        &self,
        fds: Descriptors<'_>,
        interest: Interest,
        task: Arc<dyn Task>,
    ) -> io::Result<u64> {
        let id = next_id();
        {
            let mut tasks = self.tasks.lock();
            tasks.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
            tasks.insert(id, task);
        }
        let added = fds.add(&self.epoll, id, interest);
        if added.is_err() {
            self.tasks.lock().remove(&id);
        }
        added.map(|()| id)
    }

    /// Changes what a task waits for.
    pub(crate) fn update(
        &self,
        id: u64,
        fds: Descriptors<'_>,
        interest: Interest,
    ) -> io::Result<()> {
        fds.modify(&self.epoll, id, interest)
    }

    /// Stops serving a task. It may still be in a call at this moment.
    pub(crate) fn remove(&self, id: u64, fds: Descriptors<'_>) {
        // A descriptor that was closed is removed already.
        let _ = fds.delete(&self.epoll);
        let task = self.tasks.lock().remove(&id);
        drop(task);
    }

    /// Stops serving all of them, whose descriptors close if they are theirs alone.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        drop(tasks);
    }

    /// The task of that number, if it is one and still there.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<dyn Task>> {
        self.tasks.lock().get(&id).cloned()
    }
}

/// A number that nothing else has, at no worker: completion queues of several may share a channel.
pub(crate) fn next_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(WAKE + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
