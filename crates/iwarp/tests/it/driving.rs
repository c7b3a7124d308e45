// SPDX-License-Identifier: MIT OR Apache-2.0

//! The task that drives a session: what its turns leave, and what becomes of it when it gets none.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use iwarp_session::{Block, Config, Session};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::sessions::remote;
use crate::common::{DEADLINE, until};
use crate::tasks::{End, all, current_thread, default_pair, pair, run};

/// Tasks that are woken by one turn of the driver.
const TASKS: usize = 8;

/// Reads by so many tasks, under way at once; then each sends its number, and waits no more.
/// The session, which ends when it is dropped.
async fn read_and_tell(client: End, server: &End) -> Arc<Session> {
    let own = server.session.expose(64, all()).unwrap();
    let (from, session) = (remote(&own), Arc::new(client.session));
    let mut tells = JoinSet::new();
    for number in 0..TASKS as u8 {
        let (session, mut block) = (Arc::clone(&session), Block::new(&client.pd, 64).unwrap());
        tells.spawn(async move {
            // Soon one turn of the driver brings what all of them wait for.
            for _ in 0..50 {
                block = session.read(&from, 0, block).await.unwrap();
            }
            drop(session.send_inline(&[number]));
        });
    }
    all_of(tells).await;
    session
}

async fn all_of(mut tasks: JoinSet<()>) {
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    timeout(DEADLINE, all).await.expect("an operation is never done");
}

/// The numbers that the server's receives have got.
fn told(server: &mut End) -> Vec<u8> {
    let early = server.early.drain(..);
    let mut told: Vec<_> = early
        .map(|receive| {
            let received = receive.wait_timeout(DEADLINE).expect("a message is lost").unwrap();
            assert_eq!(received.block.len(), 1);
            received.block[0]
        })
        .collect();
    told.sort_unstable();
    told
}

#[test]
fn posts_of_woken_tasks_go_out_without_a_wait() {
    let runtime = current_thread();
    let (client, mut server) = runtime.block_on(pair(&Config::default(), TASKS, 16));
    let session = runtime.block_on(read_and_tell(client, &server));
    let numbers = (0..TASKS as u8).collect::<Vec<_>>();
    // The driver has its turn after them.
    let told = thread::spawn(move || told(&mut server));
    runtime.block_on(async {
        while !told.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(told.join().unwrap(), numbers);
    drop(session);
}

#[test]
fn it_goes_out_with_the_end_of_their_runtime() {
    let runtime = current_thread();
    let (client, mut server) = runtime.block_on(pair(&Config::default(), TASKS, 16));
    let session = runtime.block_on(read_and_tell(client, &server));
    drop(runtime);
    assert_eq!(told(&mut server), (0..TASKS as u8).collect::<Vec<_>>());
    drop(session);
}

#[test]
fn tasks_on_several_threads_lose_nothing() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = default_pair().await;
        let own = server.session.expose(64, all()).unwrap();
        let from = remote(&own);
        let (session, pd) = (Arc::new(client.session), client.pd);
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (session, mut block) = (session.clone(), Block::new(&pd, 64).unwrap());
            tasks.spawn(async move {
                for _ in 0..500 {
                    block = session.read(&from, 0, block).await.unwrap();
                }
            });
        }
        all_of(tasks).await;
    });
}

/// The only thread of a runtime does something else: the worker takes its place.
#[test]
fn the_peer_of_a_busy_runtime_is_served() {
    run(async {
        let (client, server) = default_pair().await;
        let own = server.session.expose(64, all()).unwrap();
        // The driver has been in time so far.
        let mut block = Block::new(&client.pd, 64).unwrap();
        for _ in 0..500 {
            let receive = server.session.recv(Block::new(&server.pd, 64).unwrap());
            block = client.session.send(block).await.unwrap();
            receive.await.unwrap();
        }
        let from = remote(&own);
        let reader = thread::spawn(move || {
            for _ in 0..100 {
                let read = client.session.read(&from, 0, block).wait_timeout(DEADLINE);
                block = read.expect("nobody answers").unwrap();
            }
        });
        // This thread polls no task meanwhile.
        reader.join().unwrap();
        drop(own);
    });
}

/// More than the sockets hold is under way in both directions, and not received at first.
#[test]
fn a_driver_goes_on_when_there_is_room_again() {
    const LEN: usize = 1 << 20;
    run(async {
        let (client, server) = pair(&Config::default(), 0, 0).await;
        let block = |end: &End| Block::new(&end.pd, LEN).unwrap();
        let (there, back) = (server.session.expose(LEN, all()), client.session.expose(LEN, all()));
        let (there, back) = (there.unwrap(), back.unwrap());
        for _ in 0..4 {
            let writes =
                [(); 16].map(|()| client.session.write(block(&client), &remote(&there), 0));
            let others = [(); 16].map(|()| server.session.write(block(&server), &remote(&back), 0));
            for write in writes.into_iter().chain(others) {
                write.await.unwrap();
            }
        }
    });
}

/// The peer closes right behind its last message, which the driver may read together with the end.
#[test]
fn the_end_behind_a_message_is_not_overlooked() {
    for _ in 0..20 {
        run(async {
            let (client, mut server) = pair(&Config::default(), 2, 64).await;
            let last = server.early.pop().unwrap();
            let first = server.early.pop().unwrap();
            drop(client.session.send_inline(b"last words"));
            drop(client);
            assert_eq!(&*first.await.unwrap().block, b"last words");
            last.await.unwrap_err();
        });
    }
}

/// Sessions that end while their driver sleeps leave it nothing to wait for.
#[test]
fn no_driver_outlives_its_session() {
    let runtime = current_thread();
    let (client, server) = runtime.block_on(default_pair());
    let mut receive = client.session.recv(Block::new(&client.pd, 64).unwrap());
    runtime.block_on(async {
        let waiting = timeout(Duration::from_millis(5), &mut receive);
        assert!(waiting.await.is_err());
    });
    assert_eq!(runtime.metrics().num_alive_tasks(), 1);
    drop((receive, client, server));
    until("the driver's end", || {
        runtime.block_on(tokio::task::yield_now());
        (runtime.metrics().num_alive_tasks() == 0).then_some(())
    });
}
