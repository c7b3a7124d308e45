// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rights that an STag of a region grants, and to whom.
#![cfg(unix)]

use std::sync::Arc;

use iwarp_mem::{Buffer, MemoryTable, RegionChange, RegionSpec, RegisterError, Scope};
use iwarp_types::{
    Access, AccessError, Accessor, AtomicOp, Digest, Invalidator, Memory, PdId, QpId, RemoteAccess,
    Sge, Stag,
};
use proptest::prelude::*;

use crate::common::*;

/// Every way to touch one byte range; all must agree.
fn touch(table: &MemoryTable, stag: Stag, at: u64, len: usize) -> Result<(), AccessError> {
    let data = vec![0x77; len];
    let mut out = vec![0; len];
    let placed = table.place_remote(WHO, stag, to(at), &data);
    let gathered = table.gather_remote(WHO, stag, to(at), &mut out, None);
    let mut crc = Digest::crc32c();
    assert_eq!(table.gather_remote(WHO, stag, to(at), &mut out, Some(&mut crc)), gathered);
    assert_eq!(table.check_remote(WHO, stag, to(at), len as u64, RemoteAccess::Write), placed);
    assert_eq!(table.check_remote(WHO, stag, to(at), len as u64, RemoteAccess::Read), gathered);
    let element = sge(stag, at, len as u32);
    assert_eq!(table.place_local(WHO, element, &data), placed);
    assert_eq!(table.gather_local(WHO, element, &mut out, None), placed);
    assert_eq!(table.check_local(WHO, element, true), placed);
    assert_eq!(table.check_local(WHO, element, false), placed);
    assert_eq!(placed, gathered);
    if placed.is_ok() {
        assert_eq!(out, data);
    }
    placed
}

/// Guard pages on both sides: an access outside would kill the test.
///
/// Covers: DDP-5041-8.3.1-03, RDMAP-5040-8.1.1-03, SEC-5042-6.2.1-01, DDP-5041-8.1-01
#[test]
fn both_ends_are_exact_to_the_octet() {
    let pages = Pages::new(2);
    let table = MemoryTable::new();
    let base = pages.start() as u64;
    let size = 2 * PAGE as u64;
    let stag = register(&table, pages.start(), 2 * PAGE, all());

    for len in [1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 255, 257, 1400, PAGE, 2 * PAGE] {
        assert_eq!(touch(&table, stag, base, len), Ok(()), "{len} at the start");
        assert_eq!(touch(&table, stag, base + size - len as u64, len), Ok(()), "{len} at the end");
    }
    pages.fill(0x11);
    for len in [1, 2, 3, 7, 8, 9, 255, 257, PAGE, 2 * PAGE] {
        let end = base + size - len as u64;
        assert_eq!(touch(&table, stag, base - 1, len), Err(AccessError::Bounds));
        assert_eq!(touch(&table, stag, end + 1, len), Err(AccessError::Bounds));
    }
    assert_eq!(touch(&table, stag, base, 2 * PAGE + 1), Err(AccessError::Bounds));
    assert_eq!(touch(&table, stag, base + size, 1), Err(AccessError::Bounds));
    assert_eq!(touch(&table, stag, 0, 1), Err(AccessError::Bounds));
    assert!(pages.octets().iter().all(|&octet| octet == 0x11), "refused, yet written");
}

/// A region that begins and ends inside a page: the bytes around it stay.
///
/// Covers: DDP-5041-8.3.1-03, RDMAP-5040-8.1.1-03, SEC-5042-6.2.1-01
#[test]
fn neighbours_within_the_page_are_not_touched() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    pages.fill(0x11);
    let start = pages.start().wrapping_add(101);
    let stag = register(&table, start, 53, all());
    assert_eq!(touch(&table, stag, start as u64, 53), Ok(()));
    assert_eq!(touch(&table, stag, start as u64, 54), Err(AccessError::Bounds));
    assert_eq!(touch(&table, stag, start as u64 - 1, 54), Err(AccessError::Bounds));
    let octets = pages.octets();
    assert!(octets[..101].iter().chain(&octets[154..]).all(|&octet| octet == 0x11));
    assert!(octets[101..154].iter().all(|&octet| octet == 0x77));
}

