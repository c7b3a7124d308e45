// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loads bytes of registered memory that are to be sent.

use iwarp_types::Digest;

use crate::copy_crc::copy_crc;
use crate::reach::{Fault, load};

/// Copies `dst.len()` bytes from `src`; feeds `crc` with what was stored in `dst`, even if the
/// owner of the source changes it meanwhile.
///
/// # Safety
///
/// `src` is readable for `dst.len()` bytes that are not part of `dst`, or faults when it is not.
/// Other threads may write to them meanwhile.
///
/// # Errors
///
/// [`Fault`] where they are not there; the contents of `dst` and `crc` are then unspecified.
#[inline]
pub(crate) unsafe fn gather(
    dst: &mut [u8],
    src: *const u8,
    crc: Option<&mut Digest>,
) -> Result<(), Fault> {
    match crc {
        // SAFETY: this function's contract.
        Some(crc) => unsafe { copy_crc(dst, src, crc) },
        // SAFETY: this function's contract.
        None => unsafe { load(dst.as_mut_ptr(), src, dst.len()) },
    }
}
