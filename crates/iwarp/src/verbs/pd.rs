//! Protection domains: what may be used with what.

use std::io;
use std::sync::Arc;

use iwarp_mem::{Buffer, RegionSpec, RegisterError, Scope, WindowType};
use iwarp_types::{Access, PdId, Stag};

use crate::engine::event::AsyncQueue;
use crate::engine::srq::SrqCore;
use crate::engine::{Engine, keep_inherited};
use crate::rendezvous::Rendezvous;
use crate::verbs::mr::{MemoryRegion, MemoryWindow};
use crate::verbs::qp::{QueuePair, QueuePairAttributes};
use crate::verbs::srq::SharedReceiveQueue;

#[derive(Debug)]
pub(crate) struct PdCore {
    pub(crate) id: PdId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
    pub(crate) rendezvous: Arc<Rendezvous>,
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
        self.register(Arc::new(Buffer::try_new(len)?), access)
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
        self.check()?;
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
        self.register_raw_at(addr, len, addr as u64, access)
    }

    /// As [`Self::register_raw`]; the first octet is called `iova` in work requests and by the
    /// peer.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    ///
    /// # Safety
    ///
    /// As [`Self::register_raw`].
    #[allow(unsafe_op_in_unsafe_fn, reason = "passes the caller's promise on, unchanged")]
    pub unsafe fn register_raw_at(
        &self,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.check()?;
        let spec = RegionSpec { iova, ..RegionSpec::new(self.core.id, addr, len, access) };
        let stag = self.core.engine.memory.register(spec)?;
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { spec.iova };
        Ok(self.region(stag, base, len, access, None))
    }

    /// In a forked child no STag can be had.
    fn check(&self) -> Result<(), RegisterError> {
        if self.core.engine.is_inherited() { Err(RegisterError::Exhausted) } else { Ok(()) }
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
        self.check()?;
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
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn create_qp(&self, attributes: &QueuePairAttributes<'_>) -> io::Result<QueuePair> {
        Ok(QueuePair::new(&self.core, attributes)?)
    }

    /// Makes a queue pair that can be connected by [`QueuePair::connect_to`], without the
    /// connection manager. Its number leads a peer to it: the first of 256 takes a TCP port, at
    /// which nothing listens before the queue pair [goes to Init](QueuePair::modify).
    ///
    /// With the personality of an RNIC it is in the Init state, but not to be found before the
    /// program says Init once more; with that of a RoCE device it is in the Reset state.
    ///
    /// # Errors
    ///
    /// No port is free, or no descriptor; `OutOfMemory`.
    pub fn create_addressable_qp(
        &self,
        attributes: &QueuePairAttributes<'_>,
    ) -> io::Result<QueuePair> {
        QueuePair::addressable(&self.core, attributes)
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        keep_inherited(self.core.engine.process, &self.core);
    }
}
