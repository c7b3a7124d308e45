// SPDX-License-Identifier: MIT OR Apache-2.0

//! One port number for a listener of ours and a TCP listener of the program's own.
//!
//! To an RDMA card they are two ports, as RDMA has a port space of its own, and programs (UCX)
//! listen by both under one number. Here RDMA connections are TCP connections to that number. So
//! the two sockets form a group by `SO_REUSEPORT`, and a program of classic BPF, which every user
//! may attach, chooses between them by the traffic class of the packet that asks for a connection:
//! this library's clients set [`RDMA_CLASS`] until their connection is made. Only that
//! distinguishes the two, and no question has to be asked before.
//!
//! Indices in a group follow the order in which its sockets began to listen.
//!
//! A group has one address. A listener for one of the addresses of a program's socket that is bound
//! at all of them joins that group, and refuses what comes to the others: Valkey listens by TCP at
//! all addresses and by RDMA at one. (Not where the listener comes first: its socket is at the one
//! address then, gets all that comes there, and cannot move.)
//!
//! Clients ask nothing before they connect, no round trip is added, both ends go on speaking iWARP,
//! and a listener that shares nothing does not look at the class. Every TCP connection of this
//! library begins with DSCP 43 and gets the program's class when start-up is done. If the TCP
//! socket is there first, `rdma_bind_addr` finds it among the process's descriptors. If it comes
//! later, the program's `bind` fails, and the preloaded library has the drop-in library do it.
//!
//! The alternatives were worse. A listener that makes way has to say where it went, by a management
//! datagram that each connection would wait for, and that a firewall drops in silence. Looking at
//! the client's first bytes, in the listener or around `accept`, fails for protocols in which the
//! server begins, and where the program accepts late.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::sockopt as option;
use rustix::net::{SocketType, ipproto};

use super::{Ipv6Listen, TcpSocket};
use crate::fd::is_internal;
use crate::fork::PerProcess;
use crate::{bpf, sockopt};

/// Traffic class of the packets that make an RDMA connection: DSCP 43, one of those that a network
/// may use as it likes (RFC 2474 §6, pool 2).
pub const RDMA_CLASS: u8 = 43 << 2;

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Ports of this process's listeners, by their descriptors.
static ADMITTING: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new();

/// From now on a port number may be a listener's of ours and of the program's own sockets, too.
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Notes that a socket of ours leaves room for the program's own. Dropped before the socket.
#[derive(Debug)]
pub struct Admission(RawFd);

impl Drop for Admission {
    fn drop(&mut self) {
        admitting().retain(|own| *own != self.0);
    }
}

fn admitting() -> MutexGuard<'static, Vec<RawFd>> {
    ADMITTING.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpSocket {
    /// Lets the program's own sockets have this one's address, by [`bind`] and [`listen`]. `None`
    /// unless that is [enabled](enable).
    pub fn admit(&self) -> Option<Admission> {
        ENABLED.load(Ordering::Relaxed).then(|| {
            admitting().push(self.as_raw_fd());
            Admission(self.as_raw_fd())
        })
    }

    /// As [`Self::reserve`], where nothing has the address but TCP sockets of the program's own, in
    /// this process.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where others have it, or a listener of ours; those of the system, as where it
    /// has no such groups.
    pub fn reserve_beside(addr: SocketAddr, ipv6: Ipv6Listen) -> io::Result<Self> {
        Self::beside_at(addr, &BoundAddr::new(addr, ipv6 == Ipv6Listen::Only))
    }

    /// As [`Self::reserve_beside`], where the program's own sockets are bound at all addresses, and
    /// so is the one that is made: it takes connections to others than `addr`, too, which its
    /// caller has to refuse. The kernel chooses only among sockets at one address.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reserve_beside_all(addr: SocketAddr) -> io::Result<Self> {
        if addr.ip().is_unspecified() {
            return Err(Errno::ADDRINUSE.into());
        }
        let all = |ip: IpAddr| SocketAddr::new(ip, addr.port());
        let both = BoundAddr::new(all(Ipv6Addr::UNSPECIFIED.into()), false);
        let one = match addr {
            SocketAddr::V4(_) => BoundAddr::new(all(Ipv4Addr::UNSPECIFIED.into()), false),
            SocketAddr::V6(_) => BoundAddr::new(all(Ipv6Addr::UNSPECIFIED.into()), true),
        };
        Self::beside_at(addr, &one).or_else(|_| Self::beside_at(addr, &both))
    }

    /// A socket at `bound`, where the program's own are, for connections to `addr`.
    fn beside_at(addr: SocketAddr, bound: &BoundAddr) -> io::Result<Self> {
        if !ENABLED.load(Ordering::Relaxed) || addr.port() == 0 || is_ours(addr) {
            return Err(Errno::ADDRINUSE.into());
        }
        let socket = Self::new(bound.addr)?;
        if bound.addr.is_ipv6() {
            option::set_ipv6_v6only(&socket, bound.ipv6_only)?;
        }
        let theirs = programs_at(bound)?;
        if theirs.is_empty() {
            return Err(Errno::ADDRINUSE.into());
        }
        let opened = theirs.iter().map(Opened::new).collect::<io::Result<Vec<_>>>()?;
        option::set_socket_reuseport(&socket, true)?;
        option::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &bound.addr)?;
        opened.into_iter().for_each(Opened::keep);
        Ok(socket)
    }

    /// Has a socket that has begun to listen share its port, where another has it, too.
    pub(super) fn share_port(&self) -> io::Result<()> {
        if !option::socket_reuseport(self)? {
            return Ok(());
        }
        let theirs = programs_at(&BoundAddr::of(self.as_fd())?)?;
        let listens = |fd: &OwnedFd| option::socket_acceptconn(fd).unwrap_or(false);
        let (own, other) = if theirs.iter().any(listens) { (1, 0) } else { (0, 1) };
        choose_by_class(self.as_fd(), own, other)
    }
}

