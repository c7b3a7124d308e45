// SPDX-License-Identifier: MIT OR Apache-2.0

//! The whole library over networks that are not the system's: verbs, connection manager and
//! rendezvous without a socket, recorded, and over streams that are delayed, cut and corrupted.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use iwarp::cm::{ConnectError, ConnectParams, EventChannel, EventKind, Id, Listener, connect};
use iwarp::port::Direction::{Received, Sent};
use iwarp::port::{Faults, MemoryNetwork, Network, Passed, Platform, Recording};
use iwarp::{
    CompletionQueue, Device, Ended, MemoryRegion, Options, Payload, Peer, ProtectionDomain,
    QpState, QueuePair, QueuePairAttributes, Reason, RecvRequest, SendRequest, WcStatus,
};
use iwarp_proto::framing::Deframe as _;
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::wire::{Frame, FrameKind};
use iwarp_proto::rdmap::wire::{Opcode, TerminateCode};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use crate::common::process::{passed_apart, this_test};
use crate::common::raw::{opcode, split};
use crate::common::{DEADLINE, End, all_access, couple, next, parts, pattern, succeeded, until};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

/// A CRC that is wrong (RFC 5044 §8).
const CRC_ERROR: Reason = TerminateCode { layer: 2, etype: 0, code: 2 }.reason();

fn platform(network: std::sync::Arc<dyn Network>) -> Platform {
    Platform { network, ..Platform::default() }
}

/// A client and a server, connected, on platforms of their own.
fn connected(options: &Options, client: Platform, server: Platform) -> (End, End) {
    let server = Device::on_platform(options.clone(), server).unwrap();
    let client = Device::on_platform(options.clone(), client).unwrap();
    let listener = Listener::bind(&server, SocketAddr::new(SERVER, 0)).unwrap();
    let [ours, theirs] = [&client, &server].map(|device| parts(device, 64));
    let (connection, accepted) = couple(&client, &ours.3, &listener, &theirs.3);
    assert_eq!(connection.peer_addr(), listener.local_addr());
    assert_eq!(accepted.peer_addr(), connection.local_addr());
    let end = |device, (pd, send_cq, recv_cq, qp), connection| End {
        device,
        pd,
        send_cq,
        recv_cq,
        qp,
        connection,
    };
    (end(client, ours, connection), end(server, theirs, accepted))
}

fn in_memory(options: &Options, network: &MemoryNetwork) -> (End, End) {
    connected(options, network.platform(CLIENT), network.platform(SERVER))
}

/// Send both ways, Write and Read, of so many bytes.
fn work(client: &End, server: &End, len: usize) {
    for (number, (from, to)) in [(client, server), (server, client)].into_iter().enumerate() {
        let octets = pattern(len, number as u64 + 1);
        let (source, sink) = (from.region_of(&octets), to.region(len));
        to.post_recv(1, &[sink.sge(0, len)]);
        from.send(2, &[source.sge(0, len)]);
        assert_eq!(to.received().byte_len as usize, len);
        assert_eq!(from.sent().wr_id, 2);
        assert_eq!(sink.buffer().unwrap().to_vec(), octets);
    }
    let octets = pattern(len, 3);
    let (source, sink, back) = (client.region_of(&octets), server.region(len), client.region(len));
    client.write(3, source.sge(0, len), &sink, 0);
    client.read(4, back.sge(0, len), &sink, 0);
    assert_eq!([client.sent().wr_id, client.sent().wr_id], [3, 4]);
    assert_eq!(back.buffer().unwrap().to_vec(), octets);
}

/// Both ends learn that it was in good order.
fn part(client: &End, server: &End) {
    client.connection.disconnect();
    for end in [server, client] {
        assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    }
    for end in [client, server] {
        until("the stream to close", || (end.device.connections() == 0).then_some(()));
    }
}

/// Sockets that this process has.
fn sockets() -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    let targets = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// All that start-up can agree upon.
fn ways() -> [Options; 4] {
    [
        Options::default(),
        Options::new().crc(false),
        Options::new().markers(true),
        Options::new().peer_to_peer(true).mulpdu(60_000),
    ]
}

#[test]
fn verbs_need_no_socket() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let before = sockets();
    for options in ways() {
        let (client, server) = in_memory(&options, &MemoryNetwork::new());
        for len in [1, 100, 5000, 1 << 20] {
            work(&client, &server, len);
        }
        assert_eq!(sockets(), before, "a socket was made");
        part(&client, &server);
    }
}

