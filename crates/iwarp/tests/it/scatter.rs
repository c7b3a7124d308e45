// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: messages that are received into several blocks, and several parts of borrowed memory.

use std::thread;
use std::time::Duration;

use iwarp::Access;
use iwarp_session::{Block, BlockPool, Config, OperationError, Received, Receiver};

use crate::common::sessions::{SessionEnd, block_of, done, pair, pair_with, remote};
use crate::common::{DEADLINE, pattern, until};

/// Empty blocks of these capacities.
fn room<const N: usize>(end: &SessionEnd, lens: [usize; N]) -> [Block; N] {
    lens.map(|len| Block::new(&end.pd, len).unwrap())
}

fn lens(blocks: &[Block]) -> Vec<usize> {
    blocks.iter().map(|block| block.len()).collect()
}

fn send(end: &SessionEnd, octets: &[u8]) {
    let permit = end.session.reserve().wait_timeout(DEADLINE).unwrap();
    done(permit.send(block_of(&end.pd, octets))).unwrap();
}

#[test]
fn a_message_fills_one_block_after_the_other() {
    let (client, server) = pair(&Config::default());
    let message = pattern(70_000, 5);
    // Its end is in the last block, in the one before, at an edge, and nowhere.
    for (len, parts) in [
        (70_000, [16, 65_536, 4448]),
        (50, [16, 34, 0]),
        (16, [16, 0, 0]),
        (16 + 65_536, [16, 65_536, 0]),
        (3, [3, 0, 0]),
        (0, [0, 0, 0]),
    ] {
        let mut blocks = room(&server, [16, 65_536, 8192]);
        // A receive fills all of each, from its start on.
        blocks[1].set_range(100..200);
        let receive = server.session.recv(blocks);
        send(&client, &message[..len]);
        let Received { block, immediate: None, .. } = done(receive).unwrap() else {
            panic!("a message of bytes");
        };
        assert_eq!(lens(&block), parts);
        assert!(block.iter().flat_map(|block| block.iter()).eq(&message[..len]), "{len} bytes");
    }
}

#[test]
fn a_message_that_brings_no_bytes_leaves_all_blocks_empty() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(8, Access::REMOTE_WRITE).unwrap();
    let receives = [(); 2].map(|()| server.session.recv(Vec::from(room(&server, [8, 8]))));
    let nothing = server.session.recv(Vec::new());
    done(client.session.immediate(*b"8 bytes.")).unwrap();
    let block = block_of(&client.pd, b"written");
    done(client.session.write_immediate(block, &remote(&memory), 0, *b"told")).unwrap();
    done(client.session.immediate(*b"no block")).unwrap();
    let [data, told] = receives.map(|receive| done(receive).unwrap());
    assert_eq!((data.immediate.unwrap(), lens(&data.block)), (*b"8 bytes.", vec![0, 0]));
    assert_eq!((&told.immediate.unwrap()[..4], lens(&told.block)), (&b"told"[..], vec![0, 0]));
    let nothing = done(nothing).unwrap();
    assert_eq!((nothing.immediate.unwrap(), nothing.block.len()), (*b"no block", 0));
}

#[test]
fn a_receive_that_is_refused_or_ends_gives_all_blocks_back_in_their_order() {
    let (client, server) = pair(&Config::new().max_blocks(2).max_recvs(1));
    let many = done(server.session.recv(room(&server, [1, 2, 3]))).unwrap_err();
    assert!(matches!(many.error, OperationError::TooManyBlocks), "{many:?}");
    assert_eq!(lens(&many.blocks), [1, 2, 3]);
    let [a, b] = room(&client, [1, 2]);
    let foreign = done(server.session.recv([a, b])).unwrap_err();
    assert!(matches!(foreign.error, OperationError::OtherDomain), "{foreign:?}");
    assert_eq!(lens(&foreign.blocks), [1, 2]);

    let posted = server.session.recv(room(&server, [4, 5]));
    let full = done(server.session.recv(room(&server, [6, 7]))).unwrap_err();
    assert!(matches!(full.error, OperationError::QueueFull), "{full:?}");
    assert_eq!(lens(&full.blocks), [6, 7]);
    client.session.close().wait().unwrap();
    let flushed = done(posted).unwrap_err();
    assert!(matches!(flushed.error, OperationError::Disconnected), "{flushed:?}");
    assert_eq!(lens(&flushed.blocks), [4, 5]);
}

#[test]
fn a_message_longer_than_all_blocks_ends_the_connection() {
    let (client, server) = pair(&Config::default());
    let receive = server.session.recv(room(&server, [8, 8]));
    // It may or may not be done before the peer breaks the connection off.
    drop(done(client.session.send(block_of(&client.pd, &[0; 17]))));
    let failure = done(receive).unwrap_err();
    assert_eq!(failure.blocks.len(), 2);
    until("the end", || (!client.session.is_connected()).then_some(()));
}

type Split = Receiver<[Block; 2]>;

