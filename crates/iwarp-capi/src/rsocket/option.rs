// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of sockets and descriptors.

use std::ffi::{c_int, c_long, c_void};
use std::time::Duration;

use super::table::{self, Entry};
use crate::calls::called;
use crate::guard::{self, Errno, set_errno};
use crate::refuse::{decline, refuse};

/// The level of rsockets' own options, and these.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// Longest queue that can be asked for (RS-OPT-02), and the shortest that works.
const LONGEST_QUEUE: c_int = 65_534;
const SHORTEST_QUEUE: c_int = 16;
/// The shortest send buffer; a shorter one gets the second number (RS-OPT-05).
const LEAST_BUFFER: u32 = 2048;
const LEAST_INSTEAD: u32 = 4096;
const LONGEST_BUFFER: u32 = 1 << 28;
/// Bytes of the name of TCP's congestion control.
const CONGESTION: &[u8] = b"reno\0";

/// Options of TCP that are taken, kept and read back, and have no effect: with their defaults.
const OF_TCP: [(c_int, c_int); 8] = [
    // A message goes out at once.
    (libc::TCP_NODELAY, 1),
    (libc::TCP_MAXSEG, 1460),
    (libc::TCP_CORK, 0),
    (libc::TCP_QUICKACK, 1),
    (libc::TCP_DEFER_ACCEPT, 0),
    (libc::TCP_USER_TIMEOUT, 0),
    (libc::TCP_KEEPINTVL, 75),
    (libc::TCP_KEEPCNT, 9),
];

/// Likewise, of the sockets' own level.
const OF_SOCKET: [(c_int, c_int); 4] = [
    (libc::SO_OOBINLINE, 0),
    (libc::SO_BROADCAST, 0),
    (libc::SO_PRIORITY, 0),
    (libc::SO_REUSEPORT, 0),
];

/// The value that the program gives.
///
/// # Safety
///
/// `value` is null or has `len` bytes.
unsafe fn take<T: Copy>(value: *const c_void, len: libc::socklen_t) -> Result<T, Errno> {
    if value.is_null() || (len as usize) < size_of::<T>() {
        let needed = size_of::<T>();
        return Err(refuse!(EINVAL, "the value has {len} bytes, and the option {needed}"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// Gives the program a value, as much of it as there is room for (RS-OPT-10).
///
/// # Safety
///
/// `value` has `*len` bytes.
unsafe fn give<T>(given: &T, value: *mut c_void, len: *mut libc::socklen_t) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let Some(len) = (unsafe { len.as_mut() }).filter(|_| !value.is_null()) else {
        return Err(refuse!(EFAULT, "there is no room for the value"));
    };
    let room = (*len as usize).min(size_of::<T>());
    // SAFETY: as above; a value of plain numbers.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(given).cast::<u8>(), value.cast(), room);
    }
    *len = room as libc::socklen_t;
    Ok(())
}

fn timeval(time: Option<Duration>) -> libc::timeval {
    let time = time.unwrap_or_default();
    libc::timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: time.subsec_micros() as libc::suseconds_t,
    }
}

fn duration(time: libc::timeval) -> Result<Option<Duration>, Errno> {
    let micros = u32::try_from(time.tv_usec).ok().filter(|micros| *micros < 1_000_000);
    let (Ok(seconds), Some(micros)) = (u64::try_from(time.tv_sec), micros) else {
        return Err(Errno::plain(libc::EDOM));
    };
    let time = Duration::new(seconds, micros * 1000);
    Ok((!time.is_zero()).then_some(time))
}

/// `rsetsockopt`
///
/// # Safety
///
/// As `setsockopt(2)`.
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: libc::socklen_t,
) -> c_int {
    guard::minus_one(called!(rsetsockopt(socket, level, optname, optval, optlen)), || {
        let entry = table::get(socket)?;
        // SAFETY: the program's promise.
        unsafe {
            match level {
                libc::SOL_SOCKET => set_socket(&entry, optname, optval, optlen),
                libc::IPPROTO_TCP => set_tcp(&entry, optname, optval, optlen),
                libc::IPPROTO_IP | libc::IPPROTO_IPV6 => {
                    set_ip(&entry, level, optname, optval, optlen)
                }
                SOL_RDMA => set_rdma(&entry, optname, optval, optlen),
                _ => Err(decline!(EOPNOTSUPP, "there is no level {level}")),
            }
        }?;
        Ok(0)
    })
}

