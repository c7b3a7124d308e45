// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deciding what a received segment is, where it goes and what it completes.

mod answers;
pub(crate) mod park;
mod refusal;
mod run;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iwarp_types::{
    Access, AccessError, Invalidator, QpId, Receive, RemoteAccess, Sge, Stag, TaggedOffset, WcOp,
    WcStatus, WorkCompletion,
};

use crate::ddp::error::DdpError;
use crate::ddp::rx::{UntaggedQueue, check_offset};
use crate::ddp::wire::{Header, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};
use crate::mpa::startup::Role;
use crate::qp::inbound::park::{Parking, Room, Wait};
use crate::qp::local::Heard;
use crate::qp::{Event, Qp};
use crate::rdmap::error::RdmapError;
use crate::rdmap::hello::{self, Capabilities, OfferHalf, PeerKind, WRITE_MARK};
use crate::rdmap::reads::{Asked, Before};
use crate::rdmap::terminate::Fault;
use crate::rdmap::wire::{
    ATOMIC_REQUEST_LEN, AtomicRequest, IMMEDIATE_LEN, Opcode, READ_REQUEST_LEN, ReadRequest,
    Terminate, TerminatedSegment,
};
use crate::rdmap::{requester, rx, wire};
use iwarp_types::list::sub_list;

pub(crate) use run::{Beyond, Continued};

/// The plan for the payload of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Drop it: the stream has ended.
    Discard,
    /// A receive of the pool is needed first: [`Qp::give_receive`], then ask again.
    NeedReceive,
    /// There is nothing to place.
    Nothing,
    /// Place it in the tagged buffer.
    Tagged(Stag, TaggedOffset),
    /// Place it in the local elements.
    Local(Beyond),
    /// Place this value in the local elements instead.
    Value([u8; 8]),
    /// Check that the peer may do this.
    Check { stag: Stag, to: TaggedOffset, len: u64, access: RemoteAccess },
    /// Keep it until there is a receive.
    Park(Parking),
    /// Keep it until there is a receive; but there is no room: come again with it later.
    Stall,
}

/// The work that is left when a segment was placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follow {
    Nothing,
    /// Invalidate the STag, then report to [`Qp::invalidated`].
    Invalidate(Stag, Invalidator),
}

/// The segment between [`Qp::begin_segment`] and [`Qp::end_segment`].
#[derive(Clone, Copy, Debug, Default)]
enum Pending {
    #[default]
    None,
    Write {
        len: u32,
        last: bool,
        hello: bool,
    },
    ReadResponse {
        len: u32,
        last: bool,
    },
    Send {
        header: Untagged,
        opcode: Opcode,
        len: u32,
        parked: bool,
    },
    Immediate {
        opcode: Opcode,
        data: [u8; 8],
        /// Octets of the Write that it belongs to.
        write: Option<u32>,
        parked: bool,
    },
    Park {
        header: Untagged,
        len: u32,
    },
    ReadRequest(ReadRequest),
    AtomicRequest(Asked),
    AtomicResponse,
    /// The peer leaves, and has received so many messages.
    Farewell(u64),
    /// The peer has received so many messages, and the next one waits for its receive.
    Count(u64),
    /// The number of times that the peer would send a message again that finds no receive.
    RnrRetry(u8),
    /// A part of the way past TCP that the peer offers.
    Offer(OfferHalf),
    /// The peer keeps the stream with TCP.
    Decline(u64),
}

impl Pending {
    /// True if it arrived whole before it is delivered, so that it says nothing of what stands
    /// before the next segment.
    const fn is_late(&self) -> bool {
        matches!(self, Self::Immediate { parked: true, .. } | Self::Send { parked: true, .. })
    }
}

/// The messages that have come up to a place of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Come {
    /// Messages that came whole, as a farewell counts them.
    whole: u64,
    /// Writes of nothing, which it does not count.
    empty: u64,
}

impl Come {
    const fn all(self) -> u64 {
        self.whole + self.empty
    }
}

