// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains: the objects that may be used together.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use iwarp_mem::{Buffer, Prefetch, PrefetchError, RegionSpec, RegisterError, Scope, WindowType};
use iwarp_os::ProcessOwned;
use iwarp_types::{Access, PdId, Sge, Stag};

use crate::engine::Engine;
use crate::engine::event::AsyncQueue;
use crate::engine::numbers::Number;
use crate::engine::options::Wire;
use crate::engine::srq::SrqCore;
use crate::verbs::mr::{MemoryRegion, MemoryWindow};
use crate::verbs::qp::{QueuePair, QueuePairAttributes};
use crate::verbs::srq::SharedReceiveQueue;
use crate::wire::choice::Wires;
use crate::wire::iwarp::rendezvous::RendezvousListeners;
use crate::wire::roce::mux::Mux;

#[derive(Debug)]
pub(crate) struct PdCore {
    pub(crate) id: PdId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
    pub(crate) rendezvous: Arc<RendezvousListeners>,
    pub(crate) wires: Arc<Wires>,
}

impl PdCore {
    /// For what belongs to this process as the domain does.
    pub(crate) fn engine(&self) -> ProcessOwned<Arc<Engine>> {
        ProcessOwned::new(Arc::clone(&self.engine))
    }

    /// A number under which packets find a queue pair of the type RC, where it may speak RoCE v2.
    pub(super) fn number(
        &self,
        of: impl FnOnce(&Arc<Mux>) -> io::Result<Number>,
    ) -> io::Result<Option<Number>> {
        match self.engine.options.spoken() {
            Wire::Iwarp => Ok(None),
            // It is iWARP where there are no datagrams.
            Wire::Auto => {
                Ok(self.wires.mux.open_if_any(&self.engine).and_then(|mux| of(&mux).ok()))
            }
            Wire::Roce => of(&self.wires.mux.open(&self.engine)?).map(Some),
        }
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

    /// Registers `len` bytes of memory that the library allocates (zeroed).
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when the rights contradict each other or the table is full.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        self.register(Arc::new(Buffer::try_new(len)?), access)
    }

    /// Registers a buffer that the library owns; it may be registered several times. Its bytes
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
        let whole = 0..buffer.len();
        self.register_part(buffer, whole, access)
    }

    /// As [`Self::register`], for these bytes of the buffer only; the first of them has the address
    /// 0.
    ///
    /// # Errors
    ///
    /// [`RegisterError::InvalidRange`] if the buffer has fewer bytes; as [`Self::allocate`].
    pub fn register_part(
        &self,
        buffer: Arc<Buffer>,
        part: Range<usize>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let core = self.alive()?;
        let memory = &core.engine.memory;
        let (len, scope) = (part.len(), Scope::Domain);
        let stag = memory.register_part(core.id, &buffer, part, access, scope)?;
        Ok(core.region(stag, 0, len, access | Access::ZERO_BASED, Some(buffer)))
    }

    /// Registers memory that belongs to the program.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    ///
    /// # Safety
    ///
    /// Until the region is deregistered (dropped, or [`MemoryRegion::deregister`] succeeded), the
    /// `len` bytes from `addr` must stay mapped, readable, and writable if `access` has any right
    /// to write. The program must not rely on their not changing (no `&[u8]` or `&mut [u8]` to them
    /// may be used) while the peer or a work request may write there.
    #[allow(unsafe_op_in_unsafe_fn, reason = "passes the caller's promise on, unchanged")]
    pub unsafe fn register_raw(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_raw_at(addr, len, addr as u64, access)
    }

    /// As [`Self::register_raw`]; work requests and the peer address the first byte as `iova`.
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

    /// Registers all memory that the program has and will have, by its addresses: each access finds
    /// out whether its memory exists ([`Access::ON_DEMAND`]).
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    ///
    /// # Safety
    ///
    /// Until the region is deregistered, work requests may name any memory that the program can
    /// read, and with remote rights so may every peer whose queue pair belongs to this domain.
    /// The program must not rely on such memory not changing.
    #[allow(unsafe_op_in_unsafe_fn, reason = "passes the caller's promise on, unchanged")]
    pub unsafe fn register_everything(
        &self,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let core = self.alive()?;
        let spec = RegionSpec::everything(core.id, access);
        let stag = core.engine.memory.register(spec)?;
        Ok(core.region(stag, 0, usize::MAX, spec.access, None))
    }

    /// Makes another handle of a region of this domain. Dropping it ends the region, like the first
    /// one, unless it is [given up](MemoryRegion::disown).
    ///
    /// # Errors
    ///
    /// [`RegisterError::UnknownStag`]: the domain has no such region.
    pub fn adopt(&self, stag: Stag) -> Result<MemoryRegion, RegisterError> {
        let core = self.alive()?;
        match core.engine.memory.region(stag) {
            Some((pd, len, base, access)) if pd == core.id => {
                Ok(core.region(stag, base, len, access, None))
            }
            _ => Err(RegisterError::UnknownStag),
        }
    }

    /// Brings the memory of an element in before it is accessed (`ibv_advise_mr`). The region must
    /// have been registered with [`Access::ON_DEMAND`].
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
    /// child, a dead one with the number 0.
    pub fn create_srq(&self, depth: usize, max_sge: usize) -> SharedReceiveQueue {
        let number = self.core.alive().map_or(0, |core| core.engine.worker.next_id());
        let core = self.core.derive(|core| {
            Arc::new(SrqCore::new(number, core.id, depth, max_sge, Arc::clone(&core.events)))
        });
        SharedReceiveQueue { core, number, depth }
    }

    /// Makes a queue pair. It is in the Init state, so that receives can be posted before it is
    /// connected.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it asks for more work requests than
    /// [`DeviceAttributes::max_qp_wr`](crate::DeviceAttributes::max_qp_wr); `OutOfMemory`; `ENODEV` in
    /// a forked child.
    pub fn create_qp(&self, attributes: &QueuePairAttributes<'_>) -> io::Result<QueuePair> {
        let core = self.core.check()?;
        attributes.check()?;
        QueuePair::new(core, attributes)
    }

    /// Makes a queue pair that can be connected by [`QueuePair::connect_to`], without the
    /// connection manager. Its number leads a peer to it: the first of every 256 takes a TCP port,
    /// on which nothing listens before the queue pair [goes to Init](QueuePair::modify).
    ///
    /// With the personality of an RNIC it is in the Init state, but peers cannot find it before the
    /// program moves it to Init again; with that of a RoCE device it is in the Reset state.
    ///
    /// # Errors
    ///
    /// No port is free, or no descriptor; those of [`Self::create_qp`].
    pub fn create_addressable_qp(
        &self,
        attributes: &QueuePairAttributes<'_>,
    ) -> io::Result<QueuePair> {
        let core = self.core.check()?;
        attributes.check()?;
        QueuePair::addressable(core, attributes)
    }
}
