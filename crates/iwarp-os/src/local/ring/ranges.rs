// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of one end that the other may read where it lies, in a small table of the shared memory.
//!
//! Each end writes its own table and reads the peer's. An entry is a sequence lock: its count is
//! odd while the entry says nothing, and it changes whenever the entry does. So a reader that has
//! copied by an entry looks at its count once more: the copy counts if that has not changed.
//! `tests/loom` compiles this file once more, with the atomics of a model checker.

use crate::sync::{AtomicU64, Ordering, fence};

/// Ranges that a table holds: a further one takes the place of that with which it shares a key's
/// lowest bits.
const ENTRIES: usize = if cfg!(loom) { 1 } else { 16 };

/// Bytes of another process's memory, and the name that a peer has for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadableRange {
    /// The name: a remote key.
    pub key: u32,
    /// The number by which the peer names the first byte.
    pub first: u64,
    /// Length in bytes.
    pub len: u64,
    /// The address of the first byte in its process.
    pub address: u64,
    /// The count of the memory that the process has taken back so far
    /// ([`StatusPage::revocations`](super::super::StatusPage::revocations)).
    pub revocations: u64,
}

/// An entry as it was found, by which a reader asks whether it says so still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    entry: usize,
    count: u64,
}

/// The table of one end. The peer may have written anything.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Ranges(pub(crate) [Entry; ENTRIES]);

#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Entry {
    /// Odd, or 0: the rest says nothing.
    pub(crate) count: AtomicU64,
    pub(crate) key: AtomicU64,
    pub(crate) first: AtomicU64,
    pub(crate) len: AtomicU64,
    pub(crate) address: AtomicU64,
    pub(crate) revocations: AtomicU64,
}

impl Ranges {
    /// Puts a range into the table. One thread at a time writes.
    pub(crate) fn put(&self, range: &ReadableRange) {
        let entry = &self.0[place(range.key)];
        let odd = entry.count.load(Ordering::Relaxed) | 1;
        entry.count.store(odd, Ordering::Relaxed);
        // A reader that sees a word of the new range sees that the count is odd, or a later one.
        fence(Ordering::Release);
        entry.key.store(range.key.into(), Ordering::Relaxed);
        entry.first.store(range.first, Ordering::Relaxed);
        entry.len.store(range.len, Ordering::Relaxed);
        entry.address.store(range.address, Ordering::Relaxed);
        entry.revocations.store(range.revocations, Ordering::Relaxed);
        entry.count.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Empties the table: what a peer copies from now on does not count. One thread at a time
    /// writes.
    pub(crate) fn clear(&self) {
        for entry in &self.0 {
            let count = entry.count.load(Ordering::Relaxed);
            if count & 1 == 0 && count != 0 {
                entry.count.store(count + 1, Ordering::SeqCst);
            }
        }
        // Bytes that are written from now on are written after the counts have changed, for all who
        // see them.
        fence(Ordering::SeqCst);
    }

    /// The range of that name, if the table has it.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<(ReadableRange, Found)> {
        let number = place(key);
        let entry = &self.0[number];
        let count = entry.count.load(Ordering::Acquire);
        if count & 1 != 0 || count == 0 || entry.key.load(Ordering::Relaxed) != u64::from(key) {
            return None;
        }
        let range = ReadableRange {
            key,
            first: entry.first.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            address: entry.address.load(Ordering::Relaxed),
            revocations: entry.revocations.load(Ordering::Relaxed),
        };
        let found = Found { entry: number, count };
        self.is_still(found).then_some((range, found))
    }

    /// True if the entry has said all the time what was found there.
    #[inline]
    pub(crate) fn is_still(&self, found: Found) -> bool {
        fence(Ordering::SeqCst);
        self.0[found.entry].count.load(Ordering::Relaxed) == found.count
    }
}

/// The place of a key. The lowest eight bits of a key are the part that the program chooses.
const fn place(key: u32) -> usize {
    (key >> 8) as usize % ENTRIES
}
