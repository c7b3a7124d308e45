// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device with two ports, each with the addresses of one interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id, Listener, connect};
use iwarp::{
    AddressVector, DatagramAttributes, Destination, Device, Gid, ModifyError, NamedDevice, Options,
    Payload, Peer, PostError, QpState, QpType, QueuePair, QueuePairAttributes, RecvRequest, SendOp,
    SendRequest, Wire,
};

use crate::common::meet::{Side, TestHost, exchange};
use crate::common::{DEADLINE, succeeded, until};
use crate::devices::{end_on, other, talk};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A device with a port on an interface beside lo, and one on lo, and an address of each.
struct TwoPorts {
    device: Device,
    addrs: [IpAddr; 2],
}

impl TwoPorts {
    fn new(wire: Wire) -> Self {
        let other = other();
        let named = NamedDevice::new("mlx4_0")
            .interface(other.interface)
            .more_interfaces(vec!["lo".to_owned()]);
        let options = Options::for_any_program().wire(wire).devices(vec![named]);
        Self { device: Device::with_options(options).unwrap(), addrs: [other.addr, LOCALHOST] }
    }

    fn gid(&self, port: u8) -> Gid {
        let table = self.device.port_gid_table(port).unwrap();
        let addr = self.addrs[usize::from(port) - 1];
        table.iter().find(|gid| gid.addr == addr).expect("the address of the port").clone()
    }

    /// A queue pair on a port, in Init.
    fn end(&self, port: u8) -> Side {
        let (device, gid) = (self.device.clone(), self.gid(port));
        let end = TestHost { pd: device.alloc_pd(), device, gid }.end();
        end.qp.set_port(port).unwrap();
        end.init();
        end
    }
}

#[test]
fn each_port_has_a_table_of_its_own() {
    let two = TwoPorts::new(Wire::Auto);
    assert_eq!(two.device.attributes().phys_port_cnt, 2);
    let tables = [1, 2].map(|port| two.device.port_gid_table(port).unwrap());
    assert_eq!(two.device.gids().unwrap(), tables[0].to_vec());
    for (port, (own, others)) in [(1, (0, 1)), (2, (1, 0))] {
        let has = |addr| tables[own].iter().any(|gid| gid.addr == addr);
        assert!(has(two.addrs[own]) && !has(two.addrs[others]), "{tables:?}");
        // In places of its own.
        assert!(tables[own].iter().enumerate().all(|(place, gid)| gid.index == place));
        assert_eq!(two.device.port_of(two.addrs[own]), Some(port));
        let IpAddr::V4(first) = tables[own].iter().find(|gid| gid.addr.is_ipv4()).unwrap().addr
        else {
            unreachable!()
        };
        assert_eq!(two.device.port_lid(port).unwrap(), first.to_bits() as u16);
    }
    assert_eq!(two.device.lid().unwrap(), two.device.port_lid(1).unwrap());
    let addresses = two.device.addresses().unwrap();
    assert!(two.addrs.iter().all(|addr| addresses.contains(addr)), "{addresses:?}");
    assert_eq!(two.device.port_of([203, 0, 113, 9].into()), None);
    for wrong in [0, 3, 255] {
        let error = two.device.port_gid_table(wrong).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with("mlx4_0, which has 2 ports"), "{error}");
    }
}