/// A pair whose second end receives into a header of 8 bytes and a body, of pools of so many
/// blocks.
fn splitting(depth: usize, blocks: [usize; 2]) -> (SessionEnd, SessionEnd, Split, [BlockPool; 2]) {
    let (client, server, (receiver, pools)) = pair_with(&Config::default(), |pd, prepared| {
        let [headers, bodies] = blocks;
        let pools = [(8, headers), (1000, bodies)];
        let pools = pools.map(|(len, count)| BlockPool::new(pd, len, count).unwrap());
        let [headers, bodies] = &pools;
        (prepared.receiver([headers, bodies], depth).unwrap(), pools)
    });
    (client, server, receiver, pools)
}

fn split_message(n: u64) -> Vec<u8> {
    [&n.to_be_bytes(), &pattern(n as usize % 1000, n)[..]].concat()
}

fn send_split(end: &SessionEnd, n: u64) {
    send(end, &split_message(n));
}

fn next_split(receiver: &mut Split, n: u64) {
    let [header, body] = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap().block;
    assert_eq!(*header, n.to_be_bytes());
    assert!(*body == pattern(n as usize % 1000, n), "message {n}");
}

#[test]
fn a_receiver_of_several_pools_takes_a_block_of_each() {
    let (client, server, mut receiver, [headers, bodies]) = splitting(4, [4, 6]);
    assert_eq!((receiver.posted(), headers.available(), bodies.available()), (4, 0, 2));
    assert_eq!(receiver.pools().len(), 2);
    for n in 0..500 {
        send_split(&client, n);
        // Some give up before the message comes.
        let patience = Duration::from_micros(n % 20);
        if n % 3 == 0 {
            match receiver.recv().wait_timeout(patience) {
                Ok(message) => assert_eq!(*message.unwrap().block[0], n.to_be_bytes()),
                Err(OperationError::Timeout) => next_split(&mut receiver, n),
                Err(error) => panic!("{error}"),
            }
        } else {
            next_split(&mut receiver, n);
        }
    }
    client.session.close().wait().unwrap();
    assert!(receiver.recv().wait_timeout(DEADLINE).unwrap().is_none());
    drop((receiver, server));
    until("the blocks", || (headers.available() == 4 && bodies.available() == 6).then_some(()));
}

/// One pool has more blocks than the other, so the receiver always has some that it cannot post.
#[test]
fn a_receiver_waits_for_the_pool_that_lacks_blocks() {
    for (blocks, posted) in [([3, 1], 1), ([1, 3], 1), ([2, 2], 2), ([0, 3], 0)] {
        let (client, server, mut receiver, [headers, bodies]) = splitting(3, blocks);
        assert_eq!(receiver.posted(), posted, "{blocks:?}");
        for n in 0..if posted > 0 { 50 } else { 0 } {
            send_split(&client, n);
            // Its blocks are posted again before the next is sent.
            next_split(&mut receiver, n);
        }
        drop(receiver);
        drop((client, server));
        until("the blocks", || ([headers.available(), bodies.available()] == blocks).then_some(()));
    }
}

/// No two may each have the one block that the other lacks, for any order of their pools, and
/// however often one pool is among them.
#[test]
fn receivers_that_share_scarce_pools_all_come_on() {
    const MESSAGES: usize = 200;
    let (client, server) = pair(&Config::default());
    let (there, here) = (&client.pd, &server.pd);
    let listener = iwarp_session::Listener::bind(here, "127.0.0.1:0").unwrap();
    let [one, two] = [0; 2].map(|_| BlockPool::new(here, 8, 3).unwrap());
    let config = Config::default();
    let mut ends = Vec::new();
    for n in 0..6 {
        let connecting = config.connect(there, listener.local_addr().unwrap());
        let request = listener.accept().wait_timeout(DEADLINE).unwrap();
        let prepared = config.prepare(here).unwrap();
        let pools: &[BlockPool] = &match n % 3 {
            0 => [one.clone(), two.clone(), one.clone()],
            1 => [two.clone(), one.clone(), two.clone()],
            _ => [two.clone(), two.clone(), one.clone()],
        };
        let receiver = prepared.receiver(pools, 2).unwrap();
        let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
        ends.push((connecting.wait_timeout(DEADLINE).unwrap(), session, receiver));
    }
    thread::scope(|scope| {
        for (sending, receiving, receiver) in &mut ends {
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    let message = (n as u64).to_be_bytes().repeat(3);
                    // Blocks go to the receivers in turn: this one's comes.
                    until("a receive", || (receiver.posted() > 0).then_some(()));
                    done(sending.send_inline(&message)).unwrap();
                    let received = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
                    let [a, b, c] = &*received.block else { panic!("three blocks") };
                    assert!([a, b, c].iter().all(|block| ***block == (n as u64).to_be_bytes()));
                }
                // Receives that it has posted are for the others.
                receiving.abort();
                while receiver.recv().wait_timeout(DEADLINE).is_ok_and(|next| next.is_some()) {}
            });
        }
    });
    drop(ends);
    until("the blocks", || (one.available() + two.available() == 6).then_some(()));
}

