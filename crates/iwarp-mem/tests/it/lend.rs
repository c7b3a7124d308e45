// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that changes hands, and memory that is only borrowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use iwarp_mem::{LentRegion, MemoryTable, OwnedRegion, RegisterError};
use iwarp_types::{
    Access, AccessError, Accessor, Bind, Invalidator, Memory, PdId, QpId, RemoteAccess, Sge, Stag,
    TaggedOffset,
};

use crate::waiting::until;

const PD: PdId = PdId(1);
const WHO: Accessor = Accessor { pd: PD, qp: QpId(2) };

fn sge(stag: Stag, length: u32) -> Sge {
    Sge { addr: 0, length, lkey: stag }
}

fn lent(table: &Arc<MemoryTable>, len: usize) -> LentRegion {
    OwnedRegion::new(table, PD, len).unwrap().lend().unwrap()
}

#[test]
fn octets_are_reachable_only_while_they_are_lent() {
    let table = Arc::new(MemoryTable::new());
    let lent = lent(&table, 64);
    let stag = lent.stag();
    table.place_local(WHO, sge(stag, 64), b"from the network").unwrap();
    let mut owned = lent.take_back();
    assert_eq!(&owned[..16], b"from the network");
    assert_eq!(table.place_local(WHO, sge(stag, 64), b"too late"), Err(AccessError::InvalidStag),);
    owned[..4].copy_from_slice(b"mine");
    let lent = owned.lend().unwrap();
    assert_eq!(lent.stag(), stag, "changing hands costs no STag");
    let mut seen = [0; 16];
    table.gather_local(WHO, sge(stag, 16), &mut seen, None).unwrap();
    assert_eq!(&seen, b"mine the network");
}

#[test]
fn no_peer_reaches_them_lent_or_not() {
    let table = Arc::new(MemoryTable::new());
    let lent = lent(&table, 64);
    let stag = lent.stag();
    for access in [RemoteAccess::Read, RemoteAccess::Write, RemoteAccess::Atomic] {
        let refused = table.check_remote(WHO, stag, TaggedOffset(0), 8, access);
        assert_eq!(refused, Err(AccessError::Rights));
    }
    assert!(table.invalidate(WHO, stag, Invalidator::Remote).is_err());
    table.check_local(WHO, sge(stag, 64), true).unwrap();
}

/// A window would have a gate of its own.
#[test]
fn no_window_can_be_bound_to_them() {
    let table = Arc::new(MemoryTable::new());
    let lent = lent(&table, 64);
    let window = table.allocate_window(PD, iwarp_mem::WindowType::One).unwrap();
    let bind = Bind {
        window,
        new_stag: table.fresh_key(window).unwrap(),
        region: lent.stag(),
        addr: 0,
        length: 64,
        access: Access::REMOTE_READ,
    };
    assert!(table.bind_window(WHO, bind).is_err());
}

#[test]
fn a_lent_region_survives_the_use_of_its_stag_by_others() {
    let table = Arc::new(MemoryTable::new());
    let mut owned = OwnedRegion::new(&table, PD, 16).unwrap();
    owned.fill(7);
    let lent = owned.lend().unwrap();
    let stag = lent.stag();
    // A local invalidate only shuts it for this time.
    table.invalidate(WHO, stag, Invalidator::Local).unwrap();
    assert!(table.check_local(WHO, sge(stag, 16), false).is_err());
    let lent = lent.take_back().lend().unwrap();
    table.check_local(WHO, sge(stag, 16), true).unwrap();
    // Deregistered behind the owner's back: the bytes stay the owner's.
    table.deregister(stag).unwrap();
    let owned = lent.take_back();
    assert_eq!(*owned, [7; 16]);
    let (owned, error) = owned.lend().unwrap_err();
    assert_eq!((error, &*owned), (RegisterError::UnknownStag, &[7; 16][..]));
}

#[test]
fn dropped_regions_leave_the_table_empty() {
    let table = Arc::new(MemoryTable::new());
    drop(lent(&table, 16));
    drop(OwnedRegion::new(&table, PD, 0).unwrap());
    drop(lent(&table, 16).take_back());
    assert!(table.is_empty());
}

/// The owner's stores are never mixed with those of a late use.
#[test]
fn taking_back_waits_for_uses_in_flight() {
    let table = Arc::new(MemoryTable::new());
    let mut region = lent(&table, 4096);
    let stag = region.stag();
    let (stop, placed) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if table.place_local(WHO, sge(stag, 4096), &[1; 4096]).is_ok() {
                    placed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..2000 {
            let mut owned = region.take_back();
            owned.fill(9);
            assert!(owned.iter().all(|&octet| octet == 9), "somebody else wrote there");
            region = owned.lend().unwrap();
            thread::yield_now();
        }
        // At least one use while it was lent, or nothing was tested.
        until("a use", || placed.load(Ordering::Relaxed) > 0);
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn borrowed_memory_is_registered_for_the_time_of_the_call() {
    let table = MemoryTable::new();
    let source = *b"on the stack";
    let mut sink = [0; 12];
    let stags = table.borrow_for(PD, |memory| {
        let from = memory.shared(&source).unwrap();
        let to = memory.exclusive(&mut sink).unwrap();
        let mut octets = [0; 12];
        table.gather_local(WHO, sge(from, 12), &mut octets, None).unwrap();
        table.place_local(WHO, sge(to, 12), &octets).unwrap();
        assert_eq!(
            table.place_local(WHO, sge(from, 12), &octets),
            Err(AccessError::Rights),
            "shared memory is not written",
        );
        [from, to]
    });
    assert_eq!(sink, source);
    for stag in stags {
        let refused = table.check_local(WHO, sge(stag, 1), false);
        assert_eq!(refused, Err(AccessError::InvalidStag));
    }
    assert!(table.is_empty());
}

#[test]
fn a_panic_ends_the_registration_as_well() {
    let table = MemoryTable::new();
    let octets = [0; 16];
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.borrow_for(PD, |memory| {
            memory.shared(&octets).unwrap();
            panic!("as planned");
        })
    }));
    assert!(result.is_err());
    assert!(table.is_empty());
}
