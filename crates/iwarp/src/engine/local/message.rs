// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages of a line between two processes of one host.
//!
//! Each is one packet of [`LEN`] bytes in the host's own byte order:
//!
//! ```text
//!   0  magic and version   8  kind   10  slot, or number of an arena   12  flags   13  hindrance
//!  16  secret, length of an arena, number of a descriptor, or bytes that were read
//!  24, 52  addresses
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of every message.
pub(super) const LEN: usize = 80;

const MAGIC: u64 = u64::from_be_bytes(*b"iwlocal5");
/// Flags.
const CRC: u8 = 1;
const TAKEN: u8 = 2;
const READS: u8 = 4;
const MAPS: u8 = 8;

/// A message of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// The first one, of the process that has connected, with the memory of the marks, two bells,
    /// and a page of memory if the other process may read this one's.
    Hello,
    /// The process says how far it reaches into the other's memory. The one that has not connected
    /// says it first, with a page of its own.
    Reach(Reach),
    /// A connection is to move to the ring whose memory comes along.
    Join(Join),
    /// The answer to it.
    Answer(Answer),
    /// An arena of the process, whose memory comes along, for one that reaches it.
    Arena(Arena),
    /// The descriptor on which a program of the process waits for events, by this number from now
    /// on, for one that reaches it. Without a descriptor: it is used no more.
    Events(u32),
}

/// See [`Message::Reach`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Not at all.
    No,
    /// It can read all of it, which it shows by bytes that it has read there.
    Reads([u8; 16]),
    /// It cannot read it, and maps arenas that it is passed (`IWARP_LOCAL=share`).
    Maps,
}

/// See [`Message::Arena`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arena {
    /// Its number.
    pub(super) number: u16,
    /// Its length in bytes.
    pub(super) len: u64,
}

/// See [`Message::Join`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Join {
    /// The slot that the connection has.
    pub(super) slot: u16,
    /// The ring is to have CRCs.
    pub(super) crc: bool,
    /// The secret of the offer.
    pub(super) secret: u64,
    /// The addresses of the TCP socket of the sender.
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// See [`Message::Answer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// That of the question.
    pub(super) slot: u16,
    /// The connection moves; otherwise the number of what hinders it.
    pub(super) taken: Result<(), u8>,
    /// With CRCs.
    pub(super) crc: bool,
}

impl Message {
    /// Its bytes.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        octets[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        match self {
            Self::Hello => octets[8] = 1,
            Self::Reach(reach) => {
                octets[8] = 4;
                match reach {
                    Reach::No => {}
                    Reach::Reads(read) => {
                        octets[12] = READS;
                        octets[16..32].copy_from_slice(read);
                    }
                    Reach::Maps => octets[12] = MAPS,
                }
            }
            Self::Join(Join { slot, crc, secret, local, peer }) => {
                octets[8] = 2;
                octets[10..12].copy_from_slice(&slot.to_ne_bytes());
                octets[12] = if *crc { CRC } else { 0 };
                octets[16..24].copy_from_slice(&secret.to_ne_bytes());
                octets[24..52].copy_from_slice(&address(*local));
                octets[52..80].copy_from_slice(&address(*peer));
            }
            Self::Answer(Answer { slot, taken, crc }) => {
                octets[8] = 3;
                octets[10..12].copy_from_slice(&slot.to_ne_bytes());
                octets[12] = if *crc { CRC } else { 0 } | if taken.is_ok() { TAKEN } else { 0 };
                octets[13] = taken.err().unwrap_or(0);
            }
            Self::Arena(Arena { number, len }) => {
                octets[8] = 5;
                octets[10..12].copy_from_slice(&number.to_ne_bytes());
                octets[16..24].copy_from_slice(&len.to_ne_bytes());
            }
            Self::Events(number) => {
                octets[8] = 6;
                octets[16..20].copy_from_slice(&number.to_ne_bytes());
            }
        }
        octets
    }

    /// The message that these are; `None` where they are none.
    pub(super) fn decode(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; LEN] = octets.try_into().ok()?;
        if part(octets, 0) != MAGIC.to_ne_bytes() {
            return None;
        }
        let slot = u16::from_ne_bytes(part(octets, 10));
        let crc = octets[12] & CRC != 0;
        match octets[8] {
            1 => Some(Self::Hello),
            2 => Some(Self::Join(Join {
                slot,
                crc,
                secret: u64::from_ne_bytes(part(octets, 16)),
                local: parse(part(octets, 24)),
                peer: parse(part(octets, 52)),
            })),
            3 => {
                let taken = if octets[12] & TAKEN != 0 { Ok(()) } else { Err(octets[13]) };
                Some(Self::Answer(Answer { slot, taken, crc }))
            }
            4 => Some(Self::Reach(match octets[12] {
                READS => Reach::Reads(part(octets, 16)),
                MAPS => Reach::Maps,
                _ => Reach::No,
            })),
            5 => {
                Some(Self::Arena(Arena { number: slot, len: u64::from_ne_bytes(part(octets, 16)) }))
            }
            6 => Some(Self::Events(u32::from_ne_bytes(part(octets, 16)))),
            _ => None,
        }
    }
}

