// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system call that copies out of another process.

use super::{MAX_PARTS, ReadError, RemotePart};
use crate::part::IoPartMut;

/// Copies from the memory of the process `from` to the room `to`, by one system call, and says how
/// many bytes: fewer than both sides have where the next byte of either cannot be accessed, or
/// where there are more than [`MAX_PARTS`].
///
/// A signal does not end it early: the system looks for one that kills the caller and for no other.
pub(super) fn copy(
    process: i32,
    from: &[RemotePart],
    to: &mut [IoPartMut<'_>],
) -> Result<usize, ReadError> {
    // Then the first piece has bytes, so a call that copies none has failed.
    let from = &from[from.iter().take_while(|part| part.is_empty()).count()..];
    let empty = to.iter().take_while(|part| part.is_empty()).count();
    let to = &mut to[empty..];
    let from = &from[..from.len().min(MAX_PARTS)];
    let parts = to.len().min(MAX_PARTS);
    let to = &mut to[..parts];
    // The system makes sure of pages in advance, also of those for which there is no room.
    match within(from, IoPartMut::total(to)) {
        (0, 0) => Ok(0),
        (whole, 0) => call(process, &from[..whole], to),
        (whole, rest) => cut(process, &from[..=whole], rest, to),
    }
}

/// The parts whose bytes all go into `room`, and how many of the next one's do.
fn within(from: &[RemotePart], mut room: usize) -> (usize, usize) {
    for (number, part) in from.iter().enumerate() {
        if part.len() > room {
            return (number, room);
        }
        room -= part.len();
    }
    (from.len(), 0)
}

/// Copies no more than `rest` bytes of the last part.
#[cold]
#[inline(never)]
fn cut(
    process: i32,
    from: &[RemotePart],
    rest: usize,
    to: &mut [IoPartMut<'_>],
) -> Result<usize, ReadError> {
    let mut parts = [RemotePart::EMPTY; MAX_PARTS];
    let parts = &mut parts[..from.len()];
    parts.copy_from_slice(from);
    if let Some(last) = parts.last_mut() {
        *last = last.take(rest);
    }
    call(process, parts, to)
}

fn call(process: i32, from: &[RemotePart], to: &mut [IoPartMut<'_>]) -> Result<usize, ReadError> {
    let (room, parts) = (IoPartMut::as_io_slices(to), from.len());
    // By number, as the C library's function is not on all systems. Each argument is as wide as a
    // register.
    // SAFETY: the kernel writes to the room that the parts' makers have lent for that, or finds
    // that it is not mapped. It checks the addresses of the other process.
    let copied = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            process as libc::c_long,
            room.as_mut_ptr(),
            room.len(),
            from.as_ptr(),
            parts,
            0_usize,
        )
    };
    usize::try_from(copied).map_err(|_| refusal(std::io::Error::last_os_error().raw_os_error()))
}

/// The meaning of an error number. One that says nothing of this call alone means that there is no
/// such call here: a sandbox may give any.
fn refusal(number: Option<i32>) -> ReadError {
    match number {
        Some(libc::EFAULT) => ReadError::Gone,
        Some(libc::ESRCH) => ReadError::Dead,
        Some(libc::ENOMEM | libc::EAGAIN | libc::EINTR) => ReadError::Shortage,
        _ => ReadError::Refused,
    }
}
