// SPDX-License-Identifier: MIT OR Apache-2.0

//! One UDP port in slots: sockets of one address and port among which the kernel chooses by the
//! destination queue pair number of a RoCE packet.
//!
//! The sockets form a group by `SO_REUSEPORT`, and a program of classic BPF, which every user may
//! attach, makes an index of the number's upper bits. Indices move when a socket of the group is
//! closed, so none may be: all of them lie in the queue of a *vault*, an AF_UNIX socket pair. Each
//! process that shares the port holds the vault and the sockets that it reads itself, so it needs a
//! few descriptors, for any number of slots, and the group lives as long as any of these processes.
//!
//! The first slots are wide, and there are few. The others are made when they are needed, a *wing*
//! of them at a time; each wing is a queue in the vault. The vault's sending end lies in there as
//! well, so that any process that has the vault can add a wing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::sockopt as option;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::datagram::{DatagramSocket, ReceiveBatch};
use crate::fd::{FdPlace, OurFd};
use crate::unix::SeqSocket;
use crate::{bpf, sockopt};

/// Bits of a queue pair number.
const QPN_BITS: u32 = 24;

/// Bytes of the number under which a socket lies in its vault.
const NUMBER: usize = size_of::<u16>();

/// The division of the queue pair numbers among slots: by their upper bits, and of the last of
/// these ranges, which are narrow, by as many bits more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    bits: u32,
    /// Ranges that are one slot each.
    wide: u16,
}

impl Layout {
    /// By so many upper bits, of whose ranges the first `wide` are a slot each.
    ///
    /// # Panics
    ///
    /// Unless `bits` is 1 to 6, and `wide` 1 to `1 << bits`.
    pub const fn new(bits: u32, wide: u16) -> Self {
        assert!(bits >= 1 && bits <= 6 && wide >= 1 && wide <= 1 << bits);
        Self { bits, wide }
    }

    /// Slots that a group has from its beginning.
    pub const fn wide(self) -> u16 {
        self.wide
    }

    /// Slots that are made at a time.
    pub const fn wing(self) -> u16 {
        1 << self.bits
    }

    /// Slots that there can be.
    pub const fn slots(self) -> u16 {
        self.wide + (((1 << self.bits) - self.wide) << self.bits)
    }

    /// The first queue pair number of a slot, and how many of the lower bits are free.
    pub const fn range(self, slot: u16) -> (u32, u32) {
        match slot.checked_sub(self.wide) {
            None => (self.first(slot), QPN_BITS - self.bits),
            Some(narrow) => {
                let below = QPN_BITS - 2 * self.bits;
                (self.first(self.wide) + ((narrow as u32) << below), below)
            }
        }
    }

    /// The slot of a queue pair number.
    pub const fn slot_of(self, number: u32) -> u16 {
        let first = self.first(self.wide);
        if number < first {
            (number >> (QPN_BITS - self.bits)) as u16
        } else {
            self.wide + ((number - first) >> (QPN_BITS - 2 * self.bits)) as u16
        }
    }

    const fn first(self, range: u16) -> u32 {
        (range as u32) << (QPN_BITS - self.bits)
    }
}

/// Keeps the sockets of a group.
#[derive(Debug)]
pub struct Vault {
    queue: SeqSocket,
    layout: Layout,
}

/// A UDP socket: one of a group, or one for itself.
#[derive(Debug)]
pub struct SlotSocket {
    fd: OurFd,
}

impl Vault {
    /// Makes a group of as many sockets at `addr`, whose port is not 0, as the layout has wide
    /// slots. A group at `::` is for IPv4 as well. Packets to QPN 0xFFFFFF, and those that are no
    /// RoCE packets, go to slot 0. Two files for the group's processes are put beside the sockets.
    ///
    /// It takes two descriptors at a time. The caller has to keep other processes of this user from
    /// doing so meanwhile.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where any socket has the port, `AddrNotAvailable`; `ETOOMANYREFS` where the
    /// user has more descriptors on their way than a process may have open; shortages;
    /// `ENOPROTOOPT` of systems that have no such groups.
    pub fn create(
        addr: SocketAddr,
        layout: Layout,
        beside: [BorrowedFd<'_>; BESIDE as usize],
    ) -> io::Result<Self> {
        if addr.port() == 0 {
            return Err(Errno::INVAL.into());
        }
        let (door, queue) = SeqSocket::pair()?;
        for slot in 0..layout.wide {
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
                choose_by_qpn(socket.as_fd(), layout, layout.wide)?;
            }
            put(&door, slot, socket.as_fd())?;
        }
        for (place, fd) in (layout.wide..).zip(beside.into_iter().chain([door.as_fd()])) {
            put(&door, place, fd)?;
        }
        Ok(Self { queue, layout })
    }

    /// Takes over a vault that came from another process, whose group has this layout.
    pub fn adopt(queue: OwnedFd, layout: Layout) -> Self {
        Self { queue: queue.into(), layout }
    }

    /// The layout of the group.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The socket of a slot. Processes that ask at the same moment again and again may get an
    /// error.
    ///
    /// # Errors
    ///
    /// `InvalidData`, `WouldBlock` where the vault has no such socket; shortages.
    pub fn socket(&self, slot: u16) -> io::Result<OwnedFd> {
        match slot.checked_sub(self.layout.wide) {
            None => look(&self.queue, slot),
            Some(narrow) => {
                let wing = SeqSocket::from(self.wing(narrow / self.layout.wing())?);
                look(&wing, narrow % self.layout.wing())
            }
        }
    }