#[test]
fn a_device_without_several_has_one_port() {
    let device = Device::with_options(Options::new()).unwrap();
    assert_eq!(device.attributes().phys_port_cnt, 1);
    assert_eq!(device.port_gid_table(1).unwrap().to_vec(), device.gids().unwrap());
    assert_eq!(device.port_of(LOCALHOST), Some(1));
    let end = TestHost::of(device, "127.0.0.1").end();
    assert_eq!(end.qp.set_port(2).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    end.qp.set_port(1).unwrap();
    end.all_the_way(&end);
    // Nor does it matter later.
    end.qp.set_port(1).unwrap();
}

#[test]
fn queue_pairs_of_two_ports_meet() {
    for wire in [Wire::Auto, Wire::Roce] {
        let two = TwoPorts::new(wire);
        for [from, to] in [[1, 2], [2, 1], [2, 2]] {
            let (near, far) = (two.end(from), two.end(to));
            near.rtr(&far);
            near.rts();
            far.rtr(&near);
            far.rts();
            exchange(&near, &far);
        }
    }
}

#[test]
fn a_queue_pair_leaves_its_port_by_no_other_address() {
    let two = TwoPorts::new(Wire::Auto);
    for (port, foreign) in [(1, two.addrs[1]), (2, two.addrs[0])] {
        let end = two.end(port);
        let error = end.qp.connect_to(&Peer::at(foreign, LOCALHOST, 77, 1)).unwrap_err();
        let ModifyError::System(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let name = format!("is no address of port {port} of the device mlx4_0");
        assert!(error.to_string().ends_with(&name), "{error}");
        let way = AddressVector::new(foreign, LOCALHOST);
        let told = end.qp.set_datagram(&DatagramAttributes::default().address(way));
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(end.qp.state(), QpState::Init);
    }
}

#[test]
fn a_queue_pair_is_on_a_port_until_its_reset() {
    let two = TwoPorts::new(Wire::Auto);
    let (near, far) = (two.end(1), two.end(2));
    assert_eq!(near.qp.set_port(3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // In Init it may still change.
    near.qp.set_port(2).unwrap();
    near.qp.set_port(1).unwrap();
    near.rtr(&far);
    let error = near.qp.set_port(2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("RESET or INIT"), "{error}");
    near.qp.set_port(1).unwrap();
    near.qp.modify(QpState::Reset).unwrap();
    near.qp.modify(QpState::Init).unwrap();
    // On none it has the addresses of both.
    near.qp.connect_to(&Peer::at(two.addrs[1], two.addrs[1], far.qp.number(), 1)).unwrap();
}

/// A queue pair of the type UD on a port, ready to send.
fn datagrams(two: &TwoPorts, port: u8, qkey: u32) -> (iwarp::CompletionQueue, QueuePair) {
    let cq = two.device.create_cq(8, None).unwrap();
    let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
    let qp = two.device.alloc_pd().create_qp(&attributes).unwrap();
    qp.set_port(port).unwrap();
    qp.modify(QpState::Init).unwrap();
    qp.set_datagram(&DatagramAttributes::with_qkey(qkey)).unwrap();
    qp.modify(QpState::Rtr).unwrap();
    qp.modify(QpState::Rts).unwrap();
    (cq, qp)
}

#[test]
fn datagrams_reach_a_port_by_its_own_addresses_alone() {
    const QKEY: u32 = 0x77;
    let two = TwoPorts::new(Wire::Auto);
    let (near_cq, near) = datagrams(&two, 1, QKEY);
    let far_cq = two.device.create_cq(8, None).unwrap();
    let pd = two.device.alloc_pd();
    let attributes = QueuePairAttributes::new(&far_cq, &far_cq).qp_type(QpType::Ud);
    let far = pd.create_qp(&attributes).unwrap();
    far.set_port(2).unwrap();
    far.modify(QpState::Init).unwrap();
    far.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
    far.modify(QpState::Rtr).unwrap();
    let memory = pd.allocate(256, iwarp::Access::LOCAL_WRITE).unwrap();
    for wr_id in [1, 2] {
        far.post_recv(&RecvRequest::new(wr_id, &[memory.sge(0, 128)])).unwrap();
    }
    for (to, octets) in [(two.addrs[0], &b"astray"[..]), (two.addrs[1], b"home")] {
        let address = AddressVector::new(two.addrs[0], to);
        let destination = Destination { address, qp: far.number(), qkey: QKEY };
        let request = SendRequest::new(3, SendOp::SEND, Payload::Inline(octets));
        near.post_send(&request.to(&destination).signaled()).unwrap();
        succeeded(until("a datagram is sent", || near_cq.poll_one()));
    }
    let address = AddressVector::new(two.addrs[1], two.addrs[1]);
    let destination = Destination { address, qp: far.number(), qkey: QKEY };
    let request = SendRequest::new(3, SendOp::SEND, Payload::Inline(b"from elsewhere"));
    assert_eq!(near.post_send(&request.to(&destination)), Err(PostError::Invalid));
    let came = succeeded(until("the second datagram", || far_cq.poll_one()));
    assert_eq!((came.wr_id, came.byte_len), (1, 40 + 4));
    assert!(far_cq.poll_one().is_none());
}

#[test]
fn an_id_is_on_the_port_that_has_its_address() {
    // Over RoCE v2 the packets of lo are too long for the other interface.
    let ways = [(0, 1), (1, 1), (0, 0), (1, 0)];
    for (wire, ways) in [(Wire::Auto, &ways[..]), (Wire::Roce, &ways[..3])] {
        let two = TwoPorts::new(wire);
        let channel = EventChannel::for_any_device(&two.device).unwrap();
        let listening = Id::new(&channel).unwrap();
        listening.bind(SocketAddr::new(EVERYWHERE, 0)).unwrap();
        assert_eq!(listening.port_number(), None);
        listening.listen(4).unwrap();
        let port = listening.local_addr().unwrap().port();
        let params = ConnectParams::default();
        for &(from, to) in ways {
            let numbers = [1, 2];
            let (addr, client) = (SocketAddr::new(two.addrs[to], port), end_on(&two.device));
            client.qp.set_port(numbers[from]).unwrap();
            let [server, wrong] = [to, 1 - to].map(|n| {
                let end = end_on(&two.device);
                end.qp.set_port(numbers[n]).unwrap();
                end
            });
            thread::scope(|scope| {
                let connecting =
                    scope.spawn(|| connect(&client.device, addr, &client.qp, &params, DEADLINE));
                let Some(event) = channel.wait(Some(DEADLINE)).unwrap() else {
                    panic!("no request: {:?}, {from} to {to}", connecting.join().unwrap().err());
                };
                assert!(matches!(event.kind, EventKind::ConnectRequest { .. }), "{:?}", event.kind);
                let id = event.id;
                assert_eq!((id.device_place(), id.port_number()), (Some(0), Some(numbers[to])));
                // It leaves by its own port.
                assert_eq!(id.peer_addr().unwrap().ip(), two.addrs[from]);
                let error = id.accept(&wrong.qp, &params).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                id.accept(&server.qp, &params).unwrap();
                let connection = connecting.join().unwrap().unwrap();
                talk((&client, &server));
                drop(connection);
                id.close();
            });
            while channel.try_next().is_some() {}
        }
        let bound = Id::new(&channel).unwrap();
        bound.bind(SocketAddr::new(two.addrs[1], 0)).unwrap();
        assert_eq!(bound.port_number(), Some(2));
    }
}

#[test]
fn a_queue_pair_of_one_port_is_of_no_use_to_an_id_on_another() {
    let two = TwoPorts::new(Wire::Auto);
    let listener = Listener::bind(&two.device, SocketAddr::new(two.addrs[1], 0)).unwrap();
    let channel = EventChannel::new(&two.device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.resolve_addr(None, listener.local_addr().unwrap()).unwrap();
    let event = channel.wait(Some(DEADLINE)).unwrap().unwrap();
    assert!(matches!(event.kind, EventKind::AddressResolved), "{:?}", event.kind);
    assert_eq!(id.port_number(), Some(2));
    let end = end_on(&two.device);
    end.qp.set_port(1).unwrap();
    let wrong = id.connect(&end.qp, &ConnectParams::default()).unwrap_err();
    assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    let text = wrong.to_string();
    assert!(text.contains("on port 1 of the device mlx4_0"), "{text}");
    end.qp.set_port(2).unwrap();
    id.connect(&end.qp, &ConnectParams::default()).unwrap();
}
