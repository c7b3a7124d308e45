// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that are not made, and ends of those that are.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::thread;

use iwarp_rsocket::{Domain, Socket};
use rustix::io::Errno;

use super::support::{host, listener, pair};

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.expect_err("an error"))
}

/// Covers: RS-API-08
#[test]
fn a_connection_to_no_listener_is_refused() {
    let host = host();
    let (gone, addr) = listener(&host, Domain::Ipv4);
    gone.close().expect("it is open");
    let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
    assert_eq!(client.connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(client.take_error().is_none(), "it was told");
}

/// Covers: RS-API-08, RS-API-09
#[test]
fn a_connection_is_begun_and_finished() {
    let host = host();
    let (listener, addr) = listener(&host, Domain::Ipv4);
    let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
    assert_eq!(errno(client.try_connect(addr)), Some(Errno::INPROGRESS));
    let (server, _) = listener.accept().expect("it comes in");
    while errno_of(&client.finish_connect()) == Some(Errno::ALREADY) {
        thread::yield_now();
    }
    assert_eq!(errno(client.try_connect(addr)), Some(Errno::ISCONN));
    assert!(client.is_connected() && server.is_connected() && client.take_error().is_none());
}

fn errno_of(result: &io::Result<()>) -> Option<Errno> {
    result.as_ref().err().and_then(Errno::from_io_error)
}

/// Covers: RS-API-16, RS-API-17, RS-CLOSE-01, RS-CLOSE-03, RS-CLOSE-04
#[test]
fn bytes_sent_before_a_close_arrive() {
    let (client, server) = pair();
    client.send_all(b"last words").expect("it goes out");
    client.close().expect("it is open");
    assert_eq!(errno(client.try_send(b"more")), Some(Errno::BADF));
    let mut words = [0; 32];
    assert_eq!(server.recv(&mut words).expect("the words"), 10);
    for _ in 0..3 {
        assert_eq!(server.recv(&mut words).expect("the end"), 0);
    }
    assert_eq!(server.send(b"nobody hears").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// Covers: RS-API-16, RS-CLOSE-02
#[test]
fn an_end_that_writes_no_more_reads_on() {
    let (client, server) = pair();
    client.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(client.try_send(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut words = [0; 32];
    assert_eq!(server.recv(&mut words).expect("the end"), 0);
    server.send_all(b"still here").expect("it goes out");
    assert_eq!(client.recv(&mut words).expect("the words"), 10);
    server.close().expect("it is open");
    assert_eq!(client.recv(&mut words).expect("the end"), 0);
}

/// Covers: RS-API-17, RS-CLOSE-05, RS-CLOSE-06
#[test]
fn a_reset_is_told_once() {
    let (client, server) = pair();
    client.abort();
    let mut words = [0; 32];
    assert_eq!(server.recv(&mut words).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.recv(&mut words).expect("the end"), 0);
    assert_eq!(server.send(b"nobody").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// Covers: RS-API-19
#[test]
fn a_thread_that_waits_is_woken_by_the_shutdown_of_another() {
    let (client, server) = pair();
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.recv(&mut [0; 8]));
        client.shutdown(Shutdown::Both).expect("it is connected");
        assert_eq!(waits.join().expect("no panic").expect("the end"), 0);
    });
    drop(server);
}

/// Covers: RS-API-19
#[test]
fn one_thread_sends_while_another_waits_for_bytes() {
    let (client, server) = pair();
    let all = super::support::pattern(1_000_000);
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.recv(&mut [0; 8]));
        scope.spawn(|| client.send_all(&all).expect("it goes out"));
        let (mut received, mut room) = (0, vec![0; 10_000]);
        while received < all.len() {
            received += server.recv(&mut room).expect("bytes");
        }
        server.send_all(b"all here").expect("it goes out");
        assert_eq!(waits.join().expect("no panic").expect("bytes"), 8);
    });
}

#[test]
fn calls_without_a_connection_say_so() {
    let host = host();
    let socket = Socket::new(&host, Domain::Ipv4).expect("a socket");
    assert_eq!(socket.try_recv(&mut [0]).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(socket.try_send(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(socket.shutdown(Shutdown::Both).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(errno(socket.accept()), Some(Errno::INVAL));
    socket.close().expect("it is open");
    assert_eq!(errno(socket.close()), Some(Errno::BADF));
}
