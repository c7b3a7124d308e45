// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deciding what is sent next.

mod count;
mod plain;
mod start;

use alloc::vec::Vec;

use iwarp_types::{
    AccessError, AtomicOp, Bind, Extensions, HeldBy, QpState, SendOp, Sge, Stag, Standing,
    TaggedOffset, Wanted, WcStatus,
};

use crate::ddp::tx::{Message, Run};
use crate::ddp::wire::Header;
use crate::mpa::startup::{Role, Rtr};
use crate::qp::local::Unsaid;
pub(crate) use crate::qp::outbound::plain::ShortFraming;
use crate::qp::outbound::plain::request_body;
use crate::qp::{Qp, Stream, Taken, Terms};
use crate::rdmap::hello::{self, Capabilities, PeerKind, WRITE_MARK};
use crate::rdmap::reads::{Asked, Awaits, Purpose};
use crate::rdmap::terminate::Fault;
use crate::rdmap::tx;
use crate::rdmap::wire::{
    ATOMIC_RESPONSE_LEN, AtomicResponse, Opcode, ReadRequest, TERMINATE_MAX_LEN, Terminate,
    TerminatedSegment,
};
use crate::types::Msn;

/// The next step of the transmitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// No frame to send now.
    Idle,
    /// Frame these segments, then report to [`Qp::framed`] or [`Qp::gather_failed`].
    Segments(Segments),
    /// Perform this atomic operation, then report to [`Qp::atomic_done`].
    Atomic { stag: Stag, to: TaggedOffset, op: AtomicOp },
    /// Bind this window, then report to [`Qp::local_done`].
    Bind(Bind),
    /// Invalidate this STag, then report to [`Qp::local_done`].
    Invalidate(Stag),
}

/// Consecutive segments of one message to be framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segments {
    pub(crate) run: Run,
    pub(crate) body: Body,
    /// They end a Send or Write, and nothing stands behind that: [`Qp::framed`] need not be told
    /// before the stream has taken them.
    pub(crate) last: bool,
}

/// The source of the octets behind the DDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// From [`Scratch::octets`].
    Octets,
    /// From [`Scratch::sges`].
    Local,
    /// From the tagged buffer that the peer reads.
    Remote(Stag, TaggedOffset),
}

/// Storage that decisions hand their lists over in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) octets: Vec<u8>,
    pub(crate) sges: Vec<Sge>,
}

/// The message whose segments are being sent. Segments of two messages are never mixed.
#[derive(Clone, Copy, Debug)]
struct Current {
    message: Message,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A Send or Write of this work request: done when its octets are taken.
    Request(u64),
    /// The Write of this work request, which its Immediate Data follows.
    Prelude(u64),
    /// The Immediate Data of this work request.
    Immediate(u64),
    /// A Read or Atomic Request of this work request: done when it is answered.
    Asking,
    /// The answer to the oldest request of the peer's.
    ReadResponse(Stag, TaggedOffset),
    AtomicResponse,
    /// RTR or hello frame, the count of repetitions, a nudge, the Read that asks for an
    /// acknowledgement, the count of messages received, the farewell.
    Own,
    Terminate,
}

bitflags::bitflags! {
    /// Frames of our own that are to be sent, of those that say nothing of their own.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    struct Due: u8 {
        /// An empty Write.
        const NUDGE = 1;
        /// The number of messages that were received.
        const COUNT = 1 << 1;
    }
}

/// Sending side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    rtr: Option<Rtr>,
    greet: bool,
    due: Due,
    /// Messages that the peer knows to be received, Writes of nothing included.
    told: u64,
    /// The number of times that a message that finds no receive is sent again: to be said.
    rnr_retry: Option<u8>,
    /// The way past TCP that is to be offered.
    pub(crate) offer: Unsaid,
    /// The position of the stream up to which the peer has taken it in, where it says so unasked.
    pub(crate) peer_has: Option<u64>,
    /// The reason for which the stream stays with TCP, which the peer is to learn.
    pub(crate) decline: Option<u64>,
    /// The number that the last frame is to say: messages that were received.
    farewell: Option<u64>,
    peer_to_peer: bool,
    current: Option<Current>,
    control: ControlOctets,
    terminate: Option<Terminate>,
    send_msn: MsnCounter,
    atomic_msn: MsnCounter,
    /// The message that was built last was a Write other than the hello frame.
    wrote: bool,
    /// Requests and answers take turns.
    answer_next: bool,
    /// A Read whose local STag is being invalidated.
    pub(crate) invalidating: Option<u64>,
    /// The local operation that the transmitter performs.
    performing: Option<u64>,
    /// No request is started: see [`Qp::hold_requests`].
    pub(crate) holds_requests: bool,
}

