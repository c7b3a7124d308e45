// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is registered before it is there.
#![cfg(all(target_os = "linux", not(any(miri, plain_copies))))]

use std::ptr::null_mut;

use iwarp_mem::{MemoryTable, Prefetch, PrefetchError, RegionSpec, RegisterError};
use iwarp_types::{Access, AccessError, Memory, Sge, Stag};
use rustix::mm::{MprotectFlags, mprotect};

use crate::common::{LOCAL, OTHER_PD, PAGE, PD, Pages, WHO, all, sge, to};

const DEMAND: Access = Access::ON_DEMAND;

fn register(table: &MemoryTable, pages: &Pages, len: usize, access: Access) -> Stag {
    let spec = RegionSpec::new(PD, pages.start(), len, access);
    // SAFETY: only the test uses the pages.
    unsafe { table.register(spec) }.unwrap()
}

fn protect(pages: &Pages, number: usize, flags: MprotectFlags) {
    // SAFETY: a page of the test's own, which it reaches by pointers only.
    unsafe { mprotect(pages.start().wrapping_add(number * PAGE).cast(), PAGE, flags) }.unwrap();
}

fn place(table: &MemoryTable, stag: Stag, at: *mut u8) -> Result<(), AccessError> {
    table.place_remote(WHO, stag, to(at.addr() as u64), b"octets")
}

/// Missing memory is no reason to refuse it, and is found out by each access.
#[test]
fn each_access_finds_out_what_is_there() {
    let (table, pages) = (MemoryTable::new(), Pages::new(2));
    // One page more than there is.
    let stag = register(&table, &pages, 3 * PAGE, all() | DEMAND);
    let second = pages.start().wrapping_add(PAGE);
    place(&table, stag, second).unwrap();
    protect(&pages, 1, MprotectFlags::empty());
    assert!(matches!(place(&table, stag, second), Err(AccessError::BadAddress(_))));
    protect(&pages, 1, MprotectFlags::READ | MprotectFlags::WRITE);
    place(&table, stag, second).unwrap();
    let third = second.wrapping_add(PAGE);
    assert!(matches!(place(&table, stag, third), Err(AccessError::BadAddress(_))));
    assert_eq!(place(&table, stag, third.wrapping_add(PAGE)), Err(AccessError::Bounds));
    table.deregister(stag).unwrap();
}

#[test]
fn a_region_of_everything_has_what_comes_later() {
    let table = MemoryTable::new();
    // SAFETY: only this test's pages are named.
    let stag = unsafe { table.register(RegionSpec::everything(PD, all())) }.unwrap();
    // SAFETY: as above.
    let local = unsafe { table.register(RegionSpec::everything(PD, LOCAL)) }.unwrap();
    let pages = Pages::new(1);
    place(&table, stag, pages.start()).unwrap();
    assert_eq!(place(&table, local, pages.start()), Err(AccessError::Rights));
    let beyond = pages.start().wrapping_add(PAGE);
    assert!(matches!(place(&table, stag, beyond), Err(AccessError::BadAddress(_))));
    assert_eq!(place(&table, stag, null_mut()), Err(AccessError::Bounds));
    for nowhere in [1, PAGE, 1 << 47, (1 << 62) + 5, isize::MAX as usize - 10] {
        let at = std::ptr::without_provenance_mut(nowhere);
        assert!(matches!(place(&table, stag, at), Err(AccessError::BadAddress(_))), "{nowhere:x}");
    }
    for kernel in [1 << 63, usize::MAX - 10] {
        let at = std::ptr::without_provenance_mut(kernel);
        assert_eq!(place(&table, stag, at), Err(AccessError::Bounds), "{kernel:x}");
    }
}

/// Covers the order in which the checks of `ibv_advise_mr` are made.
#[test]
fn advice_is_checked_and_followed() {
    use Prefetch::{NoFault, Read, Write};
    let (table, pages) = (MemoryTable::new(), Pages::new(3));
    let on_demand = register(&table, &pages, 3 * PAGE, LOCAL | DEMAND);
    let read_only = register(&table, &pages, 3 * PAGE, DEMAND);
    let plain = register(&table, &pages, 3 * PAGE, LOCAL);
    let whole = |lkey| Sge { lkey, ..sge(lkey, pages.start().addr() as u64, 3 * PAGE as u32) };
    for what in [Read, Write, NoFault] {
        assert_eq!(table.prefetch(PD, whole(on_demand), what), Ok(()));
        let denied = if what == Write { Err(PrefetchError::NotPermitted) } else { Ok(()) };
        assert_eq!(table.prefetch(PD, whole(read_only), what), denied);
        assert_eq!(table.prefetch(PD, whole(plain), what), Ok(()));
        let unknown = Err(PrefetchError::UnknownStag);
        assert_eq!(table.prefetch(PD, whole(Stag(on_demand.0 ^ 1)), what), unknown);
        let other = table.prefetch(OTHER_PD.pd, whole(on_demand), what);
        assert_eq!(other, Err(PrefetchError::NotPermitted));
        let longer = Sge { length: 3 * PAGE as u32 + 1, ..whole(on_demand) };
        assert_eq!(table.prefetch(PD, longer, what), Err(PrefetchError::NotThere));
    }
    protect(&pages, 2, MprotectFlags::READ);
    assert_eq!(table.prefetch(PD, whole(on_demand), Read), Ok(()));
    assert_eq!(table.prefetch(PD, whole(on_demand), Write), Err(PrefetchError::NotThere));
    assert_eq!(table.check_advice(PD, whole(on_demand), Write), Ok(()));
    assert_eq!(table.prefetch(PD, whole(on_demand), NoFault), Ok(()));
    let window = table.allocate_window(PD, iwarp_mem::WindowType::One).unwrap();
    let of_window = table.prefetch(PD, whole(window), Read);
    assert_eq!(of_window, Err(PrefetchError::NotARegion));
}

#[test]
fn the_other_rules_of_registration_hold() {
    let (table, pages) = (MemoryTable::new(), Pages::new(1));
    let refused = |addr, len, access| {
        // SAFETY: nothing is registered.
        unsafe { table.register(RegionSpec::new(PD, addr, len, access)) }.unwrap_err()
    };
    let no_local = DEMAND | Access::REMOTE_WRITE;
    assert_eq!(refused(pages.start(), PAGE, no_local), RegisterError::InvalidAccess);
    assert_eq!(refused(null_mut(), PAGE, DEMAND), RegisterError::NotMapped);
    assert_eq!(refused(pages.start(), usize::MAX, DEMAND), RegisterError::InvalidRange);
    assert!(table.is_empty());
}
