// SPDX-License-Identifier: MIT OR Apache-2.0

//! The introduction of the two ends to each other in the private data of MPA's start-up.
//!
//! The initiator's Request carries an [`Introduction`], the responder's Reply an [`Answer`] or a
//! refusal. Both are in the clear and say nothing that a stranger could not say as well: the
//! [proof](super::proof) is in what comes of the two shares.

use std::ops::Range;

use super::proof::{SHARE, TAG};

/// Tells a peer of ours from one that came here by chance.
const MAGIC: [u8; 8] = *b"iwarp qp";
/// Later ones may only append. 1 proved nothing, 2 one of the two numbers.
pub(crate) const VERSION: u8 = 3;
const NUMBER_OCTETS: usize = 3;

/// Which of the two secrets the key is about. Either is the number that the packets of one end
/// start from; the program there says it last, when the queue pair goes to RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Secret {
    /// `sq_psn` of the initiator, `rq_psn` of the responder.
    Initiators,
    /// `rq_psn` of the initiator, `sq_psn` of the responder.
    Responders,
}

/// Which queue pair of one end wants which queue pair of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Introduction {
    pub(crate) secret: Secret,
    /// Number of the sender's queue pair.
    pub(crate) from: u32,
    /// Number of the receiver's.
    pub(crate) to: u32,
    pub(crate) share: [u8; SHARE],
}

/// The words of a peer that is none of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foreign {
    /// Words of an earlier version of this library.
    Version(u8),
    Noise,
}

impl Introduction {
    const OCTETS: usize = MAGIC.len() + 2 + 2 * NUMBER_OCTETS + SHARE;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut octets = head(Self::OCTETS);
        octets.push(match self.secret {
            Secret::Initiators => 0,
            Secret::Responders => 1,
        });
        for number in [self.from, self.to] {
            octets.extend(&number.to_be_bytes()[4 - NUMBER_OCTETS..]);
        }
        octets.extend(self.share);
        octets
    }

    pub(crate) fn parse(octets: &[u8]) -> Result<Self, Foreign> {
        let rest = after_head(octets)?;
        let parse = || {
            let (&secret, rest) = rest.split_first()?;
            let secret = match secret {
                0 => Secret::Initiators,
                1 => Secret::Responders,
                _ => return None,
            };
            let (from, rest) = rest.split_first_chunk::<NUMBER_OCTETS>()?;
            let (to, rest) = rest.split_first_chunk::<NUMBER_OCTETS>()?;
            let share = *rest.first_chunk()?;
            let number = |[a, b, c]: [u8; NUMBER_OCTETS]| u32::from_be_bytes([0, a, b, c]);
            Some(Self { secret, from: number(*from), to: number(*to), share })
        };
        parse().ok_or(Foreign::Noise)
    }
}

/// The answer of a responder that is willing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) share: [u8; SHARE],
    /// Proves that the responder knows the secret.
    pub(crate) tag: [u8; TAG],
    /// Speaks for the other secret, if the responder has been told that one.
    pub(crate) claim: Option<[u8; TAG]>,
}

const REFUSES: u8 = 0;
const ANSWERS: u8 = 1;
const CLAIMS: u8 = 2;

impl Answer {
    const OCTETS: usize = Self::TAG.end + TAG;
    const TAG: Range<usize> = Self::SAID..Self::SAID + TAG;
    /// Bytes before the tag, which are what tag and claim speak for.
    pub(crate) const SAID: usize = MAGIC.len() + 2 + SHARE;

    /// The part before the tag.
    pub(crate) fn begin(share: &[u8; SHARE], claims: bool) -> Vec<u8> {
        let mut octets = head(Self::OCTETS);
        octets.push(if claims { CLAIMS } else { ANSWERS });
        octets.extend(share);
        octets
    }

    /// `None` for bytes that are no answer.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let (&kind, rest) = after_head(octets).ok()?.split_first()?;
        let (share, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let claim = match kind {
            ANSWERS => None,
            CLAIMS => Some(*rest.first_chunk()?),
            _ => return None,
        };
        Some(Self { share: *share, tag: *tag, claim })
    }
}

/// A refusal. It gives no reason: strangers would learn from it which queue pairs there are.
pub(crate) fn refusal() -> Vec<u8> {
    let mut octets = head(MAGIC.len() + 2);
    octets.push(REFUSES);
    octets
}

/// The meaning of a refusal's bytes, for a user who wonders why there is no connection.
pub(crate) fn reason(octets: &[u8]) -> &'static str {
    match after_head(octets) {
        Ok(_) => {
            "it refuses (that queue pair is not there or not in RTR yet, has a connection, or \
             expects another peer)"
        }
        Err(Foreign::Version(_)) => "there is an earlier release of this library",
        Err(Foreign::Noise) => "something else answers there",
    }
}

fn head(octets: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(octets);
    head.extend(MAGIC);
    head.push(VERSION);
    head
}

