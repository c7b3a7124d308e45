// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs of the type RC that speak RoCE v2, over UDP and on a network in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use iwarp::port::{
    Clock, DatagramFaults, DatagramNetwork, MemoryDatagrams, MemoryNetwork, Platform,
};
use iwarp::verbs::WindowType;
use iwarp::{
    Access, AddressVector, AsyncEvent, AtomicOp, Bind, CompletionChannel, DatagramAttributes,
    Device, NetworkFaults, Options, QpState, QueuePairAttributes, RecvRequest, SendOp, SendRequest,
    SharedReceiveQueue, TaggedOffset, WcOp, WcStatus, Wire,
};
use iwarp_roce::wire::icrc::IdMemory;
use iwarp_roce::wire::{Counters, Path, Received, receive};
use iwarp_types::Time;

use crate::common::scene::Scene;
use crate::common::{DEADLINE, End, next, pattern, until};
use crate::hosts::{self, Host};

const DEPTH: usize = 64;
const SIZES: [usize; 9] = [0, 1, 255, 1024, 1025, 4096, 4097, 65_536, 200_003];

pub(crate) type RoceEnd = End<IpAddr>;

pub(crate) fn options() -> Options {
    Options::for_any_program().wire(Wire::Roce)
}

/// Two hosts on a network in memory.
pub(crate) struct Hosts {
    pub(crate) datagrams: MemoryDatagrams,
    streams: MemoryNetwork,
    scene: Option<Arc<Scene>>,
}

pub(crate) const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

impl Hosts {
    pub(crate) fn new(seed: u64) -> Self {
        Self { datagrams: MemoryDatagrams::new(seed), streams: MemoryNetwork::new(), scene: None }
    }

    /// In the time of a scene.
    pub(crate) fn in_scene(seed: u64, scene: &Arc<Scene>) -> Self {
        Self { scene: Some(Arc::clone(scene)), ..Self::new(seed) }
    }

    pub(crate) fn device(&self, ip: IpAddr, options: Options) -> Device {
        self.device_on(ip, options, Some(self.datagrams.host(ip)))
    }

    pub(crate) fn device_on(
        &self,
        ip: IpAddr,
        options: Options,
        datagrams: Option<std::sync::Arc<dyn DatagramNetwork>>,
    ) -> Device {
        let network = self.streams.host(ip);
        if let Some(scene) = &self.scene {
            return scene.device(options, network, datagrams);
        }
        let platform = Platform { network, clock: Clock::system(), datagrams };
        Device::on_platform(options, platform).unwrap()
    }

    /// Two ends that nothing connects yet.
    fn ends(&self) -> [RoceEnd; 2] {
        HOSTS.map(|ip| end(&self.device(ip, options()), ip))
    }
}

/// An end in Init, on queues of its own.
pub(crate) fn end(device: &Device, ip: IpAddr) -> RoceEnd {
    end_with(device, ip, None, None)
}

fn end_with(
    device: &Device,
    ip: IpAddr,
    srq: Option<usize>,
    channel: Option<&CompletionChannel>,
) -> RoceEnd {
    let pd = device.alloc_pd();
    let srq = srq.map(|depth| pd.create_srq(depth, 4));
    end_of(device, ip, pd, srq.as_ref(), channel)
}

fn end_of(
    device: &Device,
    ip: IpAddr,
    pd: iwarp::ProtectionDomain,
    srq: Option<&SharedReceiveQueue>,
    channel: Option<&CompletionChannel>,
) -> RoceEnd {
    let [send_cq, recv_cq] = [(); 2].map(|()| device.create_cq(2 * DEPTH, channel).unwrap());
    let attributes = QueuePairAttributes::new(&send_cq, &recv_cq)
        .srq(srq)
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_inline(512);
    let qp = pd.create_addressable_qp(&attributes).unwrap();
    qp.modify(QpState::Init).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection: ip }
}

