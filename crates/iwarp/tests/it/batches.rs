// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: operations that are collected, and posted as one list.

use std::thread;

use iwarp::Access;
use iwarp_session::{Block, BlockPool, Config, OperationError, Session};

use crate::common::sessions::{block_of, done, pair, pair_with, remote};
use crate::common::{pattern, until};

/// Places in the send queue that are free.
fn places(session: &Session) -> usize {
    std::iter::from_fn(|| session.try_reserve()).collect::<Vec<_>>().len()
}

#[test]
fn a_batch_does_what_its_operations_say_in_their_order() {
    let (client, server, receive) =
        pair_with(&Config::default(), |pd, prepared| prepared.recv(Block::new(pd, 64).unwrap()));
    let memory = server.session.expose(64, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    memory.atomic_u64(8).store(40, std::sync::atomic::Ordering::SeqCst);
    let block = |octets: &[u8]| block_of(&client.pd, octets);

    let mut batch = client.session.batch();
    assert!(batch.is_empty());
    let one = batch.write(block(b"one"), &grant, 16);
    let both = batch.write([block(b"and "), block(b"more")], &grant, 20);
    let inline = batch.write_inline(b"!", &grant, 28);
    let sum = batch.fetch_add(&grant, 8, 2);
    let read = batch.read(&grant, 16, Block::new(&client.pd, 13).unwrap());
    let told = batch.send(block(b"done"));
    assert_eq!(batch.len(), 6);
    batch.post().unwrap();

    assert_eq!(&*done(receive).unwrap().block, b"done");
    assert_eq!(&*done(told).unwrap(), b"done");
    assert_eq!(&*done(read).unwrap(), b"one\0and more!");
    assert_eq!(done(sum).unwrap(), 40);
    done(inline).unwrap();
    assert_eq!(done(both).unwrap().map(|block| block.len()), [4, 4]);
    assert_eq!(&*done(one).unwrap(), b"one");
    assert_eq!(places(&client.session), Config::default().max_sends);
}

#[test]
fn requests_of_a_batch_wait_for_its_post() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let mut batch = client.session.batch();
    let write = batch.write_inline(b"written", &grant, 0);
    // Posted later by itself, and yet done before.
    let read = client.session.read(&grant, 0, Block::new(&client.pd, 8).unwrap());
    assert_eq!(*done(read).unwrap(), [0; 8]);
    assert!(!write.is_done());
    batch.post().unwrap();
    done(write).unwrap();
    let read = client.session.read(&grant, 0, Block::new(&client.pd, 8).unwrap());
    assert_eq!(&*done(read).unwrap(), b"written\0");
}

#[test]
fn a_batch_with_a_wrong_operation_is_not_posted_at_all() {
    let config = Config::new().max_sends(8).max_inline(16).max_blocks(2);
    let (client, server) = pair(&config);
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let three = || [(); 3].map(|()| block_of(&client.pd, b"x"));
    for wrong in 0..4 {
        let mut batch = client.session.batch();
        let before = batch.write(block_of(&client.pd, b"before"), &grant, 0);
        let refused = match wrong {
            0 => done(batch.write_inline(b"outside", &grant, 2)).unwrap_err(),
            1 => done(batch.send_inline(&[0; 17])).unwrap_err(),
            2 => done(batch.send(three())).unwrap_err(),
            _ => done(batch.send(block_of(&server.pd, b"foreign"))).unwrap_err(),
        };
        match (wrong, &refused.error) {
            (0, OperationError::OutsideGrant) | (1, OperationError::InlineTooLong) => {}
            (2, OperationError::TooManyBlocks) => assert_eq!(refused.blocks.len(), 3),
            (3, OperationError::OtherDomain) => assert_eq!(&*refused.block.unwrap(), b"foreign"),
            _ => panic!("{wrong}: {refused:?}"),
        }
        let behind = done(batch.send(block_of(&client.pd, b"behind"))).unwrap_err();
        assert!(matches!(behind.error, OperationError::NotPosted), "{behind:?}");
        assert_eq!(&*behind.block.unwrap(), b"behind");
        assert!(matches!(batch.post(), Err(OperationError::NotPosted)));
        let before = done(before).unwrap_err();
        assert!(matches!(before.error, OperationError::NotPosted), "{before:?}");
        assert_eq!(&*before.block.unwrap(), b"before");
        assert_eq!(places(&client.session), 8);
    }
    // And the connection is as good as before.
    let read = client.session.read(&grant, 0, Block::new(&client.pd, 8).unwrap());
    assert_eq!(*done(read).unwrap(), [0; 8]);
}

