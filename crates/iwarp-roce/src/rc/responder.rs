// SPDX-License-Identifier: MIT OR Apache-2.0

//! The responder: takes the peer's requests in the order of their PSNs, and executes them.

use iwarp_types::{
    AccessError, AtomicOp, Event, Invalidator, MAX_MESSAGE, Memory, Reason, Receive, ReceivePool,
    RefusedBy, RemoteAccess, Stag, Time, WcOp, WcStatus, WorkCompletion, ended_receive,
};

use super::{Rc, reasons, replies};
use crate::config::Attributes;
use crate::payload::place;
use crate::wire::{
    AtomicEth, AtomicKind, Message, NakCode, Packet, Position, Psn, Reth, SendTail, Syndrome,
};

/// The progress of the requests.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The expected PSN (ROCE-075).
    expected: Psn,
    /// PSN of the last packet of a Send or Write that was executed.
    pub(super) last: Psn,
    /// Requests completed: the MSN, modulo 2^24 (ROCE-085).
    pub(super) msn: u32,
    /// Set once a NAK has asked for the expected packet.
    has_asked: bool,
    pub(super) inside: Inside,
    /// The receive that a message goes to, while `is_open`.
    pub(super) receive: Receive,
    is_open: bool,
    /// PSN of the packet that found no receive, and the time at which it first did.
    not_ready: Option<(Psn, Time)>,
    /// Set once the owner was told that a message lacks a receive.
    told_no_receive: bool,
}

/// The message whose first packet has come, and not yet the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Inside {
    #[default]
    Nothing,
    /// A Send of which so many octets have come.
    Send(u64),
    /// A Write, of which so many octets have come.
    Write(Reth, u32),
}

/// The fault of a request, and the end of the receive that it hits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    code: NakCode,
    receive: WcStatus,
    /// Set if the peer is told by a NAK.
    is_told: bool,
    /// The reason that this end gives.
    reason: Reason,
    /// For a refused access to memory: whether memory or the peer's rights refused it.
    pub(super) access: Option<RefusedBy>,
}

impl Refusal {
    const INVALID: Self = Self::new(NakCode::InvalidRequest, WcStatus::RemoteInvalidRequest);
    const TOO_LONG: Self = Self::new(NakCode::InvalidRequest, WcStatus::LocalLength);
    const FORBIDDEN: Self = Self { access: Some(RefusedBy::QueuePair), ..Self::INVALID };
    /// An STag that a Send should invalidate cannot be (ROCE-102): an error of class J, which has
    /// no NAK (IBA vol. 1, 9.9.6.3).
    const INVALIDATE: Self = Self { is_told: false, ..Self::INVALID };

    const fn new(code: NakCode, receive: WcStatus) -> Self {
        Self { code, receive, is_told: true, reason: reasons::of_nak(code), access: None }
    }

    /// A packet of so many octets does not fit this end's path MTU.
    #[cold]
    const fn of_mtu(own: usize, peers: usize) -> Self {
        Self { reason: reasons::request_of_mtu(own, peers), ..Self::INVALID }
    }

    /// For a refused access to memory that the peer named (ROCE-092).
    const fn of(error: AccessError) -> Self {
        let refusal = match error {
            AccessError::BadAddress(_) => {
                Self::new(NakCode::RemoteOperation, WcStatus::RemoteOperation)
            }
            AccessError::Unaligned => Self::INVALID,
            // The receive of a Write with Immediate: a local access error of this end's.
            _ => Self::new(NakCode::RemoteAccess, WcStatus::LocalAccess),
        };
        Self { access: Some(RefusedBy::Memory(error)), ..refusal }
    }

    /// For a refused access to a receive's memory (ROCE-098).
    const fn of_receive(error: AccessError) -> Self {
        let refusal = Self::new(NakCode::RemoteOperation, WcStatus::LocalProtection);
        Self { access: Some(RefusedBy::Memory(error)), ..refusal }
    }
}

/// The reason that a request is not executed.
enum Stop {
    /// It is wrong.
    Refused(Refusal),
    /// There is no receive.
    NotReady,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

const INVALID: Stop = Stop::Refused(Refusal::INVALID);

impl Responder {
    pub(super) fn new(attributes: &Attributes) -> Self {
        Self { expected: attributes.rq_psn, last: attributes.rq_psn.previous(), ..Self::default() }
    }

