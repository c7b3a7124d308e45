// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that are served by what they do anyway: those that spin on memory by their posts, those
//! that post much by their polls; and a program that does neither is not left waiting. In virtual
//! time: programs take turns, and turns of workers are counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iwarp::{Device, MemoryRegion, Options};

use crate::common::scene::{Actor, Scene};

/// Questions and answers between two counts.
const WINDOW: usize = 400;
/// Windows in which the library learns what the program does.
const LEARNING: usize = 4;
/// Windows in which workers are to sleep.
const STEADY: usize = 10;
/// A worker comes that late to a program that does nothing: a lease, and what it waits for one that
/// may have lost its CPU.
const LATE: Duration = Duration::from_millis(5);

/// Writes `mark` to the peer's memory and takes the completion.
fn ask(scene: &Scene, end: &Actor, source: &MemoryRegion, target: &MemoryRegion, mark: u8) {
    source.buffer().unwrap().write_at(0, &[mark]);
    end.write(1, source.sge(0, 1), target, 0);
    end.sent(scene);
}

/// Spins on memory. False when there is nothing to wait for any more.
fn spin(scene: &Scene, own: &MemoryRegion, mark: u8, done: &AtomicBool) -> bool {
    let word = own.buffer().unwrap().atomic_u8(0);
    scene.until("an answer", || {
        let there = word.load(Ordering::Acquire) == mark;
        if there || done.load(Ordering::Relaxed) { Some(there) } else { None }
    })
}

/// Runs `server` beside windows of `round`, and asserts that workers take less than `limit` turns
/// in each window, once the library knows the program.
fn assert_workers_sleep(
    scene: &Scene,
    limit: u64,
    round: impl Fn(usize) + Sync,
    server: impl Fn(&AtomicBool) + Sync,
) {
    let done = AtomicBool::new(false);
    let client = || {
        let mut counts = Vec::new();
        for window in 0..LEARNING + STEADY {
            let before = scene.turns();
            (0..WINDOW).for_each(|number| round(window * WINDOW + number));
            counts.push(scene.turns() - before);
        }
        done.store(true, Ordering::Relaxed);
        println!("{counts:?} turns in {WINDOW} rounds each");
        let steady = &counts[LEARNING..];
        assert!(steady.iter().all(|count| *count < limit), "{counts:?} turns, limit {limit}");
    };
    scene.act([&client, &|| server(&done)]);
}

/// The calls that post have received the answers.
#[test]
fn a_program_that_spins_on_memory_is_served_by_its_posts() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let [ours, theirs] = [&client, &server].map(|end| (end.region(8), end.region(8)));
    let mark = |number: usize| (number % 255) as u8 + 1;
    let never = AtomicBool::new(false);
    let round = |number: usize| {
        ask(&scene, &client, &ours.0, &theirs.1, mark(number));
        spin(&scene, &ours.1, mark(number), &never);
    };
    let answering = |done: &AtomicBool| {
        let answer = |number: &usize| {
            let asked = spin(&scene, &theirs.1, mark(*number), done);
            if asked {
                ask(&scene, &server, &theirs.0, &ours.1, mark(*number));
            }
            asked
        };
        (0..).take_while(answer).for_each(drop);
    };
    assert_workers_sleep(&scene, WINDOW as u64 / 20, round, answering);
}

/// The queue that is polled all the time and the one that is looked at now and then are of the same
/// connection: it needs no worker.
#[test]
fn a_program_that_polls_one_of_two_queues_is_served_by_its_polls() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let received = |end: &Actor, done: &AtomicBool| {
        scene.until("a message", || {
            let there = end.recv_cq.poll_one().is_some();
            if there || done.load(Ordering::Relaxed) { Some(there) } else { None }
        })
    };
    for end in [&client, &server] {
        (0..8).for_each(|id| end.post_recv(id, &[]));
    }
    let answer = |end: &Actor| {
        end.post_recv(0, &[]);
        end.send(0, &[]);
        end.sent(&scene);
    };
    let never = AtomicBool::new(false);
    let round = |_: usize| {
        answer(&client);
        received(&client, &never);
    };
    let answering = |done: &AtomicBool| {
        while received(&server, done) {
            answer(&server);
        }
    };
    assert_workers_sleep(&scene, WINDOW as u64 / 20, round, answering);
}

/// The program polls once, posts some, and then does nothing with the library at all.
#[test]
fn requests_posted_together_go_out_without_further_calls() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let target = server.region(8);
    let source = client.region(8);
    for round in 1..=400u64 {
        source.buffer().unwrap().write_at(0, &round.to_ne_bytes());
        client.send_cq.poll_one();
        let posts = round % 9 + 1;
        for id in 1..posts {
            client.write(id, source.sge(0, 0), &target, 0);
        }
        client.write(posts, source.whole(), &target, 0);
        let posted = scene.clock.now();
        let word = target.buffer().unwrap().atomic_u64(0);
        scene.until("the last one", || (word.load(Ordering::Acquire) == round).then_some(()));
        let late = scene.clock.now() - posted;
        assert!(late < LATE, "round {round} took {late:?}");
        for id in 1..=posts {
            assert_eq!(client.sent(&scene).wr_id, id);
        }
    }
}

/// The program polls once, arms its queue, posts some, and then sleeps on the descriptor: no time
/// needs to pass until it is told. By then it has to poll, and what waited for that goes out.
#[test]
fn requests_posted_together_go_out_when_the_program_sleeps() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let target = server.region(8);
    let source = client.region(8);
    for round in 1..=200u64 {
        source.buffer().unwrap().write_at(0, &round.to_ne_bytes());
        client.send_cq.poll_one();
        client.send_cq.request_notify(false);
        for id in 1..=5 {
            client.write(id, source.whole(), &target, 0);
        }
        while scene.turn() {}
        assert!(client.send_channel.try_next().is_some(), "round {round} is not told");
        assert!(client.send_cq.waiting() > 0, "round {round} is told for nothing");
        let told = scene.clock.now();
        for id in 1..=5 {
            assert_eq!(client.sent(&scene).wr_id, id);
        }
        let late = scene.clock.now() - told;
        assert!(late < Duration::from_micros(10), "round {round}: polls take {late:?}");
        let arrived = || target.buffer().unwrap().to_vec() == round.to_ne_bytes();
        scene.until("the last one", || arrived().then_some(()));
    }
}

#[test]
fn queues_of_several_workers_may_share_a_channel() {
    let device = Device::with_options(Options::new().workers(3)).unwrap();
    let channel = device.create_comp_channel().unwrap();
    let queues: Vec<_> = (0..9).map(|_| device.create_cq(8, Some(&channel)).unwrap()).collect();
    let mut numbers: Vec<_> = queues.iter().map(iwarp::CompletionQueue::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), queues.len());
}
