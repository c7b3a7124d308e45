// SPDX-License-Identifier: MIT OR Apache-2.0

//! A row of the roster: an object of a context, in words.
//!
//! `iwarp-preload` has a link to this file: its library, which reads the rows, is compiled by
//! itself. So the code needs nothing else, neither allocates nor panics.

use core::net::{IpAddr, SocketAddr};

/// Words of a row that its check covers.
pub const WORDS: usize = 6;

/// An object of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The place of its device in the list.
    pub device: u16,
    /// The number of its context; its own, if it is one; 0 of an id.
    pub context: u32,
    /// The number of its protection domain, if that is listed; otherwise 0.
    pub domain: u32,
    /// The rest.
    pub object: Object,
}

/// The kinds of objects, and what is told of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// A context.
    Context,
    /// A protection domain.
    Domain,
    /// A completion queue.
    Completions {
        /// Completions that it has room for.
        cqe: u32,
    },
    /// A queue pair.
    Pair(Pair),
    /// A memory region.
    Region {
        /// Its bytes.
        length: u64,
    },
    /// A shared receive queue.
    SharedReceives,
    /// An id of the connection manager.
    Id(Id),
}

/// A queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pair {
    /// Its number.
    pub number: u32,
    /// The peer's.
    pub remote: u32,
    /// The packet number that receiving begins with.
    pub rq_psn: u32,
    /// Likewise, sending.
    pub sq_psn: u32,
    /// The number of its shared receive queue, if that is listed; otherwise 0.
    pub srq: u32,
    /// `IBV_QPT_*`.
    pub kind: u8,
    /// `IBV_QPS_*`.
    pub state: u8,
    /// The number of its port; 0 where it is not known.
    pub port: u8,
    /// Its connection goes by memory that both ends share.
    pub moved: bool,
}

/// An id of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    /// The number of its queue pair; 0 without one.
    pub pair: u32,
    /// `RDMA_PS_*`.
    pub space: u16,
    /// The type of its queue pairs: `IBV_QPT_*`.
    pub kind: u8,
    /// Linux's number of its state.
    pub state: u8,
    /// The number of its port, 15 at most; 0 where it is not known.
    pub port: u8,
    /// Its address, without flow and scope.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
}

const CONTEXT: u8 = 1;
const DOMAIN: u8 = 2;
const COMPLETIONS: u8 = 3;
const PAIR: u8 = 4;
const REGION: u8 = 5;
const SHARED_RECEIVES: u8 = 6;
const ID: u8 = 7;

/// An address is there, and is of IPv6.
const THERE: u8 = 1;
const IS_V6: u8 = 2;

impl Row {
    /// Its words. The first is not 0.
    pub fn words(&self) -> [u64; WORDS] {
        let no_details = [0; 5];
        // An id has neither a context nor a domain.
        let mut of = pack(self.context, self.domain);
        let (kind, details, [a, b, c, d]) = match self.object {
            Object::Context => (CONTEXT, no_details, [0; 4]),
            Object::Domain => (DOMAIN, no_details, [0; 4]),
            Object::Completions { cqe } => (COMPLETIONS, no_details, [u64::from(cqe), 0, 0, 0]),
            Object::Pair(pair) => {
                let numbers = pack(pair.number, pair.remote);
                let psns = pack(pair.sq_psn, pair.rq_psn);
                (
                    PAIR,
                    [pair.kind, pair.state, pair.moved.into(), pair.port, 0],
                    [numbers, psns, u64::from(pair.srq), 0],
                )
            }
            Object::Region { length } => (REGION, no_details, [length, 0, 0, 0]),
            Object::SharedReceives => (SHARED_RECEIVES, no_details, [0; 4]),
            Object::Id(id) => {
                let (local, [a, b], local_port) = address_words(id.local);
                let (peer, [c, d], peer_port) = address_words(id.peer);
                of = pack(id.pair, u32::from(local_port) | u32::from(peer_port) << 16);
                let [s0, s1] = id.space.to_le_bytes();
                let ends = local | peer << 2 | id.port << 4;
                (ID, [id.kind, id.state, s0, s1, ends], [a, b, c, d])
            }
        };
        let ([d0, d1], [t, u, v, w, x]) = (self.device.to_le_bytes(), details);
        [u64::from_le_bytes([kind, d0, d1, t, u, v, w, x]), of, a, b, c, d]
    }

