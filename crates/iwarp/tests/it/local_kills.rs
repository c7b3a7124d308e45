// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes of one host end in all ways, at moments by lot, amid traffic of all kinds and amid the
//! move to shared memory: the one that survives gets no wrong byte, none in memory that it has
//! deregistered, hears of the end, and keeps nothing.
//!
//! `IWARP_KILLS` is the number of rounds, `IWARP_KILLS_SEED` the first one, and with
//! `IWARP_KILLS_WAY=off` all stays with TCP, to compare the ends that are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iwarp::cm::Listener;
use iwarp::{CompletionChannel, Device, Ended, LocalPath, Options};

use crate::common::mixed::{Lots, Mixed, Part, Ready};
use crate::common::process::{goes_on, number, passed_apart, seed, this_test};
use crate::common::victims::{Board, Breeder, Fate, Plan};
use crate::common::{DEADLINE, Idle, until, within};

/// Time within which a survivor hears of an end.
const PATIENCE: Duration = Duration::from_secs(10);

fn way() -> LocalPath {
    match std::env::var("IWARP_KILLS_WAY").as_deref() {
        Ok("off") => LocalPath::Off,
        Ok("rings") => LocalPath::Rings,
        _ => LocalPath::Auto,
    }
}

fn devices() -> [Options; 3] {
    let way = way();
    [
        Options::new().local(way),
        Options::new().local(way).demands_crc(true),
        Options::for_any_program().local(way),
    ]
}

/// The options of a round.
fn which(plan: &Plan) -> usize {
    // Messages wait for receives, as a sleeper says nothing of its own.
    if plan.sleeps { 2 } else { plan.device }
}

fn part(plan: &Plan, side: usize) -> Part {
    match (plan.sleeps, side) {
        (false, _) => Part::Trades,
        (true, 0) => Part::Receives,
        (true, _) => Part::Sends,
    }
}

// The victim.

fn victim(plan: &Plan, port: u16, board: &Board) {
    let device = Device::with_options(devices()[which(plan)].clone()).unwrap();
    let ready = || Ready::new(&device, None, 1, part(plan, 1));
    let seeds = (0..plan.connections as u64).map(|i| plan.seed ^ (i << 32));
    // A peer that leaves may have left before all are made.
    let is_left = plan.fate == Fate::IsLeft;
    let made = |end: Result<Mixed, _>| if is_left { end.ok() } else { Some(end.unwrap()) };
    let mut ends: Vec<Mixed> = if plan.connects {
        let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
        board.port.store(listener.local_addr().unwrap().port(), Ordering::SeqCst);
        let incoming = || listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
        seeds.filter_map(|seed| made(ready().accept(incoming(), seed))).collect()
    } else {
        let addr: SocketAddr = ([127, 0, 0, 1], port).into();
        seeds.filter_map(|seed| made(ready().connect(addr, seed))).collect()
    };
    if plan.moved && way() != LocalPath::Off {
        pump(&mut ends, |ends| ends.iter().all(Mixed::has_moved));
    }
    board.connected.store(1, Ordering::SeqCst);
    let begin = Instant::now();
    let leaves_by_itself = !matches!(plan.fate, Fate::Killed | Fate::StoppedAndKilled);
    let delay = match plan.fate {
        Fate::Stopped => plan.delay + 2 * plan.second,
        _ => plan.delay,
    };
    pump(&mut ends, |_| leaves_by_itself && plan.fate != Fate::IsLeft && begin.elapsed() >= delay);
    meet_fate(plan, board, ends);
}

/// Moves all until `done`, or all have ended.
fn pump(ends: &mut [Mixed], done: impl Fn(&[Mixed]) -> bool) {
    let (mut idle, began) = (Idle::default(), Instant::now());
    while !done(ends) && !ends.iter().all(Mixed::is_done) {
        let moved = ends.iter_mut().fold(false, |moved, end| end.step() | moved);
        if moved {
            idle.over()
        } else {
            idle.pause()
        }
        assert!(began.elapsed() < 3 * PATIENCE, "a victim hangs");
    }
}

