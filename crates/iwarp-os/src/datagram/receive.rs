// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many messages from one call.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr;

use iwarp_mem::{OutOfMemory, filled};

use super::DatagramSocket;
use super::control::{self, NAME, space};
use super::send::empty_headers;

/// An arrival in one piece: a packet, or several of one train.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination: an address of this host, or a group; and the port of the socket.
    pub destination: SocketAddr,
    /// Index of the interface at which it came, on a socket of all addresses; else 0.
    pub interface: u32,
    /// Time to live, or hop limit, that it had left.
    pub hop_limit: u8,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Bytes of each packet, but the last, which may have fewer.
    pub segment: usize,
    /// The octets in them.
    pub octets: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// Its packets. One without bytes is none.
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.octets.chunks(self.segment.max(1))
    }
}

/// Bytes of a merged arrival, at most.
const MOST: usize = 1 << 16;
/// Keeps the beginnings of the places apart in the CPU's caches.
const SHIFT: usize = 5 * 64;
/// The packet information of IPv6, and four numbers. Any more would be cut off.
const CONTROL: usize = space(size_of::<libc::in6_pktinfo>()) + 4 * space(size_of::<u32>());

/// Storage for the arrivals of one call; used again for the next.
pub struct ReceiveBatch {
    octets: Box<[u8]>,
    slots: Box<[Slot]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
    local: SocketAddr,
    damaged: u64,
}

// SAFETY: the pointers in `headers` lead into boxes of this very batch, which move with it, and
// are followed by calls alone that borrow it for themselves.
unsafe impl Send for ReceiveBatch {}
// SAFETY: as above; by a shared reference it is read only.
unsafe impl Sync for ReceiveBatch {}

struct Slot {
    name: [u8; NAME],
    iov: libc::iovec,
    control: [u8; CONTROL],
}

impl ReceiveBatch {
    /// One for so many pieces in one call, at least one; each has room for the longest. Pages that
    /// nothing has come to take no memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn new(pieces: usize) -> Result<Self, OutOfMemory> {
        let pieces = pieces.max(1);
        let mut batch = Self {
            octets: iwarp_mem::zeroed(pieces * (MOST + SHIFT))?.into(),
            slots: filled(pieces, Slot::empty)?,
            headers: empty_headers(pieces)?,
            filled: 0,
            local: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            damaged: 0,
        };
        let places = batch.octets.chunks_mut(MOST + SHIFT);
        for ((slot, header), place) in batch.slots.iter_mut().zip(&mut batch.headers).zip(places) {
            slot.iov = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: MOST };
            let header = &mut header.msg_hdr;
            header.msg_name = slot.name.as_mut_ptr().cast();
            header.msg_iov = &raw mut slot.iov;
            header.msg_iovlen = 1;
            header.msg_control = slot.control.as_mut_ptr().cast();
            reset(header);
        }
        Ok(batch)
    }

    /// The arrivals of the last call, in order. One that came with something cut off is left out,
    /// as its destination, or the size of its packets, is not known then.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        (0..self.filled).filter_map(|index| self.arrival(index))
    }

    /// Arrivals that were left out, since the batch was made.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    fn arrival(&self, index: usize) -> Option<Arrival<'_>> {
        let (slot, header) = (&self.slots[index], &self.headers[index]);
        let len = header.msg_len as usize;
        let header = &header.msg_hdr;
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return None;
        }
        let octets = self.octets.get(index * (MOST + SHIFT)..)?.get(..len)?;
        let unknown = self.local.ip().is_unspecified();
        let mut arrival = Arrival {
            source: canonical(control::name(&slot.name, header.msg_namelen as usize)?),
            destination: self.local,
            interface: 0,
            hop_limit: 0,
            traffic_class: 0,
            segment: len,
            octets,
        };
        let control_len: usize = header.msg_controllen as _;
        for message in control::messages(slot.control.get(..control_len)?) {
            arrival.note(&message);
        }
        let known = !unknown || !arrival.destination.ip().is_unspecified();
        known.then_some(arrival)
    }
}

impl Slot {
    const fn empty() -> Self {
        let iov = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self { name: [0; NAME], iov, control: [0; CONTROL] }
    }
}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pieces, filled) = (self.slots.len(), self.filled);
        f.debug_struct("ReceiveBatch").field("pieces", &pieces).field("filled", &filled).finish()
    }
}

