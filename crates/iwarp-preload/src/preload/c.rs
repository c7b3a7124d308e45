// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of libc that is needed. (The crate of that name cannot be had here: the build script
//! compiles this library by itself.)

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
pub(super) const EMSGSIZE: c_int = 90;
pub(super) const EADDRINUSE: c_int = 98;
pub(super) const ENOBUFS: c_int = 105;
pub(super) const AF_NETLINK: c_int = 16;
pub(super) const NETLINK_USERSOCK: c_int = 2;
pub(super) const NETLINK_RDMA: c_int = 20;
pub(super) const SOL_SOCKET: c_int = 1;
pub(super) const SO_RCVBUF: c_int = 8;
pub(super) const SO_RCVBUFFORCE: c_int = 33;
pub(super) const SO_PROTOCOL: c_int = 38;
pub(super) const SO_DOMAIN: c_int = 39;
pub(super) const MSG_DONTWAIT: c_int = 0x40;
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

/// `struct sockaddr_nl`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NetlinkAddress {
    pub(super) family: u16,
    pub(super) padding: u16,
    pub(super) port: u32,
    pub(super) groups: u32,
}

/// `struct iovec`.
#[repr(C)]
pub(super) struct Piece {
    pub(super) start: *mut u8,
    pub(super) length: usize,
}

/// `struct msghdr` of glibc.
#[repr(C)]
pub(super) struct Msghdr {
    pub(super) name: *mut c_void,
    pub(super) name_length: c_uint,
    pub(super) pieces: *mut Piece,
    pub(super) piece_count: usize,
    pub(super) control: *mut c_void,
    pub(super) control_length: usize,
    pub(super) flags: c_int,
}

unsafe extern "C" {
    pub(super) fn __errno_location() -> *mut c_int;
    pub(super) fn close(fd: c_int) -> c_int;
    pub(super) fn connect(fd: c_int, name: *const c_void, length: c_uint) -> c_int;
    pub(super) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(super) fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    pub(super) fn getauxval(kind: c_ulong) -> c_ulong;
    pub(super) fn getenv(name: *const c_char) -> *mut c_char;
    pub(super) fn getsockname(fd: c_int, name: *mut c_void, length: *mut c_uint) -> c_int;
    pub(super) fn getsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        length: *mut c_uint,
    ) -> c_int;
    pub(super) fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void;
    pub(super) fn pread(fd: c_int, to: *mut c_void, room: usize, at: c_long) -> isize;
    pub(super) fn pwrite(fd: c_int, from: *const c_void, length: usize, at: c_long) -> isize;
    pub(super) fn read(fd: c_int, to: *mut c_void, room: usize) -> isize;
    pub(super) fn setsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *const c_void,
        length: c_uint,
    ) -> c_int;
    pub(super) fn strlen(text: *const c_char) -> usize;
    pub(super) fn strncmp(a: *const c_char, b: *const c_char, length: usize) -> c_int;
    pub(super) fn syscall(number: c_long, ...) -> c_long;
}
