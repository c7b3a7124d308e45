// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reliable connected queue pair (RC).
//!
//! ```text
//!   send_queue   posted requests, and the packets that they take
//!   requester    which packet is sent next
//!   answers      acknowledgements, NAKs and responses, as the requester takes them
//!   timer        deadlines, and how often the requester has tried
//!   pace         how much may be under way
//!   responder    the peer's requests, executed in the order of their PSNs
//!   replies      what the responder owes
//!   ending       how a queue pair ends, and what becomes of the work requests
//!   driven       the queue pair as its owner sees it
//!   reasons      why it ended
//!   refusal      the access to memory by which it ended
//! ```
//!
//! # Congestion
//!
//! Where the network marks packets instead of dropping them (ECN), the end that gets a marked one
//! sends a congestion notification, and the end that gets one halves its window, once for what is
//! under way. Both cost nothing where nothing is marked.
//!
//! # Loss
//!
//! The requester sends everything from the oldest unacknowledged packet on again: when an answer is
//! overdue, when the responder tells of a gap, or when an answer implies that an earlier one is
//! lost. What is sent again is read from memory again, with the same PSNs and lengths.
//!
//! # Long Reads
//!
//! The window bounds what is sent and the answers that are asked for. A Read that is longer than a
//! part of the window is asked for in pieces, each a Read Request of its own to the peer.

mod answers;
mod driven;
mod ending;
mod pace;
pub mod reasons;
mod refusal;
mod replies;
mod requester;
mod responder;
mod send_queue;
mod timer;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iwarp_types::{
    Access, Accessor, Event, Memory, PostError, QpState, ReceivePool, ReceiveQueue, Refusal, Sge,
    Time,
};

use crate::config::{Attributes, Config};
use crate::probe::is_question;
use crate::wire::{Burst, Counters, Packet, Path, Transport};

use replies::Replies;
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;

/// Events that can wait beside the completions of what is posted: the receive that a message fills,
/// and one of each kind.
const OTHER_EVENTS: usize = 8;
/// Packets of requests, or of answers, that go out before the other kind has its turn.
const TURN: usize = 16;

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct Rc {
    config: Config,
    state: QpState,
    attributes: Attributes,
    /// The rights of the peer, where the owner has said them: instead of those in the attributes.
    remote_access: Option<Access>,
    sq: SendQueue,
    rq: ReceiveQueue,
    requester: Requester,
    responder: Responder,
    replies: Replies,
    events: VecDeque<Event>,
    /// The access to memory by which it ended.
    refusal: Option<Refusal>,
    counters: Counters,
    /// Messages of the peer's that have come whole.
    arrivals: u64,
    /// The peer was heard before this side could send.
    heard: bool,
    drain_reported: bool,
    last_receive_reported: bool,
    /// Answers have their turn.
    replies_next: bool,
    /// Part of a scatter/gather list; kept for its storage.
    pieces: Vec<Sge>,
}

impl Rc {
    /// The attributes with which it is set up.
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// A queue pair in [`QpState::Reset`].
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: QpState::Reset,
            attributes: Attributes::default(),
            remote_access: None,
            sq: SendQueue::new(config.max_send_wr),
            rq: ReceiveQueue::new(config.max_recv_wr, config.max_recv_sge),
            requester: Requester::default(),
            responder: Responder::default(),
            replies: Replies::new(0),
            events: VecDeque::new(),
            refusal: None,
            counters: Counters::default(),
            arrivals: 0,
            heard: false,
            drain_reported: false,
            last_receive_reported: false,
            replies_next: false,
            pieces: Vec::new(),
        }
    }

    /// The attributes with which it was made.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The faults so far, since the last Reset.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// On whose behalf it touches memory.
    const fn accessor(&self) -> Accessor {
        Accessor { pd: self.config.pd, qp: self.config.qp }
    }

    /// Whether packets are taken and requests go out.
    const fn is_alive(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }

    /// Whether a packet is one of this connection's.
    #[inline]
    fn is_for_us(&self, packet: &Packet<'_>, path: &Path) -> bool {
        let header = &packet.header;
        matches!(header.transport, Transport::Rc)
            && header.bth.dest_qp == self.config.qp.0
            && header.bth.pkey.admits(self.attributes.pkey)
            && self.is_from_peer(path)
    }

    #[inline]
    fn is_from_peer(&self, path: &Path) -> bool {
        let own = &self.attributes.path.address;
        path.address.source == own.destination && path.address.destination == own.source
    }

    /// A packet of the peer's met congestion: the peer is told, and where it is part of what this
    /// side has asked for, less is asked for.
    #[cold]
    fn echo_congestion(&mut self, is_response: bool, now: Time) {
        if self.replies.echo_congestion(now) {
            self.counters.sent_cnp += 1;
        }
        if is_response {
            self.requester.slow_down(now);
        }
    }

    fn take_packet<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        now: Time,
        memory: &M,
        pool: &dyn ReceivePool,
    ) {
        if !self.is_alive() || !self.is_for_us(packet, path) {
            return;
        }
        let is_response = packet.header.message.is_response();
        if path.is_marked() {
            self.echo_congestion(is_response, now);
        }
        if self.state == QpState::Rtr {
            if is_response {
                return;
            }
            // A question is none of the peer's program.
            if !is_question(&packet.header.message) && !core::mem::replace(&mut self.heard, true) {
                self.events.push_back(Event::FirstHeard);
            }
        }
        if is_response {
            self.answer(packet, now, memory);
        } else {
            self.take_request(packet, now, memory, pool);
        }
    }

    fn build<M: Memory + ?Sized>(&mut self, burst: &mut Burst, now: Time, memory: &M) {
        let mut idle = 0;
        while idle < 2 && !burst.is_full() {
            let more = match self.replies_next {
                true => self.reply(burst, memory),
                false => self.request(TURN, burst, now, memory),
            };
            self.replies_next = !self.replies_next;
            idle = if more { 0 } else { idle + 1 };
        }
    }

    /// Sends some of what the responder owes. False where no more is owed.
    fn reply<M: Memory + ?Sized>(&mut self, burst: &mut Burst, memory: &M) -> bool {
        let who = self.accessor();
        let Self { replies, attributes, responder, .. } = self;
        let sent = replies.send(TURN, burst, attributes, responder.msn, who, memory);
        sent.unwrap_or_else(|code| {
            self.note_unanswered();
            self.fail_as_responder(reasons::of_nak(code));
            true
        })
    }

    /// Makes room for what all requests, one more than there are, and the end of the queue pair can
    /// report at once: an event that comes is never in want of memory.
    #[inline]
    fn reserve_events(&mut self) -> Result<(), PostError> {
        let most = self.sq.len() + self.rq.len() + 1 + OTHER_EVENTS;
        if self.events.capacity() < most { self.grow_events(most) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn grow_events(&mut self, most: usize) -> Result<(), PostError> {
        Ok(self.events.try_reserve(most - self.events.len())?)
    }
}