/// A message as its receive reports it.
struct Delivery {
    opcode: Opcode,
    op: WcOp,
    byte_len: u32,
    immediate: Option<[u8; 8]>,
    invalidated: Option<Stag>,
    parked: bool,
}

/// Receiving side of a queue pair.
#[derive(Debug)]
pub(crate) struct Inbound {
    sends: UntaggedQueue,
    requests: UntaggedQueue,
    terminates: UntaggedQueue,
    atomic_responses: UntaggedQueue,
    /// A Send of which the last segment has not come.
    open: Option<Opcode>,
    /// The receive that the open or next Send consumes.
    receive: Receive,
    has_receive: bool,
    /// The pool was asked for a receive and has none.
    pool_is_empty: bool,
    /// Messages that wait for a receive, the open one included, and their octets.
    parked: usize,
    parked_octets: usize,
    /// Octets of the open message, if it is parked.
    parking: Option<u32>,
    /// There is no room for the next one.
    stalled: bool,
    wait: Wait,
    /// The last segment of the message that waits longest, and the octets that a Terminate for it
    /// tells.
    oldest: Option<(Untagged, usize)>,
    /// Messages that came whole before their receive, and those of them that were delivered.
    late: u64,
    late_delivered: u64,
    /// Octets of the Write under way, and of the one that the last segment ended.
    writing: u32,
    written: Option<u32>,
    /// Messages that have come whole ([`Qp::arrivals`]).
    pub(crate) arrived: u64,
    /// All that has come, and the part of it that stands in front of the oldest message that waits
    /// for its receive.
    come: Come,
    come_before_parked: Come,
    pending: Pending,
    first_seen: bool,
    last_reported: bool,
    /// Start of the segment under way, for the Terminate that may quote it.
    quote: [u8; UNTAGGED_LEN + READ_REQUEST_LEN],
    quote_len: usize,
    ulpdu_len: usize,
    pub(crate) offer: Heard,
    pub(crate) decline: Option<u64>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            sends: UntaggedQueue::new(),
            requests: UntaggedQueue::new(),
            terminates: UntaggedQueue::new(),
            atomic_responses: UntaggedQueue::new(),
            open: None,
            receive: Receive::default(),
            has_receive: false,
            pool_is_empty: false,
            parked: 0,
            parked_octets: 0,
            parking: None,
            stalled: false,
            wait: Wait::No,
            oldest: None,
            late: 0,
            late_delivered: 0,
            writing: 0,
            written: None,
            arrived: 0,
            come: Come::default(),
            come_before_parked: Come::default(),
            pending: Pending::None,
            first_seen: false,
            last_reported: false,
            quote: [0; UNTAGGED_LEN + READ_REQUEST_LEN],
            quote_len: 0,
            ulpdu_len: 0,
            offer: Heard::default(),
            decline: None,
        }
    }
}

impl Inbound {
    /// True if a Send has begun to arrive and not ended.
    pub(crate) const fn inside_message(&self) -> bool {
        self.open.is_some()
    }

    /// True if the first FPDU of the peer was validated.
    pub(crate) const fn first_seen(&self) -> bool {
        self.first_seen
    }

    /// True if messages wait for a receive.
    pub(crate) fn has_parked(&self) -> bool {
        self.parked > 0 || self.stalled
    }

    /// Messages that were received, with none in front of them that was not: those for queue 0, and
    /// Writes of something.
    pub(crate) const fn received(&self) -> u64 {
        self.before_parked().whole
    }

    const fn before_parked(&self) -> Come {
        let late = self.parked > 0 || self.pending.is_late();
        if late { self.come_before_parked } else { self.come }
    }

    /// The number that grows with each message that [`Self::received`] counts, and with each Write
    /// of nothing among them.
    pub(crate) const fn received_or_empty(&self) -> u64 {
        self.before_parked().all()
    }

    /// Of the messages that came whole before their receive, how many were delivered.
    pub(crate) const fn late_delivered(&self) -> u64 {
        self.late_delivered
    }

