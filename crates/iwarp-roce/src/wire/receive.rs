// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of a received datagram: its length, its ICRC, its headers.

use iwarp_types::Time;

use super::icrc::{self, IdMemory};
use super::packet::CNP_LEN;
use super::{Counters, GSI_QP, MULTICAST_QP, Malformed, Packet, Path, Transport};

/// The kinds of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received<'a> {
    /// A packet for its queue pair, or, to [`MULTICAST_QP`], for all that joined the group
    /// (ROCE-129).
    Packet(Packet<'a>),
    /// Congestion on the way from a queue pair of this host: it may send more slowly for a while,
    /// and nothing else changes (ROCE-143).
    Congestion {
        /// The queue pair; 24 bits.
        qp: u32,
    },
}

/// Takes a datagram that has come by `path`: the octets behind its UDP header. On `None` it is to
/// be dropped without an answer (ROCE-019, ROCE-031); `counters` say why.
///
/// A packet returned had the right ICRC, a known opcode with all of its headers and its pad
/// (ROCE-003), and a queue pair number that is allowed for it (ROCE-012). The caller looks for the
/// queue pair, and checks its type.
// A packet has two hundred bytes of headers, which are copied with each return.
#[inline(always)]
pub fn receive<'a>(
    path: &Path,
    datagram: &'a [u8],
    now: Time,
    ids: &mut IdMemory,
    counters: &mut Counters,
) -> Option<Received<'a>> {
    counters.rcvd_pkts += 1;
    if datagram.len() < icrc::MIN_LEN {
        counters.malformed += 1;
        return None;
    }
    let Ok(octets) = icrc::verify(path, datagram, now, ids) else {
        counters.bad_icrc += 1;
        return None;
    };
    let received = match Packet::parse(octets) {
        Ok(packet) if may_be_for(&packet, path) => Some(Received::Packet(packet)),
        Err(Malformed::Congestion(qp)) if octets.len() >= CNP_LEN => {
            counters.rcvd_cnp += 1;
            Some(Received::Congestion { qp })
        }
        _ => None,
    };
    if received.is_none() {
        counters.malformed += 1;
    }
    received
}

