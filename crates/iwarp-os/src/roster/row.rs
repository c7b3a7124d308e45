// SPDX-License-Identifier: MIT OR Apache-2.0

//! A row of the roster: an object of a context, in words.
//!
//! `iwarp-preload` has a link to this file: its library, which reads the rows, is compiled by
//! itself. So the code needs nothing else, neither allocates nor panics.

/// Words of a row that its check covers.
pub const WORDS: usize = 6;

/// An object of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The place of its device in the list.
    pub device: u16,
    /// The number of its context; its own, if it is one.
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
}

const CONTEXT: u8 = 1;
const DOMAIN: u8 = 2;
const COMPLETIONS: u8 = 3;
const PAIR: u8 = 4;
const REGION: u8 = 5;
const SHARED_RECEIVES: u8 = 6;

impl Row {
    /// Its words. The first is not 0.
    pub fn words(&self) -> [u64; WORDS] {
        let (kind, details, [a, b, c]) = match self.object {
            Object::Context => (CONTEXT, [0; 2], [0; 3]),
            Object::Domain => (DOMAIN, [0; 2], [0; 3]),
            Object::Completions { cqe } => (COMPLETIONS, [0; 2], [u64::from(cqe), 0, 0]),
            Object::Pair(pair) => {
                let numbers = pack(pair.number, pair.remote);
                let psns = pack(pair.sq_psn, pair.rq_psn);
                (PAIR, [pair.kind, pair.state], [numbers, psns, u64::from(pair.srq)])
            }
            Object::Region { length } => (REGION, [0; 2], [length, 0, 0]),
            Object::SharedReceives => (SHARED_RECEIVES, [0; 2], [0; 3]),
        };
        let [d0, d1] = self.device.to_le_bytes();
        let first = u64::from_le_bytes([kind, 0, d0, d1, details[0], details[1], 0, 0]);
        [first, pack(self.context, self.domain), a, b, c, 0]
    }

    /// The row of these words, if they are one's.
    pub fn of(words: &[u64; WORDS]) -> Option<Self> {
        let [first, of, a, b, c, _] = *words;
        let [kind, _, d0, d1, detail, other, ..] = first.to_le_bytes();
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
                kind: detail,
                state: other,
            }),
            REGION => Object::Region { length: a },
            SHARED_RECEIVES => Object::SharedReceives,
            _ => return None,
        };
        let device = u16::from_le_bytes([d0, d1]);
        Some(Self { device, context: low(of), domain: high(of), object })
    }
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
        let pair =
            Pair { number: 5, remote: 0xff_ffff, rq_psn: 7, sq_psn: 8, srq: 9, kind: 2, state: 3 };
        let objects = [
            Object::Context,
            Object::Domain,
            Object::Completions { cqe: u32::MAX },
            Object::Pair(pair),
            Object::Region { length: u64::MAX },
            Object::SharedReceives,
        ];
        objects.map(|object| Row { device: 300, context: 1, domain: u32::MAX, object }).to_vec()
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