#[derive(Debug)]
struct MsnCounter(Msn);

impl Default for MsnCounter {
    fn default() -> Self {
        Self(Msn::FIRST)
    }
}

impl MsnCounter {
    fn take(&mut self) -> Msn {
        let msn = self.0;
        self.0 = msn.next();
        msn
    }
}

/// The octets of a message that is only a header.
#[derive(Debug)]
struct ControlOctets {
    octets: [u8; TERMINATE_MAX_LEN],
    len: usize,
}

impl Default for ControlOctets {
    fn default() -> Self {
        Self { octets: [0; TERMINATE_MAX_LEN], len: 0 }
    }
}

impl ControlOctets {
    fn set(&mut self, octets: &[u8]) -> u32 {
        self.octets[..octets.len()].copy_from_slice(octets);
        self.len = octets.len();
        self.len as u32
    }
}

impl Outbound {
    pub(crate) fn new(terms: &Terms) -> Self {
        Self {
            rtr: terms.rtr.filter(|_| terms.role == Role::Initiator),
            greet: true,
            peer_to_peer: terms.peer_to_peer,
            ..Self::default()
        }
    }

    pub(crate) const fn pending_rtr(&self) -> Option<Rtr> {
        self.rtr
    }

    pub(crate) const fn peer_to_peer(&self) -> bool {
        self.peer_to_peer
    }

    /// True if a frame waits that no work request asks for.
    #[inline]
    const fn has_own(&self) -> bool {
        self.rtr.is_some()
            || !self.due.is_empty()
            || self.rnr_retry.is_some()
            || self.offer.is_due()
            || self.decline.is_some()
    }

    /// Sends an empty Write with the next octets.
    pub(crate) fn nudge(&mut self) {
        self.due.insert(Due::NUDGE);
    }

    /// Says with the next octets how often a message that finds no receive is sent again.
    pub(crate) const fn say_rnr_retry(&mut self, count: u8) {
        self.rnr_retry = Some(count);
    }

    /// No message is half sent.
    pub(crate) const fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// The last frame says that so many messages were received.
    pub(crate) fn say_farewell(&mut self, received: u64) {
        self.farewell = Some(received);
        self.due.remove(Due::COUNT);
    }

    /// True if the farewell is still to be sent.
    pub(crate) const fn owes_farewell(&self) -> bool {
        self.farewell.is_some()
    }

    /// Stops answering the peer, on a segment border.
    pub(crate) fn drop_answer(&mut self) {
        self.current.take_if(|current| {
            matches!(current.kind, Kind::ReadResponse(..) | Kind::AtomicResponse)
        });
    }

    /// Queues the Terminate; what was half sent stays so (draft-hilland §6.4: the Terminate
    /// goes out behind the last whole segment).
    pub(crate) fn terminate(&mut self, fault: &Fault, segment: Option<TerminatedSegment>) {
        self.stop();
        self.terminate = Some(Terminate { code: fault.code(), segment });
    }

    /// Stops sending.
    pub(crate) fn stop(&mut self) {
        self.current = None;
        self.performing = None;
        self.terminate = None;
        self.farewell = None;
        self.rnr_retry = None;
        self.offer = Unsaid::default();
        self.due.remove(Due::COUNT);
        self.decline = None;
    }
}

impl Qp {
    /// True if [`Transmitter::transmit`](super::Transmitter::transmit) has something to do.
    #[inline(always)]
    pub fn wants_transmit(&mut self) -> bool {
        self.wanted() != Wanted::Nothing
    }

