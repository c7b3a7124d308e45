// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several devices of one process, each with an interface, a personality, a wire and a speed of its
//! own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use iwarp::cm::{ConnectError, ConnectParams, EventChannel, EventKind, Id, Listener, connect};
use iwarp::verbs::Gid;
use iwarp::{
    AddressVector, DatagramAttributes, Destination, Device, ModifyError, NamedDevice, Options,
    Payload, Peer, Personality, PostError, QpState, QpType, QueuePairAttributes, RecvRequest,
    SendOp, SendRequest, Speed, WcStatus, Wire,
};

use crate::common::meet::{LOOPBACK, Side, TestHost, exchange};
use crate::common::{DEADLINE, End, couple, parts, succeeded, until};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// `ENODEV`
const ENODEV: i32 = 19;

/// An IPv4 address of this host that is not loopback.
pub(super) fn other() -> Gid {
    let device = Device::with_options(Options::new()).unwrap();
    let mut gids = device.gids().unwrap();
    gids.retain(|gid| gid.addr.is_ipv4() && !gid.addr.is_loopback());
    gids.into_iter().next().expect("an interface with IPv4 beside lo")
}

/// Says what a device is.
type Kind = fn(NamedDevice) -> NamedDevice;

/// Two devices of one process, on lo and on another interface, and an address of each.
struct Two {
    devices: [Device; 2],
    addrs: [IpAddr; 2],
}

impl Two {
    fn new(kinds: [Kind; 2]) -> Self {
        let other = other();
        let [lo, other_kind] = kinds;
        let named = vec![
            lo(NamedDevice::new("near").interface("lo".to_owned())),
            other_kind(NamedDevice::new("far").interface(other.interface)),
        ];
        let options = Options::for_any_program().tell_personality(false).devices(named);
        let near = Device::with_options(options).unwrap();
        let far = near.named_sibling(1).unwrap();
        Self { devices: [near, far], addrs: [LOCALHOST, other.addr] }
    }

    fn ends(&self) -> [Side; 2] {
        [0, 1].map(|n| TestHost::of(self.devices[n].clone(), &self.addrs[n].to_string()).end())
    }
}

fn auto(device: NamedDevice) -> NamedDevice {
    device
}

fn iwarp(device: NamedDevice) -> NamedDevice {
    device.personality(Personality::Iwarp)
}

fn roce(device: NamedDevice) -> NamedDevice {
    device.wire(Wire::Roce)
}

fn slow(device: NamedDevice) -> NamedDevice {
    device.personality(Personality::Iwarp).speed(Speed::of_gbit(40).unwrap())
}

/// A message each way.
pub(super) fn talk<A, B>(ends: (&End<A>, &End<B>)) {
    let (one, other) = ends;
    let sink = other.region(64);
    other.post_recv(1, &[sink.whole()]);
    // Until it is sent: the library may still read it.
    let source = one.region_of(b"hello");
    one.send(2, &[source.whole()]);
    assert_eq!(other.received().byte_len, 5);
    one.sent();
}

pub(super) fn end_on(device: &Device) -> End<()> {
    let (pd, send_cq, recv_cq, qp) = parts(device, 16);
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection: () }
}

#[test]
fn each_is_shown_as_what_it_is() {
    let two = Two::new([roce, slow]);
    let shown = two.devices.each_ref().map(|device| {
        let options = device.options();
        (device.name(), device.personality(), options.wire, device.speed().gbit())
    });
    let near = ("near", Personality::Roce, Wire::Roce, 100);
    assert_eq!(shown, [near, ("far", Personality::Iwarp, Wire::Auto, 40)]);
    for (n, [own, others]) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let (device, addrs) = (&two.devices[n], two.devices[n].addresses().unwrap());
        assert!(addrs.contains(&two.addrs[own]) && !addrs.contains(&two.addrs[others]));
        let gids = device.gids().unwrap();
        assert!(gids.iter().all(|gid| addrs.contains(&gid.addr)), "{gids:?}");
        assert_eq!(device.place_of(two.addrs[own]), Some(n));
        assert_eq!(device.node_guid(), device.system_image_guid() + n as u64);
    }
    assert_eq!(two.devices[0].place_of([203, 0, 113, 9].into()), None);
}

