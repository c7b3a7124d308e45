// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports of the system's TCP. The only file that names it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use iwarp_os::owner::{self, Owner};
use iwarp_os::socket::beside::{Admission, RDMA_CLASS};
use iwarp_os::{IoPart, IoPartMut, Ipv6Listen, Keepalive, Sharing, Spare, TcpSocket, Vitals};

use crate::capture::{self, Tap, Watch};
use crate::faults;

use super::{
    Acceptor, Clock, Descriptors, Ends, Network, Platform, Port, Reservation, Settings, lock,
    traffic,
};
use crate::port::traffic::Account;

/// Below this nothing sensible has an MSS; used when the system does not say.
const DEFAULT_EMSS: usize = 536;
/// The number of times that an idle peer may not answer.
const PROBES: u32 = 4;

/// The TCP of this host's system.
#[derive(Clone, Copy, Debug)]
struct Tcp;

/// The system's own: TCP.
impl Default for Platform {
    fn default() -> Self {
        traffic::open();
        Self { network: Arc::new(Tcp), clock: Clock::system(), datagrams: Some(super::datagrams()) }
    }
}

impl Network for Tcp {
    fn reserve(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
        sharing: Sharing,
    ) -> io::Result<Box<dyn Reservation>> {
        Ok(TcpReservation::boxed(TcpSocket::reserve(addr, ipv6, sharing)?))
    }

    fn reserve_beside_program(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
    ) -> io::Result<Box<dyn Reservation>> {
        TcpSocket::reserve_beside(addr, ipv6).map(TcpReservation::boxed).or_else(|_| {
            let socket = TcpSocket::reserve_beside_all(addr)?;
            Ok(TcpReservation::boxed_for(socket, Some(addr.ip())))
        })
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        start(TcpSocket::connectable(local, peer)?, peer, traffic_class)
    }

    fn looped(&self, ip: IpAddr, scope_id: u32) -> io::Result<Box<dyn Port>> {
        let socket = TcpSocket::looped(ip, scope_id)?;
        let ends = Ends { local: Some(socket.local_addr()?), peer: socket.peer_addr()? };
        Ok(TcpPort::boxed(socket, ends, None, Tap::new(true)))
    }

    fn source_for(&self, mut peer: SocketAddr) -> io::Result<IpAddr> {
        if peer.port() == 0 {
            // Any port but that.
            peer.set_port(1);
        }
        iwarp_os::addr::source_for_scoped(peer)
    }

    fn owner_of(&self, theirs: SocketAddr, ours: SocketAddr) -> io::Result<Owner> {
        owner::owner_of(theirs, ours)
    }
}

/// Has a socket connect to `peer`. Its own traffic class, `class`, follows when the connection is
/// made.
fn start(socket: TcpSocket, peer: SocketAddr, class: Option<u8>) -> io::Result<Box<dyn Port>> {
    if faults::is_pulled() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    // A system that reserves the class refuses it; a number cannot be shared then, and no more.
    let marked = socket.set_traffic_class(RDMA_CLASS).is_ok();
    socket.start_connecting(peer)?;
    let local = socket.local_addr()?;
    // With no listener on a port of the ephemeral range, TCP may pick that very port for our
    // end and connect the socket to itself (a simultaneous open).
    if (local.ip(), local.port()) == (peer.ip(), peer.port()) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let class = class.or(marked.then_some(0));
    Ok(TcpPort::boxed(socket, Ends { local: Some(local), peer }, class, Tap::new(true)))
}

/// A socket that is bound.
#[derive(Debug)]
struct TcpReservation {
    /// Goes before the socket.
    admission: OnceLock<Option<Admission>>,
    socket: TcpSocket,
    only: Only,
}

/// The one address that a socket is for, which is bound at all of them.
type Only = Option<IpAddr>;

impl TcpReservation {
    fn boxed(socket: TcpSocket) -> Box<dyn Reservation> {
        Self::boxed_for(socket, None)
    }

    fn boxed_for(socket: TcpSocket, only: Only) -> Box<dyn Reservation> {
        Box::new(Self { admission: OnceLock::new(), socket, only })
    }
}

