// SPDX-License-Identifier: MIT OR Apache-2.0

//! Features of the processor in one word, as each long copy and each segment asks for them.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::atomic::{AtomicU8, Ordering};

/// The processor was looked at ([`look`]).
pub(crate) const KNOWN: u8 = 1;
/// It has AVX.
pub(crate) const AVX: u8 = 2;
/// It says that its string copies are fast at any length (FSRM): older ones are slow to begin with
/// them.
pub(crate) const FAST_STRINGS: u8 = 4;
/// It multiplies without carries: 16 bytes at a time, 32 and 64.
pub(crate) const FOLDS_16: u8 = 8;
pub(crate) const FOLDS_32: u8 = 16;
pub(crate) const FOLDS_64: u8 = 32;

static FEATURES: AtomicU8 = AtomicU8::new(0);

/// The features, if they are [`KNOWN`]; 0 otherwise.
#[inline]
pub(crate) fn known() -> u8 {
    FEATURES.load(Ordering::Relaxed)
}

/// True if it has one of these features.
#[inline]
pub(crate) fn has(what: u8) -> bool {
    let features = match known() {
        0 => look(),
        known => known,
    };
    features & what != 0
}

/// Finds out what the processor has.
#[cold]
pub(crate) fn look() -> u8 {
    // Safe functions in newer versions of Rust.
    #[allow(unused_unsafe)]
    // SAFETY: every processor of 64 bits has the instruction.
    let fast = unsafe { __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx >> 4 & 1 == 1 };
    let folds = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
    let folds_wide = folds && is_x86_feature_detected!("vpclmulqdq");
    let features = [
        (is_x86_feature_detected!("avx"), AVX),
        (fast, FAST_STRINGS),
        (folds, FOLDS_16),
        (folds_wide && is_x86_feature_detected!("avx2"), FOLDS_32),
        (folds_wide && is_x86_feature_detected!("avx512f"), FOLDS_64),
    ];
    let there = features.iter().filter(|(has, _)| *has);
    let features = there.fold(KNOWN, |known, (_, feature)| known | feature);
    FEATURES.store(features, Ordering::Relaxed);
    features
}
