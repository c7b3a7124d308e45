// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion that the network marks.

use super::*;
use crate::wire::Malformed;

/// The way of a packet from the peer that the network has marked.
fn marked() -> Path {
    let mut path = Path::new(AddressVector::new(PEER, OWN), 1025);
    path.address.traffic_class = 0b11;
    path
}

impl Bench {
    /// The numbers of the queue pairs that are told of congestion now, and how many other packets
    /// are sent.
    fn told(&mut self) -> (Vec<u32>, usize) {
        let mut burst = Burst::new(Numbering::Zero, usize::MAX);
        self.rc.transmit(&mut burst, self.now, &self.host);
        let (mut told, mut others) = (Vec::new(), 0);
        for (path, octets) in burst.packets() {
            assert_eq!(*path, attributes().path);
            match Packet::parse(&octets[..octets.len() - 4]) {
                Err(Malformed::Congestion(qp)) => told.push(qp),
                _ => others += 1,
            }
        }
        (told, others)
    }

    fn take_marked(&mut self, psn: u32) {
        let write = Message::WriteBegin { only: true, reth: reth(0, 1), immediate: None };
        let header = header(Bth::new(OWN_QP, peer(psn)), write);
        self.take_from(header, &[1], &marked());
    }
}

/// Covers: ROCE-142
#[test]
fn the_peer_is_told_of_marks_once_in_a_while() {
    let mut bench = Bench::new();
    assert_eq!(bench.rc.wanted(), Wanted::Nothing);
    bench.take_marked(0);
    assert_eq!(bench.rc.wanted(), Wanted::Much);
    bench.take_marked(1);
    assert_eq!(bench.told(), (std::vec![PEER_QP], 0));
    bench.wait(Duration::from_micros(49));
    bench.take_marked(2);
    assert_eq!(bench.rc.wanted(), Wanted::Nothing);
    bench.wait(Duration::from_micros(1));
    bench.take_marked(3);
    assert_eq!(bench.told(), (std::vec![PEER_QP], 0));
    assert_eq!(bench.rc.counters().sent_cnp, 2);
    // A marked packet counts as well as any other.
    bench.ask(peer(4), send(Position::Only), &[]);
    assert_eq!(bench.told(), (Vec::new(), 1));
}

/// ECT(0), ECT(1) and no mark are no congestion.
///
/// Covers: ROCE-142
#[test]
fn unmarked_packets_cause_no_notification() {
    let mut bench = Bench::new();
    for (number, class) in [(0, 0b00), (1, 0b01), (2, 0b10), (3, 0b1111_1100)] {
        let mut path = marked();
        path.address.traffic_class = class;
        let write = Message::WriteBegin { only: true, reth: reth(0, 1), immediate: None };
        bench.take_from(header(Bth::new(OWN_QP, peer(number)), write), &[1], &path);
    }
    assert_eq!(bench.told(), (Vec::new(), 0));
}

/// Answers to a Read are as many as were asked for, so the requester asks for less.
///
/// Covers: ROCE-142, ROCE-143
#[test]
fn marks_on_answers_lower_what_is_asked_for() {
    let mut bench = Bench::new();
    let before = bench.rc.requester.pace.window();
    bench.post(SendRequest::read(0, &[local(0, 2)], Stag(9), TaggedOffset(0)));
    bench.sent();
    let answer = header(Bth::new(OWN_QP, own(0)), response(Position::Only));
    bench.take_from(answer, &[1, 2], &marked());
    assert_eq!(bench.rc.requester.pace.window(), before / 2);
    assert_eq!(bench.told().0, [PEER_QP]);
}

/// Covers: ROCE-143
#[test]
fn only_the_peer_slows_a_queue_pair_down() {
    let mut bench = Bench::new();
    let before = bench.rc.requester.pace.window();
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    bench.rc.congested(&Path::new(AddressVector::new(other, OWN), 1025), bench.now);
    bench.rc.congested(&Path::new(AddressVector::new(PEER, other), 1025), bench.now);
    assert_eq!(bench.rc.requester.pace.window(), before);
    bench.congested();
    assert_eq!(bench.rc.requester.pace.window(), before / 2);
    // However many it sends, something goes out.
    for _ in 0..1000 {
        bench.wait(Duration::from_millis(1));
        bench.congested();
    }
    bench.post(SendRequest::write(0, &[local(0, 5000)], Stag(9), TaggedOffset(0)));
    assert_eq!(bench.sent().len(), 20);
}
