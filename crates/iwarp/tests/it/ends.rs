// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of connections: completed operations have arrived, and no thread waits for ever.

use std::time::{Duration, Instant};

use iwarp::{
    Device, Ended, Options, Personality, QpState, RecvRequest, SendOp, Stag, TaggedOffset, WcOp,
    WcStatus,
};

use crate::common;
use crate::common::process::{self, this_test};
use crate::common::{DEADLINE, End, Setup, pattern, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// The end of the process that has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// Disconnects, then `exit`.
    DisconnectAndExit,
    /// `exit`, and nothing else.
    Exit,
    /// Drops all it has, then returns from `main`.
    DropAndReturn,
    /// Drops nothing, returns from `main`.
    Return,
}

const WAYS: [Leave; 4] =
    [Leave::DisconnectAndExit, Leave::Exit, Leave::DropAndReturn, Leave::Return];

/// Lengths of what the child sends: some in one segment, some in many.
const LENGTHS: [usize; 4] = [1, 1000, 70_001, 300_000];
/// The bytes that the parent writes meanwhile, and the child does not read.
const UNREAD: usize = 1 << 20;

fn options(number: usize) -> Options {
    Options::new().crc(!number.is_multiple_of(3)).markers(number % 5 == 1)
}

fn sender() {
    let number: usize = process::setting("IWARP_TEST_NUMBER").parse().unwrap();
    let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
    let device = Device::with_options(options(number)).unwrap();
    let end = process::dial(&device, addr, 64);
    let regions: Vec<_> =
        LENGTHS.iter().map(|len| end.region_of(&pattern(*len, (number + len) as u64))).collect();
    for (id, region) in regions.iter().enumerate() {
        end.send(id as u64, &[region.whole()]);
    }
    // Completed: from here on it is ours to see that they arrive.
    for id in 0..regions.len() {
        assert_eq!(end.sent().wr_id, id as u64);
    }
    match WAYS[number % WAYS.len()] {
        Leave::DisconnectAndExit => {
            end.connection.disconnect();
            std::process::exit(0);
        }
        Leave::Exit => std::process::exit(0),
        Leave::DropAndReturn => {}
        Leave::Return => std::mem::forget((device, end, regions)),
    }
}

fn sends_arrive(test: &str, times: usize) {
    if process::role().is_some() {
        return sender();
    }
    let started = Instant::now();
    let mut ending = Duration::ZERO;
    let (mut unread, mut slowest) = (0, Duration::ZERO);
    for number in 0..times {
        let (device, listener, addr) = process::listen(&options(number));
        let parts = common::parts(&device, 64);
        let sinks: Vec<_> = LENGTHS
            .iter()
            .map(|len| parts.0.allocate(*len, common::all_access()).unwrap())
            .collect();
        for (id, sink) in sinks.iter().enumerate() {
            parts.3.post_recv(&RecvRequest::new(id as u64, &[sink.whole()])).unwrap();
        }
        let child = process::Child::start(
            test,
            "sender",
            &[("IWARP_TEST_NUMBER", number.to_string()), ("IWARP_TEST_ADDR", addr.to_string())],
        );
        let end = process::accept_on(&device, &listener, parts, Vec::new());
        // Bytes without end for a child that does not look at them: zero-length Writes need no
        // buffer there.
        let mut noise = 0;
        for (id, (len, sink)) in LENGTHS.iter().zip(&sinks).enumerate() {
            let completion = until("a Send", || {
                if noise < UNREAD / 20 && end.qp.outstanding().0 < 32 {
                    noise += usize::from(nothing(&end));
                }
                while end.send_cq.poll_one().is_some() {}
                end.recv_cq.poll_one()
            });
            assert_eq!((completion.wr_id, completion.status), (id as u64, WcStatus::Success));
            assert_eq!(completion.byte_len as usize, *len);
            let expected = pattern(*len, (number + len) as u64);
            let way = WAYS[number % WAYS.len()];
            assert!(sink.buffer().unwrap().to_vec() == expected, "{len} octets, {way:?}");
        }
        let arrived = Instant::now();
        until("the end", || {
            for _ in 0..16 {
                unread += usize::from(nothing(&end));
            }
            while end.send_cq.poll_one().is_some() {}
            end.connection.wait_disconnected(Some(Duration::ZERO))
        });
        child.succeeds(PATIENCE);
        slowest = slowest.max(arrived.elapsed());
        ending += arrived.elapsed();
    }
    let took = started.elapsed();
    let mean = ending / times as u32;
    println!(
        "{times} times in {took:.1?}; ending took {mean:.1?} on average, {slowest:.1?} at most"
    );
    assert!(unread > 0, "the child never had anything unread");
}

/// Posts a Write of nothing, if that is still possible.
fn nothing(end: &End) -> bool {
    let op = SendOp::Write { stag: Stag(0), to: TaggedOffset(0) };
    let payload = iwarp::Payload::Sges(&[]);
    let request = iwarp::SendRequest::new(0, op, payload).signaled();
    end.qp.post_send(&request).is_ok()
}

