// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory in plain vectors, and beside each region a shadow: what the octets have to be
//! by the oracle's own reading.

use std::ops::Range;

use iwarp_types::mock::{self, Invalidation, Region, RegionOffset, Window};
use iwarp_types::{Access, AtomicOp, PdId, QpId, Stag};

use crate::choice::pattern;

/// Octets of the large regions.
pub const LARGE: usize = 256 * 1024;
/// Octets of these where many short runs say more than long messages: room for some frames still.
pub const COMPACT: usize = 12 * 1024;
/// Octets of the region for atomics.
pub const SMALL: usize = 4096;

/// The purpose of each region of an end. The number is its index.
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

/// The oracle's knowledge of a region.
#[derive(Clone, Debug)]
struct Shadow {
    /// The region's octets as the oracle has them.
    octets: Vec<u8>,
    /// Octets that were overwritten while the peer was reading: moment, place, old octets.
    history: Vec<(u64, usize, Vec<u8>)>,
    /// Octets outside of it are as they were at first, here and in the region.
    touched: Option<Range<usize>>,
}

impl Shadow {
    fn touch(&mut self, place: Range<usize>) {
        let touched = self.touched.get_or_insert(place.clone());
        *touched = touched.start.min(place.start)..touched.end.max(place.end);
    }

    /// A part, to be changed.
    fn part(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let place = offset..offset.checked_add(len)?;
        self.octets.get(place.clone())?;
        self.touch(place.clone());
        Some(&mut self.octets[place])
    }
}

/// The memory of one end.
#[derive(Clone, Debug)]
pub struct Bank {
    /// The regions, by role, and the windows.
    pub memory: mock::Bank,
    shadows: Vec<Shadow>,
    moment: u64,
    keep_history: bool,
}

impl Bank {
    /// Fresh memory with large regions of `large` octets; `seed` decides what is in it.
    pub fn new(seed: u64, pd: PdId, large: usize) -> Self {
        let regions: Vec<_> = Role::ALL
            .iter()
            .enumerate()
            .map(|(index, role)| {
                let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
                let (never, local) = (Invalidation::Never, Invalidation::Local);
                let (len, access, invalidation) = match role {
                    Role::Source => (large, Access::REMOTE_READ, never),
                    Role::Target => (large, all | Access::MW_BIND, never),
                    Role::Private => (2 * large, Access::LOCAL_WRITE, never),
                    Role::Counters => (SMALL, all | Access::REMOTE_ATOMIC, never),
                    Role::Passing => (large, Access::REMOTE_READ, local),
                    Role::PassingSink => (large, Access::LOCAL_WRITE | Access::ZERO_BASED, local),
                    Role::Foreign => (SMALL, all | Access::REMOTE_ATOMIC, never),
                };
                let zero = access.contains(Access::ZERO_BASED);
                let mut octets = vec![0; len];
                pattern(seed ^ (index as u64) << 32, &mut octets);
                Region {
                    stag: Stag((index as u32 + 1) << 8 | 0x11),
                    pd: if *role == Role::Foreign { PdId(pd.0 + 1) } else { pd },
                    only: None,
                    base: if zero { 0 } else { BASE + (index as u64) * 0x100_0000 },
                    skew: 0,
                    access,
                    valid: true,
                    gone: false,
                    invalidation,
                    octets,
                }
            })
            .collect();
        let windows = (0..WINDOWS as u32).map(|index| Window {
            stag: Stag((WINDOWS_AT + index) << 8),
            bound: None,
            qp: QpId(0),
        });
        let shadows = regions.iter().map(|region| Shadow {
            octets: region.octets.clone(),
            history: Vec::new(),
            touched: None,
        });
        let shadows = shadows.collect();
        let memory = mock::Bank { regions, windows: windows.collect() };
        Self { memory, shadows, moment: 0, keep_history: false }
    }

    /// The region of that role.
    pub fn region(&self, role: Role) -> &Region {
        &self.memory.regions[role as usize]
    }

    /// Takes the access away, as a deregistration would.
    pub fn revoke(&mut self, role: Role) {
        self.memory.regions[role as usize].valid = false;
    }

    /// Takes the memory away, and leaves the registration.
    pub fn unmap(&mut self, role: Role) {
        self.memory.regions[role as usize].gone = true;
    }

    /// Registers a region anew, under another key.
    pub fn renew(&mut self, role: Role) {
        let region = &mut self.memory.regions[role as usize];
        (region.valid, region.gone) = (true, false);
        region.stag = Stag((region.stag.0 & !0xff) | (region.stag.0.wrapping_add(1) & 0xff));
    }

    /// Everything is valid again and no window bound; the octets stay.
    pub fn renew_all(&mut self) {
        self.memory.regions.iter_mut().for_each(|region| {
            (region.valid, region.gone) = (true, false);
        });
        self.forget();
        self.memory.windows.iter_mut().for_each(|window| window.bound = None);
    }

