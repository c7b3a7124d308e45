// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of `rdma/rsocket.h` that there is.

use std::ffi::c_int;

unsafe extern "C-unwind" {
    /// The C library's own, declared anew: programs may cancel a thread that waits in it, and the
    /// libc crate declares it as a function that never unwinds.
    fn poll(fds: *mut libc::pollfd, nfds: libc::nfds_t, timeout: c_int) -> c_int;
}

/// `rpoll`: all descriptors are ordinary ones. Programs wait with it on the descriptors of event
/// channels.
///
/// # Safety
///
/// As `poll(2)`.
pub unsafe extern "C-unwind" fn rpoll(
    fds: *mut libc::pollfd,
    nfds: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's promise.
    unsafe { poll(fds, nfds, timeout) }
}