fn meet_fate(plan: &Plan, board: &Board, mut ends: Vec<Mixed>) {
    for (end, posted) in ends.iter_mut().zip(&board.posted) {
        posted.store(end.stop() + 1, Ordering::SeqCst);
    }
    board.over.store(1, Ordering::SeqCst);
    match plan.fate {
        Fate::Killed | Fate::StoppedAndKilled => {
            assert!(plan.withdraws.is_some(), "the survivor has gone");
            loop {
                // SAFETY: until it is killed.
                unsafe { libc::pause() };
            }
        }
        Fate::Exec => {
            let arguments = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
            // SAFETY: strings, and an array that ends with nothing.
            unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
            panic!("there is no sleep");
        }
        Fate::Fork => {
            // SAFETY: the child sleeps until it is killed, for a minute at most.
            match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: as above.
                    unsafe {
                        libc::alarm(60);
                        libc::pause();
                    }
                },
                child => board.child.store(child, Ordering::SeqCst),
            }
            // SAFETY: this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        // SAFETY: nothing is dropped before.
        Fate::Exit => unsafe { libc::exit(0) },
        Fate::Stopped | Fate::Disconnects => {
            ends.iter().for_each(|end| end.end.connection.disconnect());
            pump(&mut ends, |_| false);
        }
        Fate::Destroys => {
            for end in ends.drain(..) {
                drop(end.end.qp);
            }
        }
        Fate::IsLeft => {}
    }
    // It has been told, and the connections may go in the background.
    drop(ends);
    if plan.fate == Fate::Destroys {
        until("the survivor", || (board.release.load(Ordering::SeqCst) != 0).then_some(()));
    }
}

// The survivor.

struct Survivor {
    devices: Vec<(Device, Listener, CompletionChannel)>,
    breeder: Breeder,
    /// Descriptors and threads that stay.
    descriptors: usize,
    threads: usize,
    counts: BTreeMap<(Fate, String), u64>,
    moved: u64,
    operations: [u64; 3],
}

impl Survivor {
    fn new() -> Self {
        let breeder = Breeder::new(victim, devices().len());
        let make = |options: Options| {
            let device = Device::with_options(options).unwrap();
            let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
            let channel = device.create_comp_channel().unwrap();
            (device, listener, channel)
        };
        let devices = devices().map(make).into();
        let (counts, operations) = (BTreeMap::new(), [0; 3]);
        let (descriptors, threads) = (usize::MAX, usize::MAX);
        Self { devices, breeder, descriptors, threads, counts, moved: 0, operations }
    }

    fn count(&mut self, plan: &Plan, what: impl std::fmt::Display) {
        *self.counts.entry((plan.fate, what.to_string())).or_default() += 1;
    }

    fn round(&mut self, plan: &Plan) {
        let board = self.breeder.board;
        let addr = self.devices[which(plan)].1.local_addr().unwrap();
        self.breeder.begin(plan, addr.port());
        let mut ends = self.meet(plan);
        let left = self.outlive(plan, &mut ends);
        for (i, end) in ends.iter().enumerate() {
            self.judge(plan, i, end, left);
        }
        // Amid the move a descriptor may have been made that is not known as the library's yet.
        if plan.fate == Fate::Fork && plan.moved {
            keeps_nothing(board.child.load(Ordering::SeqCst));
        }
        let status = self.breeder.end();
        let is_kept = ends.iter().all(Mixed::is_kept);
        assert!(is_kept, "{plan:?}: bytes have come into memory that is deregistered");
        drop(ends);
        let as_wanted = match plan.fate {
            Fate::Killed | Fate::StoppedAndKilled | Fate::Fork | Fate::Exec => {
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
            }
            _ => status == 0,
        };
        assert!(as_wanted, "{plan:?}: the victim ended with {status:#x}");
        self.clean(plan);
    }

