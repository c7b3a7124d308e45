// SPDX-License-Identifier: MIT OR Apache-2.0

//! Netlink sockets for RDMA (`NETLINK_RDMA`), whose requests this library answers.
//!
//! The program gets a netlink socket that the kernel keeps for programs' own use
//! (`NETLINK_USERSOCK`), so that binding, options, waiting and closing are the kernel's. Messages
//! to the kernel are answered before the call returns: the answers go from the socket to the socket
//! itself, which is connected to itself so that it takes nothing from others. (`write` and
//! `sendmmsg` are passed on, as no known program sends requests by them.)

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use super::c;
use super::facts::{Shown, TEXT};
use super::functions::real;
use super::netlink;
use super::redirect::tree;

/// The descriptors that were opened as such sockets, each plus one. Descriptors that the program
/// has closed may stay in it.
static OPENED: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// True if there was one: all other programs have only this to look at.
static ANY: AtomicBool = AtomicBool::new(false);

/// Bytes of the room that a list of as many objects as there can be takes in a socket.
const LIST: c_int = 2 << 20;

/// Bytes of the longest request that is sent in pieces.
const REQUEST: usize = 4096;

const ADDRESS: c_uint = size_of::<c::NetlinkAddress>() as c_uint;

/// libc's `sendto`.
type SendTo =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const c_void, c_uint) -> isize;

/// Defines functions of libc, which know libc's own.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, with $real:ident $body:block)*)
    => { $(
        /// The function of libc; its name alone makes it visible.
        ///
        /// # Safety
        ///
        /// The demands of libc's function hold.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            type Real = unsafe extern "C" fn($($type),*) -> $result;
            let found = real(&REAL, concat!(stringify!($name), "\0"));
            if found.is_null() {
                set_errno(c::ENOSYS);
                return -1;
            }
            // SAFETY: the dynamic linker found it under its name, which stands for this signature
            // in libc's ABI.
            let $real: Real = unsafe { core::mem::transmute(found) };
            $body
        }
    )* };
}

pub(super) use functions;

functions! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, with real {
        let is_wanted = domain == c::AF_NETLINK && protocol == c::NETLINK_RDMA && tree().is_some();
        let protocol = if is_wanted { c::NETLINK_USERSOCK } else { protocol };
        // SAFETY: the caller's promise.
        let fd = unsafe { real(domain, kind, protocol) };
        if is_wanted && fd >= 0 {
            remember(fd);
        }
        fd
    }

    fn sendto(fd: c_int, octets: *const c_void, length: usize, flags: c_int, name: *const c_void,
        name_length: c_uint) -> isize, with real
    {
        if is_ours(fd) {
            let piece = c::Piece { start: octets.cast_mut().cast(), length };
            // SAFETY: the caller's promise.
            return unsafe { answered(fd, &[piece]) };
        }
        // SAFETY: the caller's promise.
        unsafe { real(fd, octets, length, flags, name, name_length) }
    }

    fn send(fd: c_int, octets: *const c_void, length: usize, flags: c_int) -> isize, with real {
        if is_ours(fd) {
            let piece = c::Piece { start: octets.cast_mut().cast(), length };
            // SAFETY: the caller's promise.
            return unsafe { answered(fd, &[piece]) };
        }
        // SAFETY: the caller's promise.
        unsafe { real(fd, octets, length, flags) }
    }

    fn sendmsg(fd: c_int, message: *const c::Msghdr, flags: c_int) -> isize, with real {
        if is_ours(fd) && !message.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { answered(fd, pieces(&*message)) };
        }
        // SAFETY: the caller's promise.
        unsafe { real(fd, message, flags) }
    }

    fn recvmsg(fd: c_int, message: *mut c::Msghdr, flags: c_int) -> isize, with real {
        // SAFETY: the caller's promise.
        let result = unsafe { real(fd, message, flags) };
        if result >= 0 && is_ours(fd) {
            // SAFETY: as above, and libc has filled it.
            unsafe { from_kernel((*message).name, (*message).name_length) };
        }
        result
    }

    fn recvfrom(fd: c_int, to: *mut c_void, room: usize, flags: c_int, name: *mut c_void,
        name_length: *mut c_uint) -> isize, with real
    {
        // SAFETY: the caller's promise.
        let result = unsafe { real(fd, to, room, flags, name, name_length) };
        if result >= 0 && is_ours(fd) && !name_length.is_null() {
            // SAFETY: as above, and libc has filled it.
            unsafe { from_kernel(name, *name_length) };
        }
        result
    }

    fn __recvfrom_chk(fd: c_int, to: *mut c_void, length: usize, room: usize, flags: c_int,
        name: *mut c_void, name_length: *mut c_uint) -> isize, with real
    {
        // SAFETY: the caller's promise.
        let result = unsafe { real(fd, to, length, room, flags, name, name_length) };
        if result >= 0 && is_ours(fd) && !name_length.is_null() {
            // SAFETY: as above, and libc has filled it.
            unsafe { from_kernel(name, *name_length) };
        }
        result
    }
}

pub(super) fn errno() -> c_int {
    // SAFETY: it gives the address of this thread's own.
    unsafe { *c::__errno_location() }
}

pub(super) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *c::__errno_location() = errno };
}

/// Enters a descriptor in the place of one that is no such socket any more, or else of any.
#[cold]
fn remember(fd: c_int) {
    let entry = fd.wrapping_add(1);
    let is_stale = |known: &&AtomicI32| match known.load(Ordering::Relaxed) {
        0 => true,
        found => found == entry || !is_netlink(found.wrapping_sub(1)),
    };
    if let Some(place) = OPENED.iter().find(is_stale).or_else(|| OPENED.first()) {
        place.store(entry, Ordering::Relaxed);
    }
    ANY.store(true, Ordering::Release);
}

