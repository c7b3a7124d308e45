// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting instead of being refused: for places in the send queue, for blocks, for Reads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use iwarp::cm::ConnectParams;
use iwarp::{Access, AtomicOp};
use iwarp_session::{Block, BlockPool, Config, OperationError, Pending, RemoteGrant};

use crate::common::sessions::pair;
use crate::common::{DEADLINE, pattern, until};

#[test]
fn permits_are_places_in_the_send_queue() {
    let (client, server) = pair(&Config::new().max_sends(2));
    let session = &client.session;
    let one = session.try_reserve().unwrap();
    let two = session.reserve().wait_timeout(DEADLINE).unwrap();
    assert!(session.try_reserve().is_none());
    let late = session.reserve().wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(OperationError::Timeout)), "{late:?}");
    // One that has none is refused, as before.
    let refused = session.send_inline(b"x").wait().unwrap_err();
    assert!(matches!(refused.error, OperationError::QueueFull), "{refused:?}");
    // A permit whose operation is refused is given back.
    let grant = RemoteGrant::new(iwarp::Stag(1), iwarp::TaggedOffset(0), 4);
    let outside = one.write_inline(b"12345", &grant, 0).wait().unwrap_err();
    assert!(matches!(outside.error, OperationError::OutsideGrant), "{outside:?}");
    let one = session.try_reserve().unwrap();
    // A thread that waits gets the place of a permit that is dropped.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| session.reserve().wait_timeout(DEADLINE));
        drop(one);
        drop(waiting.join().unwrap().unwrap());
    });
    drop(two);
    drop(server);
}

#[test]
fn several_places_come_at_once_or_not_at_all() {
    let (client, _server) = pair(&Config::new().max_sends(4));
    let session = &client.session;
    let many = session.reserve_many(5).wait();
    assert!(matches!(many, Err(OperationError::QueueFull)), "{many:?}");
    assert!(session.reserve_many(0).wait().unwrap().is_empty());
    let three = session.reserve_many(3).wait_timeout(DEADLINE).unwrap();
    assert_eq!(three.len(), 3);
    let late = session.reserve_many(2).wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(OperationError::Timeout)), "{late:?}");
    // It has left the line: the place that is free is anybody's.
    let last = session.try_reserve().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| session.reserve_many(4).wait_timeout(DEADLINE));
        drop((three, last));
        let four = waiting.join().unwrap().unwrap();
        assert!(session.try_reserve().is_none());
        drop(four);
    });
    assert_eq!(session.reserve_many(4).wait().unwrap().len(), 4);
}

/// A place that comes free is for the first that waits, though it needs more than that.
#[test]
fn waiters_do_not_overtake_one_that_waits_for_several_places() {
    let (client, _server) = pair(&Config::new().max_sends(2));
    let session = &client.session;
    let (one, two) = (session.reserve().wait().unwrap(), session.reserve().wait().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| session.reserve_many(2).wait_timeout(DEADLINE));
        drop(one);
        // The place is free, and promised as soon as the thread waits.
        until("the thread to wait", || session.try_reserve().is_none().then_some(()));
        let refused = session.send_inline(b"x").wait().unwrap_err();
        assert!(matches!(refused.error, OperationError::QueueFull), "{refused:?}");
        drop(two);
        assert_eq!(waiting.join().unwrap().unwrap().len(), 2);
    });
    assert!(session.try_reserve().is_some());
}