/// Binds a socket of the program's to an address that a listener of ours has.
///
/// # Errors
///
/// `AddrInUse` where something else is in its way, or the two would not get one set of connections.
pub fn bind(socket: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let ipv6_only = addr.is_ipv6() && option::ipv6_v6only(socket)?;
    let bound = BoundAddr::new(addr, ipv6_only);
    beside(socket, &bound, || Ok(rustix::net::bind(socket, &addr)?))
}

/// Has a socket of the program's listen that is bound where a listener of ours is.
///
/// # Errors
///
/// As [`bind`].
pub fn listen(socket: BorrowedFd<'_>, backlog: c_int) -> io::Result<()> {
    beside(socket, &BoundAddr::of(socket)?, || Ok(rustix::net::listen(socket, backlog)?))
}

fn beside(
    socket: BorrowedFd<'_>,
    bound: &BoundAddr,
    call: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let in_use = || io::Error::from(Errno::ADDRINUSE);
    if !is_tcp(socket) || bound.addr.port() == 0 {
        return Err(in_use());
    }
    // Locked, so that they stay open.
    let admitting = admitting();
    let at_bound = |own: &BorrowedFd<'_>| BoundAddr::of(*own).is_ok_and(|own| own == *bound);
    // SAFETY: an admission goes before its socket, and waits for the lock.
    let mut ours = admitting.iter().map(|own| unsafe { BorrowedFd::borrow_raw(*own) });
    let own = ours.find(at_bound).ok_or_else(in_use)?;
    open_group(own, bound)?;
    let opened = Opened::new(socket)?;
    // Remains of connections of ours are in no socket's way.
    option::set_socket_reuseaddr(socket, true)?;
    call()?;
    opened.keep();
    Ok(())
}

/// The address at which a socket is bound.
#[derive(PartialEq, Eq)]
struct BoundAddr {
    addr: SocketAddr,
    /// All addresses of IPv6, and none of IPv4.
    ipv6_only: bool,
}

impl BoundAddr {
    fn new(addr: SocketAddr, ipv6_only: bool) -> Self {
        let all = addr.is_ipv6() && addr.ip().is_unspecified();
        // The system sets the option at any other address.
        Self { addr, ipv6_only: ipv6_only && all }
    }

    fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let addr = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
        Ok(Self::new(addr, addr.is_ipv6() && option::ipv6_v6only(socket)?))
    }
}

/// A socket with `SO_REUSEPORT`, which is taken back unless it is kept.
struct Opened<F: AsFd>(Option<F>);

impl<F: AsFd> Opened<F> {
    fn new(socket: F) -> io::Result<Self> {
        let before = option::socket_reuseport(&socket)?;
        option::set_socket_reuseport(&socket, true)?;
        Ok(Self((!before).then_some(socket)))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl<F: AsFd> Drop for Opened<F> {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            // The call has worked before.
            let _ = option::set_socket_reuseport(socket, false);
        }
    }
}

