// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions and windows, and whether an access to them is allowed.

use alloc::vec::Vec;

use crate::{
    Access, AccessError, Accessor, AtomicOp, Bind, Invalidator, PdId, QpId, RemoteAccess, Sge,
    Stag, TaggedOffset,
};

/// The ends that may invalidate a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidation {
    /// Neither.
    Never,
    /// The program that registered it.
    Local,
    /// The peer as well.
    Remote,
}

/// A registered region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its STag.
    pub stag: Stag,
    /// The protection domain that it belongs to.
    pub pd: PdId,
    /// The only queue pair that may use it, if there is but one.
    pub only: Option<QpId>,
    /// Address, or tagged offset, of its first octet.
    pub base: u64,
    /// Octets between the last aligned word and the first octet: what atomics find unaligned.
    pub skew: usize,
    /// Its rights.
    pub access: Access,
    /// It is registered.
    pub valid: bool,
    /// The program has unmapped its memory, though it is registered.
    pub gone: bool,
    /// The peers that may invalidate it.
    pub invalidation: Invalidation,
    /// Its octets.
    pub octets: Vec<u8>,
}

/// A memory window of type 2.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its STag.
    pub stag: Stag,
    /// The bind by which it was bound, if it is bound.
    pub bound: Option<Bind>,
    /// The queue pair that has bound it.
    pub qp: QpId,
}

/// The place of an allowed access: the number of the region, and octets from its first.
pub type RegionOffset = (usize, usize);

/// The memory of one end.
#[derive(Clone, Debug, Default)]
pub struct Bank {
    /// The regions.
    pub regions: Vec<Region>,
    /// The windows.
    pub windows: Vec<Window>,
}

impl Bank {
    /// The number of the region that this STag names.
    fn region_index(&self, stag: Stag) -> Result<usize, AccessError> {
        let named = |region: &Region| region.stag == stag && region.valid && stag.0 != 0;
        self.regions.iter().position(named).ok_or(AccessError::InvalidStag)
    }

    fn window_index(&self, stag: Stag) -> Option<usize> {
        self.windows.iter().position(|window| window.stag == stag)
    }

    /// The number of the region, if `who` may use it at all.
    fn associated(&self, who: Accessor, stag: Stag) -> Result<usize, AccessError> {
        let index = self.region_index(stag)?;
        let region = &self.regions[index];
        if region.pd != who.pd || region.only.is_some_and(|only| only != who.qp) {
            return Err(AccessError::NotAssociated);
        }
        Ok(index)
    }

    /// True if an STag names something that may be used.
    pub fn is_valid(&self, stag: Stag) -> bool {
        self.region_index(stag).is_ok()
            || self.window_index(stag).is_some_and(|at| self.windows[at].bound.is_some())
    }

    /// Finds `len` octets at `to` of `stag`, with the checks of [`Memory::check_remote`] in their
    /// order.
    ///
    /// [`Memory::check_remote`]: crate::Memory::check_remote
    pub fn remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<RegionOffset, AccessError> {
        let (index, start, size, rights, shift) = match self.window_index(stag) {
            Some(number) => {
                let window = self.windows[number];
                let bind = window.bound.ok_or(AccessError::InvalidStag)?;
                if window.qp != who.qp {
                    return Err(AccessError::NotAssociated);
                }
                let index = self.region_index(bind.region)?;
                let offset = bind.addr - self.regions[index].base;
                let zero = bind.access.contains(Access::ZERO_BASED);
                (index, if zero { 0 } else { bind.addr }, bind.length, bind.access, offset)
            }
            None => {
                let index = self.associated(who, stag)?;
                let region = &self.regions[index];
                (index, region.base, region.octets.len() as u64, region.access, 0)
            }
        };
        if !rights.contains(access.right()) {
            return Err(AccessError::Rights);
        }
        let offset = (shift + within(start, size, to.0, len)?) as usize;
        let aligned = (offset + self.regions[index].skew).is_multiple_of(8);
        if access == RemoteAccess::Atomic && !aligned {
            return Err(AccessError::Unaligned);
        }
        Ok((index, offset))
    }

    /// Finds a local element, with the checks of
    /// [`Memory::check_local`](crate::Memory::check_local).
    pub fn local(&self, who: Accessor, sge: Sge, write: bool) -> Result<RegionOffset, AccessError> {
        let index = self.associated(who, sge.lkey)?;
        let region = &self.regions[index];
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Rights);
        }
        let size = region.octets.len() as u64;
        let offset = within(region.base, size, sge.addr, u64::from(sge.length))?;
        Ok((index, offset as usize))
    }

    /// Checks that the memory of an allowed access is there.
    pub fn there(&self, (index, offset): RegionOffset) -> Result<RegionOffset, AccessError> {
        let region = &self.regions[index];
        if region.gone {
            return Err(AccessError::BadAddress(region.base + offset as u64));
        }
        Ok((index, offset))
    }

    /// `len` octets.
    pub fn octets(&mut self, (index, offset): RegionOffset, len: usize) -> &mut [u8] {
        &mut self.regions[index].octets[offset..offset + len]
    }

    /// Copies octets out.
    pub fn read(&self, (index, offset): RegionOffset, out: &mut [u8]) {
        out.copy_from_slice(&self.regions[index].octets[offset..offset + out.len()]);
    }

    /// The result of an atomic operation: the value before, and the octets to be written.
    pub fn atomic(&self, place: RegionOffset, op: AtomicOp) -> (u64, [u8; 8]) {
        let mut octets = [0; 8];
        self.read(place, &mut octets);
        let old = u64::from_ne_bytes(octets);
        (old, op.apply(old).to_ne_bytes())
    }

    /// Binds a window to a region, or to another.
    pub fn bind(&mut self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        let number = self.window_index(bind.window).ok_or(AccessError::InvalidStag)?;
        if bind.new_stag.index() != bind.window.index() {
            return Err(AccessError::InvalidStag);
        }
        let region = &self.regions[self.associated(who, bind.region)?];
        if !region.access.contains(Access::LOCAL_WRITE | Access::MW_BIND) {
            return Err(AccessError::Rights);
        }
        within(region.base, region.octets.len() as u64, bind.addr, bind.length)?;
        self.windows[number] = Window { stag: bind.new_stag, bound: Some(bind), qp: who.qp };
        Ok(())
    }

    /// Invalidates a window, or a region that allows it.
    pub fn invalidate(
        &mut self,
        who: Accessor,
        stag: Stag,
        by: Invalidator,
    ) -> Result<(), AccessError> {
        if let Some(number) = self.window_index(stag) {
            let window = &mut self.windows[number];
            if window.qp != who.qp {
                return Err(AccessError::NotAssociated);
            }
            return window.bound.take().map(drop).ok_or(AccessError::InvalidStag);
        }
        let index = self.associated(who, stag)?;
        let region = &mut self.regions[index];
        match (region.invalidation, by) {
            (Invalidation::Remote, _) | (Invalidation::Local, Invalidator::Local) => {
                region.valid = false;
                Ok(())
            }
            _ => Err(AccessError::CannotInvalidate),
        }
    }
}

/// The offset behind `start` at which `len` octets at `at` begin, if they lie within its `size`
/// octets.
fn within(start: u64, size: u64, at: u64, len: u64) -> Result<u64, AccessError> {
    let end = at.checked_add(len).ok_or(AccessError::Wrap)?;
    if at < start || end > start + size {
        return Err(AccessError::Bounds);
    }
    Ok(at - start)
}
