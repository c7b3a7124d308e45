//! Connecting: TCP, the MPA Request, the Reply.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp_os::{Interest, IoPart, IoPartMut, Ready, TcpSocket};
use iwarp_proto::mpa::error::StartupError;
use iwarp_proto::mpa::startup::{Initiator, Reply};
use iwarp_proto::types::Time;

use crate::cm::id::{Watch, WeakId};
use crate::cm::{ConnectError, ConnectParams, EventKind, Id};
use crate::engine::endpoint::{Endpoint, Observer};
use crate::engine::stream::TcpStream;
use crate::engine::sync::Mutex;
use crate::engine::worker::{Deadline, Task};
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
    id: WeakId,
    timer: Mutex<Option<Deadline>>,
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
        id: WeakId,
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
            id,
            timer: Mutex::new(None),
            itself: itself.clone(),
        });
        outgoing.try_once(outgoing.engine.options.revision)?;
        let weak = Weak::clone(&outgoing.itself);
        let too_late = move || {
            if let Some(outgoing) = weak.upgrade() {
                outgoing.timed_out();
            }
        };
        let timer = outgoing.engine.worker.deadline(deadline, Box::new(too_late));
        *outgoing.timer.lock() = Some(timer);
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
        if !self.id.is_gone() && self.may_retry(&attempt, &end) {
            drop(attempt);
            match self.try_once(1) {
                Ok(()) => return,
                Err(error) => return self.report(Err(error.into())),
            }
        }
        let result = match end {
            End::Failed(error) => Err(error),
            End::Reply(Reply { accepted: false, negotiated, private_data }) => {
                let (ird, ord) = (negotiated.peer_ird, negotiated.peer_ord);
                Err(ConnectError::Rejected { private_data, ird, ord })
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
        let Some(id) = self.id.upgrade() else { return };
        let kind = match result.and_then(|(socket, reply)| self.attach(&id, socket, reply)) {
            Ok(()) => return,
            Err(ConnectError::Rejected { private_data, ird, ord }) => {
                EventKind::Rejected { private_data, ird, ord }
            }
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
        let connection = self.engine.worker.next_id();
        if let Some(fault) = terms.fault {
            self.endpoint.attach(Box::new(stream), &terms, connection, None, || {})?;
            return Err(ConnectError::Terms(fault));
        }
        id.established(Arc::clone(&self.endpoint), connection, local);
        let watch = Watch { id: id.downgrade(), established: None };
        let watch = Some(Arc::new(watch) as Arc<dyn Observer>);
        self.endpoint.attach(Box::new(stream), &terms, connection, watch, || {
            id.push(EventKind::established(&terms, reply.private_data));
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
