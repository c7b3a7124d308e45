// SPDX-License-Identifier: MIT OR Apache-2.0

//! The CRC's register run backwards.
//!
//! A register is a polynomial over GF(2) of a degree below 32, its highest coefficient in the
//! lowest bit. An octet of zeros multiplies it by x^8, modulo the generator; so to go back over
//! many octets is one multiplication by a power of the inverse of x.

/// The generator of Ethernet's CRC-32, but for x^32.
const GENERATOR: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Powers of the inverse of x^8: those of up to 255 octets, and of multiples of 256 octets.
static NEAR: [u32; 256] = powers(inverse_of_octets(1));
static FAR: [u32; 256] = powers(inverse_of_octets(256));

/// The value of `register` so many octets of zeros earlier; at most 65,535 octets.
pub(super) fn back(register: u32, octets: usize) -> u32 {
    let [.., far, near] = octets.to_be_bytes();
    // For short packets the first factor is 1, and costs nothing.
    times(FAR[usize::from(far)], times(register, NEAR[usize::from(near)]))
}

/// The change that octets of the values 0, 1, .. make in the register once so many octets have
/// followed.
pub(super) const fn changes<const N: usize>(behind: usize) -> [u32; N] {
    let mut changes = [0; N];
    let mut value = 0;
    while value < N {
        let mut register = value as u32;
        let mut bit = 0;
        while bit < 8 * (1 + behind) {
            register = register >> 1 ^ GENERATOR & (register & 1).wrapping_neg();
            bit += 1;
        }
        changes[value] = register;
        value += 1;
    }
    changes
}

const fn times(a: u32, b: u32) -> u32 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while a != 0 {
        // The lowest power of x that is left is the topmost bit.
        product ^= b & (a >> 31).wrapping_neg();
        a <<= 1;
        b = b >> 1 ^ GENERATOR & (b & 1).wrapping_neg();
    }
    product
}

const fn inverse_of_octets(octets: u32) -> u32 {
    let mut value = ONE;
    let mut bit = 0;
    while bit < 8 * octets {
        // A product by x has the coefficient of x^0 only where the generator was subtracted.
        value = if value & ONE != 0 { (value ^ GENERATOR) << 1 | 1 } else { value << 1 };
        bit += 1;
    }
    value
}

const fn powers(base: u32) -> [u32; 256] {
    let mut powers = [ONE; 256];
    let mut n = 1;
    while n < 256 {
        powers[n] = times(powers[n - 1], base);
        n += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use iwarp_types::{Digest, Polynomial};
    use proptest::prelude::*;

    use super::back;

    proptest! {
        #[test]
        fn going_back_undoes_octets_of_zeros(register: u32, octets in 0..65_536_usize) {
            let mut digest = Digest::from_register(Polynomial::Ethernet, register);
            digest.update(&std::vec![0; octets]);
            prop_assert_eq!(back(digest.register(), octets), register);
        }
    }
}
