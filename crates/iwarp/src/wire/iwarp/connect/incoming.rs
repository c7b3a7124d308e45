// SPDX-License-Identifier: MIT OR Apache-2.0

//! Being connected to: the MPA Requests that come in at an id.

use std::io;
use std::sync::Arc;

use iwarp_os::{FamilyClaim, Ready};
use iwarp_proto::mpa::startup::Request;

use super::{Connection, NO_STREAMS};
use crate::connect::{Arrivals, EventKind, Exchange, Heirloom, Listener, closed};
use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::fate::{self, IWARP};
use crate::engine::options::Wire;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::port::{Acceptor, Ends, canonical};
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
        engine: &Arc<Engine>,
        acceptor: Box<dyn Acceptor>,
        max_pending: usize,
        listener: Arc<dyn Listener>,
        accept_set: Option<&AcceptSet>,
        claim: Arc<FamilyClaim>,
    ) -> io::Result<Arc<Self>> {
        let host = Arc::new(Program { engine: Arc::clone(engine), listener });
        let listening = Arc::new(Self {
            reception: Reception::new(
                engine,
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
}

impl Arrivals for Listening {
    fn stop(&self) {
        let acceptor = self.acceptor.lock().take();
        if let Some(acceptor) = acceptor {
            self.reception.close(&*acceptor);
            acceptor.end();
        }
    }

    fn inherit(&self) -> io::Result<Option<Heirloom>> {
        let acceptor = self.acceptor.try_lock().ok_or(io::ErrorKind::WouldBlock)?;
        let acceptor = acceptor.as_ref().ok_or_else(closed)?.inherit()?;
        Ok(Some((acceptor, Arc::clone(&self.claim))))
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
struct Program {
    engine: Arc<Engine>,
    listener: Arc<dyn Listener>,
}

impl Host for Program {
    fn requested(&self, request: Request, mut answering: Answering) {
        let Self { engine, listener } = self;
        if listener.is_gone() {
            return;
        }
        let Ends { local, peer } = answering.ends();
        fate::step(None, local, peer, IWARP, "a peer asks for a connection");
        let profile = listener.device_at(local.map(canonical));
        let Some(profile) = profile.filter(|profile| profile.options.spoken() != Wire::Roce) else {
            fate::refused(local, peer, IWARP, "no device takes streams at this address");
            // A peer that has gone does not need to know.
            let _ = answering.reject(NO_STREAMS);
            return;
        };
        let (ird, ord) = answering.is_for(&profile.options);
        let Request { private_data, .. } = request;
        let (rnr_retry, retry_count) = (None, None);
        let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
        let engine = Arc::clone(engine);
        let make =
            move |owner| Connection::requested(engine, owner, answering) as Arc<dyn Exchange>;
        listener.requested(local.map(canonical), canonical(peer), Box::new(make), kind);
    }
}
