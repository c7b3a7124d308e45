// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections within the host whose bytes move from TCP to shared memory: each device here has an
//! engine of its own, so that two of one process meet as two processes do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use iwarp::cm::Listener;
use iwarp::{
    AtomicOp, CompletionChannel, CompletionQueue, Device, Ended, LocalPath, Options, RecvRequest,
    SendOp, SendRequest, WcStatus, WorkCompletion,
};

use iwarp_os::unix::SeqSocket;

use crate::common::channels;
use crate::common::process::{self, Child, this_test};
use crate::common::{DEADLINE, End, Setup, next, pattern, succeeded, until};

fn rings() -> Options {
    Options::new().local(LocalPath::Rings)
}

/// Both ends send by the ring.
fn moved(ends: [&End; 2]) {
    for end in ends {
        until("rings", || {
            // Polling moves what has come.
            assert_eq!(end.recv_cq.poll_one(), None);
            (end.qp.local_path() == LocalPath::Rings).then_some(())
        });
    }
}

fn connected(options: &Options) -> (End, End) {
    let (client, server) = Setup::both(options).connect();
    moved([&client, &server]);
    (client, server)
}

/// Writes, Reads, Sends and an Atomic from `one` to `other`, of lengths around a ring's.
fn exchange(one: &End, other: &End) {
    for (seed, len) in [1, 17, 4096, 70_000, 512 << 10, 3 << 20].into_iter().enumerate() {
        let octets = pattern(len, seed as u64 + 1);
        let (from, to, back) = (one.region_of(&octets), other.region(len), one.region(len));
        one.write(1, from.whole(), &to, 0);
        one.sent();
        one.read(2, back.whole(), &to, 0);
        one.sent();
        assert!(back.buffer().unwrap().to_vec() == octets, "read {len}");
        let inbox = other.region(len);
        other.post_recv(3, &[inbox.whole()]);
        one.send(4, &[from.whole()]);
        one.sent();
        assert_eq!(other.received().byte_len as usize, len);
        assert!(inbox.buffer().unwrap().to_vec() == octets, "sent {len}");
    }
    let (number, result) = (other.region(8), one.region(8));
    let add = AtomicOp::FetchAdd { add: 5, mask: 0 };
    for before in [0_u64, 5] {
        let op = SendOp::Atomic { stag: number.rkey(), to: number.base(), op: add };
        one.post(5, op, &[result.whole()]);
        one.sent();
        let mut octets = [0; 8];
        result.buffer().unwrap().read_at(0, &mut octets);
        assert_eq!(u64::from_ne_bytes(octets), before);
    }
}

#[test]
fn a_connection_moves_and_carries_everything() {
    for crc in [false, true] {
        let (client, server) = connected(&rings().demands_crc(crc));
        exchange(&client, &server);
        exchange(&server, &client);
    }
}

#[test]
fn markers_move_along() {
    let (client, server) = connected(&rings().markers(true));
    exchange(&client, &server);
}

#[test]
fn an_infiniband_like_device_moves_too() {
    let options = Options::for_any_program().local(LocalPath::Rings);
    let (client, server) = Setup::both(&options).connect();
    let octets = pattern(2 << 20, 7);
    let from = client.region_of(&octets);
    // More than there are receives: the rest waits in the ring, and the sender for room.
    for turn in 0..4 {
        client.send(turn, &[from.whole()]);
    }
    for _ in 0..4 {
        let inbox = server.region(octets.len());
        server.post_recv(1, &[inbox.whole()]);
        server.received();
        client.sent();
        assert!(inbox.buffer().unwrap().to_vec() == octets);
    }
    assert_eq!([client.qp.local_path(), server.qp.local_path()], [LocalPath::Rings; 2]);
}

#[test]
fn an_end_that_does_not_move_keeps_the_connection_with_tcp() {
    let off = || Options::new().local(LocalPath::Off);
    for (client, server) in [(rings(), off()), (off(), rings())] {
        let (client, server) = Setup { client, server, ..Setup::default() }.connect();
        exchange(&client, &server);
        assert_eq!([client.qp.local_path(), server.qp.local_path()], [LocalPath::Off; 2]);
    }
}

/// Passes on what comes in at an address, as a relay does.
pub(crate) fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (ours, _) = listener.accept().unwrap();
        let theirs = TcpStream::connect(to).unwrap();
        let pump = |mut from: TcpStream, mut to: TcpStream| {
            thread::spawn(move || {
                let mut room = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut room) {
                    if to.write_all(&room[..n]).is_err() {
                        return;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            })
        };
        pump(ours.try_clone().unwrap(), theirs.try_clone().unwrap());
        pump(theirs, ours);
    });
    addr
}

