//! Connections that a listening socket takes, up to their Request.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use iwarp_os::{Ready, TcpSocket};
use iwarp_proto::mpa::startup::{Config, Request, Responder};

use crate::cm::startup::{Answering, Called};
use crate::engine::desk::Desk;
use crate::engine::sync::{AtomicU32, Mutex, Ordering};
use crate::engine::tasks::{Task, Tasks};
use crate::engine::worker::Deadline;
use crate::engine::{Engine, now};

/// Whom the connections are for.
pub(crate) trait Host: Send + Sync {
    /// A Request has come: it waits for an answer as long as `answering` exists.
    fn requested(&self, request: Request, answering: Answering);
}

/// See the [module](self).
pub(crate) struct Reception {
    engine: Arc<Engine>,
    /// Where connections are waited for.
    tasks: Arc<Tasks>,
    config: Config,
    host: Arc<dyn Host>,
    /// Connections whose Request has not come, and requests nobody has answered.
    pending: Arc<AtomicU32>,
    max_pending: u32,
}

impl Reception {
    /// `config` is what start-up asks of the peers. Whoever drives `desk` serves it, the worker
    /// without one.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        desk: Option<&Desk>,
        config: Config,
        max_pending: usize,
        host: Arc<dyn Host>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            tasks: Arc::clone(desk.map_or_else(|| engine.worker.tasks(), Desk::tasks)),
            config,
            host,
            pending: Arc::new(AtomicU32::new(0)),
            max_pending: u32::try_from(max_pending).unwrap_or(u32::MAX),
        }
    }

    pub(crate) const fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }

    /// Takes a connection that waits at `socket`: one, as whoever looks comes again for the next,
    /// and to find none costs the system as much as to take one.
    pub(crate) fn take_one(&self, socket: &TcpSocket) {
        let (socket, peer) = match socket.accept() {
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                // Out of descriptors, most likely: the connection waits in the kernel.
                tracing::warn!(%error, "cannot accept a connection");
                return;
            }
        };
        if self.pending.load(Ordering::SeqCst) >= self.max_pending {
            tracing::warn!("too many connections in start-up: one is dropped");
        } else if let Err(error) = Arriving::start(self, socket, peer) {
            tracing::warn!(%error, "a connection cannot be served");
        }
    }
}

/// Counts a connection as long as it exists.
pub(crate) struct Pending(Arc<AtomicU32>);

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
    tasks: Arc<Tasks>,
    host: Arc<dyn Host>,
    state: Mutex<Option<Arrival>>,
}

struct Arrival {
    called: Called,
    pending: Pending,
    _deadline: Deadline,
}

impl Arriving {
    fn start(reception: &Reception, socket: TcpSocket, peer: SocketAddr) -> io::Result<()> {
        let responder = Responder::new(reception.config, now());
        let deadline = responder.deadline();
        let pending = Pending::new(&reception.pending);
        let mut called = Called::new(socket, peer, responder);
        // Initiators send it as soon as they are connected: it is here, more often than not.
        match called.advance() {
            Ok(None) => {}
            Ok(Some(request)) => {
                let answering = called.leave(&reception.tasks, pending);
                reception.host.requested(request, answering);
                return Ok(());
            }
            Err(error) => {
                refuse(&called, &error.to_string());
                return Ok(());
            }
        }
        let arriving = Arc::new(Self {
            tasks: Arc::clone(&reception.tasks),
            host: Arc::clone(&reception.host),
            state: Mutex::new(None),
        });
        let mut state = arriving.state.lock();
        called.wait(&reception.tasks, Arc::clone(&arriving) as Arc<dyn Task>)?;
        let weak: Weak<Self> = Arc::downgrade(&arriving);
        let too_late = move || {
            if let Some(arriving) = weak.upgrade() {
                arriving.drop_it("the start-up frame did not arrive in time");
            }
        };
        let deadline = reception.engine.worker.deadline(deadline, Box::new(too_late));
        *state = Some(Arrival { called, pending, _deadline: deadline });
        Ok(())
    }

    /// Closes the connection without an answer (RFC 5044 §7.1.2(2)).
    fn drop_it(&self, why: &str) {
        if let Some(arrival) = self.state.lock().take() {
            refuse(&arrival.called, why);
            drop(arrival.called.leave(&self.tasks, arrival.pending));
        }
    }
}

fn refuse(called: &Called, why: &str) {
    tracing::info!(peer = %called.peer_addr(), why, "connection refused");
}

impl Task for Arriving {
    fn ready(&self, _: Ready) {
        let result = match self.state.lock().as_mut() {
            Some(arrival) => arrival.called.advance(),
            None => return,
        };
        let request = match result {
            Ok(None) => return,
            Ok(Some(request)) => request,
            Err(error) => return self.drop_it(&error.to_string()),
        };
        let Some(arrival) = self.state.lock().take() else { return };
        let answering = arrival.called.leave(&self.tasks, arrival.pending);
        self.host.requested(request, answering);
    }
}
