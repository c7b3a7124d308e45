// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that are put into a sink.

use std::time::Duration;

use futures_util::{SinkExt, TryStreamExt, future};
use iwarp::Ended;
use iwarp_session::{Block, BlockPool, Config, OperationError, Receiver, Sender};

use crate::cancel_safety::{POLLS, after};
use crate::common::DEADLINE;
use crate::common::sessions::{SessionEnd, block_of, pair, pair_with};
use crate::credits::{End, ends};
use crate::tasks::{current_thread, eventually, run};

/// A pair whose second end receives so many messages.
fn receiving(config: &Config, depth: usize) -> (SessionEnd, SessionEnd, Receiver) {
    pair_with(config, |pd, prepared| {
        let pool = BlockPool::new(pd, 64, depth).unwrap();
        prepared.receiver(&pool, depth).unwrap()
    })
}

async fn next(receiver: &mut Receiver) -> Option<u32> {
    let message = receiver.recv().await.unwrap()?;
    Some(u32::from_be_bytes(message.block[..].try_into().unwrap()))
}

async fn numbered(pool: &BlockPool, n: u32) -> Block {
    let mut block = pool.take().await.unwrap();
    block.fill_from(&n.to_be_bytes());
    block
}

#[test]
fn a_sink_sends_more_than_the_queue_has_places() {
    run(async {
        const MESSAGES: u32 = 128;
        let config = Config::new().max_sends(3);
        let (client, _server, mut receiver) = receiving(&config, MESSAGES as usize);
        let pool = BlockPool::new(&client.pd, 64, 8).unwrap();
        let mut sender = client.session.sender();
        let sending = async {
            for n in 0..MESSAGES {
                sender.feed(numbered(&pool, n).await).await.unwrap();
            }
            sender.close().await.unwrap();
        };
        let taking = async {
            for n in 0..MESSAGES {
                assert_eq!(next(&mut receiver).await, Some(n));
            }
            // The sink has closed the connection.
            assert_eq!(next(&mut receiver).await, None);
        };
        future::join(sending, taking).await;
        assert_eq!((client.session.closed().await, pool.available()), (Ended::Closed, 8));
        // Over is over, and closing again is no error.
        sender.close().await.unwrap();
        let over = sender.send(pool.take().await.unwrap()).await;
        assert!(matches!(over, Err(OperationError::Disconnected)), "{over:?}");
    });
}

#[test]
fn flushing_waits_until_the_blocks_are_back() {
    run(async {
        let (client, _server, mut receiver) = receiving(&Config::default(), 64);
        let pool = BlockPool::new(&client.pd, 64, 4).unwrap();
        let mut sender = client.session.sender();
        for round in 0..10 {
            for n in 0..4 {
                sender.feed(numbered(&pool, 4 * round + n).await).await.unwrap();
            }
            sender.flush().await.unwrap();
            assert_eq!(pool.available(), 4);
            for n in 0..4 {
                assert_eq!(next(&mut receiver).await, Some(4 * round + n));
            }
        }
        // Several blocks are one message.
        let mut gathering = client.session.sender::<Vec<Block>>();
        let parts = vec![block_of(&client.pd, &[0, 0]), block_of(&client.pd, &[1, 2])];
        gathering.send(parts).await.unwrap();
        assert_eq!(next(&mut receiver).await, Some(0x0102));
    });
}

#[test]
fn a_sink_with_credits_waits_for_the_peers_receives() {
    run(async {
        const MESSAGES: u32 = 300;
        let (client, mut server) = ends(&Config::new().max_sends(2), [2, 3], [4, 5]);
        let pool = BlockPool::new(client.session.pd(), 64, 8).unwrap();
        let mut sender = client.credits.sender();
        // The messages are not received.
        for n in 0..3 {
            sender.send(numbered(&pool, n).await).await.unwrap();
        }
        let late = future::poll_fn(|context| sender.poll_ready_unpin(context));
        let late = tokio::time::timeout(Duration::from_millis(5), late).await;
        assert!(late.is_err(), "there was no receive for it");
        let sending = async {
            for n in 3..MESSAGES {
                sender.send(numbered(&pool, n).await).await.unwrap();
            }
            sender.close().await.unwrap();
        };
        let taking = async {
            for n in 0..MESSAGES {
                assert_eq!(next(&mut server.receiver).await, Some(n));
            }
            assert_eq!(next(&mut server.receiver).await, None);
        };
        future::join(sending, taking).await;
        assert_eq!(pool.available(), 8);
    });
}

