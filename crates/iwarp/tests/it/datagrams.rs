// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports that carry packets: over UDP and in memory.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp::Outbox;
use iwarp::port::{
    BothFamilies, BurstCursor, DatagramFaults, DatagramNetwork, DatagramPort, DatagramSettings,
    Direction, MemoryDatagrams, PacketRecording, Sent, datagrams,
};
use iwarp_roce::wire::{
    Bth, Burst, Deth, Header, ICRC_LEN, Message, Numbering, Packet, Path, Position, Psn, SendTail,
    Transport,
};
use iwarp_types::{AddressVector, Digest};

use crate::common::{Idle, until};
use crate::hosts;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const QKEY: u32 = 0x1122_3344;

fn open(ip: IpAddr, settings: &DatagramSettings) -> Box<dyn DatagramPort> {
    datagrams().open(SocketAddr::new(ip, 0), settings).unwrap()
}

/// The way from one port to another.
fn way(from: &dyn DatagramPort, to: SocketAddr) -> Path {
    let address = AddressVector::new(from.local_addr().ip(), to.ip());
    Path { destination_port: to.port(), ..Path::new(address, from.local_addr().port()) }
}

/// Puts a datagram of UD into a burst.
fn push(burst: &mut Burst, path: &Path, psn: u32, payload: &[u8]) {
    let header = Header {
        bth: Bth::new(17, Psn::new(psn)),
        transport: Transport::Ud,
        deth: Some(Deth { qkey: QKEY, source_qp: 18 }),
        message: Message::Send { position: Position::Only, tail: SendTail::Plain },
    };
    let fill = |out: &mut [u8], digest: &mut Digest| {
        out.copy_from_slice(payload);
        digest.update(out);
        Ok::<(), Infallible>(())
    };
    burst.push(path, &header, payload.len(), fill).unwrap();
}

/// The number and the payload of a packet of [`push`].
fn parsed(packet: &[u8]) -> (u32, Vec<u8>) {
    let packet = Packet::parse(&packet[..packet.len() - ICRC_LEN]).unwrap();
    assert_eq!(packet.header.deth, Some(Deth { qkey: QKEY, source_qp: 18 }));
    (packet.header.bth.psn.number(), packet.payload.to_vec())
}

/// Sends a burst, which the port takes at once.
fn send(port: &dyn DatagramPort, burst: &Burst) {
    assert_eq!(port.send(burst, &mut BurstCursor::default()).unwrap(), Sent::All);
}

/// So many packets with their ways, as they come.
fn receive(port: &dyn DatagramPort, packets: usize) -> Vec<(Path, Vec<u8>)> {
    let mut got = Vec::new();
    until("packets", || {
        match port.receive(&mut |path, packet| got.push((*path, packet.to_vec()))) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            received => drop(received.unwrap()),
        }
        (got.len() >= packets).then_some(())
    });
    got
}

