// SPDX-License-Identifier: MIT OR Apache-2.0

//! A use of one buffer for several pieces of it.
#![cfg(unix)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use iwarp_mem::{AccessObserver, Buffer, MemoryTable, Scope, Span, Store, WindowType};
use iwarp_types::{Access, AccessError, Digest, Memory, RemoteAccess, Stag, Usage, Use};

use crate::common::*;
use crate::waiting::until;

const USAGES: [Usage; 4] =
    [Usage::LocalRead, Usage::LocalWrite, Usage::RemoteRead, Usage::RemoteWrite];

fn access(table: &MemoryTable, usage: Usage, stag: Stag, at: u64, octets: &mut [u8]) -> Outcome {
    let inside = table.begin_use(WHO, stag, usage)?;
    match usage {
        Usage::LocalRead | Usage::RemoteRead => inside.gather(at, octets, None),
        Usage::LocalWrite | Usage::RemoteWrite => inside.place(at, octets),
    }
}

type Outcome = Result<(), AccessError>;

/// Every piece meets the checks that an access of its own does, in the same order.
#[test]
fn each_piece_is_checked_as_an_access_of_its_own() {
    let pages = Pages::new(1);
    let (start, end) = (pages.start().addr() as u64, pages.end().addr() as u64);
    let table = MemoryTable::new();
    let rights = [LOCAL, LOCAL | READ, LOCAL | Access::REMOTE_WRITE, all()];
    for rights in rights {
        let stag = register(&table, pages.start(), PAGE, rights);
        let places = [(start, 8), (end - 8, 8), (end - 7, 8), (start - 1, 8), (u64::MAX - 3, 8)];
        for ((at, len), who) in places.into_iter().flat_map(|p| [(p, WHO), (p, OTHER_PD)]) {
            let mut octets = vec![7; len];
            for usage in USAGES {
                let whole = sge(stag, at, len as u32);
                let alone = match usage {
                    Usage::LocalRead => table.check_local(who, whole, false),
                    Usage::LocalWrite => table.check_local(who, whole, true),
                    Usage::RemoteRead => {
                        table.check_remote(who, stag, to(at), len as u64, RemoteAccess::Read)
                    }
                    Usage::RemoteWrite => {
                        table.check_remote(who, stag, to(at), len as u64, RemoteAccess::Write)
                    }
                };
                let inside = table.begin_use(who, stag, usage).unwrap();
                let piece = match usage {
                    Usage::LocalRead | Usage::RemoteRead => inside.gather(at, &mut octets, None),
                    Usage::LocalWrite | Usage::RemoteWrite => inside.place(at, &octets),
                };
                assert_eq!(piece, alone, "{usage:?} {rights:?} {at:#x}");
                // A refusal is of that piece.
                assert_eq!(inside.gather(at, &mut [], None), Ok(()));
            }
        }
        table.deregister(stag).unwrap();
        for usage in USAGES {
            let gone = access(&table, usage, stag, start, &mut [0; 8]);
            assert_eq!(gone, Err(AccessError::InvalidStag));
        }
    }
}

#[test]
fn pieces_land_where_they_belong_and_come_from_there_with_their_crc() {
    let pages = Pages::new(1);
    let start = pages.start().addr() as u64;
    let table = MemoryTable::new();
    let stag = register(&table, pages.start(), PAGE, all());
    let sink = table.begin_use(WHO, stag, Usage::RemoteWrite).unwrap();
    for n in 0..100_u8 {
        sink.place(start + u64::from(n) * 13, &[n; 13]).unwrap();
    }
    drop(sink);
    let expected: Vec<u8> = (0..100).flat_map(|n| [n; 13]).collect();
    assert_eq!(pages.octets()[..1300], expected);
    assert_eq!(pages.octets()[1300..], [0; PAGE - 1300]);
    let source = table.begin_use(WHO, stag, Usage::LocalRead).unwrap();
    let (mut octets, mut crc) = (vec![0; 1300], Digest::crc32c());
    for (n, piece) in octets.chunks_mut(211).enumerate() {
        source.gather(start + n as u64 * 211, piece, Some(&mut crc)).unwrap();
    }
    let mut whole = Digest::crc32c();
    whole.update(&expected);
    assert_eq!((octets, crc.wire()), (expected, whole.wire()));
}

