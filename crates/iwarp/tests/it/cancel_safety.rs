// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every future of a session is dropped after every number of polls: no message is lost, none comes
//! twice, and no block and no place leaks.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_core::Stream;
use iwarp::cm::ConnectParams;
use iwarp::{Access, Device, Ended, Options};
use iwarp_session::{BlockPool, Config, Listener, Receiver, RemoteGrant, Session};
use tokio::task::JoinSet;

use crate::common::sessions::{SessionEnd, pair, pair_with};
use crate::tasks::{eventually, run};

/// Polls after which futures are dropped: those in which they register, and some that catch them
/// when half of what they wait for has happened.
pub(crate) const POLLS: [usize; 7] = [1, 2, 3, 4, 10, 50, 400];

/// A future that is dropped when it is pending after so many polls, between which other tasks run.
pub(crate) async fn after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// One future after the other, each dropped after so many polls, until one was ready before.
async fn insist<F: Future>(polls: usize, mut next: impl FnMut() -> F) -> F::Output {
    loop {
        if let Some(output) = after(polls, next()).await {
            return output;
        }
        tokio::task::yield_now().await;
    }
}

fn receiving(depth: usize) -> (SessionEnd, SessionEnd, Receiver, BlockPool) {
    let (client, server, (receiver, pool)) = pair_with(&Config::default(), |pd, prepared| {
        let pool = BlockPool::new(pd, 64, depth).unwrap();
        (prepared.receiver(&pool, depth).unwrap(), pool)
    });
    (client, server, receiver, pool)
}

/// The next message, or the end.
struct NextItem<'a>(&'a mut Receiver);

impl Future for NextItem<'_> {
    type Output = Option<<Receiver as Stream>::Item>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll_next(context)
    }
}

