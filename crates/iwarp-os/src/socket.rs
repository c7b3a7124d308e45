// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP sockets and their options.
//!
//! Every socket is non-blocking, closed on exec, and lies above the descriptors that `select()`
//! can name. Sending and receiving is in [`stream`](crate::stream).

pub mod beside;
mod reserve;
mod spare;
mod vitals;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode};
use rustix::net::sockopt as option;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType, ipproto,
};

use crate::fd::{FdPlace, OurFd, as_fd};
use crate::sockopt;

pub use reserve::Sharing;
pub use spare::{Spare, is_of_connection, is_shortage, wants_descriptors};
pub use vitals::Vitals;

/// A TCP socket: connecting, connected or listening.
#[derive(Debug)]
pub struct TcpSocket {
    fd: OurFd,
}

/// The addresses that a listener on an IPv6 address takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Listen {
    /// IPv6 alone, which leaves the port free for an IPv4 listener.
    Only,
    /// On `::`, IPv4 too; its peers have addresses of the form `::ffff:192.0.2.1`.
    DualStack,
}

/// The way in which an idle connection is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The time that the connection is idle before the first probe; whole seconds, at least one.
    pub idle: Duration,
    /// Time between probes; whole seconds, at least one.
    pub interval: Duration,
    /// The number of probes without an answer that end the connection.
    pub probes: u32,
}

impl TcpSocket {
    /// Starts to connect to `remote`, from `local` if given (port 0: any).
    ///
    /// When the socket turns writable, [`finish_connect`](Self::finish_connect) says how it went.
    ///
    /// # Errors
    ///
    /// Errors that `socket`, `bind` or `connect` report at once: `AddrInUse`, `AddrNotAvailable`,
    /// `NetworkUnreachable`, `InvalidInput` for addresses of two families; `ConnectionRefused`
    /// may come here too, on loopback.
    pub fn connect_start(local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Self> {
        let socket = Self::connectable(local, remote)?;
        socket.start_connecting(remote)?;
        Ok(socket)
    }

    /// A socket that [`start_connecting`](Self::start_connecting) can connect to `remote`, for
    /// options that have to be set before. Parameters and errors are those of
    /// [`connect_start`](Self::connect_start).
    ///
    /// # Errors
    ///
    /// See there.
    pub fn connectable(local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(remote)?;
        if let Some(local) = local {
            if local.is_ipv4() != remote.is_ipv4() {
                return Err(Errno::INVAL.into());
            }
            if local.port() == 0 {
                // Leaves the choice of the port to `connect`, which knows the remote end and so
                // can use a port many times. Only an economy: a system without it works too.
                let name = libc::IP_BIND_ADDRESS_NO_PORT;
                let _ = sockopt::set_int(socket.as_fd(), libc::IPPROTO_IP, name, 1);
            } else {
                option::set_socket_reuseaddr(&socket, true)?;
            }
            rustix::net::bind(&socket, &local)?;
        }
        Ok(socket)
    }

    /// Has a socket of [`connectable`](Self::connectable) or [`reserve`](Self::reserve) connect.
    ///
    /// # Errors
    ///
    /// Errors that `connect` reports at once.
    pub fn start_connecting(&self, remote: SocketAddr) -> io::Result<()> {
        // So that remains of the connection do not keep its port from its next owner.
        option::set_socket_reuseaddr(self, true)?;
        match rustix::net::connect(self, &remote) {
            // Interrupted, a non-blocking connect goes on like one in progress.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The end of the attempt of [`connect_start`](Self::connect_start). The system tells of a
    /// failure once; ask again and it looks as if the attempt went on.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while it goes on; `ConnectionRefused`, `TimedOut`, `HostUnreachable` and so on
    /// when it failed. A socket that met itself counts as refused: where no process listens on a
    /// port of the ephemeral range, TCP may pick that very port for our end and connect the socket
    /// to itself (a simultaneous open).
    pub fn finish_connect(&self) -> io::Result<()> {
        option::socket_error(self)??;
        let peer = match self.peer_addr() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            peer => peer?,
        };
        if peer == self.local_addr()? {
            return Err(Errno::CONNREFUSED.into());
        }
        Ok(())
    }

    /// Listens on `addr` (port 0: any) with `SO_REUSEADDR`. `ipv6` matters for IPv6 only.
    ///
    /// # Errors
    ///
    /// Errors that `socket`, `bind` or `listen` report: `AddrInUse`, `AddrNotAvailable`,
    /// `PermissionDenied`.
    pub fn listen(addr: SocketAddr, backlog: u32, ipv6: Ipv6Listen) -> io::Result<Self> {
        let socket = Self::new(addr)?;
        option::set_socket_reuseaddr(&socket, true)?;
        if addr.is_ipv6() {
            option::set_ipv6_v6only(&socket, ipv6 == Ipv6Listen::Only)?;
        }
        rustix::net::bind(&socket, &addr)?;
        rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    }

    /// Takes a connection that is waiting, with the peer's address.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when none is waiting. Network errors of the connection itself (`EPROTO`,
    /// `NetworkDown`, ...) concern that connection, not the listener ([`is_of_connection`]): call
    /// again. After any other it is still waiting: a level-triggered poll reports it again at once,
    /// so pause.
    pub fn accept(&self) -> io::Result<(TcpSocket, SocketAddr)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let taken = match rustix::net::acceptfrom_with(self, flags) {
                // A sandbox that knows the older call alone.
                Err(Errno::NOSYS | Errno::PERM) => {
                    rustix::net::acceptfrom(self).and_then(|taken| {
                        rustix::io::fcntl_setfd(&taken.0, rustix::io::FdFlags::CLOEXEC)?;
                        rustix::io::ioctl_fionbio(&taken.0, true)?;
                        Ok(taken)
                    })
                }
                taken => taken,
            };
            match taken {
                // Aborted: gone before we came.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
                Ok((fd, peer)) => {
                    let peer = inet(peer.ok_or(Errno::AFNOSUPPORT)?)?;
                    return Ok((TcpSocket { fd: FdPlace::Internal.put(fd) }, peer));
                }
            }
        }
    }