unsafe fn set_socket(
    entry: &Entry,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> Result<(), Errno> {
    match name {
        libc::SO_LINGER => {
            // SAFETY: the program's promise.
            let linger: libc::linger = unsafe { take(value, len) }?;
            let seconds = u32::try_from(linger.l_linger).unwrap_or(0);
            entry.change(|options| options.linger = (linger.l_onoff != 0).then_some(seconds));
            return Ok(());
        }
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => {
            // SAFETY: as above.
            let time = duration(unsafe { take(value, len) }?)?;
            entry.change(|options| match name {
                libc::SO_RCVTIMEO => options.receive_timeout = time,
                _ => options.send_timeout = time,
            });
            return Ok(());
        }
        _ => {}
    }
    // SAFETY: as above.
    let number: c_int = unsafe { take(value, len) }?;
    match name {
        libc::SO_RCVBUF | libc::SO_SNDBUF => {
            let bytes = number.unsigned_abs().saturating_mul(2).min(LONGEST_BUFFER);
            let mut settings = entry.socket.settings();
            if name == libc::SO_RCVBUF {
                settings.receive_buffer = bytes.max(2);
            } else {
                settings.send_buffer = if bytes < LEAST_BUFFER { LEAST_INSTEAD } else { bytes };
            }
            // Without effect once it is connected.
            entry.socket.set_settings(settings);
        }
        libc::SO_REUSEADDR => {
            entry.change(|options| options.reuse_address = number != 0);
            entry.socket.set_share_address(number != 0);
        }
        libc::SO_KEEPALIVE => {
            entry.change(|options| options.keepalive = number != 0);
            entry.socket.set_keepalive(number != 0);
        }
        _ if OF_SOCKET.iter().any(|known| known.0 == name) => {
            entry.change(|options| options.kept.set(libc::SOL_SOCKET, name, number));
        }
        _ => return Err(decline!(ENOPROTOOPT, "there is no option {name} of SOL_SOCKET")),
    }
    Ok(())
}

unsafe fn set_tcp(
    entry: &Entry,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> Result<(), Errno> {
    if name == libc::TCP_CONGESTION {
        return Ok(());
    }
    // SAFETY: the program's promise.
    let number: c_int = unsafe { take(value, len) }?;
    match name {
        libc::TCP_KEEPIDLE => match u64::try_from(number) {
            Ok(seconds @ 1..) => entry.socket.set_keepalive_time(Duration::from_secs(seconds)),
            _ => return Err(refuse!(EINVAL, "TCP_KEEPIDLE of {number} seconds")),
        },
        _ if OF_TCP.iter().any(|known| known.0 == name) => {
            entry.change(|options| options.kept.set(libc::IPPROTO_TCP, name, number));
        }
        _ => return Err(decline!(ENOPROTOOPT, "there is no option {name} of TCP")),
    }
    Ok(())
}

unsafe fn set_ip(
    entry: &Entry,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> Result<(), Errno> {
    // A single byte will do for these.
    let number = match len {
        // SAFETY: the program's promise.
        1..4 => c_int::from(unsafe { take::<u8>(value, len) }?),
        // SAFETY: as above.
        _ => unsafe { take(value, len) }?,
    };
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            entry.socket.set_traffic_class(number as u8);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => entry.socket.set_ipv6_only(number != 0),
        _ => return Err(decline!(ENOPROTOOPT, "there is no option {name} of the level {level}")),
    }
    entry.change(|options| options.kept.set(level, name, number));
    Ok(())
}

unsafe fn set_rdma(
    entry: &Entry,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> Result<(), Errno> {
    if name == RDMA_ROUTE {
        // These devices find their routes by themselves.
        return Ok(());
    }
    // SAFETY: the program's promise.
    let number: c_int = unsafe { take(value, len) }?;
    let mut settings = entry.socket.settings();
    let queue = number.clamp(SHORTEST_QUEUE, LONGEST_QUEUE) as u16;
    match name {
        RDMA_SQSIZE => settings.send_queue = queue,
        RDMA_RQSIZE => settings.receive_queue = queue,
        RDMA_INLINE => settings.inline = number.unsigned_abs().min(1024),
        RDMA_IOMAPSIZE => settings.set_iomap(number.unsigned_abs()),
        _ => return Err(decline!(ENOPROTOOPT, "there is no option {name} of SOL_RDMA")),
    }
    if entry.socket.set_settings(settings) {
        Ok(())
    } else {
        Err(refuse!(EINVAL, "SOL_RDMA options are set before the socket connects"))
    }
}

/// `rgetsockopt`
///
/// # Safety
///
/// As `getsockopt(2)`.
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut libc::socklen_t,
) -> c_int {
    guard::minus_one(called!(rgetsockopt(socket, level, optname, optval, optlen)), || {
        let entry = table::get(socket)?;
        // SAFETY: the program's promise.
        unsafe {
            match (level, optname) {
                (libc::SOL_SOCKET, libc::SO_LINGER) => {
                    let linger = entry.options().linger;
                    let linger = libc::linger {
                        l_onoff: linger.is_some().into(),
                        l_linger: linger.unwrap_or(0) as c_int,
                    };
                    give(&linger, optval, optlen)
                }
                (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                    give(&timeval(entry.options().receive_timeout), optval, optlen)
                }
                (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                    give(&timeval(entry.options().send_timeout), optval, optlen)
                }
                (libc::IPPROTO_TCP, libc::TCP_INFO) => give(&tcp_info(&entry), optval, optlen),
                (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                    let mut name = [0; 16];
                    name[..CONGESTION.len()].copy_from_slice(CONGESTION);
                    give(&name, optval, optlen)
                }
                (SOL_RDMA, RDMA_ROUTE) => give(&[0_u8; 0], optval, optlen),
                _ => give(&number(&entry, level, optname)?, optval, optlen),
            }
        }?;
        Ok(0)
    })
}

/// An option that is a number.
fn number(entry: &Entry, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let socket = &entry.socket;
    let bytes = |bytes: u32| c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let known = match level {
        libc::SOL_SOCKET => &OF_SOCKET[..],
        libc::IPPROTO_TCP => &OF_TCP[..],
        _ => &[],
    };
    if let Some((_, default)) = known.iter().find(|known| known.0 == name) {
        return Ok(entry.options().kept.get(level, name).unwrap_or(*default));
    }
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            socket.take_error().and_then(|error| error.raw_os_error()).unwrap_or(0)
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => match socket.domain() {
            iwarp_rsocket::Domain::Ipv4 => libc::AF_INET,
            iwarp_rsocket::Domain::Ipv6 => libc::AF_INET6,
        },
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listening().into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => bytes(socket.settings().receive_buffer),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => bytes(socket.settings().send_buffer),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => entry.options().reuse_address.into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => entry.options().keepalive.into(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            c_int::try_from(socket.settings().keepalive.as_secs()).unwrap_or(c_int::MAX)
        }
        (libc::IPPROTO_IP, libc::IP_TOS)
        | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS | libc::IPV6_V6ONLY) => {
            entry.options().kept.get(level, name).unwrap_or(0)
        }
        (SOL_RDMA, RDMA_SQSIZE) => socket.settings().send_queue.into(),
        (SOL_RDMA, RDMA_RQSIZE) => socket.settings().receive_queue.into(),
        (SOL_RDMA, RDMA_INLINE) => bytes(socket.settings().inline),
        (SOL_RDMA, RDMA_IOMAPSIZE) => bytes(socket.settings().iomap),
        (libc::SOL_SOCKET | libc::IPPROTO_TCP | libc::IPPROTO_IP, _)
        | (libc::IPPROTO_IPV6 | SOL_RDMA, _) => {
            return Err(decline!(ENOPROTOOPT, "there is no option {name} of the level {level}"));
        }
        _ => return Err(decline!(EOPNOTSUPP, "there is no level {level}")),
    })
}

