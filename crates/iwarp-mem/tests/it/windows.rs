// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rights that binding a window grants and takes away.
#![cfg(unix)]

use iwarp_mem::{MemoryTable, RegisterError, Scope, WindowType};
use iwarp_types::{
    Access, AccessError, Accessor, Bind, Invalidator, Memory, PdId, RemoteAccess, Stag,
};

use crate::common::*;

const WRITE: Access = Access::REMOTE_WRITE;
const TYPES: [WindowType; 3] = [WindowType::One, WindowType::TwoA, WindowType::TwoB];

/// A page registered for binding, and a window.
struct Setup {
    pages: Pages,
    table: MemoryTable,
    region: Stag,
    window: Stag,
}

fn setup(kind: WindowType, region_access: Access) -> Setup {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let region = register(&table, pages.start(), PAGE, region_access);
    let window = table.allocate_window(PD, kind).unwrap();
    Setup { pages, table, region, window }
}

impl Setup {
    /// 100 bytes at offset 50 of the page.
    fn bind(&self, access: Access) -> Bind {
        Bind {
            window: self.window,
            new_stag: Stag(self.window.0 ^ 0x55),
            region: self.region,
            addr: self.at(50),
            length: 100,
            access,
        }
    }

    fn at(&self, offset: u64) -> u64 {
        self.pages.start() as u64 + offset
    }

    fn place(&self, who: Accessor, stag: Stag, offset: u64, len: usize) -> Result<(), AccessError> {
        self.table.place_remote(who, stag, to(self.at(offset)), &vec![0x77; len])
    }
}

/// The region itself grants the peer nothing here.
fn bindable() -> Access {
    LOCAL | Access::MW_BIND
}

/// Covers: VERBS-hilland-7.10.6-01
#[test]
fn a_window_grants_its_own_bounds_and_rights() {
    for kind in TYPES {
        let s = setup(kind, bindable() | READ);
        let bind = s.bind(WRITE);
        assert_eq!(s.place(WHO, s.window, 50, 1), Err(AccessError::InvalidStag), "not bound yet");
        s.table.bind_window(WHO, bind).unwrap();
        let stag = bind.new_stag;
        assert_eq!(s.place(WHO, stag, 50, 100), Ok(()));
        assert_eq!(s.place(WHO, stag, 49, 1), Err(AccessError::Bounds));
        assert_eq!(s.place(WHO, stag, 150, 1), Err(AccessError::Bounds));
        assert_eq!(s.place(WHO, stag, 50, 101), Err(AccessError::Bounds));
        assert_eq!(s.place(WHO, s.region, 50, 1), Err(AccessError::Rights), "the window's right");
        let read = s.table.check_remote(WHO, stag, to(s.at(50)), 1, RemoteAccess::Read);
        assert_eq!(read, Err(AccessError::Rights), "the region's right");
        if stag != s.window {
            assert_eq!(s.place(WHO, s.window, 50, 1), Err(AccessError::InvalidStag), "old key");
        }
        let octets = s.pages.octets();
        assert!(octets[50..150].iter().all(|&octet| octet == 0x77));
        assert!(octets[..50].iter().chain(&octets[150..]).all(|&octet| octet == 0));
        let as_lkey = s.table.check_local(WHO, sge(stag, s.at(50), 1), false);
        assert_eq!(as_lkey, Err(AccessError::InvalidStag));
    }
}

/// Covers: VERBS-hilland-7.10.6-01, DDP-5041-8.3.1-02, RDMAP-5040-8.1.1-02, SEC-5042-6.1.1-03
#[test]
fn windows_of_type_2_are_for_the_stream_they_were_bound_through() {
    let no = Err(AccessError::NotAssociated);
    for kind in TYPES {
        let s = setup(kind, bindable());
        let bind = s.bind(WRITE);
        s.table.bind_window(WHO, bind).unwrap();
        let other_qp = s.place(OTHER_QP, bind.new_stag, 50, 1);
        let other_pd = s.place(OTHER_PD, bind.new_stag, 50, 1);
        match kind {
            WindowType::One => assert_eq!((other_qp, other_pd), (Ok(()), no)),
            WindowType::TwoA => assert_eq!((other_qp, other_pd), (no, Ok(()))),
            WindowType::TwoB => assert_eq!((other_qp, other_pd), (no, no)),
            other => panic!("{other:?} is not tried"),
        }
    }
}

