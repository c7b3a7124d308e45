// SPDX-License-Identifier: MIT OR Apache-2.0

//! Entries that an end writes into the memory behind its peer's `target_sgl`: halves of a receive
//! ring, and regions for `riowrite`. Their numbers have the byte order of the host that owns the
//! memory (RS-MSG-07).

use thiserror::Error;

use super::{ByteOrder, IOMAP_OFFSET};

/// Octets of an SGL entry.
pub const SGL_ENTRY_LEN: usize = 16;
/// Octets of an iomap entry.
pub const IOMAP_ENTRY_LEN: usize = 24;

/// Memory that does not fit the 64 bits of an address or offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{length} octets at {from:#x} leave the range of 64 bits")]
pub struct Unspannable {
    /// First address or offset.
    pub from: u64,
    /// Octets.
    pub length: u32,
}

/// Memory for a peer's Writes: an SGL entry, and like fields in private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Address of the first octet.
    pub addr: u64,
    /// Key (STag) under which it may be written.
    pub key: u32,
    /// Octets; in the private data's `target_sgl` the number of entries.
    pub length: u32,
}

impl Entry {
    /// Reads an entry in memory of a host with that byte order.
    pub fn read(octets: &[u8; SGL_ENTRY_LEN], order: ByteOrder) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *octets;
        Self {
            addr: order.read_u64([a0, a1, a2, a3, a4, a5, a6, a7]),
            key: order.read_u32([k0, k1, k2, k3]),
            length: order.read_u32([l0, l1, l2, l3]),
        }
    }

    /// The octets for memory of a host with that byte order.
    pub fn write(&self, order: ByteOrder) -> [u8; SGL_ENTRY_LEN] {
        let mut octets = [0; SGL_ENTRY_LEN];
        octets[..8].copy_from_slice(&order.write_u64(self.addr));
        octets[8..12].copy_from_slice(&order.write_u32(self.key));
        octets[12..].copy_from_slice(&order.write_u32(self.length));
        octets
    }

    /// Refuses memory whose end has no address.
    pub fn check(&self) -> Result<(), Unspannable> {
        spans(self.addr, self.length)
    }

    /// Address of the peer's SGL entry `index`, if this is its `target_sgl`.
    pub(crate) const fn sgl_entry_addr(&self, index: u32) -> u64 {
        self.addr.wrapping_add(index as u64 * SGL_ENTRY_LEN as u64)
    }

    /// Address of the peer's iomap entry `index`, if this is its `target_sgl` (RS-WIRE-07).
    pub(crate) const fn iomap_entry_addr(&self, index: u32) -> u64 {
        self.addr.wrapping_add(IOMAP_OFFSET + index as u64 * IOMAP_ENTRY_LEN as u64)
    }
}

/// A region that the peer may write by `riowrite`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IomapEntry {
    /// Offset by which the peer names the first octet.
    pub offset: u64,
    /// Address of the first octet.
    pub addr: u64,
    /// Key (STag) under which it may be written.
    pub key: u32,
    /// Octets.
    pub length: u32,
}

impl IomapEntry {
    /// Reads an entry in memory of a host with that byte order.
    pub fn read(octets: &[u8; IOMAP_ENTRY_LEN], order: ByteOrder) -> Self {
        let [o0, o1, o2, o3, o4, o5, o6, o7, memory @ ..] = *octets;
        let Entry { addr, key, length } = Entry::read(&memory, order);
        Self { offset: order.read_u64([o0, o1, o2, o3, o4, o5, o6, o7]), addr, key, length }
    }

    /// The octets for memory of a host with that byte order.
    pub fn write(&self, order: ByteOrder) -> [u8; IOMAP_ENTRY_LEN] {
        let Self { offset, addr, key, length } = *self;
        let mut octets = [0; IOMAP_ENTRY_LEN];
        octets[..8].copy_from_slice(&order.write_u64(offset));
        octets[8..].copy_from_slice(&Entry { addr, key, length }.write(order));
        octets
    }

    /// Refuses a region whose end has no address or no offset.
    pub fn check(&self) -> Result<(), Unspannable> {
        spans(self.addr, self.length)?;
        spans(self.offset, self.length)
    }

    /// Octets from `offset` to the region's end, and their address; `None` if it is not inside.
    pub(crate) fn rest(&self, offset: u64) -> Option<(u64, u32)> {
        let inside = u32::try_from(offset.checked_sub(self.offset)?).ok()?;
        let left = self.length.checked_sub(inside).filter(|left| *left > 0)?;
        Some((self.addr.checked_add(inside.into())?, left))
    }
}

fn spans(from: u64, length: u32) -> Result<(), Unspannable> {
    match from.checked_add(length.into()) {
        Some(_) => Ok(()),
        None => Err(Unspannable { from, length }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteOrder, Entry, IomapEntry};

    proptest! {
        /// Covers: RS-MSG-07
        #[test]
        fn entries_come_back_in_either_order(
            offset: u64, addr: u64, key: u32, length: u32, is_big: bool
        ) {
            let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
            let entry = Entry { addr, key, length };
            prop_assert_eq!(Entry::read(&entry.write(order), order), entry);
            let entry = IomapEntry { offset, addr, key, length };
            let octets = entry.write(order);
            prop_assert_eq!(IomapEntry::read(&octets, order), entry);
            let first = if is_big { (offset >> 56) as u8 } else { offset as u8 };
            prop_assert_eq!(octets[0], first);
        }

        #[test]
        fn bounds_of_a_region_are_exact(offset in 0u64..1000, length in 0u32..1000, asked in 0u64..3000) {
            let entry = IomapEntry { offset, addr: 0x1000, key: 1, length };
            let end = offset + u64::from(length);
            let inside = (offset..end).contains(&asked);
            let expected = inside.then(|| (0x1000 + asked - offset, (end - asked) as u32));
            prop_assert_eq!(entry.rest(asked), expected);
        }
    }

    #[test]
    fn memory_beyond_the_last_address_is_refused() {
        let at = |addr, length| Entry { addr, key: 0, length }.check().is_ok();
        assert!(at(u64::MAX - 8, 8) && !at(u64::MAX - 8, 9));
        let region = |offset, addr| IomapEntry { offset, addr, key: 0, length: 9 }.check().is_ok();
        assert!(region(0, 0) && !region(u64::MAX - 8, 0) && !region(0, u64::MAX - 8));
    }
}