    const fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// Goes past a packet of a Send or Write.
    #[inline]
    fn pass(&mut self) {
        self.last = self.expected;
        self.expected = self.expected.plus(1);
    }
}

impl Rc {
    /// Takes a request.
    pub(super) fn take_request<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        now: Time,
        memory: &M,
        pool: &dyn ReceivePool,
    ) {
        let ahead = packet.header.bth.psn.ahead_of(self.responder.expected);
        if ahead != 0 {
            return if ahead > 0 { self.ask_for_expected() } else { self.repeat(packet) };
        }
        self.responder.has_asked = false;
        self.replies.forget_nak();
        let done = match packet.header.message {
            Message::Send { position, tail } => {
                self.take_send(packet, position, tail, memory, pool)
            }
            Message::WriteBegin { only, reth, immediate } => {
                self.begin_write(packet, only, reth, immediate, memory, pool)
            }
            Message::WriteMore { last, immediate } => {
                self.go_on_with_write(packet, last, immediate, memory, pool)
            }
            Message::ReadRequest(reth) => self.take_read(packet, reth, memory),
            Message::Atomic(eth) => self.take_atomic(packet, eth, memory),
            // The caller passes no answers.
            _ => Ok(false),
        };
        match done {
            Ok(one_way) if one_way && packet.header.bth.ack_req => {
                self.replies.acknowledge(self.responder.last);
            }
            Ok(_) => {}
            Err(Stop::NotReady) => self.is_not_ready(now),
            Err(Stop::Refused(refusal)) => {
                self.note_refused(packet, &refusal);
                self.refuse(refusal);
            }
        }
    }

    /// The expected packet finds no receive: the peer is to send it again later (ROCE-087). Packets
    /// behind it bring no NAK meanwhile (ROCE-088).
    #[cold]
    fn is_not_ready(&mut self, now: Time) {
        self.counters.send_rnr_err += 1;
        let responder = &mut self.responder;
        responder.has_asked = true;
        let psn = responder.expected;
        self.replies.refuse(psn, Syndrome::RnrNak(self.attributes.min_rnr_timer));
        let known = responder.not_ready.filter(|(which, _)| *which == psn);
        let (_, since) = *responder.not_ready.insert(known.unwrap_or((psn, now)));
        let is_long = |after| now >= since.plus(after);
        if !responder.told_no_receive && self.config.tell_no_receive.is_some_and(is_long) {
            responder.told_no_receive = true;
            self.events.push_back(Event::NoReceive);
        }
    }

    /// A packet is missing: sends one NAK (ROCE-076). An acknowledgement of the packets before it
    /// goes first: rxe heeds one NAK between two acknowledgements, and waits for its timeout after
    /// the next.
    fn ask_for_expected(&mut self) {
        self.counters.out_of_seq_request += 1;
        if !core::mem::replace(&mut self.responder.has_asked, true) {
            let psn = self.responder.expected;
            if self.responder.last == psn.previous() && psn != self.attributes.rq_psn {
                self.replies.acknowledge(self.responder.last);
            }
            self.replies.refuse(psn, Syndrome::Nak(NakCode::SequenceError));
        }
    }

    /// A packet has come before: answers it again (Send and Write: ROCE-077).
    fn repeat(&mut self, packet: &Packet<'_>) {
        self.counters.duplicate_request += 1;
        let (psn, mtu) = (packet.header.bth.psn, self.attributes.mtu.octets());
        match packet.header.message {
            Message::ReadRequest(reth) => self.replies.repeat_read(psn, reth, mtu),
            Message::Atomic(_) => self.replies.repeat_atomic(psn),
            // Not with the PSN of a Read or an Atomic: some requesters take that for its answer.
            _ => self.replies.acknowledge(self.responder.last),
        }
    }

    /// A request is wrong: nothing behind it is answered (ROCE-104).
    #[cold]
    fn refuse(&mut self, refusal: Refusal) {
        let psn = self.responder.expected;
        if refusal.is_told {
            self.replies.refuse(psn, Syndrome::Nak(refusal.code));
        }
        self.end_open_receive(refusal.receive);
        self.fail_as_responder(refusal.reason);
    }

    /// Ends the receive that is open, if one is.
    pub(super) fn end_open_receive(&mut self, status: WcStatus) {
        if core::mem::take(&mut self.responder.is_open) {
            let completion = ended_receive(self.responder.receive.wr_id, self.config.qp, status);
            self.events.push_back(Event::ReceiveCompleted(completion));
        }
    }