    fn forget(&mut self) {
        self.shadows.iter_mut().for_each(|shadow| shadow.history.clear());
    }

    /// Makes it what it was at first, which is `first`, without other memory.
    pub fn restore(&mut self, first: &Self) {
        let pairs = self.memory.regions.iter_mut().zip(&first.memory.regions);
        let shadows = self.shadows.iter_mut().zip(&first.shadows);
        for ((region, first), (shadow, first_shadow)) in pairs.zip(shadows) {
            if let Some(place) = shadow.touched.take() {
                region.octets[place.clone()].copy_from_slice(&first.octets[place.clone()]);
                shadow.octets[place.clone()].copy_from_slice(&first_shadow.octets[place]);
            }
            (region.stag, region.valid, region.gone) = (first.stag, first.valid, first.gone);
            shadow.history.clear();
        }
        self.memory.windows.copy_from_slice(&first.memory.windows);
        (self.moment, self.keep_history) = (first.moment, first.keep_history);
    }

    /// Starts a new moment; what is overwritten from now on is remembered if `reading`.
    pub fn tick(&mut self, reading: bool) -> u64 {
        self.moment += 1;
        self.keep_history = reading;
        if !reading {
            self.forget();
        }
        self.moment
    }

    /// From now on what is overwritten is remembered: the peer is reading.
    pub const fn remember(&mut self) {
        self.keep_history = true;
    }

    /// Writes.
    pub fn write(&mut self, place: RegionOffset, data: &[u8]) {
        let (index, offset) = place;
        let shadow = &mut self.shadows[index];
        shadow.touch(offset..offset + data.len());
        let target = self.memory.octets(place, data.len());
        if self.keep_history {
            shadow.history.push((self.moment, offset, target.to_vec()));
        }
        target.copy_from_slice(data);
    }

    /// Reads, changes and writes 8 octets in host order.
    pub fn atomic(&mut self, place: RegionOffset, op: AtomicOp) -> u64 {
        let (old, new) = self.memory.atomic(place, op);
        self.write(place, &new);
        old
    }

    /// True if each of `octets` was at its place at some moment since `since`.
    pub fn was_there(&self, (index, offset): RegionOffset, octets: &[u8], since: u64) -> bool {
        let region = &self.memory.regions[index];
        let Some(now) = region.octets.get(offset..offset + octets.len()) else { return false };
        if now == octets {
            return true;
        }
        let history = &self.shadows[index].history;
        (0..octets.len()).all(|i| {
            now[i] == octets[i]
                || history.iter().any(|(moment, at, old)| {
                    *moment >= since
                        && (offset + i).checked_sub(*at).and_then(|j| old.get(j))
                            == Some(&octets[i])
                })
        })
    }

    /// The regions, each with its octets as the oracle has them.
    pub fn judged(&self) -> impl Iterator<Item = (&Region, &[u8])> {
        self.memory.regions.iter().zip(self.shadows.iter().map(|shadow| &shadow.octets[..]))
    }

    /// The first place where a region is not what the oracle says.
    pub fn mismatch(&self) -> Option<(Role, usize)> {
        self.judged().zip(Role::ALL).find_map(|((region, shadow), role)| {
            if region.octets == shadow {
                return None;
            }
            let at = region.octets.iter().zip(shadow).position(|(a, b)| a != b)?;
            Some((role, at))
        })
    }

    /// Finds the place of an address without regard to rights: the oracle's own way.
    pub fn shadow_of(&mut self, lkey: Stag, addr: u64, len: usize) -> Option<&mut [u8]> {
        let regions = &self.memory.regions;
        let index = regions.iter().position(|region| region.stag.index() == lkey.index())?;
        let offset = usize::try_from(addr.checked_sub(regions[index].base)?).ok()?;
        self.shadows[index].part(offset, len)
    }

    /// Place of `to` of a tagged buffer, by the oracle's own reading: region index and offset.
    pub fn tagged_place(&self, stag: Stag, to: u64) -> Option<RegionOffset> {
        let mock::Bank { regions, windows } = &self.memory;
        if let Some(window) = windows.iter().find(|window| window.stag == stag) {
            let bind = window.bound?;
            let index = regions.iter().position(|region| region.stag == bind.region)?;
            let zero = bind.access.contains(Access::ZERO_BASED);
            let addr = if zero { bind.addr.checked_add(to)? } else { to };
            return Some((index, addr.checked_sub(regions[index].base)? as usize));
        }
        let index = regions.iter().position(|region| region.stag.index() == stag.index())?;
        Some((index, to.checked_sub(regions[index].base)? as usize))
    }

    /// Octets of the shadow from there on.
    pub fn shadow_at(&mut self, (index, offset): RegionOffset, len: usize) -> Option<&mut [u8]> {
        self.shadows[index].part(offset, len)
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
