// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that a protection domain makes.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use iwarp_mem::{Buffer, RegionSpec, RegisterError, Scope, WindowType};
use iwarp_types::{Access, Stag};

use crate::engine::srq::SrqCore;
use crate::verbs::mr::{MemoryRegion, MemoryWindow};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::{QueuePair, QueuePairAttributes};
use crate::verbs::srq::SharedReceiveQueue;

impl ProtectionDomain {
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
        self.register_scoped(buffer, part, access, Scope::Domain)
    }

    /// As [`Self::register`], for those that `scope` names only.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    #[doc(hidden)]
    pub fn register_for(
        &self,
        scope: Scope,
        buffer: Arc<Buffer>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let whole = 0..buffer.len();
        self.register_scoped(buffer, whole, access, scope)
    }

    fn register_scoped(
        &self,
        buffer: Arc<Buffer>,
        part: Range<usize>,
        access: Access,
        scope: Scope,
    ) -> Result<MemoryRegion, RegisterError> {
        let core = self.alive()?;
        let (memory, len) = (&core.engine.memory, part.len());
        let stag = memory.register_part(core.id, &buffer, part, access, scope)?;
        Ok(MemoryRegion::of(core, stag, 0, len, access | Access::ZERO_BASED, Some(buffer)))
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
        Ok(MemoryRegion::of(core, stag, base, len, access, None))
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
        Ok(MemoryRegion::of(core, stag, 0, usize::MAX, spec.access, None))
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
                Ok(MemoryRegion::of(core, stag, base, len, access, None))
            }
            _ => Err(RegisterError::UnknownStag),
        }
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
        let core = self
            .core
            .derive(|core| SrqCore::new(number, core.id, depth, max_sge, Arc::clone(&core.events)));
        SharedReceiveQueue { core, number, depth }
    }

    /// Makes a queue pair. It is in the Init state, so that receives can be posted before it is
    /// connected.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it asks for more work requests than
    /// [`DeviceAttributes::max_qp_wr`](crate::DeviceAttributes::max_qp_wr); `OutOfMemory`; `ENODEV`
    /// in a forked child.
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
