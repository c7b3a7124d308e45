// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that wait for a receive of the peer.

use std::thread;
use std::time::Duration;

use iwarp::{Access, Device, Options, ProtectionDomain};
use iwarp_session::{
    BlockPool, Config, Credits, Listener, OperationError, Receiver, RemoteGrant, Session,
    Unconnected,
};

use crate::common::sessions::block_of;
use crate::common::{DEADLINE, until};

pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) credits: Credits,
    pub(crate) receiver: Receiver,
    pub(crate) pool: BlockPool,
}

fn device() -> ProtectionDomain {
    Device::with_options(Options::default()).unwrap().alloc_pd()
}

/// Two ends that take so many messages at a time, with so many blocks for them.
pub(crate) fn ends(config: &Config, depths: [usize; 2], blocks: [usize; 2]) -> (End, End) {
    let [client, server] = [0; 2].map(|_| device());
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let prepare = |pd: &ProtectionDomain, n: usize| {
        let pool = BlockPool::new(pd, 64, blocks[n]).unwrap();
        let prepared = config.prepare(pd).unwrap();
        let (credits, receiver) = prepared.credited(&pool, depths[n]).unwrap();
        (prepared, credits, receiver, pool)
    };
    let (prepared, credits, receiver, pool): (Unconnected, _, _, _) = prepare(&client, 0);
    let connecting = prepared.connect(listener.local_addr().unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let (prepared, their_credits, their_receiver, their_pool) = prepare(&server, 1);
    let session = prepared.accept(request).wait_timeout(DEADLINE).unwrap();
    let theirs =
        End { session, credits: their_credits, receiver: their_receiver, pool: their_pool };
    let session = connecting.wait_timeout(DEADLINE).unwrap();
    (End { session, credits, receiver, pool }, theirs)
}

fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets.try_into().unwrap())
}

fn send(credits: &Credits, n: u32) {
    let credit = credits.reserve().wait_timeout(DEADLINE).unwrap();
    drop(credit.send_inline(&n.to_be_bytes()));
}

fn next(receiver: &mut Receiver) -> Option<u32> {
    let received = receiver.recv().wait_timeout(DEADLINE).unwrap();
    received.map(|received| number(&received.block))
}

#[test]
fn a_sender_waits_for_receives_whatever_the_window() {
    for depth in [1, 2, 3, 4, 5, 8, 33] {
        let (client, mut server) = ends(&Config::default(), [1, depth], [3, depth + 2]);
        thread::scope(|scope| {
            let credits = &client.credits;
            scope.spawn(move || (0..2000).for_each(|n| send(credits, n)));
            for n in 0..2000 {
                assert_eq!(next(&mut server.receiver), Some(n), "window {depth}");
            }
        });
        // Messages by which the ends tell each other of their receives are none of the program's
        // Sends.
        let sends = [&client, &server].map(|end| end.session.metrics().sends.posted);
        assert_eq!(sends, [2000, 0]);
        client.session.close().wait().unwrap();
        assert_eq!(next(&mut server.receiver), None);
    }
}

/// A Write that tells the peer takes one of its receives, and so does Immediate Data: neither is
/// taken for what the ends tell each other.
#[test]
fn immediate_data_waits_for_receives_too() {
    for depth in [1, 4, 32] {
        let (client, mut server) = ends(&Config::default(), [1, depth], [3, depth + 2]);
        let memory = server.session.expose(8, Access::REMOTE_WRITE).unwrap();
        let grant = RemoteGrant::from_octets(&memory.grant().to_octets());
        thread::scope(|scope| {
            // Kept until the end is looked at.
            let (session, credits) = (&client.session, &client.credits);
            scope.spawn(move || {
                let pd = session.pd();
                for n in 0..500_u32 {
                    let credit = credits.reserve().wait_timeout(DEADLINE).unwrap();
                    let data = n.to_be_bytes();
                    match n % 3 {
                        0 => credit.send_inline(&data).wait().unwrap(),
                        1 => credit
                            .immediate([data, data].concat().try_into().unwrap())
                            .wait()
                            .unwrap(),
                        _ => {
                            let block = block_of(pd, &data);
                            drop(credit.write_immediate(block, &grant, 0, data).wait().unwrap());
                        }
                    }
                }
            });
            for n in 0..500_u32 {
                let received = server.receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap();
                let told = received.immediate.map(|data| number(&data[..4]));
                assert_eq!(told.unwrap_or_else(|| number(&received.block)), n, "window {depth}");
            }
        });
        assert!(server.session.ended().is_none());
    }
}