/// The way that `one` has to be told to reach `other`. An end that the system keeps waiting for a
/// CPU, for
/// 1.8 s, has not gone.
pub(crate) fn way(one: &RoceEnd, other: &RoceEnd) -> DatagramAttributes {
    DatagramAttributes::default()
        .address(AddressVector::new(one.connection, other.connection))
        .dest_qp(other.qp.number())
        .sq_psn(one.qp.psn())
        .rq_psn(other.qp.psn())
        .timeout(14)
        .min_rnr_timer(1)
        .max_rd_atomic(4)
        .max_dest_rd_atomic(4)
        .access(Access::REMOTE)
}

/// Takes an end to RTR or RTS.
pub(crate) fn go(one: &RoceEnd, to: QpState, attributes: &DatagramAttributes) {
    one.qp.set_datagram(attributes).unwrap();
    for step in [QpState::Rtr, QpState::Rts] {
        one.qp.modify(step).unwrap();
        if step == to {
            return;
        }
    }
}

pub(crate) fn join(
    [one, other]: &[RoceEnd; 2],
    change: impl Fn(DatagramAttributes) -> DatagramAttributes,
) {
    go(one, QpState::Rts, &change(way(one, other)));
    go(other, QpState::Rts, &change(way(other, one)));
}

fn joined(
    hosts: &Hosts,
    change: impl Fn(DatagramAttributes) -> DatagramAttributes,
) -> [RoceEnd; 2] {
    let ends = hosts.ends();
    join(&ends, change);
    ends
}

/// The bytes of a region.
fn octets(region: &iwarp::MemoryRegion, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    region.buffer().unwrap().read_at(0, &mut octets);
    octets
}

/// Every operation in both directions.
pub(crate) fn exchange(ends: &[RoceEnd; 2], sizes: &[usize]) {
    let [one, other] = ends;
    for (one, other) in [(one, other), (other, one)] {
        for (id, size) in (1..).zip(sizes.iter().copied()) {
            let content = pattern(size, id);
            let (source, sink) = (one.region_of(&content), other.region(size));
            other.post_recv(id, &[sink.whole()]);
            one.send(id, &[source.whole()]);
            let got = other.received();
            assert_eq!((got.wr_id, got.op, got.byte_len), (id, WcOp::Recv, size as u32));
            assert!(octets(&sink, size) == content, "Send of {size} octets");
            assert_eq!(one.sent().wr_id, id);

            let (sink, back) = (other.region(size), one.region(size));
            one.write(1, source.whole(), &sink, 0);
            one.read(2, back.whole(), &sink, 0);
            let (first, second) = (one.sent(), one.sent());
            assert_eq!(
                [(first.wr_id, first.op), (second.wr_id, second.op)],
                [(1, WcOp::Write), (2, WcOp::Read)]
            );
            assert!(octets(&sink, size) == content, "Write of {size} octets");
            assert!(octets(&back, size) == content, "Read of {size} octets");

            let (stag, to) = (sink.rkey(), sink.base());
            other.post_recv(3, &[]);
            let op = SendOp::WriteImmediate { stag, to, solicited: true, data: *b"wimm" };
            one.post(3, op, &[source.whole()]);
            let got = other.received();
            assert_eq!((got.op, got.byte_len), (WcOp::RecvWriteImmediate, size as u32));
            assert_eq!((got.immediate_word(), got.solicited), (Some(*b"wimm"), true));
            one.sent();
        }
        let word = other.region_of(&7_u64.to_ne_bytes());
        let original = one.region(8);
        let atomic = |op| {
            let op = SendOp::Atomic { stag: word.rkey(), to: word.base(), op };
            one.post(4, op, &[original.whole()]);
            one.sent();
            u64::from_ne_bytes(octets(&original, 8).try_into().unwrap())
        };
        assert_eq!(atomic(AtomicOp::FetchAdd { add: 5, mask: 0 }), 7);
        let swap = |compare, swap| AtomicOp::CompareSwap {
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        };
        assert_eq!(atomic(swap(11, 1)), 12);
        assert_eq!(atomic(swap(12, 99)), 12);
        assert_eq!(octets(&word, 8), 99_u64.to_ne_bytes());

        let sink = other.region(64);
        other.post_recv(5, &[sink.whole()]);
        let op = SendOp::SendImmediate { solicited: false, data: *b"send" };
        let inline = SendRequest::new(5, op, iwarp::Payload::Inline(b"some octets")).signaled();
        one.qp.post_send(&inline).unwrap();
        let got = other.received();
        assert_eq!((got.immediate_word(), got.byte_len), (Some(*b"send"), 11));
        assert_eq!(octets(&sink, 11), b"some octets");
        one.sent();
    }
}

