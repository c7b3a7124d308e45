// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pass on x86-64: carry-less multiplication folds the bytes while they go from source to
//! destination in registers, 128 of them at a time.
//!
//! A CRC is the remainder of the message as a polynomial, and 128 bits of message may be replaced
//! by anything congruent to them. So an accumulator of 128 bits takes in the next block by being
//! multiplied by the power of x that the block's distance stands for (reduced to 32 bits: one
//! product for each half of the accumulator) and xored with it. Four registers of such accumulators
//! keep the multiplier busy. What is left at the end is a message of 16 bytes, and the `crc32`
//! instruction finishes it, which knows CRC32c, or else a table.
//!
//! Source bytes are loaded by inline assembly: the compiler may neither load them twice nor assume
//! anything about memory that others write, and the fault handler knows these instructions. Bytes
//! loaded when the memory was gone have no meaning, nor has the CRC.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64,
    _mm_cvtsi32_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_storeu_si128, _mm_xor_si128,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128,
    _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_broadcast_i32x4, _mm512_castsi512_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use iwarp_types::{Digest, Polynomial};

use crate::reach::Fault;
use crate::reach::processor::{FOLDS_16, FOLDS_32, FOLDS_64, has};
use crate::reach::x86_64::{guarded, load};

/// The polynomials, bits reflected: the constants of each are made when its routines are compiled.
pub(super) const CASTAGNOLI: u32 = 0x82f6_3b78;
pub(super) const ETHERNET: u32 = 0xedb8_8320;

/// True if the processor has what [`copy_crc`] needs.
#[inline]
pub(super) fn available() -> bool {
    has(FOLDS_16)
}

/// Copies `dst.len()` bytes from `src`; takes and returns the CRC register (not inverted).
///
/// # Safety
///
/// [`available`] is true; `src` is readable for `dst.len()` bytes that are not part of `dst`, or
/// faults when it is not. Other threads may write to them meanwhile.
pub(super) unsafe fn copy_crc<const P: u32>(
    dst: &mut [u8],
    src: *const u8,
    register: u32,
) -> Result<u32, Fault> {
    let (len, dst) = (dst.len(), dst.as_mut_ptr());
    // SAFETY: the contract of this function; the features are checked.
    unsafe {
        if len >= 512 && has(FOLDS_64) {
            widest::<P>(dst, src, len, register)
        } else if len >= 256 && has(FOLDS_32) {
            wide::<P>(dst, src, len, register)
        } else {
            narrow::<P>(dst, src, len, register)
        }
    }
}

/// x to the power `n` modulo the CRC's polynomial, bits reflected, as a factor of a carry-less
/// product of reflected numbers (which is short of one x).
const fn power(polynomial: u32, n: u32) -> i64 {
    let mut value = 0x8000_0000_u32;
    let mut i = 0;
    while i < n {
        value = (value >> 1) ^ (polynomial & (value & 1).wrapping_neg());
        i += 1;
    }
    (value as i64) << 1
}

/// The two factors that move 128 bits over a distance of `D` bits.
struct Over<const P: u32, const D: u32>;