/// Bytes that do not fit wait for room, and both directions fill up at once.
#[test]
fn a_narrow_pipe_carries_all() {
    for options in ways() {
        let network = MemoryNetwork::new().with_capacity(1000);
        let (client, server) = in_memory(&options, &network);
        work(&client, &server, 300_000);
        let len = 200_000;
        let octets = pattern(len, 5);
        let ends = [&client, &server];
        let regions = ends.map(|end| (end.region_of(&octets), end.region(len)));
        for (end, (_, sink)) in ends.iter().zip(&regions) {
            end.post_recv(1, &[sink.sge(0, len)]);
        }
        for (end, (source, _)) in ends.iter().zip(&regions) {
            end.send(2, &[source.sge(0, len)]);
        }
        for (end, (_, sink)) in ends.iter().zip(&regions) {
            end.received();
            end.sent();
            assert_eq!(sink.buffer().unwrap().to_vec(), octets);
        }
        part(&client, &server);
    }
}

/// Events instead of blocking calls: the worker makes the connection and moves the bytes.
#[test]
fn the_connection_manager_needs_no_socket() {
    let network = MemoryNetwork::new();
    let server = Device::on_platform(Options::default(), network.platform(SERVER)).unwrap();
    let client = Device::on_platform(Options::default(), network.platform(CLIENT)).unwrap();
    let channels = [&server, &client].map(|device| EventChannel::new(device).unwrap());
    let event = |which: usize| channels[which].wait(Some(DEADLINE)).unwrap().expect("an event");
    let listening = Id::new(&channels[0]).unwrap();
    listening.bind(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 4791)).unwrap();
    listening.listen(4).unwrap();
    let second = Id::new(&channels[0]).unwrap();
    let taken = second.bind(SocketAddr::new(SERVER, 4791)).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);

    let [ours, theirs] = [&client, &server].map(|device| parts(device, 16));
    let id = Id::new(&channels[1]).unwrap();
    id.resolve_addr(None, SocketAddr::new(SERVER, 4791)).unwrap();
    assert!(matches!(event(1).kind, EventKind::AddressResolved));
    assert_eq!(id.local_addr().map(|addr| addr.ip()), Some(CLIENT));
    let params = ConnectParams::new().private_data(b"who");
    id.connect(&ours.3, &params).unwrap();
    let request = event(0);
    let EventKind::ConnectRequest { private_data, .. } = request.kind else { panic!("no request") };
    assert_eq!(private_data, b"who");
    request.id.accept(&theirs.3, &params).unwrap();
    assert!(matches!(event(0).kind, EventKind::Established { .. }));
    assert!(matches!(event(1).kind, EventKind::Established { .. }));
    id.disconnect();
    for which in 0..2 {
        assert!(matches!(event(which).kind, EventKind::Disconnected(Ended::Closed)));
    }
}

#[test]
fn refusals_are_told() {
    let network = MemoryNetwork::new();
    let server = Device::on_platform(Options::default(), network.platform(SERVER)).unwrap();
    let client = Device::on_platform(Options::default(), network.platform(CLIENT)).unwrap();
    let (_pd, _send_cq, _recv_cq, qp) = parts(&client, 16);
    let params = ConnectParams::default();
    let listener = Listener::bind(&server, SocketAddr::new(SERVER, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let refusing = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
            incoming.reject(b"not today").unwrap();
        });
        let error = connect(&client, addr, &qp, &params, DEADLINE).unwrap_err();
        let ConnectError::Rejected { private_data, .. } = error else { panic!("{error}") };
        assert_eq!(private_data, b"not today");
        refusing.join().unwrap();
    });
    drop(listener);
    // No program listens at the one any more, and no host has ever had the other.
    for addr in [addr, SocketAddr::new(IpAddr::from([10, 9, 9, 9]), 1)] {
        let error = connect(&client, addr, &qp, &params, DEADLINE).unwrap_err();
        let ConnectError::Unreachable(error) = error else { panic!("{error}") };
        assert_ne!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    }
}

/// A queue pair that peers find by its number.
struct Found {
    addr: IpAddr,
    _pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl Found {
    fn new(device: &Device, addr: IpAddr) -> Self {
        let pd = device.alloc_pd();
        let cq = device.create_cq(64, None).unwrap();
        let qp = pd.create_addressable_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
        let memory = pd.allocate(64, all_access()).unwrap();
        Self { addr, _pd: pd, cq, qp, memory }
    }

    fn go(&self, to: &Self) {
        let (gid, qpn, psn) = (to.addr, to.qp.number(), to.qp.psn());
        self.qp.modify(QpState::Init).unwrap();
        let peer = Peer::at(self.addr, gid, qpn, psn);
        self.qp.connect_to(&peer).unwrap();
        self.qp.modify(QpState::Rts).unwrap();
    }

    /// A message to `to`, which may be itself.
    fn tell(&self, to: &Self) {
        to.qp.post_recv(&RecvRequest::new(1, &[to.memory.sge(0, 64)])).unwrap();
        let request = SendRequest::send(2, Payload::Inline(b"hello")).signaled();
        self.qp.post_send(&request).unwrap();
        let mut done = HashSet::from([succeeded(next(&self.cq)).wr_id]);
        done.insert(succeeded(next(&to.cq)).wr_id);
        assert_eq!(done, HashSet::from([1, 2]));
        assert_eq!(to.memory.buffer().unwrap().to_vec()[..5], *b"hello");
    }
}

/// Reservation, listeners, both ends' proofs and the choice between two connections.
#[test]
fn queue_pairs_meet_without_a_socket() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let before = sockets();
    let network = MemoryNetwork::new();
    meet(|addr| network.platform(addr));
    assert_eq!(sockets(), before, "a socket was made");
}

