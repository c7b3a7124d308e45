// SPDX-License-Identifier: MIT OR Apache-2.0

//! The source of every decision of a run: a seed, or octets that a fuzzer chose.

/// A stream of decisions.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    source: Source<'a>,
}

#[derive(Clone, Debug)]
enum Source<'a> {
    /// State of a xoshiro256++ generator.
    Seed([u64; 4]),
    Octets(&'a [u8]),
}

/// One step of SplitMix64: spreads a seed over 64 bits.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<'a> Choices<'a> {
    /// The endless decisions of `seed`.
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        Self { source: Source::Seed(core::array::from_fn(|_| split_mix(&mut state))) }
    }

    /// Decisions read from `octets`; zero when there are no more.
    pub const fn from_octets(octets: &'a [u8]) -> Self {
        Self { source: Source::Octets(octets) }
    }

    /// True if the octets have run out. A seed never does.
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.source, Source::Octets(octets) if octets.is_empty())
    }

    /// `width` octets of decision.
    fn draw(&mut self, width: usize) -> u64 {
        match &mut self.source {
            Source::Seed(state) => xoshiro(state),
            Source::Octets(octets) => {
                let (now, later) = octets.split_at(width.min(octets.len()));
                *octets = later;
                now.iter().fold(0, |value, octet| (value << 8) | u64::from(*octet))
            }
        }
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.draw(8)
    }

    /// A number below `n`, which is not zero.
    pub fn below(&mut self, n: u64) -> u64 {
        let width = match n {
            0..=1 => return 0,
            2..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.draw(width) % n
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A length up to `max`: mostly small, sometimes near a power of two, now and then huge.
    pub fn length(&mut self, max: u32) -> u32 {
        let len = match self.below(16) {
            0 => 0,
            1..=7 => self.below(200),
            8..=11 => self.below(3000),
            12 | 13 => {
                let power = 1u64 << self.range(2, 16);
                (power + self.below(5)).saturating_sub(2)
            }
            14 => self.below(20_000),
            _ => self.below(200 * 1024 + 1),
        };
        (len as u32).min(max)
    }
}

fn xoshiro(s: &mut [u64; 4]) -> u64 {
    let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
    let t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3].rotate_left(45);
    result
}

/// Fills `out` with octets that depend on `seed` and the place only.
pub fn pattern(seed: u64, out: &mut [u8]) {
    let mut state = seed;
    for chunk in out.chunks_mut(8) {
        chunk.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::Choices;

    #[test]
    fn octets_decide_until_they_run_out() {
        let mut choices = Choices::from_octets(&[5, 1, 2]);
        assert_eq!(choices.below(16), 5);
        assert_eq!(choices.below(0x1000), 0x102);
        assert!(choices.is_exhausted());
        assert_eq!(choices.below(16), 0);
    }

    #[test]
    fn a_seed_repeats_itself() {
        let (mut a, mut b) = (Choices::from_seed(7), Choices::from_seed(7));
        assert!((0..100).all(|_| a.word() == b.word()));
        assert_ne!(Choices::from_seed(8).word(), Choices::from_seed(7).word());
    }
}
