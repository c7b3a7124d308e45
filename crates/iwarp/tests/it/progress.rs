// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything moves that can move, for each driver: callers that poll, callers that block, programs
//! that do neither.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::Listener;
use iwarp::{
    CompletionChannel, CompletionQueue, Device, Look, MemoryRegion, Options, Payload, PostError,
    QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, WcOp, WorkCompletion,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::common;
use crate::common::process::{self, this_test};
use crate::common::scene::Scene;
use crate::common::{DEADLINE, EVENTUALLY, End, Idle, Setup, pattern, raw, succeeded, until};

const SOLICITED: SendOp = SendOp::Send { solicited: true, invalidate: None };

fn framings() -> [Options; 2] {
    [true, false].map(|crc| Options::new().crc(crc))
}

/// Both ends of a connection on queues of the test's choice.
struct Wired {
    client: (Device, iwarp::ProtectionDomain, QueuePair, iwarp::cm::Connection),
    server: (Device, iwarp::ProtectionDomain, QueuePair, iwarp::cm::Connection),
}

/// Connects two devices; each end's queues are (send, receive).
fn wire(
    devices: [&Device; 2],
    listener: &Listener,
    queues: [[&CompletionQueue; 2]; 2],
    depth: usize,
) -> Wired {
    let make = |device: &Device, [send_cq, recv_cq]: [&CompletionQueue; 2]| {
        let pd = device.alloc_pd();
        let attributes =
            QueuePairAttributes::new(send_cq, recv_cq).max_send_wr(depth).max_recv_wr(depth);
        let qp = pd.create_qp(&attributes).unwrap();
        (device.clone(), pd, qp)
    };
    let client = make(devices[0], queues[0]);
    let server = make(devices[1], queues[1]);
    let (ours, theirs) = common::couple(devices[0], &client.2, listener, &server.2);
    Wired {
        client: (client.0, client.1, client.2, ours),
        server: (server.0, server.1, server.2, theirs),
    }
}

fn devices(options: &Options) -> (Device, Device, Listener) {
    let client = Device::with_options(options.clone()).unwrap();
    let server = Device::with_options(options.clone()).unwrap();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    (client, server, listener)
}

fn request<'a>(wr_id: u64, op: SendOp, payload: Payload<'a>) -> SendRequest<'a> {
    SendRequest::new(wr_id, op, payload).signaled()
}

/// A program that sends more than the sockets hold and then waits for the other's messages, and
/// for nothing else.
struct Program<'a> {
    end: &'a End,
    sinks: Vec<MemoryRegion>,
}

impl<'a> Program<'a> {
    const COUNT: u64 = 48;
    const LEN: usize = 1 << 20;

    /// Its receives are posted when this returns: the other may begin.
    fn ready(end: &'a End) -> Self {
        let sinks: Vec<_> = (0..Self::COUNT).map(|_| end.region(Self::LEN)).collect();
        for (id, sink) in sinks.iter().enumerate() {
            end.post_recv(id as u64, &[sink.whole()]);
        }
        Self { end, sinks }
    }

    fn run(&self, wait: impl Fn(&End) -> WorkCompletion) {
        let source = self.end.region_of(&pattern(Self::LEN, 11));
        for id in 0..Self::COUNT {
            self.end.send(id, &[source.whole()]);
        }
        let expected = source.buffer().unwrap().to_vec();
        for (id, sink) in self.sinks.iter().enumerate() {
            let completion = succeeded(wait(self.end));
            assert_eq!((completion.wr_id, completion.byte_len), (id as u64, Self::LEN as u32));
            assert!(sink.buffer().unwrap().to_vec() == expected);
        }
        for id in 0..Self::COUNT {
            assert_eq!(self.end.sent().wr_id, id);
        }
    }
}

#[test]
fn two_programs_with_full_sockets_both_finish() {
    let test = this_test!();
    let poll = |end: &End| common::next(&end.recv_cq);
    if process::role().is_some() {
        let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
        let crc = process::setting("IWARP_TEST_CRC") == "true";
        let options = Options::new().crc(crc);
        let device = Device::with_options(options).unwrap();
        let end = process::dial(&device, addr, 256);
        let program = Program::ready(&end);
        process::say("ready", "");
        assert_eq!(process::listen_to_parent(), "go");
        program.run(poll);
        process::say("done", "");
        assert_eq!(process::listen_to_parent(), "end");
        return;
    }
    for options in framings() {
        let (device, listener, addr) = process::listen(&options);
        let settings =
            [("IWARP_TEST_ADDR", addr.to_string()), ("IWARP_TEST_CRC", options.crc.to_string())];
        let mut child = process::Child::start(test, "other", &settings);
        let end = process::accept(&device, &listener, 256, Vec::new());
        let program = Program::ready(&end);
        child.hear("ready", DEADLINE);
        child.tell("go");
        program.run(poll);
        child.hear("done", DEADLINE);
        child.tell("end");
        child.succeeds(DEADLINE);
    }
}

