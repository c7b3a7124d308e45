// SPDX-License-Identifier: MIT OR Apache-2.0

//! The port number at which queue pairs are found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use iwarp_os::Ready;
use iwarp_proto::mpa::startup::Request;

use crate::engine::Engine;
use crate::engine::numbers::PortNumber;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::port::Acceptor;
use crate::report;
use crate::wire::iwarp::rendezvous::introduction::{Foreign, Introduction, VERSION, refusal};
use crate::wire::iwarp::rendezvous::{Rendezvous, RendezvousListeners};
use crate::wire::iwarp::startup::line::Answering;
use crate::wire::iwarp::startup::reception::{Host, Reception};

/// Peers that the system takes before the worker does: as many as it lets a program say. In a flood
/// a good peer's attempt would be dropped, and repeated after a second only.
const BACKLOG: u32 = 4096;

/// An address of this host, and the interface where it is link-local.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LocalAddr {
    pub(crate) ip: IpAddr,
    pub(crate) scope: u32,
}

/// A port, which listens at the addresses that its queue pairs use and at no others.
pub(crate) struct RendezvousListener {
    engine: Arc<Engine>,
    port: Arc<PortNumber>,
    listed: Arc<Listed>,
    entrances: Mutex<HashMap<LocalAddr, Arc<Entrance>>>,
}

/// The queue pairs that are found at a listener.
#[derive(Default)]
struct Listed {
    all: Mutex<HashMap<u32, ListedPair>>,
    /// The user was told of a peer with an earlier release.
    reported: AtomicBool,
}

struct ListedPair {
    meeting: Weak<Rendezvous>,
    addr: LocalAddr,
}

/// One of its addresses.
struct Entrance {
    acceptor: Box<dyn Acceptor>,
    reception: Reception,
}

impl RendezvousListener {
    /// One that listens nowhere yet.
    pub(crate) fn new(engine: &Arc<Engine>, port: &Arc<PortNumber>) -> Self {
        Self {
            engine: Arc::clone(engine),
            port: Arc::clone(port),
            listed: Arc::default(),
            entrances: Mutex::default(),
        }
    }

    /// The queue pair is found at that address.
    pub(crate) fn list(
        &self,
        number: u32,
        addr: LocalAddr,
        meeting: Weak<Rendezvous>,
    ) -> io::Result<()> {
        let mut entrances = self.entrances.lock();
        if let Entry::Vacant(vacant) = entrances.entry(addr) {
            vacant.insert(self.open(addr)?);
        }
        self.listed.all.lock().insert(number, ListedPair { meeting, addr });
        Ok(())
    }

    fn open(&self, addr: LocalAddr) -> io::Result<Arc<Entrance>> {
        let acceptor = self.port.reservation().listen_at(addr.ip, addr.scope, BACKLOG)?;
        let engine = &self.engine;
        // Each queue pair that a peer is led to says what its device adds.
        let config = RendezvousListeners::startup(&engine.options, 0, 0);
        let host = Arc::clone(&self.listed) as Arc<dyn Host>;
        let reception = Reception::new(engine, None, config, engine.options.max_pending, host);
        let entrance = Arc::new(Entrance { acceptor, reception });
        entrance.reception.open(&*entrance.acceptor, Arc::clone(&entrance) as Arc<dyn Task>)?;
        Ok(entrance)
    }

    /// The queue pair is not found any more. True when none is.
    pub(crate) fn withdraw(&self, number: u32) -> bool {
        let mut entrances = self.entrances.lock();
        let mut listed = self.listed.all.lock();
        listed.remove(&number);
        entrances.retain(|addr, entrance| {
            let used = listed.values().any(|entry| entry.addr == *addr);
            if !used {
                entrance.reception.close(&*entrance.acceptor);
            }
            used
        });
        listed.is_empty()
    }
}

impl Task for Entrance {
    fn ready(&self, _: Ready) {
        self.reception.take(&*self.acceptor);
    }
}

impl Host for Listed {
    fn requested(&self, request: Request, answering: Answering) {
        let introduction = match Introduction::parse(&request.private_data) {
            Ok(introduction) => introduction,
            Err(Foreign::Version(version)) => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    report!(
                        WARN,
                        "the library at {} is of another release (it has {version}, this one \
                         {VERSION}), so queue pairs do not connect",
                        answering.peer_ip(),
                    );
                }
                return send_away(answering, "another release");
            }
            Err(Foreign::Noise) => {
                // None of ours: closed without an answer, which might be taken for another's.
                let peer = answering.peer_ip();
                report!(INFO, %peer, "a stranger connected to the port of a queue pair");
                return;
            }
        };
        let meeting =
            self.all.lock().get(&introduction.to).and_then(|entry| entry.meeting.upgrade());
        match meeting {
            Some(meeting) => meeting.called_on(&introduction, request.private_data, answering),
            None => send_away(answering, "no such queue pair"),
        }
    }
}

/// Refuses a connection. The reason goes to our log alone.
pub(crate) fn send_away(answering: Answering, why: &str) {
    tracing::debug!(peer = %answering.peer_ip(), why, "a queue pair is not to be had");
    // A peer that has gone does not need to know.
    let _ = answering.reject(&refusal());
}