/// True if the packet may be for the queue pair that it names (ROCE-012).
fn may_be_for(packet: &Packet<'_>, path: &Path) -> bool {
    let is_datagram = matches!(packet.header.transport, Transport::Ud);
    match packet.header.bth.dest_qp {
        0 => false,
        GSI_QP => is_datagram,
        MULTICAST_QP => is_datagram && path.address.destination.to_canonical().is_multicast(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;
    use core::time::Duration;
    use std::vec::Vec;

    use iwarp_types::AddressVector;
    use proptest::prelude::*;

    use super::super::icrc::Identification;
    use super::super::{Bth, Deth, Header, Message, Position, Psn, SendTail};
    use super::*;

    const NOW: Time = Time(Duration::ZERO);

    fn path(destination: impl Into<IpAddr>) -> Path {
        Path::new(AddressVector::new([10, 0, 0, 1].into(), destination.into()), 0xc000)
    }

    fn sealed(path: &Path, octets: &[u8]) -> Vec<u8> {
        let mut datagram = octets.to_vec();
        datagram.extend(icrc::of(path, Identification::default(), octets));
        datagram
    }

    fn headers(transport: Transport, dest_qp: u32) -> Vec<u8> {
        let deth = Deth { qkey: 1, source_qp: 2 };
        let header = Header {
            bth: Bth::new(dest_qp, Psn::new(1)),
            transport,
            deth: matches!(transport, Transport::Ud).then_some(deth),
            message: Message::Send { position: Position::Only, tail: SendTail::Plain },
        };
        let mut octets = std::vec![0; Header::MAX_LEN];
        let len = header.write(0, &mut octets);
        octets.truncate(len);
        octets
    }

    /// Takes one datagram with nothing before it.
    fn take<'a>(path: &Path, datagram: &'a [u8]) -> (Option<Received<'a>>, Counters) {
        let mut counters = Counters::default();
        let received = receive(path, datagram, NOW, &mut IdMemory::new(4).unwrap(), &mut counters);
        assert_eq!(counters.rcvd_pkts, 1);
        (received, counters)
    }

    /// Covers: ROCE-012
    #[test]
    fn each_queue_pair_takes_what_may_be_for_it() {
        let host = path([10, 0, 0, 2]);
        let group = path([239, 0, 0, 2]);
        let group_6 = path([0xff0e, 0, 0, 0, 0, 0, 0, 1]);
        for (transport, path, qp, expected) in [
            (Transport::Rc, &host, 0, false),
            (Transport::Ud, &host, 0, false),
            (Transport::Rc, &host, GSI_QP, false),
            (Transport::Ud, &host, GSI_QP, true),
            (Transport::Ud, &host, MULTICAST_QP, false),
            (Transport::Ud, &group, MULTICAST_QP, true),
            (Transport::Ud, &group_6, MULTICAST_QP, true),
            (Transport::Rc, &group, MULTICAST_QP, false),
            (Transport::Uc, &host, 17, true),
        ] {
            let datagram = sealed(path, &headers(transport, qp));
            let (received, counters) = take(path, &datagram);
            assert_eq!(received.is_some(), expected, "{transport:?} {qp:#x}");
            assert_eq!(counters.malformed, u64::from(!expected));
        }
    }

    /// Covers: ROCE-143
    #[test]
    fn notifications_of_congestion_are_told_apart() {
        let path = Path { source_port: 0, ..path([10, 0, 0, 2]) };
        let mut octets = headers(Transport::Rc, 0x12_3456);
        octets[0] = 0x81;
        octets[4] |= 0x40;
        octets.extend([0; 16]);
        let datagram = sealed(&path, &octets);
        let (received, counters) = take(&path, &datagram);
        assert_eq!(received, Some(Received::Congestion { qp: 0x12_3456 }));
        assert_eq!((counters.rcvd_cnp, counters.malformed), (1, 0));
        let short = sealed(&path, &octets[..27]);
        let (received, counters) = take(&path, &short);
        assert_eq!((received, counters.rcvd_cnp, counters.malformed), (None, 0, 1));
    }

    /// Covers: ROCE-003, ROCE-004, ROCE-031, ROCE-032
    #[test]
    fn wrong_packets_are_dropped_and_counted() {
        let path = path([10, 0, 0, 2]);
        let good = sealed(&path, &headers(Transport::Rc, 17));
        for len in 0..icrc::MIN_LEN {
            let (received, counters) = take(&path, &good[..len]);
            assert_eq!((received, counters.malformed, counters.bad_icrc), (None, 1, 0));
        }
        let mut bad = good.clone();
        bad[9] ^= 1;
        bad[14] ^= 0x80;
        let (received, counters) = take(&path, &bad);
        assert_eq!((received, counters.malformed, counters.bad_icrc), (None, 0, 1));
        for (opcode, flags) in [(0x15, 0), (0x60, 0), (0x04, 1), (0x06, 0), (0x04, 0x30)] {
            let mut octets = headers(Transport::Rc, 17);
            octets[0] = opcode;
            octets[1] |= flags;
            let datagram = sealed(&path, &octets);
            let (received, counters) = take(&path, &datagram);
            assert_eq!((received, counters.malformed, counters.bad_icrc), (None, 1, 0));
        }
    }

    proptest! {
        /// Covers: ROCE-003, ROCE-004, ROCE-008
        #[test]
        fn any_octets_with_a_right_icrc_are_taken_or_counted(
            octets in prop::collection::vec(any::<u8>(), 12..100),
            opcode in 0..0x100_u16,
        ) {
            let path = path([10, 0, 0, 2]);
            let mut octets = octets;
            octets[0] = opcode as u8;
            octets[1] &= 0xf0;
            let datagram = sealed(&path, &octets);
            let (received, counters) = take(&path, &datagram);
            prop_assert_eq!(counters.bad_icrc, 0);
            prop_assert_eq!(received.is_none(), counters.malformed == 1);
        }
    }
}
