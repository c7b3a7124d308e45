// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager: what happens in which order, on both sides.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{
    ConnectError, ConnectParams, Event, EventChannel, EventKind, Id, Listener, connect,
};
use iwarp::{Device, Ended, Options, QpState, WcStatus};
use iwarp_proto::mpa::wire::FrameKind;

use crate::common;
use crate::common::raw::{Raw, Startup, reply, request};
use crate::common::station::hasty;
use crate::common::{DEADLINE, End, Setup, next, parts, until};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn any_port() -> SocketAddr {
    SocketAddr::new(LOOPBACK, 0)
}

fn device() -> Device {
    Device::with_options(hasty()).unwrap()
}

/// The next event of a channel.
fn event(channel: &EventChannel) -> Event {
    channel.wait(Some(DEADLINE)).unwrap().expect("an event")
}

/// No further event has come.
fn no_event(channel: &EventChannel) {
    assert!(channel.try_next().is_none());
}

fn saying(private_data: &[u8]) -> ConnectParams {
    ConnectParams::new().private_data(private_data).ird(3).ord(5)
}

/// A listening id and its channel.
fn listening(device: &Device, addr: SocketAddr) -> (EventChannel, Id) {
    let channel = EventChannel::new(device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind(addr).unwrap();
    id.listen(8).unwrap();
    (channel, id)
}

/// An id whose address is resolved, and its channel.
fn resolved(device: &Device, addr: SocketAddr) -> (EventChannel, Id) {
    let channel = EventChannel::new(device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.resolve_addr(None, addr).unwrap();
    assert!(matches!(event(&channel).kind, EventKind::AddressResolved));
    (channel, id)
}

/// Covers: EMPA-6581-9.1-01, EMPA-6581-9.1-11
#[test]
fn every_step_is_an_event() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let addr = listener.local_addr().unwrap();
    assert_ne!(addr.port(), 0);

    let (client_channel, client) = resolved(&device, addr);
    assert_eq!(client.local_addr().unwrap().ip(), LOOPBACK);
    assert_eq!(client.peer_addr(), Some(addr));
    client.resolve_route().unwrap();
    let route = event(&client_channel);
    assert!(matches!(route.kind, EventKind::RouteResolved));
    assert!(route.id == client && route.listener.is_none());
    let (_client_pd, _c1, _c2, client_qp) = parts(&device, 16);
    client.connect(&client_qp, &saying(b"from the client")).unwrap();

    let asked = event(&server_channel);
    assert!(asked.listener.as_ref() == Some(&listener) && asked.id != listener);
    match &asked.kind {
        EventKind::ConnectRequest { private_data, ird, ord, .. } => {
            assert_eq!(private_data, b"from the client");
            assert_eq!((*ird, *ord), (Some(3), Some(5)));
        }
        other => panic!("{other:?}"),
    }
    let server = asked.id;
    assert_eq!(server.local_addr(), Some(addr));
    no_event(&client_channel);
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    server.accept(&server_qp, &saying(b"from the server")).unwrap();

    let up = event(&server_channel);
    assert!(up.id == server);
    match up.kind {
        EventKind::Established { private_data, ird, ord, peer_ird, peer_ord, .. } => {
            assert_eq!(private_data, b"");
            assert_eq!((ird, ord), (3, 3));
            assert_eq!((peer_ird, peer_ord), (Some(3), Some(5)));
        }
        other => panic!("{other:?}"),
    }
    match event(&client_channel).kind {
        EventKind::Established { private_data, ird, ord, peer_ird, peer_ord, .. } => {
            assert_eq!(private_data, b"from the server");
            assert_eq!((ird, ord), (3, 3));
            assert_eq!((peer_ird, peer_ord), (Some(3), Some(3)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.local_addr(), server.peer_addr());
    assert_eq!((client_qp.state(), server_qp.state()), (QpState::Rts, QpState::Rts));

    client.disconnect();
    assert!(matches!(event(&client_channel).kind, EventKind::Disconnected(Ended::Closed)));
    let over = event(&server_channel);
    assert!(over.id == server);
    assert!(matches!(over.kind, EventKind::Disconnected(Ended::Closed)));
    // Once more changes nothing.
    client.disconnect();
    server.disconnect();
    until("connections to go", || (device.connections() == 0).then_some(()));
    no_event(&client_channel);
    no_event(&server_channel);
    assert_eq!((client_qp.state(), server_qp.state()), (QpState::Err, QpState::Err));
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let addr = listener.local_addr().unwrap();
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    let params = ConnectParams::default();
    let invalid = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    };
    invalid(listener.accept(&qp, &params));
    invalid(listener.reject(b""));
    invalid(listener.connect(&qp, &params));
    invalid(listener.listen(1));
    invalid(listener.bind(any_port()));
    invalid(listener.resolve_addr(None, addr));
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    invalid(id.connect(&qp, &params));
    invalid(id.accept(&qp, &params));
    invalid(id.resolve_route());
    invalid(id.resolve_addr(Some("[::1]:0".parse().unwrap()), addr));
    no_event(&channel);

    // It listens still, and a connected id is not to be accepted again.
    id.resolve_addr(None, addr).unwrap();
    event(&channel);
    id.connect(&qp, &params).unwrap();
    invalid(id.connect(&qp, &params));
    let server = event(&server_channel).id;
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    server.accept(&server_qp, &params).unwrap();
    assert!(matches!(event(&channel).kind, EventKind::Established { .. }));
    invalid(server.accept(&server_qp, &params));
    invalid(server.reject(b""));
    invalid(id.listen(1));
    assert!(qp.is_connected() && server_qp.is_connected());
    server.disconnect();
    assert!(matches!(event(&channel).kind, EventKind::Disconnected(Ended::Closed)));
}

#[test]
fn a_queue_pair_has_one_connection() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let params = ConnectParams::default();
    let (client, server) = pair(&device, &listener);
    // Another attempt with either queue pair fails, and the first connection lives on.
    let second = thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
            assert!(incoming.accept(&server.qp, &params).is_err());
        });
        connect(&device, addr, &client.qp, &params, DEADLINE)
    });
    assert!(second.is_err());
    server.post_recv(1, &[]);
    client.send(1, &[]);
    server.received();
}

