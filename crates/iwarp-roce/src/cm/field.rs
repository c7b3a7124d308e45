// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fields of management datagrams: bits at an offset, the most significant first.

use super::mad::BODY_LEN;

/// The octets of a message behind the header.
pub(super) type Body = [u8; BODY_LEN];

/// Up to 64 bits of a message.
#[derive(Clone, Copy)]
pub(super) struct Field {
    at: usize,
    octets: usize,
    shift: u32,
    mask: u64,
}

impl Field {
    /// `bits` from the first bit of octet `at` on.
    pub(super) const fn new(at: usize, bits: u32) -> Self {
        Self::within(at, 0, bits)
    }

    /// `bits` from bit `bit` of octet `at` on, counted from the most significant.
    pub(super) const fn within(at: usize, bit: u32, bits: u32) -> Self {
        let octets = (bit + bits).div_ceil(8) as usize;
        assert!(bits > 0 && bit + bits <= 64 && at + octets <= BODY_LEN);
        Self { at, octets, shift: octets as u32 * 8 - bit - bits, mask: u64::MAX >> (64 - bits) }
    }

    /// This field of a part that lies `octets` further on.
    pub(super) const fn moved(self, octets: usize) -> Self {
        Self { at: self.at + octets, ..self }
    }

    fn whole(self, body: &Body) -> u64 {
        let octets = &body[self.at..self.at + self.octets];
        octets.iter().fold(0, |value, octet| value << 8 | u64::from(*octet))
    }

    /// Its value.
    pub(super) fn get(self, body: &Body) -> u64 {
        self.whole(body) >> self.shift & self.mask
    }

    /// Its value, of a field with at most 32 bits.
    pub(super) fn get_u32(self, body: &Body) -> u32 {
        self.get(body) as u32
    }

    /// Its value, of a field with at most 16 bits.
    pub(super) fn get_u16(self, body: &Body) -> u16 {
        self.get(body) as u16
    }

    /// Its value, of a field with at most 8 bits.
    pub(super) fn get_u8(self, body: &Body) -> u8 {
        self.get(body) as u8
    }

    /// True if any of its bits is set.
    pub(super) fn is_set(self, body: &Body) -> bool {
        self.get(body) != 0
    }

    /// Sets it to the low bits of `value`.
    pub(super) fn put(self, body: &mut Body, value: impl Into<u64>) {
        let kept = self.whole(body) & !(self.mask << self.shift);
        let whole = kept | (value.into() & self.mask) << self.shift;
        let from = size_of::<u64>() - self.octets;
        body[self.at..self.at + self.octets].copy_from_slice(&whole.to_be_bytes()[from..]);
    }
}

/// The `N` octets from octet `at` on.
pub(super) fn block<const N: usize>(body: &Body, at: usize) -> [u8; N] {
    core::array::from_fn(|index| body[at + index])
}

/// Writes octets from octet `at` on.
pub(super) fn put_block(body: &mut Body, at: usize, octets: &[u8]) {
    body[at..at + octets.len()].copy_from_slice(octets);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BODY_LEN, Body, Field, block, put_block};

    #[test]
    fn bits_count_from_the_top() {
        let mut body: Body = [0; BODY_LEN];
        Field::within(43, 5, 2).put(&mut body, 0b11_u8);
        assert_eq!(body[43], 0b110);
        Field::new(88, 20).put(&mut body, 0xb_d64c_u32);
        assert_eq!(body[88..92], [0xbd, 0x64, 0xc0, 0]);
        Field::new(8, 64).put(&mut body, 0x0102_0304_0506_0708_u64);
        assert_eq!(block::<8>(&body, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
        put_block(&mut body, 231, &[9]);
        assert_eq!(body[231], 9);
    }

    proptest! {
        /// Covers: ROCE-146
        #[test]
        fn a_field_keeps_to_its_bits(
            at in 0usize..200, bit in 0u32..8, bits in 1u32..=56, value: u64, filler: u8
        ) {
            let field = Field::within(at, bit, bits);
            let mut body: Body = [filler; BODY_LEN];
            field.put(&mut body, value);
            prop_assert_eq!(field.get(&body), value & (u64::MAX >> (64 - bits)));
            // Octets that were there before come back when the field does.
            let mut other: Body = [filler; BODY_LEN];
            let before = field.get(&other);
            field.put(&mut other, value);
            field.put(&mut other, before);
            prop_assert_eq!(other, [filler; BODY_LEN]);
        }
    }
}
