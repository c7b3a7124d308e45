// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program that polls the last byte of a Write sees all of the Write once it sees that byte.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use iwarp::{Buffer, MemoryRegion, Options, SendOp};

use crate::common;
use crate::common::{End, Idle, Setup, until};

const LONGEST: usize = 1 << 20;

/// Lengths around everything that a copy or a segment may be cut at, and some in between.
fn lengths(most: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = (1..=24).collect();
    for power in 5..=20 {
        let near = 1_usize << power;
        lengths.extend([near - 1, near, near + 1, near + 7, near + near / 3]);
    }
    lengths.extend([300, 777, 1001, 9001, 150_001]);
    lengths.retain(|len| *len <= most);
    lengths
}

/// Polls the last byte until it is `value`; then everything before it must be. Returns how
/// often it looked.
fn watch(buffer: &Buffer, offset: usize, len: usize, value: u8, seen: &mut [u8]) -> u64 {
    let last = buffer.atomic_u8(offset + len - 1);
    let started = Instant::now();
    let mut polls = 1;
    // The thread that places the octets may need this CPU.
    let mut idle = Idle::default();
    while last.load(Ordering::Acquire) != value {
        polls += 1;
        if polls % 256 == 0 {
            assert!(started.elapsed() < common::EVENTUALLY, "{len} octets do not arrive");
            idle.pause();
        }
    }
    // The head first: it is what a copy that goes wrong leaves for last.
    let seen = &mut seen[..len];
    buffer.read_at(offset, seen);
    if let Some(at) = seen.iter().position(|octet| *octet != value) {
        panic!("octet {at} of {len} at {offset} is stale: the last one came first");
    }
    polls
}

/// Every length at every alignment once.
fn round(
    client: &End,
    sink: &MemoryRegion,
    source: &MemoryRegion,
    most: usize,
    value: &mut u8,
) -> u64 {
    let ready = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let cases: Vec<(usize, usize)> =
        lengths(most).into_iter().flat_map(|len| (0..8).map(move |at| (at, len))).collect();
    let first = *value;
    *value = first.wrapping_add(cases.len() as u8);
    let value_of = |number: usize| first.wrapping_add(number as u8);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = vec![0; LONGEST];
            let mut polls = 0;
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for (number, &(offset, len)) in cases.iter().enumerate() {
                    let (buffer, value) = (sink.buffer().unwrap(), value_of(number));
                    // An octet that an earlier Write has left there must not look like this one's.
                    buffer.atomic_u8(offset + len - 1).store(!value, Ordering::SeqCst);
                    ready.store(number as u64 + 1, Ordering::Release);
                    polls += watch(buffer, offset, len, value, &mut seen);
                }
            }));
            failed.store(outcome.is_err(), Ordering::Release);
            outcome.map(|()| polls)
        });
        for (number, &(offset, len)) in cases.iter().enumerate() {
            let octets = vec![value_of(number); len];
            // Until the last Write was seen, and this one's place is ready.
            until("the last Write to be seen", || {
                let is_ready = ready.load(Ordering::Acquire) > number as u64;
                (is_ready || failed.load(Ordering::Acquire)).then_some(())
            });
            source.buffer().unwrap().write_at(0, &octets);
            let to = sink.base().advanced(offset as u64);
            client.post(1, SendOp::Write { stag: sink.rkey(), to }, &[source.sge(0, len)]);
            client.sent();
        }
        match watcher.join().unwrap() {
            Ok(polls) => polls,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// At least so many Writes, and so many polls.
fn run(options: &Options, most: usize, least: usize, polls: u64) {
    let (client, server) = Setup::both(options).connect();
    let (sink, source) = (server.region(LONGEST + 8), client.region(LONGEST));
    let started = Instant::now();
    let (mut value, mut done, mut writes) = (1, 0, 0);
    while writes < least || done < polls {
        done += round(&client, &sink, &source, most, &mut value);
        writes += lengths(most).len() * 8;
    }
    let took = started.elapsed();
    println!("crc {}: {writes} Writes, {done} polls in {took:.1?}", options.crc);
}

fn plain() -> Options {
    Options::new().crc(false)
}

#[test]
fn the_last_octet_of_a_write_comes_last() {
    run(&Options::default(), LONGEST, 5000, 0);
}

/// Long payloads are read straight into the memory.
#[test]
fn the_last_octet_of_a_write_comes_last_without_crc() {
    run(&plain(), LONGEST, 5000, 0);
}

#[test]
fn the_last_octet_of_a_write_comes_last_with_markers() {
    run(&Options::new().markers(true), 70_000, 1, 0);
}

/// Segments as an Ethernet has them: a message is placed in many pieces.
#[test]
fn the_last_octet_of_many_segments_comes_last() {
    for crc in [true, false] {
        run(&Options::new().crc(crc).mulpdu(1442), 70_000, 1, 0);
    }
}

#[test]
#[ignore = "100,000 Writes and 10,000,000 polls each way"]
fn the_last_octet_of_a_write_comes_last_full() {
    run(&Options::default(), LONGEST, 100_000, 10_000_000);
    run(&plain(), LONGEST, 100_000, 10_000_000);
}
