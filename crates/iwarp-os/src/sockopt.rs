// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket options that rustix does not have, by raw system call.
//!
//! (Considered: `socket2` and `nix`. They call libc's functions, which preloaded libraries replace,
//! and lack several of these options.)

use std::ffi::{c_int, c_ushort};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads an option whose value is one `int`.
pub(crate) fn int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    octets(fd, level, name, &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// Reads an option whose value is a structure, as much of it as there is and goes into `value`;
/// returns how much that is.
pub(crate) fn octets(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value` and the new length to `len`;
    // both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

/// The number of the network that a socket is in.
pub(crate) fn network(fd: BorrowedFd<'_>) -> io::Result<u64> {
    /// Since Linux 5.14.
    const SO_NETNS_COOKIE: c_int =
        if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x50 } else { 71 };

    let mut value = [0; size_of::<u64>()];
    octets(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut value)?;
    Ok(u64::from_ne_bytes(value))
}

/// Sets an option whose value is one `int`.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes from `value`, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_setsockopt, fd.as_raw_fd(), level, name, &raw const value, len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `sock_fprog`, whose padding has a value: valgrind reports bytes that the kernel reads and that
/// were never set, and the compiler drops those that no field holds.
#[repr(C)]
struct Program {
    len: c_ushort,
    padding: [u8; PADDING],
    filter: *mut libc::sock_filter,
}

const PADDING: usize = offset_of!(libc::sock_fprog, filter) - size_of::<c_ushort>();

const _: () = assert!(
    size_of::<Program>() == size_of::<libc::sock_fprog>()
        && offset_of!(Program, filter) == offset_of!(libc::sock_fprog, filter),
);

/// Has a program of classic BPF choose among the sockets of this one's group (`SO_REUSEPORT`).
pub(crate) fn attach_reuseport(
    fd: BorrowedFd<'_>,
    steps: &mut [libc::sock_filter],
) -> io::Result<()> {
    let program =
        Program { len: steps.len() as c_ushort, padding: [0; PADDING], filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the structure and the steps that it points to, which outlive the
    // call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF as c_int,
            &raw const program,
            size_of::<Program>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
