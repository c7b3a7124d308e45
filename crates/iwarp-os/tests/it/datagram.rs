// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram sockets on loopback, and between hosts.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_os::datagram::{
    Binding, DatagramSocket, Discovery, MAX_SEGMENTS, Outgoing, ReceiveBatch, Refusal, SendBatch,
};
use iwarp_os::poll::wait_readable;
use iwarp_os::slots::{Layout, Vault};
use iwarp_os::{Epoll, Events, FdPlace, Interest};

use crate::hosts::{self, Host};

const LIMIT: Duration = Duration::from_secs(20);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn bound(ip: impl Into<IpAddr>) -> DatagramSocket {
    DatagramSocket::bind(SocketAddr::new(ip.into(), 0), Binding::Alone).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A message in one packet from the socket's own address.
fn message<'a>(from: &DatagramSocket, to: SocketAddr, octets: &'a [u8]) -> Outgoing<'a> {
    Outgoing {
        octets,
        destination: to,
        source: from.local_addr().ip(),
        interface: 0,
        segment: octets.len(),
        traffic_class: None,
        hop_limit: None,
        flow_label: 0,
    }
}

/// As above, in packets of so many bytes.
fn train<'a>(
    from: &DatagramSocket,
    to: SocketAddr,
    octets: &'a [u8],
    segment: usize,
) -> Outgoing<'a> {
    Outgoing { segment, ..message(from, to, octets) }
}

/// Sends one.
fn send(from: &DatagramSocket, message: Outgoing<'_>) {
    assert_eq!(from.send(&mut SendBatch::new(1).unwrap(), [message]).unwrap(), 1);
}

/// The arrival of a packet.
#[derive(PartialEq, Debug)]
struct Got {
    source: SocketAddr,
    destination: SocketAddr,
    hop_limit: u8,
    traffic_class: u8,
    octets: Vec<u8>,
}

/// So many packets, as they come.
fn receive(socket: &DatagramSocket, count: usize) -> Vec<Got> {
    let mut got = Vec::new();
    let mut batch = ReceiveBatch::new(4).unwrap();
    while got.len() < count {
        let there = wait_readable([socket.as_fd()], Some(LIMIT)).unwrap();
        assert_eq!(there, [true], "{socket:?} has {} packets", got.len());
        socket.receive(&mut batch).unwrap();
        for arrival in batch.arrivals() {
            got.extend(arrival.packets().map(|packet| Got {
                source: arrival.source,
                destination: arrival.destination,
                hop_limit: arrival.hop_limit,
                traffic_class: arrival.traffic_class,
                octets: packet.to_vec(),
            }));
        }
    }
    assert_eq!(batch.damaged(), 0);
    got
}

