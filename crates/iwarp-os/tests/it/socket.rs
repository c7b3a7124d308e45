// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets and streams on loopback.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use iwarp_os::poll::wait_readable;
use iwarp_os::{
    Epoll, Events, FdPlace, Interest, IoPart, IoPartMut, Ipv6Listen, Keepalive, TcpSocket,
};

const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

fn localhost(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn listener() -> TcpSocket {
    TcpSocket::listen(localhost(0), 16, Ipv6Listen::Only).unwrap()
}

fn until(socket: &TcpSocket, interest: Interest) {
    let epoll = Epoll::new(FdPlace::Internal).unwrap();
    epoll.add(socket, 0, interest).unwrap();
    let mut events = Events::with_capacity(1);
    assert_eq!(epoll.wait(&mut events, LIMIT).unwrap(), 1, "nothing in 20 s");
}

fn until_readable(socket: &TcpSocket) {
    assert_eq!(wait_readable([socket.as_fd()], LIMIT).unwrap(), [true]);
}

fn accept(listener: &TcpSocket) -> TcpSocket {
    until_readable(listener);
    listener.accept().unwrap().0
}

fn connected(remote: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::connect_start(None, remote).unwrap();
    until(&socket, Interest::WRITE);
    socket.finish_connect().unwrap();
    socket
}

fn pair() -> (TcpSocket, TcpSocket) {
    let listener = listener();
    let client = connected(listener.local_addr().unwrap());
    (client, accept(&listener))
}

fn send(socket: &TcpSocket, bytes: &[u8]) {
    assert_eq!(socket.send(&[IoPart::new(bytes)], false).unwrap(), bytes.len());
}

fn recv(socket: &TcpSocket, room: &mut [u8]) -> std::io::Result<usize> {
    socket.recv(&mut [IoPartMut::new(room)])
}

/// Receives exactly `len` bytes.
fn recv_all(socket: &TcpSocket, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        until_readable(socket);
        match recv(socket, &mut bytes[filled..]).unwrap() {
            0 => panic!("ended after {filled} of {len} octets"),
            n => filled += n,
        }
    }
    bytes
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap()
}

