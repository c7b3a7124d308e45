// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram sockets: how two find each other, and what one remembers.

use std::net::SocketAddr;
use std::time::Duration;

use iwarp_sockets::datagram::{
    Config, Datagrams, Learned, Local, SLOT_LEN, SendError, UdpArrival, Way,
};
use iwarp_sockets::wire::{DatagramError, MAX_UD_HEADER_LEN, MAX_UDP_HEADER_LEN};
use iwarp_types::Time;
use proptest::prelude::*;

use crate::support::rows;

const MTU: usize = 1024;

/// A socket, and its address.
struct Socket {
    datagrams: Datagrams<u32>,
    local: Local,
    now: Time,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Sent {
    Udp(Vec<u8>),
    Ud { handle: u32, qpn: u32, octets: Vec<u8> },
}

fn socket(addr: &str, qpn: u32) -> Socket {
    let local = Local { addr: addr.parse().unwrap(), qpn, mtu: MTU };
    Socket { datagrams: Datagrams::new(Config::default()), local, now: Time::default() }
}

/// The two of the capture.
fn two() -> (Socket, Socket) {
    (socket("10.9.0.1:52590", 0xdd_f3ec), socket("10.9.0.1:7174", 0x74_cb82))
}

impl Socket {
    fn send(&mut self, to: Option<SocketAddr>, data: &[u8]) -> Result<Sent, SendError> {
        let with = |header: &[u8]| [header, data].concat();
        match self.datagrams.send(to, data.len(), &self.local, self.now)? {
            Way::Udp { header, .. } => {
                let mut octets = [0; MAX_UDP_HEADER_LEN];
                let len = header.write(&mut octets);
                Ok(Sent::Udp(with(&octets[..len])))
            }
            Way::Ud { handle, qpn, header } => {
                let mut octets = [0; MAX_UD_HEADER_LEN];
                let len = header.write(&mut octets);
                Ok(Sent::Ud { handle: *handle, qpn, octets: with(&octets[..len]) })
            }
        }
    }

    fn receive<'a>(
        &mut self,
        from: SocketAddr,
        octets: &'a [u8],
    ) -> Result<UdpArrival<'a>, DatagramError> {
        self.datagrams.received_udp(from, octets, &self.local, self.now)
    }

    fn goes_by_ud(&mut self, to: SocketAddr, len: usize) -> bool {
        matches!(self.send(Some(to), &vec![0; len]), Ok(Sent::Ud { .. }))
    }
}

/// The answer's octets.
fn answer(arrival: UdpArrival<'_>) -> Vec<u8> {
    let mut octets = [0; MAX_UDP_HEADER_LEN];
    let len = arrival.answer.expect("there is an answer").write(&mut octets);
    octets[..len].to_vec()
}

/// The recorded run, in which each end is ours in turn with the other's octets.
///
/// Covers: RS-DG-02, RS-DG-03, RS-DG-04
#[test]
fn ends_find_each_other_as_those_of_the_original() {
    let recorded: Vec<Vec<u8>> =
        rows("datagram-roce.csv").iter().map(|row| hex::decode(&row[3]).unwrap()).collect();
    let (mut a, mut b) = two();
    let first = &recorded[0];
    assert_eq!(a.send(Some(b.local.addr), &first[16..]), Ok(Sent::Udp(first.clone())));
    let arrival = b.receive(a.local.addr, first).unwrap();
    assert_eq!(arrival.data, Some(&first[16..]));
    assert_eq!(arrival.learned, Some(Learned { peer: a.local.addr, qpn: 0xdd_f3ec }));
    assert_eq!(answer(arrival), recorded[1]);
    assert_eq!(b.datagrams.resolved(arrival.learned.unwrap(), 7, b.now), None);

    let arrival = a.receive(b.local.addr, &recorded[1]).unwrap();
    assert_eq!((arrival.data, arrival.answer), (None, None));
    assert_eq!(arrival.learned, Some(Learned { peer: b.local.addr, qpn: 0x74_cb82 }));
    a.datagrams.resolved(arrival.learned.unwrap(), 8, a.now);

    // The third is what the original hands to its own queue pair.
    for octets in &recorded[3..] {
        let is_from_a = octets[2..4] == 52_590_u16.to_be_bytes();
        let (from, to, handle) = if is_from_a { (&mut a, &mut b, 8) } else { (&mut b, &mut a, 7) };
        let sent = from.send(Some(to.local.addr), &octets[8..]);
        assert_eq!(sent, Ok(Sent::Ud { handle, qpn: to.local.qpn, octets: octets.clone() }));
        let arrived = to.datagrams.received_ud(octets, to.now);
        assert_eq!(arrived, Ok(Some((from.local.addr, &octets[8..]))));
    }
}

