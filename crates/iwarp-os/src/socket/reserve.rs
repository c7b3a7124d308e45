//! Taking a port first and deciding later what it is for.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt as option};

use super::{Ipv6Listen, TcpSocket};

/// Who else may take a port that is reserved and not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Exclusive,
    /// Others that share too. One of them can listen.
    Shared,
}

impl TcpSocket {
    /// Takes `addr` (port 0: any) without listening yet: peers are refused. Connections of an
    /// earlier owner that linger do not stand in the way. `ipv6` matters for IPv6 only.
    ///
    /// # Errors
    ///
    /// What `socket` and `bind` report: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn reserve(addr: SocketAddr, ipv6: Ipv6Listen, sharing: Sharing) -> io::Result<Self> {
        let socket = Self::new(addr)?;
        if addr.is_ipv6() {
            option::set_ipv6_v6only(&socket, ipv6 == Ipv6Listen::Only)?;
        }
        if sharing == Sharing::Shared {
            option::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &addr)?;
            return Ok(socket);
        }
        // The option lets past what is left of former connections, but also others that are bound
        // with it. So it is on only for the moment where it is needed.
        match rustix::net::bind(&socket, &addr) {
            Err(Errno::ADDRINUSE) => {
                option::set_socket_reuseaddr(&socket, true)?;
                rustix::net::bind(&socket, &addr)?;
                option::set_socket_reuseaddr(&socket, false)?;
            }
            bound => bound?,
        }
        Ok(socket)
    }

    /// Has a socket of [`reserve`](Self::reserve) listen.
    ///
    /// # Errors
    ///
    /// What `listen` reports; `AddrInUse` when another that shares the port listens already.
    pub fn start_listening(&self, backlog: u32) -> io::Result<()> {
        // Connections inherit it, so that what is left of them blocks nobody.
        option::set_socket_reuseaddr(self, true)?;
        Ok(rustix::net::listen(self, i32::try_from(backlog).unwrap_or(i32::MAX))?)
    }

    /// Has a listening socket refuse peers from now on. It keeps its port if that was named when
    /// it was [reserved](Self::reserve), and can be made to listen again.
    ///
    /// # Errors
    ///
    /// Those of a socket that does not listen.
    pub fn stop_listening(&self) -> io::Result<()> {
        rustix::net::shutdown(self, Shutdown::Both)?;
        Ok(option::set_socket_reuseaddr(self, false)?)
    }

    /// A connection of one end: what is sent comes back. `ip` is an address of this host. Waits
    /// for what passes through the host's own network, so a moment.
    ///
    /// # Errors
    ///
    /// What `bind` and `connect` report; `TimedOut` where the system does not connect a socket to
    /// itself.
    pub fn looped(ip: IpAddr, scope_id: u32) -> io::Result<Self> {
        let mut addr = SocketAddr::new(ip, 0);
        if let SocketAddr::V6(v6) = &mut addr {
            v6.set_scope_id(scope_id);
        }
        let socket = Self::new(addr)?;
        rustix::net::bind(&socket, &addr)?;
        addr.set_port(socket.local_addr()?.port());
        match rustix::net::connect(&socket, &addr) {
            Ok(()) => return Ok(socket),
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut connected = [PollFd::new(&socket, PollFlags::OUT)];
        while rustix::event::poll(&mut connected, Some(&LOOP_PATIENCE)) == Err(Errno::INTR) {}
        option::socket_error(&socket)??;
        match socket.peer_addr() {
            Ok(_) => Ok(socket),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// How long a packet to ourselves may take.
const LOOP_PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn reserve(addr: SocketAddr, sharing: Sharing) -> io::Result<TcpSocket> {
        TcpSocket::reserve(addr, Ipv6Listen::DualStack, sharing)
    }

    fn any() -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
    }

    #[test]
    fn a_reserved_port_is_nobody_elses() {
        let mine = reserve(any(), Sharing::Exclusive).unwrap();
        let addr = mine.local_addr().unwrap();
        assert_ne!(addr.port(), 0);
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            assert_eq!(reserve(addr, sharing).unwrap_err().kind(), ErrorKind::AddrInUse);
        }
        assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        // It does not listen.
        assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        mine.start_listening(1).unwrap();
        TcpStream::connect(addr).unwrap();
    }

    #[test]
    fn what_is_left_of_connections_does_not_block() {
        let mut addr = any();
        for _ in 0..3 {
            let mine = reserve(addr, Sharing::Exclusive).unwrap();
            addr = mine.local_addr().unwrap();
            mine.start_listening(1).unwrap();
            let peer = TcpStream::connect(addr).unwrap();
            let (taken, _) = loop {
                match mine.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    taken => break taken.unwrap(),
                }
            };
            assert_eq!(reserve(addr, Sharing::Exclusive).unwrap_err().kind(), ErrorKind::AddrInUse);
            // Whoever closes first keeps the port in TIME_WAIT.
            drop(taken);
            drop(mine);
            let again = reserve(addr, Sharing::Exclusive).unwrap();
            assert_eq!(reserve(addr, Sharing::Shared).unwrap_err().kind(), ErrorKind::AddrInUse);
            drop((again, peer));
        }
    }

    #[test]
    fn of_those_that_share_one_listens() {
        let first = reserve(any(), Sharing::Shared).unwrap();
        let addr = first.local_addr().unwrap();
        let second = reserve(addr, Sharing::Shared).unwrap();
        first.start_listening(1).unwrap();
        assert_eq!(second.start_listening(1).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn a_reserved_port_can_be_connected_from() {
        let listener = TcpListener::bind(any()).unwrap();
        let mine = reserve(any(), Sharing::Exclusive).unwrap();
        mine.start_connecting(listener.local_addr().unwrap()).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, mine.local_addr().unwrap());
        mine.finish_connect().unwrap();
    }

    #[test]
    fn listening_can_end_and_begin_again() {
        let found = reserve(any(), Sharing::Exclusive).unwrap().local_addr().unwrap();
        let mine = reserve(found, Sharing::Exclusive).unwrap();
        for _ in 0..3 {
            assert_eq!(TcpStream::connect(found).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            mine.start_listening(1).unwrap();
            let peer = TcpStream::connect(found).unwrap();
            let (taken, _) = loop {
                match mine.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    taken => break taken.unwrap(),
                }
            };
            mine.stop_listening().unwrap();
            assert_eq!(reserve(found, Sharing::Shared).unwrap_err().kind(), ErrorKind::AddrInUse);
            drop((taken, peer));
        }
    }

    #[test]
    fn a_looped_connection_has_one_end() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), std::net::Ipv6Addr::LOCALHOST.into()] {
            let socket = TcpSocket::looped(ip, 0).unwrap();
            assert_eq!(socket.local_addr().unwrap(), socket.peer_addr().unwrap());
            assert_eq!(socket.send(&[crate::IoPart::new(b"to me")], false).unwrap(), 5);
            socket.shutdown_write().unwrap();
            let mut room = [0; 8];
            let mut got = 0;
            loop {
                match socket.recv(&mut [crate::IoPartMut::new(&mut room[got..])]) {
                    Ok(0) => break,
                    Ok(n) => got += n,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert_eq!(&room[..got], b"to me");
        }
    }
}
