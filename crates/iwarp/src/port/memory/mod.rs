// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports whose ends are both in this process: no socket, no descriptor, no system call for bytes.
//!
//! A [`MemoryNetwork`] connects hosts, each of which is the [`Network`] of the devices that are
//! opened on it. Addresses are names: nothing need be configured for them. Loopback addresses are
//! the host's own. They do as TCP does, as far as a program can tell within one process: a port
//! without a listener refuses, a closed port with unread bytes resets, an end that closes is heard
//! behind what it has sent.
//!
//! ```text
//!   pipe      one direction: bounded, wakes its ends
//!   switch    hosts, and the owners of their addresses and ports
//!   datagrams ports that carry packets, and their fate on the way
//! ```

mod datagrams;
mod pipe;
mod switch;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp_os::{EventFd, EventFdKind, FdPlace};

pub use self::datagrams::MemoryDatagrams;

use self::pipe::Pipe;
use self::switch::{Claim, Switch};
use super::{
    Acceptor, Clock, Descriptors, Ends, IoPart, IoPartMut, Ipv6Listen, Network, Owner, Platform,
    Port, Readiness, Reservation, Sharing, Waker, described,
};

/// Bytes that a pipe holds unless something else was asked for.
const CAPACITY: usize = 256 * 1024;
/// Bytes of a segment: what an Ethernet frame takes.
const SEGMENT: usize = 1460;

/// Hosts that reach each other. A clone is another handle of the network.
#[derive(Clone, Debug)]
pub struct MemoryNetwork {
    switch: Arc<Switch>,
    capacity: usize,
    /// Its ports have descriptors.
    described: bool,
    /// Its connections may move to shared memory.
    moves: bool,
}

impl Default for MemoryNetwork {
    fn default() -> Self {
        Self { switch: Arc::default(), capacity: CAPACITY, described: false, moves: false }
    }
}

impl MemoryNetwork {
    /// One without hosts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has connections hold so many bytes in each direction (at least one).
    #[must_use]
    pub fn with_capacity(self, octets: usize) -> Self {
        Self { capacity: octets.max(1), ..self }
    }

    /// As above, with ports that have two descriptors each, which cost system calls: for tests of
    /// paths that use descriptors.
    #[must_use]
    pub fn with_descriptors(self) -> Self {
        Self { described: true, ..self }
    }

    /// As above, with connections that may move from their pipes to memory which both ends share,
    /// as TCP connections within a host do, where both ends have one address.
    #[doc(hidden)]
    #[must_use]
    pub fn with_shared_memory(self) -> Self {
        Self { described: true, moves: true, ..self }
    }

    /// The network as the host with that address sees it.
    pub fn host(&self, ip: IpAddr) -> Arc<dyn Network> {
        self.switch.add(ip);
        let host = Arc::new(Host { network: self.clone(), ip });
        if self.described { described(host, true) } else { host }
    }

    /// The platform of a device on that host.
    pub fn platform(&self, ip: IpAddr) -> Platform {
        Platform { network: self.host(ip), clock: Clock::system(), datagrams: None }
    }

    /// Connects `from` to the listener at `to` on that host.
    fn connect(
        &self,
        host: IpAddr,
        from: SocketAddr,
        to: SocketAddr,
        claim: Option<Claim>,
    ) -> io::Result<Box<dyn Port>> {
        let queue = self.switch.listener(host, to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let (there, back) = (self.pipe(), self.pipe());
        let end = |incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>, local, peer, claim| MemoryPort {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            ends: Ends { local: Some(local), peer },
            resets: AtomicBool::new(false),
            moves: self.moves,
            _claim: claim,
        };
        let theirs = end(&there, &back, to, from, None);
        let ours = end(&back, &there, from, to, claim);
        queue.push(Box::new(theirs))?;
        Ok(Box::new(ours))
    }

    fn pipe(&self) -> Arc<Pipe> {
        Arc::new(Pipe::new(self.capacity))
    }
}

/// A host.
#[derive(Clone, Debug)]
struct Host {
    network: MemoryNetwork,
    ip: IpAddr,
}

impl Host {
    fn has(&self, ip: IpAddr) -> bool {
        ip == self.ip || ip.is_loopback() || ip.is_unspecified()
    }

    /// An address of this host and a free port, unless both are given.
    fn claim(&self, addr: SocketAddr, sharing: Sharing) -> io::Result<Claim> {
        if !self.has(addr.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        self.network.switch.claim(self.ip, addr, sharing)
    }

    fn connect_from(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        claim: Option<Claim>,
    ) -> io::Result<Box<dyn Port>> {
        let from = if local.ip().is_unspecified() { self.source_for(peer)? } else { local.ip() };
        if !self.has(from) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let port = match local.port() {
            0 => self.network.switch.any_port(self.ip)?,
            port => port,
        };
        // A loopback address is that of the host which asks.
        let host = if self.has(peer.ip()) { self.ip } else { peer.ip() };
        self.network.connect(host, SocketAddr::new(from, port), peer, claim)
    }
}

impl Network for Host {
    fn reserve(
        &self,
        addr: SocketAddr,
        _: Ipv6Listen,
        sharing: Sharing,
    ) -> io::Result<Box<dyn Reservation>> {
        Ok(Box::new(Reserved { claim: self.claim(addr, sharing)?, host: self.clone() }))
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        _: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        self.connect_from(local.unwrap_or(any), peer, None)
    }