    /// True if nothing more can be taken from the stream until there is a receive.
    pub(crate) const fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// True if a message waits for its receive.
    pub(crate) fn waits(&self) -> bool {
        self.wait != Wait::No
    }

    /// True once.
    pub(crate) fn report_last_receive(&mut self) -> bool {
        !core::mem::replace(&mut self.last_reported, true)
    }

    /// Flushes the receive that a message had begun to use.
    pub(crate) fn flush_open(&mut self, qp: QpId, events: &mut VecDeque<Event>) {
        self.end_receive(qp, WcStatus::Flushed, events);
    }

    fn end_receive(&mut self, qp: QpId, status: WcStatus, events: &mut VecDeque<Event>) {
        if core::mem::take(&mut self.has_receive) {
            events.push_back(Event::ReceiveCompleted(iwarp_types::ended_receive(
                self.receive.wr_id,
                qp,
                status,
            )));
        }
        self.open = None;
    }

    /// Remembers the start of a ULPDU. One too short for a Read Request is not quoted beyond its
    /// DDP header.
    #[inline]
    fn remember(&mut self, head: &[u8], ulpdu_len: usize) {
        self.ulpdu_len = ulpdu_len;
        if let Some(all) = head.first_chunk() {
            self.quote = *all;
            self.quote_len = self.quote.len();
        } else if let Some(header) = head.first_chunk::<UNTAGGED_LEN>() {
            self.quote[..UNTAGGED_LEN].copy_from_slice(header);
            self.quote_len = UNTAGGED_LEN;
        } else {
            self.quote_len = head.len();
            self.quote[..head.len()].copy_from_slice(head);
        }
    }

    /// Remembers a Read Request whose answer failed, updated to what is left of it.
    pub(crate) fn remember_read(&mut self, header: &[u8; UNTAGGED_LEN], left: &ReadRequest) {
        self.quote[..UNTAGGED_LEN].copy_from_slice(header);
        self.quote[UNTAGGED_LEN..].copy_from_slice(&left.octets());
        self.quote_len = self.quote.len();
        self.ulpdu_len = self.quote.len();
    }

    /// Remembers an Atomic Request whose execution failed.
    pub(crate) fn remember_atomic(&mut self, header: &[u8; UNTAGGED_LEN]) {
        self.remember(header, UNTAGGED_LEN + ATOMIC_REQUEST_LEN);
    }

    /// The part of the segment under way that a Terminate for `fault` quotes.
    pub(crate) fn quoted(&self, fault: &Fault) -> Option<TerminatedSegment> {
        let header_len = Header::len_of(&self.quote[..self.quote_len])?;
        if !fault.quotes_segment() || header_len > self.quote_len {
            return None;
        }
        let mut ddp_header = [0; UNTAGGED_LEN];
        ddp_header[..header_len].copy_from_slice(&self.quote[..header_len]);
        let is_read_request = header_len == UNTAGGED_LEN
            && wire::split_control(ddp_header[1]).1 == Opcode::ReadRequest as u8;
        let rdma_header = (fault.quotes_read_request() && is_read_request)
            .then(|| self.quote[header_len..self.quote_len].first_chunk().copied())
            .flatten();
        // The field is of 16 bits, which some framings' segments outgrow.
        let length = u16::try_from(self.ulpdu_len).unwrap_or(u16::MAX);
        Some(TerminatedSegment { length, ddp_header, rdma_header })
    }
}

impl Qp {
    /// Judges a segment by its start. `head` holds at least the DDP header where the ULPDU has
    /// one, and the whole ULPDU where that is a message without payload. Local elements to place
    /// into go to `sges`. A fault has ended the stream when [`Plan::Discard`] comes back.
    pub(crate) fn begin_segment(
        &mut self,
        head: &[u8],
        ulpdu_len: usize,
        sges: &mut Vec<Sge>,
    ) -> Plan {
        if !self.receives() {
            return Plan::Discard;
        }
        self.inbound.remember(head, ulpdu_len);
        match self.judge(head, ulpdu_len, sges) {
            Ok(plan) => plan,
            Err(fault) => {
                self.note_judged(&fault);
                self.fail(fault);
                Plan::Discard
            }
        }
    }