#[test]
fn an_offset_that_wraps_is_told_apart_from_one_out_of_bounds() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let stag = register(&table, pages.start(), PAGE, all());
    pages.fill(0x11);
    assert_eq!(touch(&table, stag, u64::MAX, 1), Err(AccessError::Wrap), "a sum of exactly 2^64");
    assert_eq!(touch(&table, stag, u64::MAX - 1, 1), Err(AccessError::Bounds));
    assert_eq!(touch(&table, stag, u64::MAX, 2), Err(AccessError::Wrap));
    let base = pages.start() as u64;
    let wrapping = u64::MAX - base + 1;
    let who = (WHO, stag, to(base));
    let access = RemoteAccess::Write;
    assert_eq!(table.check_remote(who.0, who.1, who.2, wrapping, access), Err(AccessError::Wrap));
    assert_eq!(
        table.check_remote(who.0, who.1, who.2, wrapping - 1, access),
        Err(AccessError::Bounds)
    );
    assert!(pages.octets().iter().all(|&octet| octet == 0x11));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Any range against a model of the memory, with the region anywhere in its addressing.
    ///
    /// Covers: DDP-5041-8.3.1-03, SEC-5042-6.2.1-01
    #[test]
    fn any_access_agrees_with_the_model(
        start in 0..64_usize,
        size in 0..300_usize,
        iova in prop_oneof![Just(0_u64), any::<u64>().prop_map(|x| x >> 1), Just(u64::MAX - 300)],
        accesses in prop::collection::vec((-20_i64..330, 1..310_usize, any::<u8>()), 1..20),
    ) {
        let pages = Pages::new(1);
        let table = MemoryTable::new();
        let addr = pages.start().wrapping_add(start);
        let spec = RegionSpec { iova, ..RegionSpec::new(PD, addr, size, all()) };
        // SAFETY: the pages outlive the table's use.
        let stag = unsafe { table.register(spec) }.unwrap();
        let mut model = vec![0; PAGE];
        for (offset, len, value) in accesses {
            let at = iova.wrapping_add_signed(offset);
            let fits = offset >= 0 && offset as usize + len <= size;
            let data = vec![value; len];
            let placed = table.place_remote(WHO, stag, to(at), &data);
            if at.checked_add(len as u64).is_none() {
                prop_assert_eq!(placed, Err(AccessError::Wrap));
            } else if fits {
                prop_assert_eq!(placed, Ok(()));
                model[start + offset as usize..][..len].copy_from_slice(&data);
            } else {
                prop_assert_eq!(placed, Err(AccessError::Bounds));
            }
        }
        prop_assert_eq!(pages.octets(), model);
    }
}

/// Covers: DDP-5041-8.2-01, DDP-5041-8.3.1-01, RDMAP-5040-8.1.1-01, SEC-5042-6.1.1-02
#[test]
fn another_protection_domain_has_no_access() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let stag = register(&table, pages.start(), PAGE, all());
    let base = pages.start() as u64;
    let no = Err(AccessError::NotAssociated);
    assert_eq!(table.place_remote(OTHER_PD, stag, to(base), &[1]), no);
    assert_eq!(table.gather_remote(OTHER_PD, stag, to(base), &mut [0], None), no);
    assert_eq!(table.place_local(OTHER_PD, sge(stag, base, 1), &[1]), no);
    assert_eq!(table.gather_local(OTHER_PD, sge(stag, base, 1), &mut [0], None), no);
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    assert_eq!(table.atomic(OTHER_PD, stag, to(base), add), Err(AccessError::NotAssociated));
    assert_eq!(table.invalidate(OTHER_PD, stag, Invalidator::Local), no);
    assert!(pages.octets().iter().all(|&octet| octet == 0));
    assert_eq!(table.place_remote(OTHER_QP, stag, to(base), &[1]), Ok(()), "the PD's other stream");
}