#[test]
fn sends_wait_while_the_peer_keeps_its_blocks() {
    let (client, mut server) = ends(&Config::default(), [4, 4], [6, 6]);
    until("the window", || (client.credits.available() == 4).then_some(()));
    (0..4).for_each(|n| send(&client.credits, n));
    assert!(client.credits.try_reserve().is_none());
    let late = client.credits.reserve().wait_timeout(Duration::from_millis(5));
    assert!(matches!(late, Err(OperationError::Timeout)), "{late:?}");
    let kept: Vec<_> =
        (0..4).map(|_| server.receiver.recv().wait_timeout(DEADLINE).unwrap().unwrap()).collect();
    // Taken, but their blocks are in use.
    let late = client.credits.reserve().wait_timeout(Duration::from_millis(5));
    assert!(matches!(late, Err(OperationError::Timeout)), "{late:?}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.credits.reserve().wait_timeout(DEADLINE));
        drop(kept);
        drop(waiting.join().unwrap().unwrap());
    });
    // The last of them is not worth a word.
    until("most of the window", || (client.credits.available() == 3).then_some(()));
    // A message that is refused uses none up.
    let credit = client.credits.try_reserve().unwrap();
    assert!(credit.send_inline(&[0; 10_000]).wait().is_err());
    assert_eq!(client.credits.available(), 3);
    assert_eq!(client.pool.count(), 6);
}

#[test]
fn a_pool_with_fewer_blocks_than_the_window_is_slow_and_not_stuck() {
    let (client, mut server) = ends(&Config::default(), [1, 32], [3, 3]);
    thread::scope(|scope| {
        let credits = &client.credits;
        scope.spawn(move || (0..200).for_each(|n| send(credits, n)));
        for n in 0..200 {
            assert_eq!(next(&mut server.receiver), Some(n));
        }
    });
    assert_eq!(server.pool.count(), 3);
}

#[test]
fn both_ends_send_as_fast_as_they_can() {
    const MESSAGES: u32 = 3000;
    let config = Config::new().max_sends(3);
    let (mut client, mut server) = ends(&config, [3, 5], [5, 7]);
    thread::scope(|scope| {
        for End { credits, receiver, .. } in [&mut client, &mut server] {
            scope.spawn(|| (0..MESSAGES).for_each(|n| send(credits, n)));
            scope.spawn(|| (0..MESSAGES).for_each(|n| assert_eq!(next(receiver), Some(n))));
        }
    });
}

#[test]
fn several_credits_come_at_once_or_not_at_all() {
    let (client, mut server) = ends(&Config::new().max_sends(8), [4, 4], [6, 6]);
    let many = client.credits.reserve_many(9).wait();
    assert!(matches!(many, Err(OperationError::QueueFull)), "{many:?}");
    assert!(client.credits.reserve_many(0).wait().unwrap().is_empty());
    let all = client.credits.reserve_many(4).wait_timeout(DEADLINE).unwrap();
    assert_eq!((all.len(), client.credits.available()), (4, 0));
    let late = client.credits.reserve_many(2).wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(OperationError::Timeout)), "{late:?}");
    let mut all = all.into_iter();
    drop(all.next().unwrap().send_inline(&0_u32.to_be_bytes()));
    assert_eq!(next(&mut server.receiver), Some(0));
    drop(all);
    // Half of the window and one more come again, independently of earlier use.
    for n in 1..100_u32 {
        let some = client.credits.reserve_many(3).wait_timeout(DEADLINE).unwrap();
        assert!(client.credits.available() <= 1);
        for credit in some.into_iter().take(1 + n as usize % 3) {
            drop(credit.send_inline(&n.to_be_bytes()));
            assert_eq!(next(&mut server.receiver), Some(n));
        }
    }
}

/// Each waits for more than half: if both had a part, none would ever have all.
#[test]
fn threads_that_wait_for_several_credits_do_not_hold_each_other_up() {
    const ROUNDS: u32 = 300;
    let (client, mut server) = ends(&Config::default(), [1, 4], [3, 6]);
    thread::scope(|scope| {
        for _ in 0..3 {
            let credits = &client.credits;
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    let some = credits.reserve_many(3).wait_timeout(DEADLINE).unwrap();
                    some.into_iter().for_each(|credit| drop(credit.send_inline(&n.to_be_bytes())));
                }
            });
        }
        for _ in 0..3 * 3 * ROUNDS {
            assert!(next(&mut server.receiver).is_some());
        }
    });
}