fn has_nothing(port: &dyn DatagramPort) {
    assert!(!port.has_input().unwrap());
    assert_eq!(port.receive(&mut |_, _| {}).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Trains and single packets arrive as they were built, by the way that they were built for: so
/// their ICRCs hold.
///
/// Covers: ROCE-001, ROCE-025
#[test]
fn packets_arrive_by_the_way_that_they_were_built_for() {
    for ip in [V4, V6] {
        for segmenting in [true, false] {
            let settings = DatagramSettings { segmenting, ecn: true, ..Default::default() };
            let (from, to) = (open(ip, &settings), open(ip, &settings));
            let plain = way(&*from, to.local_addr());
            let mut special = plain;
            special.address.hop_limit = 9;
            special.address.traffic_class = 0x68;
            let numbering = if segmenting { Numbering::Counted } else { Numbering::Zero };
            assert_eq!(from.numbering(), numbering);
            let mut burst = Burst::new(numbering, 1 << 20);
            for psn in 0..100 {
                // Trains of 1024 bytes with a shorter last one, single ones between, and two ways.
                let len = [1024, 1024, 1024, 7, 2000][psn as usize % 5];
                let path = if psn % 20 < 10 { &plain } else { &special };
                push(&mut burst, path, psn, &vec![psn as u8; len]);
            }
            send(&*from, &burst);
            let got = receive(&*to, 100);
            for ((path, packet), (built_for, built)) in got.iter().zip(burst.packets()) {
                assert_eq!(packet, built);
                let special = built_for.address.hop_limit == 9;
                let (hops, class) = if special { (9, 0x6a) } else { (64, 2) };
                assert_eq!((path.address.hop_limit, path.address.traffic_class), (hops, class));
                let expected =
                    AddressVector { hop_limit: hops, traffic_class: class, ..plain.address };
                assert_eq!(*path, Path { address: expected, ..plain });
            }
            assert_eq!((from.counters().sent, to.counters().received), (100, 100));
            has_nothing(&*to);
        }
    }
}

/// 0 and 1 hops are what programs say that do not know better; the system's default gets through.
///
/// Covers: ROCE-125
#[test]
fn without_a_hop_limit_packets_have_the_systems() {
    for ip in [V4, V6] {
        let [from, to] = [(); 2].map(|()| open(ip, &DatagramSettings::default()));
        let mut burst = Burst::new(from.numbering(), 1 << 16);
        for (psn, hops) in (0..).zip([0, 1, 2, 255]) {
            let mut path = way(&*from, to.local_addr());
            path.address.hop_limit = hops;
            push(&mut burst, &path, psn, b"octets");
        }
        send(&*from, &burst);
        let got = receive(&*to, 4);
        let hops: Vec<_> = got.iter().map(|(path, _)| path.address.hop_limit).collect();
        assert_eq!(hops, [64, 64, 2, 255]);
    }
}

/// A packet that counts on being cut from one send is not sent by itself where its ICRC has the
/// identification in them; the first of each train is right all the same.
///
/// Covers: ROCE-027, ROCE-028
#[test]
fn packets_whose_checksums_became_wrong_are_lost() {
    for (ip, expected) in [(V4, vec![0, 3, 4]), (V6, (0..7).collect())] {
        let single = DatagramSettings { checksums: false, ..Default::default() };
        let (from, to) = (open(ip, &single), open(ip, &single));
        assert_eq!(from.numbering(), Numbering::Zero);
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        for (psn, len) in (0..).zip([64, 64, 32, 32, 128, 128, 128]) {
            push(&mut burst, &way(&*from, to.local_addr()), psn, &vec![1; len]);
        }
        send(&*from, &burst);
        let got = receive(&*to, expected.len());
        let numbers: Vec<_> = got.iter().map(|(_, packet)| parsed(packet).0).collect();
        assert_eq!(numbers, expected);
        assert_eq!(from.counters().lost, 7 - expected.len() as u64);
        has_nothing(&*to);
    }
}

/// The ICRC of a packet as it stood on a cable, headers of IP and all, worked out bit by bit.
fn icrc(packet: &[u8]) -> [u8; 4] {
    let ip = if packet[0] >> 4 == 6 { 40 } else { 20 };
    let mut masked = [&[0xff; 8], packet].concat();
    let headers = &mut masked[8..];
    let changing: &[usize] = if ip == 40 { &[1, 2, 3, 7] } else { &[1, 8, 10, 11] };
    changing.iter().for_each(|at| headers[*at] = 0xff);
    if ip == 40 {
        headers[0] |= 0x0f;
    }
    [ip + 6, ip + 7, ip + 8 + 4].iter().for_each(|at| headers[*at] = 0xff);
    let crc = masked[..masked.len() - ICRC_LEN].iter().fold(u32::MAX, |crc, octet| {
        (0..8).fold(crc ^ u32::from(*octet), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
    });
    (!crc).to_le_bytes()
}

/// Cut by the system or sent one by one: what a peer sees has the ICRC of the very headers that it
/// sees.
///
/// Covers: ROCE-020, ROCE-021, ROCE-022, ROCE-023, ROCE-024, ROCE-026, ROCE-027
#[test]
fn checksums_hold_for_what_is_on_the_cable() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = hosts::Host::pair();
    a.sh("ip link set dev v0 gso_max_segs 1");
    let seen = b.capture();
    for (at, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        for segmenting in [true, false] {
            let settings = DatagramSettings { segmenting, ecn: true, ..Default::default() };
            let from = a.run(|| open(at.parse().unwrap(), &settings));
            let to = b.run(|| open(to.parse().unwrap(), &settings));
            let mut path = way(&*from, to.local_addr());
            path.address.hop_limit = 77;
            let mut burst = Burst::new(from.numbering(), 1 << 20);
            for psn in 0..60 {
                let len = if psn % 32 < 20 { 1024 } else { psn as usize % 32 };
                push(&mut burst, &path, psn, &vec![psn as u8; len]);
            }
            send(&*from, &burst);
            assert_eq!(receive(&*to, 60).len(), 60);
            let packets = seen.packets_to(to.local_addr().port());
            assert_eq!(packets.len(), 60);
            for packet in packets {
                assert!(packet.ends_with(&icrc(&packet)), "{:x?}", &packet[..48]);
            }
        }
    }
}

/// A packet that is too long for the interface is told with its way, once for each train, and the
/// rest behind it goes.
///
/// Covers: ROCE-041
#[test]
fn trains_that_are_too_long_are_told_and_others_go() {
    if !hosts::possible() {
        return;
    }
    let [a, b] = hosts::Host::pair();
    for (at, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        for segmenting in [true, false] {
            let settings = DatagramSettings { segmenting, ..Default::default() };
            let from = a.run(|| open(at.parse().unwrap(), &settings));
            let to = b.run(|| open(to.parse().unwrap(), &settings));
            let path = way(&*from, to.local_addr());
            let mut outbox = Outbox::new(&*from, 1 << 20);
            let burst = outbox.fill(&*from).unwrap();
            for (psn, len) in (0..).zip([1024, 2048, 2048, 2048, 512, 1024, 1024]) {
                push(burst, &path, psn, &vec![1; len]);
            }
            // The shorter one behind the long ones is one of their train.
            assert_eq!(outbox.flush(&*from).unwrap(), Sent::TooLong(path));
            assert_eq!(outbox.flush(&*from).unwrap(), Sent::All);
            let got = receive(&*to, 3);
            let numbers: Vec<_> = got.iter().map(|(_, packet)| parsed(packet).0).collect();
            assert_eq!(numbers, [0, 5, 6]);
            // It is not the way that cuts nothing.
            assert_eq!(from.numbering() == Numbering::Counted, segmenting);
        }
    }
}

/// Ports find out what the system does, without any right.
///
/// Covers: ROCE-026, ROCE-034, ROCE-175
#[test]
fn a_port_tests_itself() {
    hosts::as_nobody(|| {
        for ip in [V4, V6] {
            let port = open(ip, &DatagramSettings::default());
            let findings = port.self_test().unwrap();
            assert!(findings.segments && findings.merges && findings.unchecked, "{findings:?}");
            assert_eq!(findings.leaves_as_meant, Some(true));
            assert!(findings.receive_buffer >= 1 << 16 && findings.send_buffer >= 1 << 16);
            has_nothing(&*port);
            let off = DatagramSettings { segmenting: false, ..Default::default() };
            let findings = open(ip, &off).self_test().unwrap();
            assert!(!findings.segments && findings.unchecked, "{findings:?}");
        }
    });
}

/// A firewall of this host that changes packets is seen by a packet that leaves.
#[test]
fn packets_that_are_changed_on_their_way_out_are_seen() {
    let from = open(V4, &DatagramSettings::default());
    let to = open(V4, &DatagramSettings::default());
    let path = way(&*from, to.local_addr());
    let mut burst = Burst::new(Numbering::Counted, 1);
    push(&mut burst, &path, 1, b"first");
    let (_, packet) = burst.packets().next().unwrap();
    assert_eq!(from.leaves_as_meant(&path, packet).unwrap(), Some(true));
    // As it would be with another port in the ICRC than the one that packets leave from.
    let other = Path { source_port: 1, ..path };
    assert_eq!(from.leaves_as_meant(&other, packet).unwrap(), Some(false));
    assert_eq!(receive(&*to, 2).len(), 2);
}

#[test]
fn no_group_s_address_is_opened() {
    let memory = MemoryDatagrams::new(1).host(V4);
    for network in [datagrams(), memory] {
        let settings = DatagramSettings::default();
        let kind = |result: io::Result<Box<dyn DatagramPort>>| result.unwrap_err().kind();
        for ip in ["239.1.1.1", "ff02::1:3"] {
            let addr = SocketAddr::new(ip.parse().unwrap(), 0);
            assert_eq!(kind(network.open(addr, &settings)), ErrorKind::InvalidInput);
        }
        let foreign = SocketAddr::new([192, 0, 2, 1].into(), 0);
        assert_eq!(kind(network.open(foreign, &settings)), ErrorKind::AddrNotAvailable);
        let group = SocketAddr::new([239, 1, 1, 1].into(), 0);
        assert_eq!(kind(network.open_group(group, foreign.ip())), ErrorKind::AddrNotAvailable);
        assert_eq!(kind(network.open_group(group, V6)), ErrorKind::InvalidInput);
        assert_eq!(kind(network.open_group(foreign, V4)), ErrorKind::InvalidInput);
        let port = network.open(SocketAddr::new(V4, 0), &settings).unwrap();
        assert_eq!(kind(network.open(port.local_addr(), &settings)), ErrorKind::AddrInUse);
    }
}

/// Every port that has joined a group gets a copy, on this host and on others.
///
/// Covers: ROCE-128, ROCE-129, ROCE-131
#[test]
fn each_port_of_a_group_gets_a_copy() {
    let check = |from: Box<dyn DatagramPort>, members: Vec<Box<dyn DatagramPort>>| {
        let group = members[0].local_addr();
        let mut path = way(&*from, group);
        path.address.destination = group.ip();
        let mut burst = Burst::new(Numbering::Counted, 1 << 20);
        push(&mut burst, &path, 5, b"to all");
        push(&mut burst, &path, 6, b"again!");
        send(&*from, &burst);
        for member in &members {
            let got = receive(&**member, 2);
            assert_eq!(parsed(&got[1].1), (6, b"again!".to_vec()));
            assert_eq!(got[1].0.address.destination, group.ip());
            assert_eq!(got[1].0.source_port, from.local_addr().port());
            has_nothing(&**member);
        }
        has_nothing(&*from);
    };
    let memory = MemoryDatagrams::new(1);
    let hosts: Vec<_> = (1..4).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    let group = SocketAddr::new([239, 1, 1, 1].into(), 4791);
    let members = hosts.iter().map(|ip| memory.host(*ip).open_group(group, *ip).unwrap()).collect();
    let settings = DatagramSettings::default();
    let from = memory.host(hosts[0]).open(SocketAddr::new(hosts[0], 0), &settings).unwrap();
    check(from, members);
    if !hosts::possible() {
        return;
    }
    let [a, b] = hosts::Host::pair();
    a.sh("ip link set dev v0 gso_max_segs 1");
    let seen = b.capture();
    for (at, other, group) in
        [("10.9.0.1", "10.9.0.2", "239.1.1.1"), ("fd09::1", "fd09::2", "ff15::1")]
    {
        let group = SocketAddr::new(group.parse().unwrap(), 4791);
        let member = |host: &hosts::Host, ip: &str| {
            host.run(|| datagrams().open_group(group, ip.parse().unwrap())).unwrap()
        };
        let members = vec![member(&a, at), member(&b, other), member(&b, other)];
        check(a.run(|| open(at.parse().unwrap(), &settings)), members);
        let packets = seen.packets_to(group.port());
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|packet| packet.ends_with(&icrc(packet))));
    }
}