/// Covers: DDP-5041-8.2-02, DDP-5041-8.2-04, DDP-5041-8.3-03, DDP-5041-8.3.1-02,
/// RDMAP-5040-8.1.1-02, SEC-5042-6.1.1-01, SEC-5042-6.1.1-03
#[test]
fn a_stream_scoped_region_is_for_that_stream_only() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let stag = register_in(&table, pages.start(), PAGE, all(), Scope::Stream(WHO.qp));
    let base = pages.start() as u64;
    assert_eq!(table.place_remote(WHO, stag, to(base), &[1]), Ok(()));
    let no = Err(AccessError::NotAssociated);
    assert_eq!(table.place_remote(OTHER_QP, stag, to(base), &[2]), no);
    assert_eq!(table.gather_remote(OTHER_QP, stag, to(base), &mut [0], None), no);
    let same_stream_other_pd = Accessor { pd: PdId(9), qp: WHO.qp };
    assert_eq!(table.place_remote(same_stream_other_pd, stag, to(base), &[2]), no);
    assert_eq!(pages.octets()[0], 1);
}

#[test]
fn a_stream_scoped_region_ends_with_its_stream() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let mine = register_in(&table, pages.start(), PAGE, all(), Scope::Stream(WHO.qp));
    let other = register_in(&table, pages.start(), PAGE, all(), Scope::Stream(OTHER_QP.qp));
    let shared = register(&table, pages.start(), PAGE, all());
    table.revoke_stream(WHO.qp);
    let base = to(pages.start() as u64);
    assert_eq!(table.place_remote(WHO, mine, base, &[1]), Err(AccessError::InvalidStag));
    assert_eq!(table.place_remote(OTHER_QP, other, base, &[1]), Ok(()));
    assert_eq!(table.place_remote(WHO, shared, base, &[1]), Ok(()));
    for stag in [mine, other, shared] {
        table.deregister(stag).unwrap();
    }
    assert!(table.is_empty());
}

/// Covers: DDP-5041-8.3.1-05, RDMAP-5040-8.1.1-05, SEC-5042-6.3.5-01
#[test]
fn each_right_is_granted_by_itself() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = to(pages.start() as u64);
    let rights = [
        (RemoteAccess::Read, Access::REMOTE_READ),
        (RemoteAccess::Write, Access::REMOTE_WRITE),
        (RemoteAccess::Atomic, Access::REMOTE_ATOMIC),
    ];
    for set in 0..8 {
        let mut access = LOCAL;
        for (bit, (_, right)) in rights.iter().enumerate() {
            if set & (1 << bit) != 0 {
                access |= *right;
            }
        }
        let stag = register(&table, pages.start(), PAGE, access);
        for (bit, &(kind, _)) in rights.iter().enumerate() {
            let expected = if set & (1 << bit) != 0 { Ok(()) } else { Err(AccessError::Rights) };
            assert_eq!(table.check_remote(WHO, stag, base, 8, kind), expected, "{access:?}");
            let done = match kind {
                RemoteAccess::Read => table.gather_remote(WHO, stag, base, &mut [0; 8], None),
                RemoteAccess::Write => table.place_remote(WHO, stag, base, &[1; 8]),
                RemoteAccess::Atomic => {
                    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
                    table.atomic(WHO, stag, base, op).map(drop)
                }
            };
            assert_eq!(done, expected, "{access:?}");
        }
        table.deregister(stag).unwrap();
    }
}

#[test]
fn local_write_is_needed_to_place_and_to_grant_remote_write() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = pages.start() as u64;
    let stag = register(&table, pages.start(), PAGE, Access::LOCAL_READ);
    assert_eq!(table.place_local(WHO, sge(stag, base, 1), &[1]), Err(AccessError::Rights));
    assert_eq!(table.check_local(WHO, sge(stag, base, 1), true), Err(AccessError::Rights));
    assert_eq!(table.gather_local(WHO, sge(stag, base, 1), &mut [0], None), Ok(()));
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, READ | Access::REMOTE_ATOMIC] {
        let spec = RegionSpec::new(PD, pages.start(), PAGE, access);
        // SAFETY: the pages outlive the table's use.
        let refused = unsafe { table.register(spec) };
        assert_eq!(refused, Err(RegisterError::InvalidAccess));
    }
    assert_eq!(table.len(), 1);
}

