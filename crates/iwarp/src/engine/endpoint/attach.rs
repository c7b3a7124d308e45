// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream comes to its queue pair, or a multicast group.

use std::any::TypeId;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_types::PostError;

use super::{Endpoint, EndpointCore, Patience};
use crate::engine::ended::ConnectionObserver;
use crate::engine::fate::Fate;
use crate::engine::mover::StreamMover;
use crate::engine::policy::habits::Habits;

/// A stream that an endpoint is about to have.
pub(crate) struct Adoption<'a> {
    pub(crate) link: Arc<dyn StreamMover>,
    /// The type of the cores whose bytes it moves.
    pub(crate) moves: TypeId,
    /// The number of the connection, of
    /// [`Worker::next_id`](crate::engine::worker::Worker::next_id).
    pub(crate) connection: u64,
    /// Bytes that are built at most before the stream takes some.
    pub(crate) budget: usize,
    pub(crate) observer: Option<Arc<dyn ConnectionObserver>>,
    pub(crate) fate: Option<Arc<Fate>>,
    /// Has the core begin.
    pub(crate) establish: &'a mut dyn FnMut(&mut dyn EndpointCore),
}

impl Endpoint {
    /// Has a stream from now on, which begins to move in the groups of [`Self::groups`]. Returns
    /// the patience with its peer, if the program has set one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it has one, or cannot have one; out of memory.
    pub(crate) fn adopt(self: &Arc<Self>, adoption: Adoption<'_>) -> io::Result<Option<Patience>> {
        let Adoption { link, moves, connection, budget, observer, fate, establish } = adoption;
        let mut core = self.core.lock();
        if !core.core.is(moves) || core.link.is_some() || core.core.is_outlived() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.engine.live.add(self)?;
        core.program.observer = observer;
        core.program.fate = fate;
        establish(&mut *core.core);
        core.link = Some(link);
        core.connection = connection;
        core.habits = Habits::new(self.depth, 2 * budget, self.engine.options.without);
        self.hand_on(&mut core);
        Ok(core.patience)
    }

    /// Has a queue pair of the type UD get the packets to a multicast group, too. A repetition
    /// changes nothing.
    pub(crate) fn attach_multicast(self: &Arc<Self>, group: IpAddr) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let mux = self.packets.as_ref().ok_or_else(invalid)?;
        let is_new = self.with(|core| {
            core.multicast().ok_or_else(invalid)?.attach(group).map_err(|error| match error {
                PostError::OutOfMemory => io::ErrorKind::OutOfMemory.into(),
                _ => invalid(),
            })
        })?;
        if !is_new {
            return Ok(());
        }
        mux.attach(group, self).inspect_err(|_| {
            self.with(|core| core.multicast().map(|groups| groups.detach(group)));
        })
    }

    /// Ends that. `InvalidInput` where it was not attached.
    pub(crate) fn detach_multicast(&self, group: IpAddr) -> io::Result<()> {
        let was = self.with(|core| core.multicast().is_some_and(|groups| groups.detach(group)));
        let (true, Some(mux)) = (was, &self.packets) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        mux.detach(Some(group), self);
        Ok(())
    }

    /// Sets the program's own permission to use Reads and Atomics.
    pub(crate) fn set_reads(&self, allowed: bool) {
        self.core.lock().reads = allowed;
    }

    /// The transport may hear nothing of the peer for so long while something is under way;
    /// `None`: as long as the system likes.
    pub(crate) fn set_patience(self: &Arc<Self>, patience: Option<Duration>) {
        let link = {
            let mut core = self.core.lock();
            core.patience = Some(Patience(patience));
            core.link.clone()
        };
        if let Some(link) = link {
            link.set_patience(patience);
        }
    }
}