    /// The work for [`Transmitter::transmit`](super::Transmitter::transmit).
    #[inline(always)]
    pub fn wanted(&mut self) -> Wanted {
        if self.outbound.terminate.is_some() {
            return Wanted::Much;
        }
        if !matches!(self.stream, Stream::Operating | Stream::Closing) || self.gated() {
            return Wanted::Nothing;
        }
        if self.outbound.current.is_some() || self.outbound.has_own() || self.wants_greeting() {
            return Wanted::Much;
        }
        let (answers, starts) = (self.may_answer(), !self.sq.has_none_waiting());
        if (starts && self.may_start_send())
            || self.may_acknowledge(false)
            || self.outbound.owes_farewell()
        {
            return Wanted::Much;
        }
        match (answers, self.irq.only_asks_whether_it_arrived()) {
            (false, _) => Wanted::Nothing,
            (true, true) if self.stream == Stream::Operating => Wanted::Acknowledgement,
            (true, _) => Wanted::Much,
        }
    }

    /// A responder sends nothing before the first FPDU of the initiator was validated
    /// (RFC 5044 §7.1.2(4)).
    pub(crate) const fn gated(&self) -> bool {
        matches!(self.role, Role::Responder) && !self.inbound.first_seen()
    }

    const fn wants_greeting(&self) -> bool {
        self.outbound.greet
            && matches!(self.config.extensions, Extensions::Ask)
            && matches!(self.stream, Stream::Operating)
    }

    /// Decides what is sent next, in at most `most` segments of at most `mulpdu` octets.
    #[cfg(test)]
    pub(crate) fn next(&mut self, mulpdu: usize, most: u32, scratch: &mut Scratch) -> Next {
        let mut next = Next::Idle;
        let frames_nothing = |_: &Header, _: (Body, u32), _: &Scratch| unreachable!();
        self.next_or_frame((mulpdu, most, None), scratch, &mut next, frames_nothing);
        next
    }

    /// Decides what is next where no Send or Write just begins.
    #[inline(never)]
    fn next_of_rare(&mut self, mulpdu: usize, most: u32, scratch: &mut Scratch) -> Next {
        if self.outbound.terminate.is_some() {
            self.start_terminate();
        } else if !matches!(self.stream, Stream::Operating | Stream::Closing) || self.gated() {
            return Next::Idle;
        }
        if self.outbound.current.is_none()
            && let Some(next) = self.start_message()
        {
            // A request that cannot be carried out has ended the stream.
            let ended = self.outbound.terminate.is_some();
            return if ended { self.next_of_rare(mulpdu, most, scratch) } else { next };
        }
        self.segments(mulpdu, most, scratch)
    }

    #[cold]
    fn start_terminate(&mut self) {
        let Some(terminate) = self.outbound.terminate.take() else { return };
        let mut octets = [0; TERMINATE_MAX_LEN];
        let len = terminate.emit(&mut octets);
        self.start_control(Opcode::Terminate, Msn::FIRST, &octets[..len], Kind::Terminate);
    }

    /// Starts the next message. Returns what must be done instead of sending one.
    fn start_message(&mut self) -> Option<Next> {
        if self.outbound.rtr.is_some() {
            self.start_rtr();
            return None;
        }
        if self.wants_greeting() {
            self.start_hello();
            return None;
        }
        if let Some(count) = self.outbound.rnr_retry.take() {
            let (stag, to) = hello::encode_rnr_retry(count);
            self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
            return None;
        }
        if let Some(half) = self.outbound.offer.take() {
            let (stag, to) = half.encode();
            self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
            return None;
        }
        if let Some(reason) = self.outbound.decline.take() {
            let (stag, to) = hello::encode_decline(reason);
            self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
            return None;
        }
        if self.outbound.due.contains(Due::NUDGE) {
            self.outbound.due.remove(Due::NUDGE);
            self.start_tagged(Opcode::Write, Stag(0), TaggedOffset(0), 0, Kind::Own);
            return None;
        }
        if self.outbound.due.contains(Due::COUNT) {
            self.start_count();
            return None;
        }
        // A message that was received is acknowledged before the program's reply to it is sent:
        // programs for InfiniBand expect their Send to complete before they hear of it.
        let answer_first = core::mem::replace(&mut self.outbound.answer_next, false)
            || self.irq.begins_with_an_empty_one();
        if answer_first && self.may_answer() {
            return self.start_answer();
        }
        self.outbound.answer_next = true;
        match self.start_request() {
            Some(Next::Idle) if self.may_answer() => self.start_answer(),
            Some(Next::Idle) if self.outbound.owes_farewell() => self.start_farewell(),
            other => other,
        }
    }