impl<const P: u32, const D: u32> Over<P, D> {
    /// For the half that comes first in memory.
    const FIRST: i64 = power(P, D + 32);
    /// For the other.
    const SECOND: i64 = power(P, D - 32);

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn factors() -> __m128i {
        _mm_set_epi64x(Self::SECOND, Self::FIRST)
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn fold(x: __m128i) -> __m128i {
        fold(x, Self::factors())
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
    fn fold_wide(x: __m256i) -> __m256i {
        fold_wide(x, _mm256_broadcastsi128_si256(Self::factors()))
    }
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn fold(x: __m128i, factors: __m128i) -> __m128i {
    let first = _mm_clmulepi64_si128::<0x00>(x, factors);
    let second = _mm_clmulepi64_si128::<0x11>(x, factors);
    _mm_xor_si128(first, second)
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
fn fold_wide(x: __m256i, factors: __m256i) -> __m256i {
    let first = _mm256_clmulepi64_epi128::<0x00>(x, factors);
    let second = _mm256_clmulepi64_epi128::<0x11>(x, factors);
    _mm256_xor_si256(first, second)
}

/// Folds `x` and adds `next`.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq,avx512f,vpclmulqdq")]
fn fold_widest(x: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(x, factors);
    let second = _mm512_clmulepi64_epi128::<0x11>(x, factors);
    // The exclusive or of three.
    _mm512_ternarylogic_epi64::<0x96>(first, second, next)
}

/// Copies 16 bytes, loading them once, and returns them. `VEX`: by the encoding that does not
/// stall behind code that used the upper halves of the registers. `fault` changes if they are not
/// there.
///
/// # Safety
///
/// `src` is readable for them or faults, `dst` is valid for writes.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn load_and_store<const VEX: bool>(
    dst: *mut u8,
    src: *const u8,
    fault: &mut usize,
) -> __m128i {
    let x;
    // SAFETY: the assembly reads 16 bytes and does nothing else.
    unsafe {
        if VEX {
            asm!(guarded!("vmovdqu {x}, [{src}]"), x = out(xmm_reg) x, src = in(reg) src,
                inout("r11") *fault, options(nostack, preserves_flags, readonly));
        } else {
            asm!(guarded!("movdqu {x}, [{src}]"), x = out(xmm_reg) x, src = in(reg) src,
                inout("r11") *fault, options(nostack, preserves_flags, readonly));
        }
        _mm_storeu_si128(dst.cast(), x);
    }
    x
}

/// Loads 128 bytes, once. `fault` changes if they are not there.
///
/// # Safety
///
/// `src` is readable for them or faults.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_wide(src: *const u8, fault: &mut usize) -> [__m256i; 4] {
    let (a, b, c, d);
    // SAFETY: reads 128 bytes, nothing else.
    unsafe {
        asm!(
            guarded!(
                "vmovdqu {a}, [{src}]",
                "vmovdqu {b}, [{src} + 32]",
                "vmovdqu {c}, [{src} + 64]",
                "vmovdqu {d}, [{src} + 96]",
            ),
            src = in(reg) src,
            a = out(ymm_reg) a,
            b = out(ymm_reg) b,
            c = out(ymm_reg) c,
            d = out(ymm_reg) d,
            inout("r11") *fault,
            options(nostack, preserves_flags, readonly)
        );
    }
    [a, b, c, d]
}

/// Stores 128 bytes.
///
/// # Safety
///
/// `dst` is valid for writes of them.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_wide(dst: *mut u8, block: [__m256i; 4]) {
    for (i, part) in block.into_iter().enumerate() {
        // SAFETY: this function's contract.
        unsafe { _mm256_storeu_si256(dst.add(32 * i).cast(), part) };
    }
}

/// Loads 256 bytes, once. `fault` changes if they are not there.
///
/// # Safety
///
/// `src` is readable for them or faults.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_widest(src: *const u8, fault: &mut usize) -> [__m512i; 4] {
    let (a, b, c, d);
    // SAFETY: reads 256 bytes, nothing else.
    unsafe {
        asm!(
            guarded!(
                "vmovdqu64 {a}, [{src}]",
                "vmovdqu64 {b}, [{src} + 64]",
                "vmovdqu64 {c}, [{src} + 128]",
                "vmovdqu64 {d}, [{src} + 192]",
            ),
            src = in(reg) src,
            a = out(zmm_reg) a,
            b = out(zmm_reg) b,
            c = out(zmm_reg) c,
            d = out(zmm_reg) d,
            inout("r11") *fault,
            options(nostack, preserves_flags, readonly)
        );
    }
    [a, b, c, d]
}

/// Stores 256 bytes.
///
/// # Safety
///
/// `dst` is valid for writes of them.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_widest(dst: *mut u8, block: [__m512i; 4]) {
    for (i, part) in block.into_iter().enumerate() {
        // SAFETY: this function's contract.
        unsafe { _mm512_storeu_si512(dst.add(64 * i).cast(), part) };
    }
}

/// # Safety
///
/// As [`copy_crc`], with AVX2 and VPCLMULQDQ; `len` is at least 128.
#[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
unsafe fn wide<const P: u32>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    register: u32,
) -> Result<u32, Fault> {
    debug_assert!(len >= 128);
    let factors = _mm256_broadcastsi128_si256(Over::<P, 1024>::factors());
    let mut fault = 0;
    // SAFETY: `len` bytes are left on both sides, and each step takes no more.
    let mut sum = unsafe {
        let block = load_wide(src, &mut fault);
        store_wide(dst, block);
        block
    };
    // Earlier octets count as if the message's first bits were different.
    let register = _mm_cvtsi32_si128(register as i32);
    let register = _mm256_inserti128_si256::<0>(_mm256_setzero_si256(), register);
    sum[0] = _mm256_xor_si256(sum[0], register);
    loop {
        // SAFETY: as above.
        unsafe { (src, dst, len) = (src.add(128), dst.add(128), len - 128) };
        if len < 128 {
            break;
        }
        // SAFETY: as above.
        let block = unsafe { load_wide(src, &mut fault) };
        if fault != 0 {
            break;
        }
        // SAFETY: as above.
        unsafe { store_wide(dst, block) };
        for i in 0..4 {
            sum[i] = _mm256_xor_si256(fold_wide(sum[i], factors), block[i]);
        }
    }
    Fault::check(fault)?;
    let left =
        _mm256_xor_si256(Over::<P, 768>::fold_wide(sum[0]), Over::<P, 512>::fold_wide(sum[1]));
    let right = _mm256_xor_si256(Over::<P, 256>::fold_wide(sum[2]), sum[3]);
    let both = _mm256_xor_si256(left, right);
    let sum = _mm_xor_si128(
        Over::<P, 128>::fold(_mm256_castsi256_si128(both)),
        _mm256_extracti128_si256::<1>(both),
    );
    // SAFETY: the rest of the contract's bytes.
    unsafe { finish::<P, true>(dst, src, len, sum) }
}