    /// Either kind of header has a way of its own, on which the compiler knows the other's away.
    #[inline(always)]
    fn judge(&mut self, head: &[u8], ulpdu_len: usize, sges: &mut Vec<Sge>) -> Result<Plan, Fault> {
        let highest = self.highest_opcode();
        if Header::is_tagged(head)? {
            let h = Tagged::read(head)?;
            let len = ulpdu_len - TAGGED_LEN;
            let opcode = rx::opcode(&Header::Tagged(h), highest)?;
            if len == 0 && opcode == Opcode::Write {
                self.learn_peer_kind(&h);
            }
            self.note_segment();
            if opcode != Opcode::Write {
                return self.read_response(&h, len, sges);
            }
            // An empty one touches no memory.
            if len > 0 {
                self.check_right(RemoteAccess::Write, opcode, |error| {
                    DdpError::from(error).into()
                })?;
            }
            return Ok(self.write(&h, len));
        }
        let h = Untagged::read(head)?;
        let len = ulpdu_len - UNTAGGED_LEN;
        let opcode = rx::opcode(&Header::Untagged(h), highest)?;
        self.note_segment();
        let body = &head[UNTAGGED_LEN..];
        match opcode {
            Opcode::ReadRequest => self.read_request(&h, len, body),
            Opcode::AtomicRequest => self.atomic_request(&h, len, body),
            Opcode::AtomicResponse => self.atomic_response(&h, len, body, sges),
            Opcode::Terminate => self.terminate(&h, len, body),
            Opcode::Immediate | Opcode::ImmediateSolicited => self.immediate(&h, opcode, len, body),
            _ => self.send(&h, opcode, len, sges),
        }
    }

    /// The highest opcode that the peer may use. One of our own counts when the peer has told that
    /// it knows them, which only those do that were asked: to everybody else the number is
    /// unassigned, and so unexpected (RFC 5040 §7.2).
    #[inline]
    const fn highest_opcode(&self) -> Opcode {
        match self.config.extensions {
            _ if self.peer.has(Capabilities::SEND_IMMEDIATE) => Opcode::LAST_OF_OURS,
            super::Extensions::Refuse => Opcode::LAST_OF_RFC_5040,
            _ => Opcode::LAST_OF_RFC_7306,
        }
    }

    /// Our own kind says so in its first FPDU, a Write of nothing.
    #[cold]
    fn learn_peer_kind(&mut self, h: &Tagged) {
        if self.config.extensions != super::Extensions::Refuse
            && self.peer.hear(h.stag, h.to, self.config.tells)
        {
            self.events.push_back(Event::OtherDevice);
        }
    }

    /// Behind a segment that does not say what the peer can do, nothing is to be expected of it. An
    /// agreed RTR frame may stand before the one that does.
    #[inline]
    fn note_segment(&mut self) {
        let rtr = !self.inbound.first_seen && self.outbound.peer_to_peer();
        if !rtr {
            self.peer.give_up();
        }
    }

    /// RFC 5040 §5.1. A zero-length Write, and a zero-length segment of a longer one, is not
    /// checked (RFC 5041 §5.2).
    fn write(&mut self, header: &Tagged, len: usize) -> Plan {
        let hello = len == 0 && hello::is_own(header.stag, header.to);
        let own = if hello { self.own_frame(header) } else { None };
        let write = || Pending::Write { len: len as u32, last: header.last, hello };
        self.inbound.pending = own.unwrap_or_else(write);
        if len > 0 {
            return Plan::Tagged(header.stag, header.to);
        }
        self.inbound.come.empty += u64::from(!hello);
        Plan::Nothing
    }

