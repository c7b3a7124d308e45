// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings and marks that two ends share: any stream, and memory that is gone.

use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp_mem::{MemoryTable, RegionSpec};
use iwarp_os::local::{Marks, Ring};
use iwarp_os::{IoPart, IoPartMut, poll};
use iwarp_types::{Access, PdId};
use proptest::prelude::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

fn rings(room: usize) -> (Ring, Ring) {
    let (a, fd) = Ring::create(room).unwrap();
    let b = Ring::join(fd.as_fd(), room).unwrap();
    (a, b)
}

fn marks() -> (Marks, Marks) {
    let (a, fds) = Marks::create().unwrap();
    let [memory, peers, own]: [OwnedFd; 3] =
        fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
    (a, Marks::join(memory, peers, own).unwrap())
}

/// An end as an engine has it: it looks again as long as it may, and then sleeps.
struct End {
    ring: Ring,
    marks: Marks,
}

const SLOT: u16 = 77;

impl End {
    fn pair(room: usize) -> (Self, Self) {
        let ((a, b), (one, other)) = (rings(room), marks());
        (Self { ring: a, marks: one }, Self { ring: b, marks: other })
    }

    fn tell(&self) {
        self.marks.mark(SLOT).unwrap();
    }

    /// Does `what` once it does not say `WouldBlock`.
    fn patiently<T>(&self, mut what: impl FnMut(&Ring) -> Result<T>) -> T {
        loop {
            match what(&self.ring) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.sleep(),
                done => return done.unwrap(),
            }
        }
    }

    fn sleep(&self) {
        let mut came = false;
        self.marks.take(|slot| came |= slot == SLOT);
        if !came && !self.marks.listen() {
            let limit = Some(Duration::from_secs(20));
            assert_eq!(poll::wait_readable([self.marks.bell()], limit).unwrap(), [true]);
            self.marks.drain();
        }
    }
}

/// Cuts `bytes` into parts of these lengths, in turn.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<IoPart<'a>> {
    let mut parts = Vec::new();
    for &length in lengths {
        let (now, later) = bytes.split_at(length.min(bytes.len()));
        parts.push(IoPart::new(now));
        bytes = later;
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Any stream comes out of a ring as it went in, however either end cuts it, and each end
    /// sleeps while it can do nothing.
    #[test]
    fn a_stream_comes_out_as_it_went_in(
        room in 0..8_u32,
        stream in prop::collection::vec(any::<u8>(), 0..4000),
        sends in prop::collection::vec(prop::collection::vec(0..300_usize, 1..4), 1..8),
        recvs in prop::collection::vec((0..40_usize, 1..300_usize), 1..8),
    ) {
        let (a, b) = End::pair(1 << room);
        let came = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut rest, mut sends) = (&stream[..], sends.iter().cycle());
                while let (false, Some(lengths)) = (rest.is_empty(), sends.next()) {
                    // One byte at least: the lengths may all be 0.
                    let parts = cut(rest, &[lengths.as_slice(), &[1]].concat());
                    let sent = a.patiently(|ring| ring.send(&parts));
                    rest = &rest[sent..];
                    a.tell();
                }
                a.ring.end();
                a.tell();
            });
            let mut came = Vec::new();
            for &(one, other) in recvs.iter().cycle() {
                let (mut first, mut second) = (vec![0; one], vec![0; other]);
                let mut parts = [IoPartMut::new(&mut first), IoPartMut::new(&mut second)];
                let len = b.patiently(|ring| ring.recv(&mut parts));
                if b.ring.owes_room() {
                    b.tell();
                }
                if len == 0 {
                    break;
                }
                let all = [first, second].concat();
                came.extend_from_slice(&all[..len]);
            }
            came
        });
        prop_assert_eq!(came, stream);
    }
}

const PAGE: usize = 1 << 16;

/// Registered memory of which the second half is gone.
fn half_gone() -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the system likes it.
    let first = unsafe { mmap_anonymous(null_mut(), 2 * PAGE, rights, MapFlags::PRIVATE).unwrap() };
    let (first, second) = (first.cast::<u8>(), first.wrapping_byte_add(PAGE));
    let table = MemoryTable::new();
    let spec = RegionSpec::new(PdId(1), first, 2 * PAGE, Access::LOCAL_WRITE);
    // SAFETY: the mapping of this test alone, which is never unmapped.
    unsafe { table.register(spec).unwrap() };
    // SAFETY: likewise; no reference to it exists.
    unsafe { mprotect(second, PAGE, MprotectFlags::empty()).unwrap() };
    first
}

/// At any place in the ring, also where it begins anew within a part.
#[test]
fn memory_that_is_gone_loses_no_byte() {
    let first = half_gone();
    // SAFETY: mapped, and of this test alone.
    unsafe { first.wrapping_add(PAGE - 3).copy_from(b"end".as_ptr(), 3) };
    // SAFETY: of this test alone; some of it is not mapped.
    let source = |from, len| unsafe { IoPart::from_raw(first.wrapping_add(from), len) };
    // SAFETY: as above.
    let sink = |from, len| unsafe { IoPartMut::from_raw(first.wrapping_add(from), len) };
    let (a, b) = rings(16);
    let fault = rustix::io::Errno::FAULT.raw_os_error();
    for at in 0..40 {
        let gone = a.send(&[IoPart::EMPTY, source(PAGE, 4)]).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(fault));
        let parts = [IoPart::new(b"abc"), source(PAGE - 3, 3), source(PAGE, 4), IoPart::new(b"x")];
        assert_eq!(a.send(&parts).unwrap(), 6, "at {at}");
        let gone = b.recv(&mut [IoPartMut::EMPTY, sink(PAGE, 4)]).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(fault));
        let mut room = [0; 2];
        let mut parts = [IoPartMut::new(&mut room), sink(PAGE, 4)];
        assert_eq!(b.recv(&mut parts).unwrap(), 2, "at {at}");
        assert_eq!(&room, b"ab");
        let mut rest = [0; 16];
        let mut parts = [sink(0, 1), IoPartMut::new(&mut rest)];
        assert_eq!(b.recv(&mut parts).unwrap(), 4);
        // SAFETY: mapped, and of this test alone.
        assert_eq!((unsafe { first.read() }, &rest[..3]), (b'c', &b"end"[..]));
        // The next turn begins one byte further.
        assert_eq!(a.send(&[IoPart::new(b"12345678901")]).unwrap(), 11);
        assert_eq!(b.recv(&mut [IoPartMut::new(&mut rest)]).unwrap(), 11);
        assert!(!a.is_damaged() && !b.is_damaged());
    }
}

