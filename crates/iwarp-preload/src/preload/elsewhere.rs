// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters that a program names by other paths than that in /sys: from its own folder, from one
//! that it has open, or by the tree's own path, which `realpath` and `getcwd` give it.

use core::ffi::{c_char, c_int};

use super::c;
use super::counters::{begins_with, last_parts};
use super::files::{NUMBER, write_digits};
use super::redirect::{append, tree};

/// Of a path, with its NUL.
const MAX: usize = c::PATH_MAX;

/// Calls `value` with the path in the tree, if `path` leads to a counter.
///
/// The last part rules out most paths, so that opening other files takes no longer.
///
/// # Safety
///
/// `path` is null or a string, which leads on from the folder `at`.
#[inline]
pub(super) unsafe fn counter<T>(
    at: c_int,
    path: *const c_char,
    value: impl Fn(*const c_char) -> Option<T>,
) -> Option<T> {
    // SAFETY: the caller's promise.
    if path.is_null() || !unsafe { is_named_like_one(path.cast()) } {
        return None;
    }
    // SAFETY: it gives the address of this thread's own.
    let errno = unsafe { *c::__errno_location() };
    // SAFETY: the caller's promise.
    let found = unsafe { resolved(at, path.cast(), value) };
    if found.is_none() {
        // SAFETY: as above.
        unsafe { *c::__errno_location() = errno };
    }
    found
}

/// Tells from the last part: small letters, digits and an underscore, and nothing else.
///
/// # Safety
///
/// It is a string.
unsafe fn is_named_like_one(mut path: *const u8) -> bool {
    let (mut like, mut underscore) = (true, false);
    loop {
        // SAFETY: not beyond the string's NUL.
        match unsafe { path.read() } {
            0 => return like && underscore,
            b'/' => (like, underscore) = (true, false),
            b'_' => underscore = true,
            b'a'..=b'z' | b'0'..=b'9' => {}
            _ => like = false,
        }
        path = path.wrapping_add(1);
    }
}

/// Not part of its caller, whose stack stays small.
///
/// # Safety
///
/// As [`counter`], but no null.
#[inline(never)]
unsafe fn resolved<T>(
    at: c_int,
    path: *const u8,
    value: impl Fn(*const c_char) -> Option<T>,
) -> Option<T> {
    let (shown, _) = tree()?;
    let (mut file, mut root) = ([0; MAX], [0; MAX]);
    // SAFETY: the caller's promise; then strings, as their last bytes are zero.
    let (inside, length) = unsafe {
        canonical(at, path, &mut file)?;
        last_parts(file.as_ptr())?;
        let length = canonical(c::AT_FDCWD, shown, &mut root)?;
        (begins_with(file.as_ptr(), root.get(..length)?), length)
    };
    let inner = file.as_ptr().wrapping_add(length);
    // Not the lists beside it.
    // SAFETY: the rest of a string that was as long at least.
    if !inside || !unsafe { begins_with(inner, b"/sys/") } {
        return None;
    }
    // The tree's path is as its variable has it, by which others recognise it.
    let mut buffer = core::mem::MaybeUninit::<[u8; 2 * MAX]>::uninit();
    let start = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: two strings, into the room that there is.
    unsafe {
        let end = append(start, 0, 2 * MAX, shown)?;
        append(start, end, 2 * MAX, inner)?;
    }
    value(start.cast())
}

/// Writes the path of a file, without links, and returns its length. It takes /proc.
///
/// # Safety
///
/// `path` is a string.
unsafe fn canonical(at: c_int, path: *const u8, to: &mut [u8; MAX]) -> Option<usize> {
    // Neither reads the file nor waits for another process.
    let flags = c::O_PATH | c::O_CLOEXEC;
    // SAFETY: the system call reads a string.
    let fd = unsafe { c::syscall(c::SYS_OPENAT, at, path, flags, 0) };
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: just opened.
    let length = unsafe { path_of(fd, to) };
    // SAFETY: a descriptor of our own.
    unsafe { c::close(fd) };
    length
}

/// # Safety
///
/// It is a descriptor that is open.
unsafe fn path_of(fd: c_int, to: &mut [u8; MAX]) -> Option<usize> {
    let mut digits = [0; NUMBER];
    let first = write_digits(fd.try_into().ok()?, &mut digits)?;
    let mut link = [0_u8; 2 * NUMBER];
    let room = link.len();
    let start = link.as_mut_ptr();
    // SAFETY: two strings, the second up to the last byte of `digits`; the system call reads a
    // string, and writes less than there is room.
    let length = unsafe {
        let end = append(start, 0, room, c"/proc/self/fd/".as_ptr().cast())?;
        append(start, end, room, digits.as_ptr().wrapping_add(first))?;
        c::syscall(c::SYS_READLINKAT, c::AT_FDCWD, start, to.as_mut_ptr(), MAX - 1)
    };
    usize::try_from(length).ok().filter(|length| *length < MAX - 1)
}
