// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of one end that the other may access where it lies, in a small table of the shared
//! memory.
//!
//! Each end writes its own table and reads the peer's. An entry is a sequence lock: its count is
//! odd while the entry says nothing, and it changes whenever the entry does. So a reader that has
//! copied by an entry looks at its count once more: the copy counts if that has not changed.
//!
//! A writer cannot do that, as its bytes are there by then. It says in a word of its own ([`Act`])
//! by which entry it is about to write, and looks at the entry once more before it writes. The
//! owner changes the entry, and then waits until the word names it no more. If a writer does not
//! come to an end, the owner writes that into the word, and takes the memory out of its reach: the
//! writer then knows that its bytes are nowhere.
//!
//! `tests/loom` compiles this file once more, with the atomics of a model checker.

use iwarp_types::Access;

use crate::local::heap::{ARENAS, ArenaPlace};
use crate::sync::{AtomicU64, Ordering, fence};

/// Ranges that a table holds, in sets: a range has its place in the set of its key, and a further
/// one takes the place of another of that set.
const ENTRIES: usize = if cfg!(loom) { 1 } else { 32 };
const WAYS: usize = if cfg!(loom) { 1 } else { 4 };

/// Bytes of another process's memory, and the name that a peer has for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownRange {
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
    /// The place of the first byte in an arena of that process, where it is in one.
    pub place: Option<ArenaPlace>,
    /// The peer's rights.
    pub access: Access,
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
    /// One more than the number of the arena, or 0, and above that the rights.
    pub(crate) arena: AtomicU64,
    pub(crate) offset: AtomicU64,
}

/// The access that a side is carrying out in the peer's memory: the key of that, or 0.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Act(pub(crate) AtomicU64);

/// The owner of the memory waits no more.
const DISOWNED: u64 = 1 << 32;

impl Act {
    /// The side is about to write to the memory of that name. False while another thread does. To
    /// be followed by a look at the entry, which [`is_still`](Ranges::is_still) what it was.
    pub(crate) fn begin(&self, key: u32) -> bool {
        let (begun, not) = (Ordering::SeqCst, Ordering::Relaxed);
        self.0.compare_exchange(0, key.into(), begun, not).is_ok()
    }

    /// It has written. False where the owner has taken the memory out of reach: then the bytes are
    /// nowhere, or only some of them are there.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & DISOWNED == 0
    }

    /// True if the side may be writing to that memory, or to any. For the owner, which has changed
    /// the entry.
    pub(crate) fn is_at(&self, key: Option<u32>) -> bool {
        fence(Ordering::SeqCst);
        let acts = self.0.load(Ordering::Acquire);
        acts != 0 && acts & DISOWNED == 0 && key.is_none_or(|key| acts == u64::from(key))
    }

    /// True if the side may be writing to that memory, or to pages that were in its place.
    fn may_be_at(&self, key: u32) -> bool {
        let acts = self.0.load(Ordering::Acquire) & !DISOWNED;
        acts != 0 && acts == u64::from(key)
    }

    /// The name of the memory that it may be writing to, unless the owner waits for it no more.
    pub(crate) fn name(&self) -> Option<u32> {
        let acts = self.0.load(Ordering::Acquire);
        u32::try_from(acts).ok().filter(|name| *name != 0)
    }

    /// True unless it may be writing anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Tells the side, which is writing, that the memory is out of reach soon. The name of that, or
    /// `None` where it has come to an end.
    pub(crate) fn disown(&self, key: Option<u32>) -> Option<u32> {
        let acts = self.0.load(Ordering::Acquire);
        if acts == 0 || acts & DISOWNED != 0 || key.is_some_and(|key| acts != u64::from(key)) {
            return None;
        }
        let (done, not) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(acts, acts | DISOWNED, done, not).ok()?;
        u32::try_from(acts).ok()
    }
}

