// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections over RoCE v2 by the connection manager: `IWARP_WIRE=roce` at both ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use iwarp::cm::{
    self, ConnectError, ConnectParams, Connection, ConnectionState, Event, EventChannel, EventKind,
    Id, Listener,
};
use iwarp::{
    Access, CompletionQueue, Device, MemoryRegion, Options, Personality, ProtectionDomain, QpState,
    QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, WcStatus, Wire,
};

use crate::common::process::{passed_apart, this_test};
use crate::common::scene::Scene;
use crate::common::station::hasty;
use crate::common::{DEADLINE, census, until};
use crate::rc::Hosts;

/// A process that becomes the broker of the port meanwhile has some more, and one for each other.
const OF_A_BROKER: usize = 100;

fn options() -> Options {
    hasty().personality(Personality::Roce).wire(Wire::Roce)
}

/// A queue pair, and what it needs.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

impl End {
    fn on(device: &Device) -> Self {
        let pd = device.alloc_pd();
        let cq = device.create_cq(16, None).unwrap();
        let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let memory = pd.allocate(4096, access).unwrap();
        Self { qp, cq, memory, _pd: pd }
    }

    fn receive(&self) {
        self.qp.post_recv(&RecvRequest::new(1, &[self.memory.sge(0, 64)])).unwrap();
    }

    fn send(&self, octets: &[u8]) {
        let payload = iwarp::Payload::Inline(octets);
        self.qp.post_send(&SendRequest::new(2, SendOp::SEND, payload).signaled()).unwrap();
        let done = until("it is sent", || self.cq.poll_one());
        assert_eq!((done.wr_id, done.status), (2, WcStatus::Success));
    }

    fn received(&self, octets: &[u8]) {
        let got = until("it has come", || self.cq.poll_one());
        assert_eq!((got.wr_id, got.status), (1, WcStatus::Success));
        let mut found = vec![0; octets.len()];
        self.memory.buffer().unwrap().read_at(0, &mut found);
        assert_eq!(found, octets);
    }
}

fn any_port(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), 0)
}

fn params(octets: &[u8]) -> ConnectParams {
    ConnectParams::new().private_data(octets).ird(4).ord(4)
}

/// Connects `here` to `there`.
fn couple(device: &Device, listener: &Listener, here: &End, there: &End) -> [Connection; 2] {
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
            assert_eq!(incoming.private_data().len(), 56);
            assert_eq!(&incoming.private_data()[..4], b"ask\0");
            assert_eq!(incoming.read_depths(), (Some(4), Some(4)));
            incoming.accept(&there.qp, &params(b"answer")).unwrap()
        });
        let asked = cm::connect(device, addr, &here.qp, &params(b"ask"), DEADLINE).unwrap();
        assert_eq!(
            (asked.private_data().len(), &asked.private_data()[..7]),
            (196, &b"answer\0"[..])
        );
        [asked, accepted.join().unwrap()]
    })
}