/// Covers: ROCE-035, ROCE-036, ROCE-039, ROCE-043, ROCE-044, ROCE-089, ROCE-100
#[test]
fn every_operation_works_over_udp() {
    let device = Device::with_options(options()).unwrap();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        for mtu in [1024, 4096] {
            let ends = [end(&device, ip), end(&device, ip)];
            join(&ends, |way| way.path_mtu(mtu));
            exchange(&ends, &SIZES);
        }
    }
}

/// Covers: ROCE-053, ROCE-055, ROCE-056, ROCE-061, ROCE-071
#[test]
fn every_operation_works_in_any_weather() {
    for (seed, mtu) in (1..).zip([256, 1024, 4096]) {
        let hosts = Hosts::new(seed);
        hosts.datagrams.set_faults(DatagramFaults {
            lost: 3000,
            repeated: 3000,
            reordered: 3000,
            damaged: 1000,
            full: 5000,
        });
        // Much is repeated when its time is over, so that it had better be short.
        exchange(&joined(&hosts, |way| way.path_mtu(mtu).timeout(11)), &SIZES);
    }
}

/// Two devices on the system's UDP, of which one has a network with faults.
#[test]
fn faults_that_an_option_asks_for_are_borne() {
    let mut faults = NetworkFaults::default();
    (faults.seed, faults.lose, faults.repeat) = (3, 30, 30);
    (faults.reorder, faults.damage) = (30, 100);
    let devices = [
        Device::with_options(options().faults(faults)).unwrap(),
        Device::with_options(options()).unwrap(),
    ];
    let ends = devices.each_ref().map(|device| end(device, Ipv4Addr::LOCALHOST.into()));
    join(&ends, |way| way.path_mtu(1024).timeout(11));
    exchange(&ends, &SIZES);
}

/// A program that was told the peer's address and number alone goes the way of own kind.
#[test]
fn an_address_and_a_number_are_enough() {
    let ends = Hosts::new(1).ends();
    let [one, other] = &ends;
    for (one, other) in [(one, other), (other, one)] {
        let ip = other.connection;
        let peer = iwarp::Peer::at(one.connection, ip, other.qp.number(), other.qp.psn());
        one.qp.connect_to(&peer).unwrap();
        assert_eq!(one.qp.state(), QpState::Rtr);
        one.qp.modify(QpState::Rts).unwrap();
    }
    exchange(&ends, &[0, 3000]);
    assert_eq!(one.qp.read_depths(), (16, 16));
}

/// Requests that were posted before the peer came go to it.
#[test]
fn an_end_waits_for_a_peer_that_is_late() {
    let ends = Hosts::new(1).ends();
    let [one, other] = &ends;
    let sink = other.region(16);
    other.post_recv(1, &[sink.whole()]);
    go(one, QpState::Rts, &way(one, other).retry_count(7).timeout(13));
    let source = one.region_of(b"to a late one ..");
    one.send(1, &[source.whole()]);
    assert_eq!(one.send_cq.poll_one(), None);
    go(other, QpState::Rtr, &way(other, one));
    assert_eq!(other.received().wr_id, 1);
    assert_eq!(octets(&sink, 16), b"to a late one ..");
    assert_eq!(one.sent().wr_id, 1);
    let established = AsyncEvent::CommunicationEstablished { qp: other.qp.number() };
    assert_eq!(other.async_event(|_| true), established);
    other.qp.modify(QpState::Rts).unwrap();
    exchange(&ends, &[100]);
}

