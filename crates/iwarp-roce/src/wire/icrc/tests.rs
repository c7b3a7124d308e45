// SPDX-License-Identifier: MIT OR Apache-2.0

use core::time::Duration;
use std::vec::Vec;

use iwarp_types::AddressVector;
use proptest::prelude::*;

use super::memory::Form;
use super::*;

const PAIR: (u32, u32) = (0x0a00_0001, 0x0a00_0002);

fn path() -> Path {
    let address = AddressVector::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    Path::new(address, 0xc000)
}

fn path_6() -> Path {
    let of = |last| [0xfd77, 0, 0, 0, 0, 0, 0, last].into();
    Path::new(AddressVector::new(of(1), of(2)), 0xc000)
}

/// A datagram of the octets with its ICRC.
fn datagram(path: &Path, id: Identification, octets: &[u8]) -> Vec<u8> {
    let mut datagram = octets.to_vec();
    datagram.extend(of(path, id, octets));
    datagram
}

fn at(millis: u64) -> Time {
    Time(Duration::from_millis(millis))
}

/// A peer's packets, verified one after the other.
struct Peer {
    ids: IdMemory,
    now: u64,
}

impl Peer {
    fn new() -> Self {
        Self { ids: IdMemory::new(64).unwrap(), now: 0 }
    }

    fn sends(&mut self, id: Identification) -> bool {
        let datagram = datagram(&path(), id, &[0x11; 32]);
        verify(&path(), &datagram, at(self.now), &mut self.ids).is_ok()
    }

    fn sends_all(&mut self, numbers: impl IntoIterator<Item = u16>) -> usize {
        numbers.into_iter().filter(|number| self.sends(Identification::new(*number))).count()
    }

    fn admitted(&mut self) -> Form {
        self.ids.admitted(PAIR)
    }
}

/// Covers: ROCE-029
#[test]
fn every_identification_is_found() {
    let octets = [0x5a; 100];
    for may_fragment in [false, true] {
        for number in 0..=u16::MAX {
            let id = Identification { number, may_fragment };
            let expected = of(&path(), Identification::default(), &octets);
            let icrc = of(&path(), id, &octets);
            let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(icrc);
            assert_eq!(solve_anew(difference, octets.len()), Some(id));
        }
    }
}

/// Covers: ROCE-030
#[test]
fn a_peer_whose_identifications_are_all_0_keeps_to_it() {
    let mut peer = Peer::new();
    assert_eq!(peer.sends_all([0; 64]), 64);
    assert_eq!(peer.admitted(), Form::Zero);
    assert_eq!(peer.sends_all([7]), 0);
    assert_eq!(peer.sends_all([0; 10]), 10);
}

/// Datagrams that are sent one by one at first and several at a time later.
///
/// Covers: ROCE-030
#[test]
fn the_first_packets_of_one_send_are_not_lost() {
    let mut peer = Peer::new();
    assert_eq!(peer.sends_all([0; 64]), 64);
    assert_eq!(peer.admitted(), Form::Zero);
    assert_eq!(peer.sends_all([0, 1, 2, 3, 0, 1, 0, 1]), 8);
    assert_eq!(peer.admitted(), Form::Small);
    // After a longer run without, and again.
    assert_eq!(peer.sends_all([0; 250]), 250);
    assert_eq!(peer.admitted(), Form::Zero);
    assert_eq!(peer.sends_all([0, 2]), 1);
    assert_eq!(peer.sends_all([0, 1, 2]), 3);
}

/// Covers: ROCE-029, ROCE-030
#[test]
fn a_counter_may_go_on_but_not_jump() {
    let mut peer = Peer::new();
    let counted = (0..64).map(|n| 65_500_u16.wrapping_add(3 * n));
    assert_eq!(peer.sends_all(counted), 64);
    assert_eq!(peer.admitted(), Form::Near);
    // On, as far as the window goes, and 0 from another of its sockets; back over a few.
    let last = 65_500_u16.wrapping_add(3 * 63);
    assert_eq!(peer.sends_all([last + 4096, 0, last + 4096 - 256]), 3);
    assert_eq!(peer.sends_all([last + 2 * 4096 + 1, last + 4096 - 257]), 0);
}

