// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that this library reads itself, around its own functions.

use core::ffi::c_int;

use super::c;
use super::redirect::{append, tree};

/// Bytes that a number and a newline may have.
pub(super) const NUMBER: usize = 24;

/// Reads the start of a file in the folder beside the tree, as [`open_beside`] opens it.
///
/// # Safety
///
/// `file` is a string, and `to` has `room` bytes.
pub(super) unsafe fn read_beside(file: *const u8, to: *mut u8, room: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let fd = unsafe { open_beside(file) }?;
    // SAFETY: just opened, and the caller's promise.
    unsafe { read_all(fd, to, room) }
}

/// Opens a file in the folder beside the tree that only this library looks at, by its path there
/// with a slash in front.
///
/// # Safety
///
/// It is a string.
pub(super) unsafe fn open_beside(file: *const u8) -> Option<c_int> {
    let mut path = core::mem::MaybeUninit::<[u8; 2 * c::PATH_MAX]>::uninit();
    let (start, room) = (path.as_mut_ptr().cast::<u8>(), 2 * c::PATH_MAX);
    // SAFETY: three strings, into the room that there is; then a string.
    unsafe {
        let at = append(start, 0, room, tree()?.0)?;
        let at = append(start, at, room, c"/counted".as_ptr().cast())?;
        append(start, at, room, file)?;
        open_file(start)
    }
}

/// Reads the start of a file, around this library's own functions.
///
/// # Safety
///
/// `path` is a string, and `to` has `room` bytes.
pub(super) unsafe fn read_file(path: *const u8, to: *mut u8, room: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let fd = unsafe { open_file(path) }?;
    // SAFETY: just opened, and the caller's promise.
    unsafe { read_all(fd, to, room) }
}

/// Reads the start of a file that is open, and closes it.
///
/// # Safety
///
/// `fd` is the caller's own, and `to` has `room` bytes.
unsafe fn read_all(fd: c_int, to: *mut u8, room: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let read = unsafe { c::read(fd, to.cast(), room) };
    // SAFETY: as above.
    unsafe { c::close(fd) };
    usize::try_from(read).ok()
}

/// # Safety
///
/// `path` is a string.
unsafe fn open_file(path: *const u8) -> Option<c_int> {
    let flags = c::O_RDONLY | c::O_CLOEXEC;
    // SAFETY: the system call reads a string.
    let fd = unsafe { c::syscall(c::SYS_OPENAT, c::AT_FDCWD, path, flags, 0) };
    c_int::try_from(fd).ok().filter(|fd| *fd >= 0)
}

/// Writes a number in front of the last byte. Returns where it begins.
pub(super) fn write_digits(value: u64, text: &mut [u8; NUMBER]) -> Option<usize> {
    let (mut at, mut rest) = (NUMBER - 1, value);
    loop {
        at = at.wrapping_sub(1);
        *text.get_mut(at)? = b'0'.wrapping_add((rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            return Some(at);
        }
    }
}