    /// Opens the next receive.
    #[inline]
    fn open_receive(&mut self, pool: &dyn ReceivePool) -> Result<(), Stop> {
        let Self { responder, rq, config, .. } = self;
        let receive = &mut responder.receive;
        let taken = if config.shared_receive { pool.take(receive) } else { rq.take(receive) };
        if !taken {
            return Err(Stop::NotReady);
        }
        responder.is_open = true;
        Ok(())
    }

    /// Completes the receive that is open.
    #[inline]
    fn complete_receive(
        &mut self,
        op: WcOp,
        octets: u32,
        immediate: Option<[u8; 4]>,
        invalidated: Option<Stag>,
        solicited: bool,
    ) {
        self.responder.is_open = false;
        let wr_id = self.responder.receive.wr_id;
        let mut completion = WorkCompletion::new(wr_id, self.config.qp, op, WcStatus::Success);
        completion.byte_len = octets;
        completion.immediate = immediate.map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
        completion.invalidated = invalidated;
        completion.solicited = solicited;
        self.events.push_back(Event::ReceiveCompleted(completion));
    }

    fn take_send<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        position: Position,
        tail: SendTail,
        memory: &M,
        pool: &dyn ReceivePool,
    ) -> Result<bool, Stop> {
        let before = match (self.responder.inside, position.begins()) {
            (Inside::Nothing, true) => 0,
            (Inside::Send(octets), false) => octets,
            _ => return Err(INVALID),
        };
        let length = packet.payload.len();
        self.check_packet_length(position, length)?;
        if position.begins() {
            self.open_receive(pool)?;
        }
        let after = before + length as u64;
        let who = self.accessor();
        let Self { responder, pieces, .. } = self;
        if after > responder.receive.capacity() {
            return Err(Refusal::TOO_LONG.into());
        }
        let receiver = self.config.receiver();
        place(&responder.receive.sges, before, packet.payload, pieces, receiver, memory)
            .map_err(Refusal::of_receive)?;
        if !position.ends() {
            responder.inside = Inside::Send(after);
            responder.pass();
            return Ok(true);
        }
        let (immediate, invalidated) = match tail {
            SendTail::Plain => (None, None),
            SendTail::Immediate(data) => (Some(data), None),
            SendTail::Invalidate(stag) => {
                memory
                    .invalidate(who, stag, Invalidator::Remote)
                    .map_err(|_| Refusal::INVALIDATE)?;
                (None, Some(stag))
            }
        };
        responder.inside = Inside::Nothing;
        responder.pass();
        responder.count_message();
        self.arrivals += 1;
        let solicited = packet.header.bth.solicited;
        self.complete_receive(WcOp::Recv, after as u32, immediate, invalidated, solicited);
        Ok(true)
    }

    /// Packets of a message but its last are as long as the path MTU, and none is longer
    /// (ROCE-035).
    #[inline]
    const fn check_packet_length(&self, position: Position, length: usize) -> Result<(), Stop> {
        let mtu = self.attributes.mtu.octets();
        let fits = match position {
            Position::First | Position::Middle => length == mtu,
            Position::Last => 0 < length && length <= mtu,
            Position::Only => length <= mtu,
        };
        match position {
            _ if fits => Ok(()),
            Position::Last if length == 0 => Err(INVALID),
            _ => Err(Stop::Refused(Refusal::of_mtu(mtu, length))),
        }
    }

    /// Refuses an operation for which the peer has no right at all (ROCE-091).
    #[inline]
    fn check_access(&self, access: RemoteAccess) -> Result<(), Stop> {
        let granted = self.remote_access.unwrap_or(self.attributes.access);
        if granted.contains(access.right()) { Ok(()) } else { Err(Refusal::FORBIDDEN.into()) }
    }

    fn begin_write<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        only: bool,
        reth: Reth,
        immediate: Option<[u8; 4]>,
        memory: &M,
        pool: &dyn ReceivePool,
    ) -> Result<bool, Stop> {
        let length = packet.payload.len();
        self.check_access(RemoteAccess::Write)?;
        self.check_packet_length(Position::of(true, only), length)?;
        let whole = reth.length as usize;
        let fits = if only { length == whole } else { length < whole };
        if !matches!(self.responder.inside, Inside::Nothing)
            || !fits
            || u64::from(reth.length) > MAX_MESSAGE
        {
            return Err(INVALID);
        }
        if immediate.is_some() {
            self.open_receive(pool)?;
        }
        let who = self.accessor();
        if reth.length > 0 {
            let whole = u64::from(reth.length);
            // A single packet is checked where it is placed (ROCE-095).
            if !only {
                memory
                    .check_remote(who, reth.rkey, reth.va, whole, RemoteAccess::Write)
                    .map_err(Refusal::of)?;
            }
            memory.place_remote(who, reth.rkey, reth.va, packet.payload).map_err(Refusal::of)?;
        }
        if only {
            self.end_write(packet, reth.length, immediate);
        } else {
            self.responder.inside = Inside::Write(reth, length as u32);
        }
        self.responder.pass();
        Ok(true)
    }

    fn go_on_with_write<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        last: bool,
        immediate: Option<[u8; 4]>,
        memory: &M,
        pool: &dyn ReceivePool,
    ) -> Result<bool, Stop> {
        let Inside::Write(reth, before) = self.responder.inside else { return Err(INVALID) };
        let length = packet.payload.len();
        self.check_packet_length(Position::of(false, last), length)?;
        let left = (reth.length - before) as usize;
        let fits = if last { length == left } else { length < left };
        if !fits {
            return Err(INVALID);
        }
        if immediate.is_some() {
            self.open_receive(pool)?;
        }
        let at = reth.va.advanced(u64::from(before));
        memory.place_remote(self.accessor(), reth.rkey, at, packet.payload).map_err(Refusal::of)?;
        if last {
            self.end_write(packet, reth.length, immediate);
        } else {
            self.responder.inside = Inside::Write(reth, before + length as u32);
        }
        self.responder.pass();
        Ok(true)
    }

    /// Completes a Write that has come whole.
    fn end_write(&mut self, packet: &Packet<'_>, octets: u32, immediate: Option<[u8; 4]>) {
        self.responder.inside = Inside::Nothing;
        self.responder.count_message();
        self.arrivals += 1;
        if immediate.is_some() {
            let solicited = packet.header.bth.solicited;
            self.complete_receive(WcOp::RecvWriteImmediate, octets, immediate, None, solicited);
        }
    }

    fn take_read<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        reth: Reth,
        memory: &M,
    ) -> Result<bool, Stop> {
        self.check_access(RemoteAccess::Read)?;
        let length = u64::from(reth.length);
        self.check_lone(packet)?;
        if length > MAX_MESSAGE || !self.replies.has_room() {
            return Err(INVALID);
        }
        if length > 0 {
            let who = self.accessor();
            memory
                .check_remote(who, reth.rkey, reth.va, length, RemoteAccess::Read)
                .map_err(Refusal::of)?;
        }
        let mtu = self.attributes.mtu.octets();
        self.responder.count_message();
        self.replies.read(self.responder.expected, reth, mtu);
        let packets = replies::packets(reth.length, mtu);
        self.responder.expected = self.responder.expected.plus(packets);
        Ok(false)
    }

    fn take_atomic<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        eth: AtomicEth,
        memory: &M,
    ) -> Result<bool, Stop> {
        self.check_access(RemoteAccess::Atomic)?;
        self.check_lone(packet)?;
        if !eth.va.0.is_multiple_of(8) {
            return Err(Refusal::of(AccessError::Unaligned).into());
        }
        if !self.replies.has_room() {
            return Err(INVALID);
        }
        let original = memory
            .atomic(self.accessor(), eth.rkey, eth.va, operation(eth.kind))
            .map_err(Refusal::of)?;
        self.responder.count_message();
        self.replies.atomic(self.responder.expected, original);
        self.responder.expected = self.responder.expected.plus(1);
        Ok(false)
    }

    /// A request of one packet stands between messages (ROCE-090), and has no payload.
    const fn check_lone(&self, packet: &Packet<'_>) -> Result<(), Stop> {
        match self.responder.inside {
            Inside::Nothing if packet.payload.is_empty() => Ok(()),
            _ => Err(INVALID),
        }
    }
}

pub(super) const fn operation(kind: AtomicKind) -> AtomicOp {
    match kind {
        AtomicKind::FetchAdd { add } => AtomicOp::FetchAdd { add, mask: 0 },
        AtomicKind::CompareSwap { compare, swap } => {
            AtomicOp::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
        }
    }
}