fn pair(device: &Device, listener: &Listener) -> (End, End) {
    let addr = listener.local_addr().unwrap();
    let params = ConnectParams::default();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let (pd, send_cq, recv_cq, qp) = parts(device, 16);
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
            let connection = incoming.accept(&qp, &params).unwrap();
            End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
        });
        let (pd, send_cq, recv_cq, qp) = parts(device, 16);
        let connection = connect(device, addr, &qp, &params, DEADLINE).unwrap();
        let client = End { device: device.clone(), pd, send_cq, recv_cq, qp, connection };
        (client, accepting.join().unwrap())
    })
}

#[test]
fn a_port_without_a_listener_is_unreachable() {
    let device = device();
    let addr = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    for _ in 0..2 {
        let failed = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE);
        match failed.unwrap_err() {
            ConnectError::Unreachable(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(qp.state(), QpState::Init);
    }
    // That queue pair can be connected to somebody else.
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
            incoming.accept(&server_qp, &ConnectParams::default()).unwrap()
        });
        let _connection = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
        let _accepted = accepting.join().unwrap();
        assert!(qp.is_connected());
    });
}

#[test]
fn an_id_may_try_again_after_a_failure() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let (channel, id) = resolved(&device, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    for number in 0..3 {
        id.connect(&qp, &saying(&[number])).unwrap();
        let asked = event(&server_channel);
        asked.id.reject(&[number]).unwrap();
        match event(&channel).kind {
            EventKind::Rejected { private_data, .. } => assert_eq!(private_data, [number]),
            other => panic!("{other:?}"),
        }
    }
    id.connect(&qp, &saying(b"please")).unwrap();
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    event(&server_channel).id.accept(&server_qp, &ConnectParams::default()).unwrap();
    assert!(matches!(event(&channel).kind, EventKind::Established { .. }));
}

