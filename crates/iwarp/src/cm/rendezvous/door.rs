//! The TCP port at which queue pairs are found.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::Request;

use crate::cm::reception::{Host, Reception};
use crate::cm::rendezvous::introduction::{Introduction, Refusal};
use crate::cm::rendezvous::{Meeting, Rendezvous};
use crate::cm::startup::Answering;
use crate::engine::Engine;
use crate::engine::numbers::Port;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;

/// Peers that the system takes before the worker does: all those of 256 queue pairs.
const BACKLOG: u32 = 512;

/// A port that listens.
pub(crate) struct Door {
    engine: Arc<Engine>,
    port: Arc<Port>,
    guests: Arc<Guests>,
    reception: Reception,
    task: Mutex<Option<u64>>,
}

/// Who is found here.
#[derive(Default)]
struct Guests(Mutex<HashMap<u32, Weak<Meeting>>>);

impl Door {
    /// Has the port listen.
    pub(crate) fn open(engine: &Arc<Engine>, port: &Arc<Port>) -> io::Result<Arc<Self>> {
        let guests = Arc::new(Guests::default());
        let host = Arc::clone(&guests) as Arc<dyn Host>;
        let config = Rendezvous::startup(engine, 0, 0);
        let door = Arc::new(Self {
            engine: Arc::clone(engine),
            port: Arc::clone(port),
            guests,
            reception: Reception::new(engine, None, config, engine.options.max_pending, host),
            task: Mutex::new(None),
        });
        port.socket().start_listening(BACKLOG)?;
        let task = Arc::clone(&door) as Arc<dyn Task>;
        let added = engine.worker.tasks().add(port.socket().as_fd(), Interest::READ, task);
        match added {
            Ok(task) => *door.task.lock() = Some(task),
            Err(error) => {
                door.close();
                return Err(error);
            }
        }
        Ok(door)
    }

    pub(crate) fn list(&self, number: u32, meeting: Weak<Meeting>) {
        self.guests.0.lock().insert(number, meeting);
    }

    /// True when nobody is found here any more.
    pub(crate) fn withdraw(&self, number: u32) -> bool {
        let mut guests = self.guests.0.lock();
        guests.remove(&number);
        guests.is_empty()
    }

    /// Listens no more; the port stays taken.
    pub(crate) fn close(&self) {
        let socket = self.port.socket();
        if let Some(task) = self.task.lock().take() {
            self.engine.worker.tasks().remove(task, socket.as_fd());
        }
        if let Err(error) = socket.stop_listening() {
            tracing::debug!(port = self.port.number(), %error, "goes on listening");
        }
    }
}

impl Task for Door {
    fn ready(&self, _: Ready) {
        self.reception.take_one(self.port.socket());
    }
}

impl Host for Guests {
    fn requested(&self, request: Request, answering: Answering) {
        let Some(introduction) = Introduction::parse(&request.private_data) else {
            // Nobody of ours: closed without an answer, which might be taken for another's.
            tracing::info!(peer = %answering.peer_ip(), "somebody came to a queue pair's port");
            return;
        };
        let meeting = self.0.lock().get(&introduction.to).and_then(Weak::upgrade);
        match meeting {
            Some(meeting) => meeting.called_on(introduction.from, answering),
            None => send_away(answering, Refusal::Unknown),
        }
    }
}

/// Says no.
pub(crate) fn send_away(answering: Answering, why: Refusal) {
    tracing::debug!(peer = %answering.peer_ip(), ?why, "a queue pair is not to be had");
    // Whoever has gone does not need to know.
    let _ = answering.reject(&why.encode());
}