    /// The last frame of a stream that this side closes. An end that has not sent its hello frame
    /// yet sends that first.
    #[cold]
    fn start_farewell(&mut self) -> Option<Next> {
        if self.outbound.greet {
            self.start_hello();
            return None;
        }
        let received = self.outbound.farewell.take()?;
        let (stag, to) = hello::encode_farewell(received);
        self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
        None
    }

    /// The frame that tells the responder of a peer-to-peer connection to start (RFC 6581 §9.2).
    #[cold]
    fn start_rtr(&mut self) {
        let Some(rtr) = self.outbound.rtr.take() else { return };
        match rtr {
            Rtr::Send => {
                let msn = self.outbound.send_msn.take();
                self.sq.count_own_message();
                self.start_control(Opcode::Send, msn, &[], Kind::Own);
            }
            // The greeting is a zero-length Write anyway.
            Rtr::Write => {
                let (stag, to) = if self.wants_greeting() {
                    self.outbound.greet = false;
                    self.hello()
                } else {
                    (Stag(0), TaggedOffset(0))
                };
                self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
            }
            Rtr::Read => self.start_empty_read(Purpose::Rtr),
        }
    }

    /// STag and TO of the hello frame. An end that awaits acknowledgements wants a farewell too.
    fn hello(&self) -> (Stag, TaggedOffset) {
        let asks =
            if self.config.acknowledge { Capabilities::FAREWELL } else { Capabilities::empty() };
        hello::encode(Capabilities::OURS.union(self.config.tells).union(asks))
    }

    fn start_hello(&mut self) {
        self.outbound.greet = false;
        let (stag, to) = self.hello();
        self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
    }

    /// A Read of nothing, whose STag and offset the peer may not look at (RFC 5040 §5.2.1).
    fn start_empty_read(&mut self, purpose: Purpose) {
        let sink_stag = Self::sink_stag(self.orq.next_serial());
        let sink_to = TaggedOffset(0);
        let awaits = Awaits::Read { sink_stag, sink_to, size: 0, received: 0 };
        let msn = self.orq.push(purpose, awaits);
        let (source_stag, source_to) = (Stag(0), TaggedOffset(0));
        let request = ReadRequest { sink_stag, sink_to, size: 0, source_stag, source_to };
        self.start_control(Opcode::ReadRequest, msn, &request.octets(), Kind::Own);
    }

    /// True if the peer is to be asked now for an acknowledgement. As long as there is `more` to
    /// send it is not, unless the acknowledgement is pressing.
    #[inline]
    fn may_acknowledge(&mut self, more: bool) -> bool {
        if self.stream != Stream::Operating
            || self.outbound.peer_has.is_some()
            || !self.sq.wants_acknowledgement()
            || !self.orq.may_acknowledge()
        {
            return false;
        }
        let next = if more { self.sq.next_unstarted().map(|(_, wqe)| wqe.length) } else { None };
        next.is_none_or(|length| self.sq.acknowledgement_is_pressing(length))
    }

    fn start_tagged(&mut self, opcode: Opcode, stag: Stag, to: TaggedOffset, len: u32, kind: Kind) {
        let message = tx::tagged(opcode, stag, to, len);
        self.outbound.current = Some(Current { message, kind });
    }

    fn start_control(&mut self, opcode: Opcode, msn: Msn, octets: &[u8], kind: Kind) {
        let len = self.outbound.control.set(octets);
        let message = tx::untagged(opcode, msn, Stag(0), len);
        self.outbound.current = Some(Current { message, kind });
    }