/// A peer whose kernel takes the connection, and that says nothing.
#[test]
fn connecting_takes_no_longer_than_asked() {
    let mute = TcpListener::bind(any_port()).unwrap();
    let patient = Device::with_options(Options::default()).unwrap();
    let (_pd, _c1, _c2, qp) = parts(&patient, 16);
    let (addr, timeout) = (mute.local_addr().unwrap(), Duration::from_millis(200));
    let began = Instant::now();
    let failed = connect(&patient, addr, &qp, &ConnectParams::default(), timeout);
    assert!(matches!(failed, Err(ConnectError::Timeout)), "{failed:?}");
    assert!(began.elapsed() >= timeout && began.elapsed() < DEADLINE / 4);
    // The attempt is over then: the peer sees it end long before the deadline of start-up.
    let mut raw = Raw::accept(&mute);
    raw.startup(FrameKind::Request);
    raw.expect_end();
    assert!(began.elapsed() < patient.options().startup_timeout / 2);
    // A Reply that comes too late connects nothing.
    assert_eq!(qp.state(), QpState::Init);
    assert_eq!(patient.connections(), 0);
}

/// A host that does not even answer on TCP.
#[test]
fn a_host_that_does_not_answer_is_unreachable_in_time() {
    let device = device();
    let full = TcpListener::bind(any_port()).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let addr = full.local_addr().unwrap();
    // The queue of the kernel takes one or two, and is silent to the next.
    let mut taken = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(50)) {
        taken.push(stream);
        assert!(taken.len() < 8, "the queue has no end");
    }
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    let began = Instant::now();
    let failed = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE);
    match failed.unwrap_err() {
        ConnectError::Unreachable(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() >= hasty().startup_timeout && began.elapsed() < DEADLINE / 4);
}

#[test]
fn an_id_that_goes_while_it_connects_takes_the_attempt_along() {
    let mute = TcpListener::bind(any_port()).unwrap();
    let patient = Device::with_options(Options::default()).unwrap();
    let (_pd, _c1, _c2, qp) = parts(&patient, 16);
    let (channel, id) = resolved(&patient, mute.local_addr().unwrap());
    id.connect(&qp, &ConnectParams::default()).unwrap();
    let mut raw = Raw::accept(&mute);
    raw.startup(FrameKind::Request);
    drop(id);
    let began = Instant::now();
    raw.expect_end();
    assert!(began.elapsed() < patient.options().startup_timeout / 2);
    no_event(&channel);
}

#[test]
fn a_request_that_nobody_answers_goes_with_its_id() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    for leave in [true, false] {
        let mut raw = Raw::connect(listener.local_addr().unwrap());
        raw.send(&request().octets());
        let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
        if leave {
            drop(incoming);
            raw.expect_end();
        } else {
            // The peer has gone when the program answers.
            raw.fin();
            drop(raw);
            let (_pd, _c1, _c2, qp) = parts(&device, 16);
            if let Ok(connection) = incoming.accept(&qp, &ConnectParams::default()) {
                assert!(connection.wait_disconnected(Some(DEADLINE)).is_some());
            }
        }
    }
    until("connections to go", || (device.connections() == 0).then_some(()));
}

