// SPDX-License-Identifier: MIT OR Apache-2.0

//! STags tell nothing about each other, and do not come back soon.

use std::collections::HashSet;
use std::sync::Arc;

use iwarp_mem::{Buffer, MemoryTable, Scope, WindowType};
use iwarp_types::{Access, PdId, Stag};

const PD: PdId = PdId(1);

fn draw(table: &MemoryTable, n: usize) -> Vec<Stag> {
    let buffer = Arc::new(Buffer::new(8));
    (0..n)
        .map(|_| table.register_buffer(PD, &buffer, Access::LOCAL_READ, Scope::Domain).unwrap())
        .collect()
}

/// Covers: RDMAP-5040-8.1.1-08, RDMAP-5040-8.1.1-09, SEC-5042-6.1.1-04, VERBS-hilland-7.2-01
#[test]
fn stags_are_unpredictable_and_sparse() {
    const N: usize = 8192;
    let table = MemoryTable::new();
    let stags = draw(&table, N);
    assert_eq!(stags.iter().map(|stag| stag.index()).collect::<HashSet<_>>().len(), N);
    assert!(stags.iter().all(|stag| stag.index() != 0 && stag.index() < 1 << 23));

    // Differences of neighbours: none small, hardly any twice.
    let steps: Vec<i64> =
        stags.windows(2).map(|two| i64::from(two[1].index()) - i64::from(two[0].index())).collect();
    // A step below 64 has a probability of 2^-16 each; eight of them, less than 2^-40.
    assert!(steps.iter().filter(|step| step.abs() < 64).count() < 8);
    // Of 8191 random steps in a range of 2^24 about two coincide.
    assert!(steps.iter().collect::<HashSet<_>>().len() > N - 40);

    // Spread over the range: 64 parts with 128 expected in each, standard deviation 11.
    let mut parts = [0_i32; 64];
    stags.iter().for_each(|stag| parts[stag.index() as usize >> 17] += 1);
    assert!(parts.iter().all(|&part| (part - 128).abs() < 90), "{parts:?}");

    // Each bit of index and key is a fair coin: standard deviation 45 of 8192 tosses.
    for bit in 0..31 {
        let ones = stags.iter().filter(|stag| stag.0 >> bit & 1 == 1).count() as i32;
        assert!((ones - N as i32 / 2).abs() < 360, "bit {bit}: {ones}");
    }
    // And keys do not follow from indices.
    let keys: HashSet<u8> = stags.iter().map(|stag| stag.key()).collect();
    assert_eq!(keys.len(), 256);
}

/// Covers: RDMAP-5040-8.1.1-08
#[test]
fn two_tables_draw_differently() {
    let (a, b) = (MemoryTable::new(), MemoryTable::new());
    assert_ne!(draw(&a, 16), draw(&b, 16));
}

/// Covers: SEC-5042-6.1.1-04
#[test]
fn a_freed_index_is_not_drawn_again_soon() {
    let table = MemoryTable::new();
    let mut seen = HashSet::new();
    for _ in 0..100_000 {
        let stag = table.allocate_window(PD, WindowType::TwoB).unwrap();
        assert!(seen.insert(stag.index()), "{stag:?} came back");
        table.deallocate_window(stag).unwrap();
    }
    assert!(table.is_empty());
}

#[test]
fn a_fresh_key_is_another_one() {
    let table = MemoryTable::new();
    let stag = table.allocate_window(PD, WindowType::One).unwrap();
    let keys: HashSet<u8> = (0..4000)
        .map(|_| {
            let fresh = table.fresh_key(stag).unwrap();
            assert_eq!(fresh.index(), stag.index());
            assert_ne!(fresh.key(), stag.key());
            fresh.key()
        })
        .collect();
    assert_eq!(keys.len(), 255);
}

#[test]
fn a_million_registrations_fit() {
    let table = MemoryTable::new();
    let stags = draw(&table, 1_000_000);
    assert_eq!(table.len(), 1_000_000);
    assert_eq!(stags.iter().collect::<HashSet<_>>().len(), 1_000_000);
    for stag in stags {
        table.deregister(stag).unwrap();
    }
    assert!(table.is_empty());
}
