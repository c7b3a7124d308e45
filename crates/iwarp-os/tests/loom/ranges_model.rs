// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of memory that one process shows another, shows anew and shows no more, while that
//! copies it, or writes there.

use iwarp_types::Access;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::local::heap::ArenaPlace;
use crate::ranges::{Act, Entry, Found, Ranges, ShownRange};

const KEY: u32 = 0x100;

struct Shared {
    ranges: Ranges,
    act: Act,
    /// Memory of the owner: what stands at address 0, and at address 1.
    words: [AtomicU64; 2],
}

fn range(address: u64) -> ShownRange {
    let place = Some(ArenaPlace { arena: 3, offset: 30 + address });
    let (first, revocations) = (10 + address, 20 + address);
    let access = Access::REMOTE_WRITE;
    ShownRange { key: KEY, first, len: 1, address, revocations, place, access }
}

fn shared() -> Arc<Shared> {
    let zero = || AtomicU64::new(0);
    let ranges = Ranges(std::array::from_fn(|_| Entry {
        count: zero(),
        key: zero(),
        first: zero(),
        len: zero(),
        address: zero(),
        revocations: zero(),
        arena: zero(),
        offset: zero(),
    }));
    let shared = Shared { ranges, act: Act(zero()), words: [zero(), AtomicU64::new(100)] };
    assert!(shared.ranges.put(&range(0), &shared.act));
    Arc::new(shared)
}

impl Shared {
    /// The range that was found, with the word that stands there, if the copy counts.
    fn copy(&self) -> Option<(ShownRange, u64)> {
        let (range, found): (ShownRange, Found) = self.ranges.find(KEY)?;
        let word = self.words[range.address as usize].load(Ordering::Relaxed);
        self.ranges.is_still(found).then_some((range, word))
    }

    /// Writes where the range says, if it may; says whether that has reached the owner.
    fn write(&self) -> bool {
        let Some((range, found)) = self.ranges.find(KEY) else { return false };
        if !self.act.begin(KEY) {
            return false;
        }
        let may = self.ranges.is_still(found);
        if may {
            self.words[range.address as usize].store(9, Ordering::Relaxed);
        }
        self.act.end() && may
    }
}

#[test]
fn a_copy_has_nothing_that_was_written_after_the_table_was_emptied() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.ranges.clear();
            owner.words[0].store(7, Ordering::Relaxed);
        });
        if let Some(copied) = shared.copy() {
            assert_eq!(copied, (range(0), 0));
        }
        owner.join().unwrap();
        assert_eq!(shared.copy(), None);
    });
}

#[test]
fn a_range_is_found_as_a_whole_and_with_the_memory_that_it_names() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.ranges.clear();
            owner.words[0].store(7, Ordering::Relaxed);
            owner.ranges.put(&range(1), &owner.act);
        });
        if let Some(copied) = shared.copy() {
            assert!(copied == (range(0), 0) || copied == (range(1), 100), "{copied:?}");
        }
        owner.join().unwrap();
        assert_eq!(shared.copy(), Some((range(1), 100)));
    });
}

#[test]
fn no_write_arrives_after_the_owner_has_waited() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.ranges.clear();
            while owner.act.is_at(Some(KEY)) {
                thread::yield_now();
            }
            owner.words[0].store(7, Ordering::Relaxed);
        });
        shared.write();
        owner.join().unwrap();
        assert_eq!(shared.words[0].load(Ordering::Relaxed), 7);
        assert!(!shared.write());
    });
}

/// The owner moves to other memory, with what the old one holds.
#[test]
fn a_writer_that_is_not_waited_for_knows_that_its_bytes_are_nowhere() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.ranges.clear();
            let mut disowned = false;
            while owner.act.is_at(Some(KEY)) {
                disowned |= owner.act.disown(Some(KEY)) == Some(KEY);
                thread::yield_now();
            }
            let held = owner.words[0].load(Ordering::Relaxed);
            (disowned, held)
        });
        let arrived = shared.write();
        let (disowned, held) = owner.join().unwrap();
        assert!(!(disowned && arrived));
        assert!(!arrived || held == 9, "what has arrived is there");
        assert!(!shared.act.is_at(None));
    });
}