/// Both programs are in one process here, and block in the library while they wait.
#[test]
fn two_blocked_programs_with_full_sockets_both_finish() {
    for options in framings() {
        let (client, server, listener) = devices(&options);
        let channels = [&client, &server].map(|device| device.create_comp_channel().unwrap());
        let [a, b] = [(&client, &channels[0]), (&server, &channels[1])].map(|(device, channel)| {
            let send_cq = device.create_cq(256, None).unwrap();
            (send_cq, device.create_cq(256, Some(channel)).unwrap())
        });
        let queues = [[&a.0, &a.1], [&b.0, &b.1]];
        let Wired { client, server } = wire([&client, &server], &listener, queues, 64);
        let end = |(device, pd, qp, connection), (send_cq, recv_cq)| End {
            device,
            pd,
            send_cq,
            recv_cq,
            qp,
            connection,
        };
        let ends = [end(client, a), end(server, b)];
        let programs = [Program::ready(&ends[0]), Program::ready(&ends[1])];
        thread::scope(|scope| {
            for (program, channel) in programs.iter().zip(&channels) {
                scope.spawn(|| program.run(|end| blocking_next(&end.recv_cq, channel)));
            }
        });
    }
}

/// Polls, arms, polls again, waits: the order that loses nothing.
fn blocking_next(cq: &CompletionQueue, channel: &CompletionChannel) -> WorkCompletion {
    loop {
        if let Some(completion) = cq.poll_one() {
            return completion;
        }
        cq.request_notify(false);
        if let Some(completion) = cq.poll_one() {
            return completion;
        }
        let event = channel.wait(Some(DEADLINE)).unwrap();
        assert_eq!(event, Some(cq.number()), "waited too long for an event");
    }
}

/// A peer that sends, but takes nothing: its sends complete nevertheless.
#[test]
fn receives_do_not_wait_for_sends() {
    for crc in [true, false] {
        let (end, mut peer) = raw::pair(crc);
        let source = end.region(8 << 20);
        for id in 0..32 {
            end.post_recv(id, &[source.sge(0, 64)]);
        }
        // More than any socket buffer takes.
        for id in 0..16 {
            end.send(id, &[source.whole()]);
        }
        for msn in 1..=32 {
            peer.send_ulpdu(&raw::send(msn, b"arrives at once"));
            let completion = end.received();
            assert_eq!((completion.wr_id, completion.byte_len), (u64::from(msn) - 1, 15));
        }
        let (sends, _) = end.qp.outstanding();
        assert!(sends > 0, "the sockets took everything: nothing was tested");
    }
}

/// A target that never calls the library serves Reads, Writes and Atomics.
///
/// Covers: RDMAP-5040-5.1-02, RDMAP-5040-5.2.1-03, RDMAP-5040-5.2.1-04
#[test]
fn a_target_that_does_nothing_serves_its_peer() {
    for options in framings() {
        let (client, server) = Setup::both(&options).connect();
        let memory = server.region(1 << 20);
        let (source, sink) = (client.region_of(&pattern(1 << 20, 3)), client.region(1 << 20));
        let mut slowest = Duration::ZERO;
        for round in 0..50 {
            let started = Instant::now();
            client.write(round, source.whole(), &memory, 0);
            client.read(round, sink.whole(), &memory, 0);
            assert_eq!(client.sent().op, WcOp::Write);
            assert_eq!(client.sent().op, WcOp::Read);
            slowest = slowest.max(started.elapsed());
        }
        assert!(sink.buffer().unwrap().to_vec() == source.buffer().unwrap().to_vec());
        // The target's program was told none of it.
        assert_eq!((server.send_cq.poll_one(), server.recv_cq.poll_one()), (None, None));
        println!("crc {}: 1 MiB there and back in {slowest:.1?} at most", options.crc);
    }
}