/// True if a listener of ours has the port at that address.
fn is_ours(addr: SocketAddr) -> bool {
    admitting().iter().any(|own| {
        // SAFETY: as above.
        let own = BoundAddr::of(unsafe { BorrowedFd::borrow_raw(*own) });
        own.is_ok_and(|BoundAddr { addr: own, .. }| {
            let meet =
                own.ip() == addr.ip() || own.ip().is_unspecified() || addr.ip().is_unspecified();
            own.port() == addr.port() && meet
        })
    })
}

fn is_tcp(socket: impl AsFd) -> bool {
    option::socket_type(&socket) == Ok(SocketType::STREAM)
        && option::socket_protocol(&socket) == Ok(Some(ipproto::TCP))
}

/// The program's own TCP sockets that are bound at an address and not connected.
fn programs_at(bound: &BoundAddr) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    let is_one = |socket: BorrowedFd<'_>| {
        is_tcp(socket)
            && BoundAddr::of(socket).is_ok_and(|its| its == *bound)
            && rustix::net::getpeername(socket).is_err()
    };
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(number) = number.filter(|number| !is_internal(*number) && !is_admitting(*number))
        else {
            continue;
        };
        // SAFETY: only looked at, and the calls fail where it is closed meanwhile.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        if !is_one(socket) {
            continue;
        }
        // From here on the program may do with the number what it likes.
        match rustix::io::fcntl_dupfd_cloexec(socket, 0) {
            Ok(own) if is_one(own.as_fd()) => found.push(own),
            _ => {}
        }
    }
    Ok(found)
}

fn is_admitting(fd: RawFd) -> bool {
    admitting().contains(&fd)
}

/// Lets another socket join ours, which is the first of its group.
fn open_group(own: BorrowedFd<'_>, bound: &BoundAddr) -> io::Result<()> {
    option::set_socket_reuseport(own, true)?;
    // One that does not listen yet chooses when it begins.
    if !option::socket_acceptconn(own)? {
        return Ok(());
    }
    match choose_by_class(own, 0, 1) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        chosen => return chosen,
    }
    // It began to listen without a group, which only a second socket makes.
    let second = TcpSocket::new(bound.addr)?;
    if bound.addr.is_ipv6() {
        option::set_ipv6_v6only(&second, bound.ipv6_only)?;
    }
    option::set_socket_reuseport(&second, true)?;
    option::set_socket_reuseaddr(&second, true)?;
    rustix::net::bind(&second, &bound.addr)?;
    rustix::net::listen(&second, 1)?;
    choose_by_class(own, 0, 1)
}

