// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters, which are computed when a program opens their files.
//!
//! Linux counts bytes of an RDMA port in words of four, and those of a network interface one by
//! one. So beside the tree there is, for each counter, a file with a number and, in lines of their
//! own, the files of which it is the sum divided by that number. A line `@8` stands for the number
//! of eight bytes at byte 8 of the file `words`, on which all processes count, and `#1` for the sum
//! of what all live processes say of their traffic in their second count. Each entry of a process
//! has twelve of these, and those that follow are in the next.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::c;
use super::files::{NUMBER, open_beside, read_beside, read_file, write_digits};
use super::ledger;
use super::written;

/// Counts that an entry of a live process has of its traffic: four for each of three ports.
const TRAFFIC_COUNTS: u64 = 12;

/// Bytes that a list of files may have.
const LIST: usize = 8192;

/// A descriptor with the value of the counter whose file this is, or -1 where it is to be written;
/// `None` where it is no counter.
///
/// # Safety
///
/// `path` is a string, of a path in the tree.
pub(crate) unsafe fn descriptor(path: *const c_char, flags: c_int) -> Option<c_int> {
    if written::by_flags(flags) {
        // SAFETY: the caller's promise.
        return unsafe { written::is_refused(path) }.then_some(-1);
    }
    let mut list = [0; LIST];
    // SAFETY: the caller's promise.
    let length = unsafe { list_of(path.cast(), &mut list) }?;
    let value = evaluate(&list, length)?;
    let close = if flags & c::O_CLOEXEC != 0 { c::MFD_CLOEXEC } else { 0 };
    filled(value, close)
}

