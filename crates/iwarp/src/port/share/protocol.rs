// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages between members and their broker: one message a packet of a SEQPACKET connection,
//! a kind and then fields of fixed length, big-endian.
//!
//! | Kind | Message | Fields (bytes) |
//! |---|---|---|
//! | 0x01 | Hello | version 1, 0 2: a new member |
//! | 0x02 | Listen | again 1, service id 8 |
//! | 0x03 | Unlisten | service id 8 |
//! | 0x04 | Settled | (none) |
//! | 0x05 | Hello | version 1, slot 2, slot bits 1: a member that has a slot |
//! | 0x81 | Welcome | slot 2, slot bits 1, stays 1, generation of the broker 8; a new member's comes with descriptors |
//! | 0x82 | Refused | reason 1, version 1 |
//! | 0x83 | Listening | granted 1, service id 8 |
//! | 0x84 | Mad | unclaimed 1, family 1 (4, 6), port 2, scope 4, address 16, own address 16, packet 280 |
//!
//! A new member's Hello and Refused do not change with the version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::route::PACKET;

/// The version of the messages here.
pub(super) const VERSION: u8 = 3;

const HELLO: u8 = 0x01;
const LISTEN: u8 = 0x02;
const UNLISTEN: u8 = 0x03;
const SETTLED: u8 = 0x04;
const RETURNED: u8 = 0x05;
const WELCOME: u8 = 0x81;
const REFUSED: u8 = 0x82;
const LISTENING: u8 = 0x83;
const MAD: u8 = 0x84;

/// Bytes of a Mad in front of its packet.
const MAD_HEAD: usize = 41;
/// Room for the longest message and one byte more, so that one that is too long is seen to be.
pub(super) const ROOM: usize = MAD_HEAD + PACKET + 1;

/// A member's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// The first. A member that had a slot from an earlier broker names it.
    Hello { version: u8, had: Option<Slot> },
    /// REQs and SIDR_REQs for this service are the member's. `again`: an earlier broker granted it.
    Listen { service: u64, again: bool },
    /// They are the member's no more.
    Unlisten { service: u64 },
    /// A member that was welcomed has said for what it listens.
    Settled,
}

/// A broker's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The member's slot, from the broker of that generation, and whether it stays connected or
    /// comes again when it needs the broker.
    Welcome { slot: Slot, generation: u64, stays: bool },
    /// It gets none, from a broker of this version.
    Refused { reason: Refusal, version: u8 },
    /// True if the service is the member's.
    Listening { service: u64, granted: bool },
    /// A packet for QP 1.
    Mad(Mad),
}

/// A slot, and how many bits of a number name one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) number: u16,
    pub(super) bits: u8,
}

/// The reason for which a broker does not take a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It speaks another version.
    Version,
    /// All slots are taken.
    Full,
    /// Descriptors or memory are short.
    Shortage,
    /// The slot that the member had is another's.
    Slot,
}