/// A program that polls and then computes: its peer is served when the lease of its last poll is
/// over, and the time in which it might only have lost its CPU.
#[test]
fn the_worker_takes_over_from_a_caller_that_stops_polling() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let (memory, sink) = (server.region(4), client.region(4));
    for _ in 0..10 {
        for id in 0..100 {
            server.post_recv(id, &[]);
            client.send(id, &[]);
            server.received(&scene);
            client.sent(&scene);
        }
        // From here on the server does nothing.
        let started = scene.clock.now();
        client.read(1, sink.whole(), &memory, 0);
        client.sent(&scene);
        let took = scene.clock.now() - started;
        assert!(took < Duration::from_millis(3), "taken over after {took:?}");
    }
}

/// The caller was blocked for so long that the worker had left the poll group to it.
#[test]
fn the_worker_takes_over_from_a_caller_that_stops_waiting() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let (memory, sink) = (server.region(4), client.region(4));
    let read = || {
        let started = scene.clock.now();
        client.read(1, sink.whole(), &memory, 0);
        client.sent(&scene);
        scene.clock.now() - started
    };
    for _ in 0..10 {
        // Blocked, and one-sided work comes meanwhile: the thread that is blocked serves it.
        let look = || server.recv_channel.look().unwrap();
        assert!(matches!(look(), Look::Nothing(_)));
        scene.pass(Duration::from_millis(60));
        client.read(1, sink.whole(), &memory, 0);
        let before = scene.turns();
        scene.until("an answer", || {
            assert!(matches!(look(), Look::Nothing(_)));
            client.send_cq.poll_one()
        });
        assert!(scene.turns() - before < 5, "workers have taken part");
        CompletionChannel::stop_looking();
        let took = read();
        assert!(took < Duration::from_millis(3), "taken over after {took:?}");
    }
}

/// Covers: VERBS-hilland-8.2.5-01
#[test]
fn a_blocked_caller_gets_the_event_it_asked_for() {
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let (channel, theirs) = (&server.recv_channel, &server.recv_cq);
    for id in 0..32 {
        server.post_recv(id, &[]);
    }
    let send = |op| {
        client.post(0, op, &[]);
        client.sent(&scene);
    };
    // As `wait` does it; but where nothing comes however long it waits, `None` is for certain.
    let event = || {
        for _ in 0..100 {
            if let Look::Event(number) = channel.look().unwrap() {
                return Some(number);
            }
            scene.pass(Duration::from_millis(1));
        }
        CompletionChannel::stop_looking();
        None
    };
    let next = || scene.until("a completion", || theirs.poll_one());
    // Not armed: completions come, events do not.
    send(SendOp::SEND);
    succeeded(next());
    assert_eq!(event(), None);
    // Any completion, once.
    theirs.request_notify(false);
    send(SendOp::SEND);
    send(SendOp::SEND);
    assert_eq!(event(), Some(theirs.number()));
    assert_eq!(event(), None);
    // Solicited only: the plain Sends before it raise nothing.
    theirs.request_notify(true);
    send(SendOp::SEND);
    assert_eq!(event(), None);
    send(SOLICITED);
    assert_eq!(event(), Some(theirs.number()));
    for _ in 0..4 {
        succeeded(next());
    }
    // The wider request wins.
    theirs.request_notify(false);
    theirs.request_notify(true);
    send(SendOp::SEND);
    assert_eq!(event(), Some(theirs.number()));
    succeeded(next());
    // A failure counts as solicited.
    theirs.request_notify(true);
    drop(client);
    assert_eq!(event(), Some(theirs.number()));
    assert_ne!(next().status, iwarp::WcStatus::Success);
}

/// Programs put the channel's descriptor into their own poll loop.
///
/// Covers: VERBS-hilland-8.2.5-01
#[test]
fn the_channel_is_readable_while_events_wait() {
    let (client, server, listener) = devices(&Options::default());
    let channel = server.create_comp_channel().unwrap();
    let ours = client.create_cq(64, None).unwrap();
    let theirs = server.create_cq(64, Some(&channel)).unwrap();
    let wired = wire([&client, &server], &listener, [[&ours, &ours], [&theirs, &theirs]], 64);
    let readable = |millis: i64| {
        let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 };
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
    };
    let mut slowest = Duration::ZERO;
    for id in 0..200 {
        wired.server.2.post_recv(&RecvRequest::new(id, &[])).unwrap();
        theirs.request_notify(false);
        assert_eq!(theirs.poll_one(), None);
        assert!(!readable(0));
        let started = Instant::now();
        wired.client.2.post_send(&request(0, SendOp::SEND, Payload::Inline(&[]))).unwrap();
        assert!(readable(20_000), "no event");
        slowest = slowest.max(started.elapsed());
        assert_eq!(channel.try_next(), Some(theirs.number()));
        assert!(!readable(0));
        assert_eq!(common::next(&theirs).wr_id, id);
        succeeded(common::next(&ours));
    }
    println!("an event after {slowest:.1?} at most");
}