/// Does what [`wide`] does, with registers of 512 bits.
///
/// # Safety
///
/// As [`copy_crc`], with AVX-512 and VPCLMULQDQ; `len` is at least 256.
#[target_feature(enable = "sse4.2,pclmulqdq,avx512f,vpclmulqdq")]
unsafe fn widest<const P: u32>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    register: u32,
) -> Result<u32, Fault> {
    debug_assert!(len >= 256);
    let factors = _mm512_broadcast_i32x4(Over::<P, 2048>::factors());
    let mut fault = 0;
    // SAFETY: `len` bytes are left on both sides, and each step takes no more.
    let mut sum = unsafe {
        let block = load_widest(src, &mut fault);
        store_widest(dst, block);
        block
    };
    // Earlier octets count as if the message's first bits were different.
    let register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register as i32));
    sum[0] = _mm512_xor_si512(sum[0], register);
    loop {
        // SAFETY: as above.
        unsafe { (src, dst, len) = (src.add(256), dst.add(256), len - 256) };
        if len < 256 {
            break;
        }
        // SAFETY: as above.
        let block = unsafe { load_widest(src, &mut fault) };
        if fault != 0 {
            break;
        }
        // SAFETY: as above.
        unsafe { store_widest(dst, block) };
        for i in 0..4 {
            sum[i] = fold_widest(sum[i], factors, block[i]);
        }
    }
    Fault::check(fault)?;
    let over_3 = _mm512_broadcast_i32x4(Over::<P, 1536>::factors());
    let over_2 = _mm512_broadcast_i32x4(Over::<P, 1024>::factors());
    let over_1 = _mm512_broadcast_i32x4(Over::<P, 512>::factors());
    let left = fold_widest(sum[0], over_3, fold_widest(sum[1], over_2, sum[3]));
    let all = fold_widest(sum[2], over_1, left);
    let left = _mm_xor_si128(
        Over::<P, 384>::fold(_mm512_castsi512_si128(all)),
        Over::<P, 256>::fold(_mm512_extracti32x4_epi32::<1>(all)),
    );
    let right = _mm_xor_si128(
        Over::<P, 128>::fold(_mm512_extracti32x4_epi32::<2>(all)),
        _mm512_extracti32x4_epi32::<3>(all),
    );
    // SAFETY: the rest of the contract's bytes.
    unsafe { finish::<P, true>(dst, src, len, _mm_xor_si128(left, right)) }
}

/// # Safety
///
/// As [`copy_crc`].
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn narrow<const P: u32>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    register: u32,
) -> Result<u32, Fault> {
    if len < 16 {
        // SAFETY: this function's contract.
        return unsafe { tail::<P>(dst, src, len, register) };
    }
    let register = _mm_cvtsi32_si128(register as i32);
    let mut fault = 0;
    // SAFETY: `len` bytes are left on both sides, and each step takes no more.
    unsafe {
        if len < 64 {
            let sum = _mm_xor_si128(load_and_store::<false>(dst, src, &mut fault), register);
            Fault::check(fault)?;
            return finish::<P, false>(dst.add(16), src.add(16), len - 16, sum);
        }
        let factors = Over::<P, 512>::factors();
        let mut sum = [register, _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()];
        for (i, sum) in sum.iter_mut().enumerate() {
            let (dst, src) = (dst.add(16 * i), src.add(16 * i));
            *sum = _mm_xor_si128(*sum, load_and_store::<false>(dst, src, &mut fault));
        }
        loop {
            (src, dst, len) = (src.add(64), dst.add(64), len - 64);
            if len < 64 || fault != 0 {
                break;
            }
            for (i, sum) in sum.iter_mut().enumerate() {
                let (dst, src) = (dst.add(16 * i), src.add(16 * i));
                let block = load_and_store::<false>(dst, src, &mut fault);
                *sum = _mm_xor_si128(fold(*sum, factors), block);
            }
        }
        Fault::check(fault)?;
        let left = _mm_xor_si128(Over::<P, 384>::fold(sum[0]), Over::<P, 256>::fold(sum[1]));
        let right = _mm_xor_si128(Over::<P, 128>::fold(sum[2]), sum[3]);
        finish::<P, false>(dst, src, len, _mm_xor_si128(left, right))
    }
}

