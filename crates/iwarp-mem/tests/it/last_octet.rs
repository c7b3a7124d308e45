// SPDX-License-Identifier: MIT OR Apache-2.0

//! A thread that sees the last byte of a placed payload sees all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use iwarp_mem::{Buffer, MemoryTable, Scope};
use iwarp_types::{Access, Accessor, Memory, PdId, QpId, Sge, TaggedOffset};

use crate::waiting::Idle;

const WHO: Accessor = Accessor { pd: PdId(1), qp: QpId(1) };
const MOST: usize = 1 << 20;
const STOP: usize = usize::MAX;

/// Length and alignment of one placement.
fn shapes() -> impl Iterator<Item = (usize, usize)> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0_usize..).map(move |i| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let random = (state >> 20) as usize;
        // Short ones mostly, where a late head is seen easiest; every alignment of each.
        let n = match i % 4096 {
            0 => random % MOST + 1,
            x if x % 64 == 0 => random % 65_536 + 1,
            x if x % 4 == 0 => random % 4096 + 1,
            _ => random % 300 + 1,
        };
        (n, i % 64)
    })
}

/// Ends the other's wait when one side fails.
struct Stop<'a>(&'a AtomicUsize);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(STOP, Ordering::Relaxed);
        }
    }
}

fn place_and_poll(polls_wanted: usize) {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(MOST + 64));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let stag = table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).unwrap();
    // The round the placer may start: the poller is ready for it.
    let ready = AtomicUsize::new(0);
    let polls = AtomicUsize::new(0);
    let value_of = |round: usize| (round % 251 + 1) as u8;

    thread::scope(|scope| {
        let placer = scope.spawn(|| {
            let _stop = Stop(&ready);
            let mut data = vec![0; MOST];
            for (round, (n, at)) in (1..).zip(shapes()) {
                data[..n].fill(value_of(round));
                let mut turn = Turn::default();
                loop {
                    match ready.load(Ordering::Acquire) {
                        STOP => return,
                        now if now == round => break,
                        _ => turn.pause(),
                    }
                }
                // By the two ways of placing, in turn.
                if round % 2 == 0 {
                    table.place_remote(WHO, stag, TaggedOffset(at as u64), &data[..n]).unwrap();
                } else {
                    let element = Sge { addr: at as u64, length: n as u32, lkey: stag };
                    table.place_local(WHO, element, &data[..n]).unwrap();
                }
            }
        });

        let _stop = Stop(&ready);
        let mut seen = vec![0; MOST];
        for (round, (n, at)) in (1..).zip(shapes()) {
            let value = value_of(round);
            let last = buffer.atomic_u8(at + n - 1);
            // Another round may have left this value there.
            last.store(0, Ordering::Relaxed);
            ready.store(round, Ordering::Release);
            let mut turn = Turn::default();
            while last.load(Ordering::Acquire) != value {
                polls.fetch_add(1, Ordering::Relaxed);
                if ready.load(Ordering::Relaxed) == STOP {
                    return;
                }
                turn.pause();
            }
            for_the_sanitizer(&buffer, at, n);
            buffer.read_at(at, &mut seen[..n]);
            let stale = seen[..n].iter().position(|&octet| octet != value);
            assert_eq!(stale, None, "{n} octets at {at}: the last came before this one");
            if polls.load(Ordering::Relaxed) >= polls_wanted && round >= polls_wanted / 50 {
                break;
            }
        }
        ready.store(STOP, Ordering::Relaxed);
        placer.join().unwrap();
    });
    assert!(polls.into_inner() >= polls_wanted);
}

/// The other side's turn. It must run: on one processor at once, and on others that have much else
/// to do after a while.
#[derive(Default)]
struct Turn {
    spins: u32,
    idle: Idle,
}

impl Turn {
    fn pause(&mut self) {
        static SPINS: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
            let many = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
            if many { 10_000 } else { 0 }
        });
        if self.spins < *SPINS {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            self.idle.pause();
        }
    }
}

/// A load of what the byte was stored with. The byte that was polled may be part of a wider store.
/// The processor orders both alike, but ThreadSanitizer ties the order to the address that was
/// stored to, so load that as well.
fn for_the_sanitizer(buffer: &Buffer, at: usize, n: usize) {
    let end = at + n;
    let first = if end.is_multiple_of(8) { end - 8 } else { end - end % 8 };
    let mut from = first.max(at);
    if end - from == 8 {
        buffer.atomic_u64(from).load(Ordering::Acquire);
        return;
    }
    while from < end {
        let size = [4, 2, 1].into_iter().find(|&s| from % s == 0 && s <= end - from).unwrap();
        let address = buffer.as_mut_ptr().wrapping_add(from);
        // SAFETY: within the buffer, aligned to `size`.
        unsafe {
            match size {
                4 => drop(AtomicU32::from_ptr(address.cast()).load(Ordering::Acquire)),
                2 => drop(AtomicU16::from_ptr(address.cast()).load(Ordering::Acquire)),
                _ => drop(AtomicU8::from_ptr(address).load(Ordering::Acquire)),
            }
        }
        from += size;
    }
}

#[test]
fn the_last_octet_is_visible_last() {
    place_and_poll(1_000_000);
}

#[test]
#[ignore = "a minute or so; the same with ten times as many polls"]
fn the_last_octet_is_visible_last_in_ten_million_polls() {
    place_and_poll(10_000_000);
}

/// An aligned word is one store: who polls all 8 bytes never sees half of a new value.
#[test]
fn an_aligned_word_is_never_seen_half() {
    let table = MemoryTable::new();
    let buffer = Arc::new(Buffer::new(64));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let stag = table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).unwrap();
    thread::scope(|scope| {
        let placer = scope.spawn(|| {
            for i in 0..200_000_u64 {
                let word = [(i % 251) as u8; 8];
                // Alone, and as the end of a longer block.
                if i % 2 == 0 {
                    table.place_remote(WHO, stag, TaggedOffset(8), &word).unwrap();
                } else {
                    let mut block = [0xff; 15];
                    block[7..].copy_from_slice(&word);
                    table.place_remote(WHO, stag, TaggedOffset(1), &block).unwrap();
                }
            }
            buffer.atomic_u64(32).store(1, Ordering::Relaxed);
        });
        let word: &AtomicU64 = buffer.atomic_u64(8);
        while buffer.atomic_u64(32).load(Ordering::Relaxed) == 0 {
            let seen = word.load(Ordering::Acquire).to_ne_bytes();
            assert!(seen.iter().all(|&octet| octet == seen[0]), "{seen:?}");
            Turn::default().pause();
        }
        placer.join().unwrap();
    });
}