    /// Address of our end.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK` when the descriptor is not ours any more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(rustix::net::getsockname(self)?)
    }

    /// Address of the other end.
    ///
    /// # Errors
    ///
    /// `NotConnected` before the connection is there and after a reset.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(rustix::net::getpeername(self)?.ok_or(Errno::NOTCONN)?)
    }

    /// Takes the error the socket has stored (`SO_ERROR`); `Ok` when there is none.
    ///
    /// # Errors
    ///
    /// The stored error.
    pub fn take_error(&self) -> io::Result<()> {
        Ok(option::socket_error(self)??)
    }

    /// Sends small segments at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        Ok(option::set_tcp_nodelay(self, on)?)
    }

    /// Probes the peer while the connection is idle; `None`: does not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a value is out of the system's range (1 to 32,767 s, 1 to 127 probes).
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        if let Some(keepalive) = keepalive {
            option::set_tcp_keepidle(self, keepalive.idle)?;
            option::set_tcp_keepintvl(self, keepalive.interval)?;
            option::set_tcp_keepcnt(self, keepalive.probes)?;
        }
        Ok(option::set_socket_keepalive(self, keepalive.is_some())?)
    }

    /// Sets how long bytes may stay unacknowledged, or unsent into a closed window, before the
    /// connection ends with `TimedOut` (`TCP_USER_TIMEOUT`); in milliseconds, rounded up. `None`:
    /// the system's retransmission limit alone.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        // The kernel takes an int: 24 days at most.
        let millis = timeout
            .map_or(0, |t| t.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128) as u32);
        Ok(option::set_tcp_user_timeout(self, millis)?)
    }

    /// The effective maximum segment size in bytes, as of now (`TCP_MAXSEG`): the EMSS from which
    /// MPA takes its MULPDU (RFC 5044 §4.2). It changes while a connection lives.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn maxseg(&self) -> io::Result<usize> {
        Ok(sockopt::int(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG)? as usize)
    }

    /// Name of the congestion control in use (`cubic`, `bbr`, ...).
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn congestion(&self) -> io::Result<String> {
        Ok(option::tcp_congestion(self)?)
    }

    /// Chooses the congestion control.
    ///
    /// # Errors
    ///
    /// `NotFound` for one that is not loaded, `PermissionDenied` for one that is not open to every
    /// user (`net.ipv4.tcp_allowed_congestion_control`).
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        Ok(option::set_tcp_congestion(self, name)?)
    }

    /// The byte with DSCP and ECN bits that packets carry: type of service in IPv4, traffic
    /// class in IPv6. TCP keeps the ECN bits to itself.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` where the system reserves some values.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        if option::socket_domain(self)? == AddressFamily::INET6 {
            option::set_ipv6_tclass(self, class.into())?;
            // An IPv6 socket that speaks IPv4 has both; a pure one refuses this.
            let _ = option::set_ip_tos(self, class);
            return Ok(());
        }
        Ok(option::set_ip_tos(self, class)?)
    }

    /// Bytes that the socket has taken and the peer has not acknowledged (`SIOCOUTQ`), sent or
    /// not. A FIN counts as one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` on a listener.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        self.octets::<SIOCOUTQ>()
    }

    /// Bytes that the socket has taken and not yet sent even once (`SIOCOUTQNSD`).
    ///
    /// # Errors
    ///
    /// `InvalidInput` on a listener.
    pub fn unsent(&self) -> io::Result<usize> {
        self.octets::<SIOCOUTQNSD>()
    }

    /// True if bytes were received and not yet read. Works where a sandbox refuses `ioctl`.
    ///
    /// # Errors
    ///
    /// As for `recv(2)`, but for `WouldBlock`.
    pub fn has_input(&self) -> io::Result<bool> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut [0; 1][..], flags) {
            Ok((octets, _)) => Ok(octets > 0),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes received and not yet read (`FIONREAD`).
    ///
    /// # Errors
    ///
    /// `InvalidInput` on a listener.
    pub fn readable(&self) -> io::Result<usize> {
        Ok(rustix::io::ioctl_fionread(self)? as usize)
    }

    /// Ends our direction of the stream: after what was sent comes a FIN.
    ///
    /// # Errors
    ///
    /// `NotConnected` when the connection is gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, Shutdown::Write)?)
    }

    /// Closes the socket at once with a reset (RST). Unsent bytes are lost.
    pub fn reset(self) {
        // Cannot fail on a socket that is ours; if it does, closing is all that is left.
        let _ = self.reset_on_close();
    }

    /// Closing will send a reset (RST) and drop unsent bytes.
    ///
    /// # Errors
    ///
    /// As for `setsockopt(2)`, on a descriptor that is not ours any more.
    pub fn reset_on_close(&self) -> io::Result<()> {
        Ok(option::set_socket_linger(self, Some(Duration::ZERO))?)
    }

    fn new(addr: SocketAddr) -> io::Result<Self> {
        let family = match addr.ip() {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let tcp = Some(ipproto::TCP);
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, tcp)?;
        Ok(TcpSocket { fd: FdPlace::Internal.put(fd) })
    }

    fn octets<const QUESTION: Opcode>(&self) -> io::Result<usize> {
        // SAFETY: private to this file, and called with SIOCOUTQ and SIOCOUTQNSD only, which write
        // one int on any socket and fail on anything else. (SIOCOUTQ shares its number with
        // TIOCOUTQ, which writes one int too.)
        let octets =
            unsafe { rustix::ioctl::ioctl(self, Getter::<QUESTION, std::ffi::c_int>::new())? };
        Ok(octets as usize)
    }
}

const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
const SIOCOUTQNSD: Opcode = libc::SIOCOUTQNSD as Opcode;

fn inet(addr: SocketAddrAny) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(addr)?)
}

/// Takes over a connected socket that came from elsewhere; it has to be non-blocking TCP, or its
/// calls fail (never wait: every transfer carries `MSG_DONTWAIT`). The number stays as it is.
impl From<OwnedFd> for TcpSocket {
    fn from(fd: OwnedFd) -> Self {
        TcpSocket { fd: OurFd::internal(fd) }
    }
}

impl From<TcpSocket> for OwnedFd {
    fn from(socket: TcpSocket) -> Self {
        socket.fd.into_owned()
    }
}

as_fd!(TcpSocket);