#[test]
fn a_port_is_free_when_its_id_is_gone() {
    let device = device();
    let mut addr = any_port();
    for round in 0..10 {
        let listener = Listener::bind(&device, addr).unwrap();
        addr = listener.local_addr().unwrap();
        assert_eq!(Listener::bind(&device, addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        let (client, server) = pair(&device, &listener);
        // The side that closes first keeps the port in its TIME_WAIT.
        server.connection.disconnect();
        client.connection.wait_disconnected(Some(DEADLINE)).unwrap();
        if round % 2 == 0 {
            drop((client, server));
            drop(listener);
        } else {
            drop(listener);
            drop((client, server));
        }
    }
}

#[test]
fn a_bound_id_has_its_port_to_itself() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind(any_port()).unwrap();
    let addr = id.local_addr().unwrap();
    let other = Id::new(&channel).unwrap();
    assert_eq!(other.bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(TcpListener::bind(addr).is_err());
    // No connection is taken before it listens.
    id.listen(4).unwrap();
    assert_eq!(id.local_addr(), Some(addr));
    let (_client_channel, client) = resolved(&device, addr);
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    client.connect(&qp, &ConnectParams::default()).unwrap();
    assert!(matches!(event(&channel).kind, EventKind::ConnectRequest { .. }));
    drop(id);
    other.bind(addr).unwrap();
}

#[test]
fn a_client_connects_from_the_port_it_is_bound_to() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind(any_port()).unwrap();
    let from = id.local_addr().unwrap();
    id.resolve_addr(None, listener.local_addr().unwrap()).unwrap();
    event(&channel);
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    id.connect(&qp, &ConnectParams::default()).unwrap();
    let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
    assert_eq!(incoming.peer_addr(), Some(from));
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    let _connection = incoming.accept(&server_qp, &ConnectParams::default()).unwrap();
    assert!(matches!(event(&channel).kind, EventKind::Established { .. }));
    assert_eq!(id.local_addr(), Some(from));
}

#[test]
fn every_kind_of_address() {
    let v4 = |ip| SocketAddr::new(IpAddr::V4(ip), 0);
    let v6 = |ip| SocketAddr::new(IpAddr::V6(ip), 0);
    let device = device();
    let (lo4, lo6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let (any4, any6) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
    for (bound, reached) in [
        (v4(lo4), vec![v4(lo4), v4(any4)]),
        (v6(lo6), vec![v6(lo6), v6(any6)]),
        (v4(any4), vec![v4(lo4), v4(Ipv4Addr::new(127, 9, 8, 7))]),
        (v6(any6), vec![v4(lo4), v6(lo6), v4(any4), v6(any6)]),
    ] {
        let listener = Listener::bind(&device, bound).unwrap();
        let port = listener.local_addr().unwrap().port();
        for mut addr in reached {
            addr.set_port(port);
            let (_pd, _c1, _c2, qp) = parts(&device, 16);
            let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
            let params = ConnectParams::default();
            let (client, server) = thread::scope(|scope| {
                let accepting = scope.spawn(|| {
                    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody came");
                    incoming.accept(&server_qp, &params).unwrap()
                });
                let client = connect(&device, addr, &qp, &params, DEADLINE).unwrap();
                (client, accepting.join().unwrap())
            });
            let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            assert_eq!(to.is_ipv4(), addr.is_ipv4());
            assert!(to.ip().is_loopback() && from.ip().is_loopback());
            // The other side says so too, for any address it listens on.
            assert_eq!(server.peer_addr(), Some(from), "{bound} {addr}");
            assert_eq!(server.local_addr(), Some(to), "{bound} {addr}");
        }
    }
}

/// An id that listens without having been bound takes any address and a port of the system's.
#[test]
fn listening_unbound_takes_any_port() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.listen(4).unwrap();
    let port = id.local_addr().unwrap().port();
    assert_ne!(port, 0);
    Raw::connect(SocketAddr::new(LOOPBACK, port)).send(&request().octets());
    assert!(matches!(event(&channel).kind, EventKind::ConnectRequest { .. }));
}

/// Connections that say nothing are bounded, and do not stay for ever.
#[test]
fn corner_23_connections_in_startup_are_bounded() {
    let options = hasty().max_pending(4);
    let device = Device::with_options(options).unwrap();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind(any_port()).unwrap();
    id.listen(0).unwrap();
    let addr = id.local_addr().unwrap();
    let mut mute: Vec<_> = (0..20).map(|_| Raw::connect(addr)).collect();
    // Connections beyond the bound are closed at once, the others when their time is over.
    let began = Instant::now();
    for raw in &mut mute {
        raw.expect_end();
    }
    assert!(began.elapsed() >= hasty().startup_timeout / 2);
    // Then there is room again.
    let mut raw = Raw::connect(addr);
    raw.send(&request().octets());
    assert!(matches!(event(&channel).kind, EventKind::ConnectRequest { .. }));
}

#[test]
fn requests_that_wait_are_bounded() {
    let device = Device::with_options(hasty().max_pending(3)).unwrap();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind(any_port()).unwrap();
    id.listen(0).unwrap();
    let addr = id.local_addr().unwrap();
    let mut peers = Vec::new();
    for number in 0..10 {
        let mut raw = Raw::connect(addr);
        raw.send(&Startup { private_data: vec![number], ..request() }.octets());
        peers.push(raw);
    }
    // Three wait for the program; the others are refused.
    let mut refused = 0;
    for raw in &mut peers[3..] {
        raw.expect_end();
        refused += 1;
    }
    assert_eq!(refused, 7);
    let waiting: Vec<_> = (0..3).map(|_| event(&channel)).collect();
    no_event(&channel);
    // Answering one makes room for one.
    waiting[0].id.reject(b"").unwrap();
    assert!(peers[0].startup(FrameKind::Reply).rejected);
    let mut raw = Raw::connect(addr);
    raw.send(&request().octets());
    event(&channel).id.reject(b"").unwrap();
    assert!(raw.startup(FrameKind::Reply).rejected);
}

#[test]
fn both_sides_disconnect_at_once() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    for _ in 0..50 {
        let (client, server) = pair(&device, &listener);
        client.post_recv(1, &[]);
        thread::scope(|scope| {
            for end in [&client, &server] {
                scope.spawn(|| end.connection.disconnect());
            }
        });
        for end in [&client, &server] {
            assert!(end.connection.wait_disconnected(Some(DEADLINE)).is_some());
        }
        until("connections to go", || (device.connections() == 0).then_some(()));
        for end in [&client, &server] {
            // It is told once.
            assert_eq!(end.connection.wait_disconnected(Some(Duration::ZERO)), None);
            assert_eq!(end.qp.state(), QpState::Err);
        }
        assert_eq!(next(&client.recv_cq).status, WcStatus::Flushed);
    }
}