/// Covers: VERBS-hilland-7.6.3-01
#[test]
fn zero_octets_are_not_checked() {
    let table = MemoryTable::new();
    let nobody = Stag(0);
    assert_eq!(table.place_remote(WHO, nobody, to(u64::MAX), &[]), Ok(()));
    assert_eq!(table.gather_remote(WHO, nobody, to(u64::MAX), &mut [], None), Ok(()));
    let nothing = Sge { addr: 0, length: 0, lkey: nobody };
    assert_eq!(table.place_local(WHO, nothing, &[]), Ok(()));
    assert_eq!(table.check_local(WHO, nothing, true), Ok(()));
    assert_eq!(
        table.guard_remote(WHO, nobody, to(7), 0, RemoteAccess::Read).map(|guard| guard.len()),
        Ok(0)
    );
}

/// Covers: VERBS-hilland-7.2.1-01
#[test]
fn stag_0_and_strangers_are_invalid() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = to(pages.start() as u64);
    let stag = register(&table, pages.start(), PAGE, all());
    let wrong = [
        Stag(0),
        Stag(1),
        Stag(u32::MAX),
        Stag(stag.0 ^ 1),
        Stag(stag.0 ^ 0x80),
        Stag(stag.0 ^ 0x100),
        Stag(stag.0 | 0x8000_0000),
    ];
    let no = Err(AccessError::InvalidStag);
    for wrong in wrong {
        assert_eq!(table.place_remote(WHO, wrong, base, &[1]), no, "{wrong:?}");
        assert_eq!(table.invalidate(WHO, wrong, Invalidator::Remote), no, "{wrong:?}");
        assert_eq!(table.invalidate(WHO, wrong, Invalidator::Local), no, "{wrong:?}");
        assert_eq!(table.deregister(wrong), Err(RegisterError::UnknownStag), "{wrong:?}");
    }
    assert!(pages.octets().iter().all(|&octet| octet == 0));
    assert_eq!(table.place_remote(WHO, stag, base, &[1]), Ok(()));
}

/// Covers: DDP-5041-8.3-01, DDP-5041-8.3-02, DDP-5041-8.3.1-04, RDMAP-5040-8.1.1-04
#[test]
fn a_range_is_set_and_revoked() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = to(pages.start() as u64);
    let stag = register(&table, pages.start(), PAGE, all());
    assert_eq!(table.place_remote(WHO, stag, base, &[1]), Ok(()));
    table.deregister(stag).unwrap();
    assert_eq!(table.place_remote(WHO, stag, base, &[2]), Err(AccessError::InvalidStag));
    assert_eq!(table.deregister(stag), Err(RegisterError::UnknownStag));
    assert_eq!(pages.octets()[0], 1);
}

/// Covers: DDP-5041-8.3-01, DDP-5041-8.3.1-04, DDP-5041-8.3.1-05, RDMAP-5040-8.1.1-04
#[test]
fn reregistering_changes_what_an_stag_grants() {
    let pages = Pages::new(2);
    let table = MemoryTable::new();
    let base = pages.start() as u64;
    let stag = register(&table, pages.start(), PAGE, all());

    let second = pages.start().wrapping_add(PAGE);
    let moved = RegionChange { translation: Some((second, 100, 7)), ..Default::default() };
    // SAFETY: the pages outlive the table's use; so for the others.
    unsafe { table.reregister(stag, moved) }.unwrap();
    assert_eq!(table.place_remote(WHO, stag, to(base), &[1]), Err(AccessError::Bounds));
    assert_eq!(table.place_remote(WHO, stag, to(106), &[2]), Ok(()));
    assert_eq!(table.place_remote(WHO, stag, to(107), &[2]), Err(AccessError::Bounds));
    assert_eq!(pages.octets()[PAGE + 99], 2);

    let read_only = RegionChange { access: Some(READ), ..Default::default() };
    // SAFETY: as above.
    unsafe { table.reregister(stag, read_only) }.unwrap();
    assert_eq!(table.place_remote(WHO, stag, to(7), &[3]), Err(AccessError::Rights));
    assert_eq!(table.gather_remote(WHO, stag, to(7), &mut [0], None), Ok(()));

    let given = RegionChange { pd: Some(OTHER_PD.pd), ..Default::default() };
    // SAFETY: as above.
    unsafe { table.reregister(stag, given) }.unwrap();
    let read = RemoteAccess::Read;
    assert_eq!(table.check_remote(WHO, stag, to(7), 1, read), Err(AccessError::NotAssociated));
    assert_eq!(table.check_remote(OTHER_PD, stag, to(7), 1, read), Ok(()));

    let wrong = RegionChange { access: Some(Access::REMOTE_WRITE), ..Default::default() };
    // SAFETY: as above.
    assert_eq!(unsafe { table.reregister(stag, wrong) }, Err(RegisterError::InvalidAccess));
    assert_eq!(table.check_remote(OTHER_PD, stag, to(7), 1, read), Ok(()), "as it was");
}

