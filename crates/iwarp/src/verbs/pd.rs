//! Protection domains: what may be used with what.

use std::sync::Arc;

use iwarp_mem::{Buffer, RegionSpec, RegisterError, Scope, WindowType};
use iwarp_proto::memory::{Access, PdId};
use iwarp_proto::types::Stag;

use crate::engine::Engine;
use crate::verbs::event::AsyncQueue;
use crate::verbs::mr::{MemoryRegion, MemoryWindow};
use crate::verbs::qp::{QueuePair, QueuePairAttributes};
use crate::verbs::srq::{SharedReceiveQueue, SrqCore};

#[derive(Debug)]
pub(crate) struct PdCore {
    pub(crate) id: PdId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
}

/// A protection domain. Queue pairs can use the regions and windows of their own domain only.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) core: Arc<PdCore>,
}

impl ProtectionDomain {
    /// Its number.
    pub fn id(&self) -> PdId {
        self.core.id
    }

    /// Registers `len` octets of memory that the library allocates (zeroed).
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when the rights contradict each other or the table is full.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        self.register(Arc::new(Buffer::new(len)), access)
    }

    /// Registers a buffer that the library owns; it may be registered several times. Its octets
    /// are addressed from 0 ([`Access::ZERO_BASED`]).
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    pub fn register(
        &self,
        buffer: Arc<Buffer>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let memory = &self.core.engine.memory;
        let stag = memory.register_buffer(self.core.id, &buffer, access, Scope::Domain)?;
        let (len, access) = (buffer.len(), access | Access::ZERO_BASED);
        Ok(self.region(stag, 0, len, access, Some(buffer)))
    }

    /// Registers memory of the program's.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    ///
    /// # Safety
    ///
    /// Until the region is deregistered (dropped, or [`MemoryRegion::deregister`] returned
    /// well), the `len` octets from `addr` must stay mapped, readable, and writable if `access`
    /// has any right to write. Nothing in the program may rely on their not changing (no `&[u8]`
    /// or `&mut [u8]` to them may be used) while the peer or a work request may write there.
    #[allow(unsafe_op_in_unsafe_fn, reason = "passes the caller's promise on, unchanged")]
    pub unsafe fn register_raw(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let spec = RegionSpec::new(self.core.id, addr, len, access);
        let stag = self.core.engine.memory.register(spec)?;
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { spec.iova };
        Ok(self.region(stag, base, len, access, None))
    }

    fn region(
        &self,
        stag: Stag,
        base: u64,
        len: usize,
        access: Access,
        buffer: Option<Arc<Buffer>>,
    ) -> MemoryRegion {
        let engine = Arc::clone(&self.core.engine);
        MemoryRegion { engine, stag, base, len, access, buffer, registered: true }
    }

    /// Allocates a memory window.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when the table is full.
    pub fn allocate_window(&self, kind: WindowType) -> Result<MemoryWindow, RegisterError> {
        let engine = Arc::clone(&self.core.engine);
        let stag = engine.memory.allocate_window(self.core.id, kind)?;
        Ok(MemoryWindow { engine, stag, kind })
    }

    /// Makes a shared receive queue of `depth` receives with up to `max_sge` elements.
    pub fn create_srq(&self, depth: usize, max_sge: usize) -> SharedReceiveQueue {
        let number = self.core.engine.worker.next_id();
        let events = Arc::clone(&self.core.events);
        SharedReceiveQueue { core: Arc::new(SrqCore::new(number, depth, max_sge, events)) }
    }

    /// Makes a queue pair. It is in the Init state, so that receives can be posted before it is
    /// connected.
    pub fn create_qp(&self, attributes: &QueuePairAttributes<'_>) -> QueuePair {
        QueuePair::new(&self.core, attributes)
    }
}
