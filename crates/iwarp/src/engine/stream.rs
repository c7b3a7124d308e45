//! The octet stream under a connection: what the engine asks of it, and TCP.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use iwarp_os::{IoPart, IoPartMut, Keepalive, TcpSocket, Vitals};

/// A stream of octets. The engine knows no other name for it, so that it can be wrapped (to
/// trace it, to hurt it) or replaced.
pub(crate) trait Stream: Send + Sync + Debug {
    /// Sends what is taken at once; `WouldBlock` when nothing is.
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize>;
    /// Receives what is there; 0 is the end.
    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize>;
    /// Sends nothing any more, receives on.
    fn shutdown_write(&self) -> io::Result<()>;
    /// Closing will reset the stream.
    fn reset_on_close(&self);
    /// How it is between the ends; `None` where the system does not say.
    fn vitals(&self) -> io::Result<Option<Vitals>>;
    /// The system asks a silent peer again within that time, if it can.
    fn ask_within(&self, pause: Duration);
    /// The system asks the peer even where nothing is outstanding, and ends a stream whose peer is
    /// silent for so long; `None`: as the device's options have it.
    fn ask_idle(&self, patience: Option<Duration>);
    /// Where [`Self::vitals`] says nothing, the system ends a stream on which octets stay
    /// unacknowledged for so long; `None`: as long as it likes.
    fn bound_silence(&self, patience: Option<Duration>);
    /// Takes nothing more while so many octets wait to be sent.
    fn limit_unsent(&self, octets: usize);
    /// The error that readiness was reported for, if that was so.
    fn take_error(&self) -> io::Result<()>;
    /// What says when it can be read or written.
    fn readiness(&self) -> BorrowedFd<'_>;
    /// Octets that one segment of the transport takes (EMSS).
    fn max_segment(&self) -> usize;
    /// Where the other end is, for people.
    fn peer(&self) -> SocketAddr;
}

/// Below this nothing sensible has an MSS; used when the system does not say.
const DEFAULT_EMSS: usize = 536;

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct TcpStream {
    socket: TcpSocket,
    peer: SocketAddr,
    /// How it is probed while it is idle.
    keepalive: Option<Keepalive>,
}

/// How often an idle peer may not answer.
const PROBES: u32 = 4;

/// Probes after that time, and as many times more in the same time again.
fn probed_after(idle: Duration, probes: u32) -> Keepalive {
    let second = Duration::from_secs(1);
    Keepalive { idle: idle.max(second), interval: (idle / probes).max(second), probes }
}

impl TcpStream {
    /// Sets a connected socket up: no Nagle, probes when it is idle for so long, and within this
    /// host a congestion control that does not pace.
    pub(crate) fn new(
        socket: TcpSocket,
        ends: Ends,
        idle: Option<Duration>,
        local_congestion: Option<&str>,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let keepalive = idle.map(|idle| probed_after(idle, PROBES));
        if keepalive.is_some() {
            socket.set_keepalive(keepalive)?;
        }
        let Ends { local, peer } = ends;
        // The system forgets it when the connection is reset, as by a peer that had gone when it
        // was sent the Reply.
        socket.peer_addr()?;
        if let Some(name) = local_congestion
            && local.is_some_and(|local| local.ip() == peer.ip())
        {
            // A kernel without it keeps its default: slower, not wrong.
            let _ = socket.set_congestion(name);
        }
        // Of an IPv4 address on an IPv6 socket, people want the former.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Ok(Self { socket, peer, keepalive })
    }
}

/// Between which addresses a connection is: asking the system costs a call each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// Ours, where it is known.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: SocketAddr,
}

impl Stream for TcpStream {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        self.socket.send(parts, more)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        self.socket.recv(parts)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.socket.shutdown_write()
    }

    fn reset_on_close(&self) {
        // Fails only where there is nothing left to reset.
        let _ = self.socket.reset_on_close();
    }

    fn vitals(&self) -> io::Result<Option<Vitals>> {
        self.socket.vitals()
    }

    // These fail on a system that does not know them, or on a socket that is not ours any more,
    // which the next call on it reports.

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

    fn limit_unsent(&self, octets: usize) {
        let _ = self.socket.limit_unsent(octets);
    }

    fn take_error(&self) -> io::Result<()> {
        self.socket.take_error()
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn max_segment(&self) -> usize {
        self.socket.maxseg().unwrap_or(DEFAULT_EMSS)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}