#[test]
fn a_zero_based_window_counts_from_its_start() {
    let s = setup(WindowType::TwoB, bindable());
    let bind = s.bind(WRITE | ZERO);
    s.table.bind_window(WHO, bind).unwrap();
    assert_eq!(s.table.place_remote(WHO, bind.new_stag, to(0), &[1; 100]), Ok(()));
    assert_eq!(
        s.table.place_remote(WHO, bind.new_stag, to(1), &[1; 100]),
        Err(AccessError::Bounds)
    );
    assert_eq!(s.pages.octets()[48..52], [0, 0, 1, 1]);
}

#[test]
fn a_window_follows_the_addressing_of_its_region() {
    let pages = Pages::new(1);
    let table = MemoryTable::new();
    let region = register(&table, pages.start(), PAGE, bindable() | ZERO);
    let window = table.allocate_window(PD, WindowType::One).unwrap();
    let bind = Bind { window, new_stag: window, region, addr: 4000, length: 96, access: WRITE };
    table.bind_window(WHO, bind).unwrap();
    assert_eq!(table.place_remote(WHO, window, to(4095), &[5]), Ok(()));
    assert_eq!(table.place_remote(WHO, window, to(3999), &[5]), Err(AccessError::Bounds));
    assert_eq!(pages.octets()[4095], 5);
}

/// Each wrong field alone; nothing changes.
///
/// Covers: VERBS-hilland-7.2.1-01
#[test]
fn wrong_bindings_are_refused() {
    for kind in TYPES {
        let s = setup(kind, bindable());
        let good = s.bind(WRITE);
        let other_pd_region = {
            let spec = iwarp_mem::RegionSpec::new(PdId(9), s.pages.start(), PAGE, bindable());
            // SAFETY: the pages outlive the table's use.
            unsafe { s.table.register(spec) }.unwrap()
        };
        let no_bind = register(&s.table, s.pages.start(), PAGE, LOCAL | WRITE);
        let read_only = register(&s.table, s.pages.start(), PAGE, Access::MW_BIND);
        let other_stream = Scope::Stream(OTHER_QP.qp);
        let scoped = register_in(&s.table, s.pages.start(), PAGE, bindable(), other_stream);
        let gone = register(&s.table, s.pages.start(), PAGE, bindable());
        s.table.invalidate(WHO, gone, Invalidator::Local).unwrap();
        let cases = [
            (Bind { window: Stag(0), ..good }, AccessError::InvalidStag),
            (Bind { window: Stag(good.window.0 ^ 1), ..good }, AccessError::InvalidStag),
            (Bind { window: s.region, new_stag: s.region, ..good }, AccessError::InvalidStag),
            (Bind { new_stag: Stag(good.window.0 ^ 0x100), ..good }, AccessError::InvalidStag),
            (Bind { region: Stag(0), ..good }, AccessError::InvalidStag),
            (Bind { region: Stag(good.region.0 ^ 1), ..good }, AccessError::InvalidStag),
            (Bind { region: good.window, ..good }, AccessError::InvalidStag),
            (Bind { region: gone, ..good }, AccessError::InvalidStag),
            (Bind { region: other_pd_region, ..good }, AccessError::NotAssociated),
            (Bind { region: scoped, ..good }, AccessError::NotAssociated),
            (Bind { region: no_bind, ..good }, AccessError::Rights),
            (Bind { region: read_only, ..good }, AccessError::Rights),
            (
                Bind { region: read_only, access: Access::REMOTE_ATOMIC, ..good },
                AccessError::Rights,
            ),
            (Bind { access: WRITE | LOCAL, ..good }, AccessError::Rights),
            (Bind { access: WRITE | Access::MW_BIND, ..good }, AccessError::Rights),
            (Bind { addr: s.at(0) - 1, ..good }, AccessError::Bounds),
            (Bind { addr: s.at(3997), ..good }, AccessError::Bounds),
            (Bind { length: PAGE as u64 - 49, ..good }, AccessError::Bounds),
            (Bind { addr: u64::MAX - 99, ..good }, AccessError::Wrap),
        ];
        for (bind, error) in cases {
            assert_eq!(s.table.bind_window(WHO, bind), Err(error), "{bind:?}");
            assert!(s.place(WHO, bind.new_stag, 50, 1).is_err());
        }
        assert_eq!(s.table.bind_window(OTHER_PD, good), Err(AccessError::NotAssociated));
        for region in [s.region, other_pd_region, no_bind, read_only, scoped, gone] {
            s.table.deregister(region).expect("no window was counted on it");
        }
        let region = register(&s.table, s.pages.start(), PAGE, Access::MW_BIND);
        assert_eq!(s.table.bind_window(WHO, Bind { region, access: READ, ..good }), Ok(()));
    }
}

