// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies between registered memory and the library's own, for transports that no system call
//! serves.
//!
//! Both sides are raw pointers: the library's own side may be memory that another process writes.

use iwarp_types::AccessError;

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