impl Reservation for TcpReservation {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.socket.local_addr()?;
        Ok(self.only.map_or(addr, |ip| SocketAddr::new(ip, addr.port())))
    }

    fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.socket.set_traffic_class(class)
    }

    fn bequeath(&self) {
        self.socket.bequeath();
    }

    fn admit_program(&self) {
        self.admission.get_or_init(|| self.socket.admit());
    }

    fn inherit(&self) -> io::Result<Box<dyn Reservation>> {
        Ok(Self::boxed_for(TcpSocket::take_over(&self.socket)?, self.only))
    }

    fn listen(
        self: Box<Self>,
        backlog: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)> {
        if let Err(error) = self.socket.start_listening(backlog) {
            return Err((self, error));
        }
        let Self { admission, socket, only } = *self;
        Ok(Box::new(TcpAcceptor::new(socket, only, admission.into_inner().flatten())))
    }

    fn listen_at(&self, ip: IpAddr, scope_id: u32, backlog: u32) -> io::Result<Box<dyn Acceptor>> {
        let socket = self.socket.listen_at(ip, scope_id, backlog)?;
        Ok(Box::new(TcpAcceptor::new(socket, None, None)))
    }

    fn connect(
        self: Box<Self>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        let Self { admission, socket, only } = *self;
        if only.is_some() {
            // The number is the program's own socket's.
            return Err(io::ErrorKind::AddrInUse.into());
        }
        drop(admission);
        // A connection is this process's alone.
        socket.disinherit();
        start(socket, peer, traffic_class)
    }
}

/// A socket that listens.
#[derive(Debug)]
struct TcpAcceptor {
    /// Goes before the socket.
    _admission: Option<Admission>,
    socket: TcpSocket,
    only: Only,
    /// Connections that came while the port was down: their peers hear nothing.
    unheard: Mutex<Vec<TcpSocket>>,
}

/// Connections that are kept at most. Others are reset.
const MOST_UNHEARD: usize = 64;

/// Connections to other addresses that one call of `accept` refuses.
const MOST_REFUSED: usize = 64;

impl TcpAcceptor {
    fn new(socket: TcpSocket, only: Only, admission: Option<Admission>) -> Self {
        Self { _admission: admission, socket, only, unheard: Mutex::default() }
    }

    /// A connection has come by a cable that is pulled.
    #[cold]
    fn keep_unheard(&self, socket: TcpSocket) -> io::Error {
        let mut unheard = lock(&self.unheard);
        if unheard.len() < MOST_UNHEARD {
            unheard.push(socket);
        } else {
            socket.reset();
        }
        io::ErrorKind::WouldBlock.into()
    }

    /// True for a connection to an address that the socket is for.
    fn takes(&self, socket: &TcpSocket) -> bool {
        let to = |ip: IpAddr| {
            socket.local_addr().is_ok_and(|local| local.ip().to_canonical() == ip.to_canonical())
        };
        self.only.is_none_or(to)
    }
}

impl Acceptor for TcpAcceptor {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        let mut refused = 0;
        let (socket, peer) = loop {
            let (socket, peer) = self.socket.accept()?;
            if self.takes(&socket) {
                break (socket, peer);
            }
            // As where nothing listens, a moment later.
            socket.reset();
            refused += 1;
            if refused == MOST_REFUSED {
                // The others get their turn; the socket stays ready.
                return Err(io::ErrorKind::WouldBlock.into());
            }
        };
        if faults::is_pulled() {
            return Err(self.keep_unheard(socket));
        }
        // Without memory for it the connection is closed.
        iwarp_mem::afford()?;
        let ends = Ends { local: socket.local_addr().ok(), peer };
        Ok(TcpPort::boxed(socket, ends, None, Tap::new(false)))
    }

    fn refuse_one(&self, spare: &mut Spare) -> io::Result<()> {
        self.socket.refuse_one(spare)
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.socket.as_fd())
    }

    fn inherit(&self) -> io::Result<Box<dyn Acceptor>> {
        let socket = TcpSocket::take_over(&self.socket)?;
        Ok(Box::new(Self::new(socket, self.only, None)))
    }

    fn end(&self) {
        self.socket.stop_listening();
    }
}

/// A TCP connection.
#[derive(Debug)]
struct TcpPort {
    socket: TcpSocket,
    ends: Ends,
    /// Traffic class from start-up on, where it is another until then.
    class: Option<u8>,
    /// The way in which it is probed while it is idle.
    keepalive: Option<Keepalive>,
    /// Bytes of a segment, by which packets are counted.
    segment: usize,
    account: Account,
    tap: Tap,
}

impl TcpPort {
    fn boxed(socket: TcpSocket, ends: Ends, class: Option<u8>, tap: Tap) -> Box<dyn Port> {
        let account = Account::at(ends.local.map(|local| local.ip()));
        Box::new(Self { socket, ends, class, keepalive: None, segment: DEFAULT_EMSS, account, tap })
    }

