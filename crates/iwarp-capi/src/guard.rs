// SPDX-License-Identifier: MIT OR Apache-2.0

//! The boundary between C and Rust: error numbers, panics, and lines on standard error.
//!
//! A panic of ours is a bug of ours. It ends the call with `EIO`, not the program, and is reported
//! in one line. The one kind of unwinding that passes is the C library's, when a program cancels
//! a thread: see [`iwarp_os::cancel`].

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iwarp::Log;
use iwarp::faults;
use iwarp::observe::Value;
use iwarp::verbs::{OpenError, OutOfMemory, RegisterError, afford};
use iwarp_os::cancel::put_off;

pub(crate) use crate::calls::SUCCESS;
use crate::calls::{self, Call, Shown};
use crate::log;
pub use crate::log::say;
pub(crate) use crate::log::{Once, last_errno, set_errno};
pub use crate::refuse::Errno;
use crate::refuse::refuse;

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::InvalidAccess => refuse!(
                EINVAL,
                "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE"
            ),
            RegisterError::InvalidRange => refuse!(EINVAL, "{error}: address plus length"),
            RegisterError::UnknownStag => refuse!(EINVAL, "{error}"),
            RegisterError::NotMapped => refuse!(EFAULT, "{error}"),
            RegisterError::NotWritable => refuse!(EFAULT, "{error}, which the access asks for"),
            RegisterError::Exhausted => refuse!(ENOMEM, "{error}: deregister some memory"),
            RegisterError::OutOfMemory => refuse!(ENOMEM, "{error}"),
            RegisterError::WindowsBound => {
                refuse!(EBUSY, "{error}: deallocate or invalidate them first")
            }
            _ => refuse!(EIO, "{error}"),
        }
    }
}

impl From<OpenError> for Errno {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::System(error) => error.into(),
            error => refuse!(EINVAL, "{error}"),
        }
    }
}

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        refuse!(ENOMEM, "out of memory")
    }
}

/// For functions that return 0 or an error number, which they leave in `errno` too.
pub fn errno<const N: usize>(call: Call<N>, f: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match put_off(|| guarded(call, |()| SUCCESS, f)) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.number());
            error.number()
        }
    }
}

/// For functions that return a number, or -1 with `errno` set.
pub fn minus_one<R: From<i8> + Shown, const N: usize>(
    call: Call<N>,
    f: impl FnOnce() -> Result<R, Errno>,
) -> R {
    put_off(|| guarded(call, R::value, f)).unwrap_or_else(|error| {
        set_errno(error.number());
        R::from(-1)
    })
}

/// For functions that make an object, or return null with `errno` set.
pub fn object<T, const N: usize>(
    call: Call<N>,
    f: impl FnOnce() -> Result<*mut T, Errno>,
) -> *mut T {
    let make = || {
        afford()?;
        f()
    };
    put_off(|| guarded(call, <*mut T>::value, make)).unwrap_or_else(|error| {
        set_errno(error.number());
        std::ptr::null_mut()
    })
}

/// For functions that cannot fail: `fallback` is returned after a panic.
pub fn value<R: Shown, const N: usize>(call: Call<N>, fallback: R, f: impl FnOnce() -> R) -> R {
    put_off(|| guarded(call, R::value, || Ok(f()))).unwrap_or(fallback)
}

/// Calls `f`; a panic becomes `EIO`, and the thread is not cancelled meanwhile. A refusal is said.
/// The caller has the call told.
///
/// # Errors
///
/// As `f` has them.
pub fn call<R>(verb: &'static str, f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    put_off(|| guarded(Call::part_of(verb), |_| SUCCESS, f))
}

/// Calls `f`, which posts or polls: that makes its system calls without the C library, so there is
/// no point at which the thread could be cancelled. A panic becomes `EIO`. A refusal is said. The
/// caller has the call told.
///
/// # Errors
///
/// As `f` has them.
#[inline]
pub fn on_data_path<R>(
    verb: &'static str,
    f: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    guarded(Call::part_of(verb), |_| SUCCESS, f)
}

#[inline]
fn guarded<R, const N: usize>(
    call: Call<N>,
    show: impl FnOnce(&R) -> Value,
    f: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    // The objects that `f` uses may be half changed after a panic. They are ours, behind locks that
    // do not poison, and every single call leaves them usable; the alternative is to end the
    // program.
    let called = match faults::of_call(call.verb()) {
        None => catch_unwind(AssertUnwindSafe(f)),
        Some(number) => Ok(Err(Errno::plain(number))),
    };
    let mut result = called.unwrap_or_else(|_| Err(Errno::plain(libc::EIO)));
    if let Err(error) = &mut result
        && error.is_explained()
    {
        error.say(call.verb());
    }
    call.ended(|| result.as_ref().map(show).map_err(Errno::number));
    result
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
        calls::prepare();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Call<0> = Call::part_of("ibv_test");

    #[test]
    fn errors_come_out_as_each_kind_of_function_returns_them() {
        assert_eq!(errno(TEST, || Err(refuse!(EBUSY, "a test"))), libc::EBUSY);
        assert_eq!(last_errno(), libc::EBUSY);
        assert_eq!(minus_one::<c_int, 0>(TEST, || Err(refuse!(EINVAL, "a test"))), -1);
        assert_eq!(last_errno(), libc::EINVAL);
        assert!(object::<u8, 0>(TEST, || Err(refuse!(EOPNOTSUPP, "a test"))).is_null());
        assert_eq!(last_errno(), libc::EOPNOTSUPP);
        assert_eq!(errno(TEST, || Ok(())), 0);
        assert_eq!(minus_one::<c_int, 0>(TEST, || Ok(7)), 7);
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(errno(TEST, || panic!("as a test")), libc::EIO);
        assert_eq!(last_errno(), libc::EIO);
        assert!(object::<u8, 0>(TEST, || panic!("as a test")).is_null());
        assert_eq!(value(TEST, 3, || panic!("as a test")), 3);
    }
}