/// Whichever way a queue pair's connection ends, its id hears of it once, and the peer too.
#[test]
fn the_end_is_told_once_whoever_causes_it() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let ways: [fn(&End); 3] = [
        |end| end.connection.disconnect(),
        |end| end.qp.modify(QpState::Err).unwrap(),
        |end| end.qp.modify(QpState::Reset).unwrap(),
    ];
    for (way, end_it) in ways.into_iter().enumerate() {
        let (client, server) = pair(&device, &listener);
        end_it(&client);
        let near = client.connection.wait_disconnected(Some(DEADLINE));
        assert_eq!(near, Some(Ended::Closed), "way {way}");
        let far = server.connection.wait_disconnected(Some(DEADLINE));
        let expected = if way == 2 { Ended::Lost } else { Ended::Closed };
        assert_eq!(far, Some(expected), "way {way}");
        until("connections to go", || (device.connections() == 0).then_some(()));
        assert_eq!(client.connection.wait_disconnected(Some(Duration::ZERO)), None);
        assert_eq!(server.connection.wait_disconnected(Some(Duration::ZERO)), None);
    }
}

#[test]
fn events_follow_an_id_that_migrates() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let (first, client) = resolved(&device, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    client.connect(&qp, &ConnectParams::default()).unwrap();
    let second = EventChannel::new(&device).unwrap();
    client.migrate(&second);
    // The listener too: what comes in afterwards comes in there.
    let server = event(&server_channel).id;
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    server.migrate(&second);
    server.accept(&server_qp, &ConnectParams::default()).unwrap();
    let mut up = [event(&second), event(&second)];
    up.sort_by_key(|event| event.id == server);
    assert!(up[0].id == client && up[1].id == server);
    assert!(up.iter().all(|event| matches!(event.kind, EventKind::Established { .. })));
    listener.migrate(&second);
    Raw::connect(listener.local_addr().unwrap()).send(&request().octets());
    assert!(matches!(event(&second).kind, EventKind::ConnectRequest { .. }));
    server.disconnect();
    let (a, b) = (event(&second), event(&second));
    assert!(a.id != b.id);
    no_event(&first);
    no_event(&server_channel);
}