/// A part of which a half is gone: its first bytes go if the ring begins anew before they end.
#[test]
fn memory_that_is_gone_by_half_passes_no_wrong_byte() {
    let first = half_gone();
    for byte in 0..8 {
        // SAFETY: mapped, and of this test alone.
        unsafe { first.wrapping_add(PAGE - 8 + byte).write(byte as u8) };
    }
    let (a, b) = rings(16);
    let mut room = [0; 16];
    for at in 0..16 {
        // SAFETY: of this test alone; some of it is not mapped.
        let part = unsafe { IoPart::from_raw(first.wrapping_add(PAGE - 8), 12) };
        let sent = a.send(&[part]).unwrap_or(0);
        assert!(sent <= 8, "{sent} at {at}");
        if sent > 0 {
            assert_eq!(b.recv(&mut [IoPartMut::new(&mut room)]).unwrap(), sent);
            assert_eq!(room[..sent], [0, 1, 2, 3, 4, 5, 6, 7][..sent]);
        }
        // To the next place.
        let fill = 1 + (16 - sent % 16) % 16;
        assert_eq!(a.send(&[IoPart::new(&[9; 17][..fill.min(16)])]).unwrap(), fill.min(16));
        assert_eq!(b.recv(&mut [IoPartMut::new(&mut room)]).unwrap(), fill.min(16));
    }
}

/// A peer that writes into all words of the ring while this end uses it.
#[test]
fn a_peer_that_scribbles_ends_its_connection_only() {
    const WORDS: usize = 8192 / 8;
    let done = AtomicBool::new(false);
    let mut noticed = 0;
    for seed in 1..40_u64 {
        let (a, fd) = Ring::create(64).unwrap();
        let peer = iwarp_os::local::SharedMemory::map(fd.as_fd(), 8192 + 4 * 64, 0).unwrap();
        done.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = seed;
                while !done.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                    let word = (random >> 33) as usize % WORDS;
                    let value = if random >> 63 == 0 { random >> 50 & 255 } else { random };
                    let at = peer.as_ptr().wrapping_add(8 * word).cast();
                    // SAFETY: an aligned word of the mapping, which all reach by atomics.
                    unsafe { std::sync::atomic::AtomicU64::from_ptr(at) }
                        .store(value, Ordering::Relaxed);
                }
            });
            let mut room = [0; 100];
            let bytes = [5; 100];
            for turn in 0..200_000 {
                let sent = a.send(&[IoPart::new(&bytes[..turn % 100])]);
                let came = a.recv(&mut [IoPartMut::new(&mut room[..1 + turn % 99])]);
                for len in [&sent, &came].into_iter().flatten() {
                    assert!(*len <= 64);
                }
                let _ = (a.has_room(), a.has_input(), a.is_ended(), a.owes_room());
                let _ = a.peer_began_at();
                if a.is_damaged() {
                    noticed += 1;
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
    assert!(noticed > 0);
}

/// The median of what a turn takes, in nanoseconds.
fn time(name: &str, turns: u32, mut turn: impl FnMut()) {
    let mut batches: Vec<f64> = (0..200)
        .map(|_| {
            let begin = Instant::now();
            (0..turns).for_each(|_| turn());
            begin.elapsed().as_nanos() as f64 / f64::from(turns)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    let [low, middle, high] = [50, 100, 150].map(|at| batches[at]);
    println!("{name}: {middle:.1} ns ({low:.1} to {high:.1})");
}

/// In one thread, so without what passing cache lines between processors costs.
#[test]
#[ignore = "prints times"]
fn times_of_rings_and_marks() {
    let (a, b) = rings(1 << 18);
    for len in [64, 4096, 65_536] {
        let (from, mut to) = (vec![1; len], vec![0; len]);
        time(&format!("send and recv of {len} bytes"), 2000, || {
            assert_eq!(a.send(&[IoPart::new(&from)]).unwrap(), len);
            assert_eq!(b.recv(&mut [IoPartMut::new(&mut to)]).unwrap(), len);
        });
        time(&format!("copy of {len} bytes"), 2000, || {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
        });
    }
    time("a look at an empty ring", 2000, || assert!(!b.has_input()));
    let (one, other) = marks();
    time("a look for marks", 2000, || assert!(!std::hint::black_box(&other).any()));
    time("a mark, taken", 2000, || {
        one.mark(9).unwrap();
        other.take(|_| ());
    });
    time("a mark that wakes, taken", 2000, || {
        other.listen();
        one.mark(9).unwrap();
        other.drain();
        other.take(|_| ());
    });
    time("a connection's memory, both ends", 10, || {
        rings(1 << 16);
    });
}