    /// The state of the send queue, for people.
    pub(crate) fn standing(&mut self) -> Standing {
        let (ended, octets) = (self.sq.ended(), self.sq.octets());
        let oldest = self.sq.oldest_standing();
        let may_start = self.may_start_send();
        let operates = matches!(self.state, QpState::Rtr | QpState::Rts);
        let operates = operates && self.stream == Stream::Operating;
        let held = match self.sq.next_unstarted() {
            None => None,
            Some(_) if !operates => Some(HeldBy::State),
            Some(_) if may_start => Some(HeldBy::Turn),
            Some((_, wqe)) if wqe.fenced() && self.orq.has_requests() => Some(HeldBy::Fence),
            Some((_, wqe)) if wqe.op.awaits_answer() && self.orq.is_full() => {
                Some(HeldBy::ReadDepth)
            }
            Some(_) => Some(HeldBy::Turn),
        };
        Standing { ended, octets, oldest, held }
    }

    /// True if the first waiting send request could be started now.
    fn may_start_send(&mut self) -> bool {
        if !matches!(
            (self.state, self.stream),
            (QpState::Rtr | QpState::Rts, Stream::Operating) | (_, Stream::Closing)
        ) {
            return false;
        }
        if self.stream == Stream::Closing {
            return self.may_start_closing();
        }
        if self.outbound.holds_requests {
            return false;
        }
        let octets_wait = self.sq.waits_for_stream();
        let Some((_, wqe)) = self.sq.next_unstarted() else { return false };
        if wqe.fenced() && self.orq.has_requests() {
            return false;
        }
        // Octets that earlier requests send may still lie in the memory that this one takes away.
        if matches!(wqe.op, SendOp::LocalInvalidate(_)) && octets_wait {
            return false;
        }
        if self.peer == PeerKind::Unknown && wqe.op.extension().is_some() {
            return false;
        }
        !wqe.op.awaits_answer() || !self.orq.is_full() || self.orq.depth() == 0
    }

    /// True if the first waiting send request still goes out on a closing stream: it needs no
    /// answer, nor that of an earlier one, as nothing comes in any more.
    pub(crate) fn may_start_closing(&mut self) -> bool {
        let (gated, reads_pending) = (self.gated(), self.orq.has_requests());
        let Some((_, wqe)) = self.sq.next_unstarted() else { return false };
        let (op, fenced) = (wqe.op, wqe.fenced());
        !gated
            && op.is_one_way()
            && !(fenced && reads_pending)
            && (op.extension().is_none() || self.peer != PeerKind::Unknown)
    }

    /// Starts the first waiting send request; [`Next::Idle`] when none may start.
    fn start_request(&mut self) -> Option<Next> {
        loop {
            let startable = self.may_start_send();
            self.note_waiting_for_kind();
            if self.may_acknowledge(startable) {
                let below = self.sq.next_number();
                self.sq.cover(below);
                self.start_empty_read(Purpose::Acknowledgement(below));
                return None;
            }
            if !startable {
                self.finish_closing();
                return Some(Next::Idle);
            }
            let (number, wqe) = self.sq.next_unstarted()?;
            let (op, length) = (wqe.op, wqe.length);
            if self.needs_hello_before(&op) {
                self.start_hello();
                return None;
            }
            self.sq.start();
            if op.extension().is_some_and(|needed| !self.peer.has(needed.into())) {
                // The peer would end the stream over it: only this request fails.
                self.sq.fail(number, WcStatus::RemoteInvalidRequest);
                self.reap();
                continue;
            }
            if op.awaits_answer() && self.orq.depth() == 0 {
                self.fail_send(number, WcStatus::LocalQpOperation, "Read with an ORD of zero");
                return Some(Next::Idle);
            }
            if !op.may_have(length) {
                self.fail_send(number, WcStatus::LocalLength, "Atomic of other than 8 octets");
                return Some(Next::Idle);
            }
            return self.start_op(number, &op, length);
        }
    }

    /// True if the peer would misunderstand the request without a hello frame in front of it: the
    /// halves of a Write with immediate data, which a stream that was closed early brings before
    /// any; or Immediate Data that looks like that of the Write in front of it.
    fn needs_hello_before(&self, op: &SendOp) -> bool {
        self.peer.has(Capabilities::WRITE_IMMEDIATE)
            && match op {
                SendOp::WriteImmediate { .. } => self.outbound.greet,
                SendOp::Immediate { data, .. } => self.outbound.wrote && data[4..] == WRITE_MARK,
                _ => false,
            }
    }