/// Covers: RS-DG-05
#[test]
fn long_datagrams_go_by_udp_or_not_at_all() {
    for (here, there, longest_packet, most) in
        [("10.9.0.1:1", "10.9.0.2:2", 1016, 2032), ("[fd09::1]:1", "[fd09::2]:2", 1000, 2020)]
    {
        let mut socket = socket(here, 1);
        let peer: SocketAddr = there.parse().unwrap();
        socket.datagrams.resolved(Learned { peer, qpn: 2 }, 3, socket.now);
        assert!(socket.goes_by_ud(peer, 0) && socket.goes_by_ud(peer, longest_packet));
        let Ok(Sent::Udp(_)) = socket.send(Some(peer), &vec![0; longest_packet + 1]) else {
            panic!("no packet holds it");
        };
        let Ok(Sent::Udp(octets)) = socket.send(Some(peer), &vec![0; most]) else {
            panic!("it is allowed");
        };
        assert_eq!(octets.len(), SLOT_LEN);
        let len = most + 1;
        let too_long = Err(SendError::TooLong { len, most });
        assert_eq!(socket.send(Some(peer), &vec![0; len]), too_long);
        socket.local.mtu = 4096;
        assert!(socket.goes_by_ud(peer, most));
        assert_eq!(socket.send(Some(peer), &vec![0; len]), too_long, "the slot is no longer");
    }
}

#[test]
fn a_fixed_peer_is_the_only_one() {
    let (mut a, mut b) = two();
    let other: SocketAddr = "10.9.0.3:9".parse().unwrap();
    assert_eq!(a.send(None, b"x"), Err(SendError::NoDestination));
    a.datagrams.connect(Some(b.local.addr));
    let Ok(Sent::Udp(octets)) = a.send(None, b"x") else { panic!("nobody is known yet") };
    b.datagrams.connect(Some(other));
    assert_eq!(b.receive(a.local.addr, &octets), Ok(UdpArrival::default()));
    let ud = [4, 8, 0, 1, 10, 9, 0, 1, b'x'];
    assert_eq!(b.datagrams.received_ud(&ud, b.now), Ok(None));
    b.datagrams.connect(None);
    assert_eq!(b.datagrams.peer(), None);
    assert_eq!(b.receive(a.local.addr, &octets).unwrap().data, Some(&b"x"[..]));
    assert!(b.datagrams.received_ud(&ud, b.now).unwrap().is_some());
}

/// A header that names another's address makes no end send there.
///
/// Covers: RS-DG-09
#[test]
fn a_handle_is_for_the_source() {
    let (mut a, mut b) = two();
    a.local.addr = "192.0.2.9:52590".parse().unwrap();
    let Ok(Sent::Udp(octets)) = a.send(Some(b.local.addr), b"x") else { panic!("by UDP") };
    let source: SocketAddr = "10.9.0.1:52590".parse().unwrap();
    let learned = b.receive(source, &octets).unwrap().learned.unwrap();
    assert_eq!(learned.peer, source);
    assert_eq!(b.receive(source, b"no header at all"), Err(DatagramError::Foreign));
}

