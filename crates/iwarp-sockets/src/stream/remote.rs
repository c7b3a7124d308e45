// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer's receive ring, as its announcements describe it.

use super::error::Violation;
use crate::wire::{ByteOrder, Entry, SGL_ENTRIES, SGL_ENTRY_LEN};

/// The entry that is being filled, and the next one. Both are this end's copies: the memory in
/// which they came may change at any time (RS-FLOW-04, RS-SEC-03).
#[derive(Clone, Debug)]
pub(super) struct RemoteRing {
    current: Entry,
    next: Option<Entry>,
    /// Index of the entry that the peer announces next.
    expected: u32,
}

impl RemoteRing {
    /// The first entry came with the connection.
    pub(super) fn new(first: Entry) -> Self {
        Self { current: first, next: None, expected: 1 }
    }

    /// Index of the entry to look at when credits come; none while two halves are free.
    pub(super) fn expected(&mut self) -> Option<u32> {
        self.turn();
        self.next.is_none().then_some(self.expected)
    }

    /// Goes on to the next entry where the current one is full.
    fn turn(&mut self) {
        if self.current.length == 0
            && let Some(next) = self.next.take()
        {
            self.current = next;
        }
    }

    /// Takes the contents of the expected entry, which are zeros if the peer announces nothing.
    pub(super) fn announce(
        &mut self,
        octets: &[u8; SGL_ENTRY_LEN],
        order: ByteOrder,
    ) -> Result<(), Violation> {
        let entry = Entry::read(octets, order);
        if entry.length == 0 {
            return Ok(());
        }
        entry.check()?;
        self.next = Some(entry);
        self.expected = (self.expected + 1) % SGL_ENTRIES;
        Ok(())
    }

    /// Octets that one message can write.
    pub(super) fn room(&mut self) -> u32 {
        self.turn();
        self.current.length
    }

    /// Fills so many octets of [`room`](Self::room): their address and key.
    pub(super) fn fill(&mut self, octets: u32) -> (u64, u32) {
        debug_assert!(octets <= self.current.length);
        let Entry { addr, key, .. } = self.current;
        self.current.addr = addr.wrapping_add(octets.into());
        self.current.length -= octets;
        (addr, key)
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteOrder, Entry, RemoteRing};
    use crate::stream::Violation;

    fn entry(addr: u64, length: u32) -> Entry {
        Entry { addr, key: 7, length }
    }

    /// Covers: RS-FLOW-01, RS-FLOW-03, RS-FLOW-04
    #[test]
    fn an_entry_is_filled_before_the_next() {
        let order = ByteOrder::Little;
        let mut ring = RemoteRing::new(entry(100, 8));
        assert_eq!(ring.room(), 8);
        assert_eq!(ring.fill(5), (100, 7));
        assert_eq!(ring.expected(), Some(1));
        ring.announce(&entry(200, 8).write(order), order).unwrap();
        assert_eq!(ring.expected(), None);
        assert_eq!(ring.room(), 3);
        assert_eq!(ring.fill(3), (105, 7));
        assert_eq!(ring.room(), 8);
        assert_eq!(ring.expected(), Some(0));
        ring.announce(&[0; 16], order).unwrap();
        assert_eq!(ring.expected(), Some(0), "nothing was announced");
        assert_eq!(ring.fill(8), (200, 7));
        assert_eq!(ring.room(), 0);
        ring.announce(&entry(100, 8).write(order), order).unwrap();
        assert_eq!((ring.room(), ring.expected()), (8, Some(1)));
    }

    /// Both halves are free, and the sender looks late.
    #[test]
    fn two_announcements_in_a_row_are_kept() {
        let order = ByteOrder::Little;
        let mut ring = RemoteRing::new(entry(100, 8));
        ring.announce(&entry(200, 8).write(order), order).unwrap();
        ring.fill(8);
        assert_eq!(ring.room(), 8);
        ring.fill(8);
        for (index, addr) in [(0, 100), (1, 200)] {
            assert_eq!(ring.expected(), Some(index));
            ring.announce(&entry(addr, 8).write(order), order).unwrap();
        }
        assert_eq!((ring.room(), ring.fill(8), ring.room()), (8, (100, 7), 8));
    }

    /// Covers: RS-MSG-08
    #[test]
    fn memory_that_cannot_be_is_refused() {
        let order = ByteOrder::Big;
        let mut ring = RemoteRing::new(entry(0, 0));
        let refused = ring.announce(&entry(u64::MAX, 2).write(order), order);
        assert!(matches!(refused, Err(Violation::Memory(_))));
        assert_eq!(ring.room(), 0);
    }
}
