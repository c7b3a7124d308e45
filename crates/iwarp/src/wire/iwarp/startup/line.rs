// SPDX-License-Identifier: MIT OR Apache-2.0

//! Both sides of MPA start-up on their ports, up to the frame that the other end sends.
//!
//! The user of a side serves it from a [`Task`] and decides what comes of it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iwarp_os::Interest;
use iwarp_proto::mpa::startup::{Config, Initiator, Negotiated, Reply, Request, Responder};
use iwarp_proto::mpa::wire::Frame;
use iwarp_types::StartupError;

use crate::connect::{ConnectError, ConnectParams};
use crate::engine::Engine;
use crate::engine::local::is_within_host;
use crate::engine::options::{KeepAlive, LocalPath, Options};
use crate::engine::tasks::{Task, Tasks};
use crate::engine::worker::Worker;
use crate::port::local::LocalPort;
use crate::port::{Descriptors, Ends, IoPart, IoPartMut, Port, Settings};
use crate::wire::iwarp::startup::pending::BacklogSlot;
use crate::wire::iwarp::startup::terms::spare;

/// More than the longest start-up frame.
const FRAME_ROOM: usize = 1024;

/// A connection being made, and the initiator's start-up on it.
pub(crate) struct Calling {
    line: Line,
    /// None where a caller waits.
    task: Option<u64>,
    initiator: Initiator,
    sent: usize,
    connected: bool,
    received: Vec<u8>,
}

/// A port in start-up.
pub(crate) struct Line {
    port: Box<dyn Port>,
    /// A program's listener took it.
    accepted: bool,
}

impl Line {
    pub(crate) const fn new(port: Box<dyn Port>) -> Self {
        Self { port, accepted: false }
    }

    /// Between whom it is.
    pub(crate) fn ends(&self) -> Ends {
        self.port.ends()
    }

    /// By what it says that it is ready.
    pub(crate) fn descriptors(&self) -> Descriptors<'_> {
        self.port.descriptors()
    }

    /// Has captures leave out the next `len` bytes in this direction, which are no frame of MPA.
    pub(crate) fn set_aside(&self, sent: bool, len: usize) {
        if let Some(tap) = self.port.tap() {
            tap.set_aside(sent, len);
        }
    }

    /// Sends a frame that fits into the buffer of a connection on which next to nothing was sent
    /// yet.
    pub(crate) fn send(&self, octets: &[u8]) -> io::Result<()> {
        let sent = self.port.send(&[IoPart::new(octets)], false)?;
        keep(&*self.port, true, &octets[..sent]);
        if sent < octets.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    /// The other end gets the end of the stream. Receiving goes on.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.port.shutdown_write()
    }

    /// True if the other end keeps it open, and all that it has said was received.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.receive(&mut [0]).is_err_and(quiet)
    }

    /// Takes the bytes that have come, but no more than there is room for; 0 is the end.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        let mut came = self.port.recv(&mut [IoPartMut::new(room)])?;
        while self.port.may_hold() && came > 0 && came < room.len() {
            match self.port.recv(&mut [IoPartMut::new(&mut room[came..])]) {
                Ok(more) if more > 0 => came += more,
                // Bytes that have come before come first; the next look finds this again.
                _ => break,
            }
        }
        keep(&*self.port, false, &room[..came]);
        Ok(came)
    }
}

/// The thread that waits for a port in start-up.
pub(crate) enum Served {
    /// The caller, for [`Calling::interest`].
    ByCaller,
    /// The worker, on behalf of this.
    ByWorker(Arc<dyn Task>),
}

impl Calling {
    /// Goes on with a port that was told to connect; where that is done already, as within a host,
    /// the Request goes out at once.
    pub(crate) fn start(
        engine: &Engine,
        port: Box<dyn Port>,
        config: Config,
        private_data: &[u8],
        served: Served,
    ) -> Result<Self, ConnectError> {
        let initiator = Initiator::new(config, private_data, engine.timers.now())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let line = Line::new(port);
        let received = Vec::new();
        let mut calling = Self { line, task: None, initiator, sent: 0, connected: false, received };
        calling.ask()?;
        if let Served::ByWorker(task) = served {
            let fds = calling.line.descriptors();
            calling.task = Some(engine.worker.tasks().add(fds, calling.interest(), task)?);
        }
        Ok(calling)
    }

    /// True if a caller waits for it.
    pub(crate) const fn is_callers(&self) -> bool {
        self.task.is_none()
    }

    /// Its port.
    pub(crate) const fn line(&self) -> &Line {
        &self.line
    }

    /// The readiness that its port is waited for.
    pub(crate) fn interest(&self) -> Interest {
        if self.has_asked() { Interest::READ } else { Interest::WRITE }
    }

    /// True if there is a connection.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// The bytes that the peer has said.
    pub(crate) fn heard(&self) -> &[u8] {
        &self.received
    }