    fn note_waiting_for_kind(&mut self) {
        let waits = self.peer == PeerKind::Unknown
            && self.sq.next_unstarted().is_some_and(|(_, wqe)| wqe.op.extension().is_some());
        self.sq.set_waits_for_peer_kind(waits);
    }

    /// True if the oldest request of the peer's may be answered. The peer takes the answer for word
    /// that what it sent before was received, so parked messages are to be delivered first.
    pub(crate) fn may_answer(&self) -> bool {
        self.irq.is_due(self.inbound.late_delivered())
    }

    /// Starts the answer to the oldest request of the peer's: in their order, each only when
    /// the one before is built (RFC 5040 §5.5(20), RFC 7306 §7).
    fn start_answer(&mut self) -> Option<Next> {
        match self.irq.front()?.0 {
            Asked::Read(request) => {
                let kind = Kind::ReadResponse(request.source_stag, request.source_to);
                let (stag, to) = (request.sink_stag, request.sink_to);
                self.start_tagged(Opcode::ReadResponse, stag, to, request.size, kind);
                None
            }
            Asked::Atomic { stag, to, op, .. } => Some(Next::Atomic { stag, to, op }),
        }
    }

    /// The atomic operation was performed: its answer carries what was there before.
    pub(crate) fn atomic_done(&mut self, result: Result<u64, AccessError>) {
        let Some(&(Asked::Atomic { request_id, .. }, header)) = self.irq.front() else { return };
        match result {
            Ok(original) => {
                let response = AtomicResponse { request_id, original };
                debug_assert_eq!(response.octets().len(), ATOMIC_RESPONSE_LEN);
                let msn = self.outbound.atomic_msn.take();
                let octets = response.octets();
                self.start_control(Opcode::AtomicResponse, msn, &octets, Kind::AtomicResponse);
            }
            Err(error) => {
                self.note_unanswered(error);
                self.inbound.remember_atomic(&header);
                self.fail(Fault::of_asked(error));
            }
        }
    }

    /// A bind or local invalidation was performed.
    pub(crate) fn local_done(&mut self, result: Result<(), AccessError>) {
        let Some(number) = self.outbound.performing.take() else { return };
        match result {
            Ok(()) => {
                self.sq.complete(number);
                self.reap();
            }
            // InfiniBand's "memory management operation error", for both.
            Err(_) => self.fail_send(number, WcStatus::WindowBind, "memory operation refused"),
        }
    }

    /// The next segments of the current message.
    fn segments(&mut self, mulpdu: usize, most: u32, scratch: &mut Scratch) -> Next {
        let Some(current) = &mut self.outbound.current else { return Next::Idle };
        let Some(run) = current.message.next_run(mulpdu, most) else { return Next::Idle };
        let (offset, len) = (run.offset, run.len as usize);
        let body = match current.kind {
            Kind::ReadResponse(stag, to) => Body::Remote(stag, to.advanced(u64::from(offset))),
            Kind::Request(number) | Kind::Prelude(number) => {
                request_body(self.sq.at(number), &run, scratch)
            }
            Kind::Immediate(_)
            | Kind::Asking
            | Kind::AtomicResponse
            | Kind::Own
            | Kind::Terminate => {
                scratch.octets.clear();
                scratch.octets.extend_from_slice(&self.outbound.control.octets[..len]);
                Body::Octets
            }
        };
        let ends = matches!(current.kind, Kind::Request(_)) && current.message.is_done();
        let last = ends && self.nothing_follows();
        Next::Segments(Segments { run, body, last })
    }

    /// The segments for which [`Next::Segments`] asked were framed; the stream's octets now end at
    /// `position`.
    #[inline]
    pub(crate) fn framed(&mut self, position: u64) {
        let Some(current) = &self.outbound.current else { return };
        if !current.message.is_done() {
            return;
        }
        let Kind::Request(number) = current.kind else { return self.framed_rare(position) };
        self.outbound.wrote = is_write(&current.message);
        self.outbound.current = None;
        self.sq.built(number, position);
    }

