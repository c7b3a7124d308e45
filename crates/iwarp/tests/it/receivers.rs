// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receivers: receives that stay posted, in threads that wait, look or do something else.

use std::hint;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use iwarp_session::{BlockPool, Config, OperationError, Receiver};

use crate::common::sessions::{SessionEnd, pair, pair_with};
use crate::common::{DEADLINE, until};

/// A pair whose second end has a receiver of `depth` receives on a pool of `blocks` blocks.
fn receiving(depth: usize, blocks: usize) -> (SessionEnd, SessionEnd, Receiver, BlockPool) {
    let (client, server, (receiver, pool)) = pair_with(&Config::default(), |pd, prepared| {
        let pool = BlockPool::new(pd, 64, blocks).unwrap();
        (prepared.receiver(&pool, depth).unwrap(), pool)
    });
    (client, server, receiver, pool)
}

fn send(end: &SessionEnd, n: u32) {
    let permit = end.session.reserve().wait_timeout(DEADLINE).unwrap();
    let sent = permit.send_inline(&n.to_be_bytes()).wait_timeout(DEADLINE);
    sent.expect("sending takes too long").unwrap();
}

fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets.try_into().unwrap())
}

fn next(receiver: &mut Receiver) -> u32 {
    let received = receiver.recv().wait_timeout(DEADLINE).unwrap().expect("a message");
    number(&received.block)
}

#[test]
fn a_timeout_loses_no_message() {
    let (client, _server, mut receiver, pool) = receiving(4, 4);
    for n in 0..100 {
        // Some expire before the message, some while it comes, some after.
        let timed_out = receiver.recv().wait_timeout(Duration::ZERO);
        assert!(matches!(timed_out, Err(OperationError::Timeout)), "{timed_out:?}");
        send(&client, n);
        let mut patience = Duration::from_micros(u64::from(n));
        let received = loop {
            match receiver.recv().wait_timeout(patience) {
                Ok(received) => break received.unwrap(),
                Err(OperationError::Timeout) => patience *= 2,
                Err(error) => panic!("{error}"),
            }
            patience = patience.max(Duration::from_micros(1));
        };
        assert_eq!(number(&received.block), n);
    }
    assert_eq!((receiver.posted(), pool.available()), (4, 0));
}

#[test]
fn a_block_that_comes_back_is_posted_whatever_the_program_does() {
    let (client, _server, mut receiver, pool) = receiving(2, 2);
    send(&client, 0);
    send(&client, 1);
    let first = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
    let second = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!((receiver.posted(), pool.available()), (0, 0));
    drop(first);
    assert_eq!(receiver.posted(), 1);
    // Given back by another thread while this one waits for it.
    thread::scope(|scope| {
        scope.spawn(move || drop(second));
        until("both", || (receiver.posted() == 2).then_some(()));
        send(&client, 2);
        send(&client, 3);
        assert_eq!((next(&mut receiver), next(&mut receiver)), (2, 3));
    });
}

#[test]
fn a_receiver_without_blocks_waits_for_one() {
    let (client, _server, mut receiver, pool) = receiving(2, 0);
    assert_eq!(receiver.posted(), 0);
    let timed_out = receiver.recv().wait_timeout(Duration::from_millis(1));
    assert!(matches!(timed_out, Err(OperationError::Timeout)), "{timed_out:?}");
    drop((client, pool));
}

#[test]
fn an_echo_that_waits_for_no_send_never_runs_out_of_blocks() {
    let (client, server, mut receiver, pool) = receiving(4, 5);
    let answers = BlockPool::new(&client.pd, 64, 8).unwrap();
    let mut answered = client.session.receiver(&answers, 8).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1000 {
                let message = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
                // The block is the send's from here on, whose result is dropped.
                drop(server.session.send(message.block));
            }
        });
        for n in 0..1000 {
            send(&client, n);
            assert_eq!(next(&mut answered), n);
        }
    });
    drop((server, receiver));
    until("the blocks", || (pool.available() == 5).then_some(()));
}