/// Has the kernel choose the socket with the index `own` for packets of [`RDMA_CLASS`], and `other`
/// for all others, in the group of this socket. If no socket has the index, it takes any.
fn choose_by_class(socket: BorrowedFd<'_>, own: u32, other: u32) -> io::Result<()> {
    /// Without the bits of ECN, which are the network's.
    const DSCP: u32 = 0xfc;

    let mut steps = [
        bpf::load_byte(bpf::IP_HEADER),
        bpf::shift_right(4),
        bpf::if_equal(4, 0, 2),
        // IPv4: the second byte.
        bpf::load_byte(bpf::IP_HEADER + 1),
        bpf::skip(2),
        // IPv6: between the version and the flow label.
        bpf::load_half(bpf::IP_HEADER),
        bpf::shift_right(4),
        bpf::and(DSCP),
        bpf::if_equal(RDMA_CLASS.into(), 0, 1),
        bpf::choose(own),
        bpf::choose(other),
    ];
    sockopt::attach_reuseport(socket, &mut steps)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, socket_with};

    use super::*;
    use crate::Sharing;
    use crate::fork::without_children;

    const LOCAL: [IpAddr; 4] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];

    /// A TCP socket as a program makes it.
    fn program(addr: SocketAddr) -> OwnedFd {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn reserve(addr: SocketAddr) -> io::Result<TcpSocket> {
        TcpSocket::reserve(addr, Ipv6Listen::DualStack, Sharing::Exclusive)
    }

    fn accepted(socket: &TcpSocket) -> Option<SocketAddr> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            match socket.accept() {
                Ok((_, peer)) => return Some(peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    /// Clients of either kind get to the socket that they mean, by every address of the host.
    fn each_finds_its_own(ours: &TcpSocket, theirs: &TcpListener) {
        let addr = ours.local_addr().unwrap();
        let mut dialled = vec![addr];
        if addr.ip().is_unspecified() {
            dialled = vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addr.port())];
            if addr.is_ipv6() {
                dialled.push(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), addr.port()));
            }
        }
        for addr in dialled {
            for _ in 0..20 {
                let marked = TcpSocket::connectable(None, addr).unwrap();
                marked.set_traffic_class(RDMA_CLASS).unwrap();
                marked.start_connecting(addr).unwrap();
                let plain = TcpStream::connect(addr).unwrap();
                let port = |addr: SocketAddr| addr.port();
                let came = accepted(ours).map(port);
                assert_eq!(came, Some(marked.local_addr().unwrap().port()), "{addr}");
                let (_, came) = theirs.accept().unwrap();
                assert_eq!(came.port(), plain.local_addr().unwrap().port(), "{addr}");
            }
        }
    }

    #[test]
    fn a_program_gets_the_port_of_a_listener() {
        let _none = without_children();
        enable();
        for ip in LOCAL {
            for listens_first in [true, false] {
                let ours = reserve(SocketAddr::new(ip, 0)).unwrap();
                let addr = ours.local_addr().unwrap();
                let _admission = ours.admit().unwrap();
                if listens_first {
                    ours.start_listening(16).unwrap();
                }
                for _ in 0..3 {
                    let theirs = program(addr);
                    assert_eq!(rustix::net::bind(&theirs, &addr), Err(Errno::ADDRINUSE));
                    bind(theirs.as_fd(), addr).unwrap();
                    rustix::net::listen(&theirs, 16).unwrap();
                    if !option::socket_acceptconn(&ours).unwrap() {
                        ours.start_listening(16).unwrap();
                    }
                    each_finds_its_own(&ours, &theirs.into());
                }
            }
        }
    }

    #[test]
    fn a_listener_gets_the_port_of_the_programs_own() {
        let _none = without_children();
        enable();
        for ip in LOCAL {
            let theirs = TcpListener::bind((ip, 0)).unwrap();
            let addr = theirs.local_addr().unwrap();
            for _ in 0..3 {
                assert_eq!(reserve(addr).unwrap_err().kind(), io::ErrorKind::AddrInUse);
                let ours = TcpSocket::reserve_beside(addr, Ipv6Listen::DualStack).unwrap();
                let _admission = ours.admit().unwrap();
                ours.start_listening(16).unwrap();
                each_finds_its_own(&ours, &theirs);
                // Two of ours are still one too many.
                let second = TcpSocket::reserve_beside(addr, Ipv6Listen::DualStack);
                assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
            }
        }
    }

    #[test]
    fn a_program_that_was_bound_first_can_listen() {
        enable();
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let theirs = program(any);
        option::set_socket_reuseaddr(&theirs, true).unwrap();
        rustix::net::bind(&theirs, &any).unwrap();
        let addr = BoundAddr::of(theirs.as_fd()).unwrap().addr;
        let ours = reserve(addr).unwrap();
        let _admission = ours.admit().unwrap();
        ours.start_listening(16).unwrap();
        assert_eq!(rustix::net::listen(&theirs, 16), Err(Errno::ADDRINUSE));
        listen(theirs.as_fd(), 16).unwrap();
        each_finds_its_own(&ours, &theirs.into());
    }

    #[test]
    fn an_address_in_another_s_way_stays_in_use() {
        enable();
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let in_use = |done: io::Result<()>| {
            assert_eq!(done.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        };
        let ours = reserve(any).unwrap();
        let addr = ours.local_addr().unwrap();
        let theirs = program(addr);
        // No listener that others know of.
        in_use(bind(theirs.as_fd(), addr));
        let admission = ours.admit().unwrap();
        // All connections would be ours, be they for the program.
        in_use(bind(theirs.as_fd(), SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port())));
        in_use(TcpSocket::reserve_beside(addr, Ipv6Listen::Only).map(drop));
        drop(admission);
        in_use(bind(theirs.as_fd(), addr));
        assert!(!option::socket_reuseport(&theirs).unwrap(), "the option stays behind");
    }
}