fn has_nothing(socket: &DatagramSocket) {
    assert!(!socket.has_input().unwrap());
    let error = socket.receive(&mut ReceiveBatch::new(1).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn numbered(octets: usize) -> Vec<u8> {
    (0..octets).map(|at| (at / 7) as u8).collect()
}

/// Trains of both families arrive cut where they were joined, with all that was around them, and
/// without any right.
///
/// Covers: ROCE-175
#[test]
fn trains_and_single_packets_pass_loopback() {
    hosts::as_nobody(|| {
        for localhost in [V4, V6] {
            let (from, to) = (bound(localhost), bound(localhost));
            let octets = numbered(5 * 1000 + 17);
            let long = Outgoing {
                traffic_class: Some(0x6a),
                hop_limit: Some(3),
                flow_label: 0x12345,
                ..train(&from, to.local_addr(), &octets, 1000)
            };
            let short = message(&from, to.local_addr(), b"short");
            let sent = from.send(&mut SendBatch::new(8).unwrap(), [long, short, long]).unwrap();
            assert_eq!(sent, 3);
            let got = receive(&to, 13);
            let mut expected: Vec<_> = octets.chunks(1000).map(<[u8]>::to_vec).collect();
            expected.push(b"short".to_vec());
            expected.extend(octets.chunks(1000).map(<[u8]>::to_vec));
            for (got, octets) in got.iter().zip(expected) {
                let single = octets == b"short";
                let (hop_limit, traffic_class) = if single { (64, 0) } else { (3, 0x6a) };
                let (source, destination) = (from.local_addr(), to.local_addr());
                let expected = Got { source, destination, hop_limit, traffic_class, octets };
                assert_eq!(*got, expected);
            }
            has_nothing(&to);
        }
    });
}

/// A call takes what the batch has places for, and the next one the rest.
#[test]
fn calls_take_what_goes_into_a_batch() {
    let (from, to) = (bound(V4), bound(V4));
    let texts: Vec<[u8; 1]> = (0..10).map(|n| [n]).collect();
    let mut batch = SendBatch::new(4).unwrap();
    let mut sent = 0;
    while sent < texts.len() {
        let rest = texts[sent..].iter().map(|text| message(&from, to.local_addr(), text));
        sent += from.send(&mut batch, rest).unwrap();
    }
    assert_eq!(from.send(&mut batch, []).unwrap(), 0);
    let got: Vec<_> = receive(&to, 10).into_iter().map(|got| got.octets[0]).collect();
    assert_eq!(got, (0..10).collect::<Vec<_>>());
}

/// With two addresses, or bound to all, a message goes from the one that it says.
///
/// Covers: ROCE-025
#[test]
fn a_message_goes_from_the_address_that_it_says() {
    let (one, all, to) = (bound([127, 0, 0, 1]), bound([0, 0, 0, 0]), bound([127, 0, 0, 9]));
    for from in [&one, &all] {
        for source in ["127.0.0.1", "127.0.0.2"] {
            send(from, Outgoing { source: ip(source), ..message(from, to.local_addr(), b"x") });
            let got = receive(&to, 1);
            assert_eq!(got[0].source, SocketAddr::new(ip(source), from.local_addr().port()));
        }
    }
    // A socket of all addresses says to which one a packet came.
    let port = all.local_addr().port();
    send(&to, message(&to, SocketAddr::new(ip("127.0.0.3"), port), b"y"));
    assert_eq!(receive(&all, 1)[0].destination, SocketAddr::new(ip("127.0.0.3"), port));
    // From an address that is not this host's nothing goes, and what is behind it does.
    let foreign = Outgoing { source: ip("192.0.2.1"), ..message(&one, to.local_addr(), b"z") };
    let refusal = one.send(&mut SendBatch::new(2).unwrap(), [foreign]).unwrap_err();
    assert!(matches!(refusal, Refusal::Lost(_)), "{refusal:?}");
}

/// The headers as they left: the fields that the checksum of RoCE covers have the right values.
///
/// Covers: ROCE-020, ROCE-026
#[test]
fn packets_leave_with_identification_zero_and_unfragmented() {
    hosts::as_nobody(|| {
        for localhost in [V4, V6] {
            let (from, to) = (bound(localhost), bound(localhost));
            for discovery in [Discovery::Routers, Discovery::Interface] {
                from.set_discovery(discovery).unwrap();
                let packet = Outgoing {
                    traffic_class: Some(0x12),
                    hop_limit: Some(9),
                    flow_label: 0xabcde,
                    ..message(&from, to.local_addr(), b"look")
                };
                let seen = from.glimpse(&packet, LIMIT).unwrap().expect("tstamp_allow_data");
                assert_eq!(seen.source, from.local_addr());
                assert_eq!(seen.destination, to.local_addr());
                assert_eq!((seen.traffic_class, seen.hop_limit, seen.udp_len), (0x12, 9, 12));
                let (id, label) = match localhost {
                    IpAddr::V4(_) => (Some((0, true)), 0),
                    IpAddr::V6(_) => (None, 0xabcde),
                };
                assert_eq!((seen.id, seen.flow_label), (id, label));
                assert_eq!(receive(&to, 1)[0].octets, b"look");
            }
        }
    });
}

/// RoCE's packets have no UDP checksum, which IPv6 asks for.
///
/// Covers: ROCE-034
#[test]
fn packets_without_a_checksum_are_let_in() {
    for localhost in [V4, V6] {
        let (from, to) = (bound(localhost), bound(localhost));
        from.set_checksums(false).unwrap();
        send(&from, message(&from, to.local_addr(), b"unchecked"));
        assert_eq!(receive(&to, 1)[0].octets, b"unchecked");
        // The system cuts no packets that have none.
        let octets = [0; 300];
        let refused = from
            .send(&mut SendBatch::new(1).unwrap(), [train(&from, to.local_addr(), &octets, 100)]);
        assert!(matches!(refused, Err(Refusal::Segmenting)), "{refused:?}");
        has_nothing(&to);
    }
    // An ordinary socket does not get it.
    let (from, ordinary) = (bound(V6), UdpSocket::bind((V6, 0)).unwrap());
    from.set_checksums(false).unwrap();
    send(&from, message(&from, ordinary.local_addr().unwrap(), b"unchecked"));
    ordinary.set_nonblocking(true).unwrap();
    assert_eq!(ordinary.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A peer that is not there is loss: neither sending nor receiving says anything.
///
/// Covers: ROCE-179
#[test]
fn a_peer_that_is_gone_is_no_error() {
    for localhost in [V4, V6] {
        let from = bound(localhost);
        let gone = bound(localhost).local_addr();
        for _ in 0..3 {
            send(&from, message(&from, gone, b"anybody?"));
        }
        has_nothing(&from);
    }
}

/// A packet that does not fit its receive buffer is dropped by the system, which counts it.
#[test]
fn the_receive_buffer_is_granted_and_overruns_are_counted() {
    let (from, to) = (bound(V4), bound(V4));
    let small = to.set_buffers(1).unwrap();
    let large = from.set_buffers(1 << 30).unwrap();
    assert!(small.receive < large.receive && small.send < large.send, "{small:?} {large:?}");
    assert_eq!(to.buffers().unwrap(), small);
    assert_eq!(to.overruns(), 0);
    for _ in 0..100 {
        send(&from, message(&from, to.local_addr(), &[7; 512]));
    }
    let dropped = to.overruns() as usize;
    assert!((1..100).contains(&dropped), "{dropped}");
    assert_eq!(receive(&to, 100 - dropped).len(), 100 - dropped);
    has_nothing(&to);
}

/// A socket that another process made works as well, and a descriptor that is none is refused.
#[test]
fn a_socket_of_another_process_is_taken_over() {
    let std = UdpSocket::bind((V4, 0)).unwrap();
    let to = DatagramSocket::adopt(std.try_clone().unwrap().into()).unwrap();
    assert_eq!(to.local_addr(), std.local_addr().unwrap());
    let from = bound(V4);
    send(&from, train(&from, to.local_addr(), &[1; 30], 10));
    assert_eq!(receive(&to, 3)[2].destination, to.local_addr());
    let tcp = std::net::TcpListener::bind((V4, 0)).unwrap();
    assert_eq!(DatagramSocket::adopt(tcp.into()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Several sockets may have one address, if all of them say so.
#[test]
fn an_address_is_shared_by_those_who_agree() {
    let first = bound(V4);
    let again = |binding| DatagramSocket::bind(first.local_addr(), binding);
    for binding in [Binding::Alone, Binding::InTurns, Binding::Everybody] {
        assert_eq!(again(binding).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
    for binding in [Binding::InTurns, Binding::Everybody] {
        let first = DatagramSocket::bind(SocketAddr::new(V4, 0), binding).unwrap();
        DatagramSocket::bind(first.local_addr(), binding).unwrap();
    }
}

/// Without merging, packets of a train come one by one.
#[test]
fn merging_can_be_switched_off() {
    let (from, to) = (bound(V4), bound(V4));
    assert!(to.merges() && to.can_segment());
    let octets = [5; 500];
    let count = |to: &DatagramSocket| {
        send(&from, train(&from, to.local_addr(), &octets, 100));
        let mut batch = ReceiveBatch::new(8).unwrap();
        to.receive(&mut batch).unwrap()
    };
    assert_eq!(count(&to), 1);
    to.set_merging(false).unwrap();
    assert!(!to.merges());
    assert_eq!(count(&to), 5);
}

/// The values in the headers of a captured packet.
fn identification(packet: &[u8]) -> (u16, u8) {
    (u16::from_be_bytes([packet[4], packet[5]]), packet[6])
}

/// On a cable, where the system cuts a train: the identifications count from 0 in each send, and
/// all packets forbid fragmentation.
///
/// Covers: ROCE-020, ROCE-026, ROCE-027
#[test]
fn segments_are_numbered_from_zero_on_a_cable() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    // So that the system cuts and not the other end's socket.
    a.sh("ip link set dev v0 gso_max_segs 1");
    let seen = b.capture();
    let octets = numbered(MAX_SEGMENTS * 64);
    for (from, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        let from = a.run(|| bound(ip(from)));
        let to = b.run(|| bound(ip(to)));
        let port = to.local_addr().port();
        let packet = message(&from, to.local_addr(), b"alone");
        let all = train(&from, to.local_addr(), &octets, 64);
        let most = Outgoing { octets: &octets[..2 * 64 + 5], hop_limit: Some(7), ..all };
        for message in [packet, all, packet, most] {
            send(&from, message);
        }
        let got = receive(&to, 1 + MAX_SEGMENTS + 1 + 3);
        assert_eq!(got[1 + MAX_SEGMENTS].octets, b"alone");
        assert_eq!(got.last().unwrap().octets, &octets[128..133]);
        assert_eq!(got.last().unwrap().hop_limit, 7);
        let packets = seen.packets_to(port);
        assert_eq!(packets.len(), got.len());
        if from.local_addr().is_ipv4() {
            let ids: Vec<_> = packets.iter().map(|packet| identification(packet)).collect();
            let counted = |packets: u16| (0..packets).map(|id| (id, 0x40));
            let all = counted(1).chain(counted(64)).chain(counted(1)).chain(counted(3));
            assert_eq!(ids, all.collect::<Vec<_>>());
        }
    }
}

/// Each packet on the cable carries the address, the class, the hops and the label that its message
/// says, and nothing else from two families.
///
/// Covers: ROCE-025, ROCE-126
#[test]
fn headers_on_a_cable_are_those_of_the_message() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    a.sh("ip addr add 10.9.0.77/24 dev v0; ip addr add fd09::77/64 dev v0 nodad");
    let seen = b.capture();
    for (at, other, to) in
        [("10.9.0.1", "10.9.0.77", "10.9.0.2"), ("fd09::1", "fd09::77", "fd09::2")]
    {
        let from = a.run(|| bound(ip(at)));
        let to = b.run(|| bound(ip(to)));
        let described = Outgoing {
            source: ip(other),
            traffic_class: Some(0xb9),
            hop_limit: Some(200),
            flow_label: 0x54321,
            ..message(&from, to.local_addr(), b"described")
        };
        send(&from, described);
        let got = &receive(&to, 1)[0];
        assert_eq!(got.source, SocketAddr::new(ip(other), from.local_addr().port()));
        assert_eq!((got.hop_limit, got.traffic_class), (200, 0xb9));
        let packets = seen.packets_to(to.local_addr().port());
        let [packet] = &packets[..] else { panic!("{} packets", packets.len()) };
        if packet[0] >> 4 == 6 {
            assert_eq!(packet[..4], [0x6b, 0x95, 0x43, 0x21]);
            assert_eq!(packet[7], 200);
        } else {
            assert_eq!((packet[1], packet[8]), (0xb9, 200));
        }
        // And what was said to the socket is what messages without their own have.
        from.set_traffic_class(2).unwrap();
        send(&from, message(&from, to.local_addr(), b"ect"));
        assert_eq!(receive(&to, 1)[0].traffic_class, 2);
    }
}

/// A socket of both families sends and receives packets of either as a socket of that family does:
/// headers, source addresses, identification 0, trains, groups.
///
/// Covers: ROCE-025, ROCE-027
#[test]
fn a_socket_of_both_families_is_one_of_either() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    a.sh("ip addr add 10.9.0.77/24 dev v0; ip addr add fd09::77/64 dev v0 nodad");
    // So that the system cuts and not the other end's socket.
    a.sh("ip link set dev v0 gso_max_segs 1");
    let seen = b.capture();
    let both = || {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 5791);
        let (layout, beside) = (Layout::new(1, 2), std::io::stdin());
        let vault = Vault::create(any, layout, [beside.as_fd(), beside.as_fd()]).unwrap();
        // Packets that are too short, as those of this test, come to slot 0.
        (DatagramSocket::adopt(vault.socket(0).unwrap()).unwrap(), vault)
    };
    let ((from, _from), (to, _to)) = (a.run(both), b.run(both));
    assert!(from.has_ipv4() && from.has_ipv6() && to.can_segment() && to.merges());
    let interface = |of: &Host| {
        let all = of.run(|| iwarp_os::addr::interfaces().unwrap());
        all.iter().find(|interface| interface.name == "v0").unwrap().index
    };
    let (out, into) = (interface(&a), interface(&b));
    for (source, destination, group) in
        [("10.9.0.77", "10.9.0.2", "239.1.2.3"), ("fd09::77", "fd09::2", "ff15::4")]
    {
        let port = to.local_addr().port();
        let destination = SocketAddr::new(ip(destination), port);
        let described = Outgoing {
            source: ip(source),
            traffic_class: Some(0xb9),
            hop_limit: Some(200),
            ..message(&from, destination, b"abc")
        };
        send(&from, described);
        let got = &receive(&to, 1)[0];
        assert_eq!((got.source, got.destination), (SocketAddr::new(ip(source), port), destination));
        assert_eq!((got.hop_limit, got.traffic_class), (200, 0xb9));
        // The first four bytes of each are 0: for slot 0, merged or not.
        let octets = [0; 3 * 100 + 7];
        send(&from, Outgoing { segment: 100, ..Outgoing { octets: &octets, ..described } });
        let got = receive(&to, 4);
        assert!(got.iter().all(|got| got.destination == destination));
        let packets = seen.packets_to(port);
        if source.contains('.') {
            let numbers: Vec<_> = packets.iter().map(|packet| identification(packet)).collect();
            assert!(numbers.iter().all(|(_, flags)| *flags & 0x40 != 0), "{numbers:?}");
            let numbers: Vec<_> = numbers.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [0, 0, 1, 2, 3]);
        }
        let long = [0; 1500];
        let refused = from.send(
            &mut SendBatch::new(1).unwrap(),
            [Outgoing { octets: &long, segment: 1500, ..described }],
        );
        assert!(matches!(refused, Err(Refusal::TooLong)), "{refused:?}");
        // A group, by an interface that the message names.
        from.send_to_groups(5, false).unwrap();
        let group = ip(group);
        let to_group = Outgoing {
            destination: SocketAddr::new(group, port),
            interface: out,
            hop_limit: None,
            ..described
        };
        to.join(group, into).unwrap();
        send(&from, to_group);
        let got = &receive(&to, 1)[0];
        assert_eq!((got.destination.ip(), got.hop_limit), (group, 5));
        to.leave(group, into).unwrap();
    }
}

/// A packet that is longer than the interface takes is told, alone and in a train.
///
/// Covers: ROCE-041
#[test]
fn packets_that_are_too_long_are_told() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    for (from, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        let from = a.run(|| bound(ip(from)));
        let to = b.run(|| bound(ip(to)));
        let octets = vec![0; 6000];
        let too_long = |refused: Result<usize, Refusal>| {
            assert!(matches!(refused, Err(Refusal::TooLong)), "{refused:?}");
        };
        for discovery in [Discovery::Routers, Discovery::Interface] {
            from.set_discovery(discovery).unwrap();
            let mut batch = SendBatch::new(2).unwrap();
            too_long(from.send(&mut batch, [message(&from, to.local_addr(), &octets[..1500])]));
            // An older system does not say what of a train it minds.
            let refused = from.send(&mut batch, [train(&from, to.local_addr(), &octets, 1500)]);
            assert!(matches!(refused, Err(Refusal::TooLong | Refusal::Segmenting)), "{refused:?}");
            // The packets before it go.
            let fits = train(&from, to.local_addr(), &octets, 1400);
            let long = message(&from, to.local_addr(), &octets);
            assert_eq!(from.send(&mut batch, [fits, long]).unwrap(), 1);
            assert_eq!(receive(&to, 5)[4].octets.len(), 400);
        }
        // A router tells the MTU of the path. The Interface's way does not believe it.
        let host = if from.local_addr().is_ipv4() { "10.9.0.2" } else { "fd09::2" };
        a.sh(&format!("ip route add {host} dev v0 mtu 1300"));
        let packet = message(&from, to.local_addr(), &octets[..1400]);
        send(&from, packet);
        from.set_discovery(Discovery::Routers).unwrap();
        too_long(from.send(&mut SendBatch::new(1).unwrap(), [packet]));
    }
}

/// A group's packets come to those who joined, as long as they have, at the interface that was
/// said, and to no other socket of the port.
///
/// Covers: ROCE-128, ROCE-130
#[test]
fn groups_are_joined_and_left() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    let index = |host: &Host| {
        let interfaces = host.run(iwarp_os::addr::interfaces).unwrap();
        interfaces.iter().find(|interface| interface.name == "v0").unwrap().index
    };
    let (out, at) = (index(&a), index(&b));
    for (from, group, other, unicast) in [
        ("10.9.0.1", "239.7.7.7", "239.7.7.8", "10.9.0.2"),
        ("fd09::1", "ff15::77", "ff15::78", "fd09::2"),
    ] {
        let (group, other) = (ip(group), ip(other));
        let from = a.run(|| bound(ip(from)));
        from.send_to_groups_by(out).unwrap();
        from.send_to_groups(5, false).unwrap();
        let everywhere = if group.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
        let member = |addr| b.run(|| DatagramSocket::bind(addr, Binding::Everybody)).unwrap();
        // One of all addresses, and one of the group alone.
        let wide = member(SocketAddr::new(everywhere, 0));
        let port = wide.local_addr().port();
        let narrow = member(SocketAddr::new(group, port));
        let stranger = member(SocketAddr::new(everywhere, port));
        let to = SocketAddr::new(group, port);
        send(&from, message(&from, to, b"too early"));
        for socket in [&wide, &narrow] {
            socket.join(group, at).unwrap();
            assert!(socket.join(group, at).is_err(), "joined twice");
            assert!(socket.join(ip(unicast), at).is_err(), "no group");
        }
        wide.join(other, at).unwrap();
        send(&from, message(&from, SocketAddr::new(other, port), b"other"));
        send(&from, message(&from, to, b"all"));
        let got = receive(&wide, 2);
        assert_eq!((got[0].destination.ip(), got[1].destination), (other, to));
        assert_eq!((got[1].hop_limit, got[1].source), (5, from.local_addr()));
        assert_eq!(receive(&narrow, 1)[0].octets, b"all");
        has_nothing(&stranger);
        wide.leave(group, at).unwrap();
        assert!(wide.leave(group, at).is_err(), "left twice");
        send(&from, message(&from, to, b"later"));
        assert_eq!(receive(&narrow, 1)[0].octets, b"later");
        has_nothing(&wide);
    }
}

/// While the device is slow the socket says that it is full, and becomes writable: what it has
/// taken arrives, in order.
///
/// Covers: ROCE-179
#[test]
fn a_full_send_buffer_is_told_and_nothing_taken_is_lost() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    a.sh("tc qdisc add dev v0 root tbf rate 8mbit burst 20kb limit 10mb");
    let from = a.run(|| bound(ip("10.9.0.1")));
    let to = b.run(|| bound(ip("10.9.0.2")));
    from.set_buffers(30_000).unwrap();
    let epoll = Epoll::new(FdPlace::Internal).unwrap();
    epoll.add(&from, 0, Interest::WRITE).unwrap();
    let mut events = Events::with_capacity(1);
    let (mut batch, mut full, mut next) = (SendBatch::new(8).unwrap(), 0, 0_u32);
    let mut received = Vec::new();
    while next < 400 {
        let packets: Vec<_> =
            (next..next + 8).map(|number| number.to_be_bytes().repeat(250)).collect();
        let messages = packets.iter().map(|octets| message(&from, to.local_addr(), octets));
        match from.send(&mut batch, messages) {
            Ok(sent) => next += sent as u32,
            Err(Refusal::Full) => {
                full += 1;
                assert_eq!(epoll.wait(&mut events, Some(LIMIT)).unwrap(), 1, "never writable");
            }
            Err(refusal) => panic!("{refusal:?}"),
        }
        while to.has_input().unwrap() {
            received.extend(receive(&to, 1));
        }
    }
    assert!(full > 0, "never full");
    let rest = next as usize - received.len();
    received.extend(receive(&to, rest));
    let numbers = received.iter().map(|got| u32::from_be_bytes(*got.octets.first_chunk().unwrap()));
    assert!(numbers.eq(0..next));
}
