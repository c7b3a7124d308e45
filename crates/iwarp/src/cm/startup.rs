//! Both sides of MPA start-up on their sockets, up to the frame that the other end sends.
//!
//! Who uses them serves them from a [`Task`] and decides what comes of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use iwarp_os::{Interest, IoPart, IoPartMut, TcpSocket};
use iwarp_proto::mpa::error::StartupError;
use iwarp_proto::mpa::startup::{Config, Initiator, Negotiated, Reply, Request, Responder};

use crate::cm::crowd::Place;
use crate::cm::{ConnectError, ConnectParams};
use crate::engine::Engine;
use crate::engine::now;
use crate::engine::options::{KeepAlive, Options};
use crate::engine::stream::{Ends, Stream, TcpStream};
use crate::engine::tasks::{Task, Tasks};
use crate::engine::worker::Worker;

/// More than the longest start-up frame.
const FRAME_ROOM: usize = 1024;

/// A TCP connection being made, and the initiator's start-up on it.
pub(crate) struct Calling {
    line: Line,
    /// None where a caller waits.
    task: Option<u64>,
    initiator: Initiator,
    sent: usize,
    connected: bool,
    received: Vec<u8>,
}

/// A socket, and between whom it is.
pub(crate) struct Line {
    socket: TcpSocket,
    ends: Ends,
    /// A program's listener took it.
    accepted: bool,
}

impl Line {
    /// That of a connection made elsewhere.
    pub(crate) fn of(socket: TcpSocket) -> io::Result<Self> {
        let ends = Ends { local: Some(socket.local_addr()?), peer: socket.peer_addr()? };
        Ok(Self { socket, ends, accepted: false })
    }

    /// Our own address, once there is one.
    pub(crate) const fn local(&self) -> Option<SocketAddr> {
        self.ends.local
    }

    /// Between whom it is.
    pub(crate) const fn ends(&self) -> Ends {
        self.ends
    }

