// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections that exist, so that the process does not exit under them.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use iwarp_mem::OutOfMemory;
use iwarp_os::PerProcess;

use crate::{capture, faults};

/// The time that an exiting process may take to get out what it was told is sent.
const EXIT_BOUND: Duration = Duration::from_secs(2);

static ALL: PerProcess<Mutex<Vec<Weak<Live>>>> = PerProcess::new();

/// A connection that has one.
pub(crate) trait Connection: Send + Sync + fmt::Debug {
    /// Its number, which no other has.
    fn id(&self) -> u32;
    /// The process exits: from now on the program does not see receives flushed that it has not
    /// had flushed itself. Over InfiniBand an exit flushes nothing.
    fn hold_back_receives(&self);
    /// Ends it in good order; returns at once.
    fn end(self: Arc<Self>);
}

/// Connections of one device.
#[derive(Debug, Default)]
pub(crate) struct Live {
    state: Mutex<LiveConnections>,
    gone: Condvar,
}

#[derive(Debug, Default)]
struct LiveConnections {
    connections: HashMap<u32, Arc<dyn Connection>>,
    /// The process exits, and its exit handler waits until there are none.
    ending: bool,
}

impl Live {
    /// A list that is looked at when the process exits.
    pub(crate) fn new() -> Arc<Self> {
        let live = Arc::new(Self::default());
        let mut all = ALL.get().lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|live| live.strong_count() > 0);
        all.push(Arc::downgrade(&live));
        iwarp_os::exit::at_exit(end_all);
        live
    }

    pub(crate) fn add(
        &self,
        connection: &Arc<impl Connection + 'static>,
    ) -> Result<(), OutOfMemory> {
        let mut state = self.lock();
        state.connections.try_reserve(1).map_err(|_| OutOfMemory)?;
        state.connections.insert(connection.id(), Arc::clone(connection) as Arc<dyn Connection>);
        Ok(())
    }

    pub(crate) fn remove(&self, connection: &Arc<impl Connection>) {
        let mut state = self.lock();
        let removed = state.connections.remove(&connection.id());
        if state.ending {
            self.gone.notify_all();
        }
        drop(state);
        // Its last reference may go here, and with it what it holds.
        drop(removed);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LiveConnections> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every connection in good order, even if ending another panics. The kernel would reset
    /// those with unread bytes, and drop what was sent before.
    fn end(&self) {
        let connections: Vec<_> = {
            let mut state = self.lock();
            state.ending = true;
            state.connections.values().cloned().collect()
        };
        // All before the first, which may be another's peer.
        connections.iter().for_each(|connection| connection.hold_back_receives());
        for connection in connections {
            // Reported where panics are.
            let _ = catch_unwind(AssertUnwindSafe(|| connection.end()));
        }
    }

    /// Waits until there are none.
    fn wait(&self, deadline: Instant) {
        let mut left = self.lock();
        while !left.connections.is_empty() {
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            left = match self.gone.wait_timeout(left, deadline - now) {
                Ok((left, _)) => left,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

fn end_all() {
    let all: Vec<_> = {
        let all = ALL.get().lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    let deadline = Instant::now() + EXIT_BOUND;
    all.iter().for_each(|live| live.end());
    all.iter().for_each(|live| live.wait(deadline));
    capture::write_out();
    faults::write_out();
}