/// Each waits for more than half: if two had a part, none would ever have all.
#[test]
fn threads_that_wait_for_several_places_do_not_hold_each_other_up() {
    const EACH: u64 = 200;
    let (client, server) = pair(&Config::new().max_sends(4));
    let counter = server.session.expose(8, Access::REMOTE_ATOMIC).unwrap();
    let grant = RemoteGrant::from_octets(&counter.grant().to_octets());
    let session = &client.session;
    thread::scope(|scope| {
        for count in [1, 2, 3, 3] {
            let grant = &grant;
            scope.spawn(move || {
                for n in 0..EACH {
                    let permits = session.reserve_many(count).wait_timeout(DEADLINE).unwrap();
                    let mut batch = session.batch();
                    for permit in permits {
                        batch.add_permit(permit).unwrap();
                    }
                    let sums: Vec<_> = (0..count).map(|_| batch.fetch_add(grant, 0, 1)).collect();
                    batch.post().unwrap();
                    // Every third is left to the others to complete.
                    for sum in sums.into_iter().filter(|_| n % 3 != 0) {
                        sum.wait_timeout(DEADLINE).unwrap().unwrap();
                    }
                }
            });
        }
    });
    let sum = session.reserve().wait_timeout(DEADLINE).unwrap().fetch_add(&grant, 0, 0);
    assert_eq!(sum.wait_timeout(DEADLINE).unwrap().unwrap(), 9 * EACH);
    until("the places", || {
        let all: Vec<_> = std::iter::from_fn(|| session.try_reserve()).collect();
        (all.len() == 4).then_some(())
    });
}

#[test]
fn threads_that_wait_for_places_all_get_one() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let (client, server) = pair(&Config::new().max_sends(3));
    let counter = server.session.expose(8, Access::REMOTE_ATOMIC).unwrap();
    let grant = RemoteGrant::from_octets(&counter.grant().to_octets());
    let session = &client.session;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..EACH {
                    let permit = session.reserve().wait_timeout(DEADLINE).unwrap();
                    let pending = permit.fetch_add(&grant, 0, 1);
                    // Every third is left to the others to complete.
                    if n % 3 != 0 {
                        pending.wait_timeout(DEADLINE).unwrap().unwrap();
                    }
                }
            });
        }
    });
    let sum = session.reserve().wait().unwrap().fetch_add(&grant, 0, 0);
    assert_eq!(sum.wait_timeout(DEADLINE).unwrap().unwrap(), THREADS * EACH);
    until("the places", || {
        let all: Vec<_> = std::iter::from_fn(|| session.try_reserve()).collect();
        (all.len() == 3).then_some(())
    });
}

#[test]
fn reads_beyond_what_the_peer_serves_at_a_time_wait() {
    let params = ConnectParams::default().ird(1).ord(1);
    let (client, server) = pair(&Config::new().params(params));
    let table = server.session.expose(64 * 64, Access::REMOTE_READ).unwrap();
    table.write_at(0, &pattern(64 * 64, 3));
    let grant = RemoteGrant::from_octets(&table.grant().to_octets());
    let reads: Vec<_> = (0..64)
        .map(|n| client.session.read(&grant, n * 64, Block::new(&client.pd, 64).unwrap()))
        .collect();
    for (n, read) in reads.into_iter().enumerate() {
        let block = read.wait_timeout(DEADLINE).unwrap().unwrap();
        assert!(*block == pattern(64 * 64, 3)[n * 64..][..64]);
    }
}

#[test]
fn few_bytes_are_written_without_a_block_and_masked_atomics_touch_their_bits_only() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(16, Access::REMOTE).unwrap();
    let grant = RemoteGrant::from_octets(&memory.grant().to_octets());
    let [word, tail] = [0, 8].map(|offset| grant.part(offset, 8).unwrap());
    let session = &client.session;
    let wait = |pending: Pending<u64>| pending.wait_timeout(DEADLINE).unwrap().unwrap();
    session.write_inline(b"inline", &tail, 2).wait().unwrap();
    // A bit of the mask stops the carry: two counters in one word.
    let op = AtomicOp::FetchAdd { add: 0x0000_0001_ffff_ffff, mask: 1 << 31 };
    assert_eq!(wait(session.atomic(&word, 0, op)), 0);
    let op = AtomicOp::FetchAdd { add: 1, mask: 1 << 31 };
    assert_eq!(wait(session.atomic(&word, 0, op)), 0x0000_0001_ffff_ffff);
    let op =
        AtomicOp::CompareSwap { compare: 1 << 32, compare_mask: u64::MAX, swap: 7, swap_mask: 7 };
    assert_eq!(wait(session.reserve().wait().unwrap().atomic(&word, 0, op)), 1 << 32);
    assert_eq!(wait(session.fetch_add(&word, 0, 0)), 1 << 32 | 7);
    let mut block = Block::new(&client.pd, 8).unwrap();
    block.as_mut().fill(0xff);
    let read = session.read(&tail, 0, block).wait_timeout(DEADLINE).unwrap().unwrap();
    let octets: &[u8] = read.as_ref();
    assert_eq!(octets, b"\0\0inline");
}