impl Ranges {
    /// Puts a range into the table, unless `acts` is at all the ranges that it could take the place
    /// of. False then. One thread at a time writes.
    pub(crate) fn put(&self, range: &ShownRange, acts: &Act) -> bool {
        let Some(number) = self.room_for(range.key, acts) else { return false };
        let entry = &self.0[number];
        let odd = entry.count.load(Ordering::Relaxed) | 1;
        entry.count.store(odd, Ordering::Relaxed);
        // A reader that sees a word of the new range sees that the count is odd, or a later one.
        fence(Ordering::Release);
        entry.key.store(range.key.into(), Ordering::Relaxed);
        entry.first.store(range.first, Ordering::Relaxed);
        entry.len.store(range.len, Ordering::Relaxed);
        entry.address.store(range.address, Ordering::Relaxed);
        entry.revocations.store(range.revocations, Ordering::Relaxed);
        let arena = range.place.map_or(0, |place| u64::from(place.arena) + 1);
        entry.arena.store(arena | u64::from(range.access.bits()) << 32, Ordering::Relaxed);
        entry.offset.store(range.place.map_or(0, |place| place.offset), Ordering::Relaxed);
        entry.count.store(odd.wrapping_add(1), Ordering::Release);
        true
    }

    /// The entry for a key: that which it has, or one that says nothing, or any of its set. The
    /// peer may be writing by one that says nothing any more, which its owner still has to find.
    fn room_for(&self, key: u32, acts: &Act) -> Option<usize> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let free = || set(key).filter(|number| !acts.may_be_at(word(&self.0[*number].key) as u32));
        self.number_of(key)
            .or_else(|| free().find(|number| !says_something(word(&self.0[*number].count))))
            // Any of them will do, if it is another one for other keys.
            .or_else(|| free().cycle().nth((key >> 20) as usize % WAYS))
    }

    /// The number of the entry that has a key, whether it says something still or not.
    #[inline]
    fn number_of(&self, key: u32) -> Option<usize> {
        set(key).find(|number| self.0[*number].key.load(Ordering::Relaxed) == u64::from(key))
    }

    /// Empties the table: what a peer copies from now on does not count. One thread at a time
    /// writes.
    pub(crate) fn clear(&self) {
        for entry in &self.0 {
            let count = entry.count.load(Ordering::Relaxed);
            if says_something(count) {
                entry.count.store(count + 1, Ordering::SeqCst);
            }
        }
        // Bytes that are written from now on are written after the counts have changed, for all who
        // see them.
        fence(Ordering::SeqCst);
    }

    /// The range of that name, if the table has it.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<(ShownRange, Found)> {
        let number = self.number_of(key)?;
        let entry = &self.0[number];
        let count = entry.count.load(Ordering::Acquire);
        if !says_something(count) || entry.key.load(Ordering::Relaxed) != u64::from(key) {
            return None;
        }
        let arena = entry.arena.load(Ordering::Relaxed);
        let offset = entry.offset.load(Ordering::Relaxed);
        let known = (arena as u32).checked_sub(1).filter(|arena| *arena < ARENAS as u32);
        let range = ShownRange {
            key,
            first: entry.first.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            address: entry.address.load(Ordering::Relaxed),
            revocations: entry.revocations.load(Ordering::Relaxed),
            place: known.map(|arena| ArenaPlace { arena, offset }),
            access: Access::from_bits_truncate((arena >> 32) as u32),
        };
        let found = Found { entry: number, count };
        self.is_still(found).then_some((range, found))
    }

    /// The address and length of the memory of that name, if its entry is the last one that was
    /// there, however long ago. For the owner, where none writes.
    pub(crate) fn last(&self, key: u32) -> Option<(u64, u64)> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let entry = &self.0[self.number_of(key)?];
        Some((word(&entry.address), word(&entry.len)))
    }

    /// True if the entry has said all the time what was found there.
    #[inline]
    pub(crate) fn is_still(&self, found: Found) -> bool {
        fence(Ordering::SeqCst);
        self.0[found.entry].count.load(Ordering::Relaxed) == found.count
    }
}

/// True for the count of an entry that is whole and was not emptied.
const fn says_something(count: u64) -> bool {
    count != 0 && count & 1 == 0
}

/// The entries for a key. The lowest eight bits of a key are the part that the program chooses.
fn set(key: u32) -> std::ops::Range<usize> {
    let first = (key >> 8) as usize % (ENTRIES / WAYS) * WAYS;
    first..first + WAYS
}
