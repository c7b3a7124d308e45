// SPDX-License-Identifier: MIT OR Apache-2.0

//! Taking a port first and deciding later what it is for.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt as option;

use super::{Ipv6Listen, TcpSocket};

/// The sockets that may take a port beside the one that has reserved it and does not use it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No other socket.
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
    /// Errors that `socket` and `bind` report: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
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
        // The option lets past remains of former connections, but also others that are bound with
        // it. So it is on only for the moment where it is needed.
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
    /// Errors that `listen` reports; `AddrInUse` when another that shares the port listens already.
    pub fn start_listening(&self, backlog: u32) -> io::Result<()> {
        // Connections inherit it, so that their remains keep the port from no process.
        option::set_socket_reuseaddr(self, true)?;
        listen(self, backlog)?;
        self.share_port().inspect_err(|_| self.stop_listening())
    }

    /// Keeps it open in forked children, for [`take_over`](Self::take_over).
    pub fn bequeath(&self) {
        self.fd.bequeath();
    }

    /// Has forked children close it again.
    pub fn disinherit(&self) {
        self.fd.disinherit();
    }

    /// The one that this process, a forked child, has of its parent's, which was
    /// [bequeathed](Self::bequeath): both are bound, or listen, at one place.
    ///
    /// # Errors
    ///
    /// `EBADF` where the child has closed it.
    pub fn take_over(inherited: &Self) -> io::Result<Self> {
        // Under the number of one that was closed there may be a file of the program's.
        inherited.local_addr().map_err(|_| Errno::BADF)?;
        Ok(Self { fd: inherited.fd.take_over() })
    }

    /// Stops listening, for every process that has this socket.
    pub fn stop_listening(&self) {
        // Fails on a socket that does not listen.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
    }

    /// Listens at one address of the port that this socket has [reserved](Self::reserve) at all
    /// addresses, and which it goes on keeping from others: no other user's socket gets in between,
    /// and no other process's that does not ask for it by `SO_REUSEPORT`.
    ///
    /// # Errors
    ///
    /// Errors that `socket`, `bind` and `listen` report: `AddrNotAvailable`, `AddrInUse` when
    /// another socket listens there.
    pub fn listen_at(&self, ip: IpAddr, scope_id: u32, backlog: u32) -> io::Result<Self> {
        let mut addr = SocketAddr::new(ip, self.local_addr()?.port());
        if let SocketAddr::V6(v6) = &mut addr {
            v6.set_scope_id(scope_id);
        }
        let socket = Self::new(addr)?;
        if addr.is_ipv6() {
            option::set_ipv6_v6only(&socket, true)?;
        }
        // Not before: the port would not have been ours alone.
        option::set_socket_reuseport(self, true)?;
        option::set_socket_reuseport(&socket, true)?;
        // Connections inherit it, so that their remains keep the port from no process.
        option::set_socket_reuseaddr(&socket, true)?;
        match rustix::net::bind(&socket, &addr) {
            // A process that has become another user since then. For the moment of two calls any
            // process that asks for it by `SO_REUSEADDR` could get in.
            Err(Errno::ADDRINUSE) => {
                option::set_socket_reuseaddr(self, true)?;
                let bound = rustix::net::bind(&socket, &addr);
                let listens = bound.and_then(|()| listen(&socket, backlog));
                option::set_socket_reuseaddr(self, false)?;
                listens?;
            }
            bound => bound.and_then(|()| listen(&socket, backlog))?,
        }
        Ok(socket)
    }

    /// A connection of one end: what is sent comes back. `ip` is an address of this host. Waits
    /// for what passes through the host's own network, so a moment.
    ///
    /// # Errors
    ///
    /// Errors that `bind` and `connect` report; `TimedOut` where the system does not connect a
    /// socket to itself.
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

fn listen(socket: &TcpSocket, backlog: u32) -> rustix::io::Result<()> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// The time that a packet to ourselves may take.
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
    fn remains_of_connections_do_not_block() {
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
            // The end that closes first keeps the port in TIME_WAIT.
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
    fn a_port_can_be_listened_at_in_one_place() {
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let mine = reserve(everywhere, Sharing::Exclusive).unwrap();
        let addr = |last| {
            let ip = Ipv4Addr::new(127, 0, 0, last);
            SocketAddr::new(ip.into(), mine.local_addr().unwrap().port())
        };
        let refused = |addr| {
            TcpStream::connect(addr).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
        };
        for _ in 0..3 {
            assert!(refused(addr(1)) && refused(addr(2)));
            let here = mine.listen_at(addr(1).ip(), 0, 8).unwrap();
            let peer = TcpStream::connect(addr(1)).unwrap();
            assert!(refused(addr(2)));
            // Others get it neither here nor elsewhere, nor all of it.
            for wanted in [addr(1), addr(2), SocketAddr::new(everywhere.ip(), addr(1).port())] {
                for sharing in [Sharing::Exclusive, Sharing::Shared] {
                    let error = reserve(wanted, sharing).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{wanted}");
                }
            }
            let there = mine.listen_at(addr(2).ip(), 0, 8).unwrap();
            TcpStream::connect(addr(2)).unwrap();
            let (taken, _) = loop {
                match here.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    taken => break taken.unwrap(),
                }
            };
            drop((here, there));
            // Connections that live on do not stand in the way.
            drop(mine.listen_at(addr(1).ip(), 0, 8).unwrap());
            drop((taken, peer));
        }
    }

    #[test]
    fn another_user_can_use_what_the_process_has_reserved() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let mine = reserve(everywhere, Sharing::Exclusive).unwrap();
        let port = mine.local_addr().unwrap().port();
        let beside = |addr: IpAddr| {
            let socket = TcpSocket::new(SocketAddr::new(addr, port)).unwrap();
            option::set_socket_reuseport(&socket, true).unwrap();
            option::set_socket_reuseaddr(&socket, true).unwrap();
            rustix::net::bind(&socket, &SocketAddr::new(addr, port))
        };
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let here = mine.listen_at(local, 0, 8).unwrap();
        // One thread becomes another user: that is the system's view of it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let nobody = rustix::thread::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                for addr in [local, everywhere.ip(), Ipv4Addr::new(127, 0, 0, 9).into()] {
                    assert_eq!(beside(addr).unwrap_err(), Errno::ADDRINUSE, "{addr}");
                }
                let there = mine.listen_at(Ipv4Addr::new(127, 0, 0, 8).into(), 0, 8).unwrap();
                TcpStream::connect(there.local_addr().unwrap()).unwrap();
                assert_eq!(beside(local).unwrap_err(), Errno::ADDRINUSE);
            });
        });
        TcpStream::connect(here.local_addr().unwrap()).unwrap();
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
