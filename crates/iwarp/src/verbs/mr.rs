// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions and windows.

use std::sync::Arc;

use iwarp_mem::{Buffer, RegionChange, RegisterError, WindowType};
use iwarp_os::ProcessOwned;
use iwarp_types::{Access, Sge, Stag, TaggedOffset};

use crate::engine::Engine;
use crate::verbs::pd::{PdCore, ProtectionDomain};

/// A memory region: bytes that work requests may name and, with the right, the peer may reach.
/// Dropping it deregisters: that waits for uses under way (microseconds), and afterwards nothing
/// touches the memory.
#[derive(Debug)]
pub struct MemoryRegion {
    /// Released when the region is deregistered: then nothing is left to be done.
    pub(crate) engine: ProcessOwned<Arc<Engine>>,
    pub(crate) stag: Stag,
    pub(crate) base: u64,
    pub(crate) len: usize,
    pub(crate) access: Access,
    /// Keeps owned memory alive as long as it is registered.
    pub(crate) buffer: Option<Arc<Buffer>>,
}

impl MemoryRegion {
    /// The handle of what was registered in a domain.
    pub(crate) fn of(
        pd: &PdCore,
        stag: Stag,
        base: u64,
        len: usize,
        access: Access,
        buffer: Option<Arc<Buffer>>,
    ) -> Self {
        Self { engine: pd.engine(), stag, base, len, access, buffer }
    }

    /// The STag for local work requests.
    pub const fn lkey(&self) -> Stag {
        self.stag
    }

    /// The STag for the peer, if the region grants remote access.
    pub const fn rkey(&self) -> Stag {
        self.stag
    }

    /// The offset of the first byte: its address, or 0 in a zero-based region.
    pub const fn base(&self) -> TaggedOffset {
        TaggedOffset(self.base)
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Rights.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// True in a forked child of the process that registered it: then dropping it does nothing.
    pub fn is_inherited(&self) -> bool {
        self.engine.is_inherited()
    }

    /// The memory, if the library owns it.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_deref()
    }

    /// The element for bytes `offset..offset + len`. A range outside the region makes an
    /// element whose work request fails.
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.base.wrapping_add(offset as u64),
            length: u32::try_from(len).unwrap_or(u32::MAX),
            lkey: self.stag,
        }
    }

    /// The element for all of it (the first 4 GiB).
    pub fn whole(&self) -> Sge {
        self.sge(0, self.len)
    }

    /// Changes the region in place, after uses under way have ended; the STag stays. An argument of
    /// `None` changes nothing. `translation` is the address of the memory, its length in bytes, and
    /// the offset of the first byte.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]; nothing is changed then.
    ///
    /// # Safety
    ///
    /// As [`ProtectionDomain::register_raw`], for the region as it is afterwards. A region of
    /// memory that the library owns may not be given another translation.
    #[allow(unsafe_op_in_unsafe_fn, reason = "passes the caller's promise on, unchanged")]
    pub unsafe fn reregister(
        &mut self,
        pd: Option<&ProtectionDomain>,
        translation: Option<(*mut u8, usize, u64)>,
        access: Option<Access>,
    ) -> Result<(), RegisterError> {
        let change = RegionChange { pd: pd.map(ProtectionDomain::id), translation, access };
        let engine = self.engine.alive().ok_or(RegisterError::UnknownStag)?;
        engine.memory.reregister(self.stag, change)?;
        self.access = access.unwrap_or(self.access);
        if let Some((_, len, iova)) = translation {
            (self.base, self.len) = (iova, len);
        }
        if self.access.contains(Access::ZERO_BASED) {
            self.base = 0;
        }
        Ok(())
    }

    /// Ends the registration and reports whether that succeeded.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] while memory windows are bound to the region; then the region stays
    /// registered and is returned.
    pub fn deregister(mut self) -> Result<(), (Self, RegisterError)> {
        let Some(engine) = self.engine.alive() else {
            return Err((self, RegisterError::UnknownStag));
        };
        match engine.memory.deregister(self.stag) {
            Ok(()) => {
                self.engine.release();
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Drops the handle and leaves the region registered: for one that was
    /// [adopted](ProtectionDomain::adopt).
    pub fn disown(mut self) {
        self.engine.release();
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.alive()
            && let Err(error) = engine.memory.deregister(self.stag)
        {
            // Windows are bound to it. A buffer of ours stays alive with the registration.
            tracing::warn!(stag = ?self.stag, %error, "region dropped while in use stays registered");
        }
    }
}

/// A memory window: a part of a region under an STag and rights of its own, bound by a work
/// request ([`SendOp::Bind`](iwarp_types::SendOp::Bind)).
#[derive(Debug)]
pub struct MemoryWindow {
    pub(crate) engine: ProcessOwned<Arc<Engine>>,
    pub(crate) stag: Stag,
    pub(crate) kind: WindowType,
}

impl MemoryWindow {
    /// The STag with which it was made; binding gives it another key.
    pub const fn stag(&self) -> Stag {
        self.stag
    }

    /// Its type.
    pub const fn kind(&self) -> WindowType {
        self.kind
    }

    /// The next STag for a bind: same index, another key.
    ///
    /// # Errors
    ///
    /// When the window is gone.
    pub fn next_stag(&self) -> Result<Stag, RegisterError> {
        let engine = self.engine.alive().ok_or(RegisterError::UnknownStag)?;
        engine.memory.fresh_key(self.stag)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.alive() {
            // It exists as long as this handle does.
            let _ = engine.memory.deallocate_own_window(self.stag);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::engine::options::Options;
    use crate::verbs::device::Device;

    fn domain() -> ProtectionDomain {
        Device::with_options(Options::default()).unwrap().alloc_pd()
    }

    /// The work request fails, and not the program.
    #[test]
    fn an_element_outside_the_region_is_no_panic() {
        let region = domain().allocate(16, Access::LOCAL_WRITE).unwrap();
        let beyond = region.sge(usize::MAX, usize::MAX);
        assert_eq!((beyond.addr, beyond.length), (u64::MAX, u32::MAX));
        assert_eq!(region.whole(), Sge { addr: 0, length: 16, lkey: region.lkey() });
    }

    #[test]
    fn a_part_begins_at_0_and_lies_within_its_buffer() {
        let (pd, buffer) = (domain(), Arc::new(Buffer::new(64)));
        let part = |range| pd.register_part(Arc::clone(&buffer), range, Access::LOCAL_WRITE);
        let region = part(48..64).unwrap();
        assert_eq!((region.base().0, region.len()), (0, 16));
        assert!(matches!(part(48..65), Err(RegisterError::InvalidRange)));
    }

    #[test]
    fn a_region_is_adopted_by_its_own_domain_only() {
        let device = Device::with_options(Options::default()).unwrap();
        let (own, other) = (device.alloc_pd(), device.alloc_pd());
        let region = own.allocate(16, Access::LOCAL_WRITE).unwrap();
        let stag = region.lkey();
        assert!(matches!(other.adopt(stag), Err(RegisterError::UnknownStag)));
        let adopted = own.adopt(stag).unwrap();
        assert_eq!((adopted.len(), adopted.access()), (16, region.access()));
        adopted.disown();
        assert!(region.deregister().is_ok());
        assert!(matches!(own.adopt(stag), Err(RegisterError::UnknownStag)));
    }
}