/// Goes on from 128 bits that stand for all before.
///
/// # Safety
///
/// As [`copy_crc`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn finish<const P: u32, const VEX: bool>(
    mut dst: *mut u8,
    mut src: *const u8,
    mut len: usize,
    mut sum: __m128i,
) -> Result<u32, Fault> {
    let mut fault = 0;
    while len >= 16 {
        // SAFETY: 16 bytes are left on both sides.
        unsafe {
            let block = load_and_store::<VEX>(dst, src, &mut fault);
            sum = _mm_xor_si128(Over::<P, 128>::fold(sum), block);
            (src, dst, len) = (src.add(16), dst.add(16), len - 16);
        }
    }
    Fault::check(fault)?;
    let mut left = [0_u8; 16];
    // SAFETY: 16 bytes are there.
    unsafe { _mm_storeu_si128(left.as_mut_ptr().cast(), sum) };
    let register = feed::<P>(0, &left);
    // SAFETY: the rest of the contract's bytes.
    unsafe { tail::<P>(dst, src, len, register) }
}

/// The last few bytes: copied first, and taken from the copy.
///
/// # Safety
///
/// As [`copy_crc`].
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn tail<const P: u32>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    register: u32,
) -> Result<u32, Fault> {
    // SAFETY: `len` bytes are left on both sides.
    let copied = unsafe {
        load(dst, src, len)?;
        std::slice::from_raw_parts(dst, len)
    };
    Ok(feed::<P>(register, copied))
}

/// Feeds a few bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
fn feed<const P: u32>(mut register: u32, octets: &[u8]) -> u32 {
    if P != CASTAGNOLI {
        let mut digest = Digest::from_register(Polynomial::Ethernet, register);
        digest.update(octets);
        return digest.register();
    }
    let words = octets.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        let word = u64::from_le_bytes(word.try_into().expect("8 octets"));
        register = _mm_crc32_u64(register.into(), word) as u32;
    }
    for &octet in rest {
        register = _mm_crc32_u8(register, octet);
    }
    register
}

/// Every width that the processor has, not only the one that would be chosen.
#[cfg(test)]
pub(super) fn each_for_tests<const P: u32>() -> Vec<(&'static str, super::tests::Routine)> {
    unsafe fn narrow_only<const P: u32>(
        dst: &mut [u8],
        src: *const u8,
        crc: &mut Digest,
    ) -> Result<(), Fault> {
        // SAFETY: only listed if available; the rest is the caller's.
        let register = unsafe { narrow::<P>(dst.as_mut_ptr(), src, dst.len(), crc.register()) };
        crc.set_register(register?);
        Ok(())
    }
    unsafe fn wide_if_long<const P: u32>(
        dst: &mut [u8],
        src: *const u8,
        crc: &mut Digest,
    ) -> Result<(), Fault> {
        let (to, len) = (dst.as_mut_ptr(), dst.len());
        // SAFETY: only listed if available; the rest is the caller's.
        let register = unsafe {
            if len >= 128 {
                wide::<P>(to, src, len, crc.register())
            } else {
                narrow::<P>(to, src, len, crc.register())
            }
        };
        crc.set_register(register?);
        Ok(())
    }
    unsafe fn widest_if_long<const P: u32>(
        dst: &mut [u8],
        src: *const u8,
        crc: &mut Digest,
    ) -> Result<(), Fault> {
        let (to, len) = (dst.as_mut_ptr(), dst.len());
        // SAFETY: only listed if available; the rest is the caller's.
        let register = unsafe {
            if len >= 256 {
                widest::<P>(to, src, len, crc.register())
            } else {
                narrow::<P>(to, src, len, crc.register())
            }
        };
        crc.set_register(register?);
        Ok(())
    }

    let mut routines: Vec<(&'static str, super::tests::Routine)> = Vec::new();
    if available() {
        routines.push(("narrow", narrow_only::<P>));
        if has(FOLDS_32) {
            routines.push(("wide", wide_if_long::<P>));
        }
        if has(FOLDS_64) {
            routines.push(("widest", widest_if_long::<P>));
        }
    }
    routines
}
