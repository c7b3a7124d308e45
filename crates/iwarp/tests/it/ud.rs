// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs over datagrams, in one process: on UDP and on a network in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iwarp::port::{Clock, DatagramFaults, MemoryDatagrams, MemoryNetwork, Platform};
use iwarp::{
    Access, AddressVector, CompletionQueue, DatagramAttributes, Destination, Device, MemoryRegion,
    Options, ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, RecvRequest,
    SendOp, SendRequest, WcStatus, WorkCompletion,
};

use crate::common::until;

const GRH: usize = 40;
const QKEY: u32 = 0x1234;
const SIZE: usize = 4096;

/// A queue pair of the type UD, its queue, and memory for it.
struct Datagrams {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

impl Datagrams {
    fn on(device: &Device) -> Self {
        let pd = device.alloc_pd();
        let cq = device.create_cq(64, None).unwrap();
        let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
        let qp = pd.create_qp(&attributes).unwrap();
        let memory = pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
        qp.modify(QpState::Init).unwrap();
        qp.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
        qp.modify(QpState::Rtr).unwrap();
        qp.modify(QpState::Rts).unwrap();
        Self { qp, cq, memory, _pd: pd }
    }

    fn receive(&self, wr_id: u64, at: usize, len: usize) {
        let sges = [self.memory.sge(at, len)];
        self.qp.post_recv(&RecvRequest::new(wr_id, &sges)).unwrap();
    }

    fn send(&self, to: &Destination, op: SendOp, octets: &[u8]) {
        let request = SendRequest::new(7, op, iwarp::Payload::Inline(octets)).to(to).signaled();
        self.qp.post_send(&request).unwrap();
        let done = self.completion();
        assert_eq!((done.wr_id, done.status), (7, WcStatus::Success));
    }

    fn completion(&self) -> WorkCompletion {
        until("a completion", || self.cq.poll_one())
    }

    fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.memory.buffer().unwrap().read_at(at, &mut octets);
        octets
    }
}

fn destination(from: IpAddr, to: IpAddr, qp: &QueuePair) -> Destination {
    Destination { address: AddressVector::new(from, to), qp: qp.number(), qkey: QKEY }
}

fn exchange(one: &Device, other: &Device, from: IpAddr, to: IpAddr) {
    let (one, other) = (Datagrams::on(one), Datagrams::on(other));
    let (there, back) = (destination(from, to, &other.qp), destination(to, from, &one.qp));
    for round in 0..100_u8 {
        other.receive(1, 0, GRH + 100);
        one.send(&there, SendOp::SEND, &[round; 99]);
        let got = other.completion();
        assert_eq!((got.wr_id, got.status, got.byte_len), (1, WcStatus::Success, 40 + 99));
        assert_eq!(got.source_qp.map(u32::from), Some(one.qp.number()));
        assert_eq!(other.octets(GRH, 100), [&[round; 99][..], &[0]].concat());
        one.receive(2, 0, SIZE);
        let op = SendOp::SendImmediate { solicited: false, data: [1, 2, 3, round] };
        other.send(&back, op, &[]);
        let got = one.completion();
        assert_eq!((got.byte_len, got.immediate_word()), (40, Some([1, 2, 3, round])));
    }
}

/// A network of one host in memory, the host's address, and a device there.
fn in_memory() -> (MemoryDatagrams, IpAddr, Device) {
    let datagrams = MemoryDatagrams::new(1);
    let ip = IpAddr::from([10, 0, 0, 1]);
    let platform = Platform {
        network: MemoryNetwork::new().host(ip),
        clock: Clock::system(),
        datagrams: Some(datagrams.host(ip)),
    };
    let device = Device::on_platform(Options::default(), platform).unwrap();
    (datagrams, ip, device)
}

/// A way that takes less than the path MTU: the queue pair that has a peer at its end is told, the
/// other goes on.
///
/// Covers: ROCE-041
#[test]
fn packets_that_are_too_long_end_a_connected_queue_pair() {
    let (datagrams, ip, device) = in_memory();
    datagrams.set_mtu(1500);
    let pd = device.alloc_pd();
    let cq = device.create_cq(16, None).unwrap();
    let memory = pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
    let uc = |path_mtu| {
        let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Uc);
        let qp = pd.create_qp(&attributes).unwrap();
        let address = AddressVector::new(ip, [10, 0, 0, 2].into());
        let way = DatagramAttributes::default().address(address).dest_qp(77).path_mtu(path_mtu);
        qp.modify(QpState::Init).unwrap();
        qp.set_datagram(&way).unwrap();
        qp.modify(QpState::Rtr).unwrap();
        qp.modify(QpState::Rts).unwrap();
        qp
    };
    let (long, short) = (uc(2048), uc(1024));
    for qp in [&short, &long] {
        let sges = [memory.sge(0, 2000)];
        let payload = iwarp::Payload::Sges(&sges);
        qp.post_send(&SendRequest::new(1, SendOp::SEND, payload).signaled()).unwrap();
    }
    until("the end of the queue pair", || (long.state() == QpState::Err).then_some(()));
    assert_eq!(short.state(), QpState::Rts);
}

/// A queue pair that has something to send while the port is full for another has its turn,
/// although nothing else is sent later.
#[test]
fn a_queue_pair_that_comes_while_the_port_is_full_has_its_turn() {
    let (datagrams, ip, device) = in_memory();
    let ends: [Datagrams; 4] = std::array::from_fn(|_| Datagrams::on(&device));
    for end in &ends {
        end.receive(1, 0, SIZE);
    }
    datagrams.set_faults(DatagramFaults { full: u16::MAX, ..DatagramFaults::default() });
    for end in &ends {
        let to = destination(ip, ip, &end.qp);
        let request = SendRequest::new(7, SendOp::SEND, iwarp::Payload::Inline(b"text"));
        end.qp.post_send(&request.to(&to).signaled()).unwrap();
    }
    datagrams.set_faults(DatagramFaults::default());
    for end in &ends {
        let mut ids = [end.completion().wr_id, end.completion().wr_id];
        ids.sort_unstable();
        assert_eq!(ids, [1, 7]);
    }
}

#[test]
fn datagrams_pass_within_a_process() {
    let datagrams = MemoryDatagrams::new(1);
    let network = MemoryNetwork::new();
    let device = |ip: IpAddr| {
        let platform = Platform {
            network: network.host(ip),
            clock: Clock::system(),
            datagrams: Some(datagrams.host(ip)),
        };
        Device::on_platform(Options::default(), platform).unwrap()
    };
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    exchange(&device(from), &device(to), from, to);
}

#[test]
fn datagrams_pass_over_udp() {
    let device = Device::with_options(Options::default()).unwrap();
    for here in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        exchange(&device, &device, here, here);
    }
}
