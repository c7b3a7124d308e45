// SPDX-License-Identifier: MIT OR Apache-2.0

//! One use of registered memory.

use std::marker::PhantomData;
use std::ptr::NonNull;

use iwarp_types::{Access, AccessError, Accessor, RemoteAccess, Sge, Stag, TaggedOffset};

use crate::reach::chosen::{probe_read, probe_write};
use crate::region::MemoryTable;
use crate::slot::{Kind, SlotUse};

const PAGE: usize = 4096;

/// Bytes that may be touched until this is dropped: for one copy or one system call, never across a
/// wait for a peer, since a thread that revokes the STag waits for it. They are the bytes that the
/// program has registered; if it has unmapped them meanwhile, a system call on them fails with
/// `EFAULT`.
///
/// The only thing that becomes an iovec: a system call on a guard's bytes is on bytes that were
/// checked and are still registered. Stays on its thread.
#[derive(Debug)]
pub struct Guard<'a> {
    /// None for zero bytes, which need no STag.
    in_use: Option<SlotUse<'a>>,
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
    _on_one_thread: PhantomData<*mut u8>,
}

impl Guard<'_> {
    /// The first byte, to read from.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// The first byte, to write to.
    ///
    /// # Panics
    ///
    /// If the guard was made for reading.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        assert!(self.writable, "a guard made for reading is not written through");
        self.ptr.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Checks that the bytes are there, and can be written if the guard was made for that.
    ///
    /// # Errors
    ///
    /// [`AccessError::BadAddress`] with the first page that is not.
    pub fn find(&self) -> Result<(), AccessError> {
        let first = self.ptr.as_ptr();
        let mut at = 0;
        while at < self.len {
            let octet = first.wrapping_add(at);
            let there = if self.writable { probe_write(octet) } else { probe_read(octet) };
            there?;
            // No page is smaller.
            at += PAGE - octet.addr() % PAGE;
        }
        Ok(())
    }

    /// True if their address may be given to another process of this host, for it to read them
    /// there ([`Readers`](crate::Readers)): the region is memory without a file.
    pub fn may_be_shown(&self) -> bool {
        self.in_use.as_ref().is_some_and(SlotUse::may_be_shown)
    }

    /// True if the bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}

impl MemoryTable {
    /// Begins a use of `len` bytes at `to` by the peer of `who`; the checks are those of
    /// [`Memory::check_remote`](iwarp_types::Memory::check_remote), and there are none for
    /// zero bytes.
    ///
    /// # Errors
    ///
    /// The first check that failed.
    pub fn guard_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<Guard<'_>, AccessError> {
        let writable = access != RemoteAccess::Read;
        if len == 0 {
            return Ok(Guard::of_nothing(writable));
        }
        let in_use = self.enter(stag)?;
        let ptr = in_use.grant().translate(who, to.0, len, access.right())?;
        // In range of a region, so of a usize.
        Ok(Guard::new(in_use, ptr, len as usize, writable))
    }

    /// Begins a use of all that an STag grants, with the tagged offset of its first byte.
    ///
    /// # Errors
    ///
    /// As [`guard_remote`](Self::guard_remote).
    pub fn guard_granted(
        &self,
        who: Accessor,
        stag: Stag,
        access: RemoteAccess,
    ) -> Result<(TaggedOffset, Guard<'_>), AccessError> {
        let in_use = self.enter(stag)?;
        let (first, len) = (in_use.grant().origin, in_use.grant().len);
        if len == 0 {
            return Ok((TaggedOffset(first), Guard::of_nothing(false)));
        }
        let ptr = in_use.grant().translate(who, first, len, access.right())?;
        let writable = access != RemoteAccess::Read;
        Ok((TaggedOffset(first), Guard::new(in_use, ptr, len as usize, writable)))
    }

    /// Begins a use of a local element, to be written if `write`. No checks for zero bytes.
    ///
    /// # Errors
    ///
    /// The first check that failed. A window is no local key.
    pub fn guard_local(
        &self,
        who: Accessor,
        sge: Sge,
        write: bool,
    ) -> Result<Guard<'_>, AccessError> {
        if sge.length == 0 {
            return Ok(Guard::of_nothing(write));
        }
        let slot = self.stags.lookup(sge.lkey).filter(|slot| slot.kind() == Kind::Region);
        let in_use = slot.and_then(|slot| slot.enter(sge.lkey)).ok_or(AccessError::InvalidStag)?;
        let right = if write { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
        let ptr = in_use.grant().translate(who, sge.addr, sge.length.into(), right)?;
        Ok(Guard::new(in_use, ptr, sge.length as usize, write))
    }

    /// Two callers would have the compiler make a call of it, for each access.
    #[inline(always)]
    fn enter(&self, stag: Stag) -> Result<SlotUse<'_>, AccessError> {
        let slot = self.stags.lookup(stag);
        slot.and_then(|slot| slot.enter(stag)).ok_or(AccessError::InvalidStag)
    }
}

impl<'a> Guard<'a> {
    fn new(in_use: SlotUse<'a>, ptr: *mut u8, len: usize, writable: bool) -> Self {
        // Memory at address 0 cannot be registered with bytes in it.
        let ptr = NonNull::new(ptr).expect("registered memory is not at address 0");
        Self { in_use: Some(in_use), ptr, len, writable, _on_one_thread: PhantomData }
    }

    fn of_nothing(writable: bool) -> Self {
        Self {
            in_use: None,
            ptr: NonNull::dangling(),
            len: 0,
            writable,
            _on_one_thread: PhantomData,
        }
    }
}
