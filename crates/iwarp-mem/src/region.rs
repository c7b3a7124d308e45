// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions: registering, changing and revoking them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iwarp_types::{Access, AccessError, Accessor, Invalidator, PdId, QpId, Stag};

use crate::buffer::Buffer;
use crate::fault;
use crate::observe::AccessObserver;
use crate::readers::Readers;
use crate::room::OutOfMemory;
use crate::slot::{Control, Grant, Kind, RegionControl, Slot};
use crate::source;
use crate::table::StagTable;

/// The streams that may use a region's STag (RFC 5041 §8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Every stream of the protection domain. A peer cannot invalidate it, as other streams may
    /// share it (RFC 5040 §8.1.1).
    #[default]
    Domain,
    /// One stream of the protection domain. Its peer may invalidate the STag.
    Stream(QpId),
}

/// The memory to register, and how.
#[derive(Clone, Copy, Debug)]
pub struct RegionSpec {
    /// Protection domain.
    pub pd: PdId,
    /// First byte.
    pub addr: *mut u8,
    /// Bytes; may be 0.
    pub len: usize,
    /// The tagged offset of the first byte, and its address in local work requests. Ignored with
    /// [`Access::ZERO_BASED`], where it is 0.
    pub iova: u64,
    /// Rights. Bits that [`Access`] does not name mean nothing here.
    pub access: Access,
    /// Streams that may use it.
    pub scope: Scope,
}

impl RegionSpec {
    /// Memory that is addressed by its own virtual addresses, open to every stream of `pd`.
    pub fn new(pd: PdId, addr: *mut u8, len: usize, access: Access) -> Self {
        Self { pd, addr, len, iova: addr as u64, access, scope: Scope::Domain }
    }

    /// All memory that the program has at the time of an access, by its virtual addresses.
    pub fn everything(pd: PdId, access: Access) -> Self {
        let access = access | Access::ON_DEMAND;
        // No memory lies at address 0, and the upper half of the address space is the kernel's.
        let addr: *mut u8 = std::ptr::with_exposed_provenance_mut(1);
        Self { len: isize::MAX.cast_unsigned() - 1, ..Self::new(pd, addr, 0, access) }
    }

    /// Checks that rights and range make sense, and makes the grant it asks for.
    pub(crate) fn grant(&self, stag: Stag) -> Result<Grant, RegisterError> {
        if self.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !self.access.contains(Access::LOCAL_WRITE)
        {
            return Err(RegisterError::InvalidAccess);
        }
        let origin = if self.access.contains(Access::ZERO_BASED) { 0 } else { self.iova };
        // No object is larger, and pointer arithmetic relies on it.
        let sane = isize::try_from(self.len).is_ok()
            && (self.addr as usize).checked_add(self.len).is_some()
            && origin.checked_add(self.len as u64).is_some();
        if !sane {
            return Err(RegisterError::InvalidRange);
        }
        Ok(Grant {
            stag,
            access: self.access,
            base: self.addr,
            len: self.len as u64,
            origin,
            pd: Some(self.pd),
            qp: match self.scope {
                Scope::Domain => None,
                Scope::Stream(qp) => Some(qp),
            },
        })
    }
}

/// The changes of [`MemoryTable::reregister`]; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionChange {
    /// Another protection domain.
    pub pd: Option<PdId>,
    /// Another piece of memory: address, bytes, tagged offset of the first.
    pub translation: Option<(*mut u8, usize, u64)>,
    /// Other rights.
    pub access: Option<Access>,
}