    /// What fits into the buffer of a connection on which next to nothing was sent yet.
    pub(crate) fn send(&self, octets: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(&[IoPart::new(octets)], false)?;
        if sent < octets.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    /// What has come, but no more than there is room for; 0 is the end.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(&mut [IoPartMut::new(room)])
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Who waits for a socket in start-up.
pub(crate) enum Served {
    /// The caller, for [`Calling::interest`].
    ByCaller,
    /// The worker, on behalf of this.
    ByWorker(Arc<dyn Task>),
}

impl Calling {
    /// Goes on with a socket that was told to connect to `peer`; where that is done already, as
    /// within a host, the Request goes out at once.
    pub(crate) fn start(
        worker: &Worker,
        socket: TcpSocket,
        peer: SocketAddr,
        config: Config,
        private_data: &[u8],
        served: Served,
    ) -> Result<Self, ConnectError> {
        let initiator = Initiator::new(config, private_data, now())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let local = socket.local_addr().map_err(ConnectError::Unreachable)?;
        // With nobody listening on a port of the ephemeral range, TCP may pick that very port for
        // our end and connect the socket to itself (a simultaneous open).
        if (local.ip(), local.port()) == (peer.ip(), peer.port()) {
            return Err(ConnectError::Unreachable(io::ErrorKind::ConnectionRefused.into()));
        }
        let ends = Ends { local: Some(local), peer };
        let line = Line { socket, ends, accepted: false };
        let received = Vec::new();
        let mut calling = Self { line, task: None, initiator, sent: 0, connected: false, received };
        calling.ask()?;
        if let Served::ByWorker(task) = served {
            let fd = calling.line.socket.as_fd();
            calling.task = Some(worker.tasks().add(fd, calling.interest(), task)?);
        }
        Ok(calling)
    }

    /// Whether it is a caller that waits.
    pub(crate) const fn is_callers(&self) -> bool {
        self.task.is_none()
    }

    /// Its socket.
    pub(crate) const fn line(&self) -> &Line {
        &self.line
    }

    /// What its socket is waited for.
    pub(crate) fn interest(&self) -> Interest {
        if self.has_asked() { Interest::READ } else { Interest::WRITE }
    }

    /// Whether TCP has made the connection.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Sends the Request, as far as that goes now: not before TCP has made the connection.
    /// Whether all of it is sent.
    fn ask(&mut self) -> Result<bool, ConnectError> {
        let request = self.initiator.request();
        match self.line.socket.send(&[IoPart::new(&request[self.sent..])], false) {
            Ok(n) => {
                self.connected = true;
                self.sent += n;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Only a connection that was there can end so: one that is refused says that.
            Err(error)
                if self.connected
                    || matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                    ) =>
            {
                return Err(error.into());
            }
            Err(error) => return Err(ConnectError::Unreachable(error)),
        }
        Ok(self.has_asked())
    }

    /// Whether the Request is sent.
    pub(crate) fn has_asked(&self) -> bool {
        self.sent == self.initiator.request().len()
    }

    /// Goes on; gives the Reply when it is there.
    pub(crate) fn advance(&mut self, worker: &Worker) -> Result<Option<Reply>, ConnectError> {
        if !self.has_asked() {
            if !self.ask()? {
                return Ok(None);
            }
            if let Some(task) = self.task {
                worker.tasks().update(task, self.line.socket.as_fd(), Interest::READ)?;
            }
        }
        if !receive(&self.line.socket, &mut self.received)? {
            return Ok(None);
        }
        let reply = self.initiator.receive(&self.received)?;
        Ok(reply.map(|(reply, _)| reply))
    }

    /// Is not served any more; gives the socket back.
    pub(crate) fn leave(self, worker: &Worker) -> Line {
        if let Some(task) = self.task {
            worker.tasks().remove(task, self.line.socket.as_fd());
        }
        self.line
    }
}

/// A connection that was taken, and the responder's start-up on it.
pub(crate) struct Called {
    line: Line,
    task: Option<u64>,
    responder: Responder,
    received: Vec<u8>,
}

impl Called {
    /// A connection from `peer`. Its Request may be there already.
    pub(crate) fn new(socket: TcpSocket, peer: SocketAddr, responder: Responder) -> Self {
        let ends = Ends { local: socket.local_addr().ok(), peer };
        let line = Line { socket, ends, accepted: false };
        Self { line, task: None, responder, received: Vec::new() }
    }

    /// Waits for the Request: `task` is served when the socket is ready.
    pub(crate) fn wait(&mut self, tasks: &Tasks, task: Arc<dyn Task>) -> io::Result<()> {
        self.task = Some(tasks.add(self.line.socket.as_fd(), Interest::READ, task)?);
        Ok(())
    }

    /// Goes on; gives the Request when it is there.
    pub(crate) fn advance(&mut self) -> Result<Option<Request>, ConnectError> {
        if !receive(&self.line.socket, &mut self.received)? {
            return Ok(None);
        }
        Ok(self.responder.receive(&self.received)?.map(|(request, _)| request))
    }

    /// Where the peer is.
    pub(crate) const fn peer_addr(&self) -> SocketAddr {
        self.line.ends.peer
    }

    /// Is not served any more: an answer is due.
    pub(crate) fn leave(self, tasks: &Tasks, place: Place) -> Answering {
        if let Some(task) = self.task {
            tasks.remove(task, self.line.socket.as_fd());
        }
        Answering { line: self.line, responder: self.responder, _place: place }
    }
}

/// A connection whose Request was read.
pub(crate) struct Answering {
    line: Line,
    responder: Responder,
    _place: Place,
}

impl Answering {
    pub(crate) const fn socket(&self) -> &TcpSocket {
        &self.line.socket
    }

    /// Between whom it is.
    pub(crate) const fn ends(&self) -> Ends {
        self.line.ends
    }

    /// It is a program's listener that has it.
    pub(crate) const fn is_accepted(&mut self) {
        self.line.accepted = true;
    }

    /// Who waits for the answer.
    pub(crate) fn peer_ip(&self) -> IpAddr {
        self.line.ends.peer.ip().to_canonical()
    }

    /// Sends the Reply and hands out the stream.
    pub(crate) fn accept(
        self,
        engine: &Engine,
        params: &ConnectParams,
    ) -> Result<(Box<dyn Stream>, Negotiated), ConnectError> {
        let (line, terms) = self.reply(params)?;
        Ok((operate(line, &engine.options)?, terms))
    }

    /// Sends the Reply.
    pub(crate) fn reply(self, params: &ConnectParams) -> Result<(Line, Negotiated), ConnectError> {
        // The peer must be silent until it has our Reply (RFC 5044 §7.1.1).
        if self.socket().has_input()? {
            return Err(StartupError::SurplusOctets.into());
        }
        let (reply, terms) = self.responder.accept(params.ird, params.ord, &params.private_data)?;
        self.line.send(&reply)?;
        Ok((self.line, terms))
    }

    /// Sends a Reply that rejects, and closes.
    pub(crate) fn reject(self, private_data: &[u8]) -> io::Result<()> {
        let reply = self
            .responder
            .reject(private_data)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.line.send(&reply)
    }
}

/// The stream of a connection whose start-up is done.
pub(crate) fn operate(line: Line, options: &Options) -> io::Result<Box<dyn Stream>> {
    let Line { socket, ends, accepted } = line;
    let idle = match options.keepalive {
        KeepAlive::All(idle) => Some(idle),
        KeepAlive::Accepted(idle) => accepted.then_some(idle),
        KeepAlive::Off => None,
    };
    let congestion = options.local_congestion.as_deref();
    Ok(Box::new(TcpStream::new(socket, ends, idle, congestion)?))
}

/// An IPv4 address as such, where an IPv6 socket has it.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip if ip == addr.ip() => addr,
        ip => SocketAddr::new(ip, addr.port()),
    }
}

/// Adds what has come; false when nothing has.
fn receive(socket: &TcpSocket, to: &mut Vec<u8>) -> Result<bool, ConnectError> {
    let mut room = [0; FRAME_ROOM];
    match socket.recv(&mut [IoPartMut::new(&mut room)]) {
        Ok(0) => Err(StartupError::Closed.into()),
        Ok(n) => {
            to.extend_from_slice(&room[..n]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}
