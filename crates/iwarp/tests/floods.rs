// SPDX-License-Identifier: MIT OR Apache-2.0

//! Strangers in great numbers, and descriptors that run out: others get through nevertheless, and
//! neither the log nor the CPU is flooded. A process of its own: a flood takes both CPUs, and one
//! test raises the limit of descriptors.

mod common;

use std::collections::VecDeque;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::ConnectParams;
use iwarp::cm::Listener;
use iwarp::{Device, Ended, Options, SendOp, Stag, TaggedOffset};
use iwarp_os::TcpSocket;
use iwarp_proto::mpa::wire::FrameKind;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::census::cpu_time;
use crate::common::process::{self, Child, role, say, this_test};
use crate::common::raw::{Raw, request, send, terminate, write};
use crate::common::reports::Reports;
use crate::common::station::{Station, hasty};
use crate::common::{DEADLINE, alone, sockets, until};

/// The flood's address, and another.
const FLOODED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A good client has its answer by then.
const SOON: Duration = Duration::from_secs(1);

/// A server that turns everybody down, which is an answer as well.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(options: &Options, answers: bool) -> Self {
        let device = Device::with_options(options.clone()).unwrap();
        let listener = Listener::bind(&device, SocketAddr::new(FLOODED.into(), 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (slept, has_slept) = channel();
        let thread = thread::spawn(move || {
            // A descriptor wakes this thread, made when it first sleeps: while there are some.
            assert!(listener.accept(Some(Duration::from_millis(1))).unwrap().is_none());
            slept.send(()).unwrap();
            let mut kept = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let incoming = listener.accept(Some(Duration::from_millis(20))).unwrap();
                let Some(incoming) = incoming else { continue };
                let strange = incoming.peer_addr().unwrap().ip() == IpAddr::from(FLOODED);
                if strange && !answers {
                    kept.push(incoming);
                } else {
                    // A client that has gone is not told.
                    let _ = incoming.reject(b"");
                }
            }
        });
        has_slept.recv().expect("nobody knows the address yet");
        Self { addr, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// The time that a client that means it waits for its answer; `None` where it gets none.
fn ask(from: Ipv4Addr, addr: SocketAddr) -> Option<Duration> {
    let began = Instant::now();
    let mut raw = Raw::connect_from(from.into(), addr);
    if !raw.try_send(&request().octets()) {
        return None;
    }
    raw.try_startup(FrameKind::Reply)?;
    Some(began.elapsed())
}

/// Connects from that address, `rate` times a second where that can be done, says `octets`, and
/// keeps the last few connections open.
fn flood(addr: SocketAddr, rate: u32, octets: &[u8], stop: &AtomicBool) -> usize {
    let mut open = VecDeque::new();
    let began = Instant::now();
    let mut made = 0;
    while !stop.load(Ordering::SeqCst) {
        let due = began + Duration::from_secs(1) * made as u32 / rate;
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
        }
        let local = SocketAddr::new(FLOODED.into(), 0);
        let Ok(socket) = TcpSocket::connect_start(Some(local), addr) else { continue };
        // Loopback connects at once.
        if !octets.is_empty() {
            let _ = socket.send(&[iwarp_os::IoPart::new(octets)], false);
        }
        made += 1;
        open.push_back(socket);
        if open.len() > 256
            && let Some(oldest) = open.pop_front()
        {
            oldest.reset();
        }
    }
    made
}

/// A client from the flood's own address that has no CPU between connecting and asking becomes the
/// oldest of the flood, and goes first; it asks again.
fn tries(from: Ipv4Addr) -> usize {
    if from == FLOODED { 5 } else { 1 }
}

/// Good clients during a flood, one after the other from each address for that time: how many there
/// were, and the longest time that one had to wait.
fn during(
    flood: impl FnOnce(&AtomicBool) -> usize + Send,
    addr: SocketAddr,
    time: Duration,
    from: &[Ipv4Addr],
) -> (usize, Vec<(usize, Duration)>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&stop));
        let asking = || {
            from.iter().map(|from| {
                let began = Instant::now();
                let mut clients = 0;
                let mut longest = Duration::ZERO;
                while began.elapsed() < time {
                    let asked = Instant::now();
                    let answer = (0..tries(*from)).find_map(|_| ask(*from, addr));
                    assert!(answer.is_some(), "client {clients} from {from}");
                    longest = longest.max(asked.elapsed());
                    clients += 1;
                    // They are no flood.
                    thread::sleep(Duration::from_millis(2));
                }
                (clients, longest)
            })
        };
        // The flood ends in any case.
        let longest = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| asking().collect()));
        stop.store(true, Ordering::SeqCst);
        (flooding.join().unwrap(), longest.unwrap())
    })
}

/// Options whose start-up timeout is too long for a test to get rid of strangers by it.
fn patient(max_pending: usize) -> Options {
    hasty().max_pending(max_pending).startup_timeout(DEADLINE * 10)
}