    /// Sends, with the capture locked: the answer comes behind it.
    #[cold]
    fn send_watched(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        let watch = self.watch();
        let sent = self.socket.send(parts, more)?;
        if let Some(mut watch) = watch {
            watch.moved(true, parts, sent);
        }
        Ok(sent)
    }

    /// The connection, where a capture is on.
    #[cold]
    fn watch(&self) -> Option<Watch<'_>> {
        self.tap.watch(|| (self.ends.local, self.ends.peer))
    }
}

/// Probes after that time, and so many times within as long again.
fn probed_after(idle: Duration, probes: u32) -> Keepalive {
    let second = Duration::from_secs(1);
    Keepalive { idle: idle.max(second), interval: (idle / probes).max(second), probes }
}

impl Port for TcpPort {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        let sent = match capture::is_on() {
            true => self.send_watched(parts, more)?,
            false => self.socket.send(parts, more)?,
        };
        self.account.sent(sent, || sent.div_ceil(self.segment));
        Ok(sent)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let received = self.socket.recv(parts);
        if capture::is_on()
            && let Some(mut watch) = self.watch()
        {
            watch.received(parts, &received);
        }
        let received = received?;
        self.account.received(received, || received.div_ceil(self.segment));
        Ok(received)
    }

    fn has_input(&self) -> io::Result<bool> {
        self.socket.has_input()
    }

    fn shutdown_write(&self) -> io::Result<()> {
        if let Some(mut watch) = self.tap.watched() {
            watch.ended(true);
        }
        self.socket.shutdown_write()
    }

    fn ends(&self) -> Ends {
        self.ends
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::of_stream(self.socket.as_fd())
    }

    /// No Nagle, probes when it is idle, and within this host a congestion control that does not
    /// pace.
    fn begin(&mut self, settings: &Settings<'_>) -> io::Result<()> {
        self.socket.set_nodelay(true)?;
        if let Some(class) = self.class.take() {
            self.socket.set_traffic_class(class)?;
        }
        self.segment = self.max_segment().max(1);
        self.keepalive = settings.idle.map(|idle| probed_after(idle, PROBES));
        if self.keepalive.is_some() {
            self.socket.set_keepalive(self.keepalive)?;
        }
        let Ends { local, peer } = self.ends;
        // The system forgets it when the connection is reset, as by a peer that had gone when it
        // was sent the Reply.
        self.socket.peer_addr()?;
        if let Some(name) = settings.local_congestion
            && local.is_some_and(|local| local.ip() == peer.ip())
        {
            // A kernel without it keeps its default: slower, not wrong.
            let _ = self.socket.set_congestion(name);
        }
        Ok(())
    }

    fn reset_on_close(&self) {
        if let Some(mut watch) = self.tap.watched() {
            watch.reset(true);
        }
        // Fails only where there is nothing left to reset.
        let _ = self.socket.reset_on_close();
    }

    fn take_error(&self) -> io::Result<()> {
        self.socket.take_error()
    }

    fn max_segment(&self) -> usize {
        self.socket.maxseg().unwrap_or(DEFAULT_EMSS)
    }

    fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.socket.set_traffic_class(class)
    }

    fn count_on(&mut self, port: usize) {
        self.account = Account::of(port);
    }

    fn is_systems(&self) -> bool {
        true
    }

    fn tap(&self) -> Option<&Tap> {
        Some(&self.tap)
    }

    fn vitals(&self) -> io::Result<Option<Vitals>> {
        self.socket.vitals()
    }

    // These fail on a system that does not know them, or on a socket that is not ours any more,
    // which the next call on it reports.

    fn limit_unsent(&self, octets: usize) {
        let _ = self.socket.limit_unsent(octets);
    }

    fn ask_within(&self, pause: Duration) {
        let _ = self.socket.set_longest_pause(pause);
    }

    fn ask_idle(&self, patience: Option<Duration>) {
        let often = |patience: Duration| {
            let idle = patience / (PROBES + 1);
            Keepalive { interval: idle.max(Duration::from_secs(1)), ..probed_after(idle, PROBES) }
        };
        let _ = self.socket.set_keepalive(patience.map(often).or(self.keepalive));
    }

    fn bound_silence(&self, patience: Option<Duration>) {
        let _ = self.socket.set_user_timeout(patience);
    }
}
