// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connecting queue pairs without the connection manager.
//!
//! Programs written for InfiniBand often tell each other no more than an address (GID) and a queue
//! pair number, over a connection of their own, and then move their queue pairs to RTR and RTS.
//! iWARP has no such thing: there, a TCP connection comes first. So the number says where the
//! queue pair can be found: it carries a TCP port and an index ([`numbers`]).
//!
//! ```text
//!   listener      the port of 256 queue pairs: listens if one of them is in RTR or beyond
//!   meeting       a queue pair's way to its peer: waits, connects, tries again, gives up
//!   wait          how long work waits
//!   unproven      connections that have come, until they have proven whose they are
//!   parting       the end of those that are let go of before that
//!   introduction  who wants whom, in the private data of MPA's start-up
//!   proof         how the ends prove that they know each other
//!   roce_probe    asks whether the peer speaks RoCE v2, and is none of our kind
//!   users         whose processes on this host may come
//!   peer          what the program says
//! ```
//!
//! # Who connects
//!
//! The end whose (GID, number) is lower connects at once when it comes to RTS, the other one 2 ms
//! later; an end that stays in RTR, as one does that only receives, 2 ms later than either. A
//! listener opens in RTR, not before, as only then the program has said at which address. So of two
//! ends that come one after the other, the later one finds the earlier one's listener open; the
//! earlier one tries again after 0.25 ms, and twice as long each time, up to half a second. When
//! both connect at once, the lower end's connection wins:
//!
//! - The lower end takes its own as soon as the peer has answered. As long as it has one under way
//!   it answers none.
//! - The higher end answers what comes, and takes its own only while it has answered no caller that
//!   may turn out to be the peer.
//!
//! The start-up is that of RFC 6581 with a frame of the initiator's first, so that either program
//! may be the first to send. A queue pair that is its own peer gets a connection that has one end.
//!
//! # Who is believed
//!
//! All users of a host can see which ports are taken, and 256 queue pairs share one. So a
//! connection counts as the peer's when all of this is true; else it is refused, in words that do
//! not tell what is wrong, and the search goes on:
//!
//! 1. It is between the two GIDs, and says both queue pair numbers.
//! 2. The process at its other end, if that is on this host, is this user's, root's, or of a user
//!    that `IWARP_ALLOW_USERS` names.
//! 3. The other end proves, without saying them, that its program knows the *packet sequence
//!    numbers* of both ends (`sq_psn` of each is `rq_psn` of the other): see [`proof`].
//!
//! Programs say the peer's number (`rq_psn`) for RTR and their own (`sq_psn`) for RTS. Two ends in
//! RTR have no secret in common, and need no connection, as neither can send. If one is in RTS, its
//! own number is what both know. So the Request says whose number it is about: an initiator in RTS
//! names its own, which every responder in RTR can judge; one in RTR the responder's, who keeps the
//! Request until it is in RTS. The other number, of the end that may still be in RTR, follows as a
//! *claim*, once the key of the first is agreed on. That end judges the claim as soon as it is in
//! RTS: mostly before there is a connection, as a responder in RTR keeps a Request for 10 ms; else
//! it ends the connection as if the peer did not answer. Until then it only receives, from a peer
//! that has proven the number from which its own packets start, as over InfiniBand.
//!
//! ```text
//!   initiator                                                responder
//!     Request: numbers, whose secret, share      ---->         judges 1 and 2
//!                                                <----         Reply: share, proof, claim if it
//!     judges both and 2; takes the connection                         knows the other number
//!     proof and claim (64 bytes, before the
//!     first FPDU)                                ---->         judges both; takes the connection
//! ```
//!
//! A connection that has proven nothing displaces nothing: 8 of them wait at a time, the oldest
//! gives way after 0.2 s, and an attempt of our own goes on meanwhile. A queue pair answers 64 at
//! once and then 4 a second ([`proof::Tries`]).
//!
//! [`numbers`]: crate::engine::numbers
//!
//! # Giving up
//!
//! An end retries after refusals for timeout times retry count, but for 3 s at least, and longer
//! while a connection is under way. Time in which the machine stood still does not count
//! ([`wait`]). Then the oldest request reports that the peer does not answer, and one line names
//! the addresses that could not meet. Listeners of the connection manager are public services and
//! ask for no proof.

mod introduction;
mod listener;
mod meeting;
mod parting;
mod unproven;

mod peer;
mod proof;
mod roce_probe;
mod users;
mod wait;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use iwarp_proto::mpa::startup::{Config, RtrTypes};

use crate::engine::Engine;
use crate::engine::options::Options;
use crate::engine::sync::Mutex;
use crate::wire::iwarp::startup::terms::terms;
use listener::{LocalAddr, RendezvousListener};

pub(crate) use meeting::Rendezvous;

/// The listeners of a device.
pub(crate) struct RendezvousListeners {
    engine: Arc<Engine>,
    listeners: Mutex<HashMap<u16, RendezvousListener>>,
}

impl std::fmt::Debug for RendezvousListeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RendezvousListeners").finish_non_exhaustive()
    }
}

impl RendezvousListeners {
    pub(crate) fn new(engine: &Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine: Arc::clone(engine), listeners: Mutex::default() })
    }

    /// From now on peers find the queue pair.
    fn list(&self, meeting: &Arc<Rendezvous>, addr: LocalAddr) -> io::Result<()> {
        let number = meeting.number();
        let port = number.port().ok_or(io::ErrorKind::InvalidInput)?;
        let mut listeners = self.listeners.lock();
        if let Some(listener) = listeners.get(&port.number()) {
            return listener.list(number.value(), addr, Arc::downgrade(meeting));
        }
        let listener = RendezvousListener::new(&self.engine, port);
        listener.list(number.value(), addr, Arc::downgrade(meeting))?;
        listeners.insert(port.number(), listener);
        Ok(())
    }

    /// Connections for the queue pair come in no more. A listener without queue pairs is closed.
    fn withdraw(&self, meeting: &Rendezvous) {
        let number = meeting.number();
        let Some(port) = number.port() else { return };
        let mut listeners = self.listeners.lock();
        if let Some(listener) = listeners.get(&port.number())
            && listener.withdraw(number.value())
        {
            listeners.remove(&port.number());
        }
    }

    /// The terms that start-up asks of the peer.
    fn startup(options: &Options, ird: u16, ord: u16) -> Config {
        Config {
            rev: 2,
            peer_to_peer: true,
            // A Send would take one of the program's receives.
            rtr: RtrTypes { send: false, write: true, read: true },
            ..terms(options, ird, ord)
        }
    }
}
