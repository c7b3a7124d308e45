// SPDX-License-Identifier: MIT OR Apache-2.0

//! The core that keeps a session up, and the fate of its operations once it is dropped.

use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp::verbs::Ended;
use iwarp::verbs::ProtectionDomain;
use iwarp_mem::RegisterError;
use iwarp_os::ProcessOwned;
use iwarp_types::{Access, PostError, Sge};

use super::Core;
use super::end::End;
use super::places::Place;
use crate::cargo::Cargo;
use crate::work::Work;
use crate::{Block, Config, Exposed, Failure, OperationError};

/// The time that the leavings of a dropped session go without a look, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Held by a session and by each wait for one of its operations. The connection ends with the last
/// of them.
pub(crate) struct Handle {
    core: ProcessOwned<Arc<Core>>,
    pub(crate) pd: ProtectionDomain,
    pub(crate) end: Arc<End>,
    /// Is told when there is a connection.
    told: OnceLock<Weak<dyn WhenConnected>>,
}

/// Is told when a session has its connection.
pub(crate) trait WhenConnected: Send + Sync {
    fn connected(self: Arc<Self>);
}

impl Handle {
    pub(crate) fn new(pd: &ProtectionDomain, config: &Config) -> Result<Self, OperationError> {
        let core = Arc::new(Core::new(pd, config)?);
        let end = End::new(&core, core.background.clone());
        Ok(Self { core: ProcessOwned::new(core), pd: pd.clone(), end, told: OnceLock::new() })
    }

    /// Has `told` told when there is a connection.
    pub(crate) fn when_connected(&self, told: Weak<dyn WhenConnected>) {
        let _ = self.told.set(told);
    }

    /// There is one.
    pub(crate) fn connected(&self) {
        if let Some(told) = self.told.get().and_then(Weak::upgrade) {
            told.connected();
        }
    }

    /// The end of the connection, if it has ended.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.alive()?;
        self.end.why()
    }

    /// The core behind it; `None` in a forked child.
    #[inline]
    pub(crate) fn alive(&self) -> Option<&Arc<Core>> {
        self.core.alive()
    }

    /// As [`Self::alive`].
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> io::Result<&Arc<Core>> {
        self.core.check()
    }

    /// Posts a send work request.
    pub(crate) fn post_send(&self, work: Work<'_>, place: Option<Place>) -> Result<u64, Failure> {
        match self.alive() {
            Some(core) => core.post_send(work, place),
            None => Err(Failure::with(PostError::WrongState, work.cargo)),
        }
    }

    /// Posts a receive work request for blocks, or for `other` bytes.
    pub(crate) fn post_recv(&self, cargo: Cargo<Block>, other: &[Sge]) -> Result<u64, Failure> {
        match self.alive() {
            Some(core) => core.post_recv(cargo, other),
            None => Err(Failure::with(PostError::WrongState, cargo)),
        }
    }

    /// Memory that only this session's peer can reach.
    pub(crate) fn expose(&self, len: usize, access: Access) -> Result<Exposed, RegisterError> {
        self.alive().ok_or(RegisterError::Exhausted)?.expose(len, access)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(core) = self.core.alive() else { return };
        core.qp.disconnect();
        core.progress();
        // A task that sleeps on the channel finds that there is nothing left to do.
        core.drive.wake();
        if !core.lock().is_idle() {
            // Sends that were accepted go out still: their memory waits for that. The engine bounds
            // how long a connection that ends may take; this is for when that fails.
            look_after(Arc::clone(core), FIRST_LOOK, self.pd.linger() * 2);
        }
    }
}

/// Completes what a dropped session left behind, on the worker's thread, for so long.
fn look_after(core: Arc<Core>, wait: Duration, left: Duration) {
    let background = core.background.clone();
    background.after(
        wait,
        Box::new(move || {
            core.progress();
            if core.lock().is_idle() {
                return;
            }
            match left.checked_sub(wait) {
                Some(left) => look_after(core, (wait * 2).min(LAST_LOOK), left),
                None => {
                    core.qp.abort();
                    core.progress();
                }
            }
        }),
    );
}
