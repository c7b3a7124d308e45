// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables whose keys no peer chooses: their hash is one multiplication.
//!
//! The standard library's hash resists peers that choose keys which collide. That is needless for
//! the numbers of this process's own queue pairs and for its host's addresses: a peer that asks for
//! a number that is not there makes no entry.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// See the [module](self).
pub(crate) type OwnKeys<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// An odd number whose bits are in no order: 2^64 by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies each word, and brings the upper bits, which depend on all others, down: tables take
/// the lower ones.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, octets: &[u8]) {
        for part in octets.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};
    use std::net::{IpAddr, Ipv4Addr};

    use super::Multiply;

    fn places(keys: impl Iterator<Item = u64>) -> usize {
        keys.map(|hash| hash & 0xfff).collect::<HashSet<_>>().len()
    }

    /// Of 1024 keys in a table of 4096 places, chance would give 906 a place of their own.
    #[test]
    fn neighbours_get_places_of_their_own() {
        let hasher = BuildHasherDefault::<Multiply>::default();
        for step in [1u32, 2, 64, 256, 4096] {
            let numbers = places((0..1024).map(|n| hasher.hash_one(n * step)));
            assert!(numbers >= 906, "{numbers} places of numbers {step} apart");
        }
        let addrs = (0..1024u32).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)));
        let addrs = places(addrs.map(|addr| hasher.hash_one(addr)));
        assert!(addrs > 800, "{addrs} places of addresses");
    }
}