/// A packet to QP 1, for the connection manager: BTH, DETH, the MAD, and the ICRC, which is not
/// verified yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad {
    /// The sender.
    pub from: SocketAddr,
    /// The address that it was sent to, of the sender's family.
    pub to: IpAddr,
    /// No process that shares the port has the service or the connection that it names, so it is
    /// to be refused as such.
    pub unclaimed: bool,
    /// The packet.
    pub octets: Box<[u8; PACKET]>,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Hello { version, had: None } => vec![HELLO, version, 0, 0],
            Self::Hello { version, had: Some(Slot { number, bits }) } => {
                let [high, low] = number.to_be_bytes();
                vec![RETURNED, version, high, low, bits]
            }
            Self::Listen { service, again } => {
                [&[LISTEN, again.into()][..], &service.to_be_bytes()].concat()
            }
            Self::Unlisten { service } => [&[UNLISTEN][..], &service.to_be_bytes()].concat(),
            Self::Settled => vec![SETTLED],
        }
    }

    /// `None` for other messages.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let (kind, fields) = message.split_first()?;
        Some(match (*kind, fields) {
            (HELLO, &[version, 0, 0]) => Self::Hello { version, had: None },
            (RETURNED, &[version, high, low, bits]) => {
                let number = u16::from_be_bytes([high, low]);
                Self::Hello { version, had: Some(Slot { number, bits }) }
            }
            (LISTEN, [again @ 0..=1, service @ ..]) => {
                Self::Listen { service: number(service)?, again: *again == 1 }
            }
            (UNLISTEN, service) => Self::Unlisten { service: number(service)? },
            (SETTLED, []) => Self::Settled,
            _ => return None,
        })
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { slot: Slot { number, bits }, generation, stays } => {
                let [high, low] = number.to_be_bytes();
                let head = [WELCOME, high, low, *bits, (*stays).into()];
                [&head[..], &generation.to_be_bytes()].concat()
            }
            Self::Refused { reason, version } => vec![REFUSED, reason.code(), *version],
            Self::Listening { service, granted } => {
                [&[LISTENING, (*granted).into()][..], &service.to_be_bytes()].concat()
            }
            Self::Mad(mad) => mad.encode(),
        }
    }

    /// `None` for other messages.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let (kind, fields) = message.split_first()?;
        Some(match (*kind, fields) {
            (WELCOME, &[high, low, bits, stays @ 0..=1, ref generation @ ..]) => {
                let slot = Slot { number: u16::from_be_bytes([high, low]), bits };
                Self::Welcome { slot, generation: number(generation)?, stays: stays == 1 }
            }
            (REFUSED, &[reason, version]) => {
                Self::Refused { reason: Refusal::of_code(reason)?, version }
            }
            (LISTENING, [granted @ 0..=1, service @ ..]) => {
                Self::Listening { service: number(service)?, granted: *granted == 1 }
            }
            (MAD, fields) => Self::Mad(Mad::parse(fields)?),
            _ => return None,
        })
    }
}

impl Refusal {
    const ALL: [(Self, u8); 4] =
        [(Self::Version, 1), (Self::Full, 2), (Self::Shortage, 3), (Self::Slot, 4)];

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(reason, _)| *reason == self).map_or(0, |(_, code)| *code)
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == code).map(|(reason, _)| *reason)
    }
}

impl Mad {
    fn encode(&self) -> Vec<u8> {
        let (family, scope) = match self.from {
            SocketAddr::V4(_) => (4, 0),
            SocketAddr::V6(from) => (6, from.scope_id()),
        };
        let [from, to] = [self.from.ip(), self.to].map(address);
        let port = self.from.port().to_be_bytes();
        let head = [MAD, self.unclaimed.into(), family];
        [&head[..], &port, &scope.to_be_bytes(), &from, &to, &self.octets[..]].concat()
    }

    fn parse(fields: &[u8]) -> Option<Self> {
        let (&[unclaimed @ 0..=1, family], fields) = fields.split_first_chunk()? else {
            return None;
        };
        let (port, fields) = fields.split_first_chunk()?;
        let (scope, fields) = fields.split_first_chunk()?;
        let (from, fields) = fields.split_first_chunk::<16>()?;
        let (to, octets) = fields.split_first_chunk::<16>()?;
        let (port, scope) = (u16::from_be_bytes(*port), u32::from_be_bytes(*scope));
        let (from, to) = match family {
            4 => (SocketAddr::new(v4(*from).into(), port), v4(*to).into()),
            6 => {
                let from = SocketAddrV6::new(Ipv6Addr::from(*from), port, 0, scope);
                (from.into(), Ipv6Addr::from(*to).into())
            }
            _ => return None,
        };
        let octets = Box::new(octets.try_into().ok()?);
        Some(Self { from, to, unclaimed: unclaimed == 1, octets })
    }
}