    /// Notes that a whole message was framed that is neither Send nor Write.
    #[inline(never)]
    fn framed_rare(&mut self, position: u64) {
        let Some(current) = &self.outbound.current else { return };
        let kind = current.kind;
        self.outbound.wrote = is_write(&current.message);
        self.outbound.current = None;
        match kind {
            Kind::Request(number) | Kind::Immediate(number) => self.sq.built(number, position),
            Kind::Prelude(number) => {
                self.sq.built_prelude(number);
                self.start_second_half(number);
            }
            Kind::ReadResponse(..) | Kind::AtomicResponse => self.note_answered(),
            Kind::Asking | Kind::Own => {}
            Kind::Terminate => self.terminate_built(),
        }
    }

    /// Of what [`Next::Segments`] asked for, those with the first `framed` payload octets were
    /// framed. The octets of the next one may not be read.
    pub(crate) fn gather_failed(&mut self, framed: u32, error: AccessError) {
        let Some(current) = self.outbound.current.take() else { return };
        match current.kind {
            Kind::Request(number) | Kind::Prelude(number) => {
                self.refusal = Some(self.sq.at(number).refused_here(error));
                let fault = Fault::of_own(error, "source refused");
                self.fail_send_by(number, WcStatus::LocalProtection, fault);
            }
            Kind::ReadResponse(..) => {
                self.note_unanswered(error);
                // The part of this response that was built went out whole; the failed segment did
                // not.
                if let Some(&(Asked::Read(request), header)) = self.irq.front() {
                    let sent = u64::from(current.message.sent_before_last_run() + framed);
                    let left = ReadRequest {
                        sink_to: request.sink_to.advanced(sent),
                        size: request.size - sent as u32,
                        source_to: request.source_to.advanced(sent),
                        ..request
                    };
                    self.inbound.remember_read(&header, &left);
                }
                self.fail(Fault::of_asked(error));
            }
            Kind::Immediate(_)
            | Kind::Asking
            | Kind::AtomicResponse
            | Kind::Own
            | Kind::Terminate => {}
        }
    }

    /// The octet at `position` of the stream cannot be read from its source any more.
    pub(crate) fn source_lost(&mut self, position: u64, remote: bool, error: AccessError) {
        if remote {
            self.fail(Fault::of_asked(error));
        } else {
            if let Some(number) = self.sq.find_built(position) {
                self.refusal = Some(self.sq.at(number).refused_here(error));
                self.sq.fail(number, WcStatus::LocalProtection);
            }
            self.fail(Fault::of_own(error, "memory lost its registration while it was sent"));
        }
        self.abort();
    }

    /// MSN that the next message of queue 0 gets, for tests that start near a wrap.
    #[cfg(test)]
    pub(crate) fn start_sends_at(&mut self, msn: Msn) {
        self.outbound.send_msn = MsnCounter(msn);
    }

    /// The stream took all octets up to `position`. `framed`: what [`Self::framed`] was not told.
    pub(crate) fn taken(&mut self, framed: Option<u64>, position: u64) -> Taken {
        if let Some(position) = framed {
            self.framed(position);
        }
        let Self { sq, events, config, .. } = self;
        while sq.pop_taken(position, config.qp, |event| events.push_back(event)) {}
        if !self.sq.is_empty() {
            self.sq.taken(position);
            if let Some(position) = self.outbound.peer_has {
                // It may have said so before this end knew that they were taken.
                self.sq.acknowledged_before(position);
            }
            self.reap();
        } else if self.state == QpState::Sqd {
            self.report_drained();
        }
        match self.stream {
            Stream::Closing => self.finish_closing(),
            Stream::Outlived => self.credit_farewell(),
            _ => {}
        }
        let (disposition, connected) = (self.disposition(), self.is_connected());
        let awaited = self.sq.awaits_acknowledgement();
        Taken { more: self.wants_transmit(), awaited, disposition, connected }
    }
}

/// True if a message is a Write in which the peer may see the first half of one with immediate
/// data: any but a frame of our own.
fn is_write(message: &Message) -> bool {
    matches!(message.header(), Header::Tagged(h)
        if h.rsvd_ulp == Opcode::Write.control()
            && (message.sent() > 0 || !hello::is_own(h.stag, h.to)))
}