#[test]
fn completed_sends_arrive_though_the_sender_exits() {
    sends_arrive(this_test!(), 24);
}

#[test]
#[ignore = "1,000 processes"]
fn completed_sends_arrive_though_the_sender_exits_full() {
    sends_arrive(this_test!(), 1000);
}

/// Empty messages beyond what is put aside for a program that posts no receives, and the last that
/// fits.
const TOO_MANY: usize = 1100;
const PARKED: usize = 1024;
/// Bytes that no socket holds.
const LONG: usize = 16 << 20;

/// A program that exits while streams stand still, because messages wait for its receives, and
/// others still send. By then the thread that exits has no thread-locals any more.
#[test]
fn streams_that_stand_still_keep_no_other_from_ending_well() {
    let test = this_test!();
    let options = Options::new().personality(Personality::Roce);
    if process::role().is_some() {
        let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
        // Each device ends its own, at the same time as others.
        let devices = [0; 2].map(|_| Device::with_options(options.clone()).unwrap());
        let dial = |at: usize| process::dial(&devices[at % 2], addr, 64);
        let [still, sending] = [0, 1].map(|_| [0, 1, 2].map(dial));
        let mark = still[0].region(8);
        process::say("mark", format!("{} {}", mark.rkey().0, mark.base().0));
        // This thread reads what comes, so that it has all that a thread keeps.
        let read = || still.iter().filter_map(|end| end.recv_cq.poll_one()).count();
        until("a full park", || {
            assert_eq!(read(), 0);
            (mark.buffer().unwrap().to_vec() == [7; 8]).then_some(())
        });
        for _ in 0..100 {
            assert_eq!(read(), 0);
        }
        for end in &sending {
            let region = end.region_of(&pattern(LONG, 9));
            end.send(0, &[region.whole()]);
            std::mem::forget(region);
        }
        process::say("leaving", "now");
        std::process::exit(0);
    }
    let (device, listener, addr) = process::listen(&options);
    // A backtrace would take longer than to send all.
    let settings = [("IWARP_TEST_ADDR", addr.to_string()), ("RUST_BACKTRACE", "0".to_owned())];
    let mut child = process::Child::start(test, "leaver", &settings);
    let accept = |_| process::accept(&device, &listener, 2048, Vec::new());
    let [still, receiving] = [0, 1].map(|_| [0, 1, 2].map(accept));
    let mark = child.hear("mark", PATIENCE);
    let (stag, to) = mark.split_once(' ').unwrap();
    let (stag, to) = (Stag(stag.parse().unwrap()), TaggedOffset(to.parse().unwrap()));
    let sinks = receiving.each_ref().map(|end| end.region(LONG));
    let request = |op, payload| iwarp::SendRequest::new(0, op, payload);
    let message = request(SendOp::SEND, iwarp::Payload::Inline(&[]));
    for end in still.iter().rev() {
        let mut requests = vec![message; TOO_MANY];
        requests[PARKED] = request(SendOp::Write { stag, to }, iwarp::Payload::Inline(&[7; 8]));
        if !std::ptr::eq(end, &still[0]) {
            requests.remove(PARKED);
        }
        end.qp.post_sends(&requests).unwrap();
    }
    child.hear("leaving", PATIENCE);
    for (end, sink) in receiving.iter().zip(&sinks) {
        end.post_recv(0, &[sink.whole()]);
    }
    for (end, sink) in receiving.iter().zip(&sinks) {
        assert_eq!(end.received().byte_len as usize, LONG);
        assert!(sink.buffer().unwrap().to_vec() == pattern(LONG, 9));
    }
    assert!(child.wait(PATIENCE).success());
}

/// Covers: VERBS-hilland-6.2.4-01
#[test]
fn a_killed_peer_is_noticed_at_once() {
    let test = this_test!();
    if process::role().is_some() {
        let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
        let device = Device::with_options(Options::default()).unwrap();
        let end = process::dial(&device, addr, 64);
        let region = end.region(1 << 20);
        process::say("stag", region.rkey().0);
        loop {
            std::thread::park();
        }
    }
    let (device, listener, addr) = process::listen(&Options::default());
    let mut child = process::Child::start(test, "victim", &[("IWARP_TEST_ADDR", addr.to_string())]);
    let end = process::accept(&device, &listener, 64, Vec::new());
    let stag = Stag(child.hear("stag", PATIENCE).parse().unwrap());
    let region = end.region(1 << 20);
    let signal = |signal| {
        let child = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(child, signal).unwrap();
    };
    // One Read tells that all is up; then the peer falls silent with work of ours under way.
    let read = |id| {
        let op = SendOp::Read { stag, to: TaggedOffset(0), invalidate: None };
        end.post(id, op, &[region.whole()]);
    };
    read(0);
    end.sent();
    signal(rustix::process::Signal::STOP);
    until("the peer to stand still", || is_stopped(child.id()).then_some(()));
    for id in 1..=8 {
        read(id);
        end.post_recv(id, &[region.whole()]);
    }
    assert_eq!(end.connection.wait_disconnected(Some(Duration::from_millis(100))), None);
    let killed = Instant::now();
    child.kill();
    let why = end.connection.wait_disconnected(Some(DEADLINE)).expect("nobody noticed");
    let noticed = killed.elapsed();
    assert!(noticed < Duration::from_secs(1), "noticed after {noticed:?}");
    println!("{why:?} after {noticed:.1?}");
    for id in 1..=8 {
        let completion = common::next(&end.send_cq);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Flushed));
        let completion = common::next(&end.recv_cq);
        assert_eq!((completion.wr_id, completion.status), (id, WcStatus::Flushed));
    }
    assert_eq!(end.qp.state(), QpState::Err);
}