/// Nor does it matter when and in what pieces start-up frames and proofs come.
#[test]
fn queue_pairs_meet_piece_by_piece() {
    let faults = Faults { delayed: 60, longest_piece: 20, ..Faults::seeded(1) };
    let network = MemoryNetwork::new();
    meet(|addr| platform(faults.around(network.host(addr))));
}

fn meet(platform: impl Fn(IpAddr) -> Platform) {
    let addrs = [CLIENT, SERVER];
    let devices =
        addrs.map(|addr| Device::on_platform(Options::default(), platform(addr)).unwrap());
    for round in 0..20 {
        let [one, other] = [0, 1].map(|which| Found::new(&devices[which], addrs[which]));
        thread::scope(|scope| {
            scope.spawn(|| one.go(&other));
            if round % 2 == 0 {
                until("the first end", || (one.qp.state() == QpState::Rts).then_some(()));
            }
            other.go(&one);
        });
        one.tell(&other);
        other.tell(&one);
    }
    let alone = Found::new(&devices[0], CLIENT);
    alone.go(&alone);
    alone.tell(&alone);
}

/// The opcodes of the segments that a stream carries behind its start-up frame.
fn opcodes(kind: FrameKind, mut stream: &[u8]) -> Vec<Opcode> {
    let (frame, used) = Frame::parse(kind, 2, stream).unwrap().expect("a start-up frame");
    assert!(frame.crc && !frame.rejected && frame.rev == 2, "{frame:?}");
    let mut deframer = Deframer::new(true, false);
    let mut found = Vec::new();
    stream = &stream[used..];
    while !stream.is_empty() {
        let mut rest = stream.to_vec();
        let fpdu = deframer.next(&mut rest).expect("a good CRC").expect("a whole FPDU");
        let (header, _) = split(&rest[fpdu.start..fpdu.start + fpdu.len]);
        found.push(Opcode::from_number(opcode(&header)).expect("an opcode"));
        stream = &stream[fpdu.consumed..];
    }
    found
}

/// The recorded messages are those that the RFCs want, in the order in which they passed; and what
/// one end sent the other received.
#[test]
fn a_recording_holds_all_that_passed() {
    let (network, recording) = (MemoryNetwork::new(), Recording::default());
    let client = platform(recording.around(network.host(CLIENT)));
    let server = platform(recording.around(network.host(SERVER)));
    let (client, server) = connected(&Options::default(), client, server);
    work(&client, &server, 100);
    part(&client, &server);
    let passed = recording.passed();
    let (ours, theirs) = (passed[0].connection, 1 - passed[0].connection);
    let [sent, received] = [Sent, Received].map(|way| recording.stream(ours, way));
    assert_eq!(sent, recording.stream(theirs, Received));
    assert_eq!(received, recording.stream(theirs, Sent));
    let hello = Opcode::Write;
    let asked = [hello, Opcode::Send, Opcode::Write, Opcode::ReadRequest];
    assert_eq!(opcodes(FrameKind::Request, &sent), asked);
    let answered = [hello, Opcode::Send, Opcode::ReadResponse];
    assert_eq!(opcodes(FrameKind::Reply, &received), answered);

    let begins: Vec<_> =
        passed.iter().take(4).map(|passed| (passed.connection, passed.direction)).collect();
    assert_eq!(begins, [(ours, Sent), (theirs, Received), (theirs, Sent), (ours, Received)]);
    let ends: HashSet<_> = passed.iter().map(|passed| passed.ends.peer.ip()).collect();
    assert_eq!(ends, HashSet::from([CLIENT, SERVER]));
    // The end of the stream is the last that each hears.
    for connection in 0..2 {
        let heard =
            |passed: &&Passed| passed.connection == connection && passed.direction == Received;
        assert!(passed.iter().rfind(heard).is_some_and(|last| last.octets.is_empty()));
    }
}

