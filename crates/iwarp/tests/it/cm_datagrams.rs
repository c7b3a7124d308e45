// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram services: ids that offer them, and ids that ask for them.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use iwarp::cm::{ConnectionState, Event, EventChannel, EventKind, Id, PortSpace, UDP_QKEY};
use iwarp::{
    AddressVector, DatagramAttributes, Destination, Device, QpState, QpType, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest,
};

use crate::common::process::{passed_apart, this_test};
use crate::common::station::hasty;
use crate::common::{DEADLINE, census, until};

const GRH: usize = 40;
/// A process that becomes the broker of the port meanwhile has some more, and one for each other.
const OF_A_BROKER: usize = 100;

fn device() -> Device {
    Device::with_options(hasty()).unwrap()
}

fn event(channel: &EventChannel) -> Event {
    channel.wait(Some(DEADLINE)).unwrap().expect("an event")
}

fn any_port(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), 0)
}

fn serving(channel: &EventChannel, addr: SocketAddr) -> Id {
    let id = Id::for_datagrams(channel, PortSpace::Udp).unwrap();
    id.bind(addr).unwrap();
    id.listen(8).unwrap();
    assert_eq!(id.state(), ConnectionState::Listening);
    id
}

fn resolved(channel: &EventChannel, addr: SocketAddr) -> Id {
    let id = Id::for_datagrams(channel, PortSpace::Udp).unwrap();
    id.resolve_addr(None, addr).unwrap();
    assert!(matches!(event(channel).kind, EventKind::AddressResolved));
    id.resolve_route().unwrap();
    assert!(matches!(event(channel).kind, EventKind::RouteResolved));
    assert_ne!(id.local_addr().unwrap().port(), 0, "a port is chosen");
    id
}

fn queue_pair(device: &Device) -> (QueuePair, iwarp::CompletionQueue, iwarp::ProtectionDomain) {
    let pd = device.alloc_pd();
    let cq = device.create_cq(8, None).unwrap();
    let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
    let qp = pd.create_qp(&attributes).unwrap();
    qp.modify(QpState::Init).unwrap();
    qp.set_datagram(&DatagramAttributes::with_qkey(UDP_QKEY)).unwrap();
    qp.modify(QpState::Rtr).unwrap();
    qp.modify(QpState::Rts).unwrap();
    (qp, cq, pd)
}

/// Asks, and answers with a queue pair of that number: what the asker gets to know.
fn exchange(channel: &EventChannel, server: &Id, qp: u32) -> (AddressVector, u32, u32) {
    let client = resolved(channel, server.local_addr().unwrap());
    client.ask(b"who").unwrap();
    let Event { id, listener, kind, .. } = event(channel);
    let EventKind::ServiceRequest { private_data, .. } = kind else { panic!("{kind:?}") };
    assert_eq!(listener.as_ref(), Some(server));
    assert_eq!((private_data.len(), &private_data[..4]), (180, &b"who\0"[..]));
    assert_eq!(id.peer_addr(), client.local_addr());
    assert_eq!(id.local_addr(), client.peer_addr());
    assert_eq!(id.state(), ConnectionState::Requested);
    id.answer_with(qp, UDP_QKEY, b"me").unwrap();
    assert_eq!(id.answer_with(qp, UDP_QKEY, b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    let Event { id, kind, .. } = event(channel);
    let EventKind::ServiceFound { private_data, address, qp, qkey, .. } = kind else {
        panic!("{kind:?}")
    };
    assert_eq!((private_data.len(), &private_data[..3]), (136, &b"me\0"[..]));
    assert_eq!(id, client);
    assert!(channel.try_next().is_none());
    (address, qp, qkey)
}

/// Covers: ROCE-151, ROCE-170, ROCE-171
#[test]
fn datagrams_go_where_the_answer_says() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let ((here, here_cq, _pd), (there, there_cq, pd)) =
            (queue_pair(&device), queue_pair(&device));
        let server = serving(&channel, any_port(ip));
        let (address, qp, qkey) = exchange(&channel, &server, there.number());
        assert_eq!((address.source, address.destination), (ip, ip));
        assert_eq!((qp, qkey), (there.number(), UDP_QKEY));
        let memory = pd.allocate(GRH + 8, iwarp::Access::LOCAL_WRITE).unwrap();
        there.post_recv(&RecvRequest::new(1, &[memory.sge(0, GRH + 8)])).unwrap();
        let to = Destination { address, qp, qkey };
        let payload = iwarp::Payload::Inline(b"datagram");
        here.post_send(&SendRequest::new(2, SendOp::SEND, payload).to(&to).signaled()).unwrap();
        until("it is sent", || here_cq.poll_one());
        let got = until("it has come", || there_cq.poll_one());
        assert_eq!(got.source_qp.map(u32::from), Some(here.number()));
        let mut octets = [0; 8];
        memory.buffer().unwrap().read_at(GRH, &mut octets);
        assert_eq!(&octets, b"datagram");
    }
}

