// SPDX-License-Identifier: MIT OR Apache-2.0

//! UDP sockets whose packets are known as they leave the host.
//!
//! A checksum that covers the IP header (RoCE's ICRC) asks for that: an unconnected socket that
//! forbids fragmentation sends IPv4 packets with identification 0, or those of one segmented send
//! with 0, 1, 2, ... (`UDP_SEGMENT`). So these sockets are never connected, and each message says
//! from which address it goes. IPv4 and IPv6 have sockets of their own, or share one that is bound
//! to `::`: then both sets of options are set, and addresses are handed out as those that they are.
//!
//! ```text
//!   options    options that are set once: path MTU discovery, control messages, buffers, checksums
//!   group      multicast: joining groups, and sending to them
//!   control    control messages as bytes
//!   send       many messages in one call, each of one packet or a train of them
//!   receive    many messages from one call, into a buffer that is used again
//!   glimpse    the headers of a packet as it left
//! ```
//!
//! Every socket is non-blocking, closed on exec, and lies above the descriptors that `select()` can
//! name; no call is a cancellation point. Only the two batches allocate, when they are made.

mod control;
mod glimpse;
mod group;
mod options;
mod receive;
mod send;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::sockopt as option;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::fd::{FdPlace, OurFd, as_fd};

pub use glimpse::Glimpse;
pub use options::{Buffers, Discovery};
pub use receive::{Arrival, ReceiveBatch};
pub use send::{MAX_SEGMENTS, Outgoing, Refusal, SendBatch};

/// A UDP socket, bound and not connected.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: OurFd,
    local: SocketAddr,
    /// It has the port for IPv4 too.
    dual: bool,
}

/// The other sockets that may bind its address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// None.
    Alone,
    /// Sockets of this user that say so too; each packet goes to one of them (`SO_REUSEPORT`).
    InTurns,
    /// Sockets of any user that say so too; a packet to a multicast group goes to each of them, any
    /// other to the last that came (`SO_REUSEADDR`).
    Everybody,
}

impl DatagramSocket {
    /// Binds a socket to `addr` (port 0: any), with all that [`options`](self) are for: packets are
    /// never fragmented, arrivals say to which address they came, how and with what around them,
    /// trains may come in one piece, and IPv6 packets without a UDP checksum are let in.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`; `Unsupported` where the system lacks an
    /// option without which packets would be dropped unseen.
    pub fn bind(addr: SocketAddr, binding: Binding) -> io::Result<Self> {
        let family = match addr.ip() {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        let mut socket = Self { fd: FdPlace::Internal.put(fd), local: addr, dual: false };
        socket.prepare()?;
        match binding {
            Binding::Alone => {}
            Binding::InTurns => option::set_socket_reuseport(&socket, true)?,
            Binding::Everybody => option::set_socket_reuseaddr(&socket, true)?,
        }
        rustix::net::bind(&socket, &addr)?;
        socket.local = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(socket)
    }

    /// Takes over a socket that another process has bound, and sets its options once more: they do
    /// no harm twice. The number moves out of `select()`'s range. One that is bound to `::` and not
    /// for IPv6 alone is for both families.
    ///
    /// # Errors
    ///
    /// As those of [`Self::bind`]; `InvalidInput` where it is no bound UDP socket.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        if option::socket_protocol(&fd)? != Some(ipproto::UDP) {
            return Err(invalid());
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        let local = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
        if local.port() == 0 {
            return Err(invalid());
        }
        let dual = local.is_ipv6() && local.ip().is_unspecified() && !option::ipv6_v6only(&fd)?;
        let socket = Self { fd: FdPlace::Internal.put(fd), local, dual };
        socket.prepare()?;
        Ok(socket)
    }

    /// Its address and port. Costs no system call.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// True if packets of IPv4 go by it.
    pub const fn has_ipv4(&self) -> bool {
        self.local.is_ipv4() || self.dual
    }

    /// True if packets of IPv6 go by it.
    pub const fn has_ipv6(&self) -> bool {
        self.local.is_ipv6()
    }
}

as_fd!(DatagramSocket);