fn after_head(octets: &[u8]) -> Result<&[u8], Foreign> {
    let rest = octets.strip_prefix(&MAGIC).ok_or(Foreign::Noise)?;
    let (&version, rest) = rest.split_first().ok_or(Foreign::Noise)?;
    if version < VERSION { Err(Foreign::Version(version)) } else { Ok(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(secret: Secret, from: u32, to: u32) -> Introduction {
        Introduction { secret, from, to, share: std::array::from_fn(|place| place as u8) }
    }

    fn answer(claim: Option<[u8; TAG]>) -> (Answer, Vec<u8>) {
        let answer = Answer { share: [7; SHARE], tag: [9; TAG], claim };
        let octets = encode(&answer);
        assert_eq!(octets.len(), Answer::OCTETS - if claim.is_some() { 0 } else { TAG });
        (answer, octets)
    }

    fn encode(answer: &Answer) -> Vec<u8> {
        let mut octets = Answer::begin(&answer.share, answer.claim.is_some());
        assert_eq!(octets.len(), Answer::SAID);
        octets.extend(answer.tag);
        octets.extend(answer.claim.iter().flatten());
        octets
    }

    #[test]
    fn everything_arrives() {
        for introduction in [
            introduction(Secret::Initiators, 2, 0x00ff_fffe),
            introduction(Secret::Responders, 0x0012_3456, 0x0065_4321),
        ] {
            let octets = introduction.encode();
            assert_eq!(octets.len(), Introduction::OCTETS);
            assert_eq!(Introduction::parse(&octets), Ok(introduction));
            assert_eq!(Answer::parse(&octets), None);
        }
        for claim in [None, Some([3; TAG])] {
            let (answer, octets) = answer(claim);
            assert_eq!(Answer::parse(&octets), Some(answer));
        }
        assert_eq!(Answer::parse(&refusal()), None);
        assert!(reason(&refusal()).starts_with("it refuses"));
    }

    #[test]
    fn octets_that_a_later_version_appends_are_ignored() {
        let introduction = introduction(Secret::Initiators, 77, 78);
        let mut octets = introduction.encode();
        octets[MAGIC.len()] = VERSION + 1;
        octets.extend([1, 2, 3]);
        assert_eq!(Introduction::parse(&octets), Ok(introduction));
    }

    #[test]
    fn an_earlier_version_is_known_for_what_it_is() {
        for version in 1..VERSION {
            let octets = [&b"iwarp qp"[..], &[version], b"aaabbb"].concat();
            assert_eq!(Introduction::parse(&octets), Err(Foreign::Version(version)));
            assert!(reason(&octets).contains("earlier release"));
        }
        assert!(reason(b"no").contains("something else"));
    }

    /// Only an introduction is taken for one, for any value of one byte and any length.
    #[test]
    fn hostile_octets_are_nobody() {
        let octets = introduction(Secret::Responders, 0x0001_0203, 0x0004_0506).encode();
        for len in 0..octets.len() {
            Introduction::parse(&octets[..len]).unwrap_err();
        }
        for claim in [None, Some([3; TAG])] {
            let (_, words) = answer(claim);
            for len in 0..words.len() {
                assert_eq!(Answer::parse(&words[..len]), None, "{len} octets");
            }
        }
        for place in 0..MAGIC.len() + 2 {
            for octet in 0..=u8::MAX {
                let mut changed = octets.clone();
                changed[place] = octet;
                let fine = match place.checked_sub(MAGIC.len()) {
                    None => octet == octets[place],
                    Some(0) => octet >= VERSION,
                    Some(_) => octet < 2,
                };
                assert_eq!(Introduction::parse(&changed).is_ok(), fine, "{octet} at {place}");
            }
        }
        // Noise of all lengths: no panic, and never 24 bits exceeded.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for len in 0..512 {
            let mut noise = head(len);
            for _ in 0..len {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                noise.push((state >> 56) as u8);
            }
            if let Ok(found) = Introduction::parse(&noise) {
                assert!(found.from < 1 << 24 && found.to < 1 << 24);
            }
            let _ = (Answer::parse(&noise), reason(&noise));
            Introduction::parse(&noise[1..]).unwrap_err();
        }
    }

    proptest::proptest! {
        /// Either it is none, or it says again what was said.
        #[test]
        fn parsed_introductions_encode_to_the_input(
            octets in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
            begins_well in proptest::bool::ANY,
        ) {
            let mut octets = octets;
            if begins_well {
                octets.splice(..0, head(0));
            }
            if let Ok(introduction) = Introduction::parse(&octets) {
                let again = introduction.encode();
                let version = MAGIC.len();
                proptest::prop_assert_eq!(&again[..version], &octets[..version]);
                proptest::prop_assert_eq!(&again[version + 1..], &octets[version + 1..again.len()]);
            }
            if let Some(answer) = Answer::parse(&octets) {
                let again = encode(&answer);
                proptest::prop_assert_eq!(&again[MAGIC.len() + 1..], &octets[MAGIC.len() + 1..again.len()]);
            }
        }
    }
}