    /// The content of a frame of our own kind, where this end wants to know it.
    #[cold]
    fn own_frame(&self, header: &Tagged) -> Option<Pending> {
        match hello::OwnFrame::of(header.stag, header.to)? {
            hello::OwnFrame::Hello(_) => None,
            hello::OwnFrame::Farewell(received) => {
                self.asks_what_was_received().then_some(Pending::Farewell(received))
            }
            hello::OwnFrame::Count(received) => {
                self.asks_what_was_received().then_some(Pending::Count(received))
            }
            hello::OwnFrame::RnrRetry(count) => Some(Pending::RnrRetry(count)),
            hello::OwnFrame::Offer(half) => {
                let wanted = self.config.tells.contains(Capabilities::LOCAL);
                wanted.then_some(Pending::Offer(half))
            }
            hello::OwnFrame::Decline(reason) => Some(Pending::Decline(reason)),
        }
    }

    /// True if this end's hello frame asks the peer how much it has received, and the peer is of
    /// our kind. Any other peer may use every STag in a Write of nothing.
    fn asks_what_was_received(&self) -> bool {
        self.config.acknowledge
            && self.config.extensions == super::Extensions::Ask
            && matches!(self.peer, PeerKind::Known(_))
    }

    /// RFC 5040 §5.2.1.
    #[inline(never)]
    fn read_request(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        self.inbound.requests.check_msn(h, self.irq.free())?;
        check_single(h, len, READ_REQUEST_LEN)?;
        let request = ReadRequest::parse(body)
            .ok_or(RdmapError::Stream("Read Request header has the wrong size"))?;
        self.inbound.pending = Pending::ReadRequest(request);
        if request.size == 0 {
            return Ok(Plan::Nothing);
        }
        self.check_right(RemoteAccess::Read, Opcode::ReadRequest, of_asked)?;
        Ok(Plan::Check {
            stag: request.source_stag,
            to: request.source_to,
            len: u64::from(request.size),
            access: RemoteAccess::Read,
        })
    }

    /// RFC 7306 §5.2.1.
    #[inline(never)]
    fn atomic_request(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        self.inbound.requests.check_msn(h, self.irq.free())?;
        check_single(h, len, ATOMIC_REQUEST_LEN)?;
        let request = AtomicRequest::parse(body)
            .ok_or(RdmapError::Stream("Atomic Request header has the wrong size"))?;
        let op = requester::atomic_op(&request)
            .ok_or(RdmapError::UnexpectedOpcode(Opcode::AtomicRequest as u8))?;
        let (request_id, stag, to) = (request.request_id, request.stag, request.to);
        self.inbound.pending = Pending::AtomicRequest(Asked::Atomic { request_id, stag, to, op });
        self.check_right(RemoteAccess::Atomic, Opcode::AtomicRequest, of_asked)?;
        Ok(Plan::Check { stag, to, len: 8, access: RemoteAccess::Atomic })
    }

    /// Checks that the queue pair grants the peer this access. Where requests end as over
    /// InfiniBand, an access that it does not grant is an operation that it does not know (IBA vol.
    /// 1, 9.7.4.1.5).
    fn check_right(
        &self,
        access: RemoteAccess,
        opcode: Opcode,
        refused: impl FnOnce(AccessError) -> Fault,
    ) -> Result<(), Fault> {
        let granted = self.remote_access.unwrap_or(Access::REMOTE);
        if granted.contains(access.right()) {
            return Ok(());
        }
        Err(match self.config.acknowledge {
            true => RdmapError::UnexpectedOpcode(opcode as u8).into(),
            false => refused(AccessError::Rights),
        })
    }

    /// RFC 5040 §5.4: a Terminate with any contents ends the stream and is not answered.
    #[inline(never)]
    fn terminate(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        let body = &body[..len.min(body.len())];
        let unreadable = wire::TerminateCode { layer: 0, etype: 0, code: 0 };
        let _ = self.inbound.terminates.check_msn(h, 1);
        let terminate = Terminate::parse(body);
        let code = terminate.map_or(unreadable, |terminate| terminate.code);
        let at_fault = terminate
            .and_then(|terminate| terminate.segment)
            .and_then(|segment| Some((Header::parse(&segment.ddp_header).ok()?, segment.length)));
        self.terminated(code, at_fault);
        Ok(Plan::Discard)
    }

