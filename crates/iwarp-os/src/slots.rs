// SPDX-License-Identifier: MIT OR Apache-2.0

//! One UDP port in slots: sockets of one address and port among which the kernel chooses by the
//! destination queue pair number of a RoCE packet.
//!
//! The sockets form a group by `SO_REUSEPORT`, and a program of classic BPF, which every user may
//! attach, makes an index of the number's upper bits. Indices move when a socket of the group is
//! closed, so none may be: all of them lie in the queue of a *vault*, an AF_UNIX socket pair whose
//! sending end is closed. Each process that shares the port holds the vault and the sockets that it
//! reads itself, so it needs a few descriptors, whatever the number of slots, and the group lives as
//! long as any of these processes.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::sockopt as option;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::datagram::{DatagramSocket, ReceiveBatch};
use crate::fd::{FdPlace, OurFd};
use crate::sockopt;
use crate::unix::SeqSocket;

/// Bits of a queue pair number.
const QPN_BITS: u32 = 24;

/// Keeps the sockets of a group.
#[derive(Debug)]
pub struct Vault {
    queue: SeqSocket,
}

/// A UDP socket: one of a group, or one for itself.
#[derive(Debug)]
pub struct SlotSocket {
    fd: OurFd,
}

impl Vault {
    /// Makes a group of 2^`bits` sockets at `addr`, whose port is not 0; `bits` is 1 to 8. That of `::`
    /// is for IPv4 as well. Packets
    /// to QPN 0xFFFFFF, and those that are no RoCE packets, go to slot 0.
    ///
    /// It takes two descriptors at a time. The caller has to keep other processes of the same user
    /// from doing the same meanwhile.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where any socket has the port, `AddrNotAvailable`; `ETOOMANYREFS` where the
    /// user has more descriptors on their way than a process may have open; shortages;
    /// `ENOPROTOOPT` of systems that have no such groups.
    pub fn create(addr: SocketAddr, bits: u32) -> io::Result<Self> {
        if addr.port() == 0 || !(1..=8).contains(&bits) {
            return Err(Errno::INVAL.into());
        }
        let (door, queue) = SeqSocket::pair()?;
        for slot in 0..1_u32 << bits {
            let socket = udp(addr)?;
            // The first takes the port for itself alone, so no group can be there already.
            if slot > 0 {
                option::set_socket_reuseport(&socket, true)?;
            }
            rustix::net::bind(&socket, &addr)?;
            if slot == 0 {
                option::set_socket_reuseport(&socket, true)?;
            }
            // The group exists from its second socket on.
            if slot == 1 {
                choose_by_qpn(socket.as_fd(), bits)?;
            }
            door.send(&[slot as u8], &[socket.as_fd()])?;
        }
        Ok(Self { queue })
    }