/// A port that is full now and then takes everything in the end, in order; meanwhile nothing more
/// is put in front of it.
///
/// Covers: ROCE-179
#[test]
fn a_full_port_keeps_the_rest_in_order() {
    let network = MemoryDatagrams::new(3);
    network.set_faults(DatagramFaults { full: 20_000, ..DatagramFaults::default() });
    let ip = IpAddr::from([10, 0, 0, 1]);
    let open = || network.host(ip).open(SocketAddr::new(ip, 0), &Default::default()).unwrap();
    let (from, to) = (open(), open());
    let path = way(&*from, to.local_addr());
    let mut outbox = Outbox::new(&*from, 2000);
    let (mut next, mut full) = (0, 0);
    while next < 500 || !outbox.is_empty() {
        if let Some(burst) = outbox.fill(&*from) {
            while !burst.is_full() {
                push(burst, &path, next, &[7; 100]);
                next += 1;
            }
        }
        match outbox.flush(&*from).unwrap() {
            Sent::Full => {
                full += 1;
                assert!(outbox.fill(&*from).is_none());
            }
            sent => assert_eq!(sent, Sent::All),
        }
    }
    assert!(full > 50, "{full}");
    let got = receive(&*to, next as usize);
    assert!(got.iter().map(|(_, packet)| parsed(packet).0).eq(0..next));
    // And what is given up is gone.
    push(outbox.fill(&*from).unwrap(), &path, 1, b"x");
    outbox.lose();
    assert_eq!(outbox.flush(&*from).unwrap(), Sent::All);
    has_nothing(&*to);
}

