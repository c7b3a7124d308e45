// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of RoCE v2: no octets from the network panic the receiver; a packet read and built again
//! is unchanged; its ICRC is verified without knowledge of the identification, and a changed bit is
//! noticed if the identification is known.
//!
//! Covers: ROCE-003, ROCE-004, ROCE-008
#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use iwarp_roce::wire::icrc::{self, IdMemory, Identification};
use iwarp_roce::wire::{
    Burst, Counters, Header, Numbering, Packet, Path, Received, grh, padding, receive,
};
use iwarp_types::{AddressVector, Digest, Time};
use libfuzzer_sys::fuzz_target;

const NOW: Time = Time(Duration::ZERO);

/// Octets that say how the rest is to be taken: family and group, flags of IPv4, identification,
/// and a bit to change.
const CONTROL: usize = 6;

fuzz_target!(|input: &[u8]| {
    let Some((control, octets)) = input.split_at_checked(CONTROL) else { return };
    let path = path(control[0]);
    let number = u16::from_be_bytes([control[2], control[3]]);
    let id = Identification { number, may_fragment: control[1] & 1 == 1 };
    as_it_is(&path, octets);
    if octets.len() >= 12 {
        let bit = usize::from(u16::from_be_bytes([control[4], control[5]]));
        sealed(&path, id, octets, bit);
    }
    if let Some(octets) = octets.first_chunk() {
        // Any octets that a program hands back as the header of a datagram.
        let _ = grh::answer(octets);
    }
});

fn path(control: u8) -> Path {
    let address = match control & 3 {
        0 => AddressVector::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        1 => AddressVector::new([10, 0, 0, 1].into(), [239, 0, 0, 2].into()),
        2 => AddressVector::new([0xfd77, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd77; 8].into()),
        _ => AddressVector::new([0xfd77, 0, 0, 0, 0, 0, 0, 1].into(), [0xff0e; 8].into()),
    };
    Path::new(AddressVector { traffic_class: control, ..address }, u16::from(control) << 8)
}

/// The octets as a datagram: its ICRC is seldom right.
fn as_it_is(path: &Path, datagram: &[u8]) {
    let mut counters = Counters::default();
    let received = receive(path, datagram, NOW, &mut IdMemory::new(1).unwrap(), &mut counters);
    let dropped = counters.bad_icrc + counters.malformed;
    assert_eq!((counters.rcvd_pkts, dropped), (1, u64::from(received.is_none())));
}

/// The octets with an ICRC behind them.
fn sealed(path: &Path, id: Identification, octets: &[u8], bit: usize) {
    let mut datagram = octets.to_vec();
    datagram.extend(icrc::of(path, id, octets));
    let (mut ids, mut counters) = (IdMemory::new(1).unwrap(), Counters::default());
    let received = receive(path, &datagram, NOW, &mut ids, &mut counters);
    assert_eq!(counters.bad_icrc, 0);
    if let Some(Received::Packet(packet)) = received {
        rebuilt(path, &packet);
    }
    let header = grh::write(path, datagram.len());
    match grh::answer(&header) {
        Ok(back) => assert_eq!(back.destination, path.address.source),
        Err(error) => assert_eq!(error, grh::NoAnswer::Multicast),
    }

    // The identification of IPv6 is always known; the octet with the congestion bits is not
    // covered.
    let bit = bit % (8 * datagram.len());
    datagram[bit / 8] ^= 1 << (bit % 8);
    if path.address.source.is_ipv6() && bit / 8 != 4 {
        assert!(icrc::verify(path, &datagram, NOW, &mut IdMemory::new(1).unwrap()).is_err());
    }
}

/// The packet built again, by itself and in a burst.
fn rebuilt(path: &Path, packet: &Packet<'_>) {
    let len = packet.payload.len();
    let mut octets = vec![0; Header::MAX_LEN];
    let header_len = packet.header.write(len, &mut octets);
    octets.truncate(header_len);
    octets.extend(packet.payload);
    octets.resize(octets.len() + padding(len), 0);
    let again = Packet::parse(&octets).expect("as it was read");
    assert_eq!(again.payload, packet.payload);
    assert_eq!(again.header, packet.header);

    let mut burst = Burst::new(Numbering::Counted, usize::MAX);
    for _ in 0..3 {
        let fill = |out: &mut [u8], digest: &mut Digest| {
            out.copy_from_slice(packet.payload);
            digest.update(out);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = burst.push(path, &packet.header, len, fill);
    }
    for (number, (path, sent)) in burst.packets().enumerate() {
        let (sent, sum) = sent.split_last_chunk().expect("an ICRC");
        assert_eq!(sent, octets);
        assert_eq!(icrc::of(path, Identification::new(number as u16), sent), *sum);
    }
}