    /// The name of its descriptors in `/proc`, by the number that [`Self::number`] says.
    pub fn link(number: u64) -> String {
        format!("socket:[{number}]")
    }

    /// Its number on this host.
    ///
    /// # Errors
    ///
    /// `EBADF` where it is not ours any more.
    pub fn number(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.queue)?.st_ino)
    }

    /// One of the two files that were put beside the sockets.
    ///
    /// # Errors
    ///
    /// As [`Self::socket`].
    pub fn beside(&self, place: u16) -> io::Result<OwnedFd> {
        look(&self.queue, self.layout.wide + place)
    }

    /// The number of slots.
    pub fn slots(&self) -> u16 {
        let wings = (0..).take_while(|wing| self.wing(*wing).is_ok()).count() as u16;
        self.layout.wide + wings * self.layout.wing()
    }

    /// Makes another wing of slots, in the group at `addr`. The caller has to keep others from
    /// doing so meanwhile.
    ///
    /// # Errors
    ///
    /// `NotFound` where there are all that there can be; as [`Self::create`].
    pub fn add_wing(&self, addr: SocketAddr) -> io::Result<()> {
        let before = self.slots();
        let slots = before + self.layout.wing();
        if slots > self.layout.slots() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let main = SeqSocket::from(look(&self.queue, self.layout.wide + BESIDE)?);
        let (door, wing) = SeqSocket::pair()?;
        let mut last = None;
        for number in 0..self.layout.wing() {
            let socket = udp(addr)?;
            option::set_socket_reuseport(&socket, true)?;
            rustix::net::bind(&socket, &addr)?;
            put(&door, number, socket.as_fd())?;
            last = Some(socket);
        }
        if let Some(last) = last {
            choose_by_qpn(last.as_fd(), self.layout, slots)?;
        }
        let number = (before - self.layout.wide) / self.layout.wing();
        put(&main, self.layout.wide + BESIDE + 1 + number, wing.as_fd())
    }

    fn wing(&self, number: u16) -> io::Result<OwnedFd> {
        look(&self.queue, self.layout.wide + BESIDE + 1 + number)
    }
}

/// Files beside the sockets.
const BESIDE: u16 = 2;

fn put(door: &SeqSocket, number: u16, fd: BorrowedFd<'_>) -> io::Result<()> {
    door.send(&number.to_ne_bytes(), &[fd])
}

/// The file that lies there under the number. Another process that looks at this moment may have us
/// find something else, or nothing.
fn look(queue: &SeqSocket, number: u16) -> io::Result<OwnedFd> {
    const TRIES: usize = 8;

    let mut found = look_once(queue, number);
    for _ in 1..TRIES {
        match &found {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock
                ) =>
            {
                found = look_once(queue, number);
            }
            _ => break,
        }
    }
    found
}

fn look_once(queue: &SeqSocket, number: u16) -> io::Result<OwnedFd> {
    let mut octets = [0; NUMBER];
    let (len, fds) = queue.peek_passed(number * NUMBER as u16, &mut octets)?;
    let found = (len, u16::from_ne_bytes(octets)) == (NUMBER, number);
    match fds.into_iter().next() {
        Some(fd) if found => Ok(fd),
        // Without room in the table of descriptors the message comes without its file.
        None if found => Err(Errno::MFILE.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Reads a slot's socket, with the destination of each packet.
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

    /// The packets that the last call brought: source, destination and bytes of each.
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

    /// True if no socket has the port.
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

    /// The address and port to which it is bound.
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

    /// The number of the network that it is in, of no other on this host.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` before Linux 5.14.
    pub fn network(&self) -> io::Result<u64> {
        sockopt::network(self.as_fd())
    }

    /// Takes a packet, with its source. Bytes that do not go into `room` are lost.
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

/// Has the kernel choose the socket by the slot of the destination queue pair number, for the whole
/// group of this one, in which there are so many. The program's packet begins behind the UDP
/// header.
fn choose_by_qpn(socket: BorrowedFd<'_>, layout: Layout, slots: u16) -> io::Result<()> {
    const MULTICAST: u32 = (1 << QPN_BITS) - 1;

    let Layout { bits, wide } = layout;
    let narrow = layout.first(wide);
    // A packet that ends before the load goes to slot 0.
    let mut steps = [
        bpf::load_word(4),
        bpf::and(MULTICAST),
        bpf::if_equal(MULTICAST, 8, 0),
        bpf::if_not_less(narrow, 2, 0),
        bpf::shift_right(QPN_BITS - bits),
        bpf::choose_accumulator(),
        bpf::subtract(narrow),
        bpf::shift_right(QPN_BITS - 2 * bits),
        bpf::add(wide.into()),
        // The kernel would take any socket where there is none of this number.
        bpf::if_not_less(slots.into(), 1, 0),
        bpf::choose_accumulator(),
        bpf::choose(0),
    ];
    sockopt::attach_reuseport(socket, &mut steps)
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

/// Takes over a socket that came from another process.
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