#[test]
fn addressing_is_zero_based_or_by_any_virtual_address() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let zero_based = register(&table, pages.start(), PAGE, all() | ZERO);
    assert_eq!(touch(&table, zero_based, 0, 1), Ok(()));
    assert_eq!(touch(&table, zero_based, PAGE as u64 - 1, 1), Ok(()));
    assert_eq!(touch(&table, zero_based, PAGE as u64, 1), Err(AccessError::Bounds));
    let iova = 0xffff_ffff_0000_0000;
    let spec = RegionSpec { iova, ..RegionSpec::new(PD, pages.start(), PAGE, all()) };
    // SAFETY: the pages outlive the table's use.
    let stag = unsafe { table.register(spec) }.unwrap();
    assert_eq!(touch(&table, stag, iova, PAGE), Ok(()));
    assert_eq!(touch(&table, stag, iova - 1, 1), Err(AccessError::Bounds));
    assert_eq!(touch(&table, stag, pages.start() as u64, 1), Err(AccessError::Bounds));
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let register = |addr: *mut u8, len: usize, iova: u64| {
        let spec = RegionSpec { iova, ..RegionSpec::new(PD, addr, len, all()) };
        // SAFETY: what is registered of these is mapped, and never accessed.
        unsafe { table.register(spec) }
    };
    let start = pages.start();
    assert_eq!(register(start, usize::MAX, 0), Err(RegisterError::InvalidRange));
    assert_eq!(register(start, PAGE, u64::MAX - 9), Err(RegisterError::InvalidRange));
    assert_eq!(register(std::ptr::null_mut(), 1, 0), Err(RegisterError::NotMapped));
    assert!(table.is_empty());
    assert!(register(start, 0, 0).is_ok());
    assert!(register(std::ptr::null_mut(), 0, 0).is_ok());
}

/// Covers: DDP-5041-8.3.2-04, RDMAP-5040-8.1.2-04, SEC-5042-7.3-01, DDP-5041-8.3-06
#[cfg(target_os = "linux")]
#[test]
fn memory_that_the_program_does_not_have_gets_no_stag() {
    let table = MemoryTable::new();
    // No process gets pages that low (vm.mmap_min_addr); memory just unmapped might be in use
    // again.
    let nowhere = std::ptr::without_provenance_mut(2 * PAGE + 5);
    let spec = RegionSpec::new(PD, nowhere, 100, all());
    // SAFETY: refused.
    assert_eq!(unsafe { table.register(spec) }, Err(RegisterError::NotMapped));
    assert!(table.is_empty());
}

#[test]
fn an_element_is_placed_and_gathered_from_its_start() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let stag = register(&table, pages.start(), PAGE, LOCAL);
    let element = sge(stag, pages.start() as u64 + 10, 20);
    table.place_local(WHO, element, &[1, 2, 3]).unwrap();
    assert_eq!(pages.octets()[9..14], [0, 1, 2, 3, 0]);
    assert_eq!(table.place_local(WHO, element, &[0; 21]), Err(AccessError::Bounds));
    let mut out = [9; 4];
    let mut crc = Digest::crc32c();
    table.gather_local(WHO, element, &mut out, Some(&mut crc)).unwrap();
    assert_eq!(out, [1, 2, 3, 0]);
    let mut plain = Digest::crc32c();
    plain.update(&out);
    assert_eq!(crc.register(), plain.register());
}

