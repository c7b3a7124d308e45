// SPDX-License-Identifier: MIT OR Apache-2.0

//! Port numbers at which the program listens by RDMA and by TCP of its own.
//!
//! The listener finds out by itself if RDMA comes last. If it comes first, the program's call to
//! the C library fails, and the preloaded library of `iwarp run` asks here.

use std::ffi::{c_int, c_uint};
use std::mem::{size_of, transmute};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp::Log;
use iwarp_os::socket::beside;

use super::addr;
use crate::calls::Call;
use crate::guard::{self, say};

/// As in the preloaded library.
type Handler = unsafe extern "C" fn(c_int, *const libc::sockaddr, c_uint, c_int) -> c_int;

/// Listeners share their port numbers with the program from now on.
pub(super) fn share() {
    static DONE: AtomicBool = AtomicBool::new(false);

    // Two threads may do it, and none waits.
    if DONE.load(Ordering::Acquire) {
        return;
    }
    beside::enable();
    // SAFETY: a string.
    let set = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"iwarp_preload_set_ports".as_ptr()) };
    if !set.is_null() {
        // SAFETY: its name stands for this signature.
        let set: extern "C" fn(Option<Handler>) = unsafe { transmute(set) };
        // This library is never unloaded.
        set(Some(in_use));
    }
    DONE.store(true, Ordering::Release);
}

/// Binds a socket of the program's to a name or, where that is null, has it listen; 0 if that is
/// done.
///
/// # Safety
///
/// `name` is null or an address of that length.
unsafe extern "C" fn in_use(
    fd: c_int,
    name: *const libc::sockaddr,
    length: c_uint,
    backlog: c_int,
) -> c_int {
    guard::value(Call::part_of("rdma_listen"), -1, || {
        if fd < 0 {
            return -1;
        }
        // SAFETY: the program has just called the C library with it.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        if name.is_null() {
            return done(beside::listen(socket, backlog));
        }
        // SAFETY: the kernel has read it.
        let whole = match c_int::from(unsafe { (*name).sa_family }) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => return -1,
        };
        if (length as usize) < whole {
            return -1;
        }
        // SAFETY: of a family that it knows, and as long.
        match unsafe { addr::read(name) } {
            Ok(addr) => done(beside::bind(socket, addr)),
            Err(_) => -1,
        }
    })
}

fn done(result: std::io::Result<()>) -> c_int {
    if result.is_err() {
        return -1;
    }
    say(
        Log::Info,
        format_args!(
            "the program's TCP socket shares the number of a listener for RDMA: clients of this \
             library come to the listener, all others to the socket"
        ),
    );
    0
}
