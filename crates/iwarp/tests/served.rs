//! Programs that are served by what they do anyway: those that spin on memory by their posts,
//! those that post much by their polls; and nobody is left waiting who does neither.

#[path = "common/channels.rs"]
mod channels;
mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{DEADLINE, End, Setup, until};
use iwarp::{Device, MemoryRegion, Options};

/// Writes `mark` to the peer's memory and takes the completion.
fn ask(end: &End, source: &MemoryRegion, target: &MemoryRegion, mark: u8) {
    source.buffer().unwrap().write_at(0, &[mark]);
    end.write(1, source.sge(0, 1), target, 0);
    end.sent();
}

/// Spins on memory. False when there is nothing to wait for any more.
fn spin(own: &MemoryRegion, mark: u8, done: &AtomicBool) -> bool {
    let word = own.buffer().unwrap().atomic_u8(0);
    let deadline = Instant::now() + DEADLINE;
    while word.load(Ordering::Acquire) != mark {
        if done.load(Ordering::Relaxed) {
            return false;
        }
        assert!(Instant::now() < deadline, "no answer");
        thread::yield_now();
    }
    true
}

/// How often each worker of this process went to sleep so far, by its thread.
fn worker_sleeps() -> HashMap<PathBuf, usize> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let workers = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "iwarp")
    });
    let sleeps = workers.filter_map(|task| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        let sleeps = line.rsplit(char::is_whitespace).next()?.parse().ok()?;
        Some((task, sleeps))
    });
    sleeps.collect()
}

/// How often they have done so since. Those of other tests come and go.
fn sleeps_since(before: &HashMap<PathBuf, usize>) -> usize {
    let now = worker_sleeps();
    now.iter().filter_map(|(task, sleeps)| Some(sleeps.saturating_sub(*before.get(task)?))).sum()
}

/// The calls that post have received the answers: the workers were not needed, which otherwise
/// wake up on both sides for each.
#[test]
fn a_program_that_spins_on_memory_is_served_by_its_posts() {
    const WINDOW: usize = 400;
    let (client, server) = Setup::default().connect();
    let [ours, theirs] = [&client, &server].map(|end| (end.region(8), end.region(8)));
    let done = AtomicBool::new(false);
    let marks = || (1..=255u8).cycle();
    thread::scope(|scope| {
        scope.spawn(|| {
            for mark in marks().take_while(|mark| spin(&theirs.1, *mark, &done)) {
                ask(&server, &theirs.0, &ours.1, mark);
            }
        });
        // On a busy machine the other end may not run while a post waits for it.
        let deadline = Instant::now() + DEADLINE;
        let mut marks = marks();
        let slept = loop {
            let before = worker_sleeps();
            for mark in marks.by_ref().take(WINDOW) {
                ask(&client, &ours.0, &theirs.1, mark);
                spin(&ours.1, mark, &done);
            }
            let slept = sleeps_since(&before);
            if slept < WINDOW / 2 || Instant::now() > deadline {
                break slept;
            }
        };
        done.store(true, Ordering::Relaxed);
        assert!(slept < WINDOW / 2, "{slept} times in {WINDOW} rounds");
    });
}

/// The program polls once, posts some, and then does nothing with the library at all.
#[test]
fn what_was_posted_together_goes_out_without_further_calls() {
    let (client, server) = Setup::default().connect();
    let target = server.region(8);
    for round in 1..=400u64 {
        let source = client.region_of(&round.to_ne_bytes());
        client.send_cq.poll_one();
        let posts = round % 9 + 1;
        for id in 1..posts {
            client.write(id, source.sge(0, 0), &target, 0);
        }
        client.write(posts, source.whole(), &target, 0);
        let word = target.buffer().unwrap().atomic_u64(0);
        until("the last one", || (word.load(Ordering::Acquire) == round).then_some(()));
        for id in 1..=posts {
            assert_eq!(client.sent().wr_id, id);
        }
    }
}

/// As above, and then it sleeps, here or on the descriptor.
#[test]
fn what_was_posted_together_goes_out_when_the_program_sleeps() {
    let [(client, channel), (server, _)] = channels::connect();
    let target = server.region(8);
    for round in 1..=200u64 {
        let source = client.region_of(&round.to_ne_bytes());
        client.send_cq.poll_one();
        client.send_cq.request_notify(false);
        for id in 1..=5 {
            client.write(id, source.whole(), &target, 0);
        }
        for id in 1..=5 {
            until("a completion", || {
                let completion = client.send_cq.poll_one();
                if completion.is_none() && round % 2 == 0 {
                    channel.wait(Some(Duration::from_millis(5))).unwrap();
                }
                completion.inspect(|completion| assert_eq!(completion.wr_id, id))
            });
        }
        while channel.try_next().is_some() {}
    }
}

#[test]
fn queues_of_several_workers_may_share_a_channel() {
    let device = Device::with_options(Options { workers: 3, ..Options::default() }).unwrap();
    let channel = device.create_comp_channel().unwrap();
    let queues: Vec<_> = (0..9).map(|_| device.create_cq(8, Some(&channel)).unwrap()).collect();
    let mut numbers: Vec<_> = queues.iter().map(iwarp::CompletionQueue::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), queues.len());
}