#[test]
fn a_batch_needs_as_many_places_as_it_has_operations() {
    let (client, server) = pair(&Config::new().max_sends(3));
    let (other, _its_peer) = pair(&Config::default());
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let read = || Block::new(&client.pd, 8).unwrap();

    let permits = [(); 2].map(|()| client.session.reserve().wait().unwrap());
    let mut batch = client.session.batch();
    for permit in permits {
        batch.add_permit(permit).unwrap();
    }
    let strange = batch.add_permit(other.session.reserve().wait().unwrap());
    drop(strange.expect_err("it is another session's"));
    let mut taken = vec![client.session.try_reserve().expect("the last place")];
    let reads = [(); 2].map(|()| batch.read(&grant, 0, read()));
    batch.post().unwrap();
    for read in reads {
        done(read).unwrap();
    }

    taken.push(client.session.reserve().wait().unwrap());
    let mut batch = client.session.batch();
    let one = batch.read(&grant, 0, read());
    let full = done(batch.read(&grant, 0, read())).unwrap_err();
    assert!(matches!(full.error, OperationError::QueueFull), "{full:?}");
    drop(taken);
    assert!(batch.post().is_err());
    assert!(matches!(done(one).unwrap_err().error, OperationError::NotPosted));
    assert_eq!(places(&client.session), 3);
}

#[test]
fn a_batch_that_is_dropped_gives_all_back() {
    let (client, server) = pair(&Config::new().max_sends(4));
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let pool = BlockPool::new(&client.pd, 8, 2).unwrap();
    let mut batch = client.session.batch();
    batch.add_permit(client.session.reserve().wait().unwrap()).unwrap();
    drop(batch.write(pool.take().wait().unwrap(), &grant, 0));
    let kept = batch.read(&grant, 0, pool.take().wait().unwrap());
    assert_eq!(pool.available(), 0);
    // A thread that waits for a place, or a block, gets it when the batch is gone.
    thread::scope(|scope| {
        let blocks = scope.spawn(|| pool.take().wait().unwrap().len());
        let places = scope.spawn(|| {
            let all = [(); 4].map(|()| client.session.reserve().wait().unwrap());
            all.len()
        });
        drop(batch);
        assert_eq!((blocks.join().unwrap(), places.join().unwrap()), (8, 4));
    });
    let failure = done(kept).unwrap_err();
    assert!(matches!(failure.error, OperationError::NotPosted), "{failure:?}");
    drop(failure);
    assert_eq!((pool.available(), places(&client.session)), (2, 4));
    assert_eq!(memory.to_vec(), [0; 8]);
}

#[test]
fn waiting_for_a_part_of_a_batch_posts_it() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(16, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let mut batch = client.session.batch();
    let write = batch.write_inline(b"first", &grant, 0);
    let read = batch.read(&grant, 0, Block::new(&client.pd, 5).unwrap());
    assert_eq!(&*done(read).unwrap(), b"first");
    assert!(batch.is_empty());
    // It goes on from there.
    let more = batch.write_inline(b"second", &grant, 8);
    let read = batch.read(&grant, 8, Block::new(&client.pd, 6).unwrap());
    batch.post().unwrap();
    assert_eq!(&*done(read).unwrap(), b"second");
    done(write).unwrap();
    done(more).unwrap();
}

#[test]
fn a_batch_after_the_end_of_the_connection_fails_as_a_whole() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let mut batch = client.session.batch();
    let pendings = [(); 3].map(|()| batch.read(&grant, 0, Block::new(&client.pd, 8).unwrap()));
    drop(batch.write_inline(b"nobody", &grant, 0));
    server.session.abort();
    until("the end", || (!client.session.is_connected()).then_some(()));
    batch.post().unwrap();
    for pending in pendings {
        let failure = done(pending).unwrap_err();
        assert!(matches!(failure.error, OperationError::Disconnected), "{failure:?}");
        assert_eq!(failure.block.unwrap().len(), 8);
    }
    assert_eq!(places(&client.session), Config::default().max_sends);
}

#[test]
fn batches_of_many_threads_do_not_mix() {
    const THREADS: usize = 4;
    const WRITES: usize = 16;
    const LEN: usize = 1000;
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(THREADS * WRITES * LEN, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, grant) = (&client, &grant);
            scope.spawn(move || {
                let at = |n: usize| ((thread * WRITES + n) * LEN) as u64;
                let mut blocks: Vec<_> =
                    (0..WRITES).map(|_| Block::new(&client.pd, LEN).unwrap()).collect();
                for round in 0..50 {
                    let mut batch = client.session.batch();
                    let mut writes = Vec::new();
                    for (n, mut block) in blocks.drain(..).enumerate() {
                        block.copy_from_slice(&pattern(LEN, round * at(n)));
                        writes.push(batch.write(block, grant, at(n)));
                    }
                    let whole = Block::new(&client.pd, WRITES * LEN).unwrap();
                    let read = batch.read(grant, at(0), whole);
                    batch.post().unwrap();
                    let seen = done(read).unwrap();
                    blocks.extend(writes.into_iter().map(|write| done(write).unwrap()));
                    assert!(seen.chunks(LEN).eq(blocks.iter().map(|block| &**block)));
                }
            });
        }
    });
}
