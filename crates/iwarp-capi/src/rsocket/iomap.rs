// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that the peer writes to.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;

use iwarp_rsocket::Direction;

use super::table::{self, Entry};
use super::waiting::{Blocks, Limit, Wait, errno, wait};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// `riomap`: the offset by which the peer names the memory.
///
/// # Safety
///
/// The memory stays until `riounmap` or `rclose`.
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: libc::off_t,
) -> libc::off_t {
    guard::minus_one(called!(riomap(socket, buf, len, prot, flags, offset)), || {
        if prot & !libc::PROT_WRITE != 0 {
            return Err(refuse!(EINVAL, "prot is {prot}: PROT_WRITE or PROT_NONE are there"));
        }
        let Ok(length) = u32::try_from(len) else {
            return Err(refuse!(EINVAL, "{len} bytes: a mapping has less than 4 GiB"));
        };
        let entry = table::get(socket)?;
        let addr = buf.addr() as u64;
        let offset = if offset == -1 { addr } else { offset.cast_unsigned() };
        let map = entry.socket.map(addr, length, offset, |pd, access| {
            // SAFETY: the program's promise.
            let memory = unsafe { pd.register_raw(buf.cast(), len, access) };
            memory.map_err(|error| io::Error::from_raw_os_error(Errno::from(error).number()))
        });
        map.map_err(errno)?;
        Ok(offset.cast_signed())
    })
}

/// `riounmap`
pub extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    guard::minus_one(called!(riounmap(socket, buf, len)), || {
        let entry = table::get(socket)?;
        let unmapped = u32::try_from(len).map(|len| entry.socket.unmap(buf.addr() as u64, len));
        if !matches!(unmapped, Ok(Ok(()))) {
            return Err(refuse!(
                EINVAL,
                "no mapping has this address and this length: give those of riomap"
            ));
        }
        Ok(0)
    })
}

/// `riowrite`: the number of bytes written, 0 where the peer has mapped nothing at the offset. A
/// cancellation point.
///
/// # Safety
///
/// `buf` has `count` bytes.
pub unsafe extern "C-unwind" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: usize,
    offset: libc::off_t,
    flags: c_int,
) -> usize {
    let call = called!(riowrite(socket, buf, count, offset, flags));
    let done = Cell::new(0);
    let attempt = |entry: &Entry| {
        // SAFETY: the program's promise.
        let bytes = unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), count) };
        loop {
            let rest = &bytes[done.get()..];
            let at = offset.cast_unsigned().wrapping_add(done.get() as u64);
            match entry.socket.try_write_mapped(rest, at).map_err(errno)? {
                0 => return Ok(done.get()),
                written => done.set(done.get() + written),
            }
        }
    };
    let blocks = if flags & libc::MSG_DONTWAIT != 0 { Blocks::Never } else { Blocks::Usually };
    let how = Wait { direction: Direction::Write, blocks, limit: Limit::Send };
    let partly = |error| if done.get() > 0 { Ok(done.get()) } else { Err(error) };
    let result = match wait(call.part(), socket, how, attempt, partly) {
        Err(error) => partly(error),
        result => result,
    };
    call.returns_unless(
        usize::MAX,
        result.unwrap_or_else(|error| {
            guard::set_errno(error.number());
            usize::MAX
        }),
    )
}