/// Numbers of the packets that arrive with these faults, drawn from that seed.
fn through(seed: u64, faults: DatagramFaults) -> Vec<u32> {
    let network = MemoryDatagrams::new(seed);
    network.set_faults(faults);
    numbers_that_come(&network)
}

fn numbers_that_come(network: &MemoryDatagrams) -> Vec<u32> {
    let (to, numbers) = numbers_between(SENDER_AND_RECEIVER.map(|ip| network.host(ip)));
    assert_eq!(to.counters().received, numbers.len() as u64);
    numbers
}

const SENDER_AND_RECEIVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

/// Sends packets 0 to 999 from the first host to the second. Returns the port there, and the
/// numbers of the packets that have come.
fn numbers_between(hosts: [Arc<dyn DatagramNetwork>; 2]) -> (Box<dyn DatagramPort>, Vec<u32>) {
    let open = |host: usize| {
        let addr = SocketAddr::new(SENDER_AND_RECEIVER[host], 0);
        hosts[host].open(addr, &Default::default()).unwrap()
    };
    let (from, to) = (open(0), open(1));
    let mut burst = Burst::new(from.numbering(), 1 << 20);
    for psn in 0..1000 {
        push(&mut burst, &way(&*from, to.local_addr()), psn, &psn.to_be_bytes());
    }
    send(&*from, &burst);
    let mut numbers = Vec::new();
    let _ = to.receive(&mut |_, packet| numbers.push(parsed(packet).0));
    (to, numbers)
}

