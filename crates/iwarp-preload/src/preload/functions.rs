// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions that take a path.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::c;
use super::counters::{descriptor, stream};
use super::elsewhere;
use super::glob;
use super::redirect::redirect;

/// Defines functions of libc that pass on to libc's own, with another path where that is due.
///
/// `open` and its kin take their mode as a variable argument; that it is always passed on here is
/// sound on the platforms of Linux, whose integers travel in the same registers either way.
macro_rules! pass_on {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$path:ident]
        $(, $after:ident: $after_type:ty)*) -> $result:ty, else $failed:expr
        $(, counters from $at:expr, by $counter:ident($($argument:ident)*))?;)*) => { $(
        /// The function of libc; its name alone makes it visible.
        ///
        /// # Safety
        ///
        /// The demands of libc's function hold.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            type Real = unsafe extern "C" fn(
                $($before_type,)* *const c_char $(, $after_type)*
            ) -> $result;
            let real = real(&REAL, concat!(stringify!($name), "\0"));
            if real.is_null() {
                // SAFETY: it gives the address of this thread's own.
                unsafe { *c::__errno_location() = c::ENOSYS };
                return $failed;
            }
            // SAFETY: the dynamic linker found it under its name, which stands for this signature
            // in libc's ABI.
            let real: Real = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller keeps libc's promises; the other path is a string like its own.
            unsafe {
                redirect($path, |path, _is_ours| {
                    $(if _is_ours && let Some(counter) = $counter(path $(, $argument)*) {
                        return counter;
                    }
                    let value = |path| $counter(path $(, $argument)*);
                    if let Some(counter) = elsewhere::counter($at, path, value) {
                        return counter;
                    })?
                    real($($before,)* path $(, $after)*)
                })
            }
        }
    )* };
}

/// The next function of that name, which ends with a NUL; looked up once.
pub(super) fn real(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let found = known.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is a string; RTLD_NEXT asks for the one behind this library's.
    let found = unsafe { c::dlsym(c::RTLD_NEXT, name.as_ptr().cast()) };
    known.store(found, Ordering::Release);
    found
}

const NULL: *mut c_void = core::ptr::null_mut();

// Structures that are only passed on are `c_void` here.
pass_on! {
    fn open([path], flags: c_int, mode: c_uint) -> c_int, else -1,
        counters from c::AT_FDCWD, by descriptor(flags);
    fn open64([path], flags: c_int, mode: c_uint) -> c_int, else -1,
        counters from c::AT_FDCWD, by descriptor(flags);
    fn __open_2([path], flags: c_int) -> c_int, else -1,
        counters from c::AT_FDCWD, by descriptor(flags);
    fn __open64_2([path], flags: c_int) -> c_int, else -1,
        counters from c::AT_FDCWD, by descriptor(flags);
    fn openat(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, else -1,
        counters from at, by descriptor(flags);
    fn openat64(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, else -1,
        counters from at, by descriptor(flags);
    fn __openat_2(at: c_int, [path], flags: c_int) -> c_int, else -1,
        counters from at, by descriptor(flags);
    fn __openat64_2(at: c_int, [path], flags: c_int) -> c_int, else -1,
        counters from at, by descriptor(flags);
    fn fopen([path], mode: *const c_char) -> *mut c_void, else NULL,
        counters from c::AT_FDCWD, by stream(mode);
    fn fopen64([path], mode: *const c_char) -> *mut c_void, else NULL,
        counters from c::AT_FDCWD, by stream(mode);
    fn opendir([path]) -> *mut c_void, else NULL;
    fn scandir([path], list: *mut c_void, filter: *const c_void, order: *const c_void)
        -> c_int, else -1;
    fn scandir64([path], list: *mut c_void, filter: *const c_void, order: *const c_void)
        -> c_int, else -1;
    fn chdir([path]) -> c_int, else -1;

    fn stat([path], about: *mut c_void) -> c_int, else -1;
    fn stat64([path], about: *mut c_void) -> c_int, else -1;
    fn lstat([path], about: *mut c_void) -> c_int, else -1;
    fn lstat64([path], about: *mut c_void) -> c_int, else -1;
    fn fstatat(at: c_int, [path], about: *mut c_void, flags: c_int) -> c_int, else -1;
    fn fstatat64(at: c_int, [path], about: *mut c_void, flags: c_int) -> c_int, else -1;
    fn statx(at: c_int, [path], flags: c_int, mask: c_uint, about: *mut c_void) -> c_int, else -1;
    fn access([path], mode: c_int) -> c_int, else -1;
    fn euidaccess([path], mode: c_int) -> c_int, else -1;
    fn eaccess([path], mode: c_int) -> c_int, else -1;
    fn faccessat(at: c_int, [path], mode: c_int, flags: c_int) -> c_int, else -1;

    fn readlink([path], to: *mut c_char, size: usize) -> isize, else -1;
    fn __readlink_chk([path], to: *mut c_char, size: usize, room: usize) -> isize, else -1;
    fn readlinkat(at: c_int, [path], to: *mut c_char, size: usize) -> isize, else -1;
    fn realpath([path], to: *mut c_char) -> *mut c_char, else NULL.cast();
    fn __realpath_chk([path], to: *mut c_char, room: usize) -> *mut c_char, else NULL.cast();
}

// Functions whose failure `ls -l` shows.
pass_on! {
    fn getxattr([path], name: *const c_char, to: *mut c_void, size: usize) -> isize, else -1;
    fn lgetxattr([path], name: *const c_char, to: *mut c_void, size: usize) -> isize, else -1;
    fn listxattr([path], to: *mut c_char, size: usize) -> isize, else -1;
    fn llistxattr([path], to: *mut c_char, size: usize) -> isize, else -1;
}

// Functions that programs which were linked with glibc before 2.33 call for `stat` and its kin.
pass_on! {
    fn __xstat(version: c_int, [path], about: *mut c_void) -> c_int, else -1;
    fn __xstat64(version: c_int, [path], about: *mut c_void) -> c_int, else -1;
    fn __lxstat(version: c_int, [path], about: *mut c_void) -> c_int, else -1;
    fn __lxstat64(version: c_int, [path], about: *mut c_void) -> c_int, else -1;
    fn __fxstatat(version: c_int, at: c_int, [path], about: *mut c_void, flags: c_int)
        -> c_int, else -1;
    fn __fxstatat64(version: c_int, at: c_int, [path], about: *mut c_void, flags: c_int)
        -> c_int, else -1;
}

/// Defines `glob` and its like for files beyond 2 GiB.
macro_rules! globs {
    ($($name:ident)*) => { $(
        /// The function of libc; its name alone makes it visible.
        ///
        /// # Safety
        ///
        /// The demands of libc's function hold.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            on_error: *const c_void,
            found: *mut c_void,
        ) -> c_int {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            type Real = unsafe extern "C" fn(
                *const c_char, c_int, *const c_void, *mut c_void
            ) -> c_int;
            let real = real(&REAL, concat!(stringify!($name), "\0"));
            if real.is_null() {
                return c::GLOB_ABORTED;
            }
            // SAFETY: as above.
            let real: Real = unsafe { core::mem::transmute(real) };
            // SAFETY: as above.
            unsafe { glob::glob(pattern, flags, found, |path| real(path, flags, on_error, found)) }
        }
    )* };
}

globs! { glob glob64 }
