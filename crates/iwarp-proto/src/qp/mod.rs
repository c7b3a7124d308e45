// SPDX-License-Identifier: MIT OR Apache-2.0

//! One queue pair: send queue, receive queue, read queues, state and Terminate.
//!
//! # Contract
//!
//! [`Qp`] only decides; it copies no payload, so it can sit behind a lock that is held for
//! nanoseconds. Two halves do the bulk work beside it, each driven by the thread that owns its
//! direction of the stream: [`Receiver`] takes octets apart and places them, [`Transmitter`]
//! gathers and frames them. Both reach the queue pair through [`Shared`], which is a mutex in the
//! engine and a `RefCell` in the simulator. The framing is the caller's: its two halves are made
//! with a [`Deframe`](crate::framing::Deframe) and a [`Frame`](crate::framing::Frame), MPA's
//! ([`Negotiated::deframer`](crate::mpa::startup::Negotiated::deframer),
//! [`framer`](crate::mpa::startup::Negotiated::framer)) or another transport's.
//!
//! In:
//! - [`Qp::post_send`], [`Qp::post_recv`]: work requests;
//! - [`Qp::establish`]: the ends have agreed on [`Terms`], Full Operation begins;
//! - [`Receiver::receive`]: octets of the stream; [`Receiver::eof`], [`Qp::lost`]: its end;
//! - [`Receiver::receive`] once more, without new octets, when receives may be there and
//!   [`Qp::has_parked`];
//! - [`Qp::handle_timeout`]: the time that [`Qp::poll_timeout`] asked for has come;
//! - [`Qp::disconnect`], [`Qp::modify`]: what the program wants.
//!
//! Out, three independent pulls:
//! - [`Transmitter::transmit`]: frames, built only when the stream takes octets;
//!   [`Transmitter::taken`] then releases the completions whose last octet was taken;
//! - [`Qp::poll_event`]: completions and asynchronous events. It never waits for transmission:
//!   two ends whose sockets are full would wait for each other for ever;
//! - [`Qp::poll_timeout`].
//!
//! The only orders kept between them: own octets are taken before their send completion,
//! placement comes before the receive completion, a Terminate is the last thing sent.
//!
//! # Segments that go together
//!
//! One decision may cover several consecutive segments of one message, 64 KiB at most. The
//! transmitter asks for as many as there is room for, and frames them in one use of their source
//! ([`iwarp_types::Use`]); where the source is refused on the way, those before stay framed. The
//! receiver has the first one judged; those behind it that are whole, carry on where it ended and
//! are refused nothing are placed in the same use of the buffer, each when its CRC was found good,
//! and reported together. Any other segment ends the run and is judged by itself, so faults,
//! completions and what a Terminate quotes are those of one segment after the other. Changes made
//! to the queue pair meanwhile hold from the end of the run.
//!
//! A message of one short segment is judged, placed and reported in one call of [`Shared::with`]:
//! to take the queue pair twice would last longer than to copy so little.
//!
//! # What a completion means
//!
//! A one-way request (Send, Write, Immediate Data) completes when the stream has taken it, as the
//! RFCs have it. With [`Config::acknowledge`] a signalled one completes when the peer has received
//! it: a Read of no octets is sent behind it, one at a time for all that was sent before. A Read
//! or Atomic of the program's acknowledges what stands before it as well. The answering side's
//! share: a message has been received when it is in its receive, so where [`Config::park`] keeps
//! one, requests behind it are answered after that, or never. These Reads use the
//! spare depths of [`Terms`] where the peer granted one, otherwise what the program leaves
//! free; a peer that takes no Reads at all acknowledges nothing, and requests complete as without.
//! None is sent where the caller learns by other means what the peer has taken in
//! ([`Qp::peer_has`]).
//! Requests that were sent and not acknowledged when the stream ends are flushed.
//!
//! # Messages without a receive
//!
//! They end the stream (RFC 5041 §7.1), unless [`Config::park`] says that they are kept until a
//! receive is posted, or for as long as the peer would send them again over InfiniBand: it says how
//! often ([`Qp::set_rnr_retry`]), and this end how long it waits in between
//! ([`Qp::set_rnr_timer`]). Writes and answers behind them are placed; Reads and Atomics wait for
//! their answer until all messages before them are delivered. The thread that drives the queue pair
//! then has these duties:
//!
//! - Receives may have been posted, to the queue pair or to its pool: where [`Qp::has_parked`],
//!   call [`Receiver::receive`], with the octets that were not used (there may be none), and then
//!   look whether the transmitter has answers to send.
//! - [`Receiver::is_stalled`] after a call of [`Receiver::receive`]: the park is full. Read nothing
//!   more from the stream, not even its end, and keep the octets that were not used, until such a
//!   call leaves it false. [`Qp::is_stalled`] tells it from the other side; it is false when the
//!   stream has ended, and then the rest is to be read and dropped as ever.
//! - [`Qp::poll_timeout`] may answer with a time that is long past: the queue pair does not know
//!   when a message began to wait and wants to be told ([`Qp::handle_timeout`]). So look at it
//!   after receiving, not only after sending.
//!
//! # Parts and their lock
//!
//! [`Qp`] is a few hundred octets of state. [`Transmit`] holds the data that were built and that
//! the stream has not yet taken: staged octets and, with CRC off, references to registered memory.
//! A connection is full duplex although its core has one lock, because the long copies and all
//! calls of the transport happen outside that lock.
//!
//! # Errors
//!
//! Three types keep three kinds of error apart: the peer broke a rule (`Fault`, which
//! `rdmap::terminate` maps to one Terminate), the caller misused the interface
//! ([`iwarp_types::PostError`]), or something local failed (a completion with an error).
//!
//! # Memory that is gone
//!
//! The program may unmap or protect registered memory. The request concerned then ends with a local
//! protection error, and so does the receive that a peer's Send used. If a peer's Write, Read or
//! Atomic hits such memory, the peer is not at fault, so the Terminate is 0/0/00. Payloads that are
//! sent straight from registered memory are checked when their header is built. If they vanish
//! between that and the call of the transport, the framing is lost and the stream is reset.

