// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes that are easy to make and hard to get right by accident.

use iwarp::Buffer;

const BLOCK: usize = 64 << 10;

/// Word number `number` of the pattern that `seed` selects (SplitMix64).
pub const fn word(seed: u64, number: u64) -> [u8; 8] {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// The bytes of a pattern from `start` on, a multiple of 8.
pub fn make(seed: u64, start: usize, block: &mut [u8]) {
    for (i, octets) in block.chunks_mut(8).enumerate() {
        octets.copy_from_slice(&word(seed, (start / 8 + i) as u64)[..octets.len()]);
    }
}

/// Fills `buffer` from `offset` to its end.
pub fn fill(buffer: &Buffer, offset: usize, seed: u64) {
    let mut block = vec![0; BLOCK];
    let len = buffer.len() - offset;
    for start in (0..len).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(len - start)];
        make(seed, start, block);
        buffer.write_at(offset + start, block);
    }
}

/// The part of `buffer`, from `offset` to its end, that is not the pattern, in words; `None` when
/// all is.
pub fn difference(buffer: &Buffer, offset: usize, seed: u64) -> Option<String> {
    let (mut want, mut have) = (vec![0; BLOCK], vec![0; BLOCK]);
    let len = buffer.len() - offset;
    for start in (0..len).step_by(BLOCK) {
        let size = BLOCK.min(len - start);
        make(seed, start, &mut want[..size]);
        buffer.read_at(offset + start, &mut have[..size]);
        if let Some(i) = (0..size).find(|&i| want[i] != have[i]) {
            let (want, have) = (want[i], have[i]);
            return Some(format!("byte {} is {have:#04x} instead of {want:#04x}", start + i));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use iwarp::Buffer;

    use super::{difference, fill};

    #[test]
    fn every_octet_counts() {
        let len = 3 * super::BLOCK + 5;
        let buffer = Buffer::new(len + 100);
        fill(&buffer, 100, 7);
        assert_eq!(difference(&buffer, 100, 7), None);
        assert!(difference(&buffer, 100, 8).is_some());
        for at in [0, 8, super::BLOCK, len - 1] {
            let mut octet = [0];
            buffer.read_at(100 + at, &mut octet);
            buffer.write_at(100 + at, &[octet[0] ^ 1]);
            let text = difference(&buffer, 100, 7).unwrap();
            assert!(text.starts_with(&format!("byte {at} is")), "{text}");
            buffer.write_at(100 + at, &octet);
        }
    }
}