    /// The socket of a slot. Only one process at a time may ask.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the vault has no such socket; shortages.
    pub fn socket(&self, slot: u8) -> io::Result<OwnedFd> {
        let mut number = [0];
        let (len, fds) = self.queue.peek_passed(slot.into(), &mut number)?;
        match fds.into_iter().next() {
            Some(socket) if (len, number[0]) == (1, slot) => Ok(socket),
            // Without room in the table of descriptors the message comes without.
            None if (len, number[0]) == (1, slot) => Err(Errno::MFILE.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads a slot's socket, and says of each packet where it was sent.
#[derive(Debug)]
pub struct SlotReader {
    socket: DatagramSocket,
    arrived: ReceiveBatch,
}

impl SlotReader {
    /// One that takes so many pieces in one call, each of one packet or several. The socket stays
    /// the caller's as well.
    ///
    /// # Errors
    ///
    /// Shortages; those of [`DatagramSocket::adopt`].
    pub fn new(socket: &SlotSocket, pieces: usize) -> io::Result<Self> {
        let socket = DatagramSocket::adopt(socket.as_fd().try_clone_to_owned()?)?;
        Ok(Self { socket, arrived: ReceiveBatch::new(pieces)? })
    }

    /// Receives what is there, in one call.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing is there; others where the socket is not ours any more.
    pub fn receive(&mut self) -> io::Result<usize> {
        self.socket.receive(&mut self.arrived)
    }

    /// The packets that the last call brought: where each comes from, where it was sent, and what is
    /// in it.
    pub fn packets(&self) -> impl Iterator<Item = (SocketAddr, IpAddr, &[u8])> {
        self.arrived.arrivals().flat_map(|arrival| {
            let (from, to) = (arrival.source, arrival.destination.ip());
            arrival.packets().map(move |packet| (from, to, packet))
        })
    }
}

impl SlotSocket {
    /// A socket for itself at `addr`; port 0: any.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, shortages.
    pub fn alone(addr: SocketAddr) -> io::Result<Self> {
        let fd = udp(addr)?;
        rustix::net::bind(&fd, &addr)?;
        Ok(Self { fd: FdPlace::Internal.put(fd) })
    }

    /// Whether no socket has the port.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable`, shortages.
    pub fn is_free(addr: SocketAddr) -> io::Result<bool> {
        let socket = udp(addr)?;
        match rustix::net::bind(&socket, &addr) {
            Ok(()) => Ok(true),
            Err(Errno::ADDRINUSE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Where it is bound.
    ///
    /// # Errors
    ///
    /// `ENOTSOCK`, and others of descriptors that are no such socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        if option::socket_type(self)? != SocketType::DGRAM {
            return Err(Errno::PROTOTYPE.into());
        }
        Ok(SocketAddr::try_from(rustix::net::getsockname(self)?)?)
    }

    /// Takes a packet, and where it comes from. What does not go into `room` is lost.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there is none; what ICMP has reported, which concerns no packet of these.
    pub fn recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (len, _, from) = rustix::net::recvfrom(self, room, RecvFlags::DONTWAIT)?;
        Ok((len, SocketAddr::try_from(from.ok_or(Errno::AFNOSUPPORT)?)?))
    }

    /// Drops what has come, `most` packets at most, and says how many those were.
    pub fn drain(&self, most: usize) -> usize {
        let mut dropped = 0;
        while dropped < most {
            match rustix::net::recv(self, &mut [0_u8; 1][..], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => break,
                // An error that was stored is a packet less of those that are left.
                _ => dropped += 1,
            }
        }
        dropped
    }
}

fn udp(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if addr.is_ipv6() {
        // All addresses are those of IPv4, too.
        option::set_ipv6_v6only(&fd, !addr.ip().is_unspecified())?;
        // RoCE packets have no UDP checksum, and IPv6 drops such without this.
        sockopt::set_int(fd.as_fd(), libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        // Since Linux 4.20.
        let _ = sockopt::set_int(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
    }
    if addr.is_ipv4() || addr.ip().is_unspecified() {
        // Packets to a group that another slot has joined would fill the buffers of all.
        sockopt::set_int(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
    }
    Ok(fd)
}

/// Has the kernel choose the socket by the upper `bits` bits of the destination queue pair number,
/// for the whole group of this one. The program's packet begins behind the UDP header.
fn choose_by_qpn(socket: BorrowedFd<'_>, bits: u32) -> io::Result<()> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const SHIFT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const RETURN_A: u32 = libc::BPF_RET | libc::BPF_A;
    const MULTICAST: u32 = (1 << QPN_BITS) - 1;

    let step = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // A packet that ends before the load ends the program with 0.
    let mut steps = [
        step(LOAD, 0, 4),
        step(AND, 0, MULTICAST),
        step(EQUAL, 2, MULTICAST),
        step(SHIFT, 0, QPN_BITS - bits),
        step(RETURN_A, 0, 0),
        step(RETURN, 0, 0),
    ];
    // valgrind reports bytes of it that are not set, be they between its fields.
    // SAFETY: a number and a pointer may be zero.
    let mut program: libc::sock_fprog = unsafe { std::mem::zeroed() };
    program.len = steps.len() as u16;
    program.filter = steps.as_mut_ptr();
    // SAFETY: the kernel reads the structure and the steps that it points to, which outlive the
    // call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF as c_int,
            &raw const program,
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

macro_rules! descriptor {
    ($($type:ident: $field:ident),*) => {$(
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.$field.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.$field.as_raw_fd()
            }
        }
    )*};
}

descriptor!(Vault: queue, SlotSocket: fd, SlotReader: socket);

/// Takes over what came from another process.
impl From<OwnedFd> for Vault {
    fn from(fd: OwnedFd) -> Self {
        Self { queue: fd.into() }
    }
}

/// Takes over what came from another process.
impl From<OwnedFd> for SlotSocket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: FdPlace::Internal.put(fd) }
    }
}

impl From<SlotSocket> for OwnedFd {
    fn from(socket: SlotSocket) -> Self {
        socket.fd.into_owned()
    }
}

#[cfg(test)]
mod tests;