    /// RFC 7306 §6.3. The data goes into the completion; the receive's buffer stays untouched
    /// and may be empty, as programs written for other transports have it.
    #[inline(never)]
    fn immediate(
        &mut self,
        h: &Untagged,
        opcode: Opcode,
        len: usize,
        body: &[u8],
    ) -> Result<Plan, Fault> {
        if self.inbound.open.is_some() {
            return Err(RdmapError::UnexpectedOpcode(opcode as u8).into());
        }
        let room = self.room_for(h)?;
        if matches!(room, Room::Ask) {
            return Ok(Plan::NeedReceive);
        }
        check_single(h, len, IMMEDIATE_LEN)?;
        let data: [u8; IMMEDIATE_LEN] = *body
            .first_chunk()
            .filter(|_| len == IMMEDIATE_LEN)
            .ok_or(RdmapError::Stream("Immediate Data is not 8 octets"))?;
        let own = data[4..] == WRITE_MARK && self.peer.has(Capabilities::WRITE_IMMEDIATE);
        let write = self.inbound.written.filter(|_| own);
        if matches!(room, Room::Park) {
            return self.park(h, opcode, len, write);
        }
        self.inbound.pending = Pending::Immediate { opcode, data, write, parked: false };
        Ok(Plan::Nothing)
    }

    /// RFC 5040 §5.3.
    #[inline(always)]
    fn send(
        &mut self,
        h: &Untagged,
        opcode: Opcode,
        len: usize,
        sges: &mut Vec<Sge>,
    ) -> Result<Plan, Fault> {
        if self.inbound.open.is_some_and(|open| open != opcode) {
            return Err(RdmapError::UnexpectedOpcode(opcode as u8).into());
        }
        match self.room_for(h)? {
            Room::Receive => {}
            Room::Ask => return Ok(Plan::NeedReceive),
            Room::Park => return self.park(h, opcode, len, None),
        }
        let checked = check_offset(h, len, self.inbound.receive.capacity());
        if let Err(error) = checked {
            self.inbound.end_receive(self.config.qp, WcStatus::LocalLength, &mut self.events);
            return Err(error.into());
        }
        self.inbound.open = Some(opcode);
        let len32 = len as u32;
        self.inbound.pending = Pending::Send { header: *h, opcode, len: len32, parked: false };
        sges.clear();
        if len == 0 {
            return Ok(Plan::Nothing);
        }
        let room = sub_list(&self.inbound.receive.sges, u64::from(h.mo.0), len, sges);
        // A message has less than 2^32 octets, however large the buffer.
        let room = room.min(u32::MAX - h.mo.0 - len32);
        Ok(Plan::Local(Beyond { room, due: None }))
    }

    /// The segment was placed, or was not because of `error`.
    pub(crate) fn end_segment(&mut self, placed: Result<(), AccessError>) -> Follow {
        if !self.receives() {
            return Follow::Nothing;
        }
        if let Err(error) = placed {
            self.refused(error);
            return Follow::Nothing;
        }
        if !self.inbound.first_seen {
            self.first_segment();
        }
        match self.inbound.pending {
            Pending::Write { len, last, hello } => {
                let inbound = &mut self.inbound;
                inbound.pending = Pending::None;
                let so_far = inbound.writing.saturating_add(len);
                inbound.writing = if last { 0 } else { so_far };
                inbound.written = (last && !hello).then_some(so_far);
                inbound.arrived += u64::from(last && !hello);
                inbound.come.whole += u64::from(last && so_far > 0);
                Follow::Nothing
            }
            Pending::Send { header, opcode, len, parked } => {
                self.inbound.pending = Pending::None;
                if !parked {
                    self.inbound.written = None;
                }
                self.send_placed(&header, opcode, len, parked)
            }
            _ => self.end_rare_segment(),
        }
    }

