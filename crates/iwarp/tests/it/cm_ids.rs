// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids of the connection manager: addresses they hold, channels they move between, queue pairs
//! they get late.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use iwarp::cm::{ConnectParams, ConnectionState, Event, EventChannel, EventKind, Id};
use iwarp::{Device, Ended, NamedDevice, QpState};
use iwarp_proto::mpa::wire::FrameKind;

use crate::common;
use crate::common::raw::{Raw, request};
use crate::common::station::hasty;
use crate::common::{DEADLINE, parts, until};

fn any_port() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
}

fn device() -> Device {
    Device::with_options(hasty()).unwrap()
}

fn event(channel: &EventChannel) -> Event {
    channel.wait(Some(DEADLINE)).unwrap().expect("an event")
}

fn nothing(channel: &EventChannel) {
    assert!(channel.try_next().is_none());
}

fn bound(channel: &EventChannel, addr: SocketAddr) -> Id {
    let id = Id::new(channel).unwrap();
    id.bind(addr).unwrap();
    id
}

fn listening(channel: &EventChannel) -> Id {
    let id = bound(channel, any_port());
    id.listen(8).unwrap();
    id
}

fn resolved(channel: &EventChannel, addr: SocketAddr) -> Id {
    let id = Id::new(channel).unwrap();
    id.resolve_addr(None, addr).unwrap();
    assert!(matches!(event(channel).kind, EventKind::AddressResolved));
    id
}

#[test]
fn a_bound_port_refuses_until_its_id_listens() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = bound(&channel, any_port());
    let addr = id.local_addr().unwrap();
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    id.listen(1).unwrap();
    TcpStream::connect(addr).unwrap();
    id.close();
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // The port is free although the id exists.
    TcpListener::bind(addr).unwrap();
}

/// Programs tell their port and listen only then.
#[test]
fn a_listener_may_come_a_little_late() {
    let device = device();
    let (server_channel, client_channel) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    let listener = bound(&server_channel, any_port());
    let client = resolved(&client_channel, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    client.connect(&qp, &ConnectParams::default()).unwrap();
    // The first attempt is refused at once.
    listener.listen(1).unwrap();
    assert!(matches!(event(&server_channel).kind, EventKind::ConnectRequest { .. }));
    nothing(&client_channel);
}

/// Programs number their connections in the order in which they make them, at both ends.
#[test]
fn requests_come_in_order_although_the_first_were_refused() {
    let device = device();
    let (server_channel, client_channel) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    for round in 0..20 {
        let listener = bound(&server_channel, any_port());
        let addr = listener.local_addr().unwrap();
        let (_pd, _c1, _c2, qp) = parts(&device, 16);
        let clients: Vec<_> = (0..8u8)
            .map(|number| {
                let client = resolved(&client_channel, addr);
                if number == 4 {
                    // By now some were refused, and wait.
                    listener.listen(8).unwrap();
                }
                let private_data = vec![number];
                client.connect(&qp, &ConnectParams::new().private_data(private_data)).unwrap();
                client
            })
            .collect();
        let order: Vec<u8> = clients
            .iter()
            .map(|_| match event(&server_channel).kind {
                EventKind::ConnectRequest { private_data, .. } => private_data[0],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7], "round {round}");
    }
}

/// The library looks up the device of a listener for each peer that asks. Were the listener kept
/// for that moment, the library might be the one to end it, while it serves it.
#[test]
fn a_listener_may_go_while_peers_ask() {
    const ROUNDS: u32 = 4000;
    const PEERS: u32 = 4;
    let named = vec![NamedDevice::new("near").interface("lo".to_owned())];
    let device = Device::with_options(hasty().devices(named)).unwrap();
    let channel = EventChannel::new(&device).unwrap();
    let octets = request().octets();
    for round in 0..ROUNDS {
        let listener = listening(&channel);
        let addr = listener.local_addr().unwrap();
        let peers: Vec<_> = (0..PEERS)
            .map(|_| {
                let mut peer = Raw::connect(addr);
                peer.send(&octets);
                peer
            })
            .collect();
        // The library has come to another one of them each time.
        for _ in 0..round % PEERS {
            event(&channel);
        }
        drop(listener);
        drop(peers);
    }
    // The library's thread serves others as before.
    let listener = listening(&channel);
    let mut peer = Raw::connect(listener.local_addr().unwrap());
    peer.send(&octets);
    assert!(matches!(event(&channel).kind, EventKind::ConnectRequest { .. }));
}

/// A peer knows of its connection as soon as it has the Reply, and may ask for the next one before
/// the accepting call has returned: the program is told of the first one first.
#[test]
fn a_connection_is_told_before_what_its_peer_asks_for_next() {
    const ROUNDS: usize = 300;
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let listener = listening(&channel);
    let addr = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let mut before = None;
        for _ in 0..ROUNDS {
            let mut raw = Raw::connect(addr);
            raw.send(&request().octets());
            raw.startup(FrameKind::Reply);
            before = Some(raw);
        }
        before
    });
    for round in 0..ROUNDS {
        let next = event(&channel);
        assert!(matches!(next.kind, EventKind::ConnectRequest { .. }), "{round}: {:?}", next.kind);
        let (_pd, _s1, _s2, qp) = parts(&device, 16);
        next.id.accept(&qp, &ConnectParams::default()).unwrap();
        let then = event(&channel);
        assert!(matches!(then.kind, EventKind::Established { .. }), "{round}: {:?}", then.kind);
    }
    drop(peer.join().unwrap());
}