/// Packets that are lost, come twice and overtake each other.
const ROUGH: DatagramFaults =
    DatagramFaults { lost: 6_000, repeated: 6_000, reordered: 6_000, damaged: 0, full: 0 };

/// Holds what comes of a seed to what [`ROUGH`] faults do to 1,000 packets.
fn check_rough(through: impl Fn(u64) -> Vec<u32>) {
    let numbers = through(1);
    assert_eq!(numbers, through(1));
    assert_ne!(numbers, through(2));
    let different: HashSet<_> = numbers.iter().collect();
    assert!((850..980).contains(&different.len()), "{} of 1000", different.len());
    assert!(numbers.len() > different.len() + 50, "none twice");
    assert!(numbers.windows(2).filter(|two| two[0] > two[1]).count() > 50, "all in order");
}

#[test]
fn the_weather_of_a_seed_is_always_the_same() {
    let calm = DatagramFaults::default();
    assert!(through(1, calm).into_iter().eq(0..1000));
    check_rough(|seed| through(seed, ROUGH));
    // A buffer holds what it holds.
    let small = MemoryDatagrams::new(1);
    small.set_buffer(290);
    assert_eq!(numbers_that_come(&small).len(), 10);
    // A damaged packet is so by one bit.
    let network = MemoryDatagrams::new(1);
    network.set_faults(DatagramFaults { damaged: u16::MAX, ..calm });
    let port = network.host(V4).open(SocketAddr::new(V4, 0), &Default::default()).unwrap();
    let mut burst = Burst::new(Numbering::Counted, 1 << 20);
    push(&mut burst, &way(&*port, port.local_addr()), 1, &[0; 50]);
    send(&*port, &burst);
    let (_, sent) = burst.packets().next().unwrap();
    let (_, got) = &receive(&*port, 1)[0];
    let bits: u32 = sent.iter().zip(got).map(|(one, other)| (one ^ other).count_ones()).sum();
    assert_eq!(bits, 1);
    // A packet that is too long is told.
    network.set_faults(calm);
    network.set_mtu(100);
    let mut cursor = BurstCursor::default();
    let path = way(&*port, port.local_addr());
    assert_eq!(port.send(&burst, &mut cursor).unwrap(), Sent::TooLong(path));
    assert_eq!(port.send(&burst, &mut cursor).unwrap(), Sent::All);
    assert_eq!(port.counters().too_long, 1);
}

