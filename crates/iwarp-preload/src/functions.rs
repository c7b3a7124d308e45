//! The functions that take a path.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::redirect::redirect;

/// Defines functions of libc that pass on to libc's own, with another path where that is due.
///
/// `open` and its kin take their mode as a variable argument; that it is always passed on here is
/// sound on the platforms of Linux, whose integers travel in the same registers either way.
macro_rules! pass_on {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$path:ident]
        $(, $after:ident: $after_type:ty)*) -> $result:ty, else $failed:expr;)*) => { $(
        /// The function of libc; its name alone makes it visible.
        ///
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            type Real = unsafe extern "C" fn(
                $($before_type,)* *const c_char $(, $after_type)*
            ) -> $result;
            const NAME: &str = concat!(stringify!($name), "\0");
            let real = real(&REAL, NAME);
            if real.is_null() {
                // SAFETY: it gives the address of this thread's own.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                return $failed;
            }
            // SAFETY: the dynamic linker found it under its name, which stands for this signature
            // in libc's ABI.
            let real: Real = unsafe { std::mem::transmute(real) };
            // SAFETY: the caller keeps libc's promises; the other path is a string like its own.
            unsafe { redirect($path, |path| real($($before,)* path $(, $after)*)) }
        }
    )* };
}

/// The next function of that name, looked up once.
fn real(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let found = known.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("the macro ends it with a NUL");
    // SAFETY: the name is a string; RTLD_NEXT asks for the one behind this library's.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(found, Ordering::Release);
    found
}

const NULL: *mut c_void = std::ptr::null_mut();

// Structures that are only passed on are `c_void` here.
pass_on! {
    fn open([path], flags: c_int, mode: c_uint) -> c_int, else -1;
    fn open64([path], flags: c_int, mode: c_uint) -> c_int, else -1;
    fn __open_2([path], flags: c_int) -> c_int, else -1;
    fn __open64_2([path], flags: c_int) -> c_int, else -1;
    fn openat(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, else -1;
    fn openat64(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, else -1;
    fn __openat_2(at: c_int, [path], flags: c_int) -> c_int, else -1;
    fn __openat64_2(at: c_int, [path], flags: c_int) -> c_int, else -1;
    fn fopen([path], mode: *const c_char) -> *mut c_void, else NULL;
    fn fopen64([path], mode: *const c_char) -> *mut c_void, else NULL;
    fn opendir([path]) -> *mut c_void, else NULL;

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

// What programs that were linked with glibc before 2.33 call for `stat` and its kin.
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
