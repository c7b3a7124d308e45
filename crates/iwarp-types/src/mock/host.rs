// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of one end, which notes what is done to it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use super::{Bank, Invalidation, Region, RegionOffset};
use crate::{
    Access, AccessError, Accessor, AtomicOp, Bind, Digest, EachAnew, Invalidator, Memory, PdId,
    Receive, ReceivePool, RemoteAccess, Sge, Stag, TaggedOffset, Usage, Use,
};

/// An access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Touch {
    Placed { stag: u32, len: usize },
    Gathered { stag: u32, len: usize },
    Atomic { stag: u32 },
    Bound,
    Invalidated { stag: u32, by: Invalidator },
}

/// Registered memory and a pool of receives.
#[derive(Debug, Default)]
pub struct Host {
    /// Regions and windows.
    pub bank: RefCell<Bank>,
    /// The pool.
    pub pool: RefCell<VecDeque<Receive>>,
    /// Accesses that are allowed before every other is refused with this error.
    pub revoke_after: Cell<Option<(usize, AccessError)>>,
    touches: RefCell<Vec<Touch>>,
    /// Uses that have begun and not ended.
    open: Cell<usize>,
}

/// A use of a region, which [`Host`] counts.
#[derive(Debug)]
pub struct InUse<'a>(EachAnew<'a, Host>);

impl Use for InUse<'_> {
    fn place(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        self.0.place(at, data)
    }

    fn gather(&self, at: u64, dst: &mut [u8], crc: Option<&mut Digest>) -> Result<(), AccessError> {
        self.0.gather(at, dst, crc)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let open = &self.0.memory.open;
        open.set(open.get() - 1);
    }
}

impl Host {
    /// Registers `len` octets, which begin at `base` and which both ends may invalidate.
    pub fn register(&self, pd: PdId, stag: u32, base: u64, len: usize, access: Access) {
        self.bank.borrow_mut().regions.push(Region {
            stag: Stag(stag),
            pd,
            only: None,
            base,
            skew: 0,
            access,
            valid: true,
            gone: false,
            invalidation: Invalidation::Remote,
            octets: vec![0; len],
        });
    }

    /// Changes a region.
    ///
    /// # Panics
    ///
    /// If there is none of this STag.
    pub fn change(&self, stag: u32, change: impl FnOnce(&mut Region)) {
        let mut bank = self.bank.borrow_mut();
        change(bank.regions.iter_mut().find(|region| region.stag.0 == stag).expect("a region"));
    }

    /// The octets of a region.
    ///
    /// # Panics
    ///
    /// If there is none of this STag.
    pub fn octets(&self, stag: u32) -> Vec<u8> {
        let bank = self.bank.borrow();
        bank.regions.iter().find(|region| region.stag.0 == stag).expect("a region").octets.clone()
    }

    /// Puts octets into a region, `at` octets behind its first.
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn fill(&self, stag: u32, at: usize, octets: &[u8]) {
        self.change(stag, |region| region.octets[at..at + octets.len()].copy_from_slice(octets));
    }

    /// The accesses since this was asked last, in order.
    pub fn touches(&self) -> Vec<Touch> {
        self.touches.take()
    }

    fn note(&self, touch: Touch) {
        self.touches.borrow_mut().push(touch);
    }

    /// Counts an access down to the first that is refused.
    fn count_down(&self) -> Result<(), AccessError> {
        let Some((left, error)) = self.revoke_after.get() else { return Ok(()) };
        self.revoke_after.set(Some((left.checked_sub(1).ok_or(error)?, error)));
        Ok(())
    }

    fn remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<RegionOffset, AccessError> {
        self.count_down()?;
        self.bank.borrow().remote(who, stag, to, len, access)
    }

    fn local(&self, who: Accessor, sge: Sge, write: bool) -> Result<RegionOffset, AccessError> {
        self.count_down()?;
        self.bank.borrow().local(who, sge, write)
    }

    fn place(&self, stag: Stag, place: RegionOffset, data: &[u8]) -> Result<(), AccessError> {
        let mut bank = self.bank.borrow_mut();
        bank.there(place)?;
        bank.octets(place, data.len()).copy_from_slice(data);
        self.note(Touch::Placed { stag: stag.0, len: data.len() });
        Ok(())
    }

    fn gather(
        &self,
        stag: Stag,
        place: RegionOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        let bank = self.bank.borrow();
        bank.there(place)?;
        bank.read(place, dst);
        if let Some(digest) = digest {
            digest.update(dst);
        }
        self.note(Touch::Gathered { stag: stag.0, len: dst.len() });
        Ok(())
    }
}

/// The part of an element that `len` octets take.
fn part(sge: Sge, len: usize) -> Sge {
    assert!(len <= sge.length as usize, "{len} octets for an element of {}", sge.length);
    Sge { length: len as u32, ..sge }
}

impl Memory for Host {
    type Use<'a> = InUse<'a>;

    fn begin_use(&self, who: Accessor, stag: Stag, usage: Usage) -> Result<InUse<'_>, AccessError> {
        self.open.set(self.open.get() + 1);
        Ok(InUse(EachAnew { memory: self, who, stag, usage }))
    }

    fn check_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        assert_ne!(len, 0, "zero-length operations are never checked");
        self.remote(who, stag, to, len, access).map(drop)
    }

    fn place_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError> {
        let place = self.remote(who, stag, to, data.len() as u64, RemoteAccess::Write)?;
        self.place(stag, place, data)
    }

    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        let place = self.remote(who, stag, to, dst.len() as u64, RemoteAccess::Read)?;
        self.gather(stag, place, dst, digest)
    }

    fn find_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
    ) -> Result<(), AccessError> {
        assert_ne!(len, 0, "zero-length operations are never checked");
        let place = self.remote(who, stag, to, len, RemoteAccess::Read)?;
        self.bank.borrow().there(place).map(drop)
    }

    fn find_local(&self, who: Accessor, sge: Sge) -> Result<(), AccessError> {
        let place = self.local(who, sge, false)?;
        self.bank.borrow().there(place).map(drop)
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        let place = self.remote(who, stag, to, 8, RemoteAccess::Atomic)?;
        let mut bank = self.bank.borrow_mut();
        bank.there(place)?;
        let (old, new) = bank.atomic(place, op);
        bank.octets(place, 8).copy_from_slice(&new);
        self.note(Touch::Atomic { stag: stag.0 });
        Ok(old)
    }

    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError> {
        self.local(who, sge, write).map(drop)
    }

    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        let place = self.local(who, part(sge, data.len()), true)?;
        self.place(sge.lkey, place, data)
    }

    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        let place = self.local(who, part(sge, dst.len()), false)?;
        self.gather(sge.lkey, place, dst, digest)
    }

    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        self.count_down()?;
        self.bank.borrow_mut().bind(who, bind)?;
        self.note(Touch::Bound);
        Ok(())
    }

    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError> {
        assert_eq!(self.open.get(), 0, "whoever invalidates waits for those who use it");
        self.count_down()?;
        self.bank.borrow_mut().invalidate(who, stag, by)?;
        self.note(Touch::Invalidated { stag: stag.0, by });
        Ok(())
    }
}

impl ReceivePool for Host {
    fn take(&self, into: &mut Receive) -> bool {
        self.pool.borrow_mut().pop_front().map(|receive| *into = receive).is_some()
    }
}