/// True where the descriptor is such a socket.
#[inline]
fn is_ours(fd: c_int) -> bool {
    ANY.load(Ordering::Relaxed) && is_known(fd)
}

#[cold]
#[inline(never)]
fn is_known(fd: c_int) -> bool {
    let entry = fd.wrapping_add(1);
    let Some(place) = OPENED.iter().find(|known| known.load(Ordering::Relaxed) == entry) else {
        return false;
    };
    if entry <= 0 {
        return false;
    }
    let is_one = is_netlink(fd);
    if !is_one {
        // Another file has its number now. Another thread may have entered it anew.
        let _ = place.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    is_one
}

/// Asks the kernel if a descriptor is a netlink socket. `errno` stays.
fn is_netlink(fd: c_int) -> bool {
    let before = errno();
    let is_one = option(fd, c::SO_DOMAIN) == Some(c::AF_NETLINK)
        && option(fd, c::SO_PROTOCOL) == Some(c::NETLINK_USERSOCK);
    set_errno(before);
    is_one
}

fn option(fd: c_int, option: c_int) -> Option<c_int> {
    let (mut value, mut length): (c_int, c_uint) = (-1, size_of::<c_int>() as c_uint);
    let start = (&raw mut value).cast();
    // SAFETY: it has room for as many bytes as it says.
    let result = unsafe { c::getsockopt(fd, c::SOL_SOCKET, option, start, &raw mut length) };
    (result == 0).then_some(value)
}

/// Gives a socket room for answers: they wait in it, while the kernel makes its own as they are
/// received. Only root gets more than the system's limit. `errno` stays.
fn make_room(fd: c_int) {
    let (before, wanted) = (errno(), LIST);
    for kind in [c::SO_RCVBUFFORCE, c::SO_RCVBUF] {
        if option(fd, c::SO_RCVBUF).is_some_and(|room| room < LIST) {
            let (room, length) = ((&raw const wanted).cast(), size_of::<c_int>() as c_uint);
            // SAFETY: a number.
            unsafe { c::setsockopt(fd, c::SOL_SOCKET, kind, room, length) };
        }
    }
    set_errno(before);
}

/// The pieces of a message.
///
/// # Safety
///
/// The demands of `sendmsg` hold.
unsafe fn pieces(message: &c::Msghdr) -> &[c::Piece] {
    if message.pieces.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(message.pieces, message.piece_count) }
}

/// Answers a request that comes in pieces; returns what a function that sends it does.
///
/// # Safety
///
/// Each piece has as many bytes as it says.
#[cold]
#[inline(never)]
unsafe fn answered(fd: c_int, pieces: &[c::Piece]) -> isize {
    let mut whole = [0; REQUEST];
    let mut length = 0_usize;
    for piece in pieces {
        let end = length.saturating_add(piece.length);
        let Some(room) = whole.get_mut(length..end) else {
            set_errno(c::EMSGSIZE);
            return -1;
        };
        // SAFETY: the caller's promise; the room is as long.
        unsafe { c::memmove(room.as_mut_ptr().cast(), piece.start.cast(), room.len()) };
        length = end;
    }
    match answer(fd, whole.get(..length).unwrap_or_default()) {
        Ok(()) => length as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

fn answer(fd: c_int, request: &[u8]) -> Result<(), c_int> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let send = real(&REAL, "sendto\0");
    if send.is_null() {
        return Err(c::ENOSYS);
    }
    // SAFETY: as that of all such functions.
    let send: SendTo = unsafe { core::mem::transmute(send) };
    let own = connected_to_itself(fd)?;
    make_room(fd);
    let mut text = [0; TEXT];
    let facts = Shown::read(&mut text);
    let is_sent = netlink::answer(request, own.port, &facts, |octets| {
        let name = (&raw const own).cast();
        // SAFETY: the bytes, and an address.
        let sent = unsafe {
            send(fd, octets.as_ptr().cast(), octets.len(), c::MSG_DONTWAIT, name, ADDRESS)
        };
        usize::try_from(sent).is_ok()
    });
    // As the kernel says where a socket has no more room.
    if is_sent { Ok(()) } else { Err(c::ENOBUFS) }
}

/// Connects a socket to itself, after the kernel has given it a port, if it has none yet. Returns
/// its address.
fn connected_to_itself(fd: c_int) -> Result<c::NetlinkAddress, c_int> {
    let nobody = c::NetlinkAddress { family: c::AF_NETLINK as u16, padding: 0, port: 0, groups: 0 };
    let connect = |to: &c::NetlinkAddress| {
        // SAFETY: an address.
        let result = unsafe { c::connect(fd, (&raw const *to).cast(), ADDRESS) };
        if result == 0 { Ok(()) } else { Err(errno()) }
    };
    let own_port = || {
        let (mut own, mut length) = (nobody, ADDRESS);
        // SAFETY: it has room for as many bytes as it says.
        let result = unsafe { c::getsockname(fd, (&raw mut own).cast(), &raw mut length) };
        if result == 0 { Ok(own.port) } else { Err(errno()) }
    };
    let mut own = c::NetlinkAddress { port: own_port()?, ..nobody };
    if own.port == 0 {
        connect(&nobody)?;
        own.port = own_port()?;
    }
    connect(&own)?;
    Ok(own)
}

/// Makes the kernel, whose port is 0, the sender.
///
/// # Safety
///
/// `name` is null or an address of that length.
#[cold]
unsafe fn from_kernel(name: *mut c_void, length: c_uint) {
    let name = name.cast::<c::NetlinkAddress>();
    if !name.is_null() && length >= ADDRESS {
        // SAFETY: the caller's promise; it may begin anywhere.
        unsafe { (&raw mut (*name).port).write_unaligned(0) };
    }
}
