// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of memory that one process shows another, shows anew and shows no more, while that
//! copies it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::ranges::{Entry, Found, Ranges, ReadableRange};

const KEY: u32 = 0x100;

struct Shared {
    ranges: Ranges,
    /// Memory of the owner: what stands at address 0, and at address 1.
    words: [AtomicU64; 2],
}

fn range(address: u64) -> ReadableRange {
    ReadableRange { key: KEY, first: 10 + address, len: 1, address, revocations: 20 + address }
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
    }));
    let shared = Shared { ranges, words: [zero(), AtomicU64::new(100)] };
    shared.ranges.put(&range(0));
    Arc::new(shared)
}

impl Shared {
    /// The range that was found, with the word that stands there, if the copy counts.
    fn copy(&self) -> Option<(ReadableRange, u64)> {
        let (range, found): (ReadableRange, Found) = self.ranges.find(KEY)?;
        let word = self.words[range.address as usize].load(Ordering::Relaxed);
        self.ranges.is_still(found).then_some((range, word))
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
            owner.ranges.put(&range(1));
        });
        if let Some(copied) = shared.copy() {
            assert!(copied == (range(0), 0) || copied == (range(1), 100), "{copied:?}");
        }
        owner.join().unwrap();
        assert_eq!(shared.copy(), Some((range(1), 100)));
    });
}