#[test]
fn type_1_is_rebound_and_unbound_by_binding() {
    let s = setup(WindowType::One, bindable());
    let first = s.bind(WRITE);
    s.table.bind_window(WHO, first).unwrap();
    let other = register(&s.table, s.pages.start(), PAGE, bindable());
    let fresh = s.table.fresh_key(first.new_stag).unwrap();
    assert_eq!(fresh.index(), s.window.index());
    assert_ne!(fresh, first.new_stag);
    let second =
        Bind { window: first.new_stag, new_stag: fresh, region: other, addr: s.at(0), ..first };
    s.table.bind_window(WHO, second).unwrap();
    assert_eq!(s.place(WHO, first.new_stag, 60, 1), Err(AccessError::InvalidStag));
    assert_eq!(s.place(WHO, fresh, 0, 100), Ok(()));
    assert_eq!(s.table.deregister(s.region), Ok(()), "the window left it");
    assert_eq!(s.table.deregister(other), Err(RegisterError::WindowsBound));

    for by in [Invalidator::Local, Invalidator::Remote] {
        let refused = s.table.invalidate(WHO, fresh, by);
        assert_eq!(refused, Err(AccessError::CannotInvalidate));
    }
    let new_stag = s.table.fresh_key(fresh).unwrap();
    let nothing = Bind { window: fresh, new_stag, length: 0, region: Stag(0), ..first };
    s.table.bind_window(WHO, nothing).unwrap();
    assert_eq!(s.place(WHO, fresh, 0, 1), Err(AccessError::InvalidStag));
    assert_eq!(s.place(WHO, new_stag, 0, 1), Err(AccessError::InvalidStag));
    assert_eq!(s.table.deregister(other), Ok(()));
    assert_eq!(s.table.deallocate_window(new_stag), Ok(()));
    assert!(s.table.is_empty());
}

#[test]
fn type_2_is_bound_again_only_after_invalidation() {
    for kind in [WindowType::TwoA, WindowType::TwoB] {
        let s = setup(kind, bindable());
        let bind = s.bind(WRITE);
        s.table.bind_window(WHO, bind).unwrap();
        let again = Bind { window: bind.new_stag, new_stag: s.window, ..bind };
        assert_eq!(s.table.bind_window(WHO, again), Err(AccessError::CannotInvalidate));
        assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Ok(()), "as it was");
        s.table.invalidate(WHO, bind.new_stag, Invalidator::Local).unwrap();
        assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Err(AccessError::InvalidStag));
        assert_eq!(s.table.bind_window(WHO, Bind { length: 0, ..again }), Err(AccessError::Bounds));
        s.table.bind_window(WHO, again).unwrap();
        assert_eq!(s.place(WHO, s.window, 50, 1), Ok(()), "under the caller's key");
    }
}

/// Covers: VERBS-hilland-7.8-01, VERBS-hilland-7.8-02
#[test]
fn a_peer_invalidates_the_window_of_its_stream() {
    for kind in [WindowType::TwoA, WindowType::TwoB] {
        let s = setup(kind, bindable());
        let bind = s.bind(WRITE);
        let stag = bind.new_stag;
        let by = Invalidator::Remote;
        assert_eq!(s.table.invalidate(WHO, s.window, by), Err(AccessError::CannotInvalidate));
        s.table.bind_window(WHO, bind).unwrap();
        assert_eq!(s.table.invalidate(OTHER_QP, stag, by), Err(AccessError::NotAssociated));
        assert_eq!(s.table.invalidate(OTHER_PD, stag, by), Err(AccessError::NotAssociated));
        assert_eq!(s.table.invalidate(WHO, Stag(stag.0 ^ 3), by), Err(AccessError::InvalidStag));
        assert_eq!(s.place(WHO, stag, 50, 1), Ok(()), "none of those did it");
        assert_eq!(s.table.invalidate(WHO, stag, by), Ok(()));
        assert_eq!(s.place(WHO, stag, 50, 1), Err(AccessError::InvalidStag));
        assert_eq!(s.table.invalidate(WHO, stag, by), Err(AccessError::CannotInvalidate));
        assert_eq!(s.table.invalidate(WHO, stag, Invalidator::Local), Ok(()));
        assert_eq!(s.table.deregister(s.region), Ok(()));
    }
}

