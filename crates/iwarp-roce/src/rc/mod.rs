// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reliable connected queue pair (RC).
//!
//! ```text
//!   send_queue   posted requests, and the packets that they take
//!   requester    the choice of the next packet
//!   answers      acknowledgements, NAKs and responses, as the requester takes them
//!   timer        deadlines, and the number of tries
//!   pace         the window
//!   responder    the peer's requests, executed in the order of their PSNs
//!   replies      the answers that the responder owes
//!   ending       the end of a queue pair and of its work requests
//!   driven       the queue pair as its owner sees it
//!   reasons      the reasons for its end
//!   refusal      the refused access to memory that ended it
//! ```
//!
//! # Congestion
//!
//! A network may mark packets instead of dropping them (ECN). The end that receives a marked packet
//! sends a congestion notification (ROCE-142), and the end that receives the notification halves
//! its window, once for the packets under way. Neither costs anything if no packet is marked.
//!
//! # Loss
//!
//! The requester sends everything from the oldest unacknowledged packet on again: when an answer is
//! overdue (ROCE-061), when the responder reports a gap (ROCE-056), or when an answer implies that
//! an earlier one is lost (ROCE-049). Repeated packets are read from memory anew, with unchanged
//! PSNs and lengths (ROCE-070).
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

/// Events that can wait beside the completions of posted requests: that of the receive that a
/// message fills, and one of each other kind.
const OTHER_EVENTS: usize = 8;
/// Packets of requests, or of answers, that go out before the other kind takes its turn.
const TURN: usize = 16;

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct Rc {
    config: Config,
    state: QpState,
    attributes: Attributes,
    /// The peer's rights, if the owner has set them; they replace those in the attributes.
    remote_access: Option<Access>,
    sq: SendQueue,
    rq: ReceiveQueue,
    requester: Requester,
    responder: Responder,
    replies: Replies,
    events: VecDeque<Event>,
    /// The refused access to memory that ended it.
    refusal: Option<Refusal>,
    counters: Counters,
    /// Messages of the peer's received whole.
    arrivals: u64,
    /// Set once the peer was heard before this side could send.
    heard: bool,
    drain_reported: bool,
    last_receive_reported: bool,
    /// Set if it is the turn of answers.
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

    /// The settings with which it was made.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The counters since the last Reset, or since they were last taken.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The accessor for memory.
    const fn accessor(&self) -> Accessor {
        Accessor { pd: self.config.pd, qp: self.config.qp }
    }

    /// True if packets are taken: requests from RTR on, answers from RTS on (ROCE-017).
    const fn is_alive(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }

    /// True if a packet belongs to this connection (ROCE-005, ROCE-011, ROCE-016).
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

    /// A packet of the peer's met congestion: tells the peer (ROCE-142), and if the packet is an
    /// answer, asks for less.
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
            // A question does not come from the peer's program.
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

    /// Sends some of the answers owed. False if no more are owed.
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

    /// Makes room for the events of all requests, of one more, and of the end of the queue pair, at
    /// once: an event never lacks memory.
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