/// Covers: RDMAP-5040-8.1.1-07
#[test]
fn a_peer_cannot_invalidate_a_region_that_streams_share() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = to(pages.start() as u64);
    let stag = register(&table, pages.start(), PAGE, all());
    let refused = Err(AccessError::CannotInvalidate);
    assert_eq!(table.invalidate(WHO, stag, Invalidator::Remote), refused);
    assert_eq!(table.place_remote(WHO, stag, base, &[1]), Ok(()));
}

/// Covers: VERBS-hilland-7.8-01
#[test]
fn a_peer_invalidates_the_region_of_its_stream() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = to(pages.start() as u64);
    let scope = Scope::Stream(WHO.qp);
    let stag = register_in(&table, pages.start(), PAGE, all(), scope);
    let by = Invalidator::Remote;
    assert_eq!(table.invalidate(OTHER_QP, stag, by), Err(AccessError::NotAssociated));
    assert_eq!(table.invalidate(OTHER_PD, stag, by), Err(AccessError::NotAssociated));
    assert_eq!(table.invalidate(WHO, Stag(stag.0 ^ 2), by), Err(AccessError::InvalidStag));
    assert_eq!(table.place_remote(WHO, stag, base, &[1]), Ok(()), "none of those did it");
    assert_eq!(table.invalidate(WHO, stag, by), Ok(()));
    assert_eq!(table.place_remote(WHO, stag, base, &[2]), Err(AccessError::InvalidStag));
    let element = sge(stag, pages.start() as u64, 1);
    assert_eq!(table.place_local(WHO, element, &[2]), Err(AccessError::InvalidStag));
    assert_eq!(pages.octets()[0], 1);
    table.deregister(stag).unwrap();

    let no_remote_right = register_in(&table, pages.start(), PAGE, LOCAL, scope);
    assert_eq!(table.invalidate(WHO, no_remote_right, by), Err(AccessError::CannotInvalidate));
}

/// Covers: VERBS-hilland-7.8-02
#[test]
fn corner_55_an_invalid_stag_is_invalidated_again_by_its_owner_only() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let stag = register_in(&table, pages.start(), PAGE, all(), Scope::Stream(WHO.qp));
    assert_eq!(table.invalidate(WHO, stag, Invalidator::Remote), Ok(()));
    let again = table.invalidate(WHO, stag, Invalidator::Remote);
    assert_eq!(again, Err(AccessError::CannotInvalidate));
    assert_eq!(table.invalidate(WHO, stag, Invalidator::Local), Ok(()));
    // SAFETY: the pages outlive the table's use.
    unsafe { table.reregister(stag, RegionChange::default()) }.unwrap();
    assert_eq!(table.place_remote(WHO, stag, to(pages.start() as u64), &[1]), Ok(()));
    assert_eq!(table.invalidate(WHO, stag, Invalidator::Local), Ok(()));
    table.deregister(stag).unwrap();
}

/// Covers: EXT-7306-5.1.1-01, EXT-7306-5.1.1-02, EXT-7306-5.1.1-03, EXT-7306-5.1.2-03,
/// EXT-7306-5.1.2-04, EXT-7306-5.1.2-05, EXT-7306-5.1.2-06, EXT-7306-5.2.1-04
#[test]
fn corner_62_atomics_are_aligned_by_address_not_by_offset() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let ops = [
        AtomicOp::FetchAdd { add: 1, mask: 0 },
        AtomicOp::FetchAdd { add: 1, mask: 1 << 31 },
        AtomicOp::CompareSwap { compare: 0, compare_mask: 0, swap: !0, swap_mask: !0 },
    ];
    for shift in 1..8 {
        let start = pages.start().wrapping_add(shift);
        let stag = register(&table, start, 64, all() | ZERO);
        for op in ops {
            for offset in 0..16 {
                pages.fill(0);
                let check = table.check_remote(WHO, stag, to(offset), 8, RemoteAccess::Atomic);
                let done = table.atomic(WHO, stag, to(offset), op);
                assert_eq!(check, done.map(drop));
                if (shift as u64 + offset).is_multiple_of(8) {
                    assert_eq!(done, Ok(0));
                    assert!(pages.octets().iter().any(|&octet| octet != 0));
                } else {
                    assert_eq!(done, Err(AccessError::Unaligned));
                    assert!(pages.octets().iter().all(|&octet| octet == 0), "modified");
                }
            }
        }
        table.deregister(stag).unwrap();
    }
}