#[test]
fn a_batch_waits_for_credits_in_place_of_breaking_the_connection() {
    let (client, mut server) = ends(&Config::new().max_sends(8), [1, 4], [3, 6]);
    let memory = server.session.expose(8, Access::REMOTE_WRITE).unwrap();
    let grant = RemoteGrant::from_octets(&memory.grant().to_octets());
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..500_u32 {
                let both = client.credits.reserve_many(2).wait_timeout(DEADLINE).unwrap();
                let mut batch = client.session.batch();
                for credit in both {
                    batch.add_credit(credit).unwrap();
                }
                let first = batch.send_inline(&(2 * n).to_be_bytes());
                let written = batch.write_inline(&n.to_be_bytes(), &grant, 0);
                drop(batch.send_inline(&(2 * n + 1).to_be_bytes()));
                batch.post().unwrap();
                drop((first, written));
            }
        });
        for n in 0..1000 {
            assert_eq!(next(&mut server.receiver), Some(n));
        }
    });
    assert!(client.session.is_connected());
}

#[test]
fn a_batch_that_is_not_posted_gives_its_credits_back() {
    let (client, mut server) = ends(&Config::new().max_sends(8), [1, 4], [3, 6]);
    let (other, _its_peer) = ends(&Config::default(), [1, 4], [3, 6]);
    until("the window", || (client.credits.available() == 4).then_some(()));
    let credits = &client.credits;
    for refused in [false, true] {
        let mut batch = client.session.batch();
        for credit in credits.reserve_many(3).wait_timeout(DEADLINE).unwrap() {
            batch.add_credit(credit).unwrap();
        }
        let strange = other.credits.reserve().wait_timeout(DEADLINE).unwrap();
        drop(batch.add_credit(strange).expect_err("it is another session's"));
        let pendings = [(); 2].map(|()| batch.send_inline(b"nobody sees it"));
        if refused {
            // The third is for the third message: there is none for a fourth.
            drop(batch.send_inline(b"nor this"));
            let missing = batch.immediate([0; 8]).wait().unwrap_err();
            assert!(matches!(missing.error, OperationError::QueueFull), "{missing:?}");
            assert!(batch.post().is_err());
        } else {
            drop(batch);
        }
        for pending in pendings {
            let failure = pending.wait().unwrap_err();
            assert!(matches!(failure.error, OperationError::NotPosted), "{failure:?}");
        }
        assert_eq!(credits.available(), 4);
    }
    // Credits that were not used up are given back as well.
    let mut batch = client.session.batch();
    for credit in credits.reserve_many(3).wait_timeout(DEADLINE).unwrap() {
        batch.add_credit(credit).unwrap();
    }
    drop(batch.send_inline(&7_u32.to_be_bytes()));
    batch.post().unwrap();
    assert_eq!(credits.available(), 3);
    assert_eq!(next(&mut server.receiver), Some(7));
}

#[test]
fn waiters_are_told_of_the_end() {
    let (client, server) = ends(&Config::default(), [2, 2], [4, 4]);
    (0..2).for_each(|n| send(&client.credits, n));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.credits.reserve().wait_timeout(DEADLINE));
        drop(server);
        let error = waiting.join().unwrap().unwrap_err();
        let over = matches!(error, OperationError::Ended(_) | OperationError::Disconnected);
        assert!(over, "{error:?}");
    });
    let (client, _server) = ends(&Config::default(), [2, 2], [4, 4]);
    drop(client.receiver);
    let error = client.credits.reserve().wait_timeout(DEADLINE).unwrap_err();
    assert!(matches!(error, OperationError::Disconnected), "{error:?}");
}

