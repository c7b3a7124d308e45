// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions in tokio tasks: nothing is lost, mistaken or leaked, whenever a future is dropped.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use iwarp::{Access, Device, Options, ProtectionDomain};
use iwarp_session::{
    Block, BlockPool, Config, Failure, Listener, OperationError, Pending, Received, Session,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cancel_safety::after;
use crate::common::census::descriptors;
use crate::common::process::{passed_apart, this_test};
use crate::common::sessions::remote;
use crate::common::{DEADLINE, pattern, until};

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a test on one thread; nothing may take longer than the deadline.
pub(crate) fn run(test: impl Future<Output = ()>) {
    current_thread().block_on(async { timeout(DEADLINE, test).await.expect("it takes too long") });
}

pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) session: Session,
    pub(crate) early: Vec<Pending<Received>>,
}

fn device() -> Device {
    Device::with_options(Options::default()).unwrap()
}

fn listen(pd: &ProtectionDomain) -> Listener {
    Listener::bind(pd, "127.0.0.1:0").unwrap()
}

/// Two ends, each a device of its own; the server (second) has receives of `len` bytes posted
/// before anything can arrive.
pub(crate) async fn pair(config: &Config, receives: usize, len: usize) -> (End, End) {
    let (client, server) = (device().alloc_pd(), device().alloc_pd());
    let listener = listen(&server);
    let connecting = config.connect(&client, listener.local_addr().unwrap());
    let request = listener.accept().await.unwrap();
    let prepared = config.prepare(&server).unwrap();
    let block = || Block::new(&server, len).unwrap();
    let early = (0..receives).map(|_| prepared.recv(block())).collect();
    let session = prepared.accept(request).await.unwrap();
    let server = End { pd: server, session, early };
    let session = connecting.await.unwrap();
    (End { pd: client, session, early: Vec::new() }, server)
}

pub(crate) async fn default_pair() -> (End, End) {
    pair(&Config::default(), 0, 0).await
}

pub(crate) fn all() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Lets the runtime work until there is something.
pub(crate) async fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let looking = async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(DEADLINE, looking).await.unwrap_or_else(|_| panic!("waited too long for {what}"));
}

/// A small generator, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn messages_go_back_and_forth() {
    run(async {
        let (client, mut server) = pair(&Config::default(), 1, 256).await;
        let echo = async {
            let mut next = server.early.remove(0);
            let mut spare = Block::new(&server.pd, 256).unwrap();
            for _ in 0..500 {
                let Received { mut block, .. } = next.await.unwrap();
                block.reverse();
                next = server.session.recv(spare);
                spare = server.session.send(block).await.unwrap();
            }
        };
        let play = async {
            let mut ball = Block::new(&client.pd, 256).unwrap();
            let mut spare = Block::new(&client.pd, 256).unwrap();
            for round in 0..500_usize {
                let octets = pattern(round % 257, round as u64);
                let back = client.session.recv(spare);
                ball.fill_from(&octets);
                ball = client.session.send(ball).await.unwrap();
                spare = back.await.unwrap().block;
                assert!(spare.iter().rev().eq(&octets), "round {round}");
            }
        };
        tokio::join!(echo, play);
    });
}