mod config;
mod driven;
mod ending;
mod inbound;
mod local;
mod outbound;
mod receive;
mod short;
mod sq;
mod terminated;
mod terms;
mod transmit;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::any::Any;
use core::time::Duration;

use iwarp_types::{
    Access, Accessor, PostError, QpState, ReceiveQueue, RecvRequest, Refusal, SendOp, SendRequest,
    Stag, Time, TransitionError, WcStatus,
};

use crate::mpa::startup::{Role, Rtr};
use crate::rdmap::hello::{PeerKind, RNR_WITHOUT_END};
use crate::rdmap::reads::{InboundReads, OutboundReads};
use crate::rdmap::wire::TerminateCode;

pub use self::local::{PeerIsLocal, WaitingRequest};
pub use crate::rdmap::hello::{Capabilities, Offer};
pub use crate::rdmap::terminate::Fault;
pub use config::Config;
pub use inbound::park::Park;
pub use iwarp_types::{Disposition, Extensions, Wanted};
pub use receive::{Direct, Named, Receiver};
pub use terms::Terms;
pub use transmit::{Piece, Source, Taken, Transmit, Transmitter};

use inbound::Inbound;
use outbound::Outbound;
use sq::SendQueue;

/// The reason given for the end of a stream for which there is no memory.
pub(crate) const OUT_OF_MEMORY: &str = "out of memory";

/// Events that can wait beside the completions of what is posted: the receive that a message fills,
/// and one of each kind.
const OTHER_EVENTS: usize = 12;

/// An event that a queue pair tells its owner, with the RFCs' codes and faults.
pub type Event = iwarp_types::Event<TerminateCode, Fault>;

/// Access to a queue pair that others use too.
pub trait Shared {
    /// Calls `f` while no other thread uses the queue pair.
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R;
}