#[test]
fn queue_pairs_of_two_devices_meet_by_the_wire_that_both_have() {
    let rows: [([Kind; 2], Wire); 5] = [
        ([auto, auto], Wire::Iwarp),
        ([auto, iwarp], Wire::Iwarp),
        ([iwarp, auto], Wire::Iwarp),
        ([roce, auto], Wire::Roce),
        ([roce, roce], Wire::Roce),
    ];
    for (kinds, wire) in rows {
        let [near, far] = Two::new(kinds).ends();
        near.all_the_way(&far);
        far.all_the_way(&near);
        exchange(&near, &far);
        assert_eq!([near.qp.wire(), far.qp.wire()], [Some(wire); 2]);
    }
}

#[test]
fn devices_without_a_wire_in_common_do_not_meet() {
    let [near, far] = Two::new([roce, iwarp]).ends();
    near.all_the_way(&far);
    far.all_the_way(&near);
    far.send(1, b"hello");
    assert_eq!(far.status(), WcStatus::RetryExceeded);
}

#[test]
fn a_queue_pair_leaves_its_device_by_no_other_address() {
    let two = Two::new([roce, auto]);
    for (device, foreign) in two.devices.iter().zip([two.addrs[1], two.addrs[0]]) {
        let cq = device.create_cq(8, None).unwrap();
        let attributes = QueuePairAttributes::new(&cq, &cq);
        let qp = device.alloc_pd().create_addressable_qp(&attributes).unwrap();
        qp.modify(QpState::Init).unwrap();
        let error = qp.connect_to(&Peer::at(foreign, LOCALHOST, 77, 1)).unwrap_err();
        let ModifyError::System(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with(device.name()), "{error}");
        let way = AddressVector::new(foreign, LOCALHOST);
        let told = qp.set_datagram(&DatagramAttributes::default().address(way));
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(qp.state(), QpState::Init);
    }
}

#[test]
fn datagrams_reach_a_device_by_its_own_address_alone() {
    const QKEY: u32 = 0x77;
    let two = Two::new([auto, iwarp]);
    let [near, far] = two.devices.each_ref().map(|device| {
        let cq = device.create_cq(8, None).unwrap();
        let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
        let pd = device.alloc_pd();
        let qp = pd.create_qp(&attributes).unwrap();
        qp.modify(QpState::Init).unwrap();
        qp.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
        qp.modify(QpState::Rtr).unwrap();
        qp.modify(QpState::Rts).unwrap();
        (pd, cq, qp)
    });
    let memory = far.0.allocate(256, iwarp::Access::LOCAL_WRITE).unwrap();
    for wr_id in [1, 2] {
        far.2.post_recv(&RecvRequest::new(wr_id, &[memory.sge(0, 128)])).unwrap();
    }
    for (to, octets) in [(two.addrs[0], &b"astray"[..]), (two.addrs[1], b"home")] {
        let address = AddressVector::new(two.addrs[0], to);
        let destination = Destination { address, qp: far.2.number(), qkey: QKEY };
        let request = SendRequest::new(3, SendOp::SEND, Payload::Inline(octets));
        near.2.post_send(&request.to(&destination).signaled()).unwrap();
        succeeded(until("a datagram is sent", || near.1.poll_one()));
    }
    let address = AddressVector::new(two.addrs[1], two.addrs[1]);
    let destination = Destination { address, qp: far.2.number(), qkey: QKEY };
    let request = SendRequest::new(3, SendOp::SEND, Payload::Inline(b"from elsewhere"));
    let posted = near.2.post_send(&request.to(&destination));
    assert_eq!(posted, Err(PostError::Invalid));
    let came = succeeded(until("the second datagram", || far.1.poll_one()));
    assert_eq!((came.wr_id, came.byte_len), (1, 40 + 4));
    assert!(far.1.poll_one().is_none());
}

