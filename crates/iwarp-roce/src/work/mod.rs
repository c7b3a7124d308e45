// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common part of UC and UD queue pairs: states, work queues and events.
//!
//! Their requests end in the order of posting as their last packet goes out, so only the oldest one
//! is ever under way.
//!
//! ```text
//!   send      posted send work requests, with their storage
//!   flow      their packets, and their completion
//!   arrival   the receive that the next message gets
//!   drops     dropped packets, counted by the reason
//!   core      the contract of a core
//! ```

mod arrival;
mod core;
mod drops;
mod flow;
mod send;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iwarp_types::{
    Access, Accessor, Event, PostError, Protocol, QpState, Reason, Receive, ReceiveQueue,
    RecvRequest, Refusal, Ring, SendRequest, Sge, TransitionError, WcStatus,
};

use crate::config::{Attributes, Config};
use crate::wire::Psn;
use send::SendWqe;

pub(crate) use self::core::work_core;
pub(crate) use arrival::Arrival;
pub use drops::Drops;
pub(crate) use flow::{Done, Turn};

/// Events that belong to no work request: a fault ended the queue pair, the send queue is drained,
/// no more receives are taken, and a number of requests ended silently.
const OTHER_EVENTS: usize = 4;

/// States, work queues and events of a queue pair.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) config: Config,
    pub(crate) attributes: Attributes,
    pub(crate) drops: Drops,
    state: QpState,
    sends: Ring<SendWqe>,
    /// Octets of the oldest send that are sent.
    sent: u32,
    /// PSN of the next packet that is sent.
    next_psn: Psn,
    receives: ReceiveQueue,
    /// The receive that the next message gets, once one has been asked for.
    held: Receive,
    is_held: bool,
    events: VecDeque<Event>,
    /// The refused access to memory that ended it.
    refusal: Option<Refusal>,
    /// Sends that ended without a completion since the last one that has one.
    silent: u32,
    drain_reported: bool,
    last_receive_reported: bool,
    /// The peer's rights, if the owner has set them; they replace those in the attributes.
    remote_access: Option<Access>,
    /// Messages that came whole.
    arrived: u64,
    /// Elements of the octets that are being copied; kept for its storage.
    pieces: Vec<Sge>,
}

impl Work {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            attributes: Attributes::default(),
            drops: Drops::default(),
            state: QpState::Reset,
            sends: Ring::new(config.max_send_wr),
            sent: 0,
            next_psn: Psn::default(),
            receives: ReceiveQueue::new(config.max_recv_wr, config.max_recv_sge),
            held: Receive::default(),
            is_held: false,
            events: VecDeque::new(),
            refusal: None,
            silent: 0,
            drain_reported: false,
            last_receive_reported: false,
            remote_access: None,
            arrived: 0,
            pieces: Vec::new(),
        }
    }

    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    /// The accessor for the memory of sends and of the peer's requests.
    pub(crate) const fn accessor(&self) -> Accessor {
        Accessor { pd: self.config.pd, qp: self.config.qp }
    }

    /// The rights of the peer that apply.
    pub(crate) fn access(&self) -> Access {
        self.remote_access.unwrap_or(self.attributes.access)
    }

    pub(crate) const fn set_remote_access(&mut self, access: Access) {
        self.remote_access = Some(access);
    }

    /// True from RTR on, where packets are looked at (ROCE-017).
    pub(crate) const fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    pub(crate) const fn outstanding(&self) -> (usize, usize) {
        (self.sends.len(), self.receives.len() + self.is_held as usize)
    }

    pub(crate) const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Changes the state as the program asks.
    pub(crate) fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        let from = self.state;
        if !from.may_become(to) {
            return Err(TransitionError { from, to });
        }
        match to {
            QpState::Reset => *self = Self::new(self.config),
            QpState::Err => self.end(),
            _ => {
                if (from, to) == (QpState::Rtr, QpState::Rts) {
                    self.next_psn = self.attributes.sq_psn;
                }
                self.state = to;
                self.drain_reported = false;
                self.report_drained();
            }
        }
        Ok(())
    }

    /// Goes to Err and flushes all there is.
    pub(crate) fn end(&mut self) {
        self.state = QpState::Err;
        self.flush_sends();
        self.flush_receives();
    }

    /// Ends the queue pair for a fault of this side.
    pub(crate) fn fault(&mut self, what: &'static str) {
        if self.state == QpState::Err {
            return;
        }
        self.events.push_back(Event::Fault(Reason::new(Protocol::Other, 0, what)));
        self.end();
    }

    /// The port is gone.
    pub(crate) fn lost(&mut self) {
        if self.receives() {
            self.events.push_back(Event::Lost);
            self.end();
        }
    }

    /// Posts a send. A `refused` one ends with that status when its turn comes, without a packet.
    pub(crate) fn post_send(
        &mut self,
        request: &SendRequest<'_>,
        refused: Option<WcStatus>,
    ) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState);
        }
        let length = request.check(&self.config.limits)?;
        if self.sends.is_full() {
            return Err(PostError::QueueFull);
        }
        self.reserve_events(1)?;
        self.sends.next_slot()?.set(request, length, refused)?;
        self.sends.push();
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.flush_sends();
        }
        Ok(())
    }

    pub(crate) fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.config.shared_receive {
            return Err(PostError::SharedReceiveQueue);
        }
        if !self.state.takes_receives() {
            return Err(PostError::WrongState);
        }
        self.reserve_events(1)?;
        self.receives.post(request)?;
        if self.state == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            // The next one goes to the first place, which the CPU's cache holds.
            self.events.clear();
        }
        event
    }

    pub(crate) const fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Makes room for the events of all requests, and of `more` of them, at once: an event never
    /// lacks memory.
    fn reserve_events(&mut self, more: usize) -> Result<(), PostError> {
        let (sends, receives) = self.outstanding();
        Ok(self.events.try_reserve(sends + receives + more + OTHER_EVENTS)?)
    }

    fn report_drained(&mut self) {
        if self.state == QpState::Sqd && !self.drain_reported && self.sent == 0 {
            self.drain_reported = true;
            self.events.push_back(Event::SendQueueDrained);
        }
    }
}