impl Shared for core::cell::RefCell<Qp> {
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        f(&mut self.borrow_mut())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    /// No stream yet.
    Detached,
    /// Full Operation.
    Operating,
    /// The program asked to end it: accepted work still goes out, nothing comes in.
    Closing,
    /// The peer has closed it. No octets go out or come in, and work requests wait for a while.
    Outlived,
    /// A fault ended it: at most a Terminate still goes out.
    Terminating,
    /// No octets go out any more.
    Ended,
}

/// A queue pair. See the [module](self) for the contract.
#[derive(Debug)]
pub struct Qp {
    config: Config,
    state: QpState,
    stream: Stream,
    sq: SendQueue,
    rq: ReceiveQueue,
    orq: OutboundReads,
    irq: InboundReads,
    outbound: Outbound,
    inbound: Inbound,
    peer: PeerKind,
    role: Role,
    events: VecDeque<Event>,
    deadline: Option<Time>,
    /// When something is done about a peer that has said nothing.
    silence: Option<Time>,
    /// The number of messages that the peer has received, as it said when it left.
    peer_received: Option<u64>,
    /// The program itself takes it through its states.
    in_place: bool,
    /// For how long work requests outlive the stream, and until when, once that is known.
    outlive: Option<Duration>,
    outlived_until: Option<Time>,
    /// The most rights that the peer has, even if the memory grants more.
    remote_access: Option<Access>,
    /// The number of times that a message that finds no receive would be sent again, by this end
    /// and by the peer, where either has said it.
    rnr_retry: u8,
    peer_rnr_retry: Option<u8>,
    /// The owner's, dropped at the end of Full Operation.
    kept: Option<Box<dyn Any + Send>>,
    /// The access by which the stream ended.
    refusal: Option<Refusal>,
    /// The owner knows that a message waits for its receive.
    told_no_receive: bool,
    abort: bool,
    drain_reported: bool,
}

