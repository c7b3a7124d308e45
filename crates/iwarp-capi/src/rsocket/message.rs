// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending and receiving. All of these are cancellation points.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};

use iwarp_rsocket::Direction;

use super::name;
use super::table::Entry;
use super::waiting::{Blocks, Limit, Wait, bytes, errno, wait};
use crate::calls::{Call, called};
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// Most elements of a vector (`IOV_MAX`).
const MOST: usize = 1024;
/// Elements that need no memory of their own.
const FEW: usize = 8;

/// The elements of a vector, as the program has them.
#[derive(Clone, Copy)]
struct Parts {
    first: *const libc::iovec,
    count: usize,
}

impl Parts {
    /// Checks the number of elements.
    fn new(first: *const libc::iovec, count: usize) -> Result<Self, Errno> {
        if count > MOST {
            return Err(refuse!(EINVAL, "a vector of {count} elements; the most is {MOST}"));
        }
        Ok(Self { first, count })
    }

    /// The elements.
    ///
    /// # Safety
    ///
    /// The program's vector has so many, and the memory that they name.
    unsafe fn as_slice<'a>(self) -> &'a [libc::iovec] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    /// # Safety
    ///
    /// As [`Self::as_slice`].
    unsafe fn len(self) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.as_slice() }.iter().map(|part| part.iov_len).sum()
    }

    /// Calls `f` with the elements as memory to read from.
    ///
    /// # Safety
    ///
    /// As [`Self::as_slice`]; nothing else writes to that memory meanwhile.
    unsafe fn read<R>(self, f: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        // SAFETY: the caller's promise.
        let slice = |part: &libc::iovec| unsafe {
            IoSlice::new(std::slice::from_raw_parts(base(part).cast_const(), part.iov_len))
        };
        // SAFETY: as above.
        let parts = unsafe { self.as_slice() };
        if let Some(parts) = parts.get(..).filter(|parts| parts.len() <= FEW) {
            let mut few = [IoSlice::new(&[]); FEW];
            few.iter_mut().zip(parts).for_each(|(place, part)| *place = slice(part));
            f(&few[..parts.len()])
        } else {
            f(&parts.iter().map(slice).collect::<Vec<_>>())
        }
    }

    /// Calls `f` with the elements, less the first `skip` bytes of them, as memory to write to.
    ///
    /// # Safety
    ///
    /// As [`Self::as_slice`]; nothing else uses that memory meanwhile.
    unsafe fn write<R>(self, mut skip: usize, f: impl FnOnce(&mut [IoSliceMut<'_>]) -> R) -> R {
        // SAFETY: the caller's promise.
        let parts = unsafe { self.as_slice() };
        let mut slices = Vec::new();
        if parts.len() > FEW {
            slices.reserve(parts.len());
        }
        let mut few: [IoSliceMut<'_>; FEW] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for part in parts {
            let skipped = skip.min(part.iov_len);
            skip -= skipped;
            // SAFETY: the caller's promise: within the element.
            let slice = unsafe {
                std::slice::from_raw_parts_mut(base(part).add(skipped), part.iov_len - skipped)
            };
            if parts.len() > FEW {
                slices.push(IoSliceMut::new(slice));
            } else {
                few[count] = IoSliceMut::new(slice);
                count += 1;
            }
        }
        if parts.len() > FEW { f(&mut slices) } else { f(&mut few[..count]) }
    }
}

/// The address of an element, which may be null where that is empty.
fn base(part: &libc::iovec) -> *mut u8 {
    let base = part.iov_base.cast::<u8>();
    if part.iov_len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { base }
}

/// The blocking of a call with these flags.
const fn blocks(flags: c_int) -> Blocks {
    if flags & libc::MSG_DONTWAIT != 0 { Blocks::Never } else { Blocks::Usually }
}

/// Sends all that the program's vector has, or as much as there is room for where the call does not
/// wait.
///
/// # Safety
///
/// As [`Parts::read`].
unsafe fn send(call: Call<0>, socket: c_int, parts: Parts, flags: c_int) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return guard::call(call.verb(), || {
            Err(decline!(EOPNOTSUPP, "MSG_OOB: a stream over RDMA has no urgent data"))
        });
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { parts.len() };
    let done = Cell::new(0);
    let attempt = |entry: &Entry| {
        // SAFETY: as above.
        let sent = unsafe { parts.read(|parts| entry.socket.try_send_vectored(parts, done.get())) };
        match sent {
            Ok(sent) => done.set(done.get() + sent),
            // The next call tells it.
            Err(_) if done.get() > 0 && !is_again(&sent) => return Ok(done.get()),
            Err(error) => return Err(errno(error)),
        }
        if done.get() == wanted { Ok(wanted) } else { Err(Errno::plain(libc::EAGAIN)) }
    };
    let how = Wait { direction: Direction::Write, blocks: blocks(flags), limit: Limit::Send };
    let partly = |error| if done.get() > 0 { Ok(done.get()) } else { Err(error) };
    let result = wait(call, socket, how, attempt, partly);
    let result = match result {
        Err(error) if error.number() == libc::EAGAIN => partly(error),
        result => result,
    };
    if let Err(error) = &result
        && error.number() == libc::EPIPE
        && flags & libc::MSG_NOSIGNAL == 0
    {
        // SAFETY: as write(2) does to the calling thread.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    result
}

fn is_again<T>(result: &std::io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Receives into the program's vector.
///
/// # Safety
///
/// As [`Parts::write`].
unsafe fn recv(call: Call<0>, socket: c_int, parts: Parts, flags: c_int) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return guard::call(call.verb(), || {
            Err(refuse!(EINVAL, "MSG_OOB: a stream over RDMA has no urgent data"))
        });
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { parts.len() };
    let (peeks, waits) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
    let done = Cell::new(0);
    let attempt = |entry: &Entry| {
        let skip = if peeks { 0 } else { done.get() };
        // SAFETY: as above.
        let received =
            unsafe { parts.write(skip, |parts| entry.socket.try_recv_vectored(parts, peeks)) };
        let received = match received {
            Ok(0) => return Ok(done.get()),
            Ok(received) => received,
            Err(_) if done.get() > 0 && !is_again(&received) => return Ok(done.get()),
            Err(error) => return Err(errno(error)),
        };
        done.set(skip + received);
        let is_enough = !waits || done.get() == wanted || (peeks && entry.socket.is_at_end());
        if is_enough { Ok(done.get()) } else { Err(Errno::plain(libc::EAGAIN)) }
    };
    let direction = if peeks && waits { Direction::ReadAtLeast(wanted) } else { Direction::Read };
    let how = Wait { direction, blocks: blocks(flags), limit: Limit::Receive };
    let partly = |error| if done.get() > 0 { Ok(done.get()) } else { Err(error) };
    match wait(call, socket, how, attempt, partly) {
        Err(error) if error.number() == libc::EAGAIN => partly(error),
        result => result,
    }
}

/// A vector of one element.
const fn one(buf: *const c_void, len: usize) -> libc::iovec {
    libc::iovec { iov_base: buf.cast_mut(), iov_len: len }
}

/// `rsend`
///
/// # Safety
///
/// As `send(2)`.
pub unsafe extern "C-unwind" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    let (call, part) = (called!(rsend(socket, buf, len, flags)), one(buf, len));
    // SAFETY: the program's promise.
    let result = unsafe { send(call.part(), socket, Parts { first: &part, count: 1 }, flags) };
    call.returns_unless(-1, bytes(result))
}