/// Covers: VERBS-hilland-7.8-01
#[test]
fn a_region_with_windows_stays() {
    for kind in TYPES {
        let s = setup(kind, all());
        let bind = s.bind(WRITE);
        s.table.bind_window(WHO, bind).unwrap();
        assert_eq!(s.table.deregister(s.region), Err(RegisterError::WindowsBound));
        let refused = s.table.invalidate(WHO, s.region, Invalidator::Local);
        assert_eq!(refused, Err(AccessError::CannotInvalidate));
        // SAFETY: nothing changes.
        let refused = unsafe { s.table.reregister(s.region, Default::default()) };
        assert_eq!(refused, Err(RegisterError::WindowsBound));
        assert_eq!(s.place(WHO, s.region, 0, 1), Ok(()));
        s.table.deallocate_window(bind.new_stag).unwrap();
        assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Err(AccessError::InvalidStag));
        assert_eq!(s.table.deregister(s.region), Ok(()));
        assert!(s.table.is_empty());
    }
}

#[test]
fn the_owner_removes_a_window_whatever_its_key_is_by_now() {
    for kind in TYPES {
        let s = setup(kind, all());
        let bind = s.bind(WRITE);
        s.table.bind_window(WHO, bind).unwrap();
        assert_ne!(bind.new_stag, s.window);
        assert_eq!(s.table.deallocate_window(s.window), Err(RegisterError::UnknownStag));
        assert_eq!(s.table.deallocate_own_window(s.window), Ok(()));
        assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Err(AccessError::InvalidStag));
        assert_eq!(s.table.deregister(s.region), Ok(()));
        assert_eq!(s.table.deallocate_own_window(s.window), Err(RegisterError::UnknownStag));
        assert!(s.table.is_empty());
    }
}

#[test]
fn a_region_is_no_window_and_a_window_no_region() {
    let s = setup(WindowType::TwoB, all());
    assert_eq!(s.table.deallocate_window(s.region), Err(RegisterError::UnknownStag));
    assert_eq!(s.table.deregister(s.window), Err(RegisterError::UnknownStag));
    assert_eq!(s.table.len(), 2);
}

#[test]
fn the_end_of_a_stream_revokes_what_was_bound_through_it() {
    let s = setup(WindowType::TwoA, bindable());
    let bind = s.bind(WRITE);
    s.table.bind_window(WHO, bind).unwrap();
    let other = s.table.allocate_window(PD, WindowType::TwoB).unwrap();
    s.table.bind_window(OTHER_QP, Bind { window: other, new_stag: other, ..bind }).unwrap();
    let shared = s.table.allocate_window(PD, WindowType::One).unwrap();
    s.table.bind_window(WHO, Bind { window: shared, new_stag: shared, ..bind }).unwrap();
    s.table.revoke_stream(WHO.qp);
    assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Err(AccessError::InvalidStag));
    assert_eq!(s.place(OTHER_QP, other, 50, 1), Ok(()));
    assert_eq!(s.place(WHO, shared, 50, 1), Ok(()));
}

/// Covers: SEC-5042-6.1.1-03
#[test]
fn a_window_does_not_widen_the_scope_of_its_region() {
    let s = setup(WindowType::One, bindable());
    let scope = Scope::Stream(WHO.qp);
    let region = register_in(&s.table, s.pages.start(), PAGE, bindable(), scope);
    let bind = Bind { region, ..s.bind(WRITE) };
    s.table.bind_window(WHO, bind).unwrap();
    assert_eq!(s.place(WHO, bind.new_stag, 50, 1), Ok(()));
    assert_eq!(s.place(OTHER_QP, bind.new_stag, 50, 1), Err(AccessError::NotAssociated));
}
