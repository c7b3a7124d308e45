// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is needed of libc. (The crate of that name cannot be had here: the build script compiles this
//! library by itself.)

#![allow(missing_docs, reason = "as in the manual pages")]

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub(super) const PATH_MAX: usize = 4096;
pub(super) const AT_FDCWD: c_int = -100;
pub(super) const O_ACCMODE: c_int = 3;
pub(super) const O_RDONLY: c_int = 0;
pub(super) const O_CREAT: c_int = 0o100;
pub(super) const O_TRUNC: c_int = 0o1000;
pub(super) const O_CLOEXEC: c_int = 0o2_000_000;
pub(super) const O_PATH: c_int = 0o10_000_000;
pub(super) const MFD_CLOEXEC: c_uint = 1;
pub(super) const EROFS: c_int = 30;
pub(super) const ENOSYS: c_int = 38;
pub(super) const GLOB_DOOFFS: c_int = 1 << 3;
pub(super) const GLOB_ABORTED: c_int = 2;
pub(super) const AT_SECURE: c_ulong = 23;
pub(super) const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

pub(super) const SYS_OPENAT: c_long = SYSTEM_CALLS.0;
pub(super) const SYS_MEMFD_CREATE: c_long = SYSTEM_CALLS.1;
pub(super) const SYS_READLINKAT: c_long = SYSTEM_CALLS.2;

/// The numbers of `openat`, `memfd_create` and `readlinkat`.
const SYSTEM_CALLS: (c_long, c_long, c_long) = if cfg!(target_arch = "x86_64") {
    (257, 319, 267)
} else if cfg!(target_arch = "s390x") {
    (288, 350, 299)
} else if cfg!(target_arch = "powerpc64") {
    (286, 360, 296)
} else {
    // All newer architectures share theirs.
    (56, 279, 78)
};

unsafe extern "C" {
    pub(super) fn __errno_location() -> *mut c_int;
    pub(super) fn close(fd: c_int) -> c_int;
    pub(super) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(super) fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    pub(super) fn getauxval(kind: c_ulong) -> c_ulong;
    pub(super) fn getenv(name: *const c_char) -> *mut c_char;
    pub(super) fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void;
    pub(super) fn pread(fd: c_int, to: *mut c_void, room: usize, at: c_long) -> isize;
    pub(super) fn pwrite(fd: c_int, from: *const c_void, length: usize, at: c_long) -> isize;
    pub(super) fn read(fd: c_int, to: *mut c_void, room: usize) -> isize;
    pub(super) fn strlen(text: *const c_char) -> usize;
    pub(super) fn strncmp(a: *const c_char, b: *const c_char, length: usize) -> c_int;
    pub(super) fn syscall(number: c_long, ...) -> c_long;
}