/// Covers: ROCE-058, ROCE-059, ROCE-087
#[test]
fn a_send_waits_for_its_receive_as_long_as_the_program_says() {
    let [one, other] = joined(&Hosts::new(1), |way| way.rnr_retry(7));
    let (sink, elsewhere) = (other.region(16), one.region(16));
    one.send(1, &[]);
    // The responder has said that it is not ready by then.
    other.write(2, sink.whole(), &elsewhere, 0);
    other.sent();
    assert_eq!(one.send_cq.poll_one(), None);
    other.post_recv(3, &[sink.whole()]);
    assert_eq!((other.received().wr_id, one.sent().wr_id), (3, 1));

    let [one, other] = joined(&Hosts::new(1), |way| way.rnr_retry(2));
    one.send(1, &[]);
    one.send(2, &[]);
    let failed = next(&one.send_cq);
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::RnrRetryExceeded));
    let flushed = next(&one.send_cq);
    assert_eq!((flushed.wr_id, flushed.status), (2, WcStatus::Flushed));
    assert_eq!((one.qp.state(), other.qp.state()), (QpState::Err, QpState::Rts));
    assert_eq!(one.device.poll_async_event().unwrap(), None);
}

/// The peer is a plain socket on another host: it sees the port that packets leave from, which is
/// also what their ICRCs say.
#[test]
fn packets_leave_from_the_port_that_they_are_sent_to() {
    const PORT: u16 = 4791;
    if !hosts::possible() {
        return;
    }
    let [host, other] = Host::pair();
    // Over IPv6, where all of an ICRC counts.
    let [here, there] = ["fd09::1", "fd09::2"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let socket = other.run(|| UdpSocket::bind((there, PORT)).unwrap());
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let device = host.run(|| Device::with_options(options()).unwrap());
    let ends = host.run(|| [end(&device, here), end(&device, here)]);
    for (number, end) in (1..).zip(&ends) {
        let address = AddressVector { flow_label: number, ..AddressVector::new(here, there) };
        // Retries go on for two seconds: the hosts may first have to find each other.
        let way = way(end, end).address(address).dest_qp(7 + number).timeout(16);
        host.run(|| go(end, QpState::Rts, &way));
        end.send(1, &[]);
    }
    // Each is sent again for want of an answer.
    let (mut ids, mut counters) = (IdMemory::new(4).unwrap(), Counters::default());
    let (mut seen, mut octets) = ([0; 2], [0_u8; 4096]);
    while seen.iter().any(|count| *count < 2) {
        let (len, from) = socket.recv_from(&mut octets).unwrap();
        assert_eq!((from.ip(), from.port()), (here, PORT));
        let path = Path::new(AddressVector::new(here, there), from.port());
        let received = receive(&path, &octets[..len], Time::default(), &mut ids, &mut counters);
        let Some(Received::Packet(packet)) = received else { panic!("{counters:?}") };
        seen[packet.header.bth.dest_qp as usize - 8] += 1;
    }
}

/// Covers: ROCE-065, ROCE-091, ROCE-092, ROCE-104
#[test]
fn requests_without_the_right_are_refused() {
    type Case = (Access, WcStatus, fn(u32) -> AsyncEvent);
    let cases: [Case; 2] = [
        // The memory does not grant it.
        (Access::REMOTE, WcStatus::RemoteAccess, |qp| AsyncEvent::QpAccessError { qp }),
        // The queue pair does not take it.
        (Access::empty(), WcStatus::RemoteInvalidRequest, |qp| AsyncEvent::QpRequestError { qp }),
    ];
    for (granted, status, event) in cases {
        let [one, other] = joined(&Hosts::new(1), |way| way.access(granted));
        let sink = other.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
        let source = one.region_of(&[1; 64]);
        one.post_recv(8, &[]);
        other.post_recv(9, &[]);
        let write = |id| {
            let (stag, to) = (sink.rkey(), sink.base());
            one.post(id, SendOp::Write { stag, to }, &[source.whole()]);
        };
        write(1);
        let failed = next(&one.send_cq);
        assert_eq!((failed.wr_id, failed.status), (1, status));
        assert_eq!(next(&one.recv_cq).status, WcStatus::Flushed);
        assert_eq!(next(&other.recv_cq).status, WcStatus::Flushed);
        assert_eq!(other.async_event(|_| true), event(other.qp.number()));
        assert_eq!(octets(&sink, 64), [0; 64]);
        // A work request has told of it.
        assert_eq!(one.device.poll_async_event().unwrap(), None);
        write(2);
        assert_eq!(next(&one.send_cq).status, WcStatus::Flushed);
        assert_eq!((one.qp.state(), other.qp.state()), (QpState::Err, QpState::Err));
    }
}

/// Covers: ROCE-097
#[test]
fn a_message_that_is_too_long_ends_its_receive() {
    let [one, other] = joined(&Hosts::new(1), |way| way);
    let (source, sink) = (one.region_of(&[1; 64]), other.region(63));
    other.post_recv(1, &[sink.whole()]);
    one.send(1, &[source.whole()]);
    assert_eq!(next(&one.send_cq).status, WcStatus::RemoteInvalidRequest);
    assert_eq!(next(&other.recv_cq).status, WcStatus::LocalLength);
    assert_eq!(other.qp.state(), QpState::Err);
}

/// Covers: ROCE-062
#[test]
fn a_peer_that_is_not_there_is_told_by_the_oldest_request() {
    let hosts = Hosts::new(1);
    let ends = hosts.ends();
    let [one, other] = &ends;
    go(one, QpState::Rts, &way(one, other).timeout(10).retry_count(1));
    one.post_recv(3, &[]);
    one.send(1, &[]);
    one.send(2, &[]);
    let failed = next(&one.send_cq);
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::RetryExceeded));
    assert_eq!(next(&one.send_cq).status, WcStatus::Flushed);
    assert_eq!(next(&one.recv_cq).status, WcStatus::Flushed);
    assert_eq!(one.qp.state(), QpState::Err);
    // As new after a reset. Packets still under way are not taken for new ones.
    one.qp.modify(QpState::Reset).unwrap();
    one.qp.set_psn(one.qp.psn() ^ 0x0080_0000);
    one.qp.modify(QpState::Init).unwrap();
    join(&ends, |way| way);
    exchange(&ends, &[2000]);
}