#[test]
fn an_id_is_on_the_device_that_has_its_address() {
    let two = Two::new([auto, iwarp]);
    let [near, far] = &two.devices;
    let channel = EventChannel::for_any_device(near).unwrap();
    let listening = Id::new(&channel).unwrap();
    listening.bind(SocketAddr::new(EVERYWHERE, 0)).unwrap();
    assert_eq!(listening.device_place(), None);
    listening.listen(4).unwrap();
    let port = listening.local_addr().unwrap().port();
    let params = ConnectParams::default();
    for (from, to) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
        let (addr, client) = (SocketAddr::new(two.addrs[to], port), end_on(&two.devices[from]));
        let [server, wrong] = [to, 1 - to].map(|n| end_on(&two.devices[n]));
        thread::scope(|scope| {
            let connecting =
                scope.spawn(|| connect(&client.device, addr, &client.qp, &params, DEADLINE));
            let event = channel.wait(Some(DEADLINE)).unwrap().expect("a request");
            assert!(matches!(event.kind, EventKind::ConnectRequest { .. }), "{:?}", event.kind);
            let id = event.id;
            assert_eq!(id.device_place(), Some(to));
            assert_eq!(id.peer_addr().unwrap().ip(), two.addrs[from]);
            let error = id.accept(&wrong.qp, &params).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            id.accept(&server.qp, &params).unwrap();
            let connection = connecting.join().unwrap().unwrap();
            talk((&client, &server));
            talk((&server, &client));
            drop(connection);
            id.close();
        });
        while channel.try_next().is_some() {}
    }
    let bound = Id::new(&channel).unwrap();
    bound.bind(SocketAddr::new(two.addrs[1], 0)).unwrap();
    assert_eq!(bound.device_place(), Some(1));
    let lost = Id::new(&EventChannel::new(far).unwrap()).unwrap();
    let error = lost.bind(SocketAddr::new(LOCALHOST, 0)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(ENODEV));
    let elsewhere = SocketAddr::from(([203, 0, 113, 9], 0));
    assert_eq!(lost.bind(elsewhere).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn a_queue_pair_of_one_device_is_of_no_use_to_an_id_on_another() {
    let two = Two::new([auto, iwarp]);
    let channel = EventChannel::for_any_device(&two.devices[0]).unwrap();
    let listener = Listener::bind(&two.devices[1], SocketAddr::new(two.addrs[1], 0)).unwrap();
    let id = Id::new(&channel).unwrap();
    id.resolve_addr(None, listener.local_addr().unwrap()).unwrap();
    let event = channel.wait(Some(DEADLINE)).unwrap().unwrap();
    assert!(matches!(event.kind, EventKind::AddressResolved), "{:?}", event.kind);
    // The way to an address of this host begins there.
    assert_eq!(id.device_place(), Some(1));
    let wrong = id.connect(&end_on(&two.devices[0]).qp, &ConnectParams::default()).unwrap_err();
    assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    assert!(wrong.to_string().contains("near") && wrong.to_string().contains("far"), "{wrong}");
    id.connect(&end_on(&two.devices[1]).qp, &ConnectParams::default()).unwrap();
}

#[test]
fn a_listener_of_one_device_is_not_found_at_anothers_address() {
    let two = Two::new([auto, auto]);
    let [near, far] = &two.devices;
    let listener = Listener::bind(far, SocketAddr::new(EVERYWHERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = end_on(near);
    let (params, astray) = (ConnectParams::default(), SocketAddr::new(LOCALHOST, port));
    let error = connect(near, astray, &client.qp, &params, DEADLINE).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Unreachable(error) | ConnectError::Io(error)
            if error.kind() == io::ErrorKind::ConnectionRefused)
            || matches!(error, ConnectError::Rejected { .. }),
        "{error:?}"
    );
    let server = end_on(far);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("a request");
            incoming.accept(&server.qp, &params).unwrap()
        });
        let client = end_on(near);
        let addr = SocketAddr::new(two.addrs[1], port);
        let _connection = connect(near, addr, &client.qp, &params, DEADLINE).unwrap();
        let _accepted = accepting.join().unwrap();
        talk((&client, &server));
    });
}