#[test]
fn many_operations_are_under_way_at_once() {
    run(async {
        let (client, mut server) = pair(&Config::default(), 100, 1000).await;
        let content = |n: usize| pattern(n * 10, n as u64);
        let mut tasks = JoinSet::new();
        for (n, receive) in server.early.drain(..).enumerate() {
            tasks.spawn(async move { assert!(*receive.await.unwrap().block == content(n)) });
        }
        for n in 0..100 {
            let mut block = Block::new(&client.pd, 1000).unwrap();
            block.fill_from(&content(n));
            let send = client.session.send(block);
            tasks.spawn(async move { assert!(*send.await.unwrap() == content(n)) });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
    });
}

/// Operations of all kinds, most of which are not waited for to the end.
#[test]
fn a_storm_of_cancellations_loses_no_block_and_mixes_up_nothing() {
    const SLOT: usize = 2048;
    for seed in 1..=4 {
        run(async move {
            let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
            let (client, server) = default_pair().await;
            let pool = BlockPool::new(&client.pd, SLOT, 64).unwrap();
            let echoes = BlockPool::new(&server.pd, SLOT, 64).unwrap();
            let table = server.session.expose(64 * SLOT, all()).unwrap();
            let expected: Vec<u8> = pattern(64 * SLOT, seed);
            table.write_at(0, &expected);
            let counter = server.session.expose(8, all()).unwrap();
            let (table, counter) = (remote(&table), remote(&counter));
            let (mut added, mut kept) = (0, 0);

            for round in 0..1500_u64 {
                let Some(mut block) = pool.try_take() else {
                    // All are with operations that no task waits for.
                    tokio::task::yield_now().await;
                    continue;
                };
                // Long enough to be done, at once, or anything between.
                let patience =
                    Duration::from_micros([0, 30, 300, 20_000_000][random.below(4) as usize]);
                match random.below(4) {
                    0 => {
                        let at = random.below(64) as usize * SLOT;
                        let read = client.session.read(&table, at as u64, block);
                        if let Ok(read) = timeout(patience, read).await {
                            assert!(*read.unwrap() == expected[at..at + SLOT], "round {round}");
                            kept += 1;
                        }
                    }
                    1 => {
                        drop(block);
                        let sum = client.session.fetch_add(&counter, 0, 1);
                        match timeout(patience, sum).await {
                            Ok(Ok(before)) => {
                                assert_eq!(before, added, "round {round}");
                                kept += 1;
                            }
                            // Not posted, so not counted.
                            Ok(Err(Failure { error: OperationError::QueueFull, .. })) => continue,
                            Ok(Err(failure)) => panic!("round {round}: {failure:?}"),
                            Err(_) => {}
                        }
                        added += 1;
                    }
                    2 => {
                        let Some(echo) = echoes.try_take() else { continue };
                        let there = server.session.recv(echo);
                        block.fill_from(&pattern(round as usize % SLOT, round));
                        drop(client.session.send(block));
                        let message = there.await.unwrap().block;
                        assert!(*message == pattern(round as usize % SLOT, round));
                    }
                    _ => {
                        // One that is polled once, and dropped.
                        let at = random.below(64) * SLOT as u64;
                        let mut read = client.session.read(&table, at, block);
                        let mut context = Context::from_waker(Waker::noop());
                        let _ = Pin::new(&mut read).poll(&mut context);
                    }
                }
            }
            assert!(kept > 100, "something was waited for: {kept}");
            // An operation that is posted now completes behind all the rest.
            assert_eq!(client.session.fetch_add(&counter, 0, 0).await.unwrap(), added);
            eventually("the blocks", || pool.available() == 64 && echoes.available() == 64).await;
        });
    }
}

#[test]
fn a_receive_survives_the_timeout_around_it() {
    run(async {
        let (client, server) = default_pair().await;
        let mut receive = client.session.recv(Block::new(&client.pd, 64).unwrap());
        assert!(timeout(Duration::from_millis(10), &mut receive).await.is_err());
        server.session.send_inline(b"late").await.unwrap();
        assert_eq!(&*receive.await.unwrap().block, b"late");
    });
}

#[test]
fn when_the_peer_vanishes_everything_ends_with_an_error() {
    run(async {
        let (client, server) = default_pair().await;
        let pool = BlockPool::new(&client.pd, 4096, 64).unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..64 {
            let receive = client.session.recv(pool.try_take().unwrap());
            tasks.spawn(receive);
        }
        tokio::task::yield_now().await;
        server.session.abort();
        while let Some(outcome) = tasks.join_next().await {
            let failure = outcome.unwrap().unwrap_err();
            assert!(matches!(failure.error, OperationError::Disconnected), "{failure:?}");
            assert!(failure.block.is_some());
        }
        assert_eq!(pool.available(), 64);
    });
}

#[test]
fn closing_delivers_what_was_sent_and_ends_the_rest() {
    run(async {
        let (client, mut server) = pair(&Config::default(), 40, 100_000).await;
        let pool = BlockPool::new(&client.pd, 100_000, 50).unwrap();
        let never = client.session.recv(pool.try_take().unwrap());
        for n in 0..40_u8 {
            let mut block = pool.try_take().unwrap();
            block.fill(n);
            drop(client.session.send(block));
        }
        let reading = async {
            for (n, receive) in server.early.drain(..).enumerate() {
                let block = receive.await.unwrap().block;
                assert!(block.len() == 100_000 && block.iter().all(|&o| usize::from(o) == n));
            }
        };
        let closing = async {
            client.session.close().await.unwrap();
            let failure = never.await.unwrap_err();
            assert!(matches!(failure.error, OperationError::Disconnected));
        };
        tokio::join!(reading, closing);
        assert_eq!(pool.available(), 50);
    });
}

#[test]
fn a_dropped_session_delivers_what_was_sent_without_anybody_waiting() {
    run(async {
        let (client, mut server) = pair(&Config::default(), 40, 100_000).await;
        let pool = BlockPool::new(&client.pd, 100_000, 40).unwrap();
        for n in 0..40_u8 {
            let mut block = pool.try_take().unwrap();
            block.fill(n);
            drop(client.session.send(block));
        }
        drop(client);
        for (n, receive) in server.early.drain(..).enumerate() {
            let block = receive.await.unwrap().block;
            assert!(block.len() == 100_000 && block.iter().all(|&o| usize::from(o) == n));
        }
        eventually("the blocks", || pool.available() == 40).await;
    });
}

#[test]
fn sixty_four_connections_share_one_thread() {
    const CONNECTIONS: u64 = 64;
    const ROUNDS: u64 = 20;
    run(async {
        let server = device();
        let listener = listen(&server.alloc_pd());
        let addr = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let client = device();
        let pd = client.alloc_pd();
        for n in 0..CONNECTIONS {
            let pd = pd.clone();
            tasks.spawn(async move {
                let session = Session::connect(&pd, addr).await.unwrap();
                let mut block = Block::new(&pd, 4096).unwrap();
                for round in 0..ROUNDS {
                    let octets = pattern(4096, n << 32 | round);
                    let back = session.recv(Block::new(&pd, 4096).unwrap());
                    block.fill_from(&octets);
                    block = session.send(block).await.unwrap();
                    assert!(*back.await.unwrap().block == octets, "{n}, round {round}");
                }
                session.close().await.unwrap();
            });
        }
        for _ in 0..CONNECTIONS {
            let request = listener.accept().await.unwrap();
            tasks.spawn(async move {
                let pd = request.pd().clone();
                let prepared = Config::default().prepare(&pd).unwrap();
                let mut next = prepared.recv(Block::new(&pd, 4096).unwrap());
                let session = prepared.accept(request).await.unwrap();
                let mut spare = Block::new(&pd, 4096).unwrap();
                for _ in 0..ROUNDS {
                    let block = next.await.unwrap().block;
                    next = session.recv(spare);
                    spare = session.send(block).await.unwrap();
                }
                assert!(next.await.is_err(), "the client closes");
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
        eventually("the connections to end", || {
            (client.connections(), server.connections()) == (0, 0)
        })
        .await;
    });
}

#[test]
fn giving_up_connecting_and_accepting_leaves_nothing() {
    // Other tests have descriptors of their own.
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    run(async {
        let device = device();
        let pd = device.alloc_pd();
        let listener = listen(&pd);
        let addr = listener.local_addr().unwrap();
        let mut first = None;
        for round in 0..20_u64 {
            let connecting = Session::connect(&pd, addr);
            let _ = timeout(Duration::from_micros(round * 50), connecting).await;
            // The request may have come, or not.
            let _ = timeout(Duration::from_micros(500), listener.accept()).await;
            // One that is not given up, so that those before it have had their time.
            let connecting = Session::connect(&pd, addr);
            let accepting = async {
                loop {
                    let request = listener.accept().await.unwrap();
                    if let Ok(session) = Session::accept(request).await
                        && session.is_connected()
                    {
                        return session;
                    }
                }
            };
            let (one, other) = tokio::join!(connecting, accepting);
            drop((one.unwrap(), other));
            eventually("the connections to end", || device.connections() == 0).await;
            first.get_or_insert_with(descriptors);
        }
        let first = first.unwrap();
        eventually("the descriptors", || descriptors() <= first).await;
    });
}

#[test]
fn operations_outlive_the_runtime_they_were_awaited_on() {
    let first = current_thread();
    let (client, server) = first.block_on(default_pair());
    let mut receive = client.session.recv(Block::new(&client.pd, 64).unwrap());
    first.block_on(async {
        // Spawns the driver there.
        assert!(timeout(Duration::from_millis(5), &mut receive).await.is_err());
    });
    drop(first);
    run(async {
        server.session.send_inline(b"hello").await.unwrap();
        assert_eq!(&*receive.await.unwrap().block, b"hello");
    });
}

#[test]
fn a_block_comes_back_when_the_runtime_that_drove_its_session_is_gone() {
    let [first, second] = [0; 2].map(|_| current_thread());
    let (client, server) = first.block_on(default_pair());
    let pool = BlockPool::new(&client.pd, 64, 1).unwrap();
    // The first that waits has its runtime look after the session; then no task waits for the
    // receive that has the block.
    let receive = client.session.recv(pool.try_take().unwrap());
    assert!(first.block_on(after(3, receive)).is_none());
    let waiting = second.spawn(pool.take());
    second.block_on(tokio::task::yield_now());
    drop(first);
    server.session.send_inline(b"hello").wait().unwrap();
    let taken = second.block_on(async { timeout(DEADLINE, waiting).await });
    drop(taken.expect("nobody looks after it").unwrap().unwrap());
}

#[test]
fn threads_and_tasks_wait_for_operations_of_one_session() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = default_pair().await;
        let table = server.session.expose(1 << 16, all()).unwrap();
        table.write_at(0, &pattern(1 << 16, 9));
        let (grant, session) = (remote(&table), std::sync::Arc::new(client.session));
        let mut tasks = JoinSet::new();
        for n in 0..8_usize {
            let (session, pd) = (session.clone(), client.pd.clone());
            let read = move |block| session.read(&grant, n as u64 * 4096, block);
            let block = Block::new(&pd, 4096).unwrap();
            let check = move |block: &Block| {
                assert!(**block == pattern(1 << 16, 9)[n * 4096..][..4096]);
            };
            if n % 2 == 0 {
                tasks.spawn(async move {
                    let mut block = block;
                    for _ in 0..200 {
                        block = timeout(DEADLINE, read(block)).await.unwrap().unwrap();
                        check(&block);
                    }
                });
            } else {
                tasks.spawn_blocking(move || {
                    let mut block = block;
                    for _ in 0..200 {
                        block = read(block).wait_timeout(DEADLINE).unwrap().unwrap();
                        check(&block);
                    }
                });
            }
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
    });
}

#[test]
fn a_task_that_waits_uses_no_cpu() {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    run(async {
        let (client, server) = default_pair().await;
        let mut receive = client.session.recv(Block::new(&client.pd, 64).unwrap());
        let nanos = |time: rustix::time::Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let before = nanos(cpu());
        assert!(timeout(Duration::from_millis(300), &mut receive).await.is_err());
        let used = nanos(cpu()) - before;
        assert!(used < 30_000_000, "{used} ns of 300 ms");
        drop(server);
        assert!(receive.await.is_err());
    });
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let (client, _server) = current_thread().block_on(default_pair());
    let pool = BlockPool::new(&client.pd, 64, 1).unwrap();
    let mut receive = pin!(client.session.recv(pool.try_take().unwrap()));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(Failure { error, block: None, .. })) = receive.as_mut().poll(&mut context)
    else {
        panic!("nobody can wake it");
    };
    assert!(matches!(error, OperationError::Wait(_)), "{error:?}");
    drop(client.session);
    until("the block", || (pool.available() == 1).then_some(()));
}
