// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files of the tree that a program wants to write: those below /sys are all runs', and so
//! read-only.

use core::ffi::{c_char, c_int};

use super::c;
use super::counters::begins_with;
use super::redirect::tree;

/// True if a file that is opened with these flags is written to or made.
pub(super) const fn by_flags(flags: c_int) -> bool {
    flags & c::O_ACCMODE != c::O_RDONLY || flags & (c::O_CREAT | c::O_TRUNC) != 0
}

/// Likewise, of a stream's mode.
///
/// # Safety
///
/// It is a string.
pub(super) unsafe fn by_mode(mode: *const c_char) -> bool {
    let mut mode = mode.cast::<u8>();
    // SAFETY: a string has a first byte.
    if unsafe { mode.read() } != b'r' {
        return true;
    }
    loop {
        // SAFETY: not beyond the string's NUL.
        match unsafe { mode.read() } {
            b'+' => return true,
            // Behind the comma is the name of a character set.
            0 | b',' => return false,
            _ => mode = mode.wrapping_add(1),
        }
    }
}

/// Tells if the file stays as it is; `errno` says so then. A device is opened for writing.
///
/// # Safety
///
/// `path` is a string: the tree's path, and that of the file behind it.
pub(super) unsafe fn is_refused(path: *const c_char) -> bool {
    let Some((_, length)) = tree() else { return false };
    // SAFETY: the caller's promise.
    let refused = unsafe { begins_with(path.cast::<u8>().add(length), b"/sys/") };
    if refused {
        // SAFETY: it gives the address of this thread's own.
        unsafe { *c::__errno_location() = c::EROFS };
    }
    refused
}