/// A RoCE card's ports are none of TCP's: some programs (UCX) listen at one port for both.
#[test]
fn a_port_is_none_of_tcps() {
    let device = Device::with_options(options()).unwrap();
    let stream = TcpListener::bind(any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let addr = stream.local_addr().unwrap();
    let listener = Listener::bind(&device, addr).unwrap();
    assert_eq!(listener.local_addr().unwrap(), addr);
    let taken = Listener::bind(&device, addr).map(drop).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    // The other way round.
    drop(stream);
    let stream = TcpListener::bind(addr).unwrap();
    let (here, there) = (End::on(&device), End::on(&device));
    let [asked, accepted] = couple(&device, &listener, &here, &there);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.accept().map(drop).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    asked.disconnect();
    assert!(accepted.wait_disconnected(Some(DEADLINE)).is_some());
    // The port is free with its listener.
    drop(listener);
    Listener::bind(&device, addr).unwrap();
}

#[test]
fn an_id_whose_connection_is_over_leaves_the_queue_pairs_next_one_alone() {
    let device = Device::with_options(options()).unwrap();
    let listener = Listener::bind(&device, any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let addr = listener.local_addr().unwrap();
    let (here, there) = (End::on(&device), End::on(&device));
    let [asked, accepted] = couple(&device, &listener, &here, &there);
    asked.disconnect();
    assert!(accepted.wait_disconnected(Some(DEADLINE)).is_some());
    // Its number is free for another connection once its time of waiting is over.
    let ([again, second], client) = until("another connection", || {
        there.qp.modify(QpState::Reset).unwrap();
        there.qp.modify(QpState::Init).unwrap();
        let client = End::on(&device);
        std::thread::scope(|scope| {
            let accepts = scope.spawn(|| {
                let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
                incoming.accept(&there.qp, &params(b"answer")).ok()
            });
            let asks = cm::connect(&device, addr, &client.qp, &params(b"ask"), DEADLINE);
            Some(([asks.ok()?, accepts.join().unwrap()?], client))
        })
    });
    drop((asked, accepted));
    // The worker has taken a turn when yet another connection is made.
    drop(couple(&device, &listener, &End::on(&device), &End::on(&device)));
    there.receive();
    client.send(b"ping");
    there.received(b"ping");
    drop((again, second));
}

/// Covers: ROCE-147, ROCE-150, ROCE-155, ROCE-159
#[test]
fn a_connection_is_made_used_and_ended() {
    let device = Device::with_options(options()).unwrap();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let listener = Listener::bind(&device, any_port(ip)).unwrap();
        let (here, there) = (End::on(&device), End::on(&device));
        there.receive();
        let [asked, accepted] = couple(&device, &listener, &here, &there);
        assert_eq!(here.qp.wire(), Some(Wire::Roce));
        here.send(b"ping");
        there.received(b"ping");
        here.receive();
        there.send(b"pong");
        here.received(b"pong");
        asked.disconnect();
        assert!(asked.wait_disconnected(Some(DEADLINE)).is_some());
        assert!(accepted.wait_disconnected(Some(DEADLINE)).is_some());
        assert_eq!((here.qp.state(), there.qp.state()), (QpState::Err, QpState::Err));
    }
}

/// An end that may speak either speaks what the other does.
#[test]
fn one_end_may_leave_it_to_the_other() {
    for (client, server) in [(Wire::Roce, Wire::Auto), (Wire::Auto, Wire::Roce)] {
        let [client, server] =
            [client, server].map(|wire| Device::with_options(options().wire(wire)).unwrap());
        let listener = Listener::bind(&server, any_port(Ipv4Addr::LOCALHOST)).unwrap();
        let (here, there) = (End::on(&client), End::on(&server));
        there.receive();
        let [_asked, _accepted] = couple(&client, &listener, &here, &there);
        assert_eq!((here.qp.wire(), there.qp.wire()), (Some(Wire::Roce), Some(Wire::Roce)));
        here.send(b"either");
        there.received(b"either");
    }
}

/// Two that may speak either meet over a stream.
#[test]
fn our_own_kind_speaks_iwarp() {
    let device = Device::with_options(options().wire(Wire::Auto)).unwrap();
    let listener = Listener::bind(&device, any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let (here, there) = (End::on(&device), End::on(&device));
    there.receive();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
            incoming.accept(&there.qp, &params(b"")).unwrap()
        });
        let _asked = cm::connect(&device, addr, &here.qp, &params(b""), DEADLINE).unwrap();
        let _accepted = accepting.join().unwrap();
        assert_eq!(here.qp.wire(), Some(Wire::Iwarp));
        here.send(b"stream");
        there.received(b"stream");
    });
    assert!(listener.accept(Some(std::time::Duration::ZERO)).unwrap().is_none(), "a second one");
}

/// Covers: ROCE-152, ROCE-158
#[test]
fn a_refusal_says_why() {
    let device = Device::with_options(options()).unwrap();
    let channel = EventChannel::new(&device).unwrap();
    let listener = Id::new(&channel).unwrap();
    listener.bind(any_port(Ipv4Addr::LOCALHOST)).unwrap();
    listener.listen(4).unwrap();
    let addr = listener.local_addr().unwrap();
    let end = End::on(&device);
    let client = Id::new(&channel).unwrap();
    let event = || channel.wait(Some(DEADLINE)).unwrap().expect("an event");
    client.resolve_addr(None, addr).unwrap();
    assert!(matches!(event().kind, EventKind::AddressResolved));
    for listens in [true, false] {
        client.connect(&end.qp, &params(b"ask")).unwrap();
        let (reason, said) = if listens {
            let Event { id, kind, .. } = event();
            assert!(matches!(kind, EventKind::ConnectRequest { .. }), "{kind:?}");
            assert_eq!(id.state(), ConnectionState::Requested);
            id.reject(b"no").unwrap();
            listener.close();
            (28, &b"no"[..])
        } else {
            (8, &b"\0\0"[..])
        };
        let kind = event().kind;
        let EventKind::Rejected { private_data, reason: told, .. } = kind else {
            panic!("{kind:?}")
        };
        assert_eq!((told, private_data.len(), &private_data[..2]), (Some(reason), 148, said));
        assert_eq!(client.state(), ConnectionState::Idle);
    }
}