/// As with Linux's connection manager.
#[test]
fn loopback_is_the_first_devices_where_no_other_has_it() {
    let named = ["one", "two"].map(|name| NamedDevice::new(name).interface(other().interface));
    let one = Device::with_options(Options::new().devices(named.to_vec())).unwrap();
    let two = one.named_sibling(1).unwrap();
    assert_eq!(one.place_of(LOCALHOST), Some(0));
    let at = SocketAddr::new(LOCALHOST, 0);
    assert_eq!(Listener::bind(&two, at).unwrap_err().raw_os_error(), Some(ENODEV));
    let listener = Listener::bind(&one, at).unwrap();
    let (client, server) = (end_on(&one), end_on(&one));
    let _connections = couple(&one, &client.qp, &listener, &server.qp);
    talk((&client, &server));
}

/// One listener, and peers that come to it by the wire of each device.
#[test]
fn a_listener_at_all_addresses_speaks_at_each_as_the_device_there() {
    let two = Two::new([roce, iwarp]);
    let channel = EventChannel::for_any_device(&two.devices[0]).unwrap();
    let listening = Id::new(&channel).unwrap();
    listening.bind(SocketAddr::new(EVERYWHERE, 0)).unwrap();
    listening.listen(4).unwrap();
    let port = listening.local_addr().unwrap().port();
    let params = ConnectParams::default();
    let client = |wire| Device::with_options(Options::for_any_program().wire(wire)).unwrap();
    for (to, wire) in [(0, Wire::Auto), (0, Wire::Roce), (1, Wire::Auto), (1, Wire::Iwarp)] {
        let (client, server) = (end_on(&client(wire)), end_on(&two.devices[to]));
        let addr = SocketAddr::new(two.addrs[to], port);
        thread::scope(|scope| {
            let connecting =
                scope.spawn(|| connect(&client.device, addr, &client.qp, &params, DEADLINE));
            let event = channel.wait(Some(DEADLINE)).unwrap().expect("a request");
            assert!(matches!(event.kind, EventKind::ConnectRequest { .. }), "{:?}", event.kind);
            assert_eq!(event.id.speaks_roce(), to == 0, "{wire:?}");
            event.id.accept(&server.qp, &params).unwrap();
            let _connection = connecting.join().unwrap().unwrap();
            talk((&client, &server));
            event.id.close();
        });
        while channel.try_next().is_some() {}
    }
    for (to, wire) in [(0, Wire::Iwarp), (1, Wire::Roce)] {
        let client = end_on(&client(wire));
        let addr = SocketAddr::new(two.addrs[to], port);
        let error = connect(&client.device, addr, &client.qp, &params, DEADLINE).unwrap_err();
        assert!(
            matches!(error, ConnectError::Unreachable(_) | ConnectError::Rejected { .. }),
            "{error:?}"
        );
    }
    assert!(channel.try_next().is_none());
}

/// Two that have one interface differ in what they are, not in where they are.
#[test]
fn two_devices_of_one_interface_have_its_addresses_both() {
    let named = ["lo:iwarp", "lo"].map(|text| {
        let device = NamedDevice::new(text.replace(':', "-")).interface("lo".to_owned());
        if text.contains("iwarp") { iwarp(device) } else { device }
    });
    let options = Options::for_any_program().tell_personality(false).devices(named.to_vec());
    let one = Device::with_options(options).unwrap();
    let two = one.named_sibling(1).unwrap();
    assert_eq!(one.gids().unwrap(), two.gids().unwrap());
    let [near, far] = [one, two].map(|device| TestHost::of(device, LOOPBACK).end());
    near.all_the_way(&far);
    far.all_the_way(&near);
    exchange(&near, &far);
}