/// Covers: ROCE-170
#[test]
fn a_service_that_is_not_offered_is_refused() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let server = serving(&channel, any_port(Ipv4Addr::LOCALHOST));
    let addr = server.local_addr().unwrap();
    let client = resolved(&channel, addr);
    client.ask(b"").unwrap();
    event(&channel).id.reject(b"").unwrap();
    let kind = event(&channel).kind;
    assert!(matches!(kind, EventKind::ServiceRefused { status: 2, .. }), "{kind:?}");
    drop(server);
    client.ask(b"").unwrap();
    let kind = event(&channel).kind;
    assert!(matches!(kind, EventKind::ServiceRefused { status: 1, .. }), "{kind:?}");
    assert_eq!(client.state(), ConnectionState::Idle);
}

/// Programs tell their port and listen only then.
#[test]
fn a_service_may_come_a_little_late() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let server = Id::for_datagrams(&channel, PortSpace::Udp).unwrap();
    server.bind(any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let client = resolved(&channel, server.local_addr().unwrap());
    client.ask(b"").unwrap();
    server.listen(1).unwrap();
    let kind = event(&channel).kind;
    assert!(matches!(kind, EventKind::ServiceRequest { .. }), "{kind:?}");
}

#[test]
fn a_port_is_one_id_s() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    // Connections have ports of their own. This one comes first, as another program on the host may
    // have the TCP port of a number that is free for a service.
    let connections = Id::new(&channel).unwrap();
    connections.bind(any_port(Ipv4Addr::LOCALHOST)).unwrap();
    let addr = connections.local_addr().unwrap();
    let server = serving(&channel, addr);
    let other = Id::for_datagrams(&channel, PortSpace::Udp).unwrap();
    assert_eq!(other.bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    server.close();
    other.bind(addr).unwrap();
    let elsewhere = SocketAddr::new([192, 0, 2, 1].into(), 0);
    let stranger = Id::for_datagrams(&channel, PortSpace::Udp).unwrap();
    assert_eq!(stranger.bind(elsewhere).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn an_id_for_connections_knows_no_services() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    assert_eq!(id.ask(b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(id.answer_with(5, 0, b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    let group = IpAddr::from([239, 1, 2, 3]);
    assert_eq!(id.join(group).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A request that the program does not answer any more is refused when its id goes.
#[test]
fn an_id_that_goes_says_no() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let server = serving(&channel, any_port(Ipv4Addr::LOCALHOST));
    let client = resolved(&channel, server.local_addr().unwrap());
    client.ask(b"").unwrap();
    drop(event(&channel));
    let kind = event(&channel).kind;
    assert!(matches!(kind, EventKind::ServiceRefused { status: 2, .. }), "{kind:?}");
}

/// Covers: ROCE-133
#[test]
fn groups_are_told_as_linux_tells_them() {
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::for_datagrams(&channel, PortSpace::Udp).unwrap();
    let group = IpAddr::from([239, 1, 2, 3]);
    assert_eq!(id.join(group).unwrap_err().kind(), ErrorKind::InvalidInput, "not bound yet");
    id.bind(any_port(Ipv4Addr::LOCALHOST)).unwrap();
    id.join(group).unwrap();
    let kind = event(&channel).kind;
    let EventKind::MulticastJoined { group: joined, address, qp, qkey, .. } = kind else {
        panic!("{kind:?}")
    };
    assert_eq!((joined, address.destination, address.hop_limit), (group, group, 64));
    assert_eq!((qp, qkey), (0xff_ffff, UDP_QKEY));
    for other in [IpAddr::from([10, 0, 0, 1]), "ff02::5".parse().unwrap()] {
        assert_eq!(id.join(other).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_thousand_exchanges_leave_no_descriptor() {
    if passed_apart(this_test!(), DEADLINE * 3) {
        return;
    }
    let device = device();
    let channel = EventChannel::new(&device).unwrap();
    let server = serving(&channel, any_port(Ipv4Addr::LOCALHOST));
    exchange(&channel, &server, 0x1234);
    let before = census::descriptors();
    for _ in 0..1000 {
        exchange(&channel, &server, 0x1234);
    }
    assert!(census::descriptors() <= before + OF_A_BROKER);
}