/// A blocking caller is told so too.
#[test]
fn a_port_without_a_listener_rejects_a_blocking_caller() {
    let device = Device::with_options(options()).unwrap();
    let listener = Listener::bind(&device, any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let end = End::on(&device);
    let failed = cm::connect(&device, addr, &end.qp, &params(b""), DEADLINE);
    assert!(matches!(failed, Err(ConnectError::Rejected { .. })), "{failed:?}");
}

/// An id that goes ends its connection, or refuses it.
#[test]
fn ids_that_go_end_what_they_had() {
    let device = Device::with_options(options()).unwrap();
    let listener = Listener::bind(&device, any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let (here, there) = (End::on(&device), End::on(&device));
    let [asked, accepted] = couple(&device, &listener, &here, &there);
    drop(asked);
    assert!(accepted.wait_disconnected(Some(DEADLINE)).is_some());
    let addr = listener.local_addr().unwrap();
    let end = End::on(&device);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept(Some(DEADLINE)).unwrap().expect("a request")));
        let failed = cm::connect(&device, addr, &end.qp, &params(b"ask"), DEADLINE);
        assert!(matches!(failed, Err(ConnectError::Rejected { .. })), "{failed:?}");
    });
}

/// A program that takes its time for each request hears of a peer that asks once soon, however
/// often another has asked.
#[test]
fn a_peer_that_asks_without_end_keeps_no_other_waiting() {
    const WAITING: u32 = 300;
    const EACH_TURN: u32 = 15;
    const TAKES: Duration = Duration::from_millis(5);
    let scene = Scene::new();
    let _playing = scene.play();
    let hosts = Hosts::in_scene(1, &scene);
    let [server, stranger, peer] =
        [1, 2, 3].map(|last| hosts.device(IpAddr::from([10, 0, 0, last]), options()));
    let events = [&server, &stranger, &peer].map(|device| EventChannel::new(device).unwrap());
    let address = SocketAddr::from(([10, 0, 0, 1], 7174));
    let listener = Id::new(&events[0]).unwrap();
    listener.bind(address).unwrap();
    listener.listen(1).unwrap();
    let id_of = |which: usize| {
        let id = Id::new(&events[which]).unwrap();
        id.resolve_addr(None, address).unwrap();
        // It is known at once. Others are of requests that were refused.
        let mut news = std::iter::from_fn(|| events[which].try_next());
        assert!(news.any(|event| matches!(event.kind, EventKind::AddressResolved)));
        id
    };
    let mut asked = Vec::new();
    let mut flood = |times: u32| {
        for _ in 0..times {
            let id = id_of(1);
            let number = 0x1000 + u32::try_from(asked.len()).unwrap();
            id.connect_first_with(number, &params(b"flood")).unwrap();
            asked.push(id);
        }
    };
    flood(WAITING);
    scene.pass(TAKES);
    let (here, there) = (End::on(&server), End::on(&peer));
    let id = id_of(2);
    let begun = scene.clock.now();
    id.connect(&there.qp, &params(b"ask")).unwrap();
    let mut accepted = None;
    let established = loop {
        let event = events[0].try_next().expect("a request");
        if let EventKind::ConnectRequest { private_data, .. } = &event.kind
            && private_data.starts_with(b"ask")
        {
            event.id.accept(&here.qp, &params(b"answer")).unwrap();
            accepted = Some(event.id);
        }
        flood(EACH_TURN);
        scene.pass(TAKES);
        if let Some(event) = events[2].try_next() {
            break event;
        }
    };
    assert!(matches!(established.kind, EventKind::Established { .. }), "{established:?}");
    let took = scene.clock.now() - begun;
    assert!(accepted.is_some() && took <= 10 * TAKES, "{took:?}");
}

#[test]
fn a_thousand_connections_leave_no_descriptor() {
    if passed_apart(this_test!(), DEADLINE * 6) {
        return;
    }
    let device = Device::with_options(options()).unwrap();
    let listener = Listener::bind(&device, any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let connect = || {
        let (here, there) = (End::on(&device), End::on(&device));
        there.receive();
        let [asked, accepted] = couple(&device, &listener, &here, &there);
        here.send(b"one");
        there.received(b"one");
        asked.disconnect();
        assert!(accepted.wait_disconnected(Some(DEADLINE)).is_some());
    };
    connect();
    let before = census::descriptors();
    (0..1000).for_each(|_| connect());
    let most = before + OF_A_BROKER;
    until("descriptors are given back", || (census::descriptors() <= most).then_some(()));
}
