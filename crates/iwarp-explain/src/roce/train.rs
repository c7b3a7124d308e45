// SPDX-License-Identifier: MIT OR Apache-2.0

//! Trains: several packets that one send handed to the kernel (`UDP_SEGMENT`), in a capture that
//! was taken before the kernel or the card cut them apart.

use iwarp_roce::wire::icrc::{self, Identification};
use iwarp_roce::wire::{BTH_LEN, Header, ICRC_LEN, Message, Mtu, Packet, Path, Position, padding};
use iwarp_types::AddressVector;

use crate::ip;

/// The most bytes that a packet has behind its UDP header.
const LONGEST: usize = Header::MAX_LEN + 4096 + ICRC_LEN;
/// Fruitless searches after which only cheap ones are made.
const PATIENCE: u32 = 64;

/// The search for trains.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trains {
    fruitless: u32,
}

impl Trains {
    /// The packets of a datagram of which all bytes were kept, and the identification of each;
    /// `None` if it is no train.
    pub(super) fn cut<'a>(
        &mut self,
        packet: &ip::Packet<'_>,
        source_port: u16,
        datagram: &'a [u8],
    ) -> Option<Vec<(Identification, &'a [u8])>> {
        if packet.options || datagram.len() < 2 * (BTH_LEN + ICRC_LEN) {
            return None;
        }
        let path = Path::new(AddressVector::new(packet.source, packet.destination), source_port);
        let (number, may_fragment) = packet.identification.unwrap_or_default();
        let first = Identification { number, may_fragment };
        let good = |id: Identification, part: &[u8]| {
            part.split_last_chunk::<ICRC_LEN>()
                .filter(|(octets, _)| octets.len() >= BTH_LEN)
                .is_some_and(|(octets, found)| icrc::of(&path, id, octets) == *found)
        };
        let mut sizes = sizes(datagram)?;
        if sizes.is_empty() && self.fruitless < PATIENCE {
            self.fruitless += 1;
            sizes = (BTH_LEN + ICRC_LEN..LONGEST.min(datagram.len())).step_by(4).collect();
        }
        let fits = |size: &usize| *size < datagram.len() && good(first, &datagram[..*size]);
        let size = sizes.into_iter().find(fits)?;
        self.fruitless = 0;
        // The kernel counts the packets of a train up, and some cards do not.
        let numbered = |(at, part): (usize, &'a [u8])| {
            let counted = Identification { number: number.wrapping_add(at as u16), may_fragment };
            let id = if !good(counted, part) && good(first, part) { first } else { counted };
            (id, part)
        };
        Some(datagram.chunks(size).enumerate().map(numbered).collect())
    }
}

/// The sizes that the first packet may have, by its headers; none if any may be.
fn sizes(datagram: &[u8]) -> Option<Vec<usize>> {
    let head = datagram.get(..datagram.len().min(LONGEST))?;
    let header = Packet::parse(head).ok()?.header;
    let headers = header.write(0, &mut [0; Header::MAX_LEN]);
    let of = |payload: usize| headers + payload + padding(payload) + ICRC_LEN;
    let many = || (1..=5).filter_map(Mtu::from_code).map(|mtu| of(mtu.octets())).collect();
    let inner = |position: Position| !position.ends();
    Some(match header.message {
        Message::Acknowledge(_)
        | Message::AtomicAcknowledge { .. }
        | Message::ReadRequest(_)
        | Message::Atomic(_) => vec![of(0)],
        Message::WriteBegin { only: true, reth, .. } => vec![of((reth.length as usize).min(4096))],
        Message::WriteBegin { .. } | Message::WriteMore { last: false, .. } => many(),
        Message::Send { position, .. } | Message::ReadResponse { position, .. }
            if inner(position) =>
        {
            many()
        }
        _ => Vec::new(),
    })
}
