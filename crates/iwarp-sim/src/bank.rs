//! Registered memory in plain vectors, with the checks that [`iwarp_types::Memory`] asks
//! for, and beside each region a shadow: what the octets have to be by the oracle's own reading.

use std::ops::Range;

use iwarp_types::{
    Access, AccessError, Accessor, AtomicOp, Bind, Invalidator, PdId, QpId, RemoteAccess, Sge,
    Stag, TaggedOffset,
};

use crate::choice::pattern;

/// Octets of the large regions.
pub const LARGE: usize = 256 * 1024;
/// Octets of these where many short runs say more than long messages: room for some frames still.
pub const COMPACT: usize = 12 * 1024;
/// Octets of the region for atomics.
pub const SMALL: usize = 4096;

/// What each region of an end is for. The number is its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Never written: what is sent comes from here. The peer may read it.
    Source,
    /// The peer writes and reads here; windows are bound to it.
    Target,
    /// Receives and the sinks of Reads, of no concern to the peer.
    Private,
    /// Atomics.
    Counters,
    /// Never written, and may be invalidated.
    Passing,
    /// A sink that may be invalidated. Its tagged offsets begin at zero.
    PassingSink,
    /// Belongs to another protection domain.
    Foreign,
}

impl Role {
    /// All of them, in order of index.
    pub const ALL: [Self; 7] = [
        Self::Source,
        Self::Target,
        Self::Private,
        Self::Counters,
        Self::Passing,
        Self::PassingSink,
        Self::Foreign,
    ];
}

/// First STag index of the windows.
const WINDOWS_AT: u32 = 64;
/// Memory windows of an end.
pub const WINDOWS: usize = 4;
/// First tagged offset of the regions that are not zero-based.
const BASE: u64 = 0x7f00_1000_0000;

/// A registered region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its STag.
    pub stag: Stag,
    /// Address of its first octet.
    pub base: u64,
    /// Its octets.
    pub data: Vec<u8>,
    /// Its octets as the oracle has them.
    pub shadow: Vec<u8>,
    valid: bool,
    /// The program has unmapped it, though it is registered.
    gone: bool,
    access: Access,
    pd: PdId,
    may_invalidate: bool,
    /// What was overwritten while the peer was reading: moment, place, old octets.
    history: Vec<(u64, usize, Vec<u8>)>,
    /// Octets outside of it are as they were at first, here and in the shadow.
    touched: Option<Range<usize>>,
}

impl Region {
    fn touch(&mut self, place: Range<usize>) {
        let touched = self.touched.get_or_insert(place.clone());
        *touched = touched.start.min(place.start)..touched.end.max(place.end);
    }

    /// Makes it what it was at first, without other memory.
    fn restore(&mut self, first: &Self) {
        if let Some(place) = self.touched.take() {
            self.data[place.clone()].copy_from_slice(&first.data[place.clone()]);
            self.shadow[place.clone()].copy_from_slice(&first.shadow[place]);
        }
        self.stag = first.stag;
        (self.valid, self.gone) = (first.valid, first.gone);
        self.history.clear();
    }

    /// A part of the shadow, to be changed.
    fn shadow_part(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let place = offset..offset.checked_add(len)?;
        self.shadow.get(place.clone())?;
        self.touch(place.clone());
        Some(&mut self.shadow[place])
    }
}

/// A memory window of type 2.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its STag.
    pub stag: Stag,
    bound: Option<Bind>,
    qp: QpId,
}

/// The memory of one end.
#[derive(Clone, Debug)]
pub struct Bank {
    /// The regions, by role.
    pub regions: Vec<Region>,
    /// The windows.
    pub windows: [Window; WINDOWS],
    moment: u64,
    keep_history: bool,
}

/// Where an access goes.
type Place = (usize, usize);

impl Bank {
    /// Fresh memory with large regions of `large` octets; `seed` decides what is in it.
    pub fn new(seed: u64, pd: PdId, large: usize) -> Self {
        let regions = Role::ALL
            .iter()
            .enumerate()
            .map(|(index, role)| {
                let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
                let (len, access, may_invalidate) = match role {
                    Role::Source => (large, Access::REMOTE_READ, false),
                    Role::Target => (large, all | Access::MW_BIND, false),
                    Role::Private => (2 * large, Access::LOCAL_WRITE, false),
                    Role::Counters => (SMALL, all | Access::REMOTE_ATOMIC, false),
                    Role::Passing => (large, Access::REMOTE_READ, true),
                    Role::PassingSink => (large, Access::LOCAL_WRITE | Access::ZERO_BASED, true),
                    Role::Foreign => (SMALL, all | Access::REMOTE_ATOMIC, false),
                };
                let zero = access.contains(Access::ZERO_BASED);
                let mut data = vec![0; len];
                pattern(seed ^ (index as u64) << 32, &mut data);
                Region {
                    stag: Stag((index as u32 + 1) << 8 | 0x11),
                    base: if zero { 0 } else { BASE + (index as u64) * 0x100_0000 },
                    shadow: data.clone(),
                    data,
                    valid: true,
                    gone: false,
                    access,
                    pd: if *role == Role::Foreign { PdId(pd.0 + 1) } else { pd },
                    may_invalidate,
                    history: Vec::new(),
                    touched: None,
                }
            })
            .collect();
        let windows = core::array::from_fn(|index| Window {
            stag: Stag((WINDOWS_AT + index as u32) << 8),
            bound: None,
            qp: QpId(0),
        });
        Self { regions, windows, moment: 0, keep_history: false }
    }