/// Faults around any network are those of the seed, for what is sent and for what comes.
#[test]
fn faults_around_a_network_are_those_of_the_seed() {
    let calm = DatagramFaults::default();
    let through = |seed: u64, faults: [DatagramFaults; 2]| {
        let network = MemoryDatagrams::new(1);
        let host =
            |which: usize| faults[which].around(seed, network.host(SENDER_AND_RECEIVER[which]));
        numbers_between([host(0), host(1)]).1
    };
    assert!(through(1, [calm, calm]).into_iter().eq(0..1000));
    for ways in [[ROUGH, calm], [calm, ROUGH]] {
        check_rough(|seed| through(seed, ways));
    }
}

/// A port with faults that finds itself full takes everything in the end, over UDP too.
#[test]
fn a_port_with_faults_that_is_full_loses_nothing() {
    let faults = DatagramFaults { full: 20_000, ..DatagramFaults::default() };
    let network = faults.around(1, datagrams());
    let from = network.open(SocketAddr::new(V4, 0), &Default::default()).unwrap();
    let to = open(V4, &DatagramSettings::default());
    assert_eq!(from.numbering(), Numbering::Zero, "packets are cut from one send");
    let mut burst = Burst::new(Numbering::Zero, 1 << 20);
    for psn in 0..100 {
        push(&mut burst, &way(&*from, to.local_addr()), psn, &[7; 100]);
    }
    let (mut cursor, mut full) = (BurstCursor::default(), 0);
    while from.send(&burst, &mut cursor).unwrap() == Sent::Full {
        full += 1;
    }
    assert!(full > 10, "{full}");
    let got = receive(&*to, 100);
    assert!(got.iter().map(|(_, packet)| parsed(packet).0).eq(0..100));
}

/// A port with faults says of which train the packets are too long, as others do.
#[test]
fn a_port_with_faults_says_what_is_too_long() {
    let network = MemoryDatagrams::new(1);
    network.set_mtu(100);
    let host =
        DatagramFaults { repeated: u16::MAX, ..Default::default() }.around(1, network.host(V4));
    let open = || host.open(SocketAddr::new(V4, 0), &Default::default()).unwrap();
    let (from, to) = (open(), open());
    let short = way(&*from, to.local_addr());
    let long = Path { source_port: 1, ..short };
    let mut burst = Burst::new(Numbering::Zero, 1 << 20);
    for (path, len) in [(&short, 10), (&long, 200), (&short, 20)] {
        push(&mut burst, path, 0, &vec![7; len]);
    }
    let mut cursor = BurstCursor::default();
    assert_eq!(from.send(&burst, &mut cursor).unwrap(), Sent::TooLong(long));
    assert_eq!(cursor, BurstCursor { trains: 2, packets: 0 });
    assert_eq!(from.send(&burst, &mut cursor).unwrap(), Sent::All);
    let got = receive(&*to, 2);
    assert!(got.iter().all(|(path, _)| path.source_port == short.source_port));
}

/// A network whose ports have both families, in memory.
#[derive(Debug)]
struct Both(MemoryDatagrams);

impl DatagramNetwork for Both {
    fn open(
        &self,
        addr: SocketAddr,
        settings: &DatagramSettings,
    ) -> io::Result<Box<dyn DatagramPort>> {
        let open = |ip| self.0.host(ip).open(SocketAddr::new(ip, addr.port()), settings);
        Ok(Box::new(BothFamilies::new(open(V4)?, open(V6)?)))
    }

