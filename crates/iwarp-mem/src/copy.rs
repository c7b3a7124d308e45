// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies between registered memory and the library's own, for transports that no system call
//! serves.
//!
//! Both sides are raw pointers: the library's own side may be memory that another process writes.

use iwarp_types::{AccessError, AtomicOp};

use crate::atomic::atomic;
use crate::place::place_from;
use crate::reach::{load, store};

/// Copies `len` bytes that lie at `from` to `to`.
///
/// # Errors
///
/// [`AccessError::BadAddress`] if some are not there. The contents of `to` are then unspecified;
/// else all of it is initialised.
///
/// # Safety
///
/// The bytes at `from` are readable or not mapped, those at `to` are writable, and they do not
/// overlap. Others may access them meanwhile; no Rust reference to what is written is in use, and
/// no `&mut` to what is read.
pub unsafe fn copy_out(to: *mut u8, from: *const u8, len: usize) -> Result<(), AccessError> {
    // SAFETY: this function's contract.
    Ok(unsafe { load(to, from, len) }?)
}

/// Copies `len` bytes that lie at `from` to the place `to`.
///
/// # Errors
///
/// [`AccessError::BadAddress`] if that is not there. The number of bytes stored is then
/// unspecified.
///
/// # Safety
///
/// As [`copy_out`], with the place that may not be mapped being `to`.
pub unsafe fn copy_in(to: *mut u8, from: *const u8, len: usize) -> Result<(), AccessError> {
    // SAFETY: this function's contract.
    Ok(unsafe { store(to, from, len) }?)
}

/// Copies `len` bytes that lie at `from` to the place `to` as received bytes are placed, the last
/// of them last: a program may wait for that.
///
/// # Errors
///
/// [`AccessError::BadAddress`] if bytes of either side are not there. The last one was not stored
/// then.
///
/// # Safety
///
/// As [`copy_out`], with both being places that may not be mapped.
pub unsafe fn place_at(to: *mut u8, from: *const u8, len: usize) -> Result<(), AccessError> {
    // SAFETY: this function's contract.
    Ok(unsafe { place_from(to, from, len) }?)
}

/// Performs an operation on the 8 bytes at `word`, atomically toward every other one and toward the
/// atomic instructions of all processes that map them, and returns the value before.
///
/// # Errors
///
/// [`AccessError::Unaligned`] unless `word` is a multiple of 8; [`AccessError::BadAddress`] if it
/// is not there. Nothing was done then.
///
/// # Safety
///
/// The bytes are writable or not mapped. Others access them atomically.
pub unsafe fn update_at(word: *mut u64, op: AtomicOp) -> Result<u64, AccessError> {
    if !word.is_aligned() || !word.addr().is_multiple_of(8) {
        return Err(AccessError::Unaligned);
    }
    // SAFETY: this function's contract, and it is aligned.
    Ok(unsafe { atomic(word, op) }?)
}