impl Qp {
    /// A queue pair in [`QpState::Reset`].
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: QpState::Reset,
            stream: Stream::Detached,
            sq: SendQueue::new(config.max_send_wr),
            rq: ReceiveQueue::new(config.max_recv_wr, config.max_recv_sge),
            orq: OutboundReads::new(0, 0),
            irq: InboundReads::new(0, 0),
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            peer: PeerKind::Unknown,
            role: Role::Initiator,
            events: VecDeque::new(),
            deadline: None,
            silence: None,
            peer_received: None,
            in_place: false,
            outlive: None,
            outlived_until: None,
            remote_access: None,
            kept: None,
            rnr_retry: RNR_WITHOUT_END,
            peer_rnr_retry: None,
            refusal: None,
            told_no_receive: false,
            abort: false,
            drain_reported: false,
        }
    }

    /// The attributes with which it was made.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its state.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// True if MPA start-up is done and the stream has not ended.
    pub const fn is_connected(&self) -> bool {
        matches!(self.stream, Stream::Operating)
    }

    /// Outbound and inbound read queue depths that were agreed on (ORD, IRD), as the program may
    /// use them.
    pub const fn read_depths(&self) -> (usize, usize) {
        (self.orq.depth(), self.irq.depth())
    }

    /// Work requests that have not completed: sends and receives.
    pub const fn outstanding(&self) -> (usize, usize) {
        (self.sq.len(), self.rq.len())
    }

    /// Says what the peer may do through this queue pair of what the memory grants: those of the
    /// remote rights that `access` has, until the next Reset. Before, it may do everything.
    pub const fn set_remote_access(&mut self, access: Access) {
        self.remote_access = Some(access);
    }

    /// The remote rights that the peer has through it, where the memory grants them: those that
    /// were not taken, while it is connected.
    pub fn granted(&self) -> Access {
        let access = self.remote_access.unwrap_or(Access::REMOTE) & Access::REMOTE;
        if self.is_connected() { access } else { Access::LOCAL_READ }
    }

    /// On whose behalf it touches memory.
    pub const fn accessor(&self) -> Accessor {
        Accessor { pd: self.config.pd, qp: self.config.qp }
    }

    /// Changes the state as the program asks. Going to Err flushes and ends the stream; going to
    /// Reset forgets everything and makes the queue pair as new (its stream must be dropped).
    pub fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        if !self.state.may_become(to) {
            return Err(TransitionError { from: self.state, to });
        }
        match to {
            QpState::Reset => *self = Self::new(self.config),
            QpState::Err => self.disconnect(),
            _ => {
                self.state = to;
                self.drain_reported = false;
                self.report_drained();
            }
        }
        Ok(())
    }

    /// Keeps something of the owner's that it drops as soon as the stream is not in Full Operation
    /// any more, if it does not keep something already.
    pub fn keep_while_operating(&mut self, make: impl FnOnce() -> Box<dyn Any + Send>) {
        if self.is_connected() {
            self.kept.get_or_insert_with(make);
        }
    }

    /// Full Operation is over.
    fn leave_operation(&mut self, to: Stream) {
        self.stream = to;
        self.kept = None;
    }

    /// Enters Full Operation: the ends have agreed on `terms`, such as MPA's.
    /// The queue pair goes to [`QpState::Rts`] from Init or Rtr.
    ///
    /// `sequence starts`: every MSN begins at 1, on both sides (RFC 5041 §4.3).
    pub fn establish(&mut self, terms: impl Into<Terms>, now: Time) {
        let terms = terms.into();
        self.role = terms.role;
        self.stream = Stream::Operating;
        self.orq = OutboundReads::new(usize::from(terms.ord), usize::from(terms.spare_ord));
        self.irq = InboundReads::new(usize::from(terms.ird), usize::from(terms.spare_ird));
        let room = self.orq.reserve().and_then(|()| self.irq.reserve());
        let room = room.map_err(PostError::from).and_then(|()| self.reserve_events(0));
        if self.config.acknowledge && terms.outbound() > 0 {
            self.sq.await_acknowledgements();
        }
        self.outbound = Outbound::new(&terms);
        self.inbound = Inbound::default();
        self.peer = PeerKind::new(self.config.extensions);
        if self.rnr_retry != RNR_WITHOUT_END {
            self.tell_rnr_retry();
        }
        self.outlive = self.config.outlive;
        self.deadline = Some(now.plus(self.config.extension_wait));
        let silence = match terms.role {
            Role::Initiator => self.config.nudge,
            Role::Responder => self.config.tell_held_back,
        };
        self.silence = silence.map(|after| now.plus(after));
        match self.state {
            QpState::Err => {
                self.leave_operation(Stream::Closing);
                self.finish_closing();
            }
            QpState::Sqd => {}
            _ => self.state = QpState::Rts,
        }
        if let Some(fault) = terms.fault {
            self.fail(Fault::Startup(fault));
        } else if room.is_err() {
            self.fail_locally(OUT_OF_MEMORY);
        }
    }

    /// As [`Self::establish`], for a queue pair that the program itself takes through its states:
    /// it stays in Rtr until the program moves it on.
    pub fn establish_in_place(&mut self, terms: impl Into<Terms>, now: Time) {
        let before = self.state;
        self.establish(terms, now);
        self.in_place = true;
        self.outlive = self.config.outlive_in_place;
        if self.state == QpState::Rts {
            self.state = before;
        }
    }

    /// No stream could be had: the oldest send work request says so, everything else is flushed.
    pub fn unreachable(&mut self) {
        if self.stream != Stream::Detached {
            return;
        }
        if let Some((number, _)) = self.sq.next_unstarted() {
            self.sq.fail(number, WcStatus::RetryExceeded);
        }
        self.disconnect();
    }

    /// Hands over what was posted: `other` goes on with it, or ends with what it cannot take. If
    /// there is or was a stream, nothing happens and the result is false.
    pub fn hand_over(&mut self, other: &mut impl iwarp_types::Core) -> bool {
        if self.stream != Stream::Detached {
            return false;
        }
        let mut taken = iwarp_types::Receive::default();
        while self.rq.take(&mut taken) {
            if other.post_recv(&RecvRequest::new(taken.wr_id, &taken.sges)).is_err() {
                other.fail_locally(OUT_OF_MEMORY);
            }
        }
        self.sq.take_out(|request| {
            if other.post_send(request).is_err() {
                other.fail_locally("a work request that this peer does not know");
                // One that has no peer yet does not fail by itself.
                let _ = other.modify(QpState::Err);
                // Now an empty Send is flushed in its place.
                let _ = other.post_send(&SendRequest::send(request.wr_id, &[]));
            }
        });
        true
    }

    /// The rights that the peer has through this queue pair of those that the memory grants, where
    /// the owner has said it.
    pub const fn remote_access(&self) -> Option<Access> {
        self.remote_access
    }

    /// Which RTR frame this side, as the initiator, still has to send.
    pub fn pending_rtr(&self) -> Option<Rtr> {
        self.outbound.pending_rtr()
    }

    /// Posts a send work request.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // An RNIC's queue pair is in Rts once it is connected; perftest relies on it and leaves
        // the side that receives in Rtr.
        let connected = self.state == QpState::Rtr
            && matches!(self.stream, Stream::Operating | Stream::Outlived);
        if !self.state.takes_sends() && !connected {
            return Err(PostError::WrongState);
        }
        self.reserve_events(1)?;
        self.sq.post(&self.config, request)?;
        if self.state == QpState::Err {
            // Behind what a closing stream still sends.
            self.sq.fail(self.sq.last_posted(), WcStatus::Flushed);
            self.reap();
        }
        Ok(())
    }

    /// True if this Read, Write or Atomic may be carried out before it is posted: by a caller that
    /// reaches the peer's memory where it lies, and knows that the peer has taken in all that was
    /// sent. [`Self::post_done`] then takes and reports it.
    #[inline]
    pub fn may_be_done(&mut self, request: &SendRequest<'_>) -> bool {
        matches!((self.state, self.stream), (QpState::Rts, Stream::Operating))
            && self.sq.is_empty()
            && (self.orq.depth() > 0 || matches!(request.op, SendOp::Write { .. }))
            && self.sq.would_take(&self.config, request)
            && self.reserve_events(1).is_ok()
    }

    /// Posts a request that was carried out, which completes in its turn.
    ///
    /// # Errors
    ///
    /// As [`Self::post_send`].
    pub fn post_done(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.reserve_events(1)?;
        self.sq.post(&self.config, request)?;
        self.sq.carried_out(self.sq.last_posted());
        self.reap();
        Ok(())
    }

    /// The first request that waits to be sent, if it is a Write, Read or Atomic: its owner may
    /// carry it out in place of that ([`Self::may_be_done_next`]).
    pub fn next_waiting(&mut self) -> Option<WaitingRequest<'_>> {
        if !matches!((self.state, self.stream), (QpState::Rts, Stream::Operating)) {
            return None;
        }
        let may_read = self.orq.depth() > 0;
        let waiting = self.sq.next_waiting()?;
        let op = waiting.request.op;
        let may_be_done = may_read || matches!(op, SendOp::Write { .. });
        (op.is_one_sided() && may_be_done).then_some(waiting)
    }

    /// True if a request waits to be sent.
    pub const fn has_waiting(&self) -> bool {
        !self.sq.has_none_waiting()
    }

    /// True if this is still the first request that waits, and all before it have completed.
    /// [`Self::was_done`] then takes it for carried out.
    pub fn may_be_done_next(&self, number: u64) -> bool {
        matches!((self.state, self.stream), (QpState::Rts, Stream::Operating))
            && self.sq.next_number_is(number)
    }

    /// The request that [may be done](Self::may_be_done_next) was carried out, and completes.
    pub fn was_done(&mut self, number: u64) {
        self.sq.carried_out(number);
        self.reap();
    }

    /// No request is started until this is undone, as long as the queue pair operates: its owner is
    /// going to carry them out.
    pub const fn hold_requests(&mut self, hold: bool) {
        self.outbound.holds_requests = hold;
    }

    /// The peer has taken in all octets before `position` of the stream, and is going to say more
    /// of that without being asked: no acknowledgement is asked for any more.
    pub fn peer_has(&mut self, position: u64) {
        let before = self.outbound.peer_has.replace(position);
        if before != Some(position) {
            self.sq.acknowledged_before(position);
            self.reap();
        }
    }

    /// True if requests were sent that complete when the peer has taken them in.
    pub const fn awaits_acknowledgement(&self) -> bool {
        self.sq.awaits_acknowledgement()
    }

    /// Posts a receive work request.
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.config.shared_receive {
            return Err(PostError::SharedReceiveQueue);
        }
        if !self.state.takes_receives() {
            return Err(PostError::WrongState);
        }
        self.reserve_events(1)?;
        self.rq.post(request)?;
        if self.state == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    /// Makes room for what all requests, `more` than there are, and the end of the stream can
    /// report at once: an event that comes is never in want of memory.
    #[inline]
    pub(crate) fn reserve_events(&mut self, more: usize) -> Result<(), PostError> {
        let most = self.sq.len() + self.rq.len() + more + OTHER_EVENTS;
        if self.events.capacity() < most { self.grow_events(most) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn grow_events(&mut self, most: usize) -> Result<(), PostError> {
        Ok(self.events.try_reserve(most - self.events.len())?)
    }

    /// The next completion or event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            // The next one goes to the first place, and not through all the room there is, most of
            // which the CPU's cache would not hold.
            self.events.clear();
        }
        event
    }

    /// True if [`Self::poll_event`] has something.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// True if [`Self::poll_timeout`] may have something.
    #[inline]
    pub fn may_want_time(&self) -> bool {
        self.sq.waits_for_peer_kind()
            || (self.silence.is_some() && !self.inbound.first_seen())
            || self.inbound.waits()
            || self.stream == Stream::Outlived
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let deadline = self.deadline.filter(|_| self.sq.waits_for_peer_kind());
        let outlived =
            (self.stream == Stream::Outlived).then(|| self.outlived_until.unwrap_or_default());
        [deadline, self.silence(), self.wait_ends(), outlived].into_iter().flatten().min()
    }

    /// When something is to be done about the peer's silence, if there is anything to do.
    fn silence(&self) -> Option<Time> {
        let matters = match self.role {
            Role::Initiator => true,
            Role::Responder => !self.sq.has_none_waiting(),
        };
        self.silence.filter(|_| matters && self.is_connected() && !self.inbound.first_seen())
    }

    /// Tells the time.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            self.peer.give_up();
        }
        if self.silence().is_some_and(|at| now >= at) {
            self.silence = None;
            match self.role {
                Role::Initiator => self.outbound.nudge(),
                Role::Responder => self.events.push_back(Event::HeldBack),
            }
        }
        if self.inbound.waits() {
            self.judge_wait(now);
        }
        if self.stream == Stream::Outlived {
            let outlive = self.outlive.unwrap_or_default();
            if now >= *self.outlived_until.get_or_insert(now.plus(outlive)) {
                self.retries_exceeded();
                self.end_stream();
            }
        }
    }

    /// True if the peer has closed the stream, and work requests outlive it.
    pub const fn is_outlived(&self) -> bool {
        matches!(self.stream, Stream::Outlived)
    }

    /// Messages of the peer's that have come whole since the connection began: Writes, and what
    /// completed a receive. Answers and acknowledgements to this side's own do not count.
    pub const fn arrivals(&self) -> u64 {
        self.inbound.arrived
    }

    /// True if messages wait for a receive: the thread that posts one sees to it that they get it.
    pub fn has_parked(&self) -> bool {
        self.receives() && self.inbound.has_parked()
    }

    /// True if nothing more is to be read from the stream until a receive is there.
    pub fn is_stalled(&self) -> bool {
        self.receives() && self.inbound.is_stalled()
    }

    /// True if octets that arrive are still looked at.
    pub(crate) const fn receives(&self) -> bool {
        matches!(self.stream, Stream::Operating)
    }

    /// The sink STag for a Read: names nothing in the STag table, so the peer can use it for
    /// nothing but the response, which is matched against the outbound read queue. Its index has
    /// the top bit set, which the table never hands out.
    pub(crate) const fn sink_stag(serial: u32) -> Stag {
        Stag(0x8000_0000 | (serial & 0x7fff_ffff))
    }
}
