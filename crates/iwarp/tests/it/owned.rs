// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: blocks that change hands, exposed and borrowed memory, ends of every kind. Blocking.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use iwarp::cm::ConnectError;
use iwarp::{Access, Device, Options, ProtectionDomain, WcStatus};
use iwarp_session::{
    Block, BlockPool, Config, Exposed, Failure, Listener, OperationError, Pending, Received,
    RemoteGrant, SendFlags, Session,
};

use crate::common::sessions::{block_of, done, remote};
use crate::common::{DEADLINE, pattern, until};

struct End {
    pd: ProtectionDomain,
    session: Session,
    early: Vec<Pending<Received>>,
}

/// Two ends, each a device of its own; the server (second) has receives of `len` bytes posted
/// before anything can arrive.
fn pair(config: &Config, receives: usize, len: usize) -> (End, End) {
    let server = Device::with_options(Options::default()).unwrap().alloc_pd();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let client = Device::with_options(Options::default()).unwrap().alloc_pd();
    let connecting = config.connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let prepared = config.prepare(&server).unwrap();
    let block = || Block::new(&server, len).unwrap();
    let early = (0..receives).map(|_| prepared.recv(block())).collect();
    let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    let server = End { pd: server, session, early };
    let session = connecting.wait_timeout(DEADLINE).unwrap();
    (End { pd: client, session, early: Vec::new() }, server)
}

fn default_pair() -> (End, End) {
    pair(&Config::default(), 0, 0)
}

fn all() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

#[test]
fn everything_may_go_to_other_threads() {
    fn assert<T: Send + Sync>() {}
    assert::<(Block, BlockPool, Exposed, Session, Pending<Received>, Pending<()>)>();
    assert::<(Config, Listener, Failure)>();
    assert::<(iwarp_session::Connecting, iwarp_session::Closing, iwarp_session::Request)>();
}

#[test]
fn a_grant_can_go_with_the_connection() {
    let (client, server) = (
        Device::with_options(Options::default()).unwrap().alloc_pd(),
        Device::with_options(Options::default()).unwrap().alloc_pd(),
    );
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let connecting = Session::connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let mut prepared = Config::default().prepare(&server).unwrap();
    let table = prepared.expose(64, Access::REMOTE_READ).unwrap();
    table.write_at(0, b"look it up");
    prepared.set_private_data(&table.grant().to_octets());
    let _server = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    let session = connecting.wait_timeout(DEADLINE).unwrap();
    let grant = RemoteGrant::from_octets(session.private_data().try_into().unwrap());
    let block = Block::new(&client, 10).unwrap();
    assert_eq!(&*done(session.read(&grant, 0, block)).unwrap(), b"look it up");
}

#[test]
fn messages_go_back_and_forth_in_the_same_blocks() {
    let (client, mut server) = pair(&Config::default(), 1, 64);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = server.early.remove(0);
            let mut spare = Block::new(&server.pd, 64).unwrap();
            for _ in 0..500 {
                eprintln!("srv wait");
                let Received { mut block, .. } = done(next).unwrap();
                eprintln!("srv got {}", block.len());
                block.reverse();
                // Before the answer, as the next message may follow it at once.
                next = server.session.recv(spare);
                spare = done(server.session.send(block)).unwrap();
            }
            // The peer ends the connection: the last receive is flushed.
            let failure = done(next).unwrap_err();
            assert!(matches!(failure.error, OperationError::Disconnected), "{failure:?}");
            assert_eq!(failure.block.unwrap().capacity(), 64);
        });
        let mut ball = Block::new(&client.pd, 64).unwrap();
        let mut spare = Block::new(&client.pd, 64).unwrap();
        for round in 0..500_u32 {
            let octets = pattern((round as usize + 1) % 65, u64::from(round));
            // Receives take the whole capacity, for any length.
            spare.set_len(0);
            let back = client.session.recv(spare);
            ball.fill_from(&octets);
            ball = done(client.session.send(ball)).unwrap();
            let received = done(back).unwrap();
            let reversed: Vec<u8> = octets.iter().rev().copied().collect();
            assert_eq!(&*received.block, &reversed);
            spare = received.block;
        }
        client.session.close().wait().unwrap();
    });
}

#[test]
fn many_operations_are_under_way_at_once() {
    let (client, mut server) = pair(&Config::default(), 100, 1000);
    let sends: Vec<_> = (0..100_usize)
        .map(|n| client.session.send(block_of(&client.pd, &pattern(n * 10, n as u64))))
        .collect();
    // Waited for in the wrong order: nothing is mistaken for another.
    for (n, receive) in server.early.drain(..).enumerate().rev() {
        assert_eq!(&*done(receive).unwrap().block, &pattern(n * 10, n as u64));
    }
    for (n, send) in sends.into_iter().enumerate().rev() {
        assert_eq!(&*done(send).unwrap(), &pattern(n * 10, n as u64));
    }
}

