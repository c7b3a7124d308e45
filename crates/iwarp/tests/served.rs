//! Programs that are served by what they do anyway: those that spin on memory by their posts,
//! those that post much by their polls; and nobody is left waiting who does neither. A process of its
//! own, as it counts how often threads sleep, which is steady only while both ends have a CPU.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::{Device, MemoryRegion, Options};

use crate::common::channels;
use crate::common::{DEADLINE, End, Setup, until};

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

/// What `/proc` counts of the threads of this process that have such a name.
fn switches(is_meant: impl Fn(&str) -> bool, counter: &str) -> HashMap<PathBuf, usize> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let meant = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| is_meant(name.trim()))
    });
    let counts = meant.filter_map(|task| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with(counter))?;
        let count = line.rsplit(char::is_whitespace).next()?.parse().ok()?;
        Some((task, count))
    });
    counts.collect()
}

/// Thread switches since then. The threads of other tests come and go.
#[derive(Debug)]
struct Since {
    workers_slept: HashMap<PathBuf, usize>,
    programs_lost_cpu: HashMap<PathBuf, usize>,
}

impl Since {
    fn now() -> Self {
        Self {
            workers_slept: switches(|name| name == "iwarp", "voluntary_ctxt_switches"),
            programs_lost_cpu: switches(|name| name != "iwarp", "nonvoluntary_ctxt_switches"),
        }
    }

    /// How often workers went to sleep, and programs had to give their CPU to somebody.
    fn until_now(&self) -> (usize, usize) {
        let Self { workers_slept, programs_lost_cpu } = Self::now();
        let more = |now: &HashMap<PathBuf, usize>, before: &HashMap<PathBuf, usize>| {
            now.iter().filter_map(|(task, n)| Some(n.saturating_sub(*before.get(task)?))).sum()
        };
        (
            more(&workers_slept, &self.workers_slept),
            more(&programs_lost_cpu, &self.programs_lost_cpu),
        )
    }
}

/// Questions and answers between two looks.
const WINDOW: usize = 400;

/// Windows in a row that are to be served without workers.
const STEADY: usize = 25;

/// Asserts that workers sleep through `rounds` of questions and answers but for `limit` times, and
/// calls `done`. So it is while both ends have a CPU: windows in which others than workers took one
/// say nothing, and are repeated.
fn assert_workers_sleep(limit: usize, mut rounds: impl FnMut(), done: impl FnOnce()) {
    let deadline = Instant::now() + DEADLINE;
    let (mut fair, mut unfair) = (Vec::new(), 0);
    let mut in_a_row = 0;
    while in_a_row < STEADY && Instant::now() < deadline {
        let before = Since::now();
        rounds();
        let (slept, lost) = before.until_now();
        if lost.saturating_sub(slept) < WINDOW / 10 {
            in_a_row = if slept < limit { in_a_row + 1 } else { 0 };
            fair.push(slept);
        } else {
            unfair += 1;
        }
    }
    done();
    let enough = fair.len() >= 9 * unfair;
    assert!(in_a_row == STEADY || enough, "not to be judged: others had the CPUs {unfair} times");
    assert_eq!(in_a_row, STEADY, "{fair:?} times in {WINDOW} rounds each, limit {limit}");
}

/// While it exists, other processes wait for this thread and for those that it starts, where the
/// system allows that (it takes `CAP_SYS_NICE`).
struct BeforeOthers;

impl BeforeOthers {
    fn new() -> Self {
        set_policy(libc::SCHED_FIFO, 1);
        Self
    }
}

impl Drop for BeforeOthers {
    fn drop(&mut self) {
        set_policy(libc::SCHED_OTHER, 0);
    }
}

fn set_policy(policy: libc::c_int, sched_priority: libc::c_int) {
    let priority = libc::sched_param { sched_priority };
    // SAFETY: the argument outlives the call.
    if unsafe { libc::sched_setscheduler(0, policy, &priority) } != 0 {
        println!("no priority over others: {}", std::io::Error::last_os_error());
    }
}

/// The calls that post have received the answers.
#[test]
fn a_program_that_spins_on_memory_is_served_by_its_posts() {
    let _alone = common::alone();
    let _first = BeforeOthers::new();
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
        let mut marks = marks();
        let rounds = || {
            for mark in marks.by_ref().take(WINDOW) {
                ask(&client, &ours.0, &theirs.1, mark);
                spin(&ours.1, mark, &done);
            }
        };
        assert_workers_sleep(WINDOW / 2, rounds, || done.store(true, Ordering::Relaxed));
    });
}

/// The queue that is polled all the time and the one that is looked at now and then are of the same
/// connection: it needs no worker.
#[test]
fn a_program_that_polls_one_of_two_queues_is_served_by_its_polls() {
    let _alone = common::alone();
    let _first = BeforeOthers::new();
    let (client, server) = Setup::default().connect();
    let done = AtomicBool::new(false);
    let received = |end: &End| {
        let deadline = Instant::now() + DEADLINE;
        while !done.load(Ordering::Relaxed) {
            if end.recv_cq.poll_one().is_some() {
                return true;
            }
            assert!(Instant::now() < deadline, "no message");
        }
        false
    };
    for end in [&client, &server] {
        (0..8).for_each(|id| end.post_recv(id, &[]));
    }
    let answer = |end: &End| {
        end.post_recv(0, &[]);
        end.send(0, &[]);
        end.sent();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while received(&server) {
                answer(&server);
            }
        });
        let rounds = || {
            for _ in 0..WINDOW {
                answer(&client);
                received(&client);
            }
        };
        assert_workers_sleep(WINDOW / 20, rounds, || done.store(true, Ordering::Relaxed));
    });
}

/// The program polls once, posts some, and then does nothing with the library at all.
#[test]
fn what_was_posted_together_goes_out_without_further_calls() {
    let _alone = common::alone();
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

/// The program polls once, posts some, and then sleeps, in a call or on the descriptor.
#[test]
fn what_was_posted_together_goes_out_when_the_program_sleeps() {
    let _alone = common::alone();
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
    let _alone = common::alone();
    let device = Device::with_options(Options { workers: 3, ..Options::default() }).unwrap();
    let channel = device.create_comp_channel().unwrap();
    let queues: Vec<_> = (0..9).map(|_| device.create_cq(8, Some(&channel)).unwrap()).collect();
    let mut numbers: Vec<_> = queues.iter().map(iwarp::CompletionQueue::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), queues.len());
}
