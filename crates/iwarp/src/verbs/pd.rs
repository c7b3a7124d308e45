//! Protection domains: what may be used with what.

use std::io;
use std::sync::Arc;

use iwarp_mem::{Buffer, RegionSpec, RegisterError, Scope, WindowType};
use iwarp_os::ProcessOwned;
use iwarp_types::{Access, PdId, Stag};

use crate::engine::Engine;
use crate::engine::event::AsyncQueue;
use crate::engine::srq::SrqCore;
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

impl PdCore {
    /// For what belongs to this process as the domain does.
    pub(crate) fn engine(&self) -> ProcessOwned<Arc<Engine>> {
        ProcessOwned::new(Arc::clone(&self.engine))
    }

    /// The handle of what was registered.
    pub(crate) fn region(
        &self,
        stag: Stag,
        base: u64,
        len: usize,
        access: Access,
        buffer: Option<Arc<Buffer>>,
    ) -> MemoryRegion {
        let engine = self.engine();
        MemoryRegion { engine, stag, base, len, access, buffer }
    }
}

/// A protection domain. Queue pairs can use the regions and windows of their own domain only.
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
        let core = self.alive()?;
        let memory = &core.engine.memory;
        let stag = memory.register_buffer(core.id, &buffer, access, Scope::Domain)?;
        let (len, access) = (buffer.len(), access | Access::ZERO_BASED);
        Ok(core.region(stag, 0, len, access, Some(buffer)))
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
        let core = self.alive()?;
        let spec = RegionSpec { iova, ..RegionSpec::new(core.id, addr, len, access) };
        let stag = core.engine.memory.register(spec)?;
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { spec.iova };
        Ok(core.region(stag, base, len, access, None))
    }

    /// In a forked child no STag can be had.
    pub(crate) fn alive(&self) -> Result<&Arc<PdCore>, RegisterError> {
        self.core.alive().ok_or(RegisterError::Exhausted)
    }

    /// Allocates a memory window.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when the table is full.
    pub fn allocate_window(&self, kind: WindowType) -> Result<MemoryWindow, RegisterError> {
        let core = self.alive()?;
        let stag = core.engine.memory.allocate_window(core.id, kind)?;
        Ok(MemoryWindow { engine: core.engine(), stag, kind })
    }

    /// Makes a shared receive queue of `depth` receives with up to `max_sge` elements; in a forked
    /// child one that is as dead as this, with the number 0.
    pub fn create_srq(&self, depth: usize, max_sge: usize) -> SharedReceiveQueue {
        let number = self.core.alive().map_or(0, |core| core.engine.worker.next_id());
        let core = self.core.derive(|core| {
            Arc::new(SrqCore::new(number, depth, max_sge, Arc::clone(&core.events)))
        });
        SharedReceiveQueue { core, number, depth }
    }

    /// Makes a queue pair. It is in the Init state, so that receives can be posted before it is
    /// connected.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `ENODEV` in a forked child.
    pub fn create_qp(&self, attributes: &QueuePairAttributes<'_>) -> io::Result<QueuePair> {
        QueuePair::new(self.core.check()?, attributes)
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
    /// No port is free, or no descriptor; `OutOfMemory`; `ENODEV` in a forked child.
    pub fn create_addressable_qp(
        &self,
        attributes: &QueuePairAttributes<'_>,
    ) -> io::Result<QueuePair> {
        QueuePair::addressable(self.core.check()?, attributes)
    }
}
