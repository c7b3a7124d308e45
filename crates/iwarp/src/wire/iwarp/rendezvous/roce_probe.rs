// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds out whether the peer speaks RoCE v2: a queue pair that may speak either protocol asks by
//! datagrams, beside its search for a peer of our own kind over TCP.
//!
//! The first proof decides, for good: a stream that has proven to be the peer's, or a packet that
//! only a peer that speaks RoCE v2 would send ([`iwarp_roce::probe`]). Both ends of our own kind
//! never send one while they may speak either, so they never decide for different protocols. Work
//! posted meanwhile waits, and goes to the peer by the protocol that is chosen.

use std::sync::Weak;
use std::time::Duration;

use iwarp_types::Time;

use super::meeting::{MeetingState, Rendezvous, Search};
use crate::connect::Peer;
use crate::engine::endpoint::PacketListener;
use crate::engine::numbers::{LOWEST_PORT, port_of};
use crate::engine::options::Wire;
use crate::report;

/// Two ends of our own kind have met by then, mostly, and need no port for datagrams.
const FIRST: Duration = Duration::from_millis(10);
/// The longest pause between two questions. They come twice as late each time.
const PAUSE: Duration = Duration::from_millis(500);

/// When the next question is due.
pub(super) struct RoceProbe {
    next: Time,
    pause: Duration,
    listens: bool,
}

impl RoceProbe {
    pub(super) const fn due(&self) -> Time {
        self.next
    }
}

/// True if no queue pair of our own kind has this number.
const fn is_foreign(qpn: u32) -> bool {
    (port_of(qpn) as u32) < LOWEST_PORT
}

impl PacketListener for Rendezvous {
    fn heard_packet(&self) {
        let mut state = self.state.lock();
        if let (Some(peer), Some(_)) = (state.peer, &state.search) {
            self.choose_roce(&mut state, &peer);
        }
    }
}

impl Rendezvous {
    /// The question to be asked about the peer.
    pub(super) fn question(&self) -> Option<RoceProbe> {
        let either = self.endpoint().profile.options.spoken() == Wire::Auto;
        let next = self.now().plus(FIRST);
        either.then_some(RoceProbe { next, pause: FIRST, listens: false })
    }

    /// The queue pair is in RTS, and may ask.
    pub(super) fn ask_soon(&self, search: &mut Search) {
        if let Some(question) = search.question.as_mut().filter(|question| question.listens) {
            question.next = self.now();
        }
    }

    /// Asks where it is time to. True: the peer is known to speak RoCE v2 by its number.
    pub(super) fn ask(&self, search: &mut Search, peer: &Peer) -> bool {
        let Some(question) = &mut search.question else { return false };
        let now = self.now();
        let foreign = is_foreign(peer.qpn);
        if now < question.next && !foreign {
            return false;
        }
        if !question.listens {
            let listener: Weak<dyn PacketListener> = self.itself();
            if let Err(error) = self.endpoint().listen_for_packets(listener) {
                tracing::debug!(%error, "no port for datagrams: queue pairs speak iWARP");
                search.question = None;
                return false;
            }
            question.listens = true;
        }
        question.next = now.plus(question.pause);
        question.pause = (question.pause * 2).min(PAUSE);
        self.endpoint().ask_by_packets();
        foreign
    }

    /// The peer speaks RoCE v2.
    pub(super) fn choose_roce(&self, state: &mut MeetingState, peer: &Peer) {
        let (own, gid, qpn) = (self.number().value(), peer.gid, peer.qpn);
        if self.endpoint().go_on_over_packets() {
            report!(INFO, qp = own, peer = qpn, %gid, "the peer speaks RoCE v2");
        }
        self.end_search(state);
        self.endpoint().carry_on();
    }
}