/// `rsendto`: a stream has a peer already.
///
/// # Safety
///
/// As `sendto(2)`.
pub unsafe extern "C-unwind" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const libc::sockaddr,
    addrlen: libc::socklen_t,
) -> isize {
    let call = called!(rsendto(socket, buf, len, flags, dest_addr, addrlen));
    let part = one(buf, len);
    // SAFETY: the program's promise.
    let result = unsafe { send(call.part(), socket, Parts { first: &part, count: 1 }, flags) };
    call.returns_unless(-1, bytes(result))
}

/// `rsendmsg`
///
/// # Safety
///
/// As `sendmsg(2)`.
pub unsafe extern "C-unwind" fn rsendmsg(
    socket: c_int,
    msg: *const libc::msghdr,
    flags: c_int,
) -> isize {
    let call = called!(rsendmsg(socket, msg, flags));
    let parts = guard::call(call.verb(), || {
        // SAFETY: the program's promise.
        let Some(msg) = (unsafe { msg.as_ref() }) else {
            return Err(refuse!(EFAULT, "msg is NULL"));
        };
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(decline!(ENOTSUP, "control data cannot be sent over RDMA"));
        }
        Parts::new(msg.msg_iov, msg.msg_iovlen)
    });
    // SAFETY: as above.
    let result = parts.and_then(|parts| unsafe { send(call.part(), socket, parts, flags) });
    call.returns_unless(-1, bytes(result))
}

