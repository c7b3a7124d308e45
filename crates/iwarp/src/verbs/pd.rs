// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains: the objects that may be used together.

use std::sync::Arc;
use std::time::Duration;

use iwarp_mem::{MemoryTable, Prefetch, PrefetchError, RegisterError};
use iwarp_os::ProcessOwned;
use iwarp_types::{PdId, Sge};

use crate::engine::Engine;
use crate::engine::event_queue::AsyncQueue;
use crate::wire::choice::Wires;

#[derive(Debug)]
pub(crate) struct PdCore {
    pub(crate) id: PdId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
    /// The wires of its device.
    pub(crate) wires: Arc<Wires>,
}

impl PdCore {
    /// For what belongs to this process as the domain does.
    pub(crate) fn engine(&self) -> ProcessOwned<Arc<Engine>> {
        ProcessOwned::new(Arc::clone(&self.engine))
    }
}

/// A protection domain. Queue pairs can use only the regions and windows of their own domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) core: ProcessOwned<Arc<PdCore>>,
    pub(super) id: PdId,
}

impl ProtectionDomain {
    /// Its number.
    pub fn id(&self) -> PdId {
        self.id
    }

    /// The time that a peer has to take what was accepted before its connection ended; none in a
    /// forked child.
    #[doc(hidden)]
    pub fn linger(&self) -> Duration {
        self.core.alive().map_or(Duration::ZERO, |core| core.engine.options.linger)
    }

    /// The table of the memory that is registered with its device.
    ///
    /// # Errors
    ///
    /// [`RegisterError::Exhausted`] in a forked child.
    #[doc(hidden)]
    pub fn memory(&self) -> Result<&Arc<MemoryTable>, RegisterError> {
        Ok(&self.alive()?.engine.memory)
    }

    /// Brings the memory of an element in before it is accessed (`ibv_advise_mr`). The region must
    /// have been registered with [`Access::ON_DEMAND`](iwarp_types::Access::ON_DEMAND).
    ///
    /// # Errors
    ///
    /// [`PrefetchError`]; [`PrefetchError::UnknownStag`] in a forked child.
    pub fn prefetch(&self, sge: Sge, what: Prefetch) -> Result<(), PrefetchError> {
        let core = self.core.alive().ok_or(PrefetchError::UnknownStag)?;
        core.engine.memory.prefetch(core.id, sge, what)
    }

    /// Makes the checks of [`Self::prefetch`], but brings nothing in.
    ///
    /// # Errors
    ///
    /// As [`Self::prefetch`].
    pub fn check_advice(&self, sge: Sge, what: Prefetch) -> Result<(), PrefetchError> {
        let core = self.core.alive().ok_or(PrefetchError::UnknownStag)?;
        core.engine.memory.check_advice(core.id, sge, what)
    }

    /// In a forked child no STag can be had.
    pub(crate) fn alive(&self) -> Result<&Arc<PdCore>, RegisterError> {
        self.core.alive().ok_or(RegisterError::Exhausted)
    }
}

/// Equal are handles of one domain, in a forked child too.
impl PartialEq for ProtectionDomain {
    fn eq(&self, other: &Self) -> bool {
        self.core.is(&other.core)
    }
}

impl Eq for ProtectionDomain {}