/// Covers: ROCE-015
#[test]
fn a_queue_that_is_armed_for_solicited_completions_wakes_for_them_and_for_errors() {
    let hosts = Hosts::new(1);
    let devices = HOSTS.map(|ip| hosts.device(ip, options()));
    let channel = devices[1].create_comp_channel().unwrap();
    let ends = [end(&devices[0], HOSTS[0]), end_with(&devices[1], HOSTS[1], None, Some(&channel))];
    join(&ends, |way| way);
    let [one, other] = &ends;
    (0..3).for_each(|id| other.post_recv(id, &[]));
    let number = other.recv_cq.number();
    other.recv_cq.request_notify(true);
    one.send(1, &[]);
    one.sent();
    // Its completion is there, and has raised no event.
    until("a completion", || (other.recv_cq.waiting() == 1).then_some(()));
    assert_eq!(channel.try_next(), None);
    one.post(2, SendOp::Send { solicited: true, invalidate: None }, &[]);
    assert_eq!(channel.wait(Some(DEADLINE)).unwrap(), Some(number));
    one.sent();
    for id in 0..2 {
        assert_eq!(other.received().wr_id, id);
    }
    other.recv_cq.request_notify(true);
    other.qp.modify(QpState::Err).unwrap();
    assert_eq!(channel.wait(Some(DEADLINE)).unwrap(), Some(number));
    assert_eq!(next(&other.recv_cq).status, WcStatus::Flushed);
}