/// Covers: RS-DG-10
#[test]
fn handles_are_renewed() {
    let (mut a, mut b) = two();
    let to = b.local.addr;
    a.datagrams.resolved(Learned { peer: to, qpn: b.local.qpn }, 1, a.now);
    assert!(a.goes_by_ud(to, 1));
    let second = Duration::from_secs(1);
    a.now = a.now.plus(10 * second);
    let Ok(Sent::Udp(octets)) = a.send(Some(to), b"x") else { panic!("it asks again") };

    // The peer is as it was.
    let answered = answer(b.receive(a.local.addr, &octets).unwrap());
    assert_eq!(a.receive(to, &answered).unwrap().learned, None);
    assert!(a.goes_by_ud(to, 1));
    // Datagrams of the peer's count as well.
    a.now = a.now.plus(9 * second);
    let ud = [&[4, 8][..], &to.port().to_be_bytes(), &[10, 9, 0, 1]].concat();
    a.datagrams.received_ud(&ud, a.now).unwrap();
    a.now = a.now.plus(9 * second);
    assert!(a.goes_by_ud(to, 1));

    // The peer was started again.
    b = socket("10.9.0.1:7174", 0x99);
    a.now = a.now.plus(second);
    let Ok(Sent::Udp(octets)) = a.send(Some(to), b"x") else { panic!("it asks again") };
    let answered = answer(b.receive(a.local.addr, &octets).unwrap());
    let learned = a.receive(to, &answered).unwrap().learned.unwrap();
    assert_eq!(learned.qpn, 0x99);
    assert_eq!(a.datagrams.resolved(learned, 2, a.now), Some(1), "the old handle is given back");
    assert!(matches!(a.send(Some(to), b"x"), Ok(Sent::Ud { handle: 2, qpn: 0x99, .. })));
    assert_eq!(a.datagrams.forget(to), Some(2));
    assert!(!a.goes_by_ud(to, 1));
}

#[test]
fn strangers_displace_no_destination() {
    let (mut a, b) = two();
    a.datagrams = Datagrams::new(Config { destinations: 3, ..Config::default() });
    let peer = |n: u16| SocketAddr::from(([10, 9, 1, 1], n));
    a.datagrams.resolved(Learned { peer: b.local.addr, qpn: 1 }, 100, a.now);
    assert!(a.goes_by_ud(b.local.addr, 1));
    for n in 1..50_u16 {
        a.now = a.now.plus(Duration::from_millis(1));
        let gone = a.datagrams.resolved(Learned { peer: peer(n), qpn: 1 }, n.into(), a.now);
        assert_eq!(gone, (n > 2).then(|| u32::from(n) - 2), "the one that was silent longest");
    }
    assert!(a.goes_by_ud(b.local.addr, 1));
    let mut left: Vec<u32> = a.datagrams.into_handles().collect();
    left.sort_unstable();
    assert_eq!(left, [48, 49, 100]);
}

proptest! {
    /// Covers: RS-DG-09
    #[test]
    fn no_datagram_harms_the_socket(
        datagrams in prop::collection::vec((any::<bool>(), 0u16..8, prop::collection::vec(any::<u8>(), 0..40)), 0..40)
    ) {
        let (mut a, _) = two();
        a.datagrams = Datagrams::new(Config { destinations: 4, ..Config::default() });
        let mut handles = 0;
        for (is_udp, port, mut octets) in datagrams {
            if is_udp {
                octets.splice(..0, [0x55, 0x55, 0x55, 0x55, 4, 7 * (port as u8 % 2), 16, 0]);
                let source = SocketAddr::from(([10, 9, 0, 2], port));
                if let Ok(arrival) = a.receive(source, &octets) {
                    prop_assert_eq!(arrival.answer.is_some(), port % 2 == 0);
                    if let Some(learned) = arrival.learned {
                        handles += 1;
                        let gone = a.datagrams.resolved(learned, 0, a.now);
                        handles -= usize::from(gone.is_some());
                    }
                }
            } else {
                let _ = a.datagrams.received_ud(&octets, a.now);
            }
            prop_assert!(handles <= 4);
        }
        prop_assert_eq!(a.datagrams.into_handles().count(), handles);
    }
}
