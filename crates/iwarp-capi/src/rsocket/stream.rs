// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making, binding, connecting, accepting and ending.

use std::ffi::c_int;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use iwarp_rsocket::{Direction, Domain, Flags, Socket};

use super::name;
use super::table::{self, Options};
use super::waiting::{Blocks, Limit, Wait, errno, wait, zero};
use crate::calls::called;
use crate::cm::addr;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// A close waits so long for what was sent to be handed to the transport (RS-CLOSE-04).
const PATIENCE: Duration = Duration::from_secs(10);

/// `rsocket`
pub extern "C" fn rsocket(domain: c_int, r#type: c_int, protocol: c_int) -> c_int {
    let kind = r#type;
    guard::minus_one(called!(rsocket(domain, kind, protocol)), || {
        let domain = match domain {
            libc::AF_INET => Domain::Ipv4,
            libc::AF_INET6 => Domain::Ipv6,
            _ => {
                return Err(decline!(ENOTSUP, "the family {domain}: IPv4 and IPv6 are there"));
            }
        };
        let mut flags = Flags::empty();
        flags.set(Flags::CLOEXEC, kind & libc::SOCK_CLOEXEC != 0);
        flags.set(Flags::NONBLOCK, kind & libc::SOCK_NONBLOCK != 0);
        let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        match (kind, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {}
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                return Err(decline!(ENOTSUP, "rsockets of datagrams are not there yet"));
            }
            _ => {
                return Err(decline!(ENOTSUP, "the type {kind} with the protocol {protocol}"));
            }
        }
        let socket = Socket::with(&table::host()?, domain, flags)?;
        table::enter(socket, Options::default())
    })
}

/// `rbind`
///
/// # Safety
///
/// As `bind(2)`.
pub unsafe extern "C" fn rbind(
    socket: c_int,
    addr: *const libc::sockaddr,
    addrlen: libc::socklen_t,
) -> c_int {
    guard::minus_one(called!(rbind(socket, addr, addrlen)), || {
        let entry = table::get(socket)?;
        // SAFETY: the program's promise.
        let addr = unsafe { read(addr, addrlen) }?;
        entry.socket.bind(addr).map_err(errno)?;
        Ok(0)
    })
}

/// `rlisten`
pub extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    guard::minus_one(called!(rlisten(socket, backlog)), || {
        let backlog = u32::try_from(backlog).unwrap_or(0);
        table::get(socket)?.socket.listen(backlog).map_err(errno)?;
        Ok(0)
    })
}

/// `raccept`: a cancellation point.
///
/// # Safety
///
/// As `accept(2)`.
pub unsafe extern "C-unwind" fn raccept(
    socket: c_int,
    addr: *mut libc::sockaddr,
    addrlen: *mut libc::socklen_t,
) -> c_int {
    let call = called!(raccept(socket, addr, addrlen));
    let how = Wait { direction: Direction::Read, blocks: Blocks::Usually, limit: Limit::Receive };
    let attempt = |entry: &table::Entry| {
        let (accepted, peer) = entry.socket.try_accept(Flags::empty()).map_err(errno)?;
        let options = Options { receive_timeout: None, send_timeout: None, ..entry.options() };
        let number = table::enter(accepted, options)?;
        // SAFETY: the program's promise.
        unsafe { name::write(peer, addr, addrlen) };
        Ok(number)
    };
    let number = match wait(call.part(), socket, how, attempt, Err) {
        Ok(number) => number,
        Err(error) => {
            guard::set_errno(error.number());
            -1
        }
    };
    call.returns_unless(-1, number)
}