#[test]
fn idle_connections_keep_nobody_out() {
    let _alone = alone();
    let server = Server::start(&patient(32), true);
    let addr = server.addr;
    // The strangers say nothing, or their frame does not end.
    for octets in [&b""[..], &request().octets()[..9]] {
        let (made, longest) =
            during(|stop| flood(addr, 500, octets, stop), addr, SOON / 4, &[FLOODED, ELSEWHERE]);
        assert!(longest.iter().all(|(_, time)| *time < SOON), "{made} connections: {longest:?}");
    }
}

/// The program answers no Request from the flood's address.
#[test]
fn requests_without_an_answer_keep_nobody_else_out() {
    let _alone = alone();
    let server = Server::start(&patient(32), false);
    let addr = server.addr;
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let mut raw = Raw::connect(addr);
            assert!(raw.try_send(&request().octets()));
            raw
        })
        .collect();
    // Most are refused by then.
    assert_eq!(ask(FLOODED, addr), None);
    let waited = ask(ELSEWHERE, addr).expect("an answer");
    assert!(waited < SOON, "{waited:?}");
    drop(asking);
}

/// As it was measured: run it with `--release --include-ignored --nocapture`.
#[test]
#[ignore = "takes both CPUs for half a minute"]
fn ten_thousand_idle_connections_a_second() {
    let _alone = alone();
    let server = Server::start(&Options::default(), true);
    let addr = server.addr;
    for from in [FLOODED, ELSEWHERE] {
        let began = Instant::now();
        let (made, longest) =
            during(|stop| flood(addr, 10_000, b"", stop), addr, 10 * SOON, &[from]);
        let rate = made as f64 / began.elapsed().as_secs_f64();
        println!(
            "{rate:.0} idle connections/s; clients from {from} and their longest wait: {longest:?}"
        );
        assert!(longest[0].1 < SOON);
    }
}

/// A program with few descriptors, which takes what the other process tells it to.
fn short_of_descriptors() {
    let reports = Reports::listen();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(80), maximum }).unwrap();
    let server = Server::start(&patient(1024), true);
    say("addr", server.addr);
    let mut taken = Vec::new();
    loop {
        match process::listen_to_parent().as_str() {
            "take all" => {
                while let Ok(file) = File::open("/dev/null") {
                    taken.push(file);
                }
                say("taken", taken.len());
            }
            "give back" => {
                taken.clear();
                say("free", "");
            }
            "how much" => {
                say("lines", reports.lines().len());
                say("cpu", cpu_time().as_micros());
            }
            _ => return,
        }
    }
}

#[test]
fn descriptors_that_run_out_cost_little_and_keep_nobody_out() {
    if role().is_some() {
        return short_of_descriptors();
    }
    let _alone = alone();
    let mut child = Child::start(this_test!(), "short of descriptors", &[]);
    let addr: SocketAddr = child.hear("addr", DEADLINE).parse().unwrap();
    let effort = |child: &mut Child| {
        child.tell("how much");
        let lines: usize = child.hear("lines", DEADLINE).parse().unwrap();
        let micros: u64 = child.hear("cpu", DEADLINE).parse().unwrap();
        (lines, Duration::from_micros(micros))
    };
    // Idle connections have them all: they give some up for those who mean it.
    let idle: Vec<_> = (0..120).map(|_| Raw::connect(addr)).collect();
    for from in [FLOODED, ELSEWHERE] {
        let waited = ask(from, addr).expect("an answer");
        assert!(waited < SOON, "{waited:?}");
    }
    drop(idle);
    until("the end of them", || ask(ELSEWHERE, addr));
    // The program itself has them.
    let (lines, cpu) = effort(&mut child);
    let take_all = |child: &mut Child| {
        child.tell("take all");
        assert_ne!(child.hear("taken", DEADLINE), "0");
    };
    take_all(&mut child);
    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < 2 * SOON {
        // Each hears that it is in vain, rather than nothing.
        let asked = Instant::now();
        if ask(FLOODED, addr).is_none() {
            refused += 1;
        } else {
            // A connection has ended only now: the program takes its descriptor as well.
            take_all(&mut child);
        }
        assert!(asked.elapsed() < SOON);
    }
    assert!(refused > 1, "{refused} were refused");
    // A waiter when there are some is served.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| until("an answer", || ask(ELSEWHERE, addr)));
        child.tell("give back");
        child.hear("free", DEADLINE);
        waiting.join().unwrap();
    });
    let (lines_after, cpu_after) = effort(&mut child);
    let lines = lines_after - lines;
    assert!((1..=12).contains(&lines), "{lines} lines");
    let cpu = cpu_after - cpu;
    assert!(cpu < began.elapsed() / 2, "{cpu:?} of CPU time");
    child.tell("enough");
    child.succeeds(DEADLINE);
}

/// The acts of a peer that end its connection.
#[derive(Clone, Copy)]
enum Terminated {
    /// It breaks a rule.
    Here,
    /// It sends where no receive is.
    HereWithoutReceive,
    /// It says that this end did what this code is for.
    There(u8, u8, u8),
}

