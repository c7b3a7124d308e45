// SPDX-License-Identifier: MIT OR Apache-2.0

//! One use of an STag for several pieces of it.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use iwarp_types::{Access, AccessError, Accessor, Digest, Stag, Usage, Use};

use crate::gather::gather;
use crate::observe::{AccessObserver, Span};
use crate::place::place;
use crate::region::MemoryTable;
use crate::slot::{self, Kind};

/// The STag stays what it is until this is dropped: for one copy, or for those of consecutive
/// segments, as long as a system call may take together. A thread that revokes it waits for that.
///
/// Each piece is checked: the queue pair's association, the right, and the bounds. Stays on its
/// thread.
#[derive(Debug)]
pub struct OpenUse<'a> {
    in_use: slot::SlotUse<'a>,
    who: Accessor,
    right: Access,
    writable: bool,
    observer: &'a Option<Arc<dyn AccessObserver>>,
    _on_one_thread: PhantomData<*mut u8>,
}

impl MemoryTable {
    #[inline]
    pub(crate) fn open(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<OpenUse<'_>, AccessError> {
        let slot = self.stags.lookup(stag);
        let slot = slot.filter(|slot| !usage.is_local() || slot.kind() == Kind::Region);
        let in_use = slot.and_then(|slot| slot.enter(stag)).ok_or(AccessError::InvalidStag)?;
        let writable = matches!(usage, Usage::LocalWrite | Usage::RemoteWrite);
        Ok(OpenUse {
            in_use,
            who,
            right: usage.right(),
            writable,
            observer: &self.observer,
            _on_one_thread: PhantomData,
        })
    }
}

impl OpenUse<'_> {
    #[inline(always)]
    fn place_unobserved(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        assert!(self.writable, "what was opened for reading is not written to");
        let len = data.len();
        let sink = self.in_use.grant().translate(self.who, at, len as u64, self.right)?;
        // SAFETY: these are `len` bytes of what is granted until `in_use` is dropped, which were
        // registered as writable; and `data`, being referenced, is not registered.
        unsafe { place(sink, data) }?;
        Ok(())
    }

    #[inline(always)]
    fn gather_unobserved(
        &self,
        at: u64,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<Span, AccessError> {
        let len = dst.len();
        let source = self.in_use.grant().translate(self.who, at, len as u64, self.right)?;
        // SAFETY: these are `len` bytes of what is granted until `in_use` is dropped, which were
        // registered.
        unsafe { gather(dst, source, crc) }?;
        Ok(Span { addr: source.addr(), len })
    }

    #[cold]
    fn place_observed(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        let Some(observer) = self.observer else { return Ok(()) };
        // All of it is granted, or nothing is written.
        let sink = self.in_use.grant().translate(self.who, at, data.len() as u64, self.right)?;
        let (qp, span) = (self.who.qp.0, Span { addr: sink.addr(), len: data.len() });
        let mut store = |part: Range<usize>| {
            let at = at.wrapping_add(part.start as u64);
            self.place_unobserved(at, &data[part])
        };
        observer.place(qp, span, &mut store)?;
        observer.placed(qp, span);
        Ok(())
    }

    #[cold]
    fn gather_observed(
        &self,
        at: u64,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        let span = self.gather_unobserved(at, dst, crc)?;
        self.observer.iter().for_each(|observer| observer.gathered(self.who.qp.0, span));
        Ok(())
    }
}

impl Use for OpenUse<'_> {
    #[inline]
    fn place(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        if data.is_empty() {
            return Ok(());
        }
        if self.observer.is_some() {
            return self.place_observed(at, data);
        }
        self.place_unobserved(at, data)
    }

    #[inline]
    fn gather(&self, at: u64, dst: &mut [u8], crc: Option<&mut Digest>) -> Result<(), AccessError> {
        if dst.is_empty() {
            return Ok(());
        }
        if self.observer.is_some() {
            return self.gather_observed(at, dst, crc);
        }
        self.gather_unobserved(at, dst, crc).map(drop)
    }
}