    /// The row of these words, if they are one's.
    pub fn of(words: &[u64; WORDS]) -> Option<Self> {
        let [first, of, a, b, c, d] = *words;
        let [kind, d0, d1, t, u, v, w, x] = first.to_le_bytes();
        let object = match kind {
            CONTEXT => Object::Context,
            DOMAIN => Object::Domain,
            COMPLETIONS => Object::Completions { cqe: low(a) },
            PAIR => Object::Pair(Pair {
                number: low(a),
                remote: high(a),
                sq_psn: low(b),
                rq_psn: high(b),
                srq: low(c),
                kind: t,
                state: u,
                port: w,
                moved: v != 0,
            }),
            REGION => Object::Region { length: a },
            SHARED_RECEIVES => Object::SharedReceives,
            ID => Object::Id(Id {
                pair: low(of),
                space: u16::from_le_bytes([v, w]),
                kind: t,
                state: u,
                port: x >> 4,
                local: address_of(x, [a, b], high(of) as u16),
                peer: address_of(x >> 2, [c, d], (high(of) >> 16) as u16),
            }),
            _ => return None,
        };
        let (context, domain) = if kind == ID { (0, 0) } else { (low(of), high(of)) };
        Some(Self { device: u16::from_le_bytes([d0, d1]), context, domain, object })
    }
}

/// The kind of an address, its octets and its port.
fn address_words(address: Option<SocketAddr>) -> (u8, [u64; 2], u16) {
    match address.map(|address| (address.ip(), address.port())) {
        None => (0, [0; 2], 0),
        Some((IpAddr::V4(ip), port)) => (THERE, [ip.to_bits().into(), 0], port),
        Some((IpAddr::V6(ip), port)) => {
            let bits = ip.to_bits();
            (THERE | IS_V6, [bits as u64, (bits >> 64) as u64], port)
        }
    }
}

fn address_of(kind: u8, [low, high]: [u64; 2], port: u16) -> Option<SocketAddr> {
    let ip = match kind & (THERE | IS_V6) {
        THERE => IpAddr::V4((low as u32).into()),
        0 | IS_V6 => return None,
        _ => IpAddr::V6((u128::from(low) | u128::from(high) << 64).into()),
    };
    Some(SocketAddr::new(ip, port))
}

/// The check behind a row's words. Words of two writes, or of another owner's row, do not agree
/// with it.
pub fn check(owner: u64, words: &[u64; WORDS]) -> u64 {
    words.iter().fold(mix(owner), |sum, word| mix(sum ^ word))
}

fn mix(word: u64) -> u64 {
    // Any odd number with about as many bits set as not.
    let mixed = word.wrapping_mul(0x9e6c_63d0_876a_3f6b);
    mixed ^ mixed >> 29
}

fn pack(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let pair = Pair {
            number: 5,
            remote: 0xff_ffff,
            rq_psn: 7,
            sq_psn: 8,
            srq: 9,
            kind: 2,
            state: 3,
            port: 2,
            moved: true,
        };
        let objects = [
            Object::Context,
            Object::Domain,
            Object::Completions { cqe: u32::MAX },
            Object::Pair(pair),
            Object::Region { length: u64::MAX },
            Object::SharedReceives,
            Object::Id(id(None, Some("[fe80::1:2]:65535"))),
            Object::Id(id(Some("127.0.0.1:7174"), None)),
        ];
        let of = |object| match object {
            Object::Id(_) => (0, 0),
            _ => (1, u32::MAX),
        };
        let row = |object| {
            let (context, domain) = of(object);
            Row { device: 300, context, domain, object }
        };
        objects.map(row).to_vec()
    }

    fn id(local: Option<&str>, peer: Option<&str>) -> Id {
        let [local, peer] = [local, peer].map(|text| text.map(|text| text.parse().unwrap()));
        Id { pair: 0xff_ffff, space: 0x106, kind: 2, state: 8, port: 15, local, peer }
    }

    #[test]
    fn each_kind_comes_back_as_it_was() {
        for row in rows() {
            assert_eq!(Row::of(&row.words()), Some(row));
            assert_ne!(row.words()[0], 0);
        }
        assert_eq!(Row::of(&[0; WORDS]), None);
        assert_eq!(Row::of(&[u64::MAX; WORDS]), None);
    }

    #[test]
    fn the_check_tells_rows_and_owners_apart() {
        let mut checks: Vec<u64> = Vec::new();
        for row in rows() {
            let words = row.words();
            checks.extend([check(1, &words), check(2, &words)]);
            // Half of it is another's.
            let mut torn = words;
            torn[2] ^= 1;
            checks.push(check(1, &torn));
        }
        let count = checks.len();
        checks.sort_unstable();
        checks.dedup();
        assert_eq!(checks.len(), count);
    }
}