#[test]
fn a_receiver_loses_no_message_and_gives_none_twice() {
    for (polls, as_stream) in POLLS.into_iter().flat_map(|polls| [(polls, false), (polls, true)]) {
        run(async move {
            const MESSAGES: u32 = 100;
            let (client, server, mut receiver, pool) = receiving(2 * MESSAGES as usize);
            let sending = async {
                for n in 0..MESSAGES {
                    client.session.send_inline(&n.to_be_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
                client.session.close().await.unwrap();
            };
            let taking = async {
                let mut expected = 0_u32;
                loop {
                    let next = loop {
                        let cancelled = match as_stream {
                            true => {
                                let next = after(polls, NextItem(&mut receiver)).await;
                                next.map(Option::transpose)
                            }
                            false => after(polls, receiver.recv()).await,
                        };
                        match cancelled {
                            Some(next) => break next.unwrap(),
                            None => tokio::task::yield_now().await,
                        }
                    };
                    let Some(message) = next else { break };
                    assert_eq!(*message.block, expected.to_be_bytes(), "{polls} polls");
                    expected += 1;
                }
                assert_eq!(expected, MESSAGES);
            };
            tokio::join!(sending, taking);
            drop((receiver, server));
            let all = 2 * MESSAGES as usize;
            eventually("the blocks", || pool.available() == all).await;
        });
    }
}

#[test]
fn blocks_that_were_waited_for_do_not_leak() {
    for polls in POLLS {
        run(async move {
            let (client, _server) = pair(&Config::default());
            let pool = BlockPool::new(&client.pd, 64, 2).unwrap();
            let mut tasks = JoinSet::new();
            for n in 0..8 {
                let pool = pool.clone();
                tasks.spawn(async move {
                    for _ in 0..50 {
                        // Half of them give up.
                        if n % 2 == 0 {
                            drop(after(polls, pool.take()).await);
                        } else {
                            let block = pool.take().await.unwrap();
                            tokio::task::yield_now().await;
                            drop(block);
                        }
                    }
                });
            }
            while let Some(outcome) = tasks.join_next().await {
                outcome.unwrap();
            }
            assert_eq!(pool.available(), 2);
        });
    }
}

#[test]
fn places_that_were_waited_for_do_not_leak() {
    for polls in POLLS {
        run(async move {
            const SENDS: usize = 3;
            let (client, server) = pair(&Config::new().max_sends(SENDS));
            let counter = server.session.expose(8, Access::REMOTE_ATOMIC).unwrap();
            let grant = RemoteGrant::from_octets(&counter.grant().to_octets());
            let session = std::sync::Arc::new(client.session);
            let mut tasks = JoinSet::new();
            for n in 0..8 {
                let session = session.clone();
                tasks.spawn(async move {
                    let mut added = 0;
                    for _ in 0..50 {
                        if n % 3 == 2 {
                            let both = match n % 2 {
                                0 => after(polls, session.reserve_many(2)).await,
                                _ => Some(session.reserve_many(2).await),
                            };
                            for permit in both.into_iter().flat_map(Result::unwrap) {
                                drop(permit.fetch_add(&grant, 0, 1));
                                added += 1;
                            }
                            continue;
                        }
                        let permit = match n % 2 {
                            0 => after(polls, session.reserve()).await,
                            _ => Some(session.reserve().await),
                        };
                        if let Some(permit) = permit {
                            // Dropped before it is done, too.
                            let sum = permit.unwrap().fetch_add(&grant, 0, 1);
                            if let Some(before) = after(polls, sum).await {
                                before.unwrap();
                            }
                            added += 1;
                        }
                    }
                    added
                });
            }
            let mut added = 0;
            while let Some(outcome) = tasks.join_next().await {
                added += outcome.unwrap();
            }
            let sum = session.reserve().await.unwrap().fetch_add(&grant, 0, 0).await.unwrap();
            assert_eq!(sum, added);
            eventually("the places", || {
                let all: Vec<_> = std::iter::from_fn(|| session.try_reserve()).collect();
                all.len() == SENDS
            })
            .await;
        });
    }
}

#[test]
fn operations_that_nobody_waits_for_any_more_give_their_blocks_back() {
    for polls in [0].into_iter().chain(POLLS) {
        run(async move {
            let (client, server, receiver, received) = receiving(8);
            let pool = BlockPool::new(&client.pd, 64, 3).unwrap();
            let memory = server.session.expose(64, Access::REMOTE).unwrap();
            let grant = RemoteGrant::from_octets(&memory.grant().to_octets());
            for _ in 0..2 {
                let (one, two) = (pool.take().await.unwrap(), pool.take().await.unwrap());
                drop(after(polls, client.session.send(one)).await);
                drop(after(polls, client.session.read(&grant, 0, two)).await);
                let written = pool.take().await.unwrap();
                drop(after(polls, client.session.write(written, &grant, 0)).await);
                drop(after(polls, client.session.fetch_add(&grant, 0, 1)).await);
                eventually("the blocks", || pool.available() == 3).await;
                let mut batch = client.session.batch();
                let (one, two) = (pool.take().await.unwrap(), pool.take().await.unwrap());
                let (one, two) = (batch.write(one, &grant, 0), batch.read(&grant, 0, two));
                // Waiting posts it.
                drop(after(polls, one).await);
                drop(batch);
                drop(after(polls, two).await);
                eventually("the blocks", || pool.available() == 3).await;
            }
            drop(after(polls, client.session.recv(pool.take().await.unwrap())).await);
            let _ = after(polls, client.session.closed()).await;
            drop(after(polls, async { client.session.close().await }).await);
            assert_eq!(server.session.closed().await, Ended::Closed);
            drop((receiver, server));
            eventually("all", || pool.available() == 3 && received.available() == 8).await;
        });
    }
}

#[test]
fn connections_that_are_given_up_are_gone_and_no_request_is_lost() {
    for polls in [0].into_iter().chain(POLLS) {
        run(async move {
            let device = Device::with_options(Options::default()).unwrap();
            let pd = device.alloc_pd();
            let listener = Listener::bind(&pd, "127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            drop(after(polls, Session::connect(&pd, addr)).await);
            let params = ConnectParams::default().private_data(b"stays");
            let connecting = tokio::spawn(Config::new().params(params).connect(&pd, addr));
            let session = loop {
                let request = insist(polls.max(1), || listener.accept()).await.unwrap();
                // The first was given up by its peer.
                if request.private_data() == b"stays" {
                    break Session::accept(request).await.unwrap();
                }
            };
            drop((connecting.await.unwrap().unwrap(), session));
            eventually("the connections to end", || device.connections() == 0).await;
        });
    }
}
