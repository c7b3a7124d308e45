//! Connecting queue pairs without the connection manager.
//!
//! Programs written for InfiniBand often tell each other no more than an address (GID) and a queue
//! pair number, over a connection of their own, and then move their queue pairs to RTR and RTS.
//! iWARP has no such thing: there, a TCP connection comes first. So the number says where the
//! queue pair can be found: it carries a TCP port and an index ([`numbers`]).
//!
//! ```text
//!   door          the port of 256 queue pairs: listens while one of them is in INIT or beyond
//!   meeting       a queue pair's way to its peer: waits, connects, tries again, gives up
//!   introduction  who wants whom, in the private data of MPA's start-up
//!   peer          what the program says
//! ```
//!
//! # Who connects
//!
//! The end whose (GID, number) is lower connects at once when it comes to RTR. When nothing has
//! come of it after half a second (a firewall, most likely), the other end tries as well. A
//! request that arrives before the program has said which peer it expects is kept until then. When
//! both connect at once, the lower end's connection wins: the higher end always takes a request
//! of its peer's and drops its own; the lower end keeps the peer's until it knows what became of
//! its own.
//!
//! Both ends say both numbers, and the address that a connection comes from must be the expected
//! GID. The start-up is that of RFC 6581 with a frame of the initiator's first, so that either
//! program may be the first to send.
//!
//! A queue pair that is its own peer gets a TCP connection that has one end.
//!
//! [`numbers`]: crate::engine::numbers

mod door;
mod introduction;
mod meeting;
mod peer;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use iwarp_proto::mpa::startup::{Config, RtrTypes};

use crate::engine::Engine;
use crate::engine::sync::Mutex;
use door::Door;

pub(crate) use meeting::Meeting;
pub(crate) use peer::first_v4;
pub use peer::{Peer, Retry};

/// The doors of a device.
pub(crate) struct Rendezvous {
    engine: Arc<Engine>,
    doors: Mutex<HashMap<u16, Arc<Door>>>,
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendezvous").finish_non_exhaustive()
    }
}

impl Rendezvous {
    pub(crate) fn new(engine: &Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine: Arc::clone(engine), doors: Mutex::default() })
    }

    /// From now on peers find the queue pair.
    fn list(&self, meeting: &Arc<Meeting>) -> io::Result<()> {
        let number = meeting.number();
        let port = number.port().ok_or(io::ErrorKind::InvalidInput)?;
        let mut doors = self.doors.lock();
        if let Some(door) = doors.get(&port.number()) {
            door.list(number.value(), Arc::downgrade(meeting));
            return Ok(());
        }
        let door = Door::open(&self.engine, port)?;
        door.list(number.value(), Arc::downgrade(meeting));
        doors.insert(port.number(), door);
        Ok(())
    }

    /// From now on they do not. Nothing listens for a queue pair that is not there.
    fn withdraw(&self, meeting: &Meeting) {
        let number = meeting.number();
        let Some(port) = number.port() else { return };
        let mut doors = self.doors.lock();
        if let Some(door) = doors.get(&port.number())
            && door.withdraw(number.value())
        {
            door.close();
            doors.remove(&port.number());
        }
    }

    /// What start-up asks of the peer.
    fn startup(engine: &Engine, ird: u16, ord: u16) -> Config {
        Config {
            rev: 2,
            peer_to_peer: true,
            // A Send would take one of the program's receives.
            rtr: RtrTypes { send: false, write: true, read: true },
            ..engine.options.startup(ird, ord)
        }
    }
}