fn part<const N: usize>(octets: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|i| octets[at + i])
}

/// An address as that of IPv6, with its port, flow label and scope.
fn address(addr: SocketAddr) -> [u8; 28] {
    let (ip, scope) = match addr {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    let mut octets = [0; 28];
    octets[..16].copy_from_slice(&ip.octets());
    octets[16..18].copy_from_slice(&addr.port().to_ne_bytes());
    octets[20..24].copy_from_slice(&scope.to_ne_bytes());
    octets
}

fn parse(octets: [u8; 28]) -> SocketAddr {
    let (ip, rest) = octets.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
    let port = rest.first_chunk().map_or(0, |port| u16::from_ne_bytes(*port));
    let scope = rest.get(4..8).and_then(|scope| scope.first_chunk());
    let scope = scope.map_or(0, |scope| u32::from_ne_bytes(*scope));
    match Ipv6Addr::from(*ip).to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = SocketAddr> {
        let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| (ip, port).into());
        let v6 = any::<([u8; 16], u16, u32)>().prop_map(|(ip, port, scope)| {
            parse(address(SocketAddrV6::new(ip.into(), port, 0, scope).into()))
        });
        prop_oneof![v4, v6]
    }

    fn messages() -> impl Strategy<Value = Message> {
        let join = (any::<(u16, bool, u64)>(), addresses(), addresses());
        prop_oneof![
            Just(Message::Hello),
            Just(Message::Reach(Reach::No)),
            Just(Message::Reach(Reach::Maps)),
            any::<[u8; 16]>().prop_map(|read| Message::Reach(Reach::Reads(read))),
            join.prop_map(|((slot, crc, secret), local, peer)| {
                Message::Join(Join { slot, crc, secret, local, peer })
            }),
            any::<(u16, u64)>().prop_map(|(number, len)| Message::Arena(Arena { number, len })),
            any::<u32>().prop_map(Message::Events),
            any::<(u16, Result<(), u8>, bool)>()
                .prop_map(|(slot, taken, crc)| Message::Answer(Answer { slot, taken, crc })),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn other_bytes_are_no_message(octets in prop::collection::vec(any::<u8>(), 0..2 * LEN)) {
            prop_assert_eq!(Message::decode(&octets), None);
        }

        #[test]
        fn a_changed_message_is_another_or_none(
            message in messages(), at in 0..LEN, octet in any::<u8>()
        ) {
            let mut octets = message.encode();
            octets[at] = octet;
            // Reads without a panic, and never past the end.
            let _ = Message::decode(&octets);
            prop_assert_eq!(Message::decode(&octets[..LEN - 1]), None);
        }
    }
}