#[test]
fn receivers_of_many_sessions_share_a_pool() {
    const SESSIONS: usize = 8;
    let first = receiving(2, 2 * SESSIONS - 1);
    let pool = first.3.clone();
    let device_pd = first.1.pd.clone();
    let listener = iwarp_session::Listener::bind(&device_pd, "127.0.0.1:0").unwrap();
    let mut ends: Vec<_> = (1..SESSIONS)
        .map(|_| {
            let connecting =
                iwarp_session::Session::connect(&first.0.pd, listener.local_addr().unwrap());
            let request = listener.accept().wait_timeout(DEADLINE).unwrap();
            let prepared = Config::default().prepare(&device_pd).unwrap();
            let receiver = prepared.receiver(&pool, 2).unwrap();
            let server = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
            (connecting.wait_timeout(DEADLINE).unwrap(), server, receiver)
        })
        .collect();
    // The last one lacks a block, and gets the first that comes back.
    let lacking = &mut ends.last_mut().unwrap().2;
    assert_eq!((lacking.posted(), pool.available()), (1, 0));
    let (client, _server, mut receiver, _) = first;
    send(&client, 7);
    let message = receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
    drop(message);
    assert_eq!((ends.last().unwrap().2.posted(), receiver.posted()), (2, 1));
    for (n, (client, _, receiver)) in (0..).zip(&mut ends) {
        client.send_inline(&u32::to_be_bytes(n)).wait().unwrap();
        assert_eq!(next(receiver), n);
    }
    drop((ends, receiver, _server));
    until("the blocks", || (pool.available() == 2 * SESSIONS - 1).then_some(()));
}

/// Its receive is posted by the thread that gives the block back, before the receiver is dropped,
/// after that, or meanwhile.
#[test]
fn a_receiver_that_is_dropped_while_a_block_comes_back_keeps_none() {
    const ROUNDS: usize = 500;
    let (_client, server) = pair(&Config::new().max_recvs(ROUNDS));
    let pools: Vec<_> = (0..ROUNDS)
        .map(|round| {
            let pool = BlockPool::new(&server.pd, 8, 1).unwrap();
            let block = pool.try_take().unwrap();
            let receiver = server.session.receiver(&pool, 1).unwrap();
            let both = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    drop(block);
                });
                both.wait();
                (0..round).for_each(|_| hint::spin_loop());
                drop(receiver);
            });
            pool
        })
        .collect();
    server.session.abort();
    for (round, pool) in pools.iter().enumerate() {
        until(&format!("the block of {round}"), || (pool.available() == 1).then_some(()));
    }
}

#[test]
fn messages_before_the_end_are_received_and_then_there_are_none() {
    let (client, server, mut receiver, pool) = receiving(8, 8);
    for n in 0..5 {
        send(&client, n);
    }
    client.session.close().wait().unwrap();
    for n in 0..5 {
        assert_eq!(next(&mut receiver), n);
    }
    for _ in 0..2 {
        assert!(receiver.recv().wait_timeout(DEADLINE).unwrap().is_none());
    }
    assert_eq!(receiver.posted(), 0);
    drop(server);
    until("the blocks", || (pool.available() == 8).then_some(()));
}

#[test]
fn a_connection_that_is_broken_off_is_an_error_and_no_end() {
    let (client, _server, mut receiver, _pool) = receiving(2, 2);
    // Longer than a block.
    let mut block = BlockPool::new(&client.pd, 65, 1).unwrap().take().wait().unwrap();
    block.fill(1);
    drop(client.session.send(block));
    let refused = receiver.recv().wait_timeout(DEADLINE);
    assert!(matches!(refused, Err(OperationError::Failed(_) | OperationError::Ended(_))));
    for _ in 0..2 {
        let ended = receiver.recv().wait_timeout(DEADLINE);
        assert!(matches!(ended, Err(OperationError::Ended(_))), "{ended:?}");
    }
}

#[test]
fn a_pool_of_another_domain_is_refused() {
    let (client, server) = pair(&Config::default());
    let pool = BlockPool::new(&client.pd, 64, 2).unwrap();
    let refused = server.session.receiver(&pool, 2);
    assert!(matches!(refused, Err(OperationError::OtherDomain)));
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_receiver_gets_along_with_the_receives_that_the_program_leaves_it() {
    let config = Config::new().max_recvs(3);
    let (client, server) = pair(&config);
    let pool = BlockPool::new(&server.pd, 64, 8).unwrap();
    let own = server.session.recv(pool.try_take().unwrap());
    let mut receiver = server.session.receiver(&pool, 8).unwrap();
    assert_eq!(receiver.posted(), 2);
    send(&client, 1);
    send(&client, 2);
    assert_eq!(number(&own.wait_timeout(DEADLINE).unwrap().unwrap().block), 1);
    assert_eq!(next(&mut receiver), 2);
}

#[test]
fn a_receiver_that_is_dropped_leaks_nothing() {
    let (client, server, receiver, pool) = receiving(4, 6);
    drop(receiver);
    assert_eq!(pool.available(), 2);
    send(&client, 1);
    until("the message's block", || (pool.available() == 3).then_some(()));
    drop(server);
    until("the others", || (pool.available() == 6).then_some(()));
}
