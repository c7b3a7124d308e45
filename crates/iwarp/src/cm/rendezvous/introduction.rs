//! What the two ends say of themselves in the private data of MPA's start-up.

/// Tells a peer of ours from one that came here by chance.
const MAGIC: [u8; 8] = *b"iwarp qp";
/// Later ones may only append.
const VERSION: u8 = 1;
const NUMBER_OCTETS: usize = 3;

/// Which queue pair of one end wants which queue pair of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Introduction {
    /// Number of the sender's queue pair.
    pub(crate) from: u32,
    /// Number of the receiver's.
    pub(crate) to: u32,
}

impl Introduction {
    pub(crate) const OCTETS: usize = MAGIC.len() + 1 + 2 * NUMBER_OCTETS;

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(Self::OCTETS);
        octets.extend(MAGIC);
        octets.push(VERSION);
        for number in [self.from, self.to] {
            octets.extend(&number.to_be_bytes()[4 - NUMBER_OCTETS..]);
        }
        octets
    }

    /// `None` for octets that are no introduction.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let (from, rest) = after_head(octets)?.split_first_chunk::<NUMBER_OCTETS>()?;
        let (to, _) = rest.split_first_chunk::<NUMBER_OCTETS>()?;
        let number = |[a, b, c]: [u8; NUMBER_OCTETS]| u32::from_be_bytes([0, a, b, c]);
        Some(Self { from: number(*from), to: number(*to) })
    }
}

/// Why somebody who came was sent away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no such queue pair, or it does not want to be found yet.
    Unknown,
    /// The queue pair wants another peer.
    Stranger,
    /// The queue pair has its connection.
    Taken,
    /// What a later version may say.
    Other,
}

impl Refusal {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        octets.push(VERSION);
        octets.push(match self {
            Self::Other => 0,
            Self::Unknown => 1,
            Self::Stranger => 2,
            Self::Taken => 3,
        });
        octets
    }

    /// `None` for octets that none of ours sent.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        Some(match after_head(octets)?.first()? {
            1 => Self::Unknown,
            2 => Self::Stranger,
            3 => Self::Taken,
            _ => Self::Other,
        })
    }

    /// For whoever wonders why there is no connection.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "it has no such queue pair, or that is not in INIT yet",
            Self::Stranger => {
                "that queue pair expects another peer, or this one at another address"
            }
            Self::Taken => "that queue pair has a connection",
            Self::Other => "it refuses",
        }
    }
}

fn after_head(octets: &[u8]) -> Option<&[u8]> {
    let (version, rest) = octets.strip_prefix(&MAGIC)?.split_first()?;
    (*version >= VERSION).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_arrive() {
        for introduction in [
            Introduction { from: 2, to: 0x00ff_fffe },
            Introduction { from: 0x0012_3456, to: 0x0065_4321 },
        ] {
            let octets = introduction.encode();
            assert_eq!(octets.len(), Introduction::OCTETS);
            assert_eq!(Introduction::parse(&octets), Some(introduction));
        }
    }

    #[test]
    fn what_a_later_version_appends_is_not_looked_at() {
        let introduction = Introduction { from: 77, to: 78 };
        let mut octets = introduction.encode();
        octets[MAGIC.len()] = VERSION + 1;
        octets.extend([1, 2, 3]);
        assert_eq!(Introduction::parse(&octets), Some(introduction));
    }

    #[test]
    fn refusals_arrive() {
        for refusal in [Refusal::Unknown, Refusal::Stranger, Refusal::Taken, Refusal::Other] {
            assert_eq!(Refusal::parse(&refusal.encode()), Some(refusal));
        }
        let mut octets = Refusal::Taken.encode();
        *octets.last_mut().unwrap() = 200;
        assert_eq!(Refusal::parse(&octets), Some(Refusal::Other));
    }

    /// Whatever one octet is, and wherever the end: nothing but an introduction is taken for one.
    #[test]
    fn hostile_octets_are_nobody() {
        let octets = Introduction { from: 0x0001_0203, to: 0x0004_0506 }.encode();
        for len in 0..octets.len() {
            assert_eq!(Introduction::parse(&octets[..len]), None, "{len} octets");
        }
        for place in 0..=MAGIC.len() {
            for octet in 0..=u8::MAX {
                let mut changed = octets.clone();
                changed[place] = octet;
                let fine = octet == octets[place] || place == MAGIC.len() && octet > VERSION;
                assert_eq!(Introduction::parse(&changed).is_some(), fine, "{octet} at {place}");
                assert_eq!(Refusal::parse(&changed).is_some(), fine);
            }
        }
        // Noise of all lengths: no panic, and never 24 bits exceeded.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for len in 0..512 {
            let mut noise = MAGIC.to_vec();
            noise.push(VERSION);
            for _ in 0..len {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                noise.push((state >> 56) as u8);
            }
            if let Some(found) = Introduction::parse(&noise) {
                assert!(found.from < 1 << 24 && found.to < 1 << 24);
            }
            assert_eq!(Introduction::parse(&noise).is_some(), len >= 2 * NUMBER_OCTETS);
            assert_eq!(Introduction::parse(&noise[1..]), None);
        }
    }
}
