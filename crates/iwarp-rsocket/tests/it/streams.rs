// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes, both ways.

use std::io;
use std::net::Shutdown;
use std::thread;

use iwarp::Options;
use iwarp_rsocket::{Domain, Socket};
use rustix::io::Errno;

use super::support::{PERSONALITIES, host, host_of, listener, pair, pair_on, pattern};

fn receive_all(socket: &Socket, piece: usize) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), vec![0; piece]);
    loop {
        match socket.recv(&mut room).expect("bytes, or the end") {
            0 => return all,
            len => all.extend_from_slice(&room[..len]),
        }
    }
}

/// Covers: RS-WIRE-01, RS-FLOW-03, RS-FLOW-10, RS-CLOSE-02
#[test]
fn large_streams_go_both_ways_at_once() {
    for personality in PERSONALITIES {
        let (client, server) = pair_on(&host_of(Options::new().personality(personality)));
        let sent = pattern(3_000_001);
        thread::scope(|scope| {
            for socket in [&client, &server] {
                scope.spawn(|| {
                    socket.send_all(&sent).expect("it goes out");
                    socket.shutdown(Shutdown::Write).expect("it is connected");
                });
                scope.spawn(|| assert!(receive_all(socket, 70_000) == sent, "{personality:?}"));
            }
        });
    }
}

/// Covers: RS-API-02, RS-API-05, RS-API-22
#[test]
fn both_ends_know_their_addresses() {
    let host = host();
    for domain in [Domain::Ipv4, Domain::Ipv6] {
        let (listener, addr) = listener(&host, domain);
        assert!(addr.port() != 0 && listener.is_listening());
        let client = Socket::new(&host, domain).expect("a socket");
        assert_eq!(client.peer_addr().unwrap_err().kind(), io::ErrorKind::NotConnected);
        client.connect(addr).expect("it connects");
        let (server, _) = listener.accept().expect("it comes in");
        assert_eq!(client.peer_addr().expect("its peer"), addr);
        assert_eq!(server.local_addr().expect("its address"), addr);
        assert_eq!(server.peer_addr().ok(), client.local_addr().ok());
        let other = "[::1]:1".parse().expect("an address");
        let error = Socket::new(&host, Domain::Ipv4).expect("a socket").connect(other);
        assert_eq!(Errno::from_io_error(&error.unwrap_err()), Some(Errno::AFNOSUPPORT));
    }
}

/// Covers: RS-API-13, RS-API-14
#[test]
fn bytes_that_are_peeked_at_stay() {
    let (client, server) = pair();
    client.send_all(b"hello, world").expect("it goes out");
    let (mut one, mut two) = ([0; 5], [0; 16]);
    while server.readable() < 12 {
        thread::yield_now();
    }
    let mut parts = [io::IoSliceMut::new(&mut one), io::IoSliceMut::new(&mut two)];
    assert_eq!(server.try_recv_vectored(&mut parts, true).expect("bytes"), 12);
    assert_eq!((&one[..], &two[..7]), (&b"hello"[..], &b", world"[..]));
    assert_eq!(server.try_recv(&mut []).expect("no bytes"), 0);
    assert_eq!(server.try_recv(&mut two).expect("bytes"), 12);
    let again = server.try_recv(&mut two).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn an_end_that_does_not_look_stops_its_peer_and_loses_nothing() {
    let (client, server) = pair();
    let all = pattern(2_000_000);
    let mut sent = 0;
    loop {
        match client.try_send(&all[sent..]) {
            Ok(len) => sent += len,
            // Both buffers are full once this lasts.
            Err(_) if sent >= 128 << 10 && server.readable() == 128 << 10 => break,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                thread::yield_now();
            }
        }
    }
    assert!(sent <= 256 << 10, "{sent}");
    thread::scope(|scope| {
        scope.spawn(|| {
            client.send_all(&all[sent..]).expect("it goes out");
            client.close().expect("it is open");
        });
        assert!(receive_all(&server, 1000) == all);
    });
}

/// Covers: RS-API-06, RS-API-07
#[test]
fn connections_are_made_before_they_are_accepted() {
    let host = host();
    let (listener, addr) = listener(&host, Domain::Ipv4);
    let clients: Vec<Socket> = (0..5)
        .map(|number: u8| {
            let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
            client.connect(addr).expect("it connects");
            client.send_all(&[number]).expect("it goes out");
            client
        })
        .collect();
    for number in 0..5 {
        let (server, _) = listener.accept().expect("it comes in");
        let mut byte = [0];
        assert_eq!((server.recv(&mut byte).expect("a byte"), byte), (1, [number]));
    }
    drop(clients);
    let error = listener.try_accept(iwarp_rsocket::Flags::empty()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

/// Covers: RS-IO-01, RS-IO-03, RS-IO-04
#[test]
fn a_mapped_region_is_written_by_the_peer() {
    let device = iwarp::Device::with_options(Options::default()).expect("a device");
    let host = iwarp_rsocket::Host::new(&device).expect("a host");
    let (listener, addr) = listener(&host, Domain::Ipv4);
    let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
    let mut settings = client.settings();
    settings.set_iomap(4);
    assert!(client.set_settings(settings));
    client.connect(addr).expect("it connects");
    let (server, _) = listener.accept().expect("it comes in");

    let region = std::sync::Arc::new(iwarp::Buffer::new(4096));
    let register = |pd: &iwarp::ProtectionDomain, access| {
        pd.register(std::sync::Arc::clone(&region), access).map_err(io::Error::other)
    };
    server.map(0, 4096, 7_000, register).expect("the peer's table has room");
    let none = client.map(0, 4096, 0, register).unwrap_err();
    assert_eq!(Errno::from_io_error(&none), Some(Errno::NOMEM), "the server's table has none");

    server.send_all(b"mapped").expect("it goes out");
    let mut word = [0; 6];
    assert_eq!(client.recv(&mut word).expect("a word"), 6);
    assert_eq!(client.try_write_mapped(b"beyond", 7_000 + 4096).expect("nothing there"), 0);
    assert_eq!(client.try_write_mapped(b"within", 7_100).expect("mapped"), 6);
    client.send_all(b"written").expect("it goes out");
    let mut word = [0; 7];
    assert_eq!(server.recv(&mut word).expect("a word"), 7);
    let mut written = [0; 6];
    region.read_at(100, &mut written);
    assert_eq!(&written, b"within");
    server.unmap(0, 4096).expect("it was mapped");
    assert_eq!(
        server.unmap(0, 4096).unwrap_err().raw_os_error(),
        Some(Errno::INVAL.raw_os_error())
    );
}