/// The reason why a region or window was not made, changed or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Remote write or atomic rights without local write (`EINVAL`).
    #[error("remote write and atomic rights need local write")]
    InvalidAccess,
    /// Address or tagged offset plus length overflow (`EINVAL`).
    #[error("range overflows")]
    InvalidRange,
    /// The program has no memory there, or none that it may read (`EFAULT`).
    #[error("range is not mapped or not readable")]
    NotMapped,
    /// The program may not write to the memory, and the access asks for that (`EFAULT`).
    #[error("range is not writable")]
    NotWritable,
    /// All STags are in use (`ENOMEM`).
    #[error("no STag is free")]
    Exhausted,
    /// There is no memory for it (`ENOMEM`).
    #[error("out of memory")]
    OutOfMemory,
    /// The system gave no random bytes (`EIO`).
    #[error("no source of randomness")]
    NoEntropy,
    /// No such STag, or not of this kind (`EINVAL`).
    #[error("no such STag")]
    UnknownStag,
    /// Memory windows are bound to the region (`EBUSY`).
    #[error("memory windows are bound to the region")]
    WindowsBound,
}

impl From<OutOfMemory> for RegisterError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// With the kind that `errno` in the description stands for, and the error inside.
impl From<RegisterError> for std::io::Error {
    fn from(error: RegisterError) -> Self {
        use std::io::ErrorKind;
        let kind = match error {
            RegisterError::InvalidAccess
            | RegisterError::InvalidRange
            | RegisterError::NotMapped
            | RegisterError::NotWritable
            | RegisterError::UnknownStag => ErrorKind::InvalidInput,
            RegisterError::Exhausted | RegisterError::OutOfMemory => ErrorKind::OutOfMemory,
            RegisterError::NoEntropy => ErrorKind::Other,
            RegisterError::WindowsBound => ErrorKind::ResourceBusy,
        };
        Self::new(kind, error)
    }
}

/// All registered memory of one device.
///
/// Methods take `&self` and may be called from any thread. None of those that revoke may be called
/// by a thread that holds a [`Guard`](crate::Guard) of the same STag: it would wait for itself.
pub struct MemoryTable {
    pub(crate) stags: StagTable,
    pub(crate) observer: Option<Arc<dyn AccessObserver>>,
    pub(crate) readers: Arc<Readers>,
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryTable").field("stags", &self.len()).finish()
    }
}

impl MemoryTable {
    /// The other processes that read its memory.
    pub const fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// An empty table.
    pub fn new() -> Self {
        Self { stags: StagTable::new(), observer: None, readers: Arc::default() }
    }

    /// STags in use, of regions and windows.
    pub fn len(&self) -> usize {
        self.stags.in_use()
    }

    /// True if nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Registers memory and returns its STag, which is lkey and rkey in one. The memory is checked:
    /// it must be readable, and writable if the access has [`Access::LOCAL_WRITE`]. With
    /// [`Access::ON_DEMAND`] it is not checked before an access needs it.
    ///
    /// # Safety
    ///
    /// Until [`Self::deregister`] of the STag returns (or the table is dropped), or
    /// [`Self::reregister`] has replaced the translation:
    /// - the bytes may be read and written through the STag at any moment, also by those who are
    ///   not this program, so nothing else comes to lie there: memory that is unmapped or protected
    ///   fails accesses with [`AccessError::BadAddress`], but what is mapped or allocated in its
    ///   place is accessed;
    /// - no Rust reference to them is used, except to atomics or cells.
    ///
    /// Accesses of the program's own that meet those of the network are its own race.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]; nothing is registered then.
    pub unsafe fn register(&self, spec: RegionSpec) -> Result<Stag, RegisterError> {
        // A cost that a refused spec need not pay comes after the check.
        let grant = spec.grant(Stag(0))?;
        check_memory(&grant)?;
        self.register_checked(spec, grant, None)
    }

    /// Registers memory that is there for certain.
    ///
    /// # Safety
    ///
    /// As [`Self::register`], and it stays there.
    pub(crate) unsafe fn register_borrowed(&self, spec: RegionSpec) -> Result<Stag, RegisterError> {
        self.register_checked(spec, spec.grant(Stag(0))?, None)
    }

