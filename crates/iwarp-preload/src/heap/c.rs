// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of libc that is needed.

#![allow(missing_docs, reason = "as in the manual pages")]

use core::ffi::{c_char, c_int, c_ulong, c_void};

pub(super) const AT_PAGESZ: c_ulong = 6;
pub(super) const ENOMEM: c_int = 12;
pub(super) const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

unsafe extern "C" {
    pub(super) fn __errno_location() -> *mut c_int;
    pub(super) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(super) fn getauxval(kind: c_ulong) -> c_ulong;
    pub(super) fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void;
    pub(super) fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void;
    /// `pthread_atfork`, which older versions of glibc have in a static part. Handlers of null stay
    /// as long as the process.
    pub(super) fn __register_atfork(
        before: Option<extern "C" fn()>,
        in_parent: Option<extern "C" fn()>,
        in_child: Option<extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
}