    #[cold]
    fn first_segment(&mut self) {
        self.inbound.first_seen = true;
        if self.role == Role::Responder {
            self.events.push_back(Event::FirstHeard);
        }
    }

    /// Ends a segment that is neither a Write's nor a Send's.
    #[inline(never)]
    fn end_rare_segment(&mut self) -> Follow {
        let pending = core::mem::take(&mut self.inbound.pending);
        if !pending.is_late() {
            self.inbound.written = None;
        }
        match pending {
            Pending::None | Pending::Write { .. } | Pending::Send { .. } => Follow::Nothing,
            Pending::ReadResponse { len, last } => self.read_response_placed(len, last),
            Pending::Immediate { opcode, data, write, parked } => {
                let mut immediate = data;
                if write.is_some() {
                    immediate[4..].fill(0);
                }
                self.deliver(&Delivery {
                    opcode,
                    op: write.map_or(WcOp::RecvImmediate, |_| WcOp::RecvWriteImmediate),
                    byte_len: write.unwrap_or(IMMEDIATE_LEN as u32),
                    immediate: Some(immediate),
                    invalidated: None,
                    parked,
                });
                Follow::Nothing
            }
            Pending::Park { header, len } => {
                self.segment_parked(&header, len);
                Follow::Nothing
            }
            Pending::ReadRequest(request) => {
                self.asked(Asked::Read(request));
                Follow::Nothing
            }
            Pending::AtomicRequest(asked) => {
                self.asked(asked);
                Follow::Nothing
            }
            Pending::Farewell(received) => {
                if self.credit(received) {
                    self.peer_received = Some(received);
                }
                Follow::Nothing
            }
            Pending::Count(received) => {
                self.credit(received);
                Follow::Nothing
            }
            Pending::RnrRetry(count) => {
                self.peer_rnr_retry = Some(count);
                Follow::Nothing
            }
            Pending::Offer(half) => {
                self.inbound.offer.hear(half);
                Follow::Nothing
            }
            Pending::Decline(reason) => {
                self.inbound.decline = Some(reason);
                Follow::Nothing
            }
            Pending::AtomicResponse => {
                self.inbound.atomic_responses.delivered();
                if let Some(number) = self.answered() {
                    self.sq.complete(number);
                }
                self.reap();
                Follow::Nothing
            }
        }
    }

    /// An access was refused: whose fault that is depends on the message.
    #[cold]
    fn refused(&mut self, error: AccessError) {
        self.note_refused(error);
        match core::mem::take(&mut self.inbound.pending) {
            Pending::Write { .. } => self.fail(Fault::of_tagged(error)),
            Pending::ReadRequest(_) | Pending::AtomicRequest(_) => {
                self.fail(Fault::of_asked(error));
            }
            Pending::ReadResponse { .. } | Pending::AtomicResponse => {
                if let Some(number) = self.orq.front().and_then(|due| due.wqe()) {
                    let fault = Fault::of_own(error, "sink of a Read refused");
                    self.fail_send_by(number, WcStatus::LocalProtection, fault);
                }
            }
            Pending::Send { .. }
            | Pending::Immediate { .. }
            | Pending::Park { .. }
            | Pending::Farewell(_)
            | Pending::Count(_)
            | Pending::RnrRetry(_)
            | Pending::Offer(_)
            | Pending::Decline(_)
            | Pending::None => {
                let qp = self.config.qp;
                self.inbound.end_receive(qp, WcStatus::LocalProtection, &mut self.events);
                self.fail(Fault::of_own(error, "buffer of a receive refused"));
            }
        }
    }

    fn asked(&mut self, asked: Asked) {
        self.inbound.requests.delivered();
        let header = self.inbound.quote.first_chunk().copied().unwrap_or([0; UNTAGGED_LEN]);
        let before = Before { late: self.inbound.late, all: self.inbound.come.all() };
        self.irq.push((asked, header), before);
        if before.late > self.inbound.late_delivered {
            self.tell_received();
        }
    }

