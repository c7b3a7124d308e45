// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copying and checksumming in one pass.
//!
//! The source may change at any moment, so each byte is loaded once and both stored and fed to the
//! CRC, or the CRC is taken of the destination: it always fits what was stored.

use std::sync::atomic::{Ordering, compiler_fence};

use iwarp_types::Digest;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, kernel_copies))))]
use iwarp_types::Polynomial;

use crate::reach::{Fault, load};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, kernel_copies))))]
mod x86_64;

/// Copies `dst.len()` bytes from `src` and feeds them, as stored in `dst`, to `crc`.
///
/// # Safety
///
/// `src` is readable for `dst.len()` bytes that are not part of `dst`, or faults when it is not.
/// Other threads may write to them meanwhile.
///
/// # Errors
///
/// [`Fault`] where they are not there; the contents of `dst` and `crc` are then unspecified.
pub(crate) unsafe fn copy_crc(
    dst: &mut [u8],
    src: *const u8,
    crc: &mut Digest,
) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, kernel_copies))))]
    if x86_64::available() {
        let routine = match crc.polynomial() {
            Polynomial::Castagnoli => x86_64::copy_crc::<{ x86_64::CASTAGNOLI }>,
            Polynomial::Ethernet => x86_64::copy_crc::<{ x86_64::ETHERNET }>,
        };
        // SAFETY: this function's contract, and the features are there.
        let register = unsafe { routine(dst, src, crc.register())? };
        crc.set_register(register);
        return Ok(());
    }
    // SAFETY: this function's contract.
    unsafe { portable(dst, src, crc) }
}

/// A block that is still in the first-level cache when its CRC is taken.
const BLOCK: usize = 8 << 10;

