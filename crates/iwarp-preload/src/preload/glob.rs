// SPDX-License-Identifier: MIT OR Apache-2.0

//! `glob`, whose results are paths: the program sees them as it asked for them.

use core::ffi::{c_char, c_int, c_void};

use super::c;
use super::redirect::{redirect, tree};

/// The beginning of `glob_t` and `glob64_t`, which are the same on 64 bits.
#[repr(C)]
pub(crate) struct Found {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
}

/// Calls `real` for what stands for the pattern, and takes the tree out of the paths found.
///
/// # Safety
///
/// The demands of libc's `glob` hold.
pub(crate) unsafe fn glob(
    pattern: *const c_char,
    flags: c_int,
    found: *mut c_void,
    real: impl Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: a string.
    unsafe {
        redirect(pattern, |pattern, is_ours| {
            let result = real(pattern);
            if result == 0 && is_ours {
                strip(&*found.cast::<Found>(), flags);
            }
            result
        })
    }
}

/// # Safety
///
/// `found` is what libc's `glob` has filled.
unsafe fn strip(found: &Found, flags: c_int) {
    let Some((tree, length)) = tree() else { return };
    let offset = if flags & c::GLOB_DOOFFS != 0 { found.offset } else { 0 };
    for place in 0..found.count {
        // SAFETY: there are so many behind the offset, each a string.
        let path = unsafe { found.paths.add(place.wrapping_add(offset)).read() };
        // SAFETY: strings both; as many bytes were equal.
        unsafe {
            if c::strncmp(path, tree.cast(), length) == 0 {
                let rest = path.add(length);
                c::memmove(path.cast(), rest.cast(), c::strlen(rest).wrapping_add(1));
            }
        }
    }
}