/// `rconnect`: a cancellation point.
///
/// # Safety
///
/// As `connect(2)`.
pub unsafe extern "C-unwind" fn rconnect(
    socket: c_int,
    addr: *const libc::sockaddr,
    addrlen: libc::socklen_t,
) -> c_int {
    let call = called!(rconnect(socket, addr, addrlen));
    let begun = guard::call(call.verb(), || {
        let entry = table::get(socket)?;
        // SAFETY: the program's promise.
        let addr = unsafe { read(addr, addrlen) }?;
        match entry.socket.try_connect(addr) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                if crate::verbs::channel::is_nonblocking(socket) {
                    return Err(Errno::plain(libc::EINPROGRESS));
                }
                Ok(false)
            }
            Err(error) => Err(errno(error)),
            Ok(()) => Ok(true),
        }
    });
    let result = match begun {
        Ok(true) => Ok(()),
        Err(error) => Err(error),
        Ok(false) => {
            let how =
                Wait { direction: Direction::Write, blocks: Blocks::Usually, limit: Limit::Send };
            let attempt = |entry: &table::Entry| match entry.socket.finish_connect() {
                Err(error) if error.raw_os_error() == Some(libc::EALREADY) => {
                    Err(Errno::plain(libc::EAGAIN))
                }
                done => done.map_err(errno),
            };
            // As connect(2): it goes on behind a signal or a time that is over.
            let interrupted = |error: Errno| match error.number() {
                libc::EAGAIN => Err(Errno::plain(libc::EINPROGRESS)),
                _ => Err(error),
            };
            wait(call.part(), socket, how, attempt, interrupted)
        }
    };
    call.returns(zero(result))
}

/// `rshutdown`
pub extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    guard::minus_one(called!(rshutdown(socket, how)), || {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(refuse!(EINVAL, "{how} is none of SHUT_RD, SHUT_WR and SHUT_RDWR")),
        };
        table::get(socket)?.socket.shutdown(how).map_err(errno)?;
        Ok(0)
    })
}

/// `rclose`: a cancellation point. What was sent goes out: this waits until the transport has it,
/// for as long as `SO_LINGER` says, or ten seconds.
pub extern "C-unwind" fn rclose(socket: c_int) -> c_int {
    let call = called!(rclose(socket));
    let begun = guard::call(call.verb(), || {
        let entry = table::get(socket)?;
        let linger = entry.options().linger;
        if linger == Some(0) {
            entry.socket.abort();
        } else {
            entry.socket.begin_close().map_err(errno)?;
        }
        Ok(linger)
    });
    let result = begun.and_then(|linger| {
        let time = linger.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into()));
        // Of a non-blocking socket as well: the process may end behind the call.
        let how =
            Wait { direction: Direction::Flush, blocks: Blocks::Always, limit: Limit::Of(time) };
        let waited = flush(call.part(), socket, how);
        guard::call(call.verb(), || {
            if let Some(entry) = table::remove(socket) {
                entry.socket.forget();
            }
            Ok(())
        })?;
        waited
    });
    call.returns(zero(result))
}

fn flush(call: crate::calls::Call<0>, socket: c_int, how: Wait) -> Result<(), Errno> {
    let attempt = |entry: &table::Entry| {
        if entry.socket.is_flushed() { Ok(()) } else { Err(Errno::plain(libc::EAGAIN)) }
    };
    wait(call, socket, how, attempt, |_| Ok(()))
}

/// Reads an address of that length.
///
/// # Safety
///
/// As `bind(2)`.
pub(super) unsafe fn read(
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Result<SocketAddr, Errno> {
    let least = size_of::<libc::sa_family_t>();
    if addr.is_null() || (len as usize) < least {
        return Err(refuse!(EINVAL, "the address has {len} bytes"));
    }
    // SAFETY: it has a family.
    let family = c_int::from(unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() });
    let needed = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return Err(decline!(EAFNOSUPPORT, "the address is of the family {family}")),
    };
    if (len as usize) < needed {
        return Err(refuse!(EINVAL, "the address has {len} bytes, and its family {needed}"));
    }
    // SAFETY: it is as long as its family needs.
    unsafe { addr::read(addr) }
}
