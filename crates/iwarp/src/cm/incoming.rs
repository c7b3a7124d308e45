//! Being connected to: TCP, the MPA Request, the program's answer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use iwarp_os::{Interest, IoPart, IoPartMut, Ready, TcpSocket};
use iwarp_proto::mpa::error::StartupError;
use iwarp_proto::mpa::startup::{Negotiated, Request, Responder};

use crate::cm::id::WeakId;
use crate::cm::outgoing::FRAME_ROOM;
use crate::cm::{ConnectError, ConnectParams, EventKind, Id};
use crate::engine::stream::{Stream, TcpStream};
use crate::engine::sync::{AtomicU32, Mutex, Ordering};
use crate::engine::worker::{Deadline, Task};
use crate::engine::{Engine, now};

/// A listening socket, served by the worker.
pub(crate) struct Listening {
    engine: Arc<Engine>,
    socket: Mutex<Option<TcpSocket>>,
    task: Mutex<Option<u64>>,
    id: WeakId,
    /// Connections whose Request has not come, and requests nobody has taken.
    pending: Arc<AtomicU32>,
    max_pending: u32,
}

impl Listening {
    pub(crate) fn start(socket: TcpSocket, backlog: usize, id: WeakId) -> io::Result<Arc<Self>> {
        let engine = id.upgrade().map(|id| Arc::clone(id.engine())).ok_or_else(closed)?;
        let max_pending = u32::try_from(engine.options.max_pending.max(backlog));
        let max_pending = max_pending.unwrap_or(u32::MAX);
        let listening = Arc::new(Self {
            engine,
            socket: Mutex::new(None),
            task: Mutex::new(None),
            id,
            pending: Arc::new(AtomicU32::new(0)),
            max_pending,
        });
        let task = Arc::clone(&listening) as Arc<dyn Task>;
        let mut slot = listening.task.lock();
        let fd = socket.as_fd();
        *slot = Some(listening.engine.worker.add_task(fd, Interest::READ, task)?);
        *listening.socket.lock() = Some(socket);
        drop(slot);
        Ok(listening)
    }

    /// Closes the socket: when this returns, the port is free.
    pub(crate) fn stop(&self, engine: &Engine) {
        let task = self.task.lock().take();
        let socket = self.socket.lock().take();
        if let (Some(task), Some(socket)) = (task, socket) {
            engine.worker.remove_task(task, socket.as_fd());
        }
    }

    fn accept_one(&self) -> io::Result<bool> {
        let accepted = match &*self.socket.lock() {
            Some(socket) => socket.accept(),
            None => return Ok(false),
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.pending.load(Ordering::SeqCst) >= self.max_pending {
            tracing::warn!("too many connections in start-up: one is dropped");
            return Ok(true);
        }
        if let Err(error) = Arriving::start(&self.engine, socket, self) {
            tracing::warn!(%error, "a connection cannot be served");
        }
        Ok(true)
    }
}

impl Task for Listening {
    fn ready(&self, _: Ready) {
        loop {
            match self.accept_one() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // Out of descriptors, most likely: the connection waits in the kernel.
                    tracing::warn!(%error, "cannot accept a connection");
                    return;
                }
            }
        }
    }
}

/// Counts a connection as long as it exists.
struct Pending(Arc<AtomicU32>);

impl Pending {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection whose Request is on its way.
struct Arriving {
    engine: Arc<Engine>,
    listener: WeakId,
    state: Mutex<Option<Arrival>>,
}

struct Arrival {
    socket: TcpSocket,
    task: Option<u64>,
    responder: Responder,
    received: Vec<u8>,
    pending: Pending,
    _deadline: Deadline,
}

impl Arriving {
    fn start(engine: &Arc<Engine>, socket: TcpSocket, listening: &Listening) -> io::Result<()> {
        let responder = Responder::new(engine.options.startup(0, 0), now());
        let deadline = responder.deadline();
        let arriving = Arc::new(Self {
            engine: Arc::clone(engine),
            listener: listening.id.clone(),
            state: Mutex::new(None),
        });
        {
            let mut state = arriving.state.lock();
            let task = Arc::clone(&arriving) as Arc<dyn Task>;
            let task = engine.worker.add_task(socket.as_fd(), Interest::READ, task)?;
            let weak: Weak<Self> = Arc::downgrade(&arriving);
            let too_late = move || {
                if let Some(arriving) = weak.upgrade() {
                    arriving.drop_it("the start-up frame did not arrive in time");
                }
            };
            *state = Some(Arrival {
                socket,
                task: Some(task),
                responder,
                received: Vec::new(),
                pending: Pending::new(&listening.pending),
                _deadline: engine.worker.deadline(deadline, Box::new(too_late)),
            });
        }
        Ok(())
    }

    /// Closes the connection without an answer (RFC 5044 §7.1.2(2)).
    fn drop_it(&self, why: &str) {
        if let Some(mut arrival) = self.state.lock().take() {
            tracing::info!(peer = ?arrival.socket.peer_addr().ok(), why, "connection refused");
            self.leave_worker(&mut arrival);
        }
    }

    fn leave_worker(&self, arrival: &mut Arrival) {
        if let Some(task) = arrival.task.take() {
            self.engine.worker.remove_task(task, arrival.socket.as_fd());
        }
    }

    fn advance(arrival: &mut Arrival) -> Result<Option<Request>, ConnectError> {
        let mut room = [0; FRAME_ROOM];
        match arrival.socket.recv(&mut [IoPartMut::new(&mut room)]) {
            Ok(0) => return Err(StartupError::Closed.into()),
            Ok(n) => arrival.received.extend_from_slice(&room[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(arrival.responder.receive(&arrival.received)?.map(|(request, _)| request))
    }
}

impl Task for Arriving {
    fn ready(&self, _: Ready) {
        let result = match self.state.lock().as_mut() {
            Some(arrival) => Self::advance(arrival),
            None => return,
        };
        let request = match result {
            Ok(None) => return,
            Ok(Some(request)) => request,
            Err(error) => return self.drop_it(&error.to_string()),
        };
        let Some(mut arrival) = self.state.lock().take() else { return };
        self.leave_worker(&mut arrival);
        let channel = self.listener.channel().filter(|_| !self.listener.is_gone());
        let Some(channel) = channel else { return };
        let Arrival { socket, responder, pending, .. } = arrival;
        let (ird, ord) = (request.peer_ird, request.peer_ord);
        let private_data = request.private_data;
        let accepting = Accepting { socket, responder, _pending: pending };
        let id = Id::requested(&channel, accepting);
        let kind = EventKind::ConnectRequest { private_data, ird, ord };
        channel.push_request(id, self.listener.clone(), kind);
    }
}

/// A connection request that waits for the program's answer.
pub(crate) struct Accepting {
    socket: TcpSocket,
    responder: Responder,
    _pending: Pending,
}

impl Accepting {
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().map(canonical)
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok().map(canonical)
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
        let options = &engine.options;
        self.send(&reply)?;
        let stream =
            TcpStream::new(self.socket, options.user_timeout, options.local_congestion.as_deref())?;
        Ok((Box::new(stream), terms))
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

/// An IPv4 address as such, where an IPv6 socket has it.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip if ip == addr.ip() => addr,
        ip => SocketAddr::new(ip, addr.port()),
    }
}

fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
