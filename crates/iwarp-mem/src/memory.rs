//! The protocol's view of the table: each method is one guard and one copy.

use iwarp_proto::memory::{
    AccessError, Accessor, AtomicOp, Bind, Invalidator, Memory, RemoteAccess, Sge,
};
use iwarp_proto::mpa::crc::Crc32c;
use iwarp_proto::types::{Stag, TaggedOffset};

use crate::atomic::atomic;
use crate::gather::gather;
use crate::place::place;
use crate::region::MemoryTable;
use crate::slot::Kind;

impl Memory for MemoryTable {
    fn check_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        let guard = self.guard_remote(who, stag, to, len, access)?;
        match access {
            RemoteAccess::Atomic => check_alignment(guard.as_ptr()),
            RemoteAccess::Read | RemoteAccess::Write => Ok(()),
        }
    }

    fn place_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError> {
        let sink = self.guard_remote(who, stag, to, data.len() as u64, RemoteAccess::Write)?;
        // SAFETY: the guard covers `data.len()` octets, which registration promised are writable;
        // and `data`, being referenced, is not registered.
        unsafe { place(sink.as_mut_ptr(), data) };
        Ok(())
    }

    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError> {
        let source = self.guard_remote(who, stag, to, dst.len() as u64, RemoteAccess::Read)?;
        // SAFETY: the guard covers `dst.len()` octets, which registration promised are readable.
        unsafe { gather(dst, source.as_ptr(), crc) };
        Ok(())
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        let target = self.guard_remote(who, stag, to, 8, RemoteAccess::Atomic)?;
        check_alignment(target.as_ptr())?;
        let word = target.as_mut_ptr().cast::<u64>();
        // SAFETY: the guard covers 8 octets, which registration promised are writable.
        Ok(unsafe { atomic(word, op) })
    }

    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError> {
        self.guard_local(who, sge, write).map(drop)
    }

    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        let sink = self.guard_local(who, first(sge, data.len())?, true)?;
        // SAFETY: as in `place_remote`.
        unsafe { place(sink.as_mut_ptr(), data) };
        Ok(())
    }

    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError> {
        let source = self.guard_local(who, first(sge, dst.len())?, false)?;
        // SAFETY: as in `gather_remote`.
        unsafe { gather(dst, source.as_ptr(), crc) };
        Ok(())
    }

    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        self.bind(who, bind)
    }

    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError> {
        let slot = self.stags.lookup(stag).ok_or(AccessError::InvalidStag)?;
        match slot.kind() {
            Kind::Region => self.invalidate_region(slot, who, stag, by),
            Kind::Window => self.invalidate_window(slot, who, stag, by),
        }
    }
}

/// The alignment of the address counts, not of the offset (RFC 7306 §5.2.1).
fn check_alignment(target: *const u8) -> Result<(), AccessError> {
    if target.addr().is_multiple_of(8) { Ok(()) } else { Err(AccessError::Unaligned) }
}

/// The first `len` octets of an element.
fn first(sge: Sge, len: usize) -> Result<Sge, AccessError> {
    match u32::try_from(len) {
        Ok(length) if length <= sge.length => Ok(Sge { length, ..sge }),
        _ => Err(AccessError::Bounds),
    }
}
