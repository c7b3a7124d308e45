// SPDX-License-Identifier: MIT OR Apache-2.0

//! The boundary between C and Rust: error numbers, panics, and lines on standard error.
//!
//! A panic of ours is a bug of ours. It ends the call with `EIO`, not the program, and is reported
//! in one line. The one kind of unwinding that passes is the C library's, when a program cancels
//! a thread: see [`iwarp_os::cancel`].

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iwarp::verbs::{OpenError, OutOfMemory, RegisterError, afford};
use iwarp::{Log, PostError};
use iwarp_os::cancel::put_off;

use crate::log;
pub(crate) use crate::log::Once;
pub use crate::log::say;

/// An error number of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

/// What this device does not have. The number by which test suites know that.
pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
/// An argument makes no sense.
pub const INVALID: Errno = Errno(libc::EINVAL);
/// There is no memory for it.
pub const OUT_OF_MEMORY: Errno = Errno(libc::ENOMEM);
/// There is no such object, or not any more.
pub const UNKNOWN: Errno = Errno(libc::ENOENT);
/// Something else still uses the object.
pub const BUSY: Errno = Errno(libc::EBUSY);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        if let Some(number) = error.raw_os_error() {
            return Self(number);
        }
        Self(match error.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            io::ErrorKind::AddrInUse => libc::EADDRINUSE,
            io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
            io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            io::ErrorKind::ConnectionReset => libc::ECONNRESET,
            io::ErrorKind::NotConnected => libc::ENOTCONN,
            io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
            io::ErrorKind::WouldBlock => libc::EAGAIN,
            io::ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        })
    }
}

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Self {
        Self(match error {
            RegisterError::InvalidAccess
            | RegisterError::InvalidRange
            | RegisterError::UnknownStag => libc::EINVAL,
            RegisterError::NotMapped | RegisterError::NotWritable => libc::EFAULT,
            RegisterError::Exhausted | RegisterError::OutOfMemory => libc::ENOMEM,
            RegisterError::NoEntropy => libc::EIO,
            RegisterError::WindowsBound => libc::EBUSY,
            _ => libc::EIO,
        })
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        Self(match error {
            PostError::QueueFull | PostError::OutOfMemory => libc::ENOMEM,
            _ => libc::EINVAL,
        })
    }
}

impl From<OpenError> for Errno {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::System(error) => error.into(),
            _ => INVALID,
        }
    }
}

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        OUT_OF_MEMORY
    }
}

/// Sets the C library's `errno` of this thread.
pub fn set_errno(errno: Errno) {
    // SAFETY: the C library gives every thread its own, and it is only used by that thread.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// For functions that return 0 or an error number, which they leave in `errno` too.
pub fn errno(f: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match call(f) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error);
            error.0
        }
    }
}

/// For functions that return a number, or -1 with `errno` set.
pub fn minus_one<R: From<i8>>(f: impl FnOnce() -> Result<R, Errno>) -> R {
    call(f).unwrap_or_else(|error| {
        set_errno(error);
        R::from(-1)
    })
}

/// For functions that make an object, or return null with `errno` set.
pub fn object<T>(f: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    let make = || {
        afford()?;
        f()
    };
    call(make).unwrap_or_else(|error| {
        set_errno(error);
        std::ptr::null_mut()
    })
}

/// For functions that cannot fail: `fallback` is returned after a panic.
pub fn value<R>(fallback: R, f: impl FnOnce() -> R) -> R {
    call(|| Ok(f())).unwrap_or(fallback)
}

/// Calls `f`; a panic becomes `EIO`, and the thread is not cancelled meanwhile.
pub fn call<R>(f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    put_off(|| on_data_path(f))
}

/// Calls `f`, which posts or polls: that makes its system calls without the C library, so there is
/// no point at which the thread could be cancelled. A panic becomes `EIO`.
#[inline]
pub fn on_data_path<R>(f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    // What `f` uses may be half changed after a panic. It is ours, behind locks that do not poison,
    // and every single call leaves it usable; the alternative is to end the program.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Has panics and the library's own events reported, each in one line. Only for the drop-in
/// libraries, whose standard library is their own: what the program does with its panics is its
/// own matter.
pub fn prepare() {
    static ONCE: Once = Once::new();

    if ONCE.first() {
        std::panic::set_hook(Box::new(|info| {
            let payload = info.payload();
            let what = payload.downcast_ref::<&str>().copied();
            let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let what = what.unwrap_or("panic");
            say(Log::Error, format_args!("internal error: {what} ({place}); please report it"));
        }));
        log::listen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> c_int {
        io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn errors_come_out_as_each_kind_of_function_returns_them() {
        assert_eq!(errno(|| Err(BUSY)), libc::EBUSY);
        assert_eq!(current(), libc::EBUSY);
        assert_eq!(minus_one::<c_int>(|| Err(INVALID)), -1);
        assert_eq!(current(), libc::EINVAL);
        assert!(object::<u8>(|| Err(UNSUPPORTED)).is_null());
        assert_eq!(current(), libc::EOPNOTSUPP);
        assert_eq!(errno(|| Ok(())), 0);
        assert_eq!(minus_one::<c_int>(|| Ok(7)), 7);
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(errno(|| panic!("as a test")), libc::EIO);
        assert_eq!(current(), libc::EIO);
        assert!(object::<u8>(|| panic!("as a test")).is_null());
        assert_eq!(value(3, || panic!("as a test")), 3);
    }
}