impl Arrival<'_> {
    /// Takes down what a control message says.
    fn note(&mut self, message: &control::Message<'_>) {
        let octet = || message.number().map_or(0, |number| number as u8);
        let data = message.data;
        match (message.level, message.kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let segment = message.number().unwrap_or(0) as usize;
                // 0 would mean nothing.
                self.segment = if segment == 0 { self.segment } else { segment };
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = octet();
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class = octet();
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // Behind it and the address of the route: the destination in the packet's header.
                let to = control::field::<4>(data, 8).map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
                self.at(to, control::field(data, 0));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let to = control::field::<16>(data, 0).map(|ip| IpAddr::from(Ipv6Addr::from(ip)));
                self.at(to, control::field(data, 16));
            }
            _ => {}
        }
    }

    fn at(&mut self, to: Option<IpAddr>, interface: Option<[u8; 4]>) {
        if let (Some(to), Some(interface)) = (to, interface) {
            self.destination = SocketAddr::new(to.to_canonical(), self.destination.port());
            self.interface = u32::from_ne_bytes(interface);
        }
    }
}

impl DatagramSocket {
    /// Receives what is there into `batch`, whose former contents go, and says how many pieces
    /// came. Never waits, and carries on when a signal interrupts it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing is there; `EBADF`, `ENOTSOCK` where the descriptor is not ours
    /// any more. Reports on packets that were sent are no errors here.
    pub fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        for header in &mut batch.headers[..batch.filled] {
            reset(&mut header.msg_hdr);
        }
        batch.filled = 0;
        batch.local = self.local;
        let count = batch.headers.len();
        let flags = libc::MSG_DONTWAIT;
        loop {
            // SAFETY: the headers point to names, control messages and bytes of the batch, with
            // their lengths, and all of it is borrowed for this call; there is no timeout.
            let got = unsafe {
                let (fd, list) = (self.as_raw_fd(), batch.headers.as_mut_ptr());
                libc::syscall(libc::SYS_recvmmsg, fd, list, count, flags, 0_usize)
            };
            if let Ok(got) = usize::try_from(got) {
                batch.filled = got;
                let whole = batch.arrivals().count();
                batch.damaged += (got - whole) as u64;
                return Ok(got);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // Reports of routers and peers on packets that were sent, told once.
                Some(
                    libc::ECONNREFUSED
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
                    | libc::EMSGSIZE
                    | libc::EPROTO
                    | libc::EACCES
                    | libc::ENOPROTOOPT
                    | libc::EHOSTDOWN
                    | libc::ENETDOWN
                    | libc::ENONET,
                ) => {}
                _ => return Err(error),
            }
        }
    }

    /// True if something has come that was not received yet.
    ///
    /// # Errors
    ///
    /// As for [`Self::receive`], but for `WouldBlock`.
    pub fn has_input(&self) -> io::Result<bool> {
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut [0; 1][..], flags) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes an IPv4-mapped address, as a socket of both families has it, one of IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

/// Room as it was before the system said how much of it was needed.
const fn reset(header: &mut libc::msghdr) {
    header.msg_namelen = NAME as _;
    header.msg_controllen = CONTROL as _;
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::os::fd::AsFd;

    use super::*;
    use crate::datagram::{Binding, Outgoing, SendBatch};
    use crate::sockopt;

    /// An arrival with something cut off is left out and counted: it may have been how to cut it.
    #[test]
    fn arrivals_whose_control_messages_are_cut_off_are_left_out() {
        let bound =
            || DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), Binding::Alone).unwrap();
        let (from, to) = (bound(), bound());
        let message = Outgoing {
            octets: b"text",
            destination: to.local_addr(),
            source: from.local_addr().ip(),
            interface: 0,
            segment: 4,
            traffic_class: None,
            hop_limit: None,
            flow_label: 0,
        };
        let mut batch = ReceiveBatch::new(2).unwrap();
        let mut whole = |damaged| {
            from.send(&mut SendBatch::new(2).unwrap(), [message; 2]).unwrap();
            let came = to.receive(&mut batch).unwrap();
            assert_eq!((came, batch.damaged()), (2, damaged));
            batch.arrivals().count()
        };
        assert_eq!(whole(0), 2);
        // More than there is room for.
        let more: [(c_int, c_int); 4] = [
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
            (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
        ];
        for (level, name) in more {
            sockopt::set_int(to.as_fd(), level, name, 1).unwrap();
        }
        assert_eq!(whole(2), 0);
        for (level, name) in more {
            sockopt::set_int(to.as_fd(), level, name, 0).unwrap();
        }
        assert_eq!(whole(2), 2);
    }
}