/// A stream with the value of the counter whose file this is, or null where it is to be written;
/// `None` where it is no counter.
///
/// # Safety
///
/// Both are strings, the first that of a path in the tree.
pub(crate) unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut c_void> {
    // SAFETY: the caller's promise.
    if unsafe { written::by_mode(mode) } {
        // SAFETY: as above.
        return unsafe { written::is_refused(path) }.then_some(core::ptr::null_mut());
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { descriptor(path, c::O_RDONLY | c::O_CLOEXEC) }?;
    // SAFETY: a descriptor of our own, and a string.
    let stream = unsafe { c::fdopen(fd, c"r".as_ptr()) };
    if stream.is_null() {
        // SAFETY: a descriptor of our own.
        unsafe { c::close(fd) };
        return None;
    }
    Some(stream.cast())
}

/// The value of a counter by the last five parts of its path, with a slash in front of them.
///
/// # Safety
///
/// It is a string.
pub(super) unsafe fn value_of(parts: *const u8) -> Option<u64> {
    let mut list = [0; LIST];
    // SAFETY: the caller's promise.
    let length = unsafe { read_list(parts, &mut list) }?;
    evaluate(&list, length)
}

/// Reads the list of a counter, which is beside the tree under the last five parts of the
/// counter's path, such as `iwarp0/ports/1/counters/port_xmit_data`.
///
/// # Safety
///
/// `path` is a string.
unsafe fn list_of(path: *const u8, list: &mut [u8; LIST]) -> Option<usize> {
    // SAFETY: the caller's promise; then its last parts.
    unsafe { read_list(last_parts(path)?, list) }
}

/// # Safety
///
/// `parts` is a string.
unsafe fn read_list(parts: *const u8, list: &mut [u8; LIST]) -> Option<usize> {
    // SAFETY: the caller's promise.
    let length = unsafe { read_beside(parts, list.as_mut_ptr(), LIST) }?;
    (length < LIST).then_some(length)
}

/// The last five parts of a path, with the slash in front of them, if they may be those of a
/// counter.
///
/// # Safety
///
/// `path` is a string.
pub(super) unsafe fn last_parts(path: *const u8) -> Option<*const u8> {
    const PARTS: u32 = 5;
    // The starts of the last parts: the places of the last slashes, the newest first.
    let mut slashes = [usize::MAX; PARTS as usize];
    let mut at = 0_usize;
    loop {
        // SAFETY: not beyond the string's NUL.
        match unsafe { path.add(at).read() } {
            0 => break,
            b'/' => {
                let [a, b, c, d, _] = slashes;
                slashes = [at, a, b, c, d];
            }
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    let [_, kind, _, _, device] = slashes;
    if device == usize::MAX {
        return None;
    }
    // Other files have no list: this saves looking for it.
    // SAFETY: a part of the string.
    let kind = unsafe { path.add(kind.wrapping_add(1)) };
    // SAFETY: as above.
    let counts = unsafe { begins_with(kind, b"counters/") || begins_with(kind, b"hw_counters/") };
    counts.then(|| path.wrapping_add(device))
}

/// # Safety
///
/// `text` is a string; there is no NUL in `start`.
pub(super) unsafe fn begins_with(mut text: *const u8, start: &[u8]) -> bool {
    for octet in start {
        // SAFETY: all before were equal, so the string goes on.
        if unsafe { text.read() } != *octet {
            return false;
        }
        text = text.wrapping_add(1);
    }
    true
}

/// The contents of the list: a number, and lines with the names of files.
fn evaluate(list: &[u8; LIST], length: usize) -> Option<u64> {
    let mut lines = [0_u8; LIST];
    // Each line a string of its own.
    let mut at = 0_usize;
    for (to, octet) in lines.iter_mut().zip(list) {
        *to = if *octet == b'\n' { 0 } else { *octet };
    }
    let mut divisor = None;
    let mut sum = 0_u64;
    while at < length {
        let line = lines.as_ptr().wrapping_add(at);
        if divisor.is_none() {
            // SAFETY: the line ends with a NUL, as bytes behind the list are zero.
            divisor = Some(unsafe { number(line) });
        } else {
            // SAFETY: a string.
            sum = sum.wrapping_add(unsafe { part(line) });
        }
        // SAFETY: as above.
        while unsafe { lines.as_ptr().add(at).read() } != 0 {
            at = at.wrapping_add(1);
        }
        at = at.wrapping_add(1);
    }
    sum.checked_div(divisor?)
}

/// The number that a line stands for; 0 where there is none.
///
/// # Safety
///
/// It is a string.
unsafe fn part(line: *const u8) -> u64 {
    // SAFETY: a string has a first byte.
    if unsafe { line.read() } == b'@' {
        // SAFETY: the rest of the string.
        return word(unsafe { number(line.wrapping_add(1)) }).unwrap_or(0);
    }
    // SAFETY: as above.
    if unsafe { line.read() } == b'#' {
        // SAFETY: the rest of the string.
        let number = unsafe { number(line.wrapping_add(1)) };
        let subject = ledger::TRAFFIC.wrapping_sub(number / TRAFFIC_COUNTS);
        let counts = ledger::sums::<{ TRAFFIC_COUNTS as usize }>(subject);
        let place = usize::try_from(number % TRAFFIC_COUNTS);
        return place.ok().and_then(|place| counts.get(place).copied()).unwrap_or(0);
    }
    let mut text = [0; NUMBER];
    // SAFETY: a string, and room for so many.
    match unsafe { read_file(line, text.as_mut_ptr(), NUMBER - 1) } {
        // SAFETY: its last byte is zero still.
        Some(_) => unsafe { number(text.as_ptr()) },
        None => 0,
    }
}

/// The number at a byte of the file that all processes count on.
fn word(at: u64) -> Option<u64> {
    // SAFETY: a string.
    let fd = unsafe { open_beside(c"/words".as_ptr().cast()) }?;
    let mut octets = [0_u8; 8];
    // SAFETY: so many bytes.
    let read = unsafe { c::pread(fd, octets.as_mut_ptr().cast(), 8, at.try_into().ok()?) };
    // SAFETY: just opened.
    unsafe { c::close(fd) };
    (read == 8).then_some(u64::from_ne_bytes(octets))
}

/// The number that a string begins with.
///
/// # Safety
///
/// It is a string.
unsafe fn number(mut text: *const u8) -> u64 {
    let mut value = 0_u64;
    loop {
        // SAFETY: a NUL is no digit, so not beyond it.
        let octet = unsafe { text.read() };
        if !octet.is_ascii_digit() {
            return value;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(octet.wrapping_sub(b'0')));
        text = text.wrapping_add(1);
    }
}

/// A file in memory that holds the number as the kernel writes it.
fn filled(value: u64, flags: c_uint) -> Option<c_int> {
    let mut text = [b'\n'; NUMBER];
    let at = write_digits(value, &mut text)?;
    // SAFETY: the name is a string.
    let fd = unsafe { c::syscall(c::SYS_MEMFD_CREATE, c"counter".as_ptr(), flags) };
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let start = text.as_ptr().wrapping_add(at).cast::<c_void>();
    // SAFETY: the bytes from there to the end of the text.
    let written = unsafe { c::pwrite(fd, start, NUMBER.wrapping_sub(at), 0) };
    if written < 0 {
        // SAFETY: a descriptor of our own.
        unsafe { c::close(fd) };
        return None;
    }
    Some(fd)
}