    /// The region of that role.
    pub fn region(&self, role: Role) -> &Region {
        &self.regions[role as usize]
    }

    /// Takes the access away, as a deregistration would.
    pub fn revoke(&mut self, role: Role) {
        self.regions[role as usize].valid = false;
    }

    /// Takes the memory away, and leaves the registration.
    pub fn unmap(&mut self, role: Role) {
        self.regions[role as usize].gone = true;
    }

    /// Whether there is memory where an access that is allowed goes.
    pub fn there(&self, (index, offset): Place) -> Result<Place, AccessError> {
        let region = &self.regions[index];
        if region.gone {
            return Err(AccessError::BadAddress(region.base + offset as u64));
        }
        Ok((index, offset))
    }

    /// Registers a region anew, under another key.
    pub fn renew(&mut self, role: Role) {
        let region = &mut self.regions[role as usize];
        (region.valid, region.gone) = (true, false);
        region.stag = Stag((region.stag.0 & !0xff) | (region.stag.0.wrapping_add(1) & 0xff));
    }

    /// Everything is valid again and no window bound; the octets stay.
    pub fn renew_all(&mut self) {
        self.regions.iter_mut().for_each(|region| {
            (region.valid, region.gone) = (true, false);
            region.history.clear();
        });
        self.windows.iter_mut().for_each(|window| window.bound = None);
    }

    /// Makes it what it was at first, which is `first`.
    pub fn restore(&mut self, first: &Self) {
        for (region, first) in self.regions.iter_mut().zip(&first.regions) {
            region.restore(first);
        }
        let Self { regions: _, windows, moment, keep_history } = first;
        (self.windows, self.moment, self.keep_history) = (*windows, *moment, *keep_history);
    }

    /// Whether an STag names something that may be used.
    pub fn is_valid(&self, stag: Stag) -> bool {
        self.regions.iter().any(|region| region.stag == stag && region.valid)
            || self.windows.iter().any(|window| window.stag == stag && window.bound.is_some())
    }

    /// Starts a new moment; what is overwritten from now on is remembered if `reading`.
    pub fn tick(&mut self, reading: bool) -> u64 {
        self.moment += 1;
        self.keep_history = reading;
        if !reading {
            self.regions.iter_mut().for_each(|region| region.history.clear());
        }
        self.moment
    }

    /// From now on what is overwritten is remembered: the peer is reading.
    pub const fn remember(&mut self) {
        self.keep_history = true;
    }

    fn region_index(&self, stag: Stag) -> Result<usize, AccessError> {
        let index = (stag.index() as usize).wrapping_sub(1);
        match self.regions.get(index) {
            Some(region) if region.stag == stag && region.valid => Ok(index),
            _ => Err(AccessError::InvalidStag),
        }
    }

    fn window_index(&self, stag: Stag) -> Option<usize> {
        let index = stag.index().wrapping_sub(WINDOWS_AT) as usize;
        (index < WINDOWS && self.windows[index].stag == stag).then_some(index)
    }