    fn open_group(&self, _: SocketAddr, _: IpAddr) -> io::Result<Box<dyn DatagramPort>> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// Packets that come by both families at once are handed out by a port with faults, too.
#[test]
fn a_port_of_both_families_has_faults_as_a_whole() {
    let network = MemoryDatagrams::new(1);
    let faulty = DatagramFaults::default().around(1, Arc::new(Both(network.clone())));
    let to = SocketAddr::new(V4, 7);
    let both = faulty.open(to, &Default::default()).unwrap();
    for ip in [V4, V6] {
        let from = network.host(ip).open(SocketAddr::new(ip, 0), &Default::default()).unwrap();
        let mut burst = Burst::new(from.numbering(), 1 << 20);
        push(&mut burst, &way(&*from, SocketAddr::new(ip, to.port())), 5, b"text");
        send(&*from, &burst);
    }
    let mut packets = 0;
    assert_eq!(both.receive(&mut |_, _| packets += 1).unwrap(), 2);
    assert_eq!(packets, 2);
}

/// A recording has what was sent at one end and came at the other, octet by octet and by its way.
#[test]
fn a_recording_has_the_packets_of_both_ends() {
    let recording = PacketRecording::default();
    let network = recording.around(datagrams());
    let open = || network.open(SocketAddr::new(V4, 0), &Default::default()).unwrap();
    let (from, to) = (open(), open());
    let path = way(&*from, to.local_addr());
    let mut burst = Burst::new(from.numbering(), 1 << 20);
    for psn in 0..20 {
        push(&mut burst, &path, psn, &[psn as u8; 100]);
    }
    // In two calls: the record has each packet once.
    let mut cursor = BurstCursor::default();
    assert_eq!(from.send_until(&burst, &mut cursor, 1).unwrap(), Sent::All);
    assert_eq!(from.send(&burst, &mut cursor).unwrap(), Sent::All);
    let got = receive(&*to, 20);
    let passed = recording.passed();
    let of = |direction| passed.iter().filter(move |packet| packet.direction == direction);
    let sent: Vec<_> = of(Direction::Sent).map(|packet| (packet.path, &packet.octets)).collect();
    let burst: Vec<_> = burst.packets().map(|(path, octets)| (*path, octets.to_vec())).collect();
    assert!(sent.iter().copied().eq(burst.iter().map(|(path, octets)| (*path, octets))));
    let came = of(Direction::Received).map(|packet| (packet.path, &packet.octets));
    assert!(came.eq(got.iter().map(|(path, octets)| (*path, octets))));
    assert_eq!(got.len(), 20);
}

/// Two threads, each with a port: one sends datagrams, the other sends each back.
///
/// Covers: ROCE-114
#[test]
fn datagrams_go_there_and_back() {
    const COUNT: u32 = 2000;
    for ip in [V4, V6] {
        let settings = DatagramSettings::default();
        let (ours, theirs): (Arc<dyn DatagramPort>, _) =
            (open(ip, &settings).into(), open(ip, &settings));
        let there = theirs.local_addr();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut outbox = Outbox::new(&*theirs, 1 << 16);
                let mut idle = Idle::default();
                while !over.load(Ordering::Acquire) {
                    let burst = outbox.fill(&*theirs).expect("loopback is never full");
                    let got = theirs.receive(&mut |path, packet| {
                        let (psn, payload) = parsed(packet);
                        let mut back =
                            way(&*theirs, SocketAddr::new(path.address.source, path.source_port));
                        back.address.hop_limit = 0;
                        push(burst, &back, psn, &payload);
                    });
                    match got {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => idle.pause(),
                        got => {
                            got.unwrap();
                            idle.over();
                        }
                    }
                    assert_eq!(outbox.flush(&*theirs).unwrap(), Sent::All);
                }
            });
            let mut outbox = Outbox::new(&*ours, 1 << 16);
            let path = way(&*ours, there);
            let payload = |psn: u32| psn.to_le_bytes().repeat(1 + psn as usize % 200);
            for first in (0..COUNT).step_by(50) {
                let burst = outbox.fill(&*ours).unwrap();
                for psn in first..first + 50 {
                    push(burst, &path, psn, &payload(psn));
                }
                assert_eq!(outbox.flush(&*ours).unwrap(), Sent::All);
                let got = receive(&*ours, 50);
                for ((_, packet), psn) in got.iter().zip(first..) {
                    assert_eq!(parsed(packet), (psn, payload(psn)));
                }
            }
            over.store(true, Ordering::Release);
        });
    }
}
