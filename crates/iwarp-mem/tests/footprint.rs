// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of the table follows what is alive, not what ever was. A process of its own, as its
//! resident memory is what is measured.

#![cfg(target_os = "linux")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use iwarp_mem::{Buffer, MemoryTable, Scope};
use iwarp_types::{Access, PdId};

const PD: PdId = PdId(1);
const CYCLES: usize = 1_000_000;
const MIB: usize = 1 << 20;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Registers and deregisters a million times with so many regions alive. Bytes that are in memory
/// on top of what was at first.
fn after_cycles(alive: usize) -> usize {
    let buffer = Arc::new(Buffer::new(8));
    let mut stags = VecDeque::with_capacity(alive + 1);
    let before = resident();
    let table = MemoryTable::new();
    let start = Instant::now();
    for _ in 0..CYCLES {
        let access = Access::LOCAL_READ;
        stags.push_back(table.register_buffer(PD, &buffer, access, Scope::Domain).unwrap());
        if stags.len() > alive {
            table.deregister(stags.pop_front().unwrap()).unwrap();
        }
    }
    let each = start.elapsed() / CYCLES as u32;
    assert_eq!(table.len(), alive);
    let grown = resident().saturating_sub(before);
    println!("{alive} alive: {} KiB more, {each:?} for each registration", grown / 1024);
    grown
}

#[test]
fn a_million_registrations_leave_little_behind() {
    assert!(after_cycles(1) < 3 * MIB);
    assert!(after_cycles(100) < 3 * MIB);
    // Each of these has a slot, and its share of the table.
    assert!(after_cycles(10_000) < 8 * MIB);
}