/// Threads that arm, poll and wait while others send: no thread sleeps through a completion.
///
/// Covers: VERBS-hilland-8.2.5-01
#[test]
fn no_completion_is_slept_through() {
    hammer(4, 3_000);
}

#[test]
#[ignore = "takes a minute"]
fn no_completion_is_slept_through_full() {
    hammer(4, 100_000);
}

fn hammer(connections: usize, each: u64) {
    let (client, server, listener) = devices(&Options::default());
    let channel = server.create_comp_channel().unwrap();
    let ours = client.create_cq(4096, None).unwrap();
    let theirs: Vec<_> =
        (0..connections).map(|_| server.create_cq(256, Some(&channel)).unwrap()).collect();
    let wired: Vec<_> = theirs
        .iter()
        .map(|cq| wire([&client, &server], &listener, [[&ours, &ours], [cq, cq]], 128))
        .collect();
    let by_number: HashMap<u64, usize> =
        theirs.iter().enumerate().map(|(at, cq)| (cq.number(), at)).collect();
    for (wired, cq) in wired.iter().zip(&theirs) {
        for id in 0..128 {
            wired.server.2.post_recv(&RecvRequest::new(id, &[])).unwrap();
        }
        cq.request_notify(false);
    }
    let received = AtomicUsize::new(0);
    let total = connections * each as usize;
    // A peer sends only into receives that are there.
    let credits: Vec<AtomicUsize> = (0..connections).map(|_| AtomicUsize::new(128)).collect();
    let failed = AtomicBool::new(false);
    let drain = |at: usize| {
        while let Some(completion) = theirs[at].poll_one() {
            succeeded(completion);
            wired[at].server.2.post_recv(&RecvRequest::new(0, &[])).unwrap();
            credits[at].fetch_add(1, Ordering::SeqCst);
            received.fetch_add(1, Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while received.load(Ordering::SeqCst) < total {
                    let Some(number) = channel.wait(Some(Duration::from_millis(500))).unwrap()
                    else {
                        // Polling now would hide that an event was lost.
                        if failed.load(Ordering::SeqCst) {
                            return;
                        }
                        continue;
                    };
                    let at = by_number[&number];
                    drain(at);
                    theirs[at].request_notify(false);
                    drain(at);
                }
            });
        }
        let mut sent = vec![0; connections];
        let mut deadline = Instant::now() + EVENTUALLY;
        let mut idle = Idle::default();
        let mut state = 1_u64;
        while sent.iter().sum::<u64>() < total as u64 {
            if Instant::now() >= deadline {
                failed.store(true, Ordering::SeqCst);
                panic!("nothing moves: {sent:?} sent, {received:?} received");
            }
            while let Some(completion) = ours.poll_one() {
                succeeded(completion);
            }
            for at in 0..connections {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let burst = (state >> 60).min(each - sent[at]);
                for _ in 0..burst {
                    if credits[at].load(Ordering::SeqCst) == 0 {
                        idle.pause();
                        break;
                    }
                    match wired[at].client.2.post_send(&request(
                        0,
                        SendOp::SEND,
                        Payload::Inline(&[]),
                    )) {
                        Ok(()) => {
                            credits[at].fetch_sub(1, Ordering::SeqCst);
                            sent[at] += 1;
                            deadline = Instant::now() + EVENTUALLY;
                            idle.over();
                        }
                        Err(PostError::QueueFull) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    });
    assert_eq!(received.load(Ordering::SeqCst), total);
}

/// Covers: DDP-5041-5.3-05
#[test]
fn threads_may_share_a_queue_pair() {
    const THREADS: u64 = 4;
    const EACH: u64 = 3000;
    // The completion queue holds all of them, however late they are polled.
    let depth = (THREADS * EACH) as usize;
    let (client, server) = Setup { depth, ..Setup::default() }.connect();
    let source = client.region_of(&pattern(9000, 1));
    let sink = server.region(9000);
    for _ in 0..256 {
        server.post_recv(0, &[sink.whole()]);
    }
    let credits = AtomicUsize::new(256);
    thread::scope(|scope| {
        for thread_number in 0..THREADS {
            let (client, source, credits) = (&client, &source, &credits);
            scope.spawn(move || {
                for number in 0..EACH {
                    until("a credit", || {
                        credits
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |c| c.checked_sub(1))
                            .ok()
                    });
                    let id = thread_number << 32 | number;
                    let sges = [source.sge(0, 1 + (number as usize * 7) % 9000)];
                    let payload = Payload::Sges(&sges);
                    until("room in the send queue", || {
                        match client.qp.post_send(&request(id, SendOp::SEND, payload)) {
                            Ok(()) => Some(()),
                            Err(PostError::QueueFull) => None,
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
            });
        }
        // Completions of each thread come in its own order.
        scope.spawn(|| {
            let mut next = [0; THREADS as usize];
            for _ in 0..THREADS * EACH {
                let id = client.sent().wr_id;
                assert_eq!(id & 0xffff_ffff, next[(id >> 32) as usize]);
                next[(id >> 32) as usize] += 1;
            }
        });
        for _ in 0..THREADS * EACH {
            server.received();
            server.post_recv(0, &[sink.whole()]);
            credits.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(server.recv_cq.poll_one(), None);
}

#[test]
fn many_queue_pairs_may_share_a_queue_and_several_threads_poll_it() {
    const QPS: usize = 16;
    const EACH: usize = 500;
    let (client, server, listener) = devices(&Options::default());
    let ours = client.create_cq(QPS * 128, None).unwrap();
    let theirs = server.create_cq(QPS * 128, None).unwrap();
    let wired: Vec<_> = (0..QPS)
        .map(|_| wire([&client, &server], &listener, [[&ours, &ours], [&theirs, &theirs]], 64))
        .collect();
    let by_qp: HashMap<u32, &Wired> = wired.iter().map(|w| (w.server.2.number(), w)).collect();
    for wired in &wired {
        for id in 0..32 {
            wired.server.2.post_recv(&RecvRequest::new(id, &[])).unwrap();
        }
    }
    let (received, echoed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let total = QPS * EACH;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let deadline = Instant::now() + EVENTUALLY;
                let mut batch = Vec::with_capacity(8);
                while received.load(Ordering::SeqCst) < total {
                    assert!(Instant::now() < deadline, "only {received:?} of {total}");
                    batch.clear();
                    theirs.poll(&mut batch, 8);
                    for completion in &batch {
                        let wired = by_qp[&succeeded(*completion).qp.0];
                        if completion.op == WcOp::Recv {
                            received.fetch_add(1, Ordering::SeqCst);
                            let again = RecvRequest::new(completion.wr_id, &[]);
                            wired.server.2.post_recv(&again).unwrap();
                            let echo =
                                request(completion.wr_id, SendOp::SEND, Payload::Inline(&[]));
                            wired.server.2.post_send(&echo).unwrap();
                        }
                    }
                }
            });
        }
        // Eight under way on each, the next one for each answer.
        let by_qp: HashMap<u32, (usize, &Wired)> =
            wired.iter().enumerate().map(|(at, w)| (w.client.2.number(), (at, w))).collect();
        let mut left = [EACH; QPS];
        let send = |wired: &Wired| {
            let answer = RecvRequest::new(0, &[]);
            wired.client.2.post_recv(&answer).unwrap();
            wired.client.2.post_send(&request(0, SendOp::SEND, Payload::Inline(&[]))).unwrap();
        };
        for (at, wired) in wired.iter().enumerate() {
            for _ in 0..8 {
                send(wired);
                left[at] -= 1;
            }
        }
        while echoed.load(Ordering::SeqCst) < total {
            let completion = succeeded(common::next(&ours));
            if completion.op == WcOp::Recv {
                echoed.fetch_add(1, Ordering::SeqCst);
                let (at, wired) = by_qp[&completion.qp.0];
                if left[at] > 0 {
                    left[at] -= 1;
                    send(wired);
                }
            }
        }
    });
    assert_eq!(received.load(Ordering::SeqCst), total);
}

/// Polling either queue moves both directions: a program may look at one alone for a long time.
#[test]
fn a_queue_for_sends_and_another_for_receives() {
    for options in framings() {
        let (client, server) = Setup::both(&options).connect();
        let (source, sink) = (client.region_of(&pattern(300_000, 9)), server.region(300_000));
        for round in 0..200 {
            server.post_recv(round, &[sink.whole()]);
            client.send(round, &[source.whole()]);
            if round % 2 == 0 {
                assert_eq!(server.received().wr_id, round);
                assert_eq!(client.sent().wr_id, round);
            } else {
                assert_eq!(client.sent().wr_id, round);
                assert_eq!(server.received().wr_id, round);
            }
        }
        assert!(sink.buffer().unwrap().to_vec() == source.buffer().unwrap().to_vec());
    }
}