/// Events without a channel are lost, not kept.
#[test]
fn a_channel_may_go_before_its_ids() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let (client_channel, client) = resolved(&device, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    drop(client_channel);
    client.connect(&qp, &ConnectParams::default()).unwrap();
    let server = event(&server_channel).id;
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    server.accept(&server_qp, &ConnectParams::default()).unwrap();
    until("the connection", || qp.is_connected().then_some(()));
    drop(server_channel);
    client.disconnect();
    until("connections to go", || (device.connections() == 0).then_some(()));
    // A request that comes in has no channel to go to.
    let mut raw = Raw::connect(listener.local_addr().unwrap());
    raw.send(&request().octets());
    raw.expect_end();
}

#[test]
fn many_connect_at_once() {
    const THREADS: usize = 8;
    const EACH: usize = 25;
    let device = Device::with_options(Options::default()).unwrap();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let servers = thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut seen = HashSet::new();
            let mut servers = Vec::new();
            for _ in 0..THREADS * EACH {
                let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("all come");
                assert!(seen.insert(incoming.private_data().to_vec()));
                let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
                let params = saying(incoming.private_data());
                let connection = incoming.accept(&qp, &params).unwrap();
                servers.push((connection, qp, pd, send_cq, recv_cq));
            }
            servers
        });
        for client in 0..THREADS {
            let device = device.clone();
            scope.spawn(move || {
                let mut clients = Vec::new();
                for number in 0..EACH {
                    let me = [client as u8, number as u8];
                    let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
                    let connection = connect(&device, addr, &qp, &saying(&me), DEADLINE).unwrap();
                    assert_eq!(connection.private_data(), me);
                    clients.push((connection, qp, pd, send_cq, recv_cq));
                }
            });
        }
        accepting.join().unwrap()
    });
    for (connection, ..) in &servers {
        assert_eq!(connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    }
    drop(servers);
    until("connections to go", || (device.connections() == 0).then_some(()));
}

/// A queue pair that was reset is as new, and what is left of its old connection does not touch
/// the next one.
#[test]
fn a_queue_pair_is_used_again_after_reset() {
    let device = device();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let params = ConnectParams::default();
    let (client, mut server) = pair(&device, &listener);
    let mut old = Vec::new();
    let mut connection = client.connection;
    for round in 0..20 {
        let region = client.pd.allocate(8, common::all_access()).unwrap();
        server.post_recv(round, &[]);
        let send = iwarp::SendRequest::send(round, iwarp::Payload::NONE).signaled();
        client.qp.post_send(&send).unwrap();
        assert_eq!(server.received().wr_id, round);
        assert_eq!(common::succeeded(next(&client.send_cq)).wr_id, round);
        // Left behind unanswered: gone with the reset, without a completion.
        client.qp.post_recv(&iwarp::RecvRequest::new(99, &[region.whole()])).unwrap();
        client.qp.modify(QpState::Reset).unwrap();
        assert_eq!(client.qp.state(), QpState::Reset);
        assert_eq!(client.qp.outstanding(), (0, 0));
        assert_eq!(client.recv_cq.poll_one(), None);
        assert_eq!(server.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Lost));
        if round % 2 == 0 {
            client.qp.modify(QpState::Init).unwrap();
        }
        // The old connection's handles go late, or at once.
        if round % 3 == 0 {
            old.push(connection);
        } else {
            drop(connection);
        }
        (connection, server) = thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let (pd, send_cq, recv_cq, qp) = parts(&device, 16);
                let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
                let connection = incoming.accept(&qp, &params).unwrap();
                End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
            });
            let connection = connect(&device, addr, &client.qp, &params, DEADLINE).unwrap();
            (connection, accepting.join().unwrap())
        });
        old.truncate(1);
        assert!(client.qp.is_connected());
    }
    drop((client.qp, connection, old));
    assert_eq!(server.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    drop(server);
    until("connections to go", || (device.connections() == 0).then_some(()));
}

