// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions for `riowrite`: those that this end maps for its peer, and those of the peer.

use alloc::collections::{BTreeMap, VecDeque};

use super::error::{MapError, Violation};
use crate::wire::{ByteOrder, IOMAP_ENTRY_LEN, IomapEntry};

/// This end's regions, in the peer's table.
#[derive(Clone, Debug)]
pub(super) struct OwnMaps {
    /// Entries of the peer's table.
    entries: u32,
    mapped: BTreeMap<u32, IomapEntry>,
    /// Indices of those about which the peer has not been told, in their order.
    untold: VecDeque<u32>,
}

impl OwnMaps {
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, mapped: BTreeMap::new(), untold: VecDeque::new() }
    }

    /// Takes a free entry for a region.
    pub(super) fn map(&mut self, region: IomapEntry) -> Result<(), MapError> {
        region.check()?;
        let mut taken = self.mapped.keys().copied();
        let free = (0..self.entries).find(|index| taken.next() != Some(*index));
        let index = free.ok_or(MapError::Full(self.entries))?;
        self.mapped.insert(index, region);
        self.untold.push_back(index);
        Ok(())
    }

    /// Gives up the region that lies exactly there. The peer is not told (RS-IO-04).
    pub(super) fn unmap(&mut self, addr: u64, length: u32) -> Option<IomapEntry> {
        let is_it = |region: &IomapEntry| (region.addr, region.length) == (addr, length);
        let index = *self.mapped.iter().find(|(_, region)| is_it(region))?.0;
        self.untold.retain(|untold| *untold != index);
        self.mapped.remove(&index)
    }

    /// All regions.
    pub(super) fn iter(&self) -> impl Iterator<Item = &IomapEntry> {
        self.mapped.values()
    }

    /// True if the peer has to be told about a region.
    pub(super) fn is_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The next entry that the peer is told.
    pub(super) fn tell(&mut self) -> Option<(u32, IomapEntry)> {
        let index = self.untold.pop_front()?;
        Some((index, self.mapped[&index]))
    }
}

/// The peer's regions: copies of what it has written into the table (RS-IO-05).
#[derive(Clone, Debug)]
pub(super) struct PeerMaps {
    /// Entries of this end's table.
    entries: u32,
    regions: BTreeMap<u32, IomapEntry>,
}

impl PeerMaps {
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, regions: BTreeMap::new() }
    }

    /// Refuses an index beyond the table.
    pub(super) fn check(&self, index: u32) -> Result<(), Violation> {
        let entries = self.entries;
        if index < entries { Ok(()) } else { Err(Violation::IomapIndex { index, entries }) }
    }

    /// Takes the contents of an entry.
    pub(super) fn learn(
        &mut self,
        index: u32,
        octets: &[u8; IOMAP_ENTRY_LEN],
        order: ByteOrder,
    ) -> Result<(), Violation> {
        self.check(index)?;
        let region = IomapEntry::read(octets, order);
        region.check()?;
        self.regions.insert(index, region);
        Ok(())
    }

    /// Address, key and number of the octets from `offset` to the end of their region.
    pub(super) fn find(&self, offset: u64) -> Option<(u64, u32, u32)> {
        self.regions.values().find_map(|region| {
            let (addr, left) = region.rest(offset)?;
            Some((addr, region.key, left))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteOrder, IomapEntry, MapError, OwnMaps, PeerMaps};
    use crate::stream::Violation;

    fn region(addr: u64, length: u32) -> IomapEntry {
        IomapEntry { offset: addr, addr, key: 1, length }
    }

    #[test]
    fn entries_are_used_again() {
        let mut maps = OwnMaps::new(2);
        maps.map(region(100, 10)).unwrap();
        maps.map(region(200, 10)).unwrap();
        assert_eq!(maps.map(region(300, 10)), Err(MapError::Full(2)));
        assert_eq!(maps.tell(), Some((0, region(100, 10))));
        assert_eq!(maps.unmap(100, 9), None);
        assert_eq!(maps.unmap(100, 10), Some(region(100, 10)));
        assert_eq!(maps.unmap(200, 10), Some(region(200, 10)));
        assert!(!maps.is_untold(), "a region that is gone is not announced");
        maps.map(region(300, 10)).unwrap();
        assert_eq!(maps.tell(), Some((0, region(300, 10))));
        assert_eq!(maps.iter().count(), 1);
        assert!(matches!(maps.map(region(u64::MAX, 2)), Err(MapError::Memory(_))));
        assert_eq!(OwnMaps::new(0).map(region(1, 1)), Err(MapError::Full(0)));
    }

    /// Covers: RS-IO-05, RS-MSG-08
    #[test]
    fn entries_of_the_peer_are_checked() {
        let order = ByteOrder::Little;
        let mut maps = PeerMaps::new(2);
        let beyond = Violation::IomapIndex { index: 2, entries: 2 };
        assert_eq!(maps.learn(2, &[0; 24], order), Err(beyond));
        maps.learn(1, &region(100, 10).write(order), order).unwrap();
        assert_eq!(maps.find(99), None);
        assert_eq!(maps.find(103), Some((103, 1, 7)));
        assert_eq!(maps.find(110), None);
        let wrong = maps.learn(1, &region(u64::MAX, 2).write(order), order);
        assert!(matches!(wrong, Err(Violation::Memory(_))));
        maps.learn(1, &[0; 24], order).unwrap();
        assert_eq!(maps.find(103), None, "the entry was cleared");
    }
}
