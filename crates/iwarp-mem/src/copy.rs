// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies between registered memory and ordinary memory, for transports that no system call serves.

use std::mem::MaybeUninit;

use iwarp_types::AccessError;

use crate::reach::{load, store};

/// Copies bytes that lie at `from` into `to`.
///
/// # Errors
///
/// [`AccessError::BadAddress`] if some are not there. The contents of `to` are then unspecified;
/// else all of it is initialised.
///
/// # Safety
///
/// The bytes at `from`, as many as `to` has, are readable or not mapped. Others may write there
/// meanwhile; no `&mut` to them is in use.
pub unsafe fn copy_out(to: &mut [MaybeUninit<u8>], from: *const u8) -> Result<(), AccessError> {
    // SAFETY: of `from` this function's contract says it; `to` is borrowed mutably, so the two do
    // not overlap.
    Ok(unsafe { load(to.as_mut_ptr().cast(), from, to.len()) }?)
}

/// Copies `from` to the place `to`.
///
/// # Errors
///
/// [`AccessError::BadAddress`] if that is not there. The number of bytes stored is then
/// unspecified.
///
/// # Safety
///
/// The bytes at `to`, as many as `from` has, are writable or not mapped. Others may read and write
/// there meanwhile; no Rust reference to them is in use.
pub unsafe fn copy_in(to: *mut u8, from: &[u8]) -> Result<(), AccessError> {
    // SAFETY: of `to` this function's contract says it; `from` is borrowed, so the two do not
    // overlap.
    Ok(unsafe { store(to, from.as_ptr(), from.len()) }?)
}
