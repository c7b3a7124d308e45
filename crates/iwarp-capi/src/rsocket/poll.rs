// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for several descriptors, rsockets among them. Their numbers are real descriptors, which
//! the system's own calls understand, so these look at the rsockets first, and then call those.

use std::ffi::c_int;

use super::table;
use crate::calls::called;
use crate::guard;

unsafe extern "C-unwind" {
    /// The C library's own, declared anew: programs may cancel a thread that waits in it, and the
    /// libc crate declares it as a function that never unwinds.
    fn poll(fds: *mut libc::pollfd, nfds: libc::nfds_t, timeout: c_int) -> c_int;
    /// As above.
    fn select(
        nfds: c_int,
        readfds: *mut libc::fd_set,
        writefds: *mut libc::fd_set,
        exceptfds: *mut libc::fd_set,
        timeout: *mut libc::timeval,
    ) -> c_int;
    /// As above.
    fn epoll_wait(
        epfd: c_int,
        events: *mut libc::epoll_event,
        maxevents: c_int,
        timeout: c_int,
    ) -> c_int;
}

/// Moves what can be moved on the connection of an rsocket.
fn advance(number: c_int) {
    if let Some(entry) = table::find(number) {
        entry.socket.advance();
    }
}

/// `rpoll`
///
/// # Safety
///
/// As `poll(2)`.
pub unsafe extern "C-unwind" fn rpoll(
    fds: *mut libc::pollfd,
    nfds: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    if table::has_any() && !fds.is_null() {
        let _ = guard::call("rpoll", || {
            // SAFETY: the program's promise.
            let fds = unsafe { std::slice::from_raw_parts(fds, nfds as usize) };
            fds.iter().for_each(|fd| advance(fd.fd));
            Ok(())
        });
    }
    // SAFETY: the program's promise.
    unsafe { poll(fds, nfds, timeout) }
}

/// `rselect`
///
/// # Safety
///
/// As `select(2)`.
pub unsafe extern "C-unwind" fn rselect(
    nfds: c_int,
    readfds: *mut libc::fd_set,
    writefds: *mut libc::fd_set,
    exceptfds: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    if table::has_any() {
        let _ = guard::call("rselect", || {
            let sets = [readfds, writefds].map(<*mut libc::fd_set>::cast_const);
            let sets = sets.into_iter().filter(|set| !set.is_null());
            for set in sets {
                // SAFETY: the program's promise: the set has a bit for each number below `nfds`.
                let names = |number: &c_int| unsafe { libc::FD_ISSET(*number, set) };
                (0..nfds).filter(names).for_each(advance);
            }
            Ok(())
        });
    }
    // SAFETY: the program's promise.
    unsafe { select(nfds, readfds, writefds, exceptfds, timeout) }
}

/// `repoll_create`: an epoll set of the system's.
pub extern "C" fn repoll_create(flags: c_int) -> c_int {
    let call = called!(repoll_create(flags));
    // SAFETY: takes a number.
    call.returns_unless(-1, unsafe { libc::epoll_create1(flags) })
}

/// `repoll_ctl`
///
/// # Safety
///
/// As `epoll_ctl(2)`.
pub unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let call = called!(repoll_ctl(epfd, op, fd, event));
    // SAFETY: the program's promise.
    call.returns_unless(-1, unsafe { libc::epoll_ctl(epfd, op, fd, event) })
}

/// `repoll_wait`: a cancellation point.
///
/// # Safety
///
/// As `epoll_wait(2)`.
pub unsafe extern "C-unwind" fn repoll_wait(
    epfd: c_int,
    events: *mut libc::epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    let call = called!(repoll_wait(epfd, events, maxevents, timeout));
    // SAFETY: the program's promise.
    call.returns_unless(-1, unsafe { epoll_wait(epfd, events, maxevents, timeout) })
}