/// An address in 16 bytes, of which IPv4 has the first.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn v4(octets: [u8; 16]) -> Ipv4Addr {
    let [a, b, c, d, ..] = octets;
    Ipv4Addr::new(a, b, c, d)
}

fn number(octets: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(octets.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> impl Strategy<Value = Request> {
        let had = prop_oneof![
            Just(None),
            any::<(u16, u8)>().prop_map(|(number, bits)| Some(Slot { number, bits })),
        ];
        prop_oneof![
            (any::<u8>(), had).prop_map(|(version, had)| Request::Hello { version, had }),
            any::<(u64, bool)>().prop_map(|(service, again)| Request::Listen { service, again }),
            any::<u64>().prop_map(|service| Request::Unlisten { service }),
            Just(Request::Settled),
        ]
    }

    fn mad() -> impl Strategy<Value = Mad> {
        let v4 = any::<(u32, u16, u32)>()
            .prop_map(|(ip, port, to)| ((Ipv4Addr::from(ip), port).into(), IpAddr::V4(to.into())));
        let v6 = any::<(u128, u16, u32, u128)>().prop_map(|(ip, port, scope, to)| {
            (SocketAddrV6::new(ip.into(), port, 0, scope).into(), IpAddr::V6(to.into()))
        });
        (prop_oneof![v4, v6], any::<bool>(), any::<u8>()).prop_map(
            |((from, to), unclaimed, octet)| Mad {
                from,
                to,
                unclaimed,
                octets: Box::new([octet; PACKET]),
            },
        )
    }

    fn answer() -> impl Strategy<Value = Answer> {
        let reasons = Refusal::ALL.map(|(reason, _)| reason);
        prop_oneof![
            any::<(u16, u8, u64, bool)>().prop_map(|(number, bits, generation, stays)| {
                Answer::Welcome { slot: Slot { number, bits }, generation, stays }
            }),
            (prop::sample::select(reasons.to_vec()), any::<u8>())
                .prop_map(|(reason, version)| Answer::Refused { reason, version }),
            any::<(u64, bool)>()
                .prop_map(|(service, granted)| Answer::Listening { service, granted }),
            mad().prop_map(Answer::Mad),
        ]
    }

    proptest! {
        #[test]
        fn encoded_messages_parse_to_the_originals(request in request(), answer in answer()) {
            let (said, answered) = (request.encode(), answer.encode());
            prop_assert!(said.len() < ROOM && answered.len() < ROOM);
            prop_assert_eq!(Request::parse(&said), Some(request));
            prop_assert_eq!(Answer::parse(&answered), Some(answer));
        }

        /// Neither end takes anything but what it would have said itself.
        #[test]
        fn other_messages_do_not_parse(
            kind in prop_oneof![0_u8..6, 0x80_u8..0x86, any::<u8>()],
            rest in prop::collection::vec(prop_oneof![0_u8..7, any::<u8>()], 0..ROOM),
        ) {
            let message = [&[kind][..], &rest].concat();
            if let Some(request) = Request::parse(&message) {
                prop_assert_eq!(request.encode(), message.clone());
            }
            if let Some(Answer::Mad(mad)) = Answer::parse(&message) {
                // The fields that a family does not use say nothing.
                prop_assert_eq!(Answer::parse(&Answer::Mad(mad.clone()).encode()), Some(Answer::Mad(mad)));
            } else if let Some(answer) = Answer::parse(&message) {
                prop_assert_eq!(answer.encode(), message);
            }
        }

        #[test]
        fn a_message_cut_or_prolonged_is_none(request in request(), answer in answer()) {
            for said in [request.encode(), answer.encode()] {
                let longer = [&said[..], &[0]].concat();
                for other in (0..said.len()).map(|len| &said[..len]).chain([&longer[..]]) {
                    prop_assert_eq!(Request::parse(other), None);
                    prop_assert_eq!(Answer::parse(other), None);
                }
            }
        }
    }
}