#[test]
fn a_relay_is_not_gone_around() {
    let (device, listener, addr) = process::listen(&rings());
    let client = Device::with_options(rings()).unwrap();
    let relayed = relay(addr);
    let dialling = thread::spawn(move || process::dial(&client, relayed, 16));
    let server = process::accept(&device, &listener, 16, Vec::new());
    let client = dialling.join().unwrap();
    exchange(&client, &server);
    exchange(&server, &client);
    assert_eq!([client.qp.local_path(), server.qp.local_path()], [LocalPath::Off; 2]);
}

/// The names under which this process listens for others of its host. Other tests have theirs.
fn doors() -> Vec<Vec<u8>> {
    let own: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let own: Vec<_> = own.iter().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let list = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap();
    let words = list.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let named = words.filter(|words| {
        let [.., inode, name] = words[..] else { return false };
        let socket = format!("socket:[{inode}]");
        name.starts_with("@iwarp-local/") && own.iter().any(|fd| fd.as_os_str() == &*socket)
    });
    let names: std::collections::BTreeSet<_> =
        named.map(|words| words[words.len() - 1].trim_start_matches('@').to_owned()).collect();
    names.into_iter().map(String::into_bytes).collect()
}

#[test]
fn strangers_get_no_connection_and_keep_none_away() {
    let (client, server) = connected(&rings());
    let doors = doors();
    assert!(!doors.is_empty());
    // More than may wait, silent and not.
    let mut silent = Vec::new();
    for door in &doors {
        for _ in 0..100 {
            let stranger = until("room", || SeqSocket::connect(door).ok());
            silent.push(stranger);
        }
        let stranger = until("room", || SeqSocket::connect(door).ok());
        // The door may have closed before.
        let _ = stranger.send(&[0x5a; 80], &[]);
        until("the end", || {
            let came = stranger.recv(&mut [0; 80]);
            let ended = match came {
                Ok(n) => n == 0,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            ended.then_some(())
        });
    }
    exchange(&client, &server);
    // Others still find the way, past those that wait.
    let (client, server) = connected(&rings());
    exchange(&client, &server);
}

#[test]
fn an_end_that_leaves_has_sent_everything() {
    let (client, server) = connected(&rings());
    let octets = pattern(100_000, 3);
    let from = client.region_of(&octets);
    let inboxes: Vec<_> = (0..20).map(|_| server.region(octets.len())).collect();
    for (number, inbox) in inboxes.iter().enumerate() {
        server.post_recv(number as u64, &[inbox.whole()]);
    }
    for number in 0..20 {
        client.send(number, &[from.whole()]);
    }
    client.connection.disconnect();
    for inbox in &inboxes {
        server.received();
        assert!(inbox.buffer().unwrap().to_vec() == octets);
    }
    let ended = server.connection.wait_disconnected(Some(DEADLINE)).expect("no end");
    assert_eq!(ended, Ended::Closed);
}

/// The other process of a pair: connects, says that it has moved, and does as it is told.
fn play_client() -> bool {
    if process::role().is_none() {
        return false;
    }
    let addr = process::setting("IWARP_TEST_ADDR").parse().unwrap();
    let client = process::dial(&Device::with_options(rings()).unwrap(), addr, 64);
    let room = client.region(1 << 20);
    client.post_recv(1, &[room.whole()]);
    until("rings", || {
        let _ = client.send_cq.poll_one();
        (client.qp.local_path() == LocalPath::Rings).then_some(())
    });
    process::say("moved", "");
    loop {
        match process::listen_to_parent().as_str() {
            "echo" => {
                let received = client.received();
                client.send(2, &[room.sge(0, received.byte_len as usize)]);
                client.sent();
                client.post_recv(1, &[room.whole()]);
            }
            "flood" => loop {
                client.send(3, &[room.whole()]);
                let _ = client.send_cq.poll_one();
            },
            _ => return true,
        }
    }
}

fn with_child(test: &str) -> (Child, End) {
    let (device, listener, addr) = process::listen(&rings());
    let child = Child::start(test, "client", &[("IWARP_TEST_ADDR", addr.to_string())]);
    let server = process::accept(&device, &listener, 64, Vec::new());
    child.hear("moved", DEADLINE);
    until("rings", || {
        let _ = server.send_cq.poll_one();
        (server.qp.local_path() == LocalPath::Rings).then_some(())
    });
    (child, server)
}

#[test]
fn two_processes_share_rings() {
    if play_client() {
        return;
    }
    let (mut child, server) = with_child(this_test!());
    let octets = pattern(1 << 20, 11);
    let (from, inbox) = (server.region_of(&octets), server.region(octets.len()));
    for _ in 0..5 {
        server.post_recv(1, &[inbox.whole()]);
        child.tell("echo");
        server.send(2, &[from.whole()]);
        server.sent();
        assert_eq!(server.received().byte_len as usize, octets.len());
        assert!(inbox.buffer().unwrap().to_vec() == octets);
    }
    child.tell("end");
    child.succeeds(DEADLINE);
}

#[test]
fn a_process_that_is_killed_is_noticed_by_who_waits_for_it() {
    if play_client() {
        return;
    }
    for polls in [true, false] {
        let (mut child, server) = with_child(this_test!());
        let inbox = server.region(64);
        server.post_recv(1, &[inbox.whole()]);
        if !polls {
            server.recv_cq.request_notify(false);
        }
        child.kill();
        let polled = polls.then(|| next(&server.recv_cq));
        let ended = server.connection.wait_disconnected(Some(DEADLINE)).expect("no end");
        let failed = polled.unwrap_or_else(|| next(&server.recv_cq));
        assert_eq!(failed.status, WcStatus::Flushed);
        assert_ne!(ended, Ended::Closed);
        // Sending to it fails as well, once it is known to be gone.
        let sges = [inbox.whole()];
        let request = SendRequest::new(2, SendOp::SEND, &sges).signaled();
        let _ = server.qp.post_send(&request);
        assert_eq!(next(&server.send_cq).status, WcStatus::Flushed);
    }
}

/// The next completion, for which the thread sleeps on the channel in this way.
fn awaited(cq: &CompletionQueue, sleep: &impl Fn()) -> WorkCompletion {
    loop {
        if let Some(completion) = cq.poll_one() {
            return succeeded(completion);
        }
        cq.request_notify(false);
        if let Some(completion) = cq.poll_one() {
            return succeeded(completion);
        }
        sleep();
    }
}

/// Both ends sleep in this way whenever nothing is there.
fn sleepers_echo(sleep: impl Fn(&CompletionChannel) + Sync) {
    let [(one, ours), (other, theirs)] = channels::connect_with(&rings());
    let echo = |end: &End, channel: &CompletionChannel, first: bool| {
        let (from, inbox) = (end.region_of(&[7; 64]), end.region(64));
        let sleep = || sleep(channel);
        for turn in 0..200 {
            if turn > 0 || first {
                end.send(1, &[from.whole()]);
                awaited(&end.send_cq, &sleep);
            }
            awaited(&end.recv_cq, &sleep);
            end.post_recv(0, &[inbox.whole()]);
        }
        if !first {
            end.send(1, &[from.whole()]);
            awaited(&end.send_cq, &sleep);
        }
    };
    // For the first messages: there is a receive before either end sends.
    let firsts = [&one, &other].map(|end| end.region(64));
    one.post_recv(0, &[firsts[0].whole()]);
    other.post_recv(0, &[firsts[1].whole()]);
    thread::scope(|scope| {
        scope.spawn(|| echo(&other, &theirs, false));
        echo(&one, &ours, true);
    });
    moved([&one, &other]);
}

#[test]
fn sleepers_in_the_library_are_woken() {
    sleepers_echo(|channel| {
        channel.wait(Some(DEADLINE)).unwrap().expect("not woken");
    });
}

#[test]
fn sleepers_on_the_descriptor_are_woken() {
    sleepers_echo(|channel| {
        channels::sleep(channel);
        while channel.try_next().is_some() {}
    });
}

#[test]
fn a_listener_of_rings_serves_many_connections() {
    let server = Device::with_options(rings()).unwrap();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let client = Device::with_options(rings()).unwrap();
    let mut ends = Vec::new();
    for _ in 0..100 {
        let dialling = {
            let client = client.clone();
            thread::spawn(move || process::dial(&client, addr, 4))
        };
        let theirs = process::accept(&server, &listener, 4, Vec::new());
        ends.push((dialling.join().unwrap(), theirs));
    }
    for (ours, theirs) in &ends {
        moved([ours, theirs]);
    }
    for (ours, theirs) in &ends {
        let inbox = theirs.region(8);
        theirs.qp.post_recv(&RecvRequest::new(1, &[inbox.whole()])).unwrap();
        let from = ours.region_of(&[9; 8]);
        ours.send(2, &[from.whole()]);
        theirs.received();
        ours.sent();
    }
}