/// `rwrite`
///
/// # Safety
///
/// As `write(2)`.
pub unsafe extern "C-unwind" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> isize {
    let (call, part) = (called!(rwrite(socket, buf, count)), one(buf, count));
    // SAFETY: the program's promise.
    let result = unsafe { send(call.part(), socket, Parts { first: &part, count: 1 }, 0) };
    call.returns_unless(-1, bytes(result))
}

/// `rwritev`
///
/// # Safety
///
/// As `writev(2)`.
pub unsafe extern "C-unwind" fn rwritev(
    socket: c_int,
    iov: *const libc::iovec,
    iovcnt: c_int,
) -> isize {
    let call = called!(rwritev(socket, iov, iovcnt));
    let parts = vector(call.part(), iov, iovcnt);
    // SAFETY: the program's promise.
    let result = parts.and_then(|parts| unsafe { send(call.part(), socket, parts, 0) });
    call.returns_unless(-1, bytes(result))
}

fn vector(call: Call<0>, iov: *const libc::iovec, iovcnt: c_int) -> Result<Parts, Errno> {
    guard::call(call.verb(), || Parts::new(iov, usize::try_from(iovcnt).unwrap_or(usize::MAX)))
}

/// `rrecv`
///
/// # Safety
///
/// As `recv(2)`.
pub unsafe extern "C-unwind" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    let (call, part) = (called!(rrecv(socket, buf, len, flags)), one(buf, len));
    // SAFETY: the program's promise.
    let result = unsafe { recv(call.part(), socket, Parts { first: &part, count: 1 }, flags) };
    call.returns_unless(-1, bytes(result))
}

/// `rrecvfrom`: of a stream the peer is known, and is not told.
///
/// # Safety
///
/// As `recvfrom(2)`.
pub unsafe extern "C-unwind" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut libc::sockaddr,
    addrlen: *mut libc::socklen_t,
) -> isize {
    let call = called!(rrecvfrom(socket, buf, len, flags, src_addr, addrlen));
    let part = one(buf, len);
    // SAFETY: the program's promise.
    let result = unsafe { recv(call.part(), socket, Parts { first: &part, count: 1 }, flags) };
    if result.is_ok() {
        // SAFETY: as above.
        unsafe { name::write_none(src_addr, addrlen) };
    }
    call.returns_unless(-1, bytes(result))
}

/// `rrecvmsg`: fills all elements, and takes its own flags (RS-API-11).
///
/// # Safety
///
/// As `recvmsg(2)`.
pub unsafe extern "C-unwind" fn rrecvmsg(
    socket: c_int,
    msg: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    let call = called!(rrecvmsg(socket, msg, flags));
    let parts = guard::call(call.verb(), || {
        // SAFETY: the program's promise.
        let Some(msg) = (unsafe { msg.as_ref() }) else {
            return Err(refuse!(EFAULT, "msg is NULL"));
        };
        Parts::new(msg.msg_iov, msg.msg_iovlen)
    });
    // SAFETY: as above.
    let result = parts.and_then(|parts| unsafe { recv(call.part(), socket, parts, flags) });
    if result.is_ok() {
        // SAFETY: as above: it is not null.
        unsafe {
            (*msg).msg_namelen = 0;
            (*msg).msg_controllen = 0;
            (*msg).msg_flags = 0;
        }
    }
    call.returns_unless(-1, bytes(result))
}

/// `rread`
///
/// # Safety
///
/// As `read(2)`.
pub unsafe extern "C-unwind" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> isize {
    let (call, part) = (called!(rread(socket, buf, count)), one(buf, count));
    // SAFETY: the program's promise.
    let result = unsafe { recv(call.part(), socket, Parts { first: &part, count: 1 }, 0) };
    call.returns_unless(-1, bytes(result))
}

/// `rreadv`: fills all elements.
///
/// # Safety
///
/// As `readv(2)`.
pub unsafe extern "C-unwind" fn rreadv(
    socket: c_int,
    iov: *const libc::iovec,
    iovcnt: c_int,
) -> isize {
    let call = called!(rreadv(socket, iov, iovcnt));
    let parts = vector(call.part(), iov, iovcnt);
    // SAFETY: the program's promise.
    let result = parts.and_then(|parts| unsafe { recv(call.part(), socket, parts, 0) });
    call.returns_unless(-1, bytes(result))
}
