// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC-32 by carry-less multiplication, for x86-64.
//!
//! Sixteen octets and the register are the polynomial that leaves the remainder that all octets
//! before them leave: 128 bits are moved on over the next block by multiplying both halves with
//! what x to the power of the distance leaves, and adding the block. Four pairs of sums side by
//! side keep the multiplier busy, and the last 16 octets go through the tables. There is nothing to
//! prepare, so that packets of a few hundred octets do not pay for what helps megabytes.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_set_epi64x,
    _mm256_set_m128i, _mm256_setzero_si256, _mm256_xor_si256,
};
use core::ops::Range;

use super::{Polynomial, table};

/// The generator of CRC-32, the highest power first; that of 32 is left out.
const GENERATOR: u32 = 0x04c1_1db7;
const BLOCK: usize = 16;
const PAIR: usize = 2 * BLOCK;
/// Pairs of sums side by side.
const LANES: usize = 4;

/// The lengths for which this is faster than the tables and than the crate `crc-fast`, whose widest
/// instructions gain more than they take to prepare from some 2 KiB on.
pub(super) const LENGTHS: Range<usize> = 2 * BLOCK..2048;

/// The instructions are there.
#[inline]
pub(super) fn available() -> bool {
    std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
        && std::arch::is_x86_feature_detected!("avx2")
}

/// The register of CRC-32 after `data`.
#[target_feature(enable = "vpclmulqdq", enable = "pclmulqdq", enable = "avx2")]
pub(super) fn run(register: u32, data: &[u8]) -> u32 {
    let before = _mm_cvtsi32_si128(register.cast_signed());
    let (pairs, _) = data.as_chunks::<PAIR>();
    let (mut sum, taken) = if let Some((first, pairs)) = pairs.split_first_chunk() {
        side_by_side(before, first, pairs)
    } else if let Some(first) = data.first_chunk() {
        (_mm_xor_si128(before, load(first)), BLOCK)
    } else {
        return table::run(Polynomial::Ethernet, register, data);
    };
    let (blocks, rest) = data[taken..].as_chunks();
    for block in blocks {
        sum = _mm_xor_si128(moved(sum, ONE), load(block));
    }
    let register = table::run(Polynomial::Ethernet, 0, &octets(sum));
    table::run(Polynomial::Ethernet, register, rest)
}

/// Adds up as many pairs of blocks as there are in rounds of [`LANES`]. Returns the sum, and how
/// many octets are in it.
#[target_feature(enable = "vpclmulqdq", enable = "pclmulqdq", enable = "avx2")]
fn side_by_side(
    before: __m128i,
    first: &[[u8; PAIR]; LANES],
    pairs: &[[u8; PAIR]],
) -> (__m128i, usize) {
    let mut lanes = [_mm256_setzero_si256(); LANES];
    lanes[0] = _mm256_inserti128_si256::<0>(lanes[0], before);
    for (lane, pair) in lanes.iter_mut().zip(first) {
        *lane = _mm256_xor_si256(*lane, load_pair(pair));
    }
    let (rounds, _) = pairs.as_chunks::<LANES>();
    for round in rounds {
        for (lane, pair) in lanes.iter_mut().zip(round) {
            *lane = _mm256_xor_si256(moved_pair(*lane, ROUND), load_pair(pair));
        }
    }
    let [mut sum, others @ ..] = lanes;
    for lane in others {
        sum = _mm256_xor_si256(moved_pair(sum, TWO), lane);
    }
    let (low, high) = (_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    (_mm_xor_si128(moved(low, ONE), high), (1 + rounds.len()) * LANES * PAIR)
}

/// The factors of the low and the high half of 128 bits that are moved on by a distance.
#[derive(Clone, Copy)]
struct Factors(i64, i64);

const ONE: Factors = factors(BLOCK);
const TWO: Factors = factors(PAIR);
const ROUND: Factors = factors(LANES * PAIR);
/// Factors for a distance of so many octets. The low half stands for the higher powers, as bits are
/// reflected.
const fn factors(octets: usize) -> Factors {
    let bits = octets * 8;
    Factors(power(bits + 32), power(bits - 32))
}

/// Remainder of x to the power of `exponent`, bits reflected, and once more multiplied by x,
/// because the product of two reflected polynomials comes out one bit short.
const fn power(exponent: usize) -> i64 {
    let mut remainder = 1_u32;
    let mut done = 0;
    while done < exponent {
        let carry = remainder >> 31;
        remainder = remainder << 1 ^ GENERATOR & carry.wrapping_neg();
        done += 1;
    }
    (remainder.reverse_bits() as i64) << 1
}

#[target_feature(enable = "pclmulqdq", enable = "avx2")]
fn moved(sum: __m128i, Factors(low, high): Factors) -> __m128i {
    let factors = _mm_set_epi64x(high, low);
    let low = _mm_clmulepi64_si128::<0x00>(sum, factors);
    let high = _mm_clmulepi64_si128::<0x11>(sum, factors);
    _mm_xor_si128(low, high)
}

#[target_feature(enable = "pclmulqdq", enable = "avx2")]
fn load(block: &[u8; BLOCK]) -> __m128i {
    let both = u128::from_le_bytes(*block);
    _mm_set_epi64x((both >> 64) as i64, both as i64)
}

#[target_feature(enable = "pclmulqdq", enable = "avx2")]
fn octets(sum: __m128i) -> [u8; BLOCK] {
    let (low, high) = (_mm_cvtsi128_si64(sum), _mm_extract_epi64::<1>(sum));
    (u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned())).to_le_bytes()
}

#[target_feature(enable = "vpclmulqdq", enable = "pclmulqdq", enable = "avx2")]
fn moved_pair(sum: __m256i, Factors(low, high): Factors) -> __m256i {
    let factors = _mm256_set_epi64x(high, low, high, low);
    let low = _mm256_clmulepi64_epi128::<0x00>(sum, factors);
    let high = _mm256_clmulepi64_epi128::<0x11>(sum, factors);
    _mm256_xor_si256(low, high)
}

#[target_feature(enable = "pclmulqdq", enable = "avx2")]
fn load_pair(pair: &[u8; PAIR]) -> __m256i {
    let (blocks, _) = pair.as_chunks::<BLOCK>();
    _mm256_set_m128i(load(&blocks[1]), load(&blocks[0]))
}