/// Bytes that come late and in pieces are the same bytes, in start-up and after it.
#[test]
fn pieces_and_delays_change_nothing() {
    for seed in 0..24 {
        let faults = Faults {
            delayed: 60,
            longest_piece: [1, 7, 100, 3000][seed as usize % 4],
            spared: 24,
            ..Faults::seeded(seed)
        };
        let network = MemoryNetwork::new();
        let client = platform(faults.around(network.host(CLIENT)));
        let server = platform(faults.around(network.host(SERVER)));
        let options = &ways()[seed as usize / 4 % 4];
        let (client, server) = connected(options, client, server);
        let len = if seed % 4 == 0 { 1000 } else { 20_000 };
        work(&client, &server, len);
        part(&client, &server);
    }
}

/// The fate of a connection that sends messages while bits are changed on their way.
fn send_until_it_ends(seed: u64) -> (usize, Option<Ended>) {
    const MESSAGES: usize = 60;
    let faults =
        Faults { corrupt_one_in: 30_000, longest_piece: 3000, spared: 24, ..Faults::seeded(seed) };
    let network = MemoryNetwork::new();
    let client = platform(faults.around(network.host(CLIENT)));
    let (client, server) = connected(&Options::default(), client, network.platform(SERVER));
    let len = 1 + (seed as usize * 997) % 4000;
    let regions: Vec<_> = (0..MESSAGES).map(|_| server.region(len)).collect();
    for (number, region) in regions.iter().enumerate() {
        server.post_recv(number as u64, &[region.sge(0, len)]);
    }
    for number in 0..MESSAGES {
        let octets = pattern(len, number as u64);
        let region = client.region_of(&octets);
        let sges = [region.sge(0, len)];
        let request = SendRequest::send(0, &sges).signaled();
        if client.qp.post_send(&request).is_err()
            || next(&client.send_cq).status != WcStatus::Success
        {
            break;
        }
    }
    client.connection.disconnect();
    let ended = server.connection.wait_disconnected(Some(DEADLINE));
    let mut good = 0;
    while let Some(completion) = server.recv_cq.poll_one() {
        if completion.status != WcStatus::Success {
            break;
        }
        assert_eq!(completion.wr_id as usize, good);
        let received = regions[good].buffer().unwrap().to_vec();
        assert_eq!(received, pattern(len, good as u64), "wrong octets, seed {seed}");
        succeeded(completion);
        good += 1;
    }
    assert!(good == MESSAGES || ended != Some(Ended::Closed), "messages are missing, seed {seed}");
    (good, ended)
}

/// No byte reaches memory before its CRC was verified: what arrives is right, and the first FPDU
/// that is not ends the connection.
#[test]
fn a_changed_bit_ends_the_connection() {
    let all: Vec<_> = (0..60).map(send_until_it_ends).collect();
    let fault = |(_, ended): &&(usize, Option<Ended>)| *ended == Some(Ended::Fault(CRC_ERROR));
    let faults = all.iter().filter(fault).count();
    // Elsewhere nothing was changed, or a length that has grown has the stream end within an FPDU.
    assert!(faults > 20, "{all:?}");
    assert!(all.iter().any(|(good, _)| *good > 0 && *good < 60), "{all:?}");
    assert!(all.iter().all(|(_, ended)| ended.is_some()), "{all:?}");
}

/// Bytes that are in no system call find out by themselves that memory has gone, on either side.
#[cfg(not(plain_copies))]
#[test]
fn memory_that_is_gone_ends_one_connection() {
    const LEN: usize = 64 * 1024;
    let options = Options::new().crc(false).mulpdu(30_000);
    // SAFETY: a new mapping.
    let start = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mmap_anonymous(std::ptr::null_mut(), LEN, protection, MapFlags::PRIVATE).unwrap()
    };
    let protect = |flags| {
        // SAFETY: the test's own pages, which nothing but the network looks at.
        unsafe { mprotect(start, LEN, flags) }.unwrap();
    };
    let register = |end: &End| {
        // SAFETY: what becomes of it is what is looked at; it is never unmapped.
        unsafe { end.pd.register_raw(start.cast(), LEN, all_access()) }.unwrap()
    };
    for sink_goes in [true, false] {
        let (client, server) = in_memory(&options, &MemoryNetwork::new());
        let gone = register(if sink_goes { &server } else { &client });
        let there = if sink_goes { client.region(LEN) } else { server.region(LEN) };
        protect(MprotectFlags::empty());
        let (source, sink) = if sink_goes { (&there, &gone) } else { (&gone, &there) };
        client.write(1, source.sge(0, LEN), sink, 0);
        let ended = server.connection.wait_disconnected(Some(DEADLINE));
        if sink_goes {
            let code = TerminateCode { layer: 0, etype: 0, code: 0 }.reason();
            assert_eq!(ended, Some(Ended::Fault(code)));
        } else {
            assert_eq!(next(&client.send_cq).status, WcStatus::LocalProtection);
            assert!(ended.is_some());
        }
        protect(MprotectFlags::READ | MprotectFlags::WRITE);
    }
    let (client, server) = in_memory(&options, &MemoryNetwork::new());
    work(&client, &server, LEN);
}
