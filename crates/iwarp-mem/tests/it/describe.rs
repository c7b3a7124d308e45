// SPDX-License-Identifier: MIT OR Apache-2.0

//! The words about a key that the log of a program may hold.
#![cfg(unix)]

use iwarp_mem::{Described, Key, MemoryTable, Scope, WindowType};
use iwarp_types::{Access, Bind, Invalidator, Memory as _, RemoteAccess, Sge, Stag, TaggedOffset};

use crate::common::*;

#[test]
fn a_key_is_described_from_its_registration_to_its_end() {
    let (pages, table) = (Pages::new(1), MemoryTable::new());
    assert_eq!(table.describe(Stag(0x1234_5678)), Key::Unknown);
    assert_eq!(table.describe(Stag(u32::MAX)), Key::Unknown);
    let scope = Scope::Stream(WHO.qp);
    let stag = register_in(&table, pages.start(), 100, all(), scope);
    let start = pages.start() as u64;
    let mut described = Described {
        is_window: false,
        is_valid: true,
        pd: PD,
        qp: Some(WHO.qp),
        grant: Some((start, 100, all())),
    };
    assert_eq!(table.describe(stag), Key::Present(described));
    assert_eq!(table.describe(Stag(stag.0 ^ 1)), Key::Another(described));
    // A thread that uses it may ask.
    let guard = table.guard_local(WHO, Sge { addr: start, length: 1, lkey: stag }, true).unwrap();
    assert_eq!(table.describe(stag), Key::Present(described));
    drop(guard);
    table.invalidate(WHO, stag, Invalidator::Local).unwrap();
    described.is_valid = false;
    assert_eq!(table.describe(stag), Key::Present(described));
    table.deregister(stag).unwrap();
    assert_eq!(table.describe(stag), Key::Deregistered);
    assert!(table.check_remote(WHO, stag, TaggedOffset(start), 1, RemoteAccess::Read).is_err());
}

#[test]
fn a_window_is_described_by_its_binding() {
    let (pages, table) = (Pages::new(1), MemoryTable::new());
    let region = register(&table, pages.start(), PAGE, all());
    let window = table.allocate_window(PD, WindowType::One).unwrap();
    let unbound = Described { is_window: true, is_valid: false, pd: PD, qp: None, grant: None };
    assert_eq!(table.describe(window), Key::Present(unbound));
    let (addr, access) = (pages.start() as u64 + 8, Access::REMOTE_READ);
    let new_stag = Stag(window.0 ^ 1);
    table.bind_window(WHO, Bind { window, new_stag, region, addr, length: 16, access }).unwrap();
    let bound = Described { is_valid: true, grant: Some((addr, 16, access)), ..unbound };
    assert_eq!(table.describe(new_stag), Key::Present(bound));
    assert_eq!(table.describe(window), Key::Another(bound));
}