/// Covers: ROCE-030
#[test]
fn a_pause_widens_the_window() {
    let mut peer = Peer::new();
    assert_eq!(peer.sends_all(1000..1064), 64);
    assert_eq!(peer.sends_all([20_000]), 0);
    peer.now = 20_000;
    assert_eq!(peer.sends_all([20_000]), 1);
    assert_eq!(peer.sends_all([20_000 + 5000]), 0);
}

/// A host that was restarted loses one packet, and then is trusted more slowly.
///
/// Covers: ROCE-030
#[test]
fn two_that_agree_move_the_counter() {
    let mut peer = Peer::new();
    assert_eq!(peer.sends_all(1000..1064), 64);
    assert_eq!(peer.sends_all([40_000]), 0);
    // Packets that others send in between do not matter.
    assert_eq!(peer.sends_all([1064, 40_003, 40_004]), 3);
    assert_eq!(peer.admitted(), Form::Any);
    assert_eq!(peer.sends_all((0..126).map(|n| 40_005 + n)), 126);
    assert_eq!(peer.admitted(), Form::Near);
}

/// Two queues of a card that count for themselves.
#[test]
fn queues_with_counters_of_their_own_are_not_shut_out_for_long() {
    let mut peer = Peer::new();
    let mut lost = 0;
    for block in 0..200_u16 {
        let base = if block % 2 == 0 { 1000 } else { 40_000 };
        lost += 100 - peer.sends_all((0..100).map(|n| base + 100 * (block / 2) + n));
    }
    assert!(lost <= 16, "{lost}");
}

/// Segments that the kernel numbers have small numbers, from 0 at each send.
///
/// Covers: ROCE-027, ROCE-030
#[test]
fn segments_of_one_send_are_a_form_of_their_own() {
    let mut peer = Peer::new();
    assert_eq!(peer.sends_all((0..64).chain(0..64)), 128);
    assert_eq!(peer.admitted(), Form::Small);
    assert_eq!(peer.sends_all([127]), 1);
    assert_eq!(peer.sends_all([128]), 0);
}

/// Covers: ROCE-029
#[test]
fn packets_that_may_be_cut_are_another_kind() {
    let mut peer = Peer::new();
    let id = |number, may_fragment| Identification { number, may_fragment };
    assert!((0..64).all(|n| peer.sends(id(1000 + n, true))));
    assert!(peer.sends(id(1064, true)));
    assert!(!peer.sends(id(1065, false)));
    assert!(!peer.sends(id(0, true)));
}

/// Covers: ROCE-030
#[test]
fn the_memory_forgets_the_oldest_peers() {
    let mut ids = IdMemory::new(8).unwrap();
    for n in 0..64 {
        assert!(ids.admit(PAIR, Identification::new(0), at(n)));
    }
    assert_eq!(ids.admitted(PAIR), Form::Zero);
    for other in 0..1000 {
        assert!(ids.admit((other, 1), Identification::new(9999), at(0)));
    }
    assert_eq!(ids.admitted(PAIR), Form::Any);
}

/// Covers: ROCE-029
#[test]
fn ipv6_has_all_bits() {
    let mut ids = IdMemory::new(1).unwrap();
    let good = datagram(&path_6(), Identification::default(), &[3; 40]);
    assert_eq!(verify(&path_6(), &good, at(0), &mut ids), Ok(&[3; 40][..]));
    let mapped = |address: [u8; 4]| core::net::Ipv4Addr::from(address).to_ipv6_mapped().into();
    let address = AddressVector::new(mapped([10, 0, 0, 1]), mapped([10, 0, 0, 2]));
    let good = datagram(&path(), Identification::new(77), &[3; 40]);
    assert!(verify(&Path::new(address, 0xc000), &good, at(0), &mut ids).is_ok());
}