/// # Safety
///
/// As [`copy_crc`].
unsafe fn portable(dst: &mut [u8], mut src: *const u8, crc: &mut Digest) -> Result<(), Fault> {
    for block in dst.chunks_mut(BLOCK) {
        // SAFETY: the chunks add up to `dst.len()`; `src` stays within, or one past the end.
        unsafe {
            load(block.as_mut_ptr(), src, block.len())?;
            src = src.add(block.len());
        }
        // The compiler may not take the bytes from the source again.
        compiler_fence(Ordering::SeqCst);
        crc.update(block);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use iwarp_types::Polynomial;

    use super::*;

    pub(super) type Routine = unsafe fn(&mut [u8], *const u8, &mut Digest) -> Result<(), Fault>;

    /// A routine, its name, and the polynomial that it is tried with.
    type Tried = (Polynomial, &'static str, Routine);

    fn routines() -> Vec<Tried> {
        [Polynomial::Castagnoli, Polynomial::Ethernet].into_iter().flat_map(routines_of).collect()
    }

    fn routines_of(polynomial: Polynomial) -> Vec<Tried> {
        let mut routines: Vec<(&str, Routine)> =
            vec![("portable", portable as Routine), ("chosen", copy_crc as Routine)];
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, kernel_copies))))]
        routines.extend(match polynomial {
            Polynomial::Castagnoli => x86_64::each_for_tests::<{ x86_64::CASTAGNOLI }>(),
            Polynomial::Ethernet => x86_64::each_for_tests::<{ x86_64::ETHERNET }>(),
        });
        routines.into_iter().map(|(name, routine)| (polynomial, name, routine)).collect()
    }

    /// Bytes without a pattern that a wrong factor could hide in.
    fn octets(n: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..n)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    /// The definition, bit by bit.
    fn reference(polynomial: Polynomial, mut register: u32, data: &[u8]) -> u32 {
        let generator = match polynomial {
            Polynomial::Castagnoli => 0x82f6_3b78,
            Polynomial::Ethernet => 0xedb8_8320,
        };
        for &octet in data {
            register ^= u32::from(octet);
            for _ in 0..8 {
                register = (register >> 1) ^ (generator & (register & 1).wrapping_neg());
            }
        }
        register
    }

    #[track_caller]
    fn check((polynomial, name, routine): Tried, source: &[u8], dst_at: usize, register: u32) {
        let n = source.len();
        let mut dst = vec![0xa5; n + 64];
        let mut crc = Digest::from_register(polynomial, register);
        // SAFETY: both are that long.
        unsafe { routine(&mut dst[dst_at..dst_at + n], source.as_ptr(), &mut crc) }.unwrap();
        assert_eq!(&dst[dst_at..dst_at + n], source, "{polynomial:?}, {name} of {n}");
        let untouched = dst[..dst_at].iter().chain(&dst[dst_at + n..]).all(|&x| x == 0xa5);
        assert!(untouched, "{polynomial:?}, {name} of {n}: wrote outside");
        assert_eq!(
            crc.register(),
            reference(polynomial, register, source),
            "{polynomial:?}, {name} of {n}"
        );
    }

    #[test]
    fn every_short_length_is_copied_with_its_crc() {
        let source = octets(3200);
        let most = if cfg!(miri) { 300 } else { 3100 };
        for routine in routines() {
            for n in 0..=most {
                let (from, to) = (n % 37, n % 17);
                check(routine, &source[from..from + n], to, 0xffff_ffff ^ n as u32);
            }
        }
    }

    #[test]
    fn every_alignment_is_copied_with_its_crc() {
        let source = octets(1500);
        for routine in routines() {
            for at in 0..64 {
                check(routine, &source[at..at + 1021], at, 0xffff_ffff);
                check(routine, &source[at..at + 97], 63 - at, 0);
            }
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn large_blocks_are_copied_with_their_crc() {
        let source = octets(3 << 20);
        for routine in routines() {
            for n in [BLOCK - 1, BLOCK, BLOCK + 1, 65_483, 1 << 20, (3 << 20) - 7] {
                check(routine, &source[..n], 5, 0xffff_ffff);
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_octets_in_any_two_pieces_are_copied_with_their_crc(
            source: Vec<u8>,
            register: u32,
            cut: proptest::sample::Index,
        ) {
            let cut = cut.index(source.len() + 1);
            for (polynomial, _, routine) in routines() {
                let mut dst = vec![0; source.len()];
                let (left, right) = dst.split_at_mut(cut);
                let mut crc = Digest::from_register(polynomial, register);
                // SAFETY: both are that long.
                unsafe {
                    routine(left, source.as_ptr(), &mut crc).unwrap();
                    routine(right, source[cut..].as_ptr(), &mut crc).unwrap();
                }
                proptest::prop_assert_eq!(&dst, &source);
                proptest::prop_assert_eq!(crc.register(), reference(polynomial, register, &source));
            }
        }
    }

    /// The CRC must fit what was copied even while the source changes (a Read Response whose source
    /// its owner keeps writing must not become a CRC error at the peer).
    #[cfg(not(miri))]
    #[test]
    fn the_crc_is_that_of_the_copy_while_the_source_changes() {
        use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

        let source: Vec<AtomicU8> = (0..4099).map(|_| AtomicU8::new(0)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = 0_u8;
                while !done.load(Ordering::Relaxed) {
                    value = value.wrapping_add(0x5b);
                    source.iter().for_each(|octet| octet.store(value, Ordering::Relaxed));
                }
            });
            let mut dst = vec![0; source.len()];
            let mut mixed = 0;
            for round in 0..3000 {
                for (polynomial, name, routine) in routines() {
                    let start = Digest::from_register(polynomial, u32::MAX);
                    let mut crc = start;
                    let n = dst.len() - round % 200;
                    // SAFETY: both are that long.
                    unsafe { routine(&mut dst[..n], source.as_ptr().cast(), &mut crc) }.unwrap();
                    let mut plain = start;
                    plain.update(&dst[..n]);
                    assert_eq!(crc.register(), plain.register(), "{name}");
                    mixed += usize::from(dst[0] != dst[n - 1]);
                }
                if round % 100 == 0 {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
            std::hint::black_box(mixed);
        });
    }
}