/// 64 calls under way against 32 receives: without credits the 33rd would end the connection.
#[cfg(feature = "tokio")]
#[test]
fn more_calls_than_receives_wait_for_each_other() {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    crate::tasks::run(async {
        const CALLS: u32 = 50;
        let (client, server) = ends(&Config::default(), [8, 32], [10, 34]);
        let End { session: serving, credits: answers, receiver: mut questions, .. } = server;
        let server = tokio::spawn(async move {
            let mut count = 0;
            while let Some(question) = questions.recv().await.unwrap() {
                count += 1;
                // Not always at once.
                if count % 7 == 0 {
                    tokio::task::yield_now().await;
                }
                drop(answers.reserve().await.unwrap().send(question.block));
            }
            drop(serving);
            count
        });
        let waiting = std::sync::Arc::new(Mutex::new(HashMap::<u32, oneshot::Sender<()>>::new()));
        let End { session, credits, mut receiver, .. } = client;
        let dispatch = tokio::spawn({
            let waiting = waiting.clone();
            async move {
                for _ in 0..64 * CALLS {
                    let answer = receiver.recv().await.unwrap().unwrap();
                    let caller = waiting.lock().unwrap().remove(&number(&answer.block));
                    caller.expect("one answer for each question").send(()).unwrap();
                }
                receiver
            }
        });
        let mut calls = tokio::task::JoinSet::new();
        for task in 0..64 {
            let (credits, waiting) = (credits.clone(), waiting.clone());
            calls.spawn(async move {
                for n in 0..CALLS {
                    let id = task * CALLS + n;
                    let credit = credits.reserve().await.unwrap();
                    let (sender, answered) = oneshot::channel();
                    waiting.lock().unwrap().insert(id, sender);
                    credit.send_inline(&id.to_be_bytes()).await.unwrap();
                    answered.await.unwrap();
                }
            });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap();
        }
        let mut receiver = dispatch.await.unwrap();
        session.close().await.unwrap();
        assert!(receiver.recv().await.unwrap().is_none());
        assert_eq!(server.await.unwrap(), 64 * CALLS);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn credits_that_were_waited_for_do_not_leak() {
    use crate::cancel_safety::{POLLS, after};

    for polls in POLLS {
        crate::tasks::run(async move {
            let (client, server) = ends(&Config::new().max_sends(2), [1, 3], [3, 5]);
            let End { session: serving, mut receiver, .. } = server;
            let taking = tokio::spawn(async move {
                let mut count = 0;
                while receiver.recv().await.unwrap().is_some() {
                    count += 1;
                }
                drop(serving);
                count
            });
            let mut tasks = tokio::task::JoinSet::new();
            for n in 0..6 {
                let credits = client.credits.clone();
                tasks.spawn(async move {
                    let mut sent = 0;
                    for _ in 0..30 {
                        // Half of them give up, and send where they need not wait so long.
                        if n % 3 == 2 {
                            let both = match n % 2 {
                                0 => after(polls, credits.reserve_many(2)).await,
                                _ => Some(credits.reserve_many(2).await),
                            };
                            for credit in both.into_iter().flat_map(Result::unwrap) {
                                drop(credit.send_inline(b"x"));
                                sent += 1;
                            }
                            continue;
                        }
                        let credit = match n % 2 {
                            0 => after(polls, credits.reserve()).await,
                            _ => Some(credits.reserve().await),
                        };
                        if let Some(credit) = credit {
                            drop(credit.unwrap().send_inline(b"x"));
                            sent += 1;
                        }
                    }
                    sent
                });
            }
            let mut sent = 0;
            while let Some(outcome) = tasks.join_next().await {
                sent += outcome.unwrap();
            }
            let End { session, receiver, .. } = client;
            session.close().await.unwrap();
            assert_eq!(taking.await.unwrap(), sent, "{polls} polls");
            drop(receiver);
        });
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_that_waits_is_served_when_the_runtime_that_drove_the_session_is_gone() {
    use crate::cancel_safety::after;
    use crate::tasks::current_thread;

    let (mut client, mut server) = ends(&Config::default(), [2, 2], [4, 4]);
    (0..2).for_each(|n| send(&client.credits, n));
    let [first, second] = [0; 2].map(|_| current_thread());
    // The first that waits has its runtime look after the session.
    assert!(first.block_on(after(3, client.receiver.recv())).is_none());
    let waiting = second.spawn(client.credits.reserve());
    second.block_on(tokio::task::yield_now());
    drop(first);
    assert_eq!((next(&mut server.receiver), next(&mut server.receiver)), (Some(0), Some(1)));
    let served = async { tokio::time::timeout(DEADLINE, waiting).await };
    drop(second.block_on(served).expect("nobody looks after it").unwrap().unwrap());
}