/// The addresses of a host are asked anew; a queue pair that has one goes on as if it were there.
///
/// Covers: ROCE-137
#[test]
fn an_address_that_goes_takes_its_entry_along_and_no_queue_pair() {
    if !hosts::possible() {
        return;
    }
    let [host, _other] = Host::pair();
    let device = host.run(|| Device::with_options(options()).unwrap());
    let gids = || host.run(|| device.gid_table().unwrap());
    let before = gids();
    let ip = IpAddr::from([10, 9, 0, 1]);
    let place = before.iter().position(|gid| gid.addr == ip).unwrap();
    let end = end(&device, ip);
    go(&end, QpState::Rts, &way(&end, &end));
    host.sh("ip addr del 10.9.0.1/24 dev v0");
    let mut rest = before.to_vec();
    rest.remove(place);
    // The others keep their places, and that one stays empty.
    host.sh("ip addr add 10.9.0.7/24 dev v0");
    let after = gids();
    assert_eq!(after[..rest.len()], rest);
    assert_eq!(after[rest.len()].index, before.len());
    assert_eq!(end.qp.state(), QpState::Rts);
    assert_eq!(end.device.poll_async_event().unwrap(), None);
    host.sh("ip addr add 10.9.0.1/24 dev v0");
    assert_eq!(gids()[..before.len()], before[..]);
    // It is read again when something has changed, and not otherwise. New addresses of IPv6 change
    // once more by themselves.
    until("a quiet host", || Arc::ptr_eq(&gids(), &gids()).then_some(()));
    host.sh("ip link set v0 mtu 1400");
    assert_eq!(gids()[place].mtu, Some(1400));
}

/// Hosts whose Ethernet address is known have the GUID that a card would make of it, in each
/// process.
///
/// Covers: ROCE-139
#[test]
fn a_guid_is_made_of_the_ethernet_address() {
    if !hosts::possible() {
        return;
    }
    let [host, _other] = Host::pair();
    host.sh("ip link set dev v0 address 52:54:00:77:00:01");
    for _ in 0..2 {
        let device = host.run(|| Device::with_options(options()).unwrap());
        assert_eq!(host.run(|| device.system_image_guid()), 0x5054_00ff_fe77_0001);
    }
}

#[test]
fn posted_requests_are_flushed_with_the_queue_pair() {
    let [one, other] = joined(&Hosts::new(1), |way| way);
    one.send(1, &[]);
    one.post_recv(2, &[]);
    one.qp.modify(QpState::Err).unwrap();
    assert_eq!(next(&one.send_cq).status, WcStatus::Flushed);
    assert_eq!(next(&one.recv_cq).status, WcStatus::Flushed);
    assert_eq!(other.qp.state(), QpState::Rts);
}