#[test]
fn peer_to_peer_between_ourselves() {
    for kind in [(true, false, false), (false, true, false), (false, false, true)] {
        let rtr = common::station::only(kind.0, kind.1, kind.2);
        let options = hasty().peer_to_peer(true).rtr(rtr);
        let device = Device::with_options(options).unwrap();
        let (server_channel, listener) = listening(&device, any_port());
        let (client_channel, client) = resolved(&device, listener.local_addr().unwrap());
        let (_pd, _c1, _c2, qp) = parts(&device, 16);
        client.connect(&qp, &ConnectParams::default()).unwrap();
        let server = event(&server_channel).id;
        let (_server_pd, _s1, recv_cq, server_qp) = parts(&device, 16);
        let take = |wr_id| {
            server_qp.post_recv(&iwarp::RecvRequest::new(wr_id, &[])).unwrap();
        };
        take(1);
        server.accept(&server_qp, &ConnectParams::default()).unwrap();
        // The indication is what establishes the connection at the responder.
        assert!(matches!(event(&server_channel).kind, EventKind::Established { .. }));
        assert!(matches!(event(&client_channel).kind, EventKind::Established { .. }));
        if rtr.send {
            assert_eq!(next(&recv_cq).wr_id, 1);
        }
        client.disconnect();
        assert!(matches!(event(&server_channel).kind, EventKind::Disconnected(Ended::Closed)));
    }
}

#[test]
fn a_reply_to_nobody_ends_the_peers_connection() {
    // The peer accepts when the program has given up.
    let device = device();
    let mute = TcpListener::bind(any_port()).unwrap();
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    let (channel, id) = resolved(&device, mute.local_addr().unwrap());
    id.connect(&qp, &ConnectParams::default()).unwrap();
    let mut raw = Raw::accept(&mute);
    raw.startup(FrameKind::Request);
    drop(qp);
    raw.send(&reply().octets());
    raw.expect_fin();
    drop((channel, raw));
    until("connections to go", || (device.connections() == 0).then_some(()));
}

#[test]
fn two_devices_of_a_process_can_talk() {
    let (client, server) = Setup::default().connect();
    server.post_recv(1, &[]);
    client.send(1, &[]);
    server.received();
}

/// Events that were not taken keep no id: its connection ends, its port is free.
#[test]
fn events_that_wait_keep_nothing_alive() {
    let device = device();
    let (server_channel, listener) = listening(&device, any_port());
    let addr = listener.local_addr().unwrap();
    let (client_channel, client) = resolved(&device, addr);
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    client.connect(&qp, &ConnectParams::default()).unwrap();
    let server = event(&server_channel).id;
    let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
    server.accept(&server_qp, &ConnectParams::default()).unwrap();
    until("the connection", || qp.is_connected().then_some(()));
    // Established waits in both channels, and a request in the listener's.
    let mut raw = Raw::connect(addr);
    raw.send(&request().octets());
    drop(client);
    until("the end", || (!server_qp.is_connected()).then_some(()));
    drop(server);
    drop(listener);
    TcpListener::bind(addr).unwrap();
    no_event(&client_channel);
    until("no event", || server_channel.try_next().is_none().then_some(()));
    raw.expect_end();
}
