//! Connecting: TCP, the MPA Request, the Reply.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp_os::{Interest, IoPart, IoPartMut, Ready, TcpSocket};
use iwarp_proto::mpa::error::StartupError;
use iwarp_proto::mpa::startup::{Initiator, Reply};
use iwarp_proto::types::Time;

use crate::cm::id::Watch;
use crate::cm::{ConnectError, ConnectParams, EventKind, Id};
use crate::engine::endpoint::Endpoint;
use crate::engine::stream::TcpStream;
use crate::engine::sync::Mutex;
use crate::engine::worker::Task;
use crate::engine::{Engine, now};

use std::os::fd::AsFd;

/// More than the longest start-up frame.
pub(crate) const FRAME_ROOM: usize = 1024;

/// A connection being made, served by the worker.
pub(crate) struct Outgoing {
    engine: Arc<Engine>,
    endpoint: Arc<Endpoint>,
    params: ConnectParams,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    deadline: Time,
    attempt: Mutex<Option<Attempt>>,
    /// Keeps the id until the attempt ends.
    id: Mutex<Option<Id>>,
    itself: Weak<Outgoing>,
}

struct Attempt {
    socket: TcpSocket,
    task: u64,
    initiator: Initiator,
    enhanced: bool,
    sent: usize,
    connected: bool,
    received: Vec<u8>,
}

/// How an attempt ended.
enum End {
    Reply(Reply),
    Failed(ConnectError),
}

impl Outgoing {
    pub(crate) fn start(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        endpoint: Arc<Endpoint>,
        params: &ConnectParams,
        id: Id,
    ) -> io::Result<Arc<Self>> {
        let engine = Arc::clone(&endpoint.engine);
        let deadline = now().plus(engine.options.startup_timeout);
        let outgoing = Arc::new_cyclic(|itself| Self {
            engine,
            endpoint,
            params: params.clone(),
            local,
            peer,
            deadline,
            attempt: Mutex::new(None),
            id: Mutex::new(Some(id)),
            itself: itself.clone(),
        });
        outgoing.try_once(outgoing.engine.options.revision)?;
        let weak = Weak::clone(&outgoing.itself);
        outgoing.engine.worker.at(
            deadline,
            Box::new(move || {
                if let Some(outgoing) = weak.upgrade() {
                    outgoing.timed_out();
                }
            }),
        );
        Ok(outgoing)
    }

    /// Begins a TCP connection whose start-up is of that revision.
    fn try_once(&self, revision: u8) -> io::Result<()> {
        let mut config = self.engine.options.startup(self.params.ird, self.params.ord);
        if revision == 1 {
            config = config.downgraded();
        }
        let initiator = Initiator::new(config, &self.params.private_data, now())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TcpSocket::connect_start(self.local, self.peer)?;
        let mut slot = self.attempt.lock();
        let itself = self.itself.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let task = self.engine.worker.add_task(socket.as_fd(), Interest::WRITE, itself)?;
        *slot = Some(Attempt {
            socket,
            task,
            initiator,
            enhanced: revision > 1,
            sent: 0,
            connected: false,
            received: Vec::new(),
        });
        Ok(())
    }

    /// The program does not want the connection any more.
    pub(crate) fn cancel(&self) {
        if let Some(attempt) = self.attempt.lock().take() {
            self.engine.worker.remove_task(attempt.task, attempt.socket.as_fd());
        }
        let id = self.id.lock().take();
        drop(id);
    }

    fn timed_out(&self) {
        let attempt = self.attempt.lock().take();
        if let Some(attempt) = attempt {
            let error = if attempt.connected {
                ConnectError::Startup(StartupError::Timeout)
            } else {
                ConnectError::Unreachable(io::ErrorKind::TimedOut.into())
            };
            self.end(attempt, End::Failed(error));
        }
    }