#[test]
fn threads_wait_for_operations_of_one_session() {
    let config = Config::new().max_sends(8);
    let (client, server) = pair(&config, 0, 0);
    let memory = server.session.expose(8 * 4096, all()).unwrap();
    let grant = remote(&memory);
    thread::scope(|scope| {
        for n in 0..8_u64 {
            let (client, grant) = (&client, &grant);
            scope.spawn(move || {
                let mut block = Block::new(&client.pd, 4096).unwrap();
                for round in 0..200 {
                    let octets = pattern(4096, n << 32 | round);
                    block.fill_from(&octets);
                    block = done(client.session.write(block, grant, n * 4096)).unwrap();
                    block.fill(0);
                    block = done(client.session.read(grant, n * 4096, block)).unwrap();
                    assert!(*block == octets, "thread {n}, round {round}");
                }
            });
        }
    });
}

#[test]
fn every_operation_does_what_it_says() {
    let (client, mut server) = pair(&Config::default(), 4, 64);
    let mut early = server.early.drain(..);
    let mut next = || done(early.next().unwrap()).unwrap();
    let memory = server.session.expose(4096, all()).unwrap();
    let grant = remote(&memory);
    let session = &client.session;

    done(session.write(block_of(&client.pd, b"written"), &grant, 100)).unwrap();
    done(session.immediate(*b"8 octets")).unwrap();
    let received = next();
    assert_eq!((received.immediate, received.block.len()), (Some(*b"8 octets"), 0));
    let mut seen = [0; 7];
    memory.read_at(100, &mut seen);
    assert_eq!(&seen, b"written");

    memory.write_at(200, b"to be read");
    let read = done(session.read(&grant, 200, Block::new(&client.pd, 10).unwrap())).unwrap();
    assert_eq!(&*read, b"to be read");

    memory.atomic_u64(8).store(40, Ordering::SeqCst);
    assert_eq!(done(session.fetch_add(&grant, 8, 2)).unwrap(), 40);
    assert_eq!(done(session.compare_swap(&grant, 8, 42, 7)).unwrap(), 42);
    assert_eq!(done(session.compare_swap(&grant, 8, 42, 9)).unwrap(), 7);
    assert_eq!(memory.atomic_u64(8).load(Ordering::SeqCst), 7);

    done(session.send_inline(b"small")).unwrap();
    assert_eq!(&*next().block, b"small");

    let flags = SendFlags::new().solicited(true);
    done(session.send_with(block_of(&client.pd, b"look"), flags)).unwrap();
    let received = next();
    assert!(received.solicited && received.invalidated.is_none());

    let flags = SendFlags::new().invalidate(Some(grant.stag()));
    done(session.send_with(block_of(&client.pd, b"done"), flags)).unwrap();
    let invalidated = next().invalidated.expect("the grant was given up");
    assert!(memory.is(invalidated));
    // It is gone for good, and using it ends the connection.
    let failure = done(session.read(&grant, 0, Block::new(&client.pd, 8).unwrap())).unwrap_err();
    assert!(matches!(failure.error, OperationError::Failed(WcStatus::RemoteAccess)), "{failure:?}");
    assert_eq!(failure.block.unwrap().len(), 8);
}

#[test]
fn a_grant_of_one_session_is_worth_nothing_to_another_peer() {
    let (_client, server) = default_pair();
    let (stranger, _its_peer) = default_pair();
    let memory = server.session.expose(64, all()).unwrap();
    let block = Block::new(&stranger.pd, 8).unwrap();
    let failure = done(stranger.session.read(&remote(&memory), 0, block)).unwrap_err();
    assert!(matches!(failure.error, OperationError::Failed(_)), "{failure:?}");
    assert!(server.session.is_connected());
}

