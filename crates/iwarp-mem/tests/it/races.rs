// SPDX-License-Identifier: MIT OR Apache-2.0

//! Revocation and atomics while other threads are at it.
#![cfg(unix)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use iwarp_mem::{Buffer, MemoryTable, Scope, WindowType};
use iwarp_types::{AccessError, AtomicOp, Bind, Invalidator, Memory, Sge, Stag};

use crate::common::*;
use crate::waiting::until;

const POISON: u8 = 0xdb;

/// Tells the other threads to stop, also when a check fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads place all the time; the owner revokes, poisons the memory, and finds the poison whole.
fn revoked_while_placing(
    rounds: usize,
    revoke: impl Fn(&MemoryTable, &Buffer, usize, &dyn Fn(Stag)) -> bool,
) {
    const WRITERS: usize = 2;
    let buffer = Arc::new(Buffer::new(32 << 10));
    let table = MemoryTable::new();
    let stag = AtomicU32::new(0);
    let done = AtomicBool::new(false);
    let placed = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writers = (0..WRITERS).map(|id| {
            let (table, stag, done) = (&table, &stag, &done);
            let (placed, refused, buffer) = (&placed, &refused, &buffer);
            scope.spawn(move || {
                // To a part of its own: what two peers do to each other is not the matter here.
                let part = buffer.len() / WRITERS;
                let data = vec![id as u8; part];
                let mut n = 1;
                while !done.load(Ordering::Relaxed) {
                    n = n * 7 % part + 1;
                    let stag = Stag(stag.load(Ordering::Relaxed));
                    let at = ((id + 1) * part - n) as u64;
                    match table.place_remote(WHO, stag, to(at), &data[..n]) {
                        Ok(()) => placed.fetch_add(1, Ordering::Relaxed),
                        Err(AccessError::InvalidStag) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let stop = Done(&done);
        let mut octets = vec![0; buffer.len()];
        for round in 0..rounds {
            let before = placed.load(Ordering::Relaxed);
            let publish = |it: Stag| {
                stag.store(it.0, Ordering::Relaxed);
                // Revoke in the midst of it, not before it began.
                until("threads that place", || placed.load(Ordering::Relaxed) >= before + 3);
            };
            assert!(revoke(&table, &buffer, round, &publish));
            octets.fill(POISON);
            buffer.write_at(0, &octets);
            for _ in 0..3 {
                thread::yield_now();
                buffer.read_at(0, &mut octets);
                assert!(octets.iter().all(|&octet| octet == POISON), "written after revocation");
            }
        }
        drop(stop);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert!(placed.into_inner() >= 3 * rounds);
    assert!(refused.into_inner() > 0, "nobody came late: no race was tried");
}

/// Registers the whole buffer, with tagged offsets that begin at zero.
fn register_from_zero(table: &MemoryTable, buffer: &Buffer, scope: Scope) -> Stag {
    let (addr, len) = (buffer.as_mut_ptr(), buffer.len());
    let spec = iwarp_mem::RegionSpec { pd: PD, addr, len, iova: 0, access: all(), scope };
    // SAFETY: the buffer outlives the test and is reached by atomics only.
    unsafe { table.register(spec) }.unwrap()
}

/// Covers: DDP-5041-8.3.1-06, RDMAP-5040-8.1.1-06, SEC-5042-6.2.2-02
#[test]
fn octets_are_not_placed_after_deregistration() {
    revoked_while_placing(60, |table, buffer, _, publish| {
        let owned = Pages::new(1);
        let decoy = register(table, owned.start(), PAGE, all());
        let stag = register_from_zero(table, buffer, Scope::Domain);
        publish(stag);
        table.deregister(stag).is_ok() && table.deregister(decoy).is_ok()
    });
}

/// Covers: DDP-5041-8.3.1-06, SEC-5042-6.2.2-02
#[test]
fn octets_are_not_placed_after_invalidation() {
    revoked_while_placing(60, |table, buffer, round, publish| {
        let region = register_from_zero(table, buffer, Scope::Stream(WHO.qp));
        if round % 2 == 0 {
            publish(region);
            return table.invalidate(WHO, region, Invalidator::Remote).is_ok()
                && table.deregister(region).is_ok();
        }
        let window = table.allocate_window(PD, WindowType::TwoB).unwrap();
        let access = iwarp_types::Access::REMOTE_WRITE;
        let length = buffer.len() as u64;
        let bind = Bind { window, new_stag: window, region, addr: 0, length, access };
        table.bind_window(WHO, bind).unwrap();
        publish(window);
        // After the peer's invalidation of the window the region itself still is.
        table.invalidate(WHO, window, Invalidator::Remote).is_ok()
            && table.deallocate_window(window).is_ok()
            && table.deregister(region).is_ok()
    });
}

/// A guard holds the memory; revocation waits for it and no longer.
#[test]
fn deregistration_waits_for_a_guard_and_for_nothing_else() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(64));
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Domain).unwrap();
    let over = AtomicBool::new(false);
    let element = Sge { addr: 0, length: 64, lkey: stag };
    let guard = table.guard_local(WHO, element, true).unwrap();
    thread::scope(|scope| {
        let revoker = scope.spawn(|| {
            table.deregister(stag).unwrap();
            assert!(over.load(Ordering::Relaxed), "returned while the guard was held");
        });
        // New uses are refused as soon as it began, although it has not returned.
        until("a refusal", || table.check_local(WHO, element, true).is_err());
        assert!(!revoker.is_finished());
        over.store(true, Ordering::Relaxed);
        drop(guard);
        revoker.join().unwrap();
    });
}

/// Covers: EXT-7306-5-01, EXT-7306-5.3-01, EXT-7306-5.4-02, EXT-7306-5-02
#[test]
fn atomics_of_streams_and_of_the_program_add_up() {
    const EACH: u64 = 20_000;
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(16));
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Domain).unwrap();
    let fetch_add = |mask| {
        for _ in 0..EACH {
            table.atomic(WHO, stag, to(8), AtomicOp::FetchAdd { add: 1, mask }).unwrap();
        }
    };
    let compare_swap = || {
        let mut old = 0;
        for _ in 0..EACH {
            loop {
                let op = AtomicOp::CompareSwap {
                    compare: old,
                    compare_mask: !0,
                    swap: old + 1,
                    swap_mask: !0,
                };
                let found = table.atomic(OTHER_QP, stag, to(8), op).unwrap();
                if found == old {
                    break;
                }
                old = found;
            }
            old += 1;
        }
    };
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| fetch_add(0)),
            // Fields of 32 bits, which do not overflow here.
            scope.spawn(|| fetch_add(1 << 31)),
            scope.spawn(compare_swap),
            scope.spawn(|| {
                for _ in 0..EACH {
                    buffer.atomic_u64(8).fetch_add(1, Ordering::Relaxed);
                }
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(buffer.atomic_u64(8).load(Ordering::Relaxed), 4 * EACH);
    assert_eq!(buffer.atomic_u64(0).load(Ordering::Relaxed), 0);
}

/// Slots serve one STag after the other while lookups of old ones are under way: no late lookup
/// gets at another's memory.
#[test]
fn a_recycled_slot_never_serves_an_old_stag() {
    let table = MemoryTable::new();
    let mine = Arc::new(Buffer::new(64));
    let others = Arc::new(Buffer::new(64));
    let stag = AtomicU32::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let placers = [0, 32].map(|part| {
            let (table, stag, done) = (&table, &stag, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let stag = Stag(stag.load(Ordering::Relaxed));
                    let _ = table.place_remote(WHO, stag, to(part), &[1; 32]);
                }
            })
        });
        let stop = Done(&done);
        for round in 0..2_000 {
            let first = table.register_buffer(PD, &mine, all(), Scope::Domain).unwrap();
            stag.store(first.0, Ordering::Relaxed);
            if round % 8 == 0 {
                thread::yield_now();
            }
            table.deregister(first).unwrap();
            // Most likely that slot once more, with another STag, which the threads do not know.
            let second = table.register_buffer(PD, &others, all(), Scope::Domain).unwrap();
            assert_ne!(first.index(), second.index());
            table.deregister(second).unwrap();
        }
        drop(stop);
        placers.into_iter().for_each(|placer| placer.join().unwrap());
    });
    assert!(others.to_vec().iter().all(|&octet| octet == 0));
}
