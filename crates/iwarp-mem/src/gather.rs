//! Loads octets of registered memory that are to be sent.

use std::ptr;

use iwarp_proto::mpa::crc::Crc32c;

use crate::copy_crc::copy_crc;

/// Copies `dst.len()` octets from `src`; feeds `crc` with what was stored in `dst`, whatever the
/// owner of the source does to it meanwhile.
///
/// # Safety
///
/// `src` is valid for reads of `dst.len()` octets that are not part of `dst`. Other threads may
/// write to them meanwhile.
pub(crate) unsafe fn gather(dst: &mut [u8], src: *const u8, crc: Option<&mut Crc32c>) {
    match crc {
        // SAFETY: this function's contract.
        Some(crc) => unsafe { copy_crc(dst, src, crc) },
        // SAFETY: this function's contract.
        None => unsafe { ptr::copy_nonoverlapping(src, dst.as_mut_ptr(), dst.len()) },
    }
}