#[test]
fn mistakes_cost_nothing_but_an_error() {
    let config = Config::new().max_sends(2).max_recvs(2).max_inline(16);
    let (client, server) = pair(&config, 0, 0);
    let session = &client.session;
    let memory = server.session.expose(64, all()).unwrap();
    let grant = remote(&memory);
    let block = || block_of(&client.pd, &[5; 65]);

    let beyond = done(session.write(block(), &grant, 0)).unwrap_err();
    assert!(matches!(beyond.error, OperationError::OutsideGrant));
    assert_eq!(&*beyond.block.unwrap(), &[5; 65]);
    let wrapping = done(session.read(&grant, u64::MAX, block())).unwrap_err();
    assert!(matches!(wrapping.error, OperationError::OutsideGrant));
    let beyond = done(session.fetch_add(&grant, 57, 1)).unwrap_err();
    assert!(matches!(beyond.error, OperationError::OutsideGrant));
    let long = done(session.send_inline(&[0; 17])).unwrap_err();
    assert!(matches!(long.error, OperationError::InlineTooLong));

    let foreign = done(session.send(block_of(&server.pd, b"not yours"))).unwrap_err();
    assert!(matches!(foreign.error, OperationError::OtherDomain));
    assert_eq!(&*foreign.block.unwrap(), b"not yours");

    let _receives = [session.recv(block()), session.recv(block())];
    let full = done(session.recv(block())).unwrap_err();
    assert!(matches!(full.error, OperationError::QueueFull));
    assert_eq!(&*full.block.unwrap(), &[5; 65]);

    // And the connection is as good as before.
    let receive = server.session.recv(Block::new(&server.pd, 8).unwrap());
    done(session.send_inline(b"still up")).unwrap();
    assert_eq!(&*done(receive).unwrap().block, b"still up");
}

#[test]
fn a_block_remembers_its_length_and_its_pool() {
    let pd = Device::with_options(Options::default()).unwrap().alloc_pd();
    let pool = BlockPool::new(&pd, 100, 2).unwrap();
    assert_eq!((pool.count(), pool.block_len(), pool.available()), (2, 100, 2));
    let mut one = pool.try_take().unwrap();
    one.fill_from(b"short");
    assert_eq!((&*one, one.capacity()), (&b"short"[..], 100));
    let other = pool.try_take().unwrap();
    assert!(pool.try_take().is_none());
    drop(one);
    let again = pool.try_take().unwrap();
    assert_eq!(again.len(), 100, "a block of a pool is of full length");
    assert_eq!(again[..5], *b"short");
    drop(pool.clone());
    drop((other, again));
    assert_eq!(pool.available(), 2);
}

#[test]
fn blocks_of_dropped_operations_go_back_to_their_pool() {
    let (client, server) = default_pair();
    let pool = BlockPool::new(&client.pd, 64, 4).unwrap();
    drop(client.session.recv(pool.try_take().unwrap()));
    drop(client.session.recv(pool.try_take().unwrap()));
    let kept = client.session.recv(pool.try_take().unwrap());
    assert_eq!(pool.available(), 1, "the operations have the others");
    for n in 0..3 {
        done(server.session.send_inline(&[n; 3])).unwrap();
    }
    // The messages of the first two are lost with their receives, the third is right.
    assert_eq!(&*done(kept).unwrap().block, &[2; 3]);
    until("the blocks", || (pool.available() == 4).then_some(()));
}

#[test]
fn an_operation_that_takes_too_long_can_still_be_waited_for() {
    let (client, server) = default_pair();
    let receive = client.session.recv(Block::new(&client.pd, 64).unwrap());
    let receive = receive.wait_timeout(Duration::from_millis(20)).expect_err("nobody has sent");
    assert!(!receive.is_done());
    done(server.session.send_inline(b"late")).unwrap();
    assert_eq!(&*done(receive).unwrap().block, b"late");
}

#[test]
fn when_the_peer_vanishes_everything_ends_with_an_error() {
    let (client, server) = default_pair();
    let memory = Exposed::new(&server.pd, 1 << 20, all()).unwrap();
    let pool = BlockPool::new(&client.pd, 1 << 20, 16).unwrap();
    let block = || pool.try_take().unwrap();
    let receives: Vec<_> = (0..8).map(|_| client.session.recv(block())).collect();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            server.session.abort();
        });
        barrier.wait();
        let grant = remote(&memory);
        let reads: Vec<_> = (0..8).map(|_| client.session.read(&grant, 0, block())).collect();
        for receive in receives {
            let failure = done(receive).unwrap_err();
            assert!(matches!(failure.error, OperationError::Disconnected), "{failure:?}");
            assert_eq!(failure.block.unwrap().len(), 1 << 20);
        }
        for read in reads {
            // Reads that were faster than the peer's end are whole.
            match done(read) {
                Ok(mut block) | Err(Failure { block: Some(mut block), .. }) => block.fill(1),
                Err(failure) => panic!("the block is lost: {failure:?}"),
            }
        }
    });
    assert_eq!(pool.available(), 16);
    let late = done(client.session.send(pool.try_take().unwrap())).unwrap_err();
    assert!(matches!(late.error, OperationError::Disconnected), "{late:?}");
}

