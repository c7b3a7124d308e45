// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports that the program and the drop-in libraries both listen at: to an RDMA card these are two.
//!
//! The libraries get the chance to do a call for a TCP socket of the program's that fails for want
//! of the port, as they know if one of their listeners is in the way.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::c;
use super::functions::real;
use super::sockets::{errno, functions, set_errno};

/// The function that the libraries have for such calls: binds the socket to the name or, where that
/// is null, has it listen; returns 0 if that is done.
type Handler = unsafe extern "C" fn(c_int, *const c_void, c_uint, c_int) -> c_int;

static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The libraries call this by its name, `null` for no handler.
#[unsafe(no_mangle)]
extern "C" fn iwarp_preload_set_ports(handler: Option<Handler>) {
    let handler = handler.map_or(core::ptr::null_mut(), |handler| handler as *mut c_void);
    HANDLER.store(handler, Ordering::Release);
}

functions! {
    fn bind(fd: c_int, name: *const c_void, length: c_uint) -> c_int, with real {
        // SAFETY: the caller's promise.
        let result = unsafe { real(fd, name, length) };
        if result < 0 && errno() == c::EADDRINUSE && !name.is_null() {
            // SAFETY: as above.
            return unsafe { handled(fd, name, length, 0) };
        }
        result
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int, with real {
        // SAFETY: the caller's promise.
        let result = unsafe { real(fd, backlog) };
        if result < 0 && errno() == c::EADDRINUSE {
            // SAFETY: without a name.
            return unsafe { handled(fd, core::ptr::null(), 0, backlog) };
        }
        result
    }
}

/// # Safety
///
/// `name` is null or an address of that length.
#[cold]
unsafe fn handled(fd: c_int, name: *const c_void, length: c_uint, backlog: c_int) -> c_int {
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: stored as one.
        let handler: Handler = unsafe { core::mem::transmute(handler) };
        // SAFETY: the caller's promise.
        if unsafe { handler(fd, name, length, backlog) } == 0 {
            return 0;
        }
    }
    set_errno(c::EADDRINUSE);
    -1
}