/// For each driver, although packets are lost: the worker alone, on both sides; a program that
/// sleeps on its channel; one that polls.
#[test]
fn packets_are_repeated_whatever_the_program_does() {
    const COUNT: usize = 40;
    let hosts = Hosts::new(9);
    hosts.datagrams.set_faults(DatagramFaults { lost: 6000, ..DatagramFaults::default() });
    let channel = hosts.device(HOSTS[0], options()).create_comp_channel().unwrap();
    let [device, other] = HOSTS.map(|ip| hosts.device(ip, options()));
    let ends = [end_with(&device, HOSTS[0], None, Some(&channel)), end(&other, HOSTS[1])];
    join(&ends, |way| way);
    let [one, other] = &ends;
    let content = pattern(COUNT * 3000, 1);
    let (source, sink) = (one.region_of(&content), other.region(COUNT * 3000));
    for part in 0..COUNT {
        let local = source.sge(part * 3000, 3000);
        one.write(part as u64, local, &sink, part as u64 * 3000);
    }
    // No function that moves packets is called.
    until("what was written", || (octets(&sink, content.len()) == content).then_some(()));
    for part in 0..COUNT {
        assert_eq!(one.sent().wr_id, part as u64);
    }
    for round in 0..COUNT as u64 {
        one.send_cq.request_notify(false);
        one.read(round, source.sge(0, 3000), &sink, 0);
        if one.send_cq.waiting() == 0 {
            let woken = channel.wait(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(woken, Some(one.send_cq.number()));
        }
        assert_eq!(one.sent().wr_id, round);
        while channel.try_next().is_some() {}
    }
}

/// Covers: ROCE-106
#[test]
fn receives_come_from_a_shared_queue() {
    let hosts = Hosts::new(3);
    let devices = HOSTS.map(|ip| hosts.device(ip, options()));
    let pd = devices[1].alloc_pd();
    let srq = pd.create_srq(16, 4);
    let many: Vec<_> = (0..3)
        .map(|_| {
            let one = end(&devices[0], HOSTS[0]);
            let other = end_of(&devices[1], HOSTS[1], pd.clone(), Some(&srq), None);
            let ends = [one, other];
            join(&ends, |way| way);
            ends
        })
        .collect();
    for round in 0..50 {
        let [one, other] = &many[round % 3];
        let sink = other.region(3000);
        let content = pattern(3000, round as u64);
        let source = one.region_of(&content);
        // Now and then the receive comes late.
        if round % 5 == 0 {
            one.send(1, &[source.whole()]);
        }
        srq.post(&RecvRequest::new(round as u64, &[sink.whole()])).unwrap();
        if round % 5 != 0 {
            one.send(1, &[source.whole()]);
        }
        assert_eq!(other.received().wr_id, round as u64);
        assert!(octets(&sink, 3000) == content);
        one.sent();
    }
    let [_, other] = &many[0];
    other.qp.modify(QpState::Err).unwrap();
    let last = AsyncEvent::LastReceiveReached { qp: other.qp.number() };
    assert_eq!(other.async_event(|_| true), last);
}

#[test]
fn a_send_queue_can_be_drained() {
    let ends = joined(&Hosts::new(1), |way| way);
    let [one, other] = &ends;
    one.send(1, &[]);
    one.qp.modify(QpState::Sqd).unwrap();
    one.send(2, &[]);
    other.post_recv(1, &[]);
    other.post_recv(2, &[]);
    let drained = AsyncEvent::SendQueueDrained { qp: one.qp.number() };
    assert_eq!(one.async_event(|_| true), drained);
    assert_eq!(one.sent().wr_id, 1);
    assert_eq!(one.send_cq.poll_one(), None);
    one.qp.modify(QpState::Rts).unwrap();
    assert_eq!((one.sent().wr_id, other.received().wr_id), (2, 1));
}

/// A window that a Send invalidates is of no use any more.
///
/// Covers: ROCE-102
#[test]
fn a_send_invalidates_what_it_names() {
    let ends = joined(&Hosts::new(1), |way| way);
    let [one, other] = &ends;
    let region = other.region(64);
    let window = other.pd.allocate_window(WindowType::TwoA).unwrap();
    let new_stag = window.next_stag().unwrap();
    let bind = Bind {
        window: window.stag(),
        new_stag,
        region: region.lkey(),
        addr: region.base().0,
        length: 64,
        access: Access::REMOTE_WRITE,
    };
    other.post(1, SendOp::Bind(bind), &[]);
    assert_eq!(other.sent().op, WcOp::Bind);
    let source = one.region_of(&[1; 64]);
    let to = TaggedOffset(bind.addr);
    let write = || one.post(1, SendOp::Write { stag: new_stag, to }, &[source.whole()]);
    write();
    assert_eq!(one.sent().wr_id, 1);
    assert_eq!(octets(&region, 64), [1; 64]);
    other.post_recv(2, &[]);
    one.post(2, SendOp::Send { solicited: false, invalidate: Some(new_stag) }, &[]);
    assert_eq!(other.received().invalidated, Some(new_stag));
    assert_eq!(one.sent().wr_id, 2);
    write();
    assert_eq!(next(&one.send_cq).status, WcStatus::RemoteAccess);
}

/// Without the personality of a RoCE device, and with the other wire, there is nothing to be told.
#[test]
fn a_queue_pair_that_speaks_iwarp_only_is_told_nothing() {
    for options in [Options::new().wire(Wire::Roce), options().wire(Wire::Iwarp)] {
        let device = Device::with_options(options).unwrap();
        let one = end(&device, Ipv4Addr::LOCALHOST.into());
        assert!(!one.qp.may_use_datagrams());
        let refused = one.qp.set_datagram(&way(&one, &one)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
}