/// Covers: ROCE-003
#[test]
fn packets_shorter_than_their_headers_or_longer_than_any_are_refused() {
    let mut ids = IdMemory::new(1).unwrap();
    for len in (0..MIN_LEN).chain(MAX_LEN + 1..MAX_LEN + 3) {
        assert_eq!(verify(&path(), &std::vec![0; len], at(0), &mut ids), Err(BadIcrc), "{len}");
    }
    let longest = datagram(&path(), Identification::new(0xffff), &std::vec![1; MAX_LEN - 4]);
    assert!(verify(&path(), &longest, at(0), &mut ids).is_ok());
}

/// Three octets changed at once, in packets of an unknown peer: about one in 2^15 passes, the price
/// of accepting any identification.
#[test]
fn few_corrupted_packets_pass_where_any_identification_may_be() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let good = datagram(&path(), Identification::new(0x1234), &[0xa5; 64]);
    let passed = (0..20_000)
        .filter(|_| {
            let mut bad = good.clone();
            for _ in 0..3 {
                // All but the octet that the ICRC does not cover.
                let at = [0, 1, 2, 3, 5 + random(good.len() - 5)][random(5)];
                bad[at] ^= 1 + random(255) as u8;
            }
            let mut ids = IdMemory::new(1).unwrap();
            bad != good && verify(&path(), &bad, at(0), &mut ids).is_ok()
        })
        .count();
    assert!(passed <= 6, "{passed} of 20,000");
}

proptest! {
    /// Covers: ROCE-021, ROCE-022, ROCE-023, ROCE-024
    #[test]
    fn a_changed_bit_is_noticed_where_the_identification_is_known(
        octets in prop::collection::vec(any::<u8>(), BTH_LEN..300),
        six: bool,
        bit: prop::sample::Index,
    ) {
        let path = if six { path_6() } else { path() };
        let mut datagram = datagram(&path, Identification::default(), &octets);
        let bit = bit.index(8 * datagram.len());
        datagram[bit / 8] ^= 1 << (bit % 8);
        let mut ids = IdMemory::new(4).unwrap();
        for _ in 0..64 {
            ids.admit(PAIR, Identification::default(), at(0));
        }
        // The octet with the congestion bits is not covered.
        let expected = if bit / 8 == 4 { Ok(&datagram[..octets.len()]) } else { Err(BadIcrc) };
        prop_assert_eq!(verify(&path, &datagram, at(0), &mut ids), expected);
    }

    /// Lengths are covered: what is cut off, or added, is noticed.
    ///
    /// Covers: ROCE-024
    #[test]
    fn another_length_is_noticed(
        octets in prop::collection::vec(any::<u8>(), BTH_LEN..300),
        cut in 1_usize..8,
    ) {
        let datagram = datagram(&path_6(), Identification::default(), &octets);
        let mut ids = IdMemory::new(4).unwrap();
        let shorter = &datagram[..datagram.len() - cut];
        prop_assert!(verify(&path_6(), shorter, at(0), &mut ids).is_err());
        let mut longer = datagram.clone();
        longer.extend(&datagram[datagram.len() - cut..]);
        prop_assert!(verify(&path_6(), &longer, at(0), &mut ids).is_err());
    }

    #[test]
    fn identifications_of_a_peer_never_panic(
        numbers in prop::collection::vec(any::<(u16, bool, u8, u32)>(), 0..2000),
    ) {
        let mut ids = IdMemory::new(16).unwrap();
        let mut now = 0;
        for (number, may_fragment, source, pause) in numbers {
            now += u64::from(pause) % 5000;
            let id = Identification { number, may_fragment };
            ids.admit((source.into(), 0), id, at(now));
        }
    }
}
