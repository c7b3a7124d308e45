// SPDX-License-Identifier: MIT OR Apache-2.0

//! Being connected to: the MPA Request, the program's answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_os::{FamilyClaim, Ready};
use iwarp_proto::mpa::startup::{Negotiated, Request};

use crate::cm::id::{IdCore, WeakId};
use crate::cm::{ConnectError, ConnectParams, EventKind, closed};
use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::fate::{self, IWARP};
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::port::{Acceptor, Ends, Port, canonical};
use crate::report;
use crate::wire::iwarp::startup::line::Answering;
use crate::wire::iwarp::startup::reception::{Host, Reception};
use crate::wire::iwarp::startup::terms::terms;

/// A listener at work.
pub(crate) struct Listening {
    reception: Reception,
    /// A forked child that goes on with the listener claims it.
    claim: Arc<FamilyClaim>,
    acceptor: Mutex<Option<Box<dyn Acceptor>>>,
}

impl Listening {
    /// The thread that drives `accept_set` serves it, the worker without one.
    pub(crate) fn start(
        acceptor: Box<dyn Acceptor>,
        max_pending: usize,
        id: WeakId,
        accept_set: Option<&AcceptSet>,
        claim: Arc<FamilyClaim>,
    ) -> io::Result<Arc<Self>> {
        let engine = id.upgrade().map(|id| Arc::clone(id.engine())).ok_or_else(closed)?;
        let host = Arc::new(Program(id));
        let listening = Arc::new(Self {
            reception: Reception::new(
                &engine,
                accept_set,
                terms(&engine.options, 0, 0),
                max_pending,
                host,
            ),
            claim,
            acceptor: Mutex::new(None),
        });
        let task = Arc::clone(&listening) as Arc<dyn Task>;
        let mut slot = listening.acceptor.lock();
        listening.reception.open(&*acceptor, task)?;
        *slot = Some(acceptor);
        drop(slot);
        Ok(listening)
    }

    /// Takes no more: when this returns, the port is free.
    pub(crate) fn stop(&self) {
        let acceptor = self.acceptor.lock().take();
        if let Some(acceptor) = acceptor {
            self.reception.close(&*acceptor);
            acceptor.end();
        }
    }

    /// The acceptor that this process, a forked child, has of its parent's, and the claim to it.
    pub(crate) fn inherit(&self) -> io::Result<(Box<dyn Acceptor>, Arc<FamilyClaim>)> {
        let acceptor = self.acceptor.try_lock().ok_or(io::ErrorKind::WouldBlock)?;
        let acceptor = acceptor.as_ref().ok_or_else(closed)?.inherit()?;
        Ok((acceptor, Arc::clone(&self.claim)))
    }
}

impl Task for Listening {
    fn ready(&self, _: Ready) {
        let acceptor = self.acceptor.lock();
        let Some(acceptor) = &*acceptor else { return };
        if self.claim.is_a_childs() {
            // The connection is for the child, which has the socket as well.
            self.reception.close(&**acceptor);
            report!(INFO, "a forked child goes on with a listener: connections come in there");
            return;
        }
        self.reception.take(&**acceptor);
    }
}

/// The program, which gets requests as events of its id.
struct Program(WeakId);

impl Host for Program {
    fn requested(&self, request: Request, answering: Answering) {
        let Self(listener) = self;
        if listener.is_gone() {
            return;
        }
        let Ends { local, peer } = answering.ends();
        fate::step(None, local, peer, IWARP, "a peer asks for a connection");
        let (ird, ord) = (request.peer_ird, request.peer_ord);
        let private_data = request.private_data;
        listener.with_channel(|channel| {
            let id = IdCore::requested(channel, Accepting { answering });
            let (rnr_retry, retry_count) = (None, None);
            let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
            channel.push_request(id, listener.clone(), kind);
        });
    }
}

/// A connection request that waits for the program's answer.
pub(crate) struct Accepting {
    answering: Answering,
}

impl Accepting {
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.answering.ends().local.map(canonical)
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        canonical(self.answering.ends().peer)
    }

    /// Sends the Reply and hands out the stream.
    pub(crate) fn accept(
        mut self,
        engine: &Engine,
        params: &ConnectParams,
        traffic_class: Option<u8>,
    ) -> Result<(Box<dyn Port>, Negotiated), ConnectError> {
        if let Some(class) = traffic_class {
            self.answering.port().set_traffic_class(class)?;
        }
        self.answering.is_accepted();
        self.answering.accept(engine, params)
    }

    /// Sends a Reply that rejects, and closes.
    pub(crate) fn reject(self, private_data: &[u8]) -> io::Result<()> {
        self.answering.reject(private_data)
    }
}