fn terminated(station: &Station, how: Terminated) -> SocketAddr {
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    raw.greet();
    match how {
        Terminated::Here => {
            let mut octets = raw.frame(&send(1, b"octets"));
            *octets.last_mut().unwrap() ^= 1;
            raw.send(&octets);
        }
        Terminated::HereWithoutReceive => raw.send_ulpdu(&send(1, b"octets")),
        Terminated::There(layer, etype, code) => raw.send_ulpdu(&terminate(layer, etype, code)),
    }
    let why = end.connection.wait_disconnected(Some(DEADLINE));
    assert!(matches!(why, Some(Ended::Fault(_) | Ended::Terminated(_))), "{why:?}");
    end.connection.peer_addr().unwrap()
}

fn is_terminated() {
    let reports = Reports::listen();
    let station = Station::new(hasty());
    let line = || reports.lines().pop().expect("a line");
    let peer = terminated(&station, Terminated::Here);
    let found = line();
    for part in ["this end terminated", &format!("peer={peer}"), "2/0/02", "MPA: CRC error", "qp="]
    {
        assert!(found.contains(part), "{part} in {found}");
    }
    let peer = terminated(&station, Terminated::There(0, 1, 2));
    let found = line();
    let meaning = "RDMAP remote protection error: access rights violation";
    for part in ["the peer terminated", &format!("peer={peer}"), "0/1/02", meaning, "qp="] {
        assert!(found.contains(part), "{part} in {found}");
    }
    // A message that InfiniBand would let wait: what to try, and at which end.
    for (how, hint) in [
        (Terminated::HereWithoutReceive, "receive was posted: try --personality roce"),
        (Terminated::There(1, 2, 2), "the peer had posted its receive: try --personality roce"),
    ] {
        let peer = terminated(&station, how);
        let found = line();
        for part in [&format!("peer={peer}"), "1/2/02", hint] {
            assert!(found.contains(part), "{part} in {found}");
        }
    }
    // A peer of our own kind whose programs see another device than those here.
    let options = hasty().tell_personality(true);
    let telling = Station::new(options);
    let (_end, mut raw, _) = telling.accept(&request(), &ConnectParams::default());
    raw.send_ulpdu(&write(Stag(0x6957_4152), 0x5048_454c_0100_002f, &[]));
    let line = until("a line", || reports.lines().pop());
    for part in ["iwarp here and roce at the peer", "peer=127.0.0.1", "--personality"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(*reports.lines(), [""; 0], "one line each");
    let began = Instant::now();
    (0..100).for_each(|_| _ = terminated(&station, Terminated::Here));
    let lines = reports.lines().len() as u64;
    let most = 8 + began.elapsed().as_secs();
    assert!(lines >= 6 && lines <= most, "{lines} lines for 100 connections, not up to {most}");
}

#[test]
fn every_terminate_is_a_line_and_many_are_few() {
    if role().is_some() {
        return is_terminated();
    }
    Child::start(this_test!(), "terminated", &[]).succeeds(DEADLINE);
}

/// Bytes that the system keeps for this process's ends of connections at that port.
fn kept_by_the_system(port: u16) -> usize {
    let open = sockets::connected(port).into_iter();
    let ours = open.filter(|socket| socket.local_addr().is_ok_and(|addr| addr.port() == port));
    ours.filter_map(|socket| socket.unacknowledged().ok()).sum()
}

/// Bytes that the system keeps for `peers` peers, each of which asks for more than sockets hold and
/// reads nothing.
fn slow_readers(peers: usize, send_memory: usize) -> usize {
    const OCTETS: usize = 1 << 20;
    let station = Station::new(hasty().send_memory(send_memory));
    let ends: Vec<_> = (0..peers)
        .map(|_| {
            let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
            raw.greet();
            let source = end.region(OCTETS);
            for id in 0..8 {
                let op = SendOp::Write { stag: Stag(0x100), to: TaggedOffset(0) };
                end.post(id, op, &[source.whole()]);
            }
            (end, raw, source)
        })
        .collect();
    // All of them stand still, with some bytes each.
    let port = station.addr().port();
    let mut last = 0;
    until("nothing to go on", || {
        thread::sleep(Duration::from_millis(50));
        let now = kept_by_the_system(port);
        (std::mem::replace(&mut last, now) == now && now > 0).then_some(())
    });
    drop(ends);
    last
}

#[test]
fn slow_readers_share_what_the_process_may_spend() {
    let _alone = alone();
    let (peers, budget) = (40, 4 << 20);
    let kept = slow_readers(peers, budget);
    // Each has one system call's bytes on top.
    let most = budget + peers * 2 * 64 * 1024;
    assert!(kept <= most, "{kept} octets for {peers} peers");
}

#[test]
#[ignore = "needs 1,000 descriptors and 300 MB"]
fn three_hundred_slow_readers() {
    let _alone = alone();
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    let kept = slow_readers(300, Options::default().send_memory);
    println!("{} MB for 300 peers", kept >> 20);
    assert!(kept <= (64 << 20) + 300 * 2 * 64 * 1024);
}