    /// The ends of the connections that came about.
    fn meet(&mut self, plan: &Plan) -> Vec<Mixed> {
        let board = self.breeder.board;
        let (device, listener, channel) = &self.devices[which(plan)];
        let channel = plan.sleeps.then_some(channel);
        let ready = || Ready::new(device, channel, 0, part(plan, 0));
        let mut ends = Vec::new();
        let mut missed = Vec::new();
        for i in 0..plan.connections as u64 {
            let seed = plan.seed ^ (i << 32);
            let met = if plan.connects {
                let port = until("the victim", || match board.port.load(Ordering::SeqCst) {
                    0 => board.is_gone().then_some(0),
                    port => Some(port),
                });
                (port != 0).then(|| ready().connect(([127, 0, 0, 1], port).into(), seed))
            } else {
                let incoming = until("a connection", || {
                    let incoming = listener.accept(Some(Duration::from_millis(20))).unwrap();
                    (incoming.is_some() || board.is_gone()).then_some(incoming)
                });
                incoming.map(|incoming| ready().accept(incoming, seed))
            };
            match met {
                Some(Ok(end)) => ends.push(end),
                Some(Err(error)) => missed.push(error.to_string()),
                None => missed.push("the peer has gone".into()),
            }
        }
        for missed in missed {
            assert!(!plan.fate.is_gentle() || plan.early, "{plan:?}: {missed}");
            self.count(plan, "not connected");
        }
        ends
    }

    /// Moves all until all have ended. True if this end has left.
    fn outlive(&mut self, plan: &Plan, ends: &mut [Mixed]) -> bool {
        let board = self.breeder.board;
        let (began, mut idle, mut over) = (Instant::now(), Idle::default(), None);
        let mut leaves = plan.fate == Fate::IsLeft;
        let mut withdraws = plan.withdraws;
        let channel = plan.sleeps.then(|| self.devices[which(plan)].2.clone());
        while !ends.iter().all(Mixed::is_done) {
            let moved = ends.iter_mut().fold(false, |moved, end| end.step() | moved);
            if leaves && began.elapsed() >= plan.delay {
                leaves = false;
                leave(plan, ends);
            }
            if withdraws.is_some_and(|after| began.elapsed() >= after) {
                withdraws = None;
                ends.iter_mut().for_each(Mixed::withdraw);
            }
            match &channel {
                _ if moved => idle.over(),
                Some(channel) if !leaves && withdraws.is_none() => sleep(channel, ends),
                _ => idle.pause(),
            }
            if over.is_none() && board.over.load(Ordering::SeqCst) != 0 {
                over = Some(Instant::now());
            }
            let hangs = over.is_some_and(|over| over.elapsed() > PATIENCE);
            if hangs || began.elapsed() > 3 * PATIENCE {
                let states: Vec<_> = ends.iter().map(|end| end.describe()).collect();
                panic!("{plan:?}: the survivor hangs: {states:?}");
            }
        }
        plan.fate == Fate::IsLeft
    }

    fn judge(&mut self, plan: &Plan, i: usize, end: &Mixed, left: bool) {
        let ended = end.end.connection.wait_disconnected(Some(PATIENCE)).expect("no end");
        let how = match &ended {
            Ended::Terminated(why) => format!("terminated: {why}"),
            Ended::Fault(why) => format!("fault: {why}"),
            other => format!("{other:?}"),
        };
        self.count(plan, how);
        for status in end.failures.keys() {
            self.count(plan, status);
        }
        self.moved += u64::from(end.has_moved());
        for (sum, count) in self.operations.iter_mut().zip(end.posted()) {
            *sum += count;
        }
        self.operations[0] += end.received();
        if left || plan.withdraws.is_some() {
            return;
        }
        let is_abrupt =
            matches!(plan.fate, Fate::Killed | Fate::StoppedAndKilled | Fate::Fork | Fate::Exec);
        if is_abrupt && plan.moved && way() != LocalPath::Off {
            // TCP ends as if in good order, and a ring would say that.
            assert_ne!(ended, Ended::Closed, "{plan:?}");
        }
        let posted = self.breeder.board.posted[i].load(Ordering::SeqCst);
        if plan.fate.is_gentle() && ended == Ended::Lost {
            println!("lost: {plan:?}, moved {}, {} of {posted}", end.has_moved(), end.received());
        }
        if posted > 0 && end.received() + 1 != posted {
            let whether = if plan.sleeps { "and parked" } else { "and others" };
            self.count(plan, format_args!("messages are lost {whether}"));
        }
    }

