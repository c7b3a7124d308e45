// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses that do not survive a fault.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use super::Fault;

/// Copies `n` bytes out of registered memory.
///
/// # Safety
///
/// `src` is valid for reads of `n` bytes and `dst` for writes, and they do not overlap. Other
/// threads may write to `src` meanwhile.
pub(crate) unsafe fn load(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    unsafe { ptr::copy_nonoverlapping(src, dst, n) };
    Ok(())
}

/// Copies `n` bytes into registered memory, in any order.
///
/// # Safety
///
/// As [`load`]. Other threads may access `dst` meanwhile.
pub(crate) unsafe fn store(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    unsafe { ptr::copy_nonoverlapping(src, dst, n) };
    Ok(())
}

/// Stores a byte; a release, as are those below.
///
/// # Safety
///
/// `dst` is valid for writes and aligned. Other threads may access it meanwhile.
pub(crate) unsafe fn store_u8(dst: *mut u8, value: u8) -> Result<(), Fault> {
    // SAFETY: this function's contract; so for the others.
    unsafe { AtomicU8::from_ptr(dst) }.store(value, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// As [`store_u8`].
pub(crate) unsafe fn store_u16(dst: *mut u16, value: u16) -> Result<(), Fault> {
    // SAFETY: see above.
    unsafe { AtomicU16::from_ptr(dst) }.store(value, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// As [`store_u8`].
pub(crate) unsafe fn store_u32(dst: *mut u32, value: u32) -> Result<(), Fault> {
    // SAFETY: see above.
    unsafe { AtomicU32::from_ptr(dst) }.store(value, Ordering::Release);
    Ok(())
}

/// # Safety
///
/// As [`store_u8`].
#[cfg(target_has_atomic = "64")]
pub(crate) unsafe fn store_u64(dst: *mut u64, value: u64) -> Result<(), Fault> {
    // SAFETY: see above.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(dst) }.store(value, Ordering::Release);
    Ok(())
}

/// Replaces what is in `word` by what `new` makes of it, atomically, and returns what was there.
///
/// # Safety
///
/// `word` is aligned and valid for reads and writes. Other threads may access it meanwhile,
/// atomically.
#[cfg(target_has_atomic = "64")]
pub(crate) unsafe fn update(word: *mut u64, new: impl Fn(u64) -> u64) -> Result<u64, Fault> {
    // SAFETY: this function's contract.
    let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(word) };
    let mut old = word.load(Ordering::SeqCst);
    loop {
        match word.compare_exchange_weak(old, new(old), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Ok(old),
            Err(now) => old = now,
        }
    }
}

/// Replaces a word where the processor has no instructions for that: atomic among the operations
/// of the network only, which is what RFC 7306 §5 demands.
///
/// # Safety
///
/// `word` is aligned and valid for reads and writes. Other threads may access it meanwhile,
/// atomically.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) unsafe fn update(word: *mut u64, new: impl Fn(u64) -> u64) -> Result<u64, Fault> {
    use std::sync::{Mutex, PoisonError};

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this function's contract.
    unsafe {
        let old = word.read_volatile();
        word.write_volatile(new(old));
        Ok(old)
    }
}

/// Checks that the byte can be read; always succeeds here.
pub(crate) fn probe_read(_addr: *const u8) -> Result<(), Fault> {
    Ok(())
}

/// Checks that the byte can be written; always succeeds here.
pub(crate) fn probe_write(_addr: *mut u8) -> Result<(), Fault> {
    Ok(())
}