fn tcp_info(entry: &Entry) -> libc::tcp_info {
    /// `TCP_ESTABLISHED`, `TCP_CLOSE` and `TCP_LISTEN` of Linux.
    const STATES: [u8; 3] = [1, 7, 10];

    // SAFETY: plain numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let (socket, [established, close, listen]) = (&entry.socket, STATES);
    info.tcpi_state = match (socket.is_listening(), socket.peer_addr().is_ok()) {
        (true, _) => listen,
        (false, true) => established,
        (false, false) => close,
    };
    // Microseconds within a host, and an Ethernet frame's.
    (info.tcpi_rtt, info.tcpi_snd_mss, info.tcpi_rcv_mss) = (50, 1460, 1460);
    info
}

/// `rfcntl`: the descriptor is a real one, so the system knows its flags. The third argument is a
/// number where there is one.
pub extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    let call = called!(rfcntl(socket, cmd, arg));
    let known = guard::call(call.verb(), || {
        table::get(socket)?;
        match cmd {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                Err(decline!(ENOTSUP, "an rsocket has one number"))
            }
            _ => Ok(()),
        }
    });
    if let Err(error) = known {
        set_errno(error.number());
        return call.returns_unless(-1, -1);
    }
    // SAFETY: the program's promise, as for fcntl(2).
    call.returns_unless(-1, unsafe { libc::fcntl(socket, cmd, arg) })
}
