//! Both sides of MPA start-up on their sockets, up to the frame that the other end sends.
//!
//! Who uses them serves them from a [`Task`] and decides what comes of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{Interest, IoPart, IoPartMut, Keepalive, TcpSocket};
use iwarp_proto::mpa::error::StartupError;
use iwarp_proto::mpa::startup::{Config, Initiator, Negotiated, Reply, Request, Responder};

use crate::cm::reception::Pending;
use crate::cm::{ConnectError, ConnectParams};
use crate::engine::Engine;
use crate::engine::now;
use crate::engine::options::Options;
use crate::engine::stream::{Stream, TcpStream};
use crate::engine::worker::{Task, Worker};

/// More than the longest start-up frame.
const FRAME_ROOM: usize = 1024;

/// How often a peer that is idle may not answer.
const PROBES: u32 = 4;

/// A TCP connection being made, and the initiator's start-up on it.
pub(crate) struct Calling {
    socket: TcpSocket,
    task: u64,
    initiator: Initiator,
    sent: usize,
    connected: bool,
    received: Vec<u8>,
}

impl Calling {
    /// Goes on with a socket that was told to connect; where that is done already, as within a
    /// host, the Request goes out at once. `task` is served when the socket is ready.
    pub(crate) fn start(
        worker: &Worker,
        socket: TcpSocket,
        config: Config,
        private_data: &[u8],
        task: Arc<dyn Task>,
    ) -> Result<Self, ConnectError> {
        let initiator = Initiator::new(config, private_data, now())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let received = Vec::new();
        let mut calling = Self { socket, task: 0, initiator, sent: 0, connected: false, received };
        let interest = if calling.ask()? { Interest::READ } else { Interest::WRITE };
        calling.task = worker.add_task(calling.socket.as_fd(), interest, task)?;
        Ok(calling)
    }

    /// Whether TCP has made the connection.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Connects and sends the Request, as far as that goes now. Whether all of it is sent.
    fn ask(&mut self) -> Result<bool, ConnectError> {
        if !self.connected {
            match self.socket.finish_connect() {
                Ok(()) => self.connected = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(ConnectError::Unreachable(error)),
            }
        }
        let request = self.initiator.request();
        match self.socket.send(&[IoPart::new(&request[self.sent..])], false) {
            Ok(n) => self.sent += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
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
            worker.update_task(self.task, self.socket.as_fd(), Interest::READ)?;
        }
        if !receive(&self.socket, &mut self.received)? {
            return Ok(None);
        }
        let reply = self.initiator.receive(&self.received)?;
        Ok(reply.map(|(reply, _)| reply))
    }

    /// Is not served any more; gives the socket back.
    pub(crate) fn leave(self, worker: &Worker) -> TcpSocket {
        worker.remove_task(self.task, self.socket.as_fd());
        self.socket
    }
}

/// A connection that was taken, and the responder's start-up on it.
pub(crate) struct Called {
    socket: TcpSocket,
    task: u64,
    responder: Responder,
    received: Vec<u8>,
}

impl Called {
    /// Waits for the Request. `task` is served when the socket is ready.
    pub(crate) fn start(
        worker: &Worker,
        socket: TcpSocket,
        responder: Responder,
        task: Arc<dyn Task>,
    ) -> io::Result<Self> {
        let task = worker.add_task(socket.as_fd(), Interest::READ, task)?;
        Ok(Self { socket, task, responder, received: Vec::new() })
    }

    /// Goes on; gives the Request when it is there.
    pub(crate) fn advance(&mut self) -> Result<Option<Request>, ConnectError> {
        if !receive(&self.socket, &mut self.received)? {
            return Ok(None);
        }
        Ok(self.responder.receive(&self.received)?.map(|(request, _)| request))
    }

    /// Where the peer is, as the socket knows it.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Is not served any more: an answer is due.
    pub(crate) fn leave(self, worker: &Worker, pending: Pending) -> Answering {
        worker.remove_task(self.task, self.socket.as_fd());
        Answering { socket: self.socket, responder: self.responder, _pending: pending }
    }
}

/// A connection whose Request was read.
pub(crate) struct Answering {
    socket: TcpSocket,
    responder: Responder,
    _pending: Pending,
}

impl Answering {
    pub(crate) const fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    /// Who waits for the answer.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        self.socket.peer_addr().ok().map(|addr| addr.ip().to_canonical())
    }

    /// Sends the Reply and hands out the stream.
    pub(crate) fn accept(
        self,
        engine: &Engine,
        params: &ConnectParams,
    ) -> Result<(Box<dyn Stream>, Negotiated), ConnectError> {
        // The peer must be silent until it has our Reply (RFC 5044 §7.1.1).
        if self.socket.readable()? > 0 {
            return Err(StartupError::SurplusOctets.into());
        }
        let (reply, terms) = self.responder.accept(params.ird, params.ord, &params.private_data)?;
        self.send(&reply)?;
        Ok((operate(self.socket, &engine.options)?, terms))
    }

    /// Sends a Reply that rejects, and closes.
    pub(crate) fn reject(self, private_data: &[u8]) -> io::Result<()> {
        let reply = self
            .responder
            .reject(private_data)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.send(&reply)
    }

    /// A frame fits into the buffer of a connection on which nothing was sent yet.
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(&[IoPart::new(frame)], false)?;
        if sent < frame.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }
}

/// The stream of a connection whose start-up is done.
pub(crate) fn operate(socket: TcpSocket, options: &Options) -> io::Result<Box<dyn Stream>> {
    if let Some(idle) = options.keepalive {
        let interval = (idle / PROBES).max(Duration::from_secs(1));
        socket.set_keepalive(Some(Keepalive { idle, interval, probes: PROBES }))?;
    }
    let congestion = options.local_congestion.as_deref();
    Ok(Box::new(TcpStream::new(socket, options.user_timeout, congestion)?))
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
