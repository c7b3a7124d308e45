// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packet sequence numbers.

/// Packet sequence number: 24 bits that wrap (ROCE-043).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Psn(u32);

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

impl Psn {
    /// The number in the low 24 bits of `number`.
    pub const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    /// The number, below 2^24.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number `packets` further on.
    #[must_use]
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The number before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The number of steps that `self` is ahead of `other`, in -2^23..2^23.
    pub const fn ahead_of(self, other: Self) -> i32 {
        let distance = self.0.wrapping_sub(other.0);
        // The sign bit of 24 bits moves to that of 32, and back.
        ((distance << (32 - BITS)) as i32) >> (32 - BITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Psn;

    #[test]
    fn numbers_wrap_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(Psn::new(0).ahead_of(last), 1);
        assert_eq!(last.ahead_of(Psn::new(0)), -1);
        assert_eq!(Psn::new(1 << 23).ahead_of(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new(0x0100_0005), Psn::new(5));
    }

    proptest! {
        #[test]
        fn distance_undoes_plus(from: u32, by in 0u32..1 << 23) {
            let from = Psn::new(from);
            prop_assert_eq!(from.plus(by).ahead_of(from), by as i32);
            prop_assert_eq!(from.ahead_of(from.plus(by)), -(by as i32));
        }
    }
}