#[test]
fn an_address_can_be_shared_by_one_that_listens() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let shared = |addr| {
        let id = Id::new(&channel).unwrap();
        id.set_share_address(true);
        id.bind(addr).map(|()| id)
    };
    let first = shared(any_port()).unwrap();
    let addr = first.local_addr().unwrap();
    let second = shared(addr).unwrap();
    first.listen(1).unwrap();
    assert_eq!(second.listen(1).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(shared(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    second.listen(1).unwrap();
}

#[test]
fn ipv6_alone_leaves_the_port_to_ipv4() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    // A port that is free for IPv6 may be another program's for IPv4.
    let (id, other) = until("a port", || {
        let [id, other] = [0; 2].map(|_| Id::new(&channel).unwrap());
        id.set_ipv6_only(true);
        id.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).unwrap();
        let port = id.local_addr().unwrap().port();
        other.bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).ok()?;
        Some((id, other))
    });
    id.listen(1).unwrap();
    other.listen(1).unwrap();
}

#[test]
fn a_client_comes_from_the_source_it_names() {
    let device = device();
    let source = IpAddr::V4(Ipv4Addr::new(127, 3, 2, 1));
    let from = EventChannel::new(&device).unwrap();
    let free = TcpListener::bind((source, 0)).unwrap().local_addr().unwrap().port();
    for port in [0, free] {
        let channel = EventChannel::new(&device).unwrap();
        let listener = listening(&channel);
        let id = Id::new(&from).unwrap();
        id.set_traffic_class(0x20);
        let src = SocketAddr::new(source, port);
        id.resolve_addr(Some(src), listener.local_addr().unwrap()).unwrap();
        assert!(matches!(event(&from).kind, EventKind::AddressResolved));
        let (_pd, _c1, _c2, qp) = parts(&device, 16);
        id.connect(&qp, &ConnectParams::default()).unwrap();
        let peer = event(&channel).id.peer_addr().unwrap();
        assert!(peer.ip() == source && (port == 0 || peer.port() == port), "{peer}");
    }
    let there = any_port();
    // Not one of this host's.
    let id = Id::new(&from).unwrap();
    let foreign = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 77).into(), 0);
    let error = id.resolve_addr(Some(foreign), there).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    // Bound to one family, it does not reach the other.
    let id = bound(&from, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0));
    let error = id.resolve_addr(None, there).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn waiting_events_migrate_in_order() {
    let device = device();
    let (first, second) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    let listener = listening(&first);
    let addr = listener.local_addr().unwrap();
    let (id, other) = (Id::new(&first).unwrap(), Id::new(&first).unwrap());
    id.resolve_addr(None, addr).unwrap();
    other.resolve_addr(None, addr).unwrap();
    id.resolve_route().unwrap();
    id.migrate(&second);
    assert!(matches!(event(&second).kind, EventKind::AddressResolved));
    assert!(matches!(event(&second).kind, EventKind::RouteResolved));
    let stayed = event(&first);
    assert!(stayed.id == other);
    // Requests go with their listener, and what happens to them afterwards too.
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    id.connect(&qp, &ConnectParams::default()).unwrap();
    let request = until("the request", || {
        listener.migrate(&second);
        let request = second.try_next();
        listener.migrate(&first);
        request
    });
    nothing(&first);
    assert!(request.listener == Some(listener));
}

