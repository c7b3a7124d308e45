// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocking calls of the connection manager: a caller that waits looks after all that there is, and
//! no caller waits in vain.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectError, ConnectParams, Listener, connect};
use iwarp::{Device, Ended, Options, QueuePairAttributes};

use crate::common::raw::{Raw, Startup, request};
use crate::common::{DEADLINE, End, Setup, couple, parts, pattern, succeeded, until};

const ROUNDS: u8 = 50;

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn device() -> Device {
    Device::with_options(Options::default()).unwrap()
}

/// Has `reader` read what the other end holds.
fn reads(reader: &End, other: &End, seed: u64) {
    let octets = pattern(3001, seed);
    let (source, sink) = (other.region_of(&octets), reader.region(octets.len()));
    reader.read(seed, sink.whole(), &source, 0);
    succeeded(reader.sent());
    let mut came = vec![0; octets.len()];
    sink.buffer().unwrap().read_at(0, &mut came);
    assert_eq!(came, octets);
}

/// The peer of an attempt says nothing; the peer of another connection with the same queues wants
/// to be answered meanwhile.
#[test]
fn a_caller_that_connects_serves_its_other_connections() {
    let (client, server) = Setup::default().connect();
    let mute = TcpListener::bind(any_port()).unwrap();
    let addr = mute.local_addr().unwrap();
    let qp =
        client.pd.create_qp(&QueuePairAttributes::new(&client.send_cq, &client.recv_cq)).unwrap();
    thread::scope(|scope| {
        let connecting =
            scope.spawn(|| connect(&client.device, addr, &qp, &ConnectParams::default(), DEADLINE));
        let taken = mute.accept().unwrap();
        for seed in 0..ROUNDS {
            reads(&server, &client, seed.into());
        }
        assert!(!connecting.is_finished());
        // The error depends on whether the second attempt, in an older dialect, still gets there.
        drop((taken, mute));
        let failed = connecting.join().unwrap();
        assert!(!matches!(failed, Ok(_) | Err(ConnectError::Timeout)), "{failed:?}");
    });
}

#[test]
fn a_caller_that_waits_for_the_end_serves_the_connection() {
    let (client, server) = Setup::default().connect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.connection.wait_disconnected(None));
        for seed in 0..ROUNDS {
            reads(&server, &client, seed.into());
        }
        assert!(!waiting.is_finished());
        server.connection.disconnect();
        assert_eq!(waiting.join().unwrap(), Some(Ended::Closed));
    });
}

/// The end comes from this side: nothing arrives that would wake who waits.
#[test]
fn a_caller_hears_what_another_thread_does() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    for _ in 0..ROUNDS {
        let [(_pd, _c1, _c2, ours), (_pd2, _c3, _c4, theirs)] = [(); 2].map(|()| parts(&device, 4));
        let (connection, other) = couple(&device, &ours, &listener, &theirs);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| connection.wait_disconnected(Some(DEADLINE)));
            connection.disconnect();
            assert_eq!(waiting.join().unwrap(), Some(Ended::Closed));
        });
        assert_eq!(other.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    }
    until("connections to go", || (device.connections() == 0).then_some(()));
}

#[test]
fn several_threads_may_wait_for_requests() {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("all come");
                    incoming.reject(b"later").unwrap();
                }
            });
        }
        for _ in 0..THREADS * EACH {
            let (_pd, _c1, _c2, qp) = parts(&device, 4);
            let refused = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE);
            assert!(matches!(refused, Err(ConnectError::Rejected { .. })), "{refused:?}");
        }
    });
}

/// A program that looks for requests from time to time.
#[test]
fn a_listener_may_be_asked_without_waiting() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    for number in 0..ROUNDS {
        let mut raw = Raw::connect(listener.local_addr().unwrap());
        raw.send(&Startup { private_data: vec![number], ..request() }.octets());
        let incoming =
            until("a request", || listener.accept(Some(Duration::ZERO)).expect("it listens"));
        assert_eq!(incoming.private_data(), [number]);
        incoming.reject(b"").unwrap();
    }
}

/// No thread accepts any more, but one did a moment ago.
#[test]
fn a_listener_is_served_between_calls() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    for _ in 0..ROUNDS {
        let mut polite = Raw::connect(addr);
        polite.send(&request().octets());
        listener.accept(Some(DEADLINE)).unwrap().expect("a request").reject(b"").unwrap();
        let mut rude = Raw::connect(addr);
        rude.send(b"GET / HTTP/1.1\r\nHost: example.net\r\n\r\n");
        rude.expect_end();
    }
}

/// Long before the time is over that their Requests have.
#[test]
fn a_listener_takes_those_along_that_have_not_asked() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let began = Instant::now();
    let mut mute: Vec<_> = (0..3).map(|_| Raw::connect(addr)).collect();
    let mut polite = Raw::connect(addr);
    polite.send(&request().octets());
    // The others came before it.
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
    drop(listener);
    for raw in &mut mute {
        raw.expect_end();
    }
    assert!(began.elapsed() < device.options().startup_timeout / 2);
    incoming.reject(b"").unwrap();
}