#[test]
fn addresses_and_flags_of_a_connection() {
    let listener = listener();
    let client = connected(listener.local_addr().unwrap());
    until_readable(&listener);
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(peer, server.peer_addr().unwrap());
    assert_eq!(server.local_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    for socket in [&listener, &client, &server] {
        let flags = rustix::io::fcntl_getfd(socket).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let flags = rustix::fs::fcntl_getfl(socket).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let floor = limit.map_or(1024, |limit| (limit / 2).min(1024));
        assert!(socket.as_raw_fd() as u64 >= floor);
    }
}

#[test]
fn connects_from_a_given_address() {
    let listener = listener();
    let remote = listener.local_addr().unwrap();
    let from = SocketAddr::from(([127, 0, 0, 77], 0));
    let client = TcpSocket::connect_start(Some(from), remote).unwrap();
    until(&client, Interest::WRITE);
    client.finish_connect().unwrap();
    assert_eq!(client.local_addr().unwrap().ip(), from.ip());
    let mixed = TcpSocket::connect_start(Some((Ipv6Addr::LOCALHOST, 0).into()), remote);
    assert_eq!(mixed.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_refused_connection_is_reported() {
    // Bound, not listening: no other socket gets the port, and none answers on it.
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &localhost(0)).unwrap();
    let remote = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    let error = match TcpSocket::connect_start(None, remote) {
        Err(error) => error,
        Ok(socket) => {
            until(&socket, Interest::WRITE);
            socket.finish_connect().unwrap_err()
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_socket_that_met_itself_is_refused() {
    // An address of its own, so that no other test takes the port in between.
    let own = SocketAddr::from(([127, 0, 0, 79], 0));
    let listener = TcpSocket::listen(own, 1, Ipv6Listen::Only).unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    let socket = TcpSocket::connect_start(Some(free), free).unwrap();
    until(&socket, Interest::WRITE);
    assert_eq!(socket.local_addr().unwrap(), socket.peer_addr().unwrap());
    assert_eq!(socket.finish_connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_connect_under_way_would_block() {
    // A listener whose queue is full leaves the next one waiting.
    let listener = TcpSocket::listen(localhost(0), 1, Ipv6Listen::Only).unwrap();
    let remote = listener.local_addr().unwrap();
    let mut sockets = Vec::new();
    let waiting = loop {
        let socket = TcpSocket::connect_start(None, remote).unwrap();
        match socket.finish_connect() {
            Ok(()) => sockets.push(socket),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break socket;
            }
        }
        assert!(sockets.len() < 100, "a queue of one takes everything");
    };
    // Room again: its next attempt gets through.
    sockets.iter().for_each(|_| drop(accept(&listener)));
    until(&waiting, Interest::WRITE);
    waiting.finish_connect().unwrap();
}

#[test]
fn an_ipv6_listener_takes_what_it_is_told() {
    let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let Ok(dual) = TcpSocket::listen(any(0), 4, Ipv6Listen::DualStack) else {
        // A host without IPv6; the address family itself is refused.
        return;
    };
    let port = dual.local_addr().unwrap().port();
    let client = connected(localhost(port));
    until_readable(&dual);
    let (_, peer) = dual.accept().unwrap();
    assert_eq!(peer.ip(), Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    assert_eq!(peer.port(), client.local_addr().unwrap().port());
    let taken = TcpSocket::listen(localhost(port), 4, Ipv6Listen::Only);
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);

    let only = TcpSocket::listen(any(0), 4, Ipv6Listen::Only).unwrap();
    let port = only.local_addr().unwrap().port();
    let beside = SocketAddr::from(([127, 0, 0, 81], port));
    TcpSocket::listen(beside, 4, Ipv6Listen::Only).unwrap();
    only.set_traffic_class(0x28).unwrap();
    assert_eq!(rustix::net::sockopt::ipv6_tclass(&only).unwrap(), 0x28);
}

#[test]
fn a_port_can_be_listened_on_again_at_once() {
    let own = SocketAddr::from(([127, 0, 0, 80], 0));
    let first = TcpSocket::listen(own, 1, Ipv6Listen::Only).unwrap();
    let addr = first.local_addr().unwrap();
    let client = connected(addr);
    let server = accept(&first);
    // Closing first leaves the server's end in TIME_WAIT on this port.
    drop(server);
    until_readable(&client);
    drop(client);
    drop(first);
    TcpSocket::listen(addr, 1, Ipv6Listen::Only).unwrap();
}

#[test]
fn options_arrive_at_the_socket() {
    use rustix::net::sockopt as option;

    let (client, _server) = pair();
    client.set_nodelay(true).unwrap();
    assert!(option::tcp_nodelay(&client).unwrap());

    let keepalive =
        Keepalive { idle: Duration::from_secs(33), interval: Duration::from_secs(5), probes: 4 };
    client.set_keepalive(Some(keepalive)).unwrap();
    assert!(option::socket_keepalive(&client).unwrap());
    assert_eq!(option::tcp_keepidle(&client).unwrap(), keepalive.idle);
    assert_eq!(option::tcp_keepintvl(&client).unwrap(), keepalive.interval);
    assert_eq!(option::tcp_keepcnt(&client).unwrap(), 4);
    client.set_keepalive(None).unwrap();
    assert!(!option::socket_keepalive(&client).unwrap());

    for (timeout, millis) in [
        (Some(Duration::from_micros(1500)), 2),
        (Some(Duration::ZERO), 1),
        (Some(Duration::MAX), i32::MAX as u32),
        (None, 0),
    ] {
        client.set_user_timeout(timeout).unwrap();
        assert_eq!(option::tcp_user_timeout(&client).unwrap(), millis, "{timeout:?}");
    }

    client.set_traffic_class(0x20).unwrap();
    assert_eq!(option::ip_tos(&client).unwrap(), 0x20);

    assert!(client.maxseg().unwrap() >= 536);
    assert!(!client.congestion().unwrap().is_empty());
    client.set_congestion("reno").unwrap();
    assert_eq!(client.congestion().unwrap(), "reno");
    let error = client.set_congestion("no such thing").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn vitals_tell_of_a_peer_that_does_not_read() {
    let (client, _server) = pair();
    client.limit_unsent(64 * 1024).unwrap();
    // gVisor says nothing.
    let Some(fresh) = client.vitals().unwrap() else { return };
    assert_eq!((fresh.outstanding, fresh.probes), (0, 0));
    // The SYN counts.
    assert!(fresh.acknowledged <= 1, "{fresh:?}");
    assert_eq!((fresh.received, fresh.unsent), (0, 0));
    assert!(fresh.mss > 0 && fresh.congestion_window > 0, "{fresh:?}");
    assert!(!fresh.rtt.is_zero() && Some(fresh.rtt) < LIMIT, "{fresh:?}");
    let block = vec![0; 1 << 20];
    while client.send(&[IoPart::new(&block)], false).is_ok() {}
    let deadline = Instant::now() + LIMIT.unwrap();
    let full = loop {
        let vitals = client.vitals().unwrap().unwrap();
        if vitals.in_flight == 0 {
            break vitals;
        }
        assert!(Instant::now() < deadline, "{vitals:?}");
    };
    // Not the megabytes that a buffer grows to, and acknowledged a moment ago.
    assert!((1..=192 * 1024).contains(&full.outstanding), "{full:?}");
    assert_eq!(full.unsent as usize, client.unsent().unwrap());
    // All but what its window and its buffer hold.
    assert!(full.acknowledged > 0, "{full:?}");
    assert!(Some(full.last_ack) < LIMIT, "{full:?}");
}

#[test]
fn a_spare_descriptor_refuses() {
    let listener = listener();
    let client = connected(listener.local_addr().unwrap());
    let mut spare = iwarp_os::Spare::default();
    assert!(spare.keep());
    until_readable(&listener);
    listener.refuse_one(&mut spare).unwrap();
    until_readable(&client);
    let mut room = [0; 8];
    assert_eq!(client.recv(&mut [IoPartMut::new(&mut room)]).unwrap(), 0);
    let none = listener.refuse_one(&mut spare).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
}

#[test]
fn parts_are_gathered_and_scattered_in_order() {
    let (client, server) = pair();
    let bytes: Vec<u8> = (0..200).collect();
    let parts = [
        IoPart::new(&bytes[..1]),
        IoPart::EMPTY,
        IoPart::new(&bytes[1..77]),
        IoPart::new(&bytes[77..]).take(23),
        IoPart::new(&bytes).skip(100),
    ];
    assert_eq!(client.send(&parts, false).unwrap(), 200);
    until_readable(&server);
    assert_eq!((server.readable().unwrap(), server.has_input().unwrap()), (200, true));

    let mut first = [0; 3];
    let mut second = [0; 300];
    let second_len = 300;
    // Memory that the kernel writes through a raw pointer.
    // SAFETY: `second` outlives the call and is not touched meanwhile.
    let raw = unsafe { IoPartMut::from_raw(second.as_mut_ptr(), second_len) };
    let mut room = [IoPartMut::new(&mut first), IoPartMut::EMPTY, raw];
    assert_eq!(server.recv(&mut room).unwrap(), 200);
    assert_eq!(first, bytes[..3]);
    assert_eq!(second[..197], bytes[3..]);
    assert_eq!(second[197..], [0; 103]);
    assert_eq!((server.readable().unwrap(), server.has_input().unwrap()), (0, false));
}

#[test]
fn more_parts_than_the_kernel_takes() {
    let (client, server) = pair();
    let bytes: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    let mut list: Vec<_> = bytes.chunks(1).map(IoPart::new).collect();
    let mut parts = &mut list[..];
    let mut calls = 0;
    while !parts.is_empty() {
        let n = client.send(parts, false).unwrap();
        IoPart::advance(&mut parts, n);
        calls += 1;
    }
    assert_eq!(calls, 3);
    let mut got = vec![0; 3000];
    let mut filled = 0;
    while filled < got.len() {
        until_readable(&server);
        let mut room: Vec<_> = got[filled..].chunks_mut(1).map(IoPartMut::new).collect();
        filled += server.recv(&mut room).unwrap();
    }
    assert_eq!(got, bytes);
}

#[test]
fn an_empty_stream_and_its_end_are_told_apart() {
    let (client, server) = pair();
    let mut room = [0; 8];
    assert_eq!(recv(&server, &mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(recv(&server, &mut []).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(server.recv(&mut []).unwrap_err().kind(), ErrorKind::InvalidInput);
    send(&client, b"last");
    client.shutdown_write().unwrap();
    assert_eq!(recv_all(&server, 4), b"last");
    until_readable(&server);
    assert_eq!(recv(&server, &mut room).unwrap(), 0);
    // The other direction lives on.
    send(&server, b"answer");
    assert_eq!(recv_all(&client, 6), b"answer");
    let error = client.send(&[IoPart::new(b"x")], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn reset_reaches_the_peer() {
    let (client, server) = pair();
    send(&client, b"lost or not");
    client.reset();
    until(&server, Interest::NONE);
    // Bytes that arrived before the reset can still be read here (RFC 9293 would drop them).
    let mut room = [0; 32];
    assert_eq!(recv(&server, &mut room).unwrap(), 11);
    assert_eq!(recv(&server, &mut room).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(server.send(&[IoPart::new(b"x")], false).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn more_holds_back_a_small_segment() {
    let (client, server) = pair();
    client.set_nodelay(true).unwrap();
    let small = [7; 10];
    assert_eq!(client.send(&[IoPart::new(&small)], true).unwrap(), 10);
    // Held, although TCP_NODELAY is on: nothing has left the socket.
    assert_eq!(client.unsent().unwrap(), 10);
    assert_eq!(client.unacknowledged().unwrap(), 10);
    send(&client, &small);
    assert_eq!(client.unsent().unwrap(), 0);
    // Both come together.
    until_readable(&server);
    assert_eq!(recv(&server, &mut [0; 64]).unwrap(), 20);
}

#[test]
fn a_peer_that_does_not_read_stops_the_sender() {
    let (client, server) = pair();
    let block: Vec<u8> = (0..1 << 20).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut taken = 0;
    let mut partial = false;
    let error = loop {
        match client.send(&[IoPart::new(&block)], false) {
            Ok(n) => {
                assert!(n > 0);
                partial |= n < block.len();
                taken += n;
                if partial {
                    // Bytes that were not taken were not sent; go on at the first of them.
                    let rest = [IoPart::new(&block).skip(n)];
                    match client.send(&rest, false) {
                        Ok(n) => taken += n,
                        Err(error) => break error,
                    }
                    partial = false;
                }
            }
            Err(error) => break error,
        }
        assert!(taken < 1 << 30, "a gigabyte without flow control");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(client.unacknowledged().unwrap() > 0);
    assert!(client.unacknowledged().unwrap() + server.readable().unwrap() >= taken);

    // Once the peer has read, there is room again, and what was taken arrives.
    let got = recv_all(&server, taken.min(block.len()));
    assert_eq!(got[..], block[..got.len()]);
    recv_all(&server, taken - got.len());
    until(&client, Interest::WRITE);
    assert_eq!(client.send(&[IoPart::new(&[1])], false).unwrap(), 1);
}

#[test]
fn a_foreign_descriptor_is_refused_not_written() {
    let path = std::env::temp_dir().join(format!("iwarp-os-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let socket = TcpSocket::from(std::os::fd::OwnedFd::from(file.unwrap()));
    let sent = socket.send(&[IoPart::new(b"x")], false).unwrap_err();
    let received = recv(&socket, &mut [0]).unwrap_err();
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(errno(&sent), rustix::io::Errno::NOTSOCK.raw_os_error());
    assert_eq!(errno(&received), rustix::io::Errno::NOTSOCK.raw_os_error());
    assert_eq!(len, 0);
}