    fn end(&self, attempt: Attempt, end: End) {
        self.engine.worker.remove_task(attempt.task, attempt.socket.as_fd());
        if self.may_retry(&attempt, &end) {
            drop(attempt);
            match self.try_once(1) {
                Ok(()) => return,
                Err(error) => return self.report(Err(error.into())),
            }
        }
        let result = match end {
            End::Failed(error) => Err(error),
            End::Reply(reply) if !reply.accepted => {
                Err(ConnectError::Rejected { private_data: reply.private_data })
            }
            End::Reply(reply) => Ok((attempt.socket, reply)),
        };
        self.report(result);
    }

    /// A peer that knows revision 1 only closes the connection (RFC 6581 §10): try that on a new
    /// one.
    fn may_retry(&self, attempt: &Attempt, end: &End) -> bool {
        let refused = match end {
            End::Failed(ConnectError::Startup(error)) => {
                matches!(error, StartupError::Closed | StartupError::NotEnhanced)
            }
            End::Failed(ConnectError::Io(error)) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        };
        refused && attempt.enhanced && self.engine.options.fall_back && now() < self.deadline
    }

    fn report(&self, result: Result<(TcpSocket, Reply), ConnectError>) {
        let Some(id) = self.id.lock().take() else { return };
        let kind = match result.and_then(|(socket, reply)| self.attach(&id, socket, reply)) {
            Ok(()) => return,
            Err(ConnectError::Rejected { private_data }) => EventKind::Rejected { private_data },
            Err(ConnectError::Unreachable(error)) => EventKind::Unreachable(error),
            Err(error) => EventKind::ConnectError(error),
        };
        id.failed();
        id.push(kind);
    }

    fn attach(&self, id: &Id, socket: TcpSocket, reply: Reply) -> Result<(), ConnectError> {
        let local = socket.local_addr().ok();
        let options = &self.engine.options;
        let stream =
            TcpStream::new(socket, options.user_timeout, options.local_congestion.as_deref())?;
        let terms = reply.negotiated;
        if let Some(fault) = terms.fault {
            self.endpoint.attach(Box::new(stream), &terms, None, || {})?;
            return Err(ConnectError::Terms(fault));
        }
        id.established(Arc::clone(&self.endpoint), local);
        let watch = Watch { id: id.downgrade(), established: None };
        let (ird, ord, private_data) = (terms.ird, terms.ord, reply.private_data);
        self.endpoint.attach(Box::new(stream), &terms, Some(Arc::new(watch)), || {
            id.push(EventKind::Established { private_data, ird, ord });
        })?;
        Ok(())
    }

    fn advance(&self, attempt: &mut Attempt) -> Option<End> {
        match self.try_advance(attempt) {
            Ok(None) => None,
            Ok(Some(reply)) => Some(End::Reply(reply)),
            Err(error) => Some(End::Failed(error)),
        }
    }

    fn try_advance(&self, attempt: &mut Attempt) -> Result<Option<Reply>, ConnectError> {
        if !attempt.connected {
            match attempt.socket.finish_connect() {
                Ok(()) => attempt.connected = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ConnectError::Unreachable(error)),
            }
        }
        let request = attempt.initiator.request();
        if attempt.sent < request.len() {
            match attempt.socket.send(&[IoPart::new(&request[attempt.sent..])], false) {
                Ok(n) => attempt.sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            if attempt.sent < request.len() {
                return Ok(None);
            }
            let fd = attempt.socket.as_fd();
            self.engine.worker.update_task(attempt.task, fd, Interest::READ)?;
        }
        let mut room = [0; FRAME_ROOM];
        match attempt.socket.recv(&mut [IoPartMut::new(&mut room)]) {
            Ok(0) => return Err(StartupError::Closed.into()),
            Ok(n) => attempt.received.extend_from_slice(&room[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let reply = attempt.initiator.receive(&attempt.received)?;
        Ok(reply.map(|(reply, _)| reply))
    }
}

impl Task for Outgoing {
    fn ready(&self, _: Ready) {
        let ended = {
            let mut slot = self.attempt.lock();
            let Some(attempt) = slot.as_mut() else { return };
            match self.advance(attempt) {
                None => return,
                Some(end) => slot.take().map(|attempt| (attempt, end)),
            }
        };
        if let Some((attempt, end)) = ended {
            self.end(attempt, end);
        }
    }
}
