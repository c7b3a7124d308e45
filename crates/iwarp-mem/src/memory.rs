// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol's view of the table: each method but one is one use and one copy.

use iwarp_types::{
    AccessError, Accessor, AtomicOp, Bind, Digest, Invalidator, Memory, RemoteAccess, Sge, Stag,
    TaggedOffset, Usage, Use as _,
};

use crate::atomic::atomic;
use crate::observe::Span;
use crate::region::MemoryTable;
use crate::slot::Kind;
use crate::uses::OpenUse;

impl Memory for MemoryTable {
    type Use<'a> = OpenUse<'a>;

    #[inline]
    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<OpenUse<'_>, AccessError> {
        self.open(who, stag, usage)
    }

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
        if data.is_empty() {
            return Ok(());
        }
        self.open(who, stag, Usage::RemoteWrite)?.place(to.0, data)
    }

    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        if dst.is_empty() {
            return Ok(());
        }
        self.open(who, stag, Usage::RemoteRead)?.gather(to.0, dst, crc)
    }

    fn find_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
    ) -> Result<(), AccessError> {
        self.guard_remote(who, stag, to, len, RemoteAccess::Read)?.find()
    }

    fn find_local(&self, who: Accessor, sge: Sge) -> Result<(), AccessError> {
        self.guard_local(who, sge, false)?.find()
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
        // SAFETY: the guard covers 8 bytes, which were registered as writable, and `word` is
        // aligned.
        let before = unsafe { atomic(word, op) }?;
        if let Some(observer) = self.observer() {
            let span = Span { addr: word.addr(), len: 8 };
            observer.gathered(who.qp.0, span);
            observer.placed(who.qp.0, span);
        }
        Ok(before)
    }

    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError> {
        self.guard_local(who, sge, write).map(drop)
    }

    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        if !fits(sge, data.len())? {
            return Ok(());
        }
        self.open(who, sge.lkey, Usage::LocalWrite)?.place(sge.addr, data)
    }

    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        if !fits(sge, dst.len())? {
            return Ok(());
        }
        self.open(who, sge.lkey, Usage::LocalRead)?.gather(sge.addr, dst, crc)
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

/// Checks that an element has `len` bytes; true if that is not zero.
fn fits(sge: Sge, len: usize) -> Result<bool, AccessError> {
    if len as u64 > u64::from(sge.length) {
        return Err(AccessError::Bounds);
    }
    Ok(len > 0)
}