#[test]
fn a_closed_id_has_no_events() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let listener = listening(&channel);
    let client_channel = EventChannel::new(&device).unwrap();
    let client = resolved(&client_channel, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    client.notify(3, 4);
    client.close();
    nothing(&client_channel);
    client.notify(3, 4);
    nothing(&client_channel);
    // Of a listener, the requests that wait.
    let client = resolved(&client_channel, listener.local_addr().unwrap());
    client.connect(&qp, &ConnectParams::default()).unwrap();
    let readable = || iwarp_os::poll::wait_readable([std::os::fd::AsFd::as_fd(&channel)], None);
    assert_eq!(readable().unwrap(), [true]);
    listener.close();
    nothing(&channel);
    let failed = event(&client_channel).kind;
    assert!(matches!(failed, EventKind::ConnectError(_) | EventKind::Unreachable(_)), "{failed:?}");
}

#[test]
fn programs_have_events_of_their_own() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    let mine: Arc<&str> = Arc::new("mine");
    assert!(id.context().is_none());
    id.set_context(mine);
    id.notify(-7, u64::MAX);
    let got = event(&channel);
    assert!(matches!(got.kind, EventKind::User { status: -7, argument: u64::MAX }));
    assert_eq!(**got.id.context().unwrap().downcast_ref::<&str>().unwrap(), *"mine");
}

