// SPDX-License-Identifier: MIT OR Apache-2.0

//! The boundary between C and Rust: error numbers, panics, and lines on standard error.
//!
//! A panic of ours is a bug of ours. It ends the call with `EIO`, not the program, and is reported
//! in one line. The one kind of unwinding that passes is the C library's, when a program cancels
//! a thread: see [`iwarp_os::cancel`].

use std::any::type_name;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iwarp::Log;
use iwarp::verbs::{OpenError, OutOfMemory, RegisterError, afford};
use iwarp_os::cancel::put_off;

use crate::log;
pub(crate) use crate::log::Once;
pub use crate::log::say;
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

/// Sets the C library's `errno` of this thread.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library gives every thread its own, and it is only used by that thread.
    unsafe { *libc::__errno_location() = errno };
}

/// For functions that return 0 or an error number, which they leave in `errno` too.
pub fn errno(f: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match call(f) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.number());
            error.number()
        }
    }
}

/// For functions that return a number, or -1 with `errno` set.
pub fn minus_one<R: From<i8>>(f: impl FnOnce() -> Result<R, Errno>) -> R {
    call(f).unwrap_or_else(|error| {
        set_errno(error.number());
        R::from(-1)
    })
}

/// For functions that make an object, or return null with `errno` set.
pub fn object<T, F: FnOnce() -> Result<*mut T, Errno>>(f: F) -> *mut T {
    let make = || {
        afford()?;
        f()
    };
    call_as(type_name::<F>(), make).unwrap_or_else(|error| {
        set_errno(error.number());
        std::ptr::null_mut()
    })
}

/// For functions that cannot fail: `fallback` is returned after a panic.
pub fn value<R>(fallback: R, f: impl FnOnce() -> R) -> R {
    call(|| Ok(f())).unwrap_or(fallback)
}

/// Calls `f`; a panic becomes `EIO`, and the thread is not cancelled meanwhile. A refusal is said.
pub fn call<R, F: FnOnce() -> Result<R, Errno>>(f: F) -> Result<R, Errno> {
    call_as(type_name::<F>(), f)
}

fn call_as<R>(caller: &str, f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    put_off(|| guarded(caller, f))
}

/// Calls `f`, which posts or polls: that makes its system calls without the C library, so there is
/// no point at which the thread could be cancelled. A panic becomes `EIO`. A refusal is said.
#[inline]
pub fn on_data_path<R, F: FnOnce() -> Result<R, Errno>>(f: F) -> Result<R, Errno> {
    guarded(type_name::<F>(), f)
}

#[inline]
fn guarded<R>(caller: &str, f: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    // The objects that `f` uses may be half changed after a panic. They are ours, behind locks that
    // do not poison, and every single call leaves them usable; the alternative is to end the
    // program.
    let called = catch_unwind(AssertUnwindSafe(f));
    let result = called.unwrap_or_else(|_| Err(Errno::plain(libc::EIO)));
    result.map_err(|mut error| {
        if error.is_explained() {
            error.say(&verb(caller));
        }
        error
    })
}

/// The C name of a function, by the compiler's name of a closure in it:
/// `iwarp_capi::verbs::dm::alloc_dm::{{closure}}` is in `ibv_alloc_dm`.
#[cold]
fn verb(caller: &str) -> String {
    let named = caller.split("::").filter(|part| !part.starts_with('{'));
    let name = named.last().unwrap_or_default().trim_start_matches('_');
    match name {
        "wait" | "wait_for_step" => "rdma_get_cm_event".to_owned(),
        "passive" | "active" => "rdma_create_ep".to_owned(),
        "join" => "rdma_join_multicast".to_owned(),
        _ if name.starts_with("ibv_") || name.starts_with("rdma_") => name.to_owned(),
        _ => format!("ibv_{name}"),
    }
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
    use std::io;

    use super::*;

    fn current() -> c_int {
        io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn errors_come_out_as_each_kind_of_function_returns_them() {
        assert_eq!(errno(|| Err(refuse!(EBUSY, "a test"))), libc::EBUSY);
        assert_eq!(current(), libc::EBUSY);
        assert_eq!(minus_one::<c_int>(|| Err(refuse!(EINVAL, "a test"))), -1);
        assert_eq!(current(), libc::EINVAL);
        assert!(object::<u8, _>(|| Err(refuse!(EOPNOTSUPP, "a test"))).is_null());
        assert_eq!(current(), libc::EOPNOTSUPP);
        assert_eq!(errno(|| Ok(())), 0);
        assert_eq!(minus_one::<c_int>(|| Ok(7)), 7);
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(errno(|| panic!("as a test")), libc::EIO);
        assert_eq!(current(), libc::EIO);
        assert!(object::<u8, _>(|| panic!("as a test")).is_null());
        assert_eq!(value(3, || panic!("as a test")), 3);
    }

    #[test]
    fn a_verb_is_known_by_the_function_that_a_closure_is_in() {
        fn ibv_of_test() -> String {
            let closure = || ();
            verb(std::any::type_name_of_val(&closure))
        }
        assert_eq!(ibv_of_test(), "ibv_of_test");
        for (caller, name) in [
            ("iwarp_capi::verbs::dm::alloc_dm::{{closure}}", "ibv_alloc_dm"),
            ("iwarp_capi::verbs::query::_ibv_query_gid_ex::{{closure}}", "ibv_query_gid_ex"),
            ("iwarp_capi::cm::id::rdma_listen::{{closure}}::{{closure}}", "rdma_listen"),
            ("iwarp_capi::cm::endpoint::active::{{closure}}", "rdma_create_ep"),
        ] {
            assert_eq!(verb(caller), name);
        }
    }
}