/// Covers: EXT-7306-5-03, EXT-7306-5.1.2-02, EXT-7306-5.1.1-07
#[test]
fn atomics_work_on_the_hosts_own_words() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(64));
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Domain).unwrap();
    let word = buffer.atomic_u64(8);
    let at = to(8);
    let order = std::sync::atomic::Ordering::SeqCst;
    word.store(40, order);
    let add = |add, mask| table.atomic(WHO, stag, at, AtomicOp::FetchAdd { add, mask });
    assert_eq!(add(2, 0), Ok(40));
    assert_eq!(word.load(order), 42);
    assert_eq!(add(u64::MAX, 1 << 63), Ok(42));
    assert_eq!(word.load(order), 41);
    word.store(0xffff_ffff, order);
    assert_eq!(add(1, 1 << 31), Ok(0xffff_ffff));
    assert_eq!(word.load(order), 0, "the carry out of the lower field is dropped");

    word.store(0x1234, order);
    let swap = |compare| {
        let op = AtomicOp::CompareSwap {
            compare,
            compare_mask: 0xff00,
            swap: 0xabcd,
            swap_mask: 0x00ff,
        };
        table.atomic(WHO, stag, at, op)
    };
    assert_eq!(swap(0x9900), Ok(0x1234), "the original value on a mismatch");
    assert_eq!(word.load(order), 0x1234);
    assert_eq!(swap(0x1200), Ok(0x1234));
    assert_eq!(word.load(order), 0x12cd);
    let neighbours = [buffer.atomic_u64(0).load(order), buffer.atomic_u64(16).load(order)];
    assert_eq!(neighbours, [0, 0]);
    assert_eq!(
        table.atomic(WHO, stag, to(64), AtomicOp::FetchAdd { add: 1, mask: 0 }),
        Err(AccessError::Bounds)
    );
    assert_eq!(
        table.atomic(WHO, stag, to(60), AtomicOp::FetchAdd { add: 1, mask: 0 }),
        Err(AccessError::Bounds)
    );
}

#[test]
fn a_registered_buffer_lives_until_it_is_deregistered() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(100));
    let weak = Arc::downgrade(&buffer);
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Stream(QpId(5))).unwrap();
    drop(buffer);
    table.place_remote(WHO, stag, to(99), &[1]).unwrap();
    assert!(weak.upgrade().is_some());
    table.deregister(stag).unwrap();
    assert!(weak.upgrade().is_none());
}

#[test]
fn guards_give_the_octets_that_were_asked_for() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let base = pages.start() as u64;
    let stag = register(&table, pages.start(), PAGE, all());
    let guard = table.guard_remote(WHO, stag, to(base + 3), 5, RemoteAccess::Read).unwrap();
    assert_eq!((guard.as_ptr() as u64, guard.len()), (base + 3, 5));
    assert!(!guard.is_writable());
    let guard = table.guard_local(WHO, sge(stag, base + 9, 7), true).unwrap();
    assert_eq!((guard.as_mut_ptr() as u64, guard.len()), (base + 9, 7));
}

#[test]
#[should_panic(expected = "made for reading")]
fn a_guard_for_reading_is_not_written_through() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(8));
    let stag = table.register_buffer(PD, &buffer, LOCAL, Scope::Domain).unwrap();
    table.guard_local(WHO, sge(stag, 0, 8), false).unwrap().as_mut_ptr();
}