    /// Finds `len` octets at `to` of `stag` with the checks in the order of the contract.
    pub fn remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<Place, AccessError> {
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
                let index = self.region_index(stag)?;
                let region = &self.regions[index];
                if region.pd != who.pd {
                    return Err(AccessError::NotAssociated);
                }
                (index, region.base, region.data.len() as u64, region.access, 0)
            }
        };
        if !rights.contains(access.right()) {
            return Err(AccessError::Rights);
        }
        let end = to.0.checked_add(len).ok_or(AccessError::Wrap)?;
        if to.0 < start || end > start + size {
            return Err(AccessError::Bounds);
        }
        let offset = (shift + (to.0 - start)) as usize;
        if access == RemoteAccess::Atomic && !offset.is_multiple_of(8) {
            return Err(AccessError::Unaligned);
        }
        Ok((index, offset))
    }

    /// Finds a local element.
    pub fn local(&self, who: Accessor, sge: Sge, write: bool) -> Result<Place, AccessError> {
        let index = self.region_index(sge.lkey)?;
        let region = &self.regions[index];
        if region.pd != who.pd {
            return Err(AccessError::NotAssociated);
        }
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Rights);
        }
        let end = sge.addr.checked_add(u64::from(sge.length)).ok_or(AccessError::Wrap)?;
        if sge.addr < region.base || end > region.base + region.data.len() as u64 {
            return Err(AccessError::Bounds);
        }
        Ok((index, (sge.addr - region.base) as usize))
    }

    /// Writes.
    pub fn write(&mut self, (index, offset): Place, data: &[u8]) {
        let region = &mut self.regions[index];
        region.touch(offset..offset + data.len());
        let target = &mut region.data[offset..offset + data.len()];
        if self.keep_history {
            region.history.push((self.moment, offset, target.to_vec()));
        }
        target.copy_from_slice(data);
    }

    /// Reads.
    pub fn read(&self, (index, offset): Place, out: &mut [u8]) {
        out.copy_from_slice(&self.regions[index].data[offset..offset + out.len()]);
    }

    /// Reads, changes and writes 8 octets in host order.
    pub fn atomic(&mut self, place: Place, op: AtomicOp) -> u64 {
        let mut octets = [0; 8];
        self.read(place, &mut octets);
        let old = u64::from_ne_bytes(octets);
        self.write(place, &op.apply(old).to_ne_bytes());
        old
    }

    /// Binds a window to a region, or unbinds it.
    pub fn bind(&mut self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        let number = self.window_index(bind.window).ok_or(AccessError::InvalidStag)?;
        if bind.new_stag.index() != bind.window.index() {
            return Err(AccessError::InvalidStag);
        }
        let sge = Sge { addr: bind.addr, length: bind.length as u32, lkey: bind.region };
        let (index, _) = self.local(who, sge, true)?;
        if !self.regions[index].access.contains(Access::MW_BIND) {
            return Err(AccessError::Rights);
        }
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
            return match window.bound.take() {
                Some(_) => Ok(()),
                None => Err(AccessError::InvalidStag),
            };
        }
        let index = self.region_index(stag)?;
        let region = &mut self.regions[index];
        if region.pd != who.pd {
            return Err(AccessError::NotAssociated);
        }
        if !region.may_invalidate || by == Invalidator::Remote {
            return Err(AccessError::CannotInvalidate);
        }
        region.valid = false;
        Ok(())
    }

    /// Whether each of `octets` was at its place at some moment since `since`.
    pub fn was_there(&self, (index, offset): Place, octets: &[u8], since: u64) -> bool {
        let region = &self.regions[index];
        let Some(now) = region.data.get(offset..offset + octets.len()) else { return false };
        if now == octets {
            return true;
        }
        (0..octets.len()).all(|i| {
            now[i] == octets[i]
                || region.history.iter().any(|(moment, at, old)| {
                    *moment >= since
                        && (offset + i).checked_sub(*at).and_then(|j| old.get(j))
                            == Some(&octets[i])
                })
        })
    }

    /// The first place where a region is not what the oracle says.
    pub fn mismatch(&self) -> Option<(Role, usize)> {
        self.regions.iter().zip(Role::ALL).find_map(|(region, role)| {
            if region.data == region.shadow {
                return None;
            }
            let at = region.data.iter().zip(&region.shadow).position(|(a, b)| a != b)?;
            Some((role, at))
        })
    }

    /// Finds where an address lies, whatever the rights: the oracle's own way.
    pub fn shadow_of(&mut self, lkey: Stag, addr: u64, len: usize) -> Option<&mut [u8]> {
        let region = self.regions.iter_mut().find(|region| region.stag.index() == lkey.index())?;
        let offset = usize::try_from(addr.checked_sub(region.base)?).ok()?;
        region.shadow_part(offset, len)
    }

    /// Where `to` of a tagged buffer lies, by the oracle's own reading: region index and offset.
    pub fn tagged_place(&self, stag: Stag, to: u64) -> Option<Place> {
        if let Some(window) = self.windows.iter().find(|window| window.stag == stag) {
            let bind = window.bound?;
            let index = self.regions.iter().position(|region| region.stag == bind.region)?;
            let zero = bind.access.contains(Access::ZERO_BASED);
            let addr = if zero { bind.addr.checked_add(to)? } else { to };
            return Some((index, addr.checked_sub(self.regions[index].base)? as usize));
        }
        let index = self.regions.iter().position(|region| region.stag.index() == stag.index())?;
        Some((index, to.checked_sub(self.regions[index].base)? as usize))
    }

    /// Octets of the shadow from there on.
    pub fn shadow_at(&mut self, (index, offset): Place, len: usize) -> Option<&mut [u8]> {
        self.regions[index].shadow_part(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_memory_is_as_it_was_at_first() {
        let first = Bank::new(7, PdId(3), COMPACT);
        let mut bank = first.clone();
        let target = Role::Target as usize;
        bank.tick(true);
        bank.write((target, 100), &[1; 50]);
        bank.write((target, 10), &[2; 5]);
        bank.atomic((Role::Counters as usize, SMALL - 8), AtomicOp::FetchAdd { add: 5, mask: 0 });
        let stag = bank.region(Role::Private).stag;
        let base = bank.region(Role::Private).base;
        bank.shadow_of(stag, base + 2 * COMPACT as u64 - 1, 1).unwrap()[0] ^= 1;
        bank.shadow_at((target, 0), 3).unwrap().fill(9);
        assert!(bank.shadow_at((target, COMPACT), 1).is_none());
        bank.revoke(Role::Source);
        bank.unmap(Role::Passing);
        bank.renew(Role::PassingSink);
        assert_ne!(format!("{bank:?}"), format!("{first:?}"));
        bank.restore(&first);
        assert_eq!(format!("{bank:?}"), format!("{first:?}"));
    }
}