#[test]
fn a_receiver_that_is_dropped_does_not_hold_up_those_that_need_less() {
    let (client, server) = pair(&Config::default());
    let pool = BlockPool::new(&server.pd, 8, 2).unwrap();
    let kept = pool.take().wait_timeout(DEADLINE).unwrap();
    let both = server.session.receiver([&pool, &pool], 1).unwrap();
    let mut one = server.session.receiver(&pool, 1).unwrap();
    // One block is there, and the first that waits needs two.
    assert_eq!((both.posted(), one.posted(), pool.available()), (0, 0, 1));
    assert!(pool.try_take().is_none());
    drop(both);
    assert_eq!((one.posted(), pool.available()), (1, 0));
    send(&client, b"goes on");
    assert_eq!(*one.recv().wait_timeout(DEADLINE).unwrap().unwrap().block, *b"goes on");
    drop(kept);
}

#[test]
fn a_receiver_is_refused_more_pools_than_an_operation_has_blocks() {
    let (_client, server) = pair(&Config::new().max_blocks(2));
    let pool = BlockPool::new(&server.pd, 8, 3).unwrap();
    let many = server.session.receiver([&pool, &pool, &pool], 1);
    assert!(matches!(many, Err(OperationError::TooManyBlocks)), "{many:?}");
    assert_eq!(pool.available(), 3);
    // It would wait for ever, and with it all that wait behind it.
    let one = BlockPool::new(&server.pd, 8, 1).unwrap();
    let never = server.session.receiver([&one, &one], 1);
    assert!(matches!(never, Err(OperationError::TooManyBlocks)), "{never:?}");
    assert_eq!(one.available(), 1);
}

#[test]
fn messages_with_credits_are_split_as_well() {
    let pools = |pd, count| [8, 1000].map(|len| BlockPool::new(pd, len, count).unwrap());
    let (client, server) = pair(&Config::default());
    let listener = iwarp_session::Listener::bind(&server.pd, "127.0.0.1:0").unwrap();
    let there = Config::default().prepare(&client.pd).unwrap();
    let [one, two] = pools(&client.pd, 3);
    let (credits, _receiver) = there.credited([&one, &two], 1).unwrap();
    let connecting = there.connect(listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let here = Config::default().prepare(&server.pd).unwrap();
    let [one, two] = pools(&server.pd, 5);
    let (_credits, mut receiver) = here.credited([&one, &two], 3).unwrap();
    let _session = here.accept(request).wait_timeout(DEADLINE).unwrap();
    let _peer = connecting.wait_timeout(DEADLINE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..500 {
                let credit = credits.reserve().wait_timeout(DEADLINE).unwrap();
                drop(credit.send(block_of(&client.pd, &split_message(n))));
            }
        });
        (0..500).for_each(|n| next_split(&mut receiver, n));
    });
}

#[test]
fn parts_of_borrowed_memory_are_one_message_and_one_range() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(4096, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let (header, body) = (*b"8 bytes.", pattern(3000, 9));
    let (mut head, mut rest) = ([0; 6], vec![0; 4000]);
    let (mut first, mut second) = ([0; 3], [0; 2000]);
    let received = server.session.recv(Block::new(&server.pd, 4096).unwrap());
    let len = client.session.scope(|scope| {
        let answered = scope.recv_parts([&mut head[..], &mut rest]);
        done(scope.send_parts([&header[..], &[], &body])).unwrap();
        let back = done(received).unwrap().block;
        done(server.session.send(back)).unwrap();
        done(scope.write_parts([&header[..], &body], &grant, 8)).unwrap();
        // Not waited for: the scope does.
        drop(scope.read_parts(&grant, 8, [&mut first[..], &mut second]));
        done(answered).unwrap()
    });
    assert_eq!((len, &head, &rest[..2]), (3008, b"8 byte", &b"s."[..]));
    assert!(rest[2..3002] == *body);
    assert_eq!((&first, &second[..5]), (b"8 b", &b"ytes."[..]));
    assert!(second[5..] == body[..1995]);
}

#[test]
fn parts_beyond_the_sessions_or_the_grant_are_refused() {
    let (client, server) = pair(&Config::new().max_blocks(2));
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let octets = [7; 12];
    let mut rooms = [[0_u8; 4]; 3];
    client.session.scope(|scope| {
        let many = done(scope.send_parts(octets.chunks(4))).unwrap_err();
        assert!(matches!(many.error, OperationError::TooManyBlocks), "{many:?}");
        let parts = rooms.iter_mut().map(|room| &mut room[..]);
        let many = done(scope.recv_parts(parts)).unwrap_err();
        assert!(matches!(many.error, OperationError::TooManyBlocks), "{many:?}");
        let outside = done(scope.write_parts(octets.chunks(6), &grant, 0)).unwrap_err();
        assert!(matches!(outside.error, OperationError::OutsideGrant), "{outside:?}");
        done(scope.write_parts(octets[..8].chunks(4), &grant, 0)).unwrap();
    });
    done(client.session.read(&grant, 0, Block::new(&client.pd, 8).unwrap())).unwrap();
    assert_eq!(memory.to_vec(), [7; 8]);
}