    /// Registers a buffer of ours, which lives at least until its deregistration. Tagged offsets
    /// count from 0.
    ///
    /// # Errors
    ///
    /// As [`Self::register`].
    pub fn register_buffer(
        &self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        access: Access,
        scope: Scope,
    ) -> Result<Stag, RegisterError> {
        self.register_part(pd, buffer, 0..buffer.len(), access, scope)
    }

    /// As [`Self::register_buffer`], for those bytes of it only.
    ///
    /// # Errors
    ///
    /// `InvalidRange` where the buffer has not so many; as [`Self::register`].
    pub fn register_part(
        &self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        part: Range<usize>,
        access: Access,
        scope: Scope,
    ) -> Result<Stag, RegisterError> {
        if part.start > part.end || part.end > buffer.len() {
            return Err(RegisterError::InvalidRange);
        }
        let access = access | Access::ZERO_BASED;
        let (addr, len) = (buffer.as_mut_ptr().wrapping_add(part.start), part.len());
        let spec = RegionSpec { pd, addr, len, iova: 0, access, scope };
        self.register_checked(spec, spec.grant(Stag(0))?, Some(Arc::clone(buffer)))
    }

    fn register_checked(
        &self,
        spec: RegionSpec,
        grant: Grant,
        owned: Option<Arc<Buffer>>,
    ) -> Result<Stag, RegisterError> {
        let place = self.stags.allocate(Kind::Region)?;
        if !spec.access.contains(Access::ON_DEMAND) {
            source::will_use(spec.addr.addr(), spec.len);
        }
        Ok(self.register_in(place, spec, grant, owned))
    }

    /// Registers what was checked, under an STag that was allocated for it.
    pub(crate) fn register_in(
        &self,
        (stag, slot): (Stag, &Slot),
        spec: RegionSpec,
        mut grant: Grant,
        owned: Option<Arc<Buffer>>,
    ) -> Stag {
        grant.stag = stag;
        let mut slot = slot.control();
        slot.set(Control::Region(RegionControl {
            grant,
            pd: spec.pd,
            scope: spec.scope,
            valid: true,
            windows: 0,
            _owned: owned,
        }));
        slot.grant(grant, &self.readers);
        if grant.qp.is_some() {
            self.stags.stream_bound.fetch_add(1, Ordering::Relaxed);
        }
        stag
    }

    /// Removes a region, valid or invalidated. When this returns, its bytes are not touched any
    /// more; uses in flight are waited for, which takes microseconds (RFC 5041 §8.3.1).
    ///
    /// # Errors
    ///
    /// `UnknownStag`; `WindowsBound`, and then the region stays.
    pub fn deregister(&self, stag: Stag) -> Result<(), RegisterError> {
        let mut slot = self.region_slot(stag)?.control();
        let region = slot.region(stag).ok_or(RegisterError::UnknownStag)?;
        if region.windows != 0 {
            return Err(RegisterError::WindowsBound);
        }
        let one_stream = region.grant.qp.is_some();
        slot.revoke(&self.readers);
        slot.set(Control::Free);
        if one_stream {
            self.stags.stream_bound.fetch_sub(1, Ordering::Relaxed);
        }
        self.stags.release(stag);
        Ok(())
    }

    /// Changes a region in place, as `ibv_rereg_mr` does; the STag stays. Uses in flight are waited
    /// for first. An invalidated region becomes valid again.
    ///
    /// # Safety
    ///
    /// As [`Self::register`], for the region as it is afterwards.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]; the region is unchanged then.
    pub unsafe fn reregister(&self, stag: Stag, change: RegionChange) -> Result<(), RegisterError> {
        let mut slot = self.region_slot(stag)?.control();
        let region = slot.region(stag).ok_or(RegisterError::UnknownStag)?;
        if region.windows != 0 {
            return Err(RegisterError::WindowsBound);
        }
        let old = region.grant;
        let (addr, len, iova) =
            change.translation.unwrap_or((old.base, old.len as usize, old.origin));
        let spec = RegionSpec {
            pd: change.pd.unwrap_or(region.pd),
            addr,
            len,
            iova,
            access: change.access.unwrap_or(old.access),
            scope: region.scope,
        };
        let grant = spec.grant(stag)?;
        if change.translation.is_some() || change.access.is_some() {
            check_memory(&grant)?;
        }
        region.grant = grant;
        region.pd = spec.pd;
        region.valid = true;
        slot.grant(grant, &self.readers);
        Ok(())
    }