#[test]
fn closing_delivers_what_was_sent_and_ends_the_rest() {
    let (client, mut server) = pair(&Config::default(), 20, 100_000);
    let pool = BlockPool::new(&client.pd, 100_000, 30).unwrap();
    let block = || pool.try_take().unwrap();
    let never = client.session.recv(block());
    for n in 0..20_u8 {
        let mut block = block();
        block.fill(n);
        drop(client.session.send(block));
    }
    let reading = thread::spawn(move || {
        for (n, receive) in server.early.drain(..).enumerate() {
            let block = done(receive).unwrap().block;
            assert!(block.len() == 100_000 && block.iter().all(|&o| usize::from(o) == n));
        }
    });
    client.session.close().wait().unwrap();
    let failure = done(never).unwrap_err();
    assert!(matches!(failure.error, OperationError::Disconnected));
    drop(failure);
    assert_eq!(pool.available(), 30);
    reading.join().unwrap();
}

#[test]
fn dropping_a_session_delivers_what_was_sent_too() {
    let (client, mut server) = pair(&Config::default(), 20, 100_000);
    let pool = BlockPool::new(&client.pd, 100_000, 30).unwrap();
    for n in 0..20_u8 {
        let mut block = pool.try_take().unwrap();
        block.fill(n);
        drop(client.session.send(block));
    }
    drop(client.session);
    for (n, receive) in server.early.drain(..).enumerate() {
        let block = done(receive).unwrap().block;
        assert!(block.len() == 100_000 && block.iter().all(|&o| usize::from(o) == n));
    }
    until("the blocks", || (pool.available() == 30).then_some(()));
}

#[test]
fn borrowed_memory_is_sent_and_filled() {
    let (client, server) = default_pair();
    let memory = server.session.expose(4096, all()).unwrap();
    let grant = remote(&memory);
    let question = pattern(5000, 1);
    let mut answer = vec![0; 6000];
    let mut copy = [0; 64];
    let received = server.session.recv(Block::new(&server.pd, 5000).unwrap());
    let len = client.session.scope(|scope| {
        let answered = scope.recv(&mut answer);
        drop(scope.send(&question));
        let back = done(received).unwrap().block;
        done(server.session.send(back)).unwrap();
        done(scope.write(&question[..64], &grant, 8)).unwrap();
        // Not waited for: the scope does.
        drop(scope.read(&grant, 8, &mut copy));
        done(answered).unwrap()
    });
    assert_eq!(answer[..len], question);
    assert_eq!(copy, question[..64]);
}

#[test]
fn a_panic_in_a_scope_ends_its_operations_first() {
    let (client, server) = default_pair();
    let mut answer = [0; 64];
    let result = catch_unwind(AssertUnwindSafe(|| {
        client.session.scope(|scope| {
            drop(scope.recv(&mut answer));
            panic!("as planned");
        })
    }));
    assert!(result.is_err());
    assert!(!client.session.is_connected());
    drop(server);
    assert_eq!(answer, [0; 64]);
}

#[test]
fn a_scope_with_a_receive_ends_with_the_connection() {
    let (client, server) = default_pair();
    let mut answer = [0; 64];
    let outcome = thread::scope(|threads| {
        threads.spawn(|| server.session.close().wait().unwrap());
        client.session.scope(|scope| scope.recv(&mut answer).wait())
    });
    assert!(matches!(outcome.unwrap_err().error, OperationError::Disconnected));
}

#[test]
fn connecting_says_why_it_failed() {
    let pd = Device::with_options(Options::default()).unwrap().alloc_pd();
    let listener = Listener::bind(&pd, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    assert!(listener.accept().wait_timeout(Duration::from_millis(5)).is_err());

    let mut config = Config::default();
    config.params.private_data = b"let me in".to_vec();
    let connecting = config.connect(&pd, addr);
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    assert_eq!(request.private_data(), b"let me in");
    request.reject(b"no").unwrap();
    let Err(ConnectError::Rejected { private_data, .. }) = connecting.wait_timeout(DEADLINE) else {
        panic!("it was rejected");
    };
    assert_eq!(private_data, b"no");

    let waiting = Session::connect(&pd, addr).wait_timeout(Duration::from_millis(5));
    assert!(matches!(waiting, Err(ConnectError::Timeout)), "{waiting:?}");

    drop(listener);
    let nobody = Session::connect(&pd, addr).wait_timeout(DEADLINE);
    assert!(matches!(nobody, Err(ConnectError::Unreachable(_))), "{nobody:?}");
}