#[test]
fn a_write_that_tells_the_peer_takes_one_of_its_receives() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(64, Access::REMOTE_WRITE).unwrap();
    let grant = RemoteGrant::from_octets(&memory.grant().to_octets());
    let receives = [0; 2].map(|_| server.session.recv(Block::new(&server.pd, 8).unwrap()));
    let [first, second] = [pattern(32, 1), pattern(32, 2)].map(|octets| {
        let mut block = Block::new(&client.pd, 32).unwrap();
        block.fill_from(&octets);
        block
    });
    let permit = client.session.reserve().wait_timeout(DEADLINE).unwrap();
    let written = [
        client.session.write_immediate(first, &grant, 0, *b"one "),
        permit.write_immediate(second, &grant, 32, *b"two "),
    ];
    for ((receive, data), (n, octets)) in receives
        .into_iter()
        .zip([b"one ", b"two "])
        .zip([(0, pattern(32, 1)), (32, pattern(32, 2))])
    {
        let received = receive.wait_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!((&received.immediate.unwrap()[..4], received.block.len()), (&data[..], 0));
        let mut there = [0; 32];
        memory.read_at(n, &mut there);
        assert!(there == *octets);
    }
    for written in written {
        assert_eq!(written.wait_timeout(DEADLINE).unwrap().unwrap().len(), 32);
    }
    let outside = Block::new(&client.pd, 65).unwrap();
    let refused = client.session.write_immediate(outside, &grant, 0, [0; 4]).wait().unwrap_err();
    assert!(matches!(refused.error, OperationError::OutsideGrant), "{refused:?}");
}

/// Slices of it may be anywhere, and the last of them gives the block back.
#[test]
fn a_block_becomes_bytes_without_a_copy() {
    let (client, server) = pair(&Config::default());
    let pool = BlockPool::new(&server.pd, 64, 1).unwrap();
    let receive = server.session.recv(pool.take().wait().unwrap());
    client.session.send_inline(b"head body").wait().unwrap();
    let block = receive.wait_timeout(DEADLINE).unwrap().unwrap().block;
    let there = block.as_ptr();
    let message = bytes::Bytes::from_owner(block);
    assert_eq!(message.as_ptr(), there);
    let body = message.slice(5..);
    drop(message);
    let body = thread::spawn(move || {
        assert_eq!(&body[..], b"body");
        body
    });
    let body = body.join().unwrap();
    assert_eq!(pool.available(), 0);
    drop(body);
    assert_eq!(pool.available(), 1);
}

#[test]
fn threads_wait_for_blocks_in_turn() {
    let (client, _server) = pair(&Config::default());
    let pool = BlockPool::new(&client.pd, 64, 2).unwrap();
    let (one, two) = (pool.take().wait().unwrap(), pool.take().wait().unwrap());
    let late = pool.take().wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(OperationError::Timeout)));
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    drop(pool.take().wait_timeout(DEADLINE).unwrap());
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        drop((one, two));
    });
    assert_eq!((taken.into_inner(), pool.available()), (800, 2));
}

/// No other thread completes the operations that have the blocks.
#[test]
fn a_thread_that_waits_for_a_block_looks_after_what_has_it() {
    let (client, server) = pair(&Config::default());
    let pool = BlockPool::new(&client.pd, 4096, 2).unwrap();
    let table = server.session.expose(4096, Access::REMOTE_READ).unwrap();
    let grant = RemoteGrant::from_octets(&table.grant().to_octets());
    for _ in 0..200 {
        let block = pool.take().wait_timeout(DEADLINE).unwrap();
        drop(client.session.read(&grant, 0, block));
    }
    until("the blocks", || (pool.available() == 2).then_some(()));
}