/// A connection whose queue pair comes when the peer has accepted already.
#[test]
fn a_queue_pair_may_come_last() {
    let device = device();
    let (server_channel, client_channel) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    let listener = listening(&server_channel);
    let client = resolved(&client_channel, listener.local_addr().unwrap());
    let (_pd, _c1, _c2, qp) = parts(&device, 16);
    assert_eq!(client.establish(&qp).unwrap_err().kind(), ErrorKind::InvalidInput);
    let params = ConnectParams::new().private_data(b"first").ird(3).ord(5);
    client.connect_first(&params).unwrap();
    let server = event(&server_channel).id;
    let (_server_pd, _s1, server_cq, server_qp) = parts(&device, 16);
    server_qp.post_recv(&iwarp::RecvRequest::new(1, &[])).unwrap();
    let params = ConnectParams::new().private_data(b"then").ird(3).ord(5);
    server.accept(&server_qp, &params).unwrap();
    assert!(matches!(event(&server_channel).kind, EventKind::Established { .. }));
    match event(&client_channel).kind {
        EventKind::Responded { private_data, ird, ord, .. } => {
            assert_eq!((private_data.as_slice(), ird, ord), (&b"then"[..], 3, 3));
        }
        other => panic!("{other:?}"),
    }
    assert!(!qp.is_connected());
    client.establish(&qp).unwrap();
    assert_eq!(client.establish(&qp).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(qp.state(), QpState::Rts);
    let send = iwarp::SendRequest::send(2, iwarp::Payload::NONE).signaled();
    qp.post_send(&send).unwrap();
    assert_eq!(common::succeeded(common::next(&server_cq)).wr_id, 1);
    server.disconnect();
    assert!(matches!(event(&client_channel).kind, EventKind::Disconnected(Ended::Closed)));
}

/// An answer that the program never takes up ends with its id.
#[test]
fn an_answer_that_is_not_taken_up_goes_with_its_id() {
    let device = device();
    let (server_channel, client_channel) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    let listener = listening(&server_channel);
    let client = resolved(&client_channel, listener.local_addr().unwrap());
    client.connect_first(&ConnectParams::default()).unwrap();
    let server = event(&server_channel).id;
    let (_pd, _s1, _s2, qp) = parts(&device, 16);
    server.accept(&qp, &ConnectParams::default()).unwrap();
    assert!(matches!(event(&client_channel).kind, EventKind::Responded { .. }));
    assert!(matches!(event(&server_channel).kind, EventKind::Established { .. }));
    drop(client);
    assert!(matches!(event(&server_channel).kind, EventKind::Disconnected(_)));
}

/// The end is the id's to tell, whether there is a queue pair any more or not.
#[test]
fn the_end_is_told_without_a_queue_pair() {
    let device = device();
    let (server_channel, client_channel) =
        (EventChannel::new(&device).unwrap(), EventChannel::new(&device).unwrap());
    let listener = listening(&server_channel);
    for mine_goes in [true, false] {
        let client = resolved(&client_channel, listener.local_addr().unwrap());
        let (_pd, _c1, _c2, qp) = parts(&device, 16);
        client.connect(&qp, &ConnectParams::default()).unwrap();
        let server = event(&server_channel).id;
        let (_server_pd, _s1, _s2, server_qp) = parts(&device, 16);
        server.accept(&server_qp, &ConnectParams::default()).unwrap();
        assert!(matches!(event(&server_channel).kind, EventKind::Established { .. }));
        assert!(matches!(event(&client_channel).kind, EventKind::Established { .. }));
        if mine_goes {
            drop(qp);
        } else {
            drop(server_qp);
        }
        let began = Instant::now();
        assert!(matches!(event(&client_channel).kind, EventKind::Disconnected(Ended::Closed)));
        assert!(matches!(event(&server_channel).kind, EventKind::Disconnected(Ended::Closed)));
        assert!(began.elapsed() < DEADLINE / 4);
        nothing(&client_channel);
        nothing(&server_channel);
    }
    until("connections to go", || (device.connections() == 0).then_some(()));
}

/// The C library takes from it what a program may call next.
#[test]
fn an_id_says_how_far_its_connection_has_come() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let listener = listening(&channel);
    assert_eq!(listener.state(), ConnectionState::Listening);
    let client = resolved(&channel, listener.local_addr().unwrap());
    assert_eq!(client.state(), ConnectionState::Idle);
    let (ours, theirs) = (parts(&device, 8), parts(&device, 8));
    client.connect(&ours.3, &ConnectParams::default()).unwrap();
    assert_eq!(client.state(), ConnectionState::Connecting);
    let server = event(&channel).id;
    assert_eq!(server.state(), ConnectionState::Requested);
    server.accept(&theirs.3, &ConnectParams::default()).unwrap();
    for _ in 0..2 {
        let Event { id, kind, .. } = event(&channel);
        assert!(matches!(kind, EventKind::Established { .. }), "{kind:?}");
        assert_eq!(id.state(), ConnectionState::Connected);
    }
    client.disconnect();
    for _ in 0..2 {
        // Completions that wait to be taken the program does not know.
        let ended = || (theirs.3.state() == QpState::Err).then_some(());
        until("the end", ended);
        let waiting = [&client, &server].map(|id| id.state() == ConnectionState::Connected);
        assert_ne!(waiting, [false; 2]);
        let Event { id, kind, .. } = event(&channel);
        assert!(matches!(kind, EventKind::Disconnected(Ended::Closed)), "{kind:?}");
        assert_eq!(id.state(), ConnectionState::Over);
    }

    let refused = resolved(&channel, listener.local_addr().unwrap());
    refused.connect_first(&ConnectParams::default()).unwrap();
    let request = event(&channel).id;
    request.reject(b"no").unwrap();
    assert_eq!(request.state(), ConnectionState::Over);
    assert_eq!(
        request.connect_first(&ConnectParams::default()).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(matches!(event(&channel).kind, EventKind::Rejected { .. }));
    assert_eq!(refused.state(), ConnectionState::Idle);
    refused.connect_first(&ConnectParams::default()).unwrap();
    let accepting = event(&channel).id;
    let theirs = parts(&device, 8);
    accepting.accept(&theirs.3, &ConnectParams::default()).unwrap();
    let responded = || (refused.state() == ConnectionState::Responded).then_some(());
    until("the answer", responded);
}
