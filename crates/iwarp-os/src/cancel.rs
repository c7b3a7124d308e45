// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wait at which a C program may cancel the thread.
//!
//! Programs stop the thread that sits in `ibv_get_cq_event` with `pthread_cancel`. That works only
//! if the wait is a cancellation point of the C library, which a raw system call is not: the thread
//! would sleep on. The C library then unwinds the stack of the thread from inside the call, as if
//! by an exception, through every frame up to the start of the thread.
//!
//! The frames between the program and [`wait_cancellable`] must obey these rules:
//!
//! - nothing in them may be waiting for its `Drop`: no guard, no `Arc`, no buffer. Take what the
//!   wait needs (a descriptor number) out of the object, let go of everything, then wait;
//! - the exported function is `extern "C-unwind"`. In an `extern "C"` function the unwinding
//!   aborts the process;
//! - no `catch_unwind` around it: that would catch the cancellation and abort. The boundary that
//!   catches panics is drawn around the parts before and after the wait.

use std::ffi::{c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;

unsafe extern "C-unwind" {
    /// The C library's own `poll`, declared anew: the libc crate declares it as a function that
    /// never unwinds.
    fn poll(fds: *mut libc::pollfd, nfds: libc::nfds_t, timeout: c_int) -> c_int;

    /// Not in the libc crate. No cancellation point itself.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Runs `f` with the cancellation of this thread put off until a later call.
///
/// Many functions of the C library are cancellation points, `close` and `getrandom` among them. In
/// one that Rust code calls, a cancellation would unwind frames that own something, and reach a
/// `catch_unwind`, which ends the process. Costs two calls into the C library; `f` must not panic.
pub fn put_off<R>(f: impl FnOnce() -> R) -> R {
    let mut state = 0;
    // SAFETY: the state of the calling thread, which has no memory of ours in it but `state`.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut state) };
    let result = f();
    // SAFETY: as above; the state is the one that the program had chosen.
    unsafe { pthread_setcancelstate(state, &raw mut state) };
    result
}

/// Waits until `fd` is readable, has an error or was hung up: then true; false when `timeout`
/// (milliseconds, rounded up) has passed. `None` waits without end.
///
/// A cancellation point: see the [module](self) for what callers owe. The descriptor is a number,
/// not a borrow, because the program may destroy the object behind it meanwhile; a descriptor that
/// is not open counts as ready, and the read that follows reports it.
///
/// # Errors
///
/// `Interrupted` when a signal handler of the program ran that was installed without
/// `SA_RESTART`: there the read of a real device's channel would return too. Behind handlers that
/// ask for a restart it waits on, as that read would.
pub fn wait_cancellable(fd: RawFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait_cancellable_for(fd, false, timeout)
}

/// As [`wait_cancellable`], until `fd` is writable if `writable` says so.
///
/// # Errors
///
/// As there.
pub fn wait_cancellable_for(
    fd: RawFd,
    writable: bool,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let events = if writable { libc::POLLOUT } else { libc::POLLIN };
    let deadline = timeout.map(|timeout| crate::clock::now().saturating_add(timeout));
    loop {
        let millis = match deadline.map(|deadline| deadline.saturating_sub(crate::clock::now())) {
            None => -1,
            Some(left) => c_int::try_from(left.as_nanos().div_ceil(1_000_000))
                // 24 days: longer than any thread is going to wait for the difference.
                .unwrap_or(c_int::MAX),
        };
        let mut pollfd = libc::pollfd { fd, events: events as c_short, revents: 0 };
        // SAFETY: one `pollfd`, which lives in this frame and needs no `Drop`; nothing else does
        // here either, so that the frame may be unwound.
        match unsafe { poll(&raw mut pollfd, 1, millis) } {
            0 => return Ok(false),
            1.. => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted || !handlers_restart() {
                    return Err(error);
                }
            }
        }
    }
}

/// True if every handler that may have run asks for interrupted calls to be restarted. The system
/// restarts a read, but never a `poll`.
fn handlers_restart() -> bool {
    // Raised by an instruction, not while waiting.
    const FAULTS: [c_int; 5] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: asks only: the C library writes `action` or fails.
        if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
            // One of the C library's own, which ask for it.
            return true;
        }
        // SAFETY: written by the call.
        let action = unsafe { action.assume_init() };
        matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
            || action.sa_flags & libc::SA_RESTART != 0
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::os::fd::AsRawFd;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;
    use crate::fd::FdPlace;
    use crate::poll::{EventFd, EventFdKind};

    unsafe extern "C-unwind" {
        /// As in libc, but the thread's function may be unwound.
        fn pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const libc::pthread_attr_t,
            start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
    }

    /// The thread's work: a descriptor that is never ready, and the thread's number.
    struct Wait {
        fd: RawFd,
        tid: AtomicI32,
    }

    /// The act of a C program's thread: calls an exported function that waits.
    extern "C-unwind" fn waits_for_ever(argument: *mut c_void) -> *mut c_void {
        // SAFETY: the test passes a `Wait` that outlives the thread.
        let wait = unsafe { &*argument.cast::<Wait>() };
        // SAFETY: takes no arguments and cannot fail.
        wait.tid.store(unsafe { libc::gettid() }, Ordering::Release);
        let _ = wait_cancellable(wait.fd, None);
        null_mut()
    }

    /// True if a thread of this process sleeps in a system call.
    fn sleeps(tid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
        stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().starts_with(" S"))
    }

    /// Waits until that thread sleeps. It needs the CPU for that: a yield may not leave it to it.
    fn until_asleep(tid: impl Fn() -> i32) {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !sleeps(tid()) {
            assert!(std::time::Instant::now() < deadline, "the thread does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn cancel(once_asleep: bool) {
        let never = EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
        let mut wait = Wait { fd: never.as_raw_fd(), tid: AtomicI32::new(0) };
        // SAFETY: a number or a pointer, whichever the C library has.
        let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
        let mut result = null_mut();
        // SAFETY: `wait` and the descriptor stay until the thread is joined. The thread's frames
        // own nothing that needs `Drop`.
        unsafe {
            let argument = (&raw mut wait).cast();
            let start = waits_for_ever;
            assert_eq!(pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
            if once_asleep {
                until_asleep(|| (*argument.cast::<Wait>()).tid.load(Ordering::Acquire));
            }
            assert_eq!(libc::pthread_cancel(thread), 0);
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
        }
        // PTHREAD_CANCELED; a thread whose wait returned says null.
        assert_eq!(result as isize, -1);
    }

    #[test]
    fn a_waiting_thread_can_be_cancelled() {
        cancel(true);
    }

    #[test]
    fn a_thread_cancelled_before_the_wait_does_not_wait() {
        cancel(false);
    }

    extern "C" fn ignore(_: c_int) {}

    /// The error of a wait that a signal interrupts after a while, if it reports any.
    fn interrupted(flags: c_int) -> io::Result<bool> {
        let event = EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
        let (fd, signal) = (event.as_raw_fd(), libc::SIGUSR2);
        // SAFETY: a handler that does nothing; the thread whose number it is waits in this scope.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
            let (waiter, tid) = (libc::pthread_self() as usize, libc::gettid());
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    until_asleep(|| tid);
                    assert_eq!(libc::pthread_kill(waiter as libc::pthread_t, signal), 0);
                });
                wait_cancellable(fd, Some(Duration::from_millis(300)))
            })
        }
    }

    #[test]
    fn a_handler_interrupts_unless_it_asks_for_a_restart() {
        let error = interrupted(0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        let start = crate::clock::now();
        assert!(!interrupted(libc::SA_RESTART).unwrap());
        assert!(crate::clock::now() - start >= Duration::from_millis(300));
    }

    #[test]
    fn reports_readiness_and_timeout() {
        let event = EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
        let fd = event.as_raw_fd();
        assert!(!wait_cancellable(fd, Some(Duration::ZERO)).unwrap());
        let start = crate::clock::now();
        assert!(!wait_cancellable(fd, Some(Duration::from_micros(1100))).unwrap());
        assert!(crate::clock::now() - start >= Duration::from_micros(1100));
        event.signal().unwrap();
        assert!(wait_cancellable(fd, None).unwrap());
    }

    #[test]
    fn a_closed_descriptor_does_not_hang() {
        // No process has as many descriptors.
        assert!(wait_cancellable(RawFd::MAX - 1, None).unwrap());
    }
}