#[test]
fn a_window_is_no_local_key() {
    let table = MemoryTable::new();
    let window = table.allocate_window(PD, WindowType::One).unwrap();
    for usage in [Usage::LocalRead, Usage::LocalWrite] {
        let refused = access(&table, usage, window, 0, &mut [0; 8]);
        assert_eq!(refused, Err(AccessError::InvalidStag));
    }
}

#[test]
#[should_panic(expected = "is not written to")]
fn a_use_opened_for_reading_cannot_place() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(64));
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Domain).unwrap();
    let source = table.begin_use(WHO, stag, Usage::RemoteRead).unwrap();
    let _ = source.place(0, &[1; 8]);
}

/// Between two pieces the STag is still in use.
#[test]
fn a_revocation_waits_for_the_last_piece() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(64));
    let stag = table.register_buffer(PD, &buffer, all(), Scope::Domain).unwrap();
    let revoked = AtomicBool::new(false);
    thread::scope(|scope| {
        let sink = table.begin_use(WHO, stag, Usage::RemoteWrite).unwrap();
        sink.place(0, &[1; 8]).unwrap();
        scope.spawn(|| {
            table.deregister(stag).unwrap();
            revoked.store(true, Ordering::SeqCst);
        });
        // No other use can begin any more, so the other thread is revoking.
        until("a refusal", || table.begin_use(WHO, stag, Usage::RemoteWrite).is_err());
        sink.place(8, &[2; 8]).unwrap();
        assert!(!revoked.load(Ordering::SeqCst), "the use has not ended");
        drop(sink);
    });
    assert!(revoked.into_inner());
    let mut octets = [0; 16];
    buffer.read_at(0, &mut octets);
    assert_eq!(octets, [[1; 8], [2; 8]].concat()[..]);
}

/// Has the second half of the bytes placed before the first, and looks at them in between.
#[derive(Debug, Default)]
struct Halves(Mutex<Vec<Vec<u8>>>);

impl AccessObserver for Halves {
    fn place(&self, _: u32, span: Span, store: Store<'_>) -> Result<(), AccessError> {
        store(span.len / 2..span.len)?;
        let at = std::ptr::with_exposed_provenance::<u8>(span.addr);
        // SAFETY: bytes of the test's pages, which only this thread accesses.
        let there = unsafe { std::slice::from_raw_parts(at, span.len) };
        self.0.lock().unwrap().push(there.to_vec());
        store(0..span.len / 2)
    }
}

#[test]
fn an_observer_has_bytes_placed_in_its_own_order() {
    let pages = Pages::new(1);
    let (start, end) = (pages.start(), pages.end().expose_provenance() as u64);
    let halves = Arc::new(Halves::default());
    let table = MemoryTable::observed(Some(halves.clone()));
    let stag = register(&table, start, PAGE, all());
    let at = start.expose_provenance() as u64;
    table.place_remote(WHO, stag, to(at), &[1, 2, 3, 4]).unwrap();
    table.place_local(WHO, sge(stag, at, 4), &[5, 6, 7, 8]).unwrap();
    let seen = [vec![0, 0, 3, 4], vec![1, 2, 7, 8]];
    assert_eq!(*halves.0.lock().unwrap(), seen);
    let mut octets = [0; 4];
    table.gather_remote(WHO, stag, to(at), &mut octets, None).unwrap();
    assert_eq!(octets, [5, 6, 7, 8]);
    // It is not asked where not all of them may be placed.
    let beyond = table.place_remote(WHO, stag, to(end - 3), &[1, 2, 3, 4]);
    assert_eq!(beyond, Err(AccessError::Bounds));
    assert_eq!(*halves.0.lock().unwrap(), seen);
}