    #[inline]
    fn send_placed(&mut self, header: &Untagged, opcode: Opcode, len: u32, parked: bool) -> Follow {
        if !header.last {
            return Follow::Nothing;
        }
        if opcode.invalidates() {
            self.inbound.pending = Pending::Send { header: *header, opcode, len, parked };
            return Follow::Invalidate(rx::invalidate_stag(header), Invalidator::Remote);
        }
        self.deliver_send(header, opcode, len, parked, None);
        Follow::Nothing
    }

    #[inline]
    fn deliver_send(
        &mut self,
        header: &Untagged,
        opcode: Opcode,
        len: u32,
        parked: bool,
        invalidated: Option<Stag>,
    ) {
        let immediate = opcode.carries_immediate().then(|| {
            let [a, b, c, d] = rx::immediate(header);
            [a, b, c, d, 0, 0, 0, 0]
        });
        let byte_len = header.mo.0 + len;
        let op = WcOp::Recv;
        self.deliver(&Delivery { opcode, op, byte_len, immediate, invalidated, parked });
    }

    /// The STag of [`Follow::Invalidate`] was invalidated, or could not be.
    pub(crate) fn invalidated(&mut self, result: Result<(), AccessError>) {
        let pending = core::mem::take(&mut self.inbound.pending);
        if !self.receives() {
            // The stream ended meanwhile, and what this would complete was flushed.
            return;
        }
        match pending {
            Pending::Send { header, opcode, len, parked } => match result {
                Ok(()) => {
                    let stag = rx::invalidate_stag(&header);
                    self.deliver_send(&header, opcode, len, parked, Some(stag));
                }
                Err(error) => {
                    if self.config.acknowledge {
                        let qp = self.config.qp;
                        self.inbound.end_receive(qp, WcStatus::RemoteAccess, &mut self.events);
                    }
                    self.fail(RdmapError::Invalidate(error).into());
                }
            },
            Pending::ReadResponse { .. } => {
                let Some(number) = self.outbound.invalidating.take() else { return };
                match result {
                    Ok(()) => {
                        self.sq.complete(number);
                        self.reap();
                    }
                    Err(_) => self.fail_send(
                        number,
                        WcStatus::LocalQpOperation,
                        "local STag of a Read could not be invalidated",
                    ),
                }
            }
            _ => {}
        }
    }

    /// Completes the receive of a whole message.
    #[inline]
    fn deliver(&mut self, message: &Delivery) {
        if message.parked {
            self.inbound.late_delivered += 1;
        } else {
            self.inbound.sends.delivered();
            self.inbound.open = None;
            self.inbound.come.whole += 1;
        }
        self.inbound.has_receive = false;
        self.inbound.arrived += 1;
        let (wr_id, qp) = (self.inbound.receive.wr_id, self.config.qp);
        let mut completion = WorkCompletion::new(wr_id, qp, message.op, WcStatus::Success);
        completion.byte_len = message.byte_len;
        completion.immediate = message.immediate;
        completion.invalidated = message.invalidated;
        completion.solicited = message.opcode.solicited();
        self.events.push_back(Event::ReceiveCompleted(completion));
    }

    /// MSN that the next message of queue 0 must have, for tests that start near a wrap.
    #[cfg(test)]
    pub(crate) fn expect_send(&mut self, msn: crate::types::Msn) {
        self.inbound.sends = UntaggedQueue::expecting(msn);
    }
}

/// The fault where the queue pair refuses what the peer asked for.
fn of_asked(error: AccessError) -> Fault {
    RdmapError::Protection(error).into()
}

/// A message that is one segment and has a header of a fixed size: it starts at offset 0, is
/// the last, and fits its queue's buffers.
fn check_single(header: &Untagged, len: usize, size: usize) -> Result<(), Fault> {
    check_offset(header, len, size as u64)?;
    if !header.last || header.mo.0 != 0 {
        return Err(RdmapError::Stream("message of one segment is cut").into());
    }
    Ok(())
}
