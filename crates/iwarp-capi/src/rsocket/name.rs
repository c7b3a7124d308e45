// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of sockets.

use std::ffi::c_int;
use std::net::SocketAddr;

use super::table;
use super::waiting::errno;
use crate::calls::called;
use crate::cm::addr;
use crate::guard;

/// `rgetpeername`
///
/// # Safety
///
/// As `getpeername(2)`.
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut libc::sockaddr,
    addrlen: *mut libc::socklen_t,
) -> c_int {
    guard::minus_one(called!(rgetpeername(socket, addr, addrlen)), || {
        let peer = table::get(socket)?.socket.peer_addr().map_err(errno)?;
        // SAFETY: the program's promise.
        unsafe { write(peer, addr, addrlen) };
        Ok(0)
    })
}

/// `rgetsockname`
///
/// # Safety
///
/// As `getsockname(2)`.
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut libc::sockaddr,
    addrlen: *mut libc::socklen_t,
) -> c_int {
    guard::minus_one(called!(rgetsockname(socket, addr, addrlen)), || {
        let local = table::get(socket)?.socket.local_addr().map_err(errno)?;
        // SAFETY: the program's promise.
        unsafe { write(local, addr, addrlen) };
        Ok(0)
    })
}

/// Writes an address, as much of it as there is room for, and its length.
///
/// # Safety
///
/// `to` is null or has `*len` bytes.
pub(super) unsafe fn write(from: SocketAddr, to: *mut libc::sockaddr, len: *mut libc::socklen_t) {
    let storage = addr::storage(from);
    let whole = match from {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: the caller's promise.
    unsafe {
        let Some(len) = len.as_mut() else { return };
        if !to.is_null() {
            let room = (*len as usize).min(whole);
            std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), to.cast(), room);
        }
        *len = whole as libc::socklen_t;
    }
}

/// Writes that there is no address.
///
/// # Safety
///
/// As [`write`].
pub(super) unsafe fn write_none(to: *mut libc::sockaddr, len: *mut libc::socklen_t) {
    // SAFETY: the caller's promise.
    if let Some(len) = unsafe { len.as_mut() }.filter(|_| !to.is_null()) {
        *len = 0;
    }
}