    /// Sends the Request, as far as that goes now: not before there is a connection. True once all
    /// of it is sent.
    fn ask(&mut self) -> Result<bool, ConnectError> {
        let request = self.initiator.request();
        let rest = &request[self.sent..];
        match self.line.port.send(&[IoPart::new(rest)], false) {
            Ok(n) => {
                keep(&*self.line.port, true, &rest[..n]);
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

    /// True if the Request is sent.
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
                worker.tasks().update(task, self.line.descriptors(), Interest::READ)?;
            }
        }
        // No octet behind the Reply is taken: what a hasty peer sends there waits in the stream.
        loop {
            match self.initiator.receive(&self.received) {
                Ok(Some((reply, _))) => return Ok(Some(reply)),
                Ok(None) => {}
                Err(error) => {
                    // Octets left unread would make the end a reset (RFC 1122 §4.2.2.13), not a
                    // FIN.
                    let _ = receive(&*self.line.port, &mut Vec::new(), FRAME_ROOM);
                    return Err(error.into());
                }
            }
            let wanted = Frame::missing(&self.received);
            if !receive(&*self.line.port, &mut self.received, wanted)? {
                return Ok(None);
            }
        }
    }

    /// Is not served any more; gives the port back.
    pub(crate) fn leave(self, worker: &Worker) -> Line {
        if let Some(task) = self.task {
            worker.tasks().remove(task, self.line.descriptors());
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
    /// Its Request may be there already.
    pub(crate) const fn new(port: Box<dyn Port>, responder: Responder) -> Self {
        let line = Line::new(port);
        Self { line, task: None, responder, received: Vec::new() }
    }

    /// Waits for the Request: `task` is served when the port is ready.
    pub(crate) fn wait(&mut self, tasks: &Tasks, task: Arc<dyn Task>) -> io::Result<()> {
        self.task = Some(tasks.add(self.line.descriptors(), Interest::READ, task)?);
        Ok(())
    }

    /// Goes on; gives the Request when it is there.
    pub(crate) fn advance(&mut self) -> Result<Option<Request>, ConnectError> {
        if !receive(&*self.line.port, &mut self.received, FRAME_ROOM)? {
            return Ok(None);
        }
        Ok(self.responder.receive(&self.received)?.map(|(request, _)| request))
    }

    /// Between whom it is.
    pub(crate) fn ends(&self) -> Ends {
        self.line.ends()
    }

    /// Is not served any more: an answer is due.
    pub(crate) fn leave(self, tasks: &Tasks, slot: BacklogSlot) -> Answering {
        if let Some(task) = self.task {
            tasks.remove(task, self.line.descriptors());
        }
        Answering { line: self.line, responder: self.responder, _slot: slot }
    }
}

/// A connection whose Request was read.
pub(crate) struct Answering {
    line: Line,
    responder: Responder,
    _slot: BacklogSlot,
}

impl Answering {
    pub(crate) fn port(&self) -> &dyn Port {
        &*self.line.port
    }

    /// Between whom it is.
    pub(crate) fn ends(&self) -> Ends {
        self.line.ends()
    }

    /// It is a program's listener that has it.
    pub(crate) const fn is_accepted(&mut self) {
        self.line.accepted = true;
    }

    /// It is for a device with these options. The result has the peer's IRD and ORD, where it
    /// states them.
    pub(crate) fn is_for(&mut self, options: &Options) -> (Option<u16>, Option<u16>) {
        self.responder.set_spare(spare(options))
    }

    /// The address of the peer that waits for the answer.
    pub(crate) fn peer_ip(&self) -> IpAddr {
        self.line.ends().peer.ip().to_canonical()
    }

    /// Sends the Reply and hands out the stream.
    pub(crate) fn accept(
        self,
        engine: &Engine,
        params: &ConnectParams,
    ) -> Result<(Box<dyn Port>, Negotiated), ConnectError> {
        let (line, terms) = self.reply(params)?;
        Ok((operate(line, &engine.options)?, terms))
    }

    /// Sends the Reply.
    pub(crate) fn reply(self, params: &ConnectParams) -> Result<(Line, Negotiated), ConnectError> {
        // The peer must be silent until it has our Reply (RFC 5044 §7.1.1).
        if self.port().has_input()? {
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
pub(crate) fn operate(line: Line, options: &Options) -> io::Result<Box<dyn Port>> {
    let Line { mut port, accepted } = line;
    let idle = match options.keepalive {
        KeepAlive::All(idle) => Some(idle),
        KeepAlive::Accepted(idle) => accepted.then_some(idle),
        KeepAlive::Off => None,
    };
    port.begin(&Settings { idle, local_congestion: options.local_congestion.as_deref() })?;
    if options.local != LocalPath::Off && port.is_systems() && is_within_host(port.ends()) {
        iwarp_mem::afford()?;
        return Ok(Box::new(LocalPort::new(port)));
    }
    Ok(port)
}

/// Has captures that begin later know these bytes.
fn keep(port: &dyn Port, sent: bool, octets: &[u8]) {
    if let Some(tap) = port.tap() {
        tap.keep(sent, octets);
    }
}

/// Adds what has come, but no more than `most` bytes; of a port that holds some more than once.
/// False when nothing has.
fn receive(port: &dyn Port, to: &mut Vec<u8>, most: usize) -> Result<bool, ConnectError> {
    let before = to.len();
    loop {
        let mut room = [0; FRAME_ROOM];
        let left = (before + most).saturating_sub(to.len()).min(FRAME_ROOM);
        match port.recv(&mut [IoPartMut::new(&mut room[..left])]) {
            // The next look finds it again.
            Ok(0) if to.len() > before => return Ok(true),
            Ok(0) => return Err(StartupError::Closed.into()),
            Ok(n) => {
                keep(port, false, &room[..n]);
                to.extend_from_slice(&room[..n]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(to.len() > before);
            }
            Err(error) => return Err(error.into()),
        }
        if !port.may_hold() || to.len() >= before + most {
            return Ok(true);
        }
    }
}