/// The traits that `StreamExt::forward` and its friends need: one error, and nothing but polls.
#[test]
fn a_receiver_is_forwarded_into_a_sender() {
    use futures_util::StreamExt;

    run(async {
        const MESSAGES: u32 = 200;
        let (client, server) = ends(&Config::default(), [4, 4], [6, 6]);
        let End { session, credits, receiver, .. } = server;
        let echo = receiver.map_ok(|message| message.block).forward(credits.sender());
        let echo = tokio::spawn(echo);
        let End { session: asking, credits, mut receiver, .. } = client;
        let sending = async {
            for n in 0..MESSAGES {
                let credit = credits.reserve().await.unwrap();
                credit.send_inline(&n.to_be_bytes()).await.unwrap();
            }
        };
        let taking = async {
            for n in 0..MESSAGES {
                assert_eq!(next(&mut receiver).await, Some(n));
            }
        };
        future::join(sending, taking).await;
        asking.close().await.unwrap();
        echo.await.unwrap().unwrap();
        assert_eq!(session.closed().await, Ended::Closed);
    });
}

#[test]
fn a_sink_that_is_given_up_at_any_moment_loses_nothing() {
    for polls in POLLS {
        run(async move {
            const MESSAGES: u32 = 60;
            let (client, mut server) = ends(&Config::new().max_sends(2), [1, 2], [3, 4]);
            let End { session, credits, receiver, .. } = client;
            let pool = BlockPool::new(session.pd(), 64, 3).unwrap();
            let mut sender: Sender = credits.sender();
            let sending = async {
                for n in 0..MESSAGES {
                    loop {
                        let ready = future::poll_fn(|context| sender.poll_ready_unpin(context));
                        match after(polls, ready).await {
                            Some(ready) => break ready.unwrap(),
                            None => tokio::task::yield_now().await,
                        }
                    }
                    sender.start_send_unpin(numbered(&pool, n).await).unwrap();
                    let _ = after(polls, sender.flush()).await;
                }
                while after(polls, sender.close()).await.is_none() {
                    tokio::task::yield_now().await;
                }
            };
            let taking = async {
                for n in 0..MESSAGES {
                    assert_eq!(next(&mut server.receiver).await, Some(n), "{polls} polls");
                }
                assert_eq!(next(&mut server.receiver).await, None);
            };
            future::join(sending, taking).await;
            drop((sender, credits, receiver, session));
            eventually("the blocks", || pool.available() == 3).await;
        });
    }
}

#[test]
fn a_dropped_sink_gives_its_place_in_the_queue_to_the_next() {
    run(async {
        let (client, _server) = pair(&Config::new().max_sends(1));
        let mut sender: Sender = client.session.sender();
        future::poll_fn(|context| sender.poll_ready_unpin(context)).await.unwrap();
        assert!(client.session.try_reserve().is_none());
        let waiting = client.session.reserve();
        let dropping = async {
            tokio::task::yield_now().await;
            drop(sender);
        };
        let (permit, ()) = future::join(waiting, dropping).await;
        drop(permit.unwrap());
        assert!(client.session.is_connected());
    });
}

#[test]
fn a_sink_tells_of_messages_that_failed_and_closes_nevertheless() {
    run(async {
        let (client, server) = pair(&Config::default());
        let pool = BlockPool::new(&client.pd, 64, 2).unwrap();
        // Of another domain: refused at once.
        let mut sender = client.session.sender();
        let refused = sender.send(block_of(&server.pd, b"foreign")).await;
        assert!(matches!(refused, Err(OperationError::OtherDomain)), "{refused:?}");
        // It has not said that it is ready.
        let unasked = sender.start_send_unpin(pool.take().await.unwrap());
        assert!(matches!(unasked, Err(OperationError::QueueFull)), "{unasked:?}");
        server.session.abort();
        assert_ne!(client.session.closed().await, Ended::Closed);
        let failed = sender.send(pool.take().await.unwrap()).await;
        assert!(matches!(failed, Err(OperationError::Disconnected)), "{failed:?}");
        let closed = tokio::time::timeout(DEADLINE, sender.close()).await;
        closed.expect("closing takes too long").unwrap();
        assert_eq!(pool.available(), 2);
    });
}

#[test]
fn closing_a_sink_outside_a_runtime_is_an_error() {
    let (client, _server) = pair(&Config::default());
    let mut sender: Sender = client.session.sender();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let closed = sender.poll_close_unpin(&mut context);
    let std::task::Poll::Ready(Err(OperationError::Wait(_))) = closed else {
        panic!("{closed:?}");
    };
    current_thread().block_on(sender.close()).unwrap();
    assert!(!client.session.is_connected());
}