    /// The round has left nothing behind.
    fn clean(&mut self, plan: &Plan) {
        while self.devices[which(plan)].2.try_next().is_some() {}
        let mut left = String::new();
        let most = (self.descriptors, self.threads);
        within(
            PATIENCE,
            || format!("{plan:?}: nothing to be left of {}", residue().1),
            || {
                let (count, all) = residue();
                left = all;
                (left.is_empty() && count <= most.0 && threads() <= most.1).then_some(())
            },
        );
    }

    fn report(&self) -> String {
        let mut report = format!("moved {}, operations {:?}\n", self.moved, self.operations);
        for ((fate, what), count) in &self.counts {
            writeln!(report, "{fate:?}: {what}: {count}").unwrap();
        }
        report
    }
}

impl Fate {
    /// All that was accepted arrives.
    fn is_gentle(self) -> bool {
        matches!(self, Self::Stopped | Self::Exit | Self::Disconnects)
    }
}

/// The survivor leaves in a way of its own.
fn leave(plan: &Plan, ends: &mut [Mixed]) {
    let abort = plan.seed & 1 != 0;
    for end in ends {
        end.stop();
        match abort {
            true => end.end.qp.abort(),
            false => end.end.connection.disconnect(),
        }
    }
}

/// Until something has come.
fn sleep(channel: &CompletionChannel, ends: &mut [Mixed]) {
    for end in ends.iter() {
        end.end.send_cq.request_notify(false);
        end.end.recv_cq.request_notify(false);
    }
    if !ends.iter_mut().fold(false, |moved, end| end.step() | moved)
        && !ends.iter().all(Mixed::is_done)
    {
        channel.wait(Some(PATIENCE)).unwrap().expect("a sleeper is not woken");
    }
}

/// The name of memory that two processes share.
fn is_shared(name: &str) -> bool {
    ["iwarp-ring", "iwarp-marks"].iter().any(|of| name.contains(of))
}

/// The descriptors of this process; and what it holds of a way past TCP.
fn residue() -> (usize, String) {
    let mut all = String::new();
    let list: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let names = list.iter().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    for name in names.filter(|name| is_shared(&name.to_string_lossy())) {
        writeln!(all, "{name:?}").unwrap();
    }
    let own: BTreeSet<_> = list
        .iter()
        .filter_map(|fd| std::fs::metadata(fd.path()).ok())
        .map(|file| file.ino().to_string())
        .collect();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // A process keeps the descriptors of its own memory that others map. Of its own life it tells
    // by a page that it writes.
    let is_others = |line: &str| {
        let inode = line.split_whitespace().nth(4).unwrap_or_default();
        line.contains("iwarp-memory") && !own.contains(inode)
            || line.contains("iwarp-status") && line.contains("r--s")
    };
    for line in maps.lines().filter(|line| is_shared(line) || is_others(line)) {
        writeln!(all, "{line}").unwrap();
    }
    (list.len(), all)
}

/// The threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The forked child of a victim holds no memory of a connection.
fn keeps_nothing(child: i32) {
    if child == 0 {
        return;
    }
    let held = || {
        let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap_or_default();
        let list = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap().flatten();
        let mut names = list.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        maps.lines().any(is_shared) || names.any(|name| is_shared(&name.to_string_lossy()))
    };
    until("a child to close its copies", || (!held()).then_some(()));
}

#[test]
fn processes_end_in_all_ways_amid_traffic() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let rounds = number("IWARP_KILLS", 100);
    let first = seed("IWARP_KILLS_SEED");
    let mut survivor = Survivor::new();
    let mut lots = Lots(first);
    for round in 0..rounds {
        let plan = Plan::new(lots.next(), survivor.devices.len());
        println!("{round} {plan:?}");
        let began = Instant::now();
        survivor.round(&plan);
        println!("{round} took {:?}", began.elapsed());
        if round == 9 {
            // All that is made at the first need has been made.
            survivor.descriptors = residue().0 + 8;
            survivor.threads = threads();
        }
        goes_on();
    }
    println!("{}", survivor.report());
}