    /// Revokes what only the stream `qp` could use: windows of type 2 bound to it and regions of
    /// its scope. They stay, invalid, until their owners remove them. For the end of a queue pair,
    /// whose number another one will have.
    pub fn revoke_stream(&self, qp: QpId) {
        if self.stags.stream_bound.load(Ordering::Relaxed) == 0 {
            return;
        }
        for stag in self.stags.owned() {
            let Some(slot) = self.stags.lookup(stag) else { continue };
            match slot.kind() {
                Kind::Window => self.unbind_if(slot, stag, |binding| binding.qp == Some(qp)),
                Kind::Region => {
                    let mut slot = slot.control();
                    match slot.region(stag) {
                        Some(region) if region.scope == Scope::Stream(qp) => region.valid = false,
                        _ => continue,
                    }
                    slot.revoke(&self.readers);
                }
            }
        }
    }

    /// Protection domain, bytes, tagged offset of the first and rights of a region; `None` where
    /// there is no region under this STag.
    pub fn region(&self, stag: Stag) -> Option<(PdId, usize, u64, Access)> {
        let mut slot = self.region_slot(stag).ok()?.control();
        let region = slot.region(stag)?;
        let Grant { len, origin, access, .. } = region.grant;
        Some((region.pd, len as usize, origin, access))
    }

    pub(crate) fn region_slot(&self, stag: Stag) -> Result<&Slot, RegisterError> {
        self.stags
            .lookup(stag)
            .filter(|slot| slot.kind() == Kind::Region)
            .ok_or(RegisterError::UnknownStag)
    }

    /// `Memory::invalidate` of a region.
    ///
    /// A remote one must come by the only stream that has the region (RFC 5040 §8.1.1), and an STag
    /// that is invalid already cannot be invalidated by the peer (RFC 5040 §7.2), but by the owner.
    pub(crate) fn invalidate_region(
        &self,
        slot: &Slot,
        who: Accessor,
        stag: Stag,
        by: Invalidator,
    ) -> Result<(), AccessError> {
        let mut slot = slot.control();
        let region = slot.region(stag).ok_or(AccessError::InvalidStag)?;
        if region.pd != who.pd || matches!(region.scope, Scope::Stream(qp) if qp != who.qp) {
            return Err(AccessError::NotAssociated);
        }
        if by == Invalidator::Remote {
            let may = region.scope == Scope::Stream(who.qp)
                && region.grant.access.intersects(Access::REMOTE)
                && region.valid;
            if !may {
                return Err(AccessError::CannotInvalidate);
            }
        }
        if region.windows != 0 {
            return Err(AccessError::CannotInvalidate);
        }
        region.valid = false;
        slot.revoke(&self.readers);
        Ok(())
    }
}

/// Checks that the memory is there and lets itself be used as is granted. Says nothing about the
/// next moment.
pub(crate) fn check_memory(grant: &Grant) -> Result<(), RegisterError> {
    if grant.len != 0 && grant.base.is_null() {
        return Err(RegisterError::NotMapped);
    }
    if grant.access.contains(Access::ON_DEMAND) {
        // If the system does not let us catch faults, the program's word has to do.
        let _admitted = fault::protect();
        return Ok(());
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    crate::probe::check(
        grant.base,
        grant.len as usize,
        grant.access.contains(Access::LOCAL_WRITE),
    )?;
    Ok(())
}