    fn looped(&self, ip: IpAddr, _: u32) -> io::Result<Box<dyn Port>> {
        let addr = SocketAddr::new(ip, self.network.switch.any_port(self.ip)?);
        let pipe = self.network.pipe();
        let ends = Ends { local: Some(addr), peer: addr };
        Ok(Box::new(MemoryPort {
            incoming: Arc::clone(&pipe),
            outgoing: pipe,
            ends,
            resets: AtomicBool::new(false),
            moves: false,
            _claim: None,
        }))
    }

    fn source_for(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        match peer.ip() {
            ip if ip.is_loopback() => Ok(ip),
            ip if self.has(ip) || self.network.switch.has(ip) => Ok(self.ip),
            _ => Err(io::ErrorKind::HostUnreachable.into()),
        }
    }

    /// All of it is this process's.
    fn owner_of(&self, theirs: SocketAddr, _: SocketAddr) -> io::Result<Owner> {
        let [user, _] = iwarp_os::owner::own_users();
        Ok(if self.has(theirs.ip()) { Owner::User(user) } else { Owner::Elsewhere })
    }
}

/// An address and port of a host.
#[derive(Debug)]
struct Reserved {
    claim: Claim,
    host: Host,
}

impl Reservation for Reserved {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.claim.addr())
    }

    fn listen(
        self: Box<Self>,
        backlog: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)> {
        let queue = Queue::new(backlog).and_then(|queue| {
            let queue = Arc::new(queue);
            self.claim.listen(&queue).map(|()| queue)
        });
        match queue {
            Ok(queue) => Ok(Box::new(Listening { queue, _claim: self.claim })),
            Err(error) => Err((self, error)),
        }
    }

    fn listen_at(&self, ip: IpAddr, _: u32, backlog: u32) -> io::Result<Box<dyn Acceptor>> {
        if !self.host.has(ip) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let queue = Arc::new(Queue::new(backlog)?);
        let claim = self.claim.beside(ip);
        claim.listen(&queue)?;
        Ok(Box::new(Listening { queue, _claim: claim }))
    }

    fn connect(self: Box<Self>, peer: SocketAddr, _: Option<u8>) -> io::Result<Box<dyn Port>> {
        let Self { claim, host } = *self;
        host.connect_from(claim.addr(), peer, Some(claim))
    }
}

/// Connections that wait to be accepted.
#[derive(Debug)]
struct Queue {
    ports: Mutex<VecDeque<Box<dyn Port>>>,
    backlog: usize,
    /// Readable while there are some.
    waiting: EventFd,
}

impl Queue {
    fn new(backlog: u32) -> io::Result<Self> {
        Ok(Self {
            ports: Mutex::default(),
            // The system's counts one more than it was asked for as well.
            backlog: backlog as usize + 1,
            waiting: EventFd::new(EventFdKind::Counter, FdPlace::Internal)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<dyn Port>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, port: Box<dyn Port>) -> io::Result<()> {
        let mut ports = self.lock();
        if ports.len() >= self.backlog {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        ports.push_back(port);
        self.waiting.signal()
    }

    fn pop(&self) -> io::Result<Box<dyn Port>> {
        let mut ports = self.lock();
        let port = ports.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        if ports.is_empty() {
            self.waiting.drain()?;
        }
        Ok(port)
    }
}

/// A port number at which connections come in.
#[derive(Debug)]
struct Listening {
    queue: Arc<Queue>,
    _claim: Claim,
}

impl Acceptor for Listening {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        self.queue.pop()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.queue.waiting.as_fd())
    }
}

/// One end of a connection.
#[derive(Debug)]
struct MemoryPort {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    ends: Ends,
    resets: AtomicBool,
    /// See [`MemoryNetwork::with_shared_memory`].
    moves: bool,
    /// Our address, where it was reserved.
    _claim: Option<Claim>,
}

impl Port for MemoryPort {
    fn send(&self, parts: &[IoPart<'_>], _: bool) -> io::Result<usize> {
        self.outgoing.write(parts)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        self.incoming.read(parts)
    }

    fn has_input(&self) -> io::Result<bool> {
        self.incoming.has_octets()
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.outgoing.end();
        Ok(())
    }

    fn ends(&self) -> Ends {
        self.ends
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::none()
    }

    fn readiness(&self) -> Readiness {
        let (incoming, outgoing) = (self.incoming.readiness(), self.outgoing.readiness());
        incoming & Readiness::INPUT | outgoing & Readiness::ROOM
    }

    fn set_waker(&self, waker: Waker) {
        self.incoming.set_reader(waker.clone());
        self.outgoing.set_writer(waker);
    }

    fn reset_on_close(&self) {
        self.resets.store(true, Ordering::Relaxed);
    }

    fn max_segment(&self) -> usize {
        SEGMENT
    }

    fn is_systems(&self) -> bool {
        self.moves
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        // As TCP has it: closing over unread bytes resets.
        let unread = self.incoming.has_octets().unwrap_or(true);
        if unread || self.resets.load(Ordering::Relaxed) {
            self.outgoing.reset();
            self.incoming.reset();
        } else {
            self.outgoing.end();
            self.incoming.stop_reading();
        }
    }
}