/// True if every thread of a process has taken the signal.
fn is_stopped(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
        let stat = std::fs::read_to_string(stat).unwrap();
        let behind_name = stat.rsplit(')').next().unwrap();
        behind_name.trim_start().starts_with('T')
    })
}

/// Covers: VERBS-hilland-6.2.5-01
#[test]
fn both_ends_close_at_once_and_leave_nothing() {
    for crc in [true, false] {
        let (client, server) = Setup::both(&Options::new().crc(crc)).connect();
        server.post_recv(3, &[]);
        let started = Instant::now();
        client.connection.disconnect();
        assert_eq!(client.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
        assert_eq!(server.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
        let completion = common::next(&server.recv_cq);
        assert_eq!((completion.wr_id, completion.status), (3, WcStatus::Flushed));
        for device in [&client.device, &server.device] {
            until("the connection's end", || (device.connections() == 0).then_some(()));
        }
        let took = started.elapsed();
        assert!(took < DEADLINE / 4, "closing took {took:?}");
    }
}

/// Both programs leave at the same time, each with bytes of the other's unread.
#[test]
fn both_ends_may_leave_at_the_same_time() {
    let (client, server) = Setup::default().connect();
    let ends = [&client, &server];
    let regions = ends.map(|end| end.region_of(&pattern(200_000, 5)));
    let sinks = ends.map(|end| end.region(200_000));
    for (end, sink) in ends.into_iter().zip(&sinks) {
        end.post_recv(0, &[sink.whole()]);
    }
    for (end, region) in ends.into_iter().zip(&regions) {
        end.send(0, &[region.whole()]);
    }
    for end in ends {
        end.connection.disconnect();
    }
    for end in ends {
        // Each receive either got the whole message or is flushed.
        let completion = common::next(&end.recv_cq);
        assert!(matches!(completion.status, WcStatus::Success | WcStatus::Flushed));
        assert_eq!(completion.op, WcOp::Recv);
        until("the connection's end", || (end.device.connections() == 0).then_some(()));
    }
}

/// A connection that was reset and forgotten does not stay behind.
#[test]
fn a_queue_pair_that_is_reset_leaves_its_connection() {
    let (client, server) = Setup::default().connect();
    client.qp.modify(QpState::Reset).unwrap();
    assert!(server.connection.wait_disconnected(Some(DEADLINE)).is_some());
    for device in [&client.device, &server.device] {
        until("the connection's end", || (device.connections() == 0).then_some(()));
    }
    assert_eq!(client.qp.state(), QpState::Reset);
}

/// Handles keep alive what they need, so their owner may drop them as it likes.
#[test]
fn handles_may_be_dropped_in_any_order() {
    let mut order = [0, 1, 2, 3, 4, 5, 6];
    for number in 0..5040 {
        // A seventh of all orders, spread evenly.
        if number % 23 == 0 {
            drop_in(order);
        }
        next_permutation(&mut order);
    }
}

fn drop_in(order: [usize; 7]) {
    let (client, server) = Setup { depth: 4, ..Setup::default() }.connect();
    let region = client.region_of(b"whatever happens next");
    let sink = server.region(64);
    server.post_recv(1, &[sink.whole()]);
    client.post_recv(2, &[region.whole()]);
    client.send(1, &[region.whole()]);
    client.sent();
    let End { device, pd, send_cq, recv_cq, qp, connection } = client;
    let mut handles: [Option<Box<dyn std::any::Any>>; 7] = [
        Some(Box::new(device)),
        Some(Box::new(pd)),
        Some(Box::new(send_cq)),
        Some(Box::new(recv_cq)),
        Some(Box::new(qp)),
        Some(Box::new(connection)),
        Some(Box::new(region)),
    ];
    for index in order {
        drop(handles[index].take());
    }
    assert_eq!(server.received().wr_id, 1, "{order:?}");
    let why = server.connection.wait_disconnected(Some(DEADLINE));
    assert_eq!(why, Some(Ended::Closed), "{order:?}");
}

fn next_permutation(order: &mut [usize]) {
    let Some(at) = (1..order.len()).rev().find(|at| order[at - 1] < order[*at]) else {
        return order.reverse();
    };
    let with = (at..order.len()).rev().find(|other| order[*other] > order[at - 1]).unwrap();
    order.swap(at - 1, with);
    order[at..].reverse();
}
