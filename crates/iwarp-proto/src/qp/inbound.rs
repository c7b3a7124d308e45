//! Deciding what a received segment is, where it goes and what it completes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ddp::error::DdpError;
use crate::ddp::rx::{UntaggedQueue, check_offset};
use crate::ddp::wire::{Header, Tagged, UNTAGGED_LEN, Untagged};
use crate::memory::{AccessError, AtomicOp, Invalidator, QpId, RemoteAccess, Sge};
use crate::mpa::startup::Role;
use crate::qp::reads::{Asked, Awaits};
use crate::qp::rq;
use crate::qp::terminate::Fault;
use crate::qp::wr::{Receive, SendOp, WcOp, WcStatus, WorkCompletion};
use crate::qp::{Event, Qp};
use crate::rdmap::error::RdmapError;
use crate::rdmap::wire::{
    AOP_COMPARE_SWAP, AOP_FETCH_ADD, ATOMIC_REQUEST_LEN, AtomicRequest, AtomicResponse,
    IMMEDIATE_LEN, Opcode, READ_REQUEST_LEN, ReadRequest, Terminate, TerminatedSegment,
};
use crate::rdmap::{rx, wire};
use crate::types::{Stag, TaggedOffset};

/// What to do with the payload of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Nothing of the stream counts any more.
    Discard,
    /// A receive of the pool is needed first: [`Qp::give_receive`], then ask again.
    NeedReceive,
    /// There is nothing to place.
    Nothing,
    /// Place it in the tagged buffer.
    Tagged(Stag, TaggedOffset),
    /// Place it in the local elements.
    Local,
    /// Place this value in the local elements instead.
    Value([u8; 8]),
    /// Check that the peer may do this.
    Check { stag: Stag, to: TaggedOffset, len: u64, access: RemoteAccess },
}

/// What is left to do when a segment was placed.
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
    Write,
    ReadResponse {
        len: u32,
        last: bool,
    },
    Send {
        header: Untagged,
        opcode: Opcode,
        len: u32,
    },
    Immediate {
        opcode: Opcode,
        data: [u8; 8],
    },
    ReadRequest(ReadRequest),
    AtomicRequest(Asked),
    AtomicResponse,
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
    pending: Pending,
    first_seen: bool,
    last_reported: bool,
    /// Start of the segment under way, for the Terminate that may quote it.
    quote: [u8; UNTAGGED_LEN + READ_REQUEST_LEN],
    quote_len: usize,
    ulpdu_len: usize,
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
            pending: Pending::None,
            first_seen: false,
            last_reported: false,
            quote: [0; UNTAGGED_LEN + READ_REQUEST_LEN],
            quote_len: 0,
            ulpdu_len: 0,
        }
    }
}

impl Inbound {
    /// Whether a Send has begun to arrive and not ended.
    pub(crate) const fn inside_message(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the first FPDU of the peer was validated.
    pub(crate) const fn first_seen(&self) -> bool {
        self.first_seen
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
            events.push_back(Event::ReceiveCompleted(rq::ended(self.receive.wr_id, qp, status)));
        }
        self.open = None;
    }

    /// Remembers the start of a ULPDU.
    fn remember(&mut self, head: &[u8], ulpdu_len: usize) {
        self.quote_len = head.len().min(self.quote.len());
        self.quote[..self.quote_len].copy_from_slice(&head[..self.quote_len]);
        self.ulpdu_len = ulpdu_len;
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

    /// What a Terminate for `fault` quotes of the segment under way.
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
        Some(TerminatedSegment { length: self.ulpdu_len as u16, ddp_header, rdma_header })
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
        self.judge(head, ulpdu_len, sges).unwrap_or_else(|fault| {
            self.fail(fault);
            Plan::Discard
        })
    }

    fn judge(&mut self, head: &[u8], ulpdu_len: usize, sges: &mut Vec<Sge>) -> Result<Plan, Fault> {
        let header = Header::parse(head)?;
        let len = ulpdu_len - header.wire_len();
        let opcode = rx::opcode(&header)?;
        self.learn_peer_kind(&header, opcode, len);
        let body = &head[header.wire_len()..];
        match header {
            Header::Tagged(h) if opcode == Opcode::Write => Ok(self.write(&h, len)),
            Header::Tagged(h) => self.read_response(&h, len, sges),
            Header::Untagged(h) => match opcode {
                Opcode::ReadRequest => self.read_request(&h, len, body),
                Opcode::AtomicRequest => self.atomic_request(&h, len, body),
                Opcode::AtomicResponse => self.atomic_response(&h, len, body, sges),
                Opcode::Terminate => self.terminate(&h, len, body),
                Opcode::Immediate | Opcode::ImmediateSolicited => {
                    self.immediate(&h, opcode, len, body)
                }
                _ => self.send(&h, opcode, len, sges),
            },
        }
    }

    /// Our own kind says so in its first FPDU; behind anything else nothing is to be expected.
    /// An agreed RTR frame may stand before it.
    fn learn_peer_kind(&mut self, header: &Header, opcode: Opcode, len: usize) {
        match header {
            Header::Tagged(h)
                if opcode == Opcode::Write
                    && len == 0
                    && self.config.extensions != super::Extensions::Refuse =>
            {
                self.peer.hear(h.stag, h.to);
            }
            _ => {}
        }
        let rtr = !self.inbound.first_seen && self.outbound.peer_to_peer();
        if !rtr {
            self.peer.give_up();
        }
    }

    /// RFC 5040 §5.1. A zero-length Write, and a zero-length segment of a longer one, is not
    /// checked (RFC 5041 §5.2).
    fn write(&mut self, header: &Tagged, len: usize) -> Plan {
        self.inbound.pending = Pending::Write;
        if len == 0 { Plan::Nothing } else { Plan::Tagged(header.stag, header.to) }
    }

    /// RFC 5040 §5.2.2. A response must be the one that is due: otherwise a peer could write
    /// anywhere the program may.
    fn read_response(
        &mut self,
        header: &Tagged,
        len: usize,
        sges: &mut Vec<Sge>,
    ) -> Result<Plan, Fault> {
        let due = self.orq.front().filter(|due| matches!(due.awaits, Awaits::Read { .. }));
        let Some(due) = due else {
            return Err(match len {
                0 => RdmapError::UnexpectedOpcode(Opcode::ReadResponse as u8).into(),
                _ => DdpError::InvalidStag.into(),
            });
        };
        let Awaits::Read { sink_stag, sink_to, size, received } = due.awaits else {
            unreachable!()
        };
        if len > 0 {
            if header.stag != sink_stag {
                return Err(DdpError::InvalidStag.into());
            }
            let left = u64::from(size - received);
            if header.to != sink_to.advanced(u64::from(received)) || len as u64 > left {
                return Err(DdpError::Bounds.into());
            }
        }
        if header.last && (received as usize + len) != size as usize {
            return Err(RdmapError::Stream("Read Response is shorter than the request").into());
        }
        let wqe = due.wqe;
        self.inbound.pending = Pending::ReadResponse { len: len as u32, last: header.last };
        sges.clear();
        match wqe {
            Some(number) if len > 0 => {
                sub_list(&self.sq.at(number).sges, u64::from(received), len, sges);
                Ok(Plan::Local)
            }
            _ => Ok(Plan::Nothing),
        }
    }

    /// RFC 5040 §5.2.1.
    fn read_request(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        self.inbound.requests.check_msn(h, self.irq.free())?;
        check_single(h, len, READ_REQUEST_LEN)?;
        let request = ReadRequest::parse(body)
            .ok_or(RdmapError::Stream("Read Request header has the wrong size"))?;
        self.inbound.pending = Pending::ReadRequest(request);
        if request.size == 0 {
            return Ok(Plan::Nothing);
        }
        Ok(Plan::Check {
            stag: request.source_stag,
            to: request.source_to,
            len: u64::from(request.size),
            access: RemoteAccess::Read,
        })
    }

    /// RFC 7306 §5.2.1.
    fn atomic_request(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        if self.config.extensions == super::Extensions::Refuse {
            return Err(RdmapError::UnexpectedOpcode(Opcode::AtomicRequest as u8).into());
        }
        self.inbound.requests.check_msn(h, self.irq.free())?;
        check_single(h, len, ATOMIC_REQUEST_LEN)?;
        let request = AtomicRequest::parse(body)
            .ok_or(RdmapError::Stream("Atomic Request header has the wrong size"))?;
        let op = match request.operation {
            AOP_FETCH_ADD => {
                AtomicOp::FetchAdd { add: request.add_or_swap, mask: request.add_or_swap_mask }
            }
            AOP_COMPARE_SWAP => AtomicOp::CompareSwap {
                compare: request.compare,
                compare_mask: request.compare_mask,
                swap: request.add_or_swap,
                swap_mask: request.add_or_swap_mask,
            },
            _ => return Err(RdmapError::UnexpectedOpcode(Opcode::AtomicRequest as u8).into()),
        };
        let (request_id, stag, to) = (request.request_id, request.stag, request.to);
        self.inbound.pending = Pending::AtomicRequest(Asked::Atomic { request_id, stag, to, op });
        Ok(Plan::Check { stag, to, len: 8, access: RemoteAccess::Atomic })
    }

    /// RFC 7306 §5.2.2: the MSN finds the request, its identifier must agree.
    fn atomic_response(
        &mut self,
        h: &Untagged,
        len: usize,
        body: &[u8],
        sges: &mut Vec<Sge>,
    ) -> Result<Plan, Fault> {
        let due = self.orq.front().copied();
        let Some((number, expected)) = due.and_then(|due| match (due.wqe, due.awaits) {
            (Some(number), Awaits::Atomic { request_id }) => Some((number, request_id)),
            _ => None,
        }) else {
            return Err(RdmapError::UnexpectedOpcode(Opcode::AtomicResponse as u8).into());
        };
        self.inbound.atomic_responses.check_msn(h, 1)?;
        check_single(h, len, wire::ATOMIC_RESPONSE_LEN)?;
        let response = AtomicResponse::parse(body)
            .ok_or(RdmapError::Stream("Atomic Response header has the wrong size"))?;
        if response.request_id != expected {
            return Err(RdmapError::Stream("Atomic Response answers no request").into());
        }
        self.inbound.pending = Pending::AtomicResponse;
        sub_list(&self.sq.at(number).sges, 0, 8, sges);
        Ok(Plan::Value(response.original.to_ne_bytes()))
    }

    /// RFC 5040 §5.4: whatever it holds, it ends the stream and is not answered.
    fn terminate(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Result<Plan, Fault> {
        let body = &body[..len.min(body.len())];
        let unreadable = wire::TerminateCode { layer: 0, etype: 0, code: 0 };
        let _ = self.inbound.terminates.check_msn(h, 1);
        let terminate = Terminate::parse(body);
        let code = terminate.map_or(unreadable, |terminate| terminate.code);
        let request =
            terminate.and_then(|terminate| terminate.segment).and_then(
                |segment| match Header::parse(&segment.ddp_header) {
                    Ok(Header::Untagged(h)) if h.qn == crate::types::Qn::READ_REQUEST => {
                        Some(h.msn)
                    }
                    _ => None,
                },
            );
        self.terminated(code, request);
        Ok(Plan::Discard)
    }

    /// RFC 7306 §6.3. The data goes into the completion; the receive's buffer stays untouched
    /// and may be empty, as programs written for other transports have it.
    fn immediate(
        &mut self,
        h: &Untagged,
        opcode: Opcode,
        len: usize,
        body: &[u8],
    ) -> Result<Plan, Fault> {
        if self.config.extensions == super::Extensions::Refuse || self.inbound.open.is_some() {
            return Err(RdmapError::UnexpectedOpcode(opcode as u8).into());
        }
        if let Some(plan) = self.ensure_receive(h)? {
            return Ok(plan);
        }
        check_single(h, len, IMMEDIATE_LEN)?;
        let data = *body
            .first_chunk()
            .filter(|_| len == IMMEDIATE_LEN)
            .ok_or(RdmapError::Stream("Immediate Data is not 8 octets"))?;
        self.inbound.pending = Pending::Immediate { opcode, data };
        Ok(Plan::Nothing)
    }

    /// RFC 5040 §5.3.
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
        if let Some(plan) = self.ensure_receive(h)? {
            return Ok(plan);
        }
        let checked = check_offset(h, len, self.inbound.receive.capacity());
        if let Err(error) = checked {
            self.inbound.end_receive(self.config.qp, WcStatus::LocalLength, &mut self.events);
            return Err(error.into());
        }
        self.inbound.open = Some(opcode);
        self.inbound.pending = Pending::Send { header: *h, opcode, len: len as u32 };
        sges.clear();
        if len == 0 {
            return Ok(Plan::Nothing);
        }
        sub_list(&self.inbound.receive.sges, u64::from(h.mo.0), len, sges);
        Ok(Plan::Local)
    }

    /// Makes sure that there is a receive for message `h.msn` of queue 0.
    fn ensure_receive(&mut self, h: &Untagged) -> Result<Option<Plan>, Fault> {
        let posted = self.rq.len() as u32 + u32::from(self.inbound.has_receive);
        if self.config.shared_receive && !self.inbound.has_receive {
            self.inbound.sends.check_msn(h, 1)?;
            return Ok(Some(Plan::NeedReceive));
        }
        self.inbound.sends.check_msn(h, posted)?;
        if !self.inbound.has_receive {
            self.inbound.has_receive = self.rq.take(&mut self.inbound.receive);
        }
        Ok(None)
    }

    /// Hands over a receive of the pool; `None` when it has none (RFC 5041 §7.1: no buffer).
    pub(crate) fn give_receive(&mut self, take: impl FnOnce(&mut Receive) -> bool) {
        if take(&mut self.inbound.receive) {
            self.inbound.has_receive = true;
        } else {
            self.fail(DdpError::NoBuffer.into());
        }
    }

    /// The segment was placed, or was not because of `error`.
    pub(crate) fn end_segment(&mut self, placed: Result<(), AccessError>) -> Follow {
        if !self.receives() {
            return Follow::Nothing;
        }
        let pending = core::mem::take(&mut self.inbound.pending);
        if let Err(error) = placed {
            self.refused(&pending, error);
            return Follow::Nothing;
        }
        if !self.inbound.first_seen {
            self.inbound.first_seen = true;
            if self.role == Role::Responder {
                self.events.push_back(Event::FirstFpdu);
            }
        }
        match pending {
            Pending::None | Pending::Write => Follow::Nothing,
            Pending::ReadResponse { len, last } => self.read_response_placed(len, last),
            Pending::Send { header, opcode, len } => self.send_placed(&header, opcode, len),
            Pending::Immediate { opcode, data } => {
                self.deliver(opcode, 8, Some(data), None);
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
            Pending::AtomicResponse => {
                self.inbound.atomic_responses.delivered();
                if let Some(number) = self.orq.pop().and_then(|done| done.wqe) {
                    self.sq.complete(number);
                }
                self.reap();
                Follow::Nothing
            }
        }
    }

    /// An access was refused: whose fault that is depends on the message.
    fn refused(&mut self, pending: &Pending, error: AccessError) {
        match pending {
            Pending::Write => self.fail(Fault::Ddp(error.into())),
            Pending::ReadRequest(_) | Pending::AtomicRequest(_) => {
                self.fail(RdmapError::Protection(error).into());
            }
            Pending::ReadResponse { .. } | Pending::AtomicResponse => {
                if let Some(number) = self.orq.front().and_then(|due| due.wqe) {
                    self.fail_send(number, WcStatus::LocalProtection, "sink of a Read refused");
                }
            }
            Pending::Send { .. } | Pending::Immediate { .. } | Pending::None => {
                let qp = self.config.qp;
                self.inbound.end_receive(qp, WcStatus::LocalProtection, &mut self.events);
                self.fail(Fault::Local("buffer of a receive refused"));
            }
        }
    }

    fn asked(&mut self, asked: Asked) {
        self.inbound.requests.delivered();
        let header = self.inbound.quote.first_chunk().copied().unwrap_or([0; UNTAGGED_LEN]);
        self.irq.push(asked, header);
    }

    fn read_response_placed(&mut self, len: u32, last: bool) -> Follow {
        let Some(due) = self.orq.front() else { return Follow::Nothing };
        if let Awaits::Read { received, .. } = &mut due.awaits {
            *received += len;
        }
        if !last {
            return Follow::Nothing;
        }
        let number = self.orq.pop().and_then(|done| done.wqe);
        let Some(number) = number else { return Follow::Nothing };
        if let SendOp::Read { invalidate: Some(stag), .. } = self.sq.at(number).op {
            self.inbound.pending = Pending::ReadResponse { len: 0, last: true };
            self.outbound.invalidating = Some(number);
            return Follow::Invalidate(stag, Invalidator::Local);
        }
        self.sq.complete(number);
        self.reap();
        Follow::Nothing
    }

    fn send_placed(&mut self, header: &Untagged, opcode: Opcode, len: u32) -> Follow {
        if !header.last {
            return Follow::Nothing;
        }
        if opcode.invalidates() {
            self.inbound.pending = Pending::Send { header: *header, opcode, len };
            return Follow::Invalidate(rx::invalidate_stag(header), Invalidator::Remote);
        }
        self.deliver(opcode, header.mo.0 + len, None, None);
        Follow::Nothing
    }

    /// The STag of [`Follow::Invalidate`] was invalidated, or could not be.
    pub(crate) fn invalidated(&mut self, result: Result<(), AccessError>) {
        let pending = core::mem::take(&mut self.inbound.pending);
        if !self.receives() {
            // The stream ended meanwhile, and what this would complete was flushed.
            return;
        }
        match pending {
            Pending::Send { header, opcode, len } => match result {
                Ok(()) => {
                    let stag = rx::invalidate_stag(&header);
                    self.deliver(opcode, header.mo.0 + len, None, Some(stag));
                }
                Err(error) => self.fail(RdmapError::Invalidate(error).into()),
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
    fn deliver(
        &mut self,
        opcode: Opcode,
        byte_len: u32,
        immediate: Option<[u8; 8]>,
        invalidated: Option<Stag>,
    ) {
        self.inbound.sends.delivered();
        self.inbound.open = None;
        self.inbound.has_receive = false;
        let op = if immediate.is_some() { WcOp::RecvImmediate } else { WcOp::Recv };
        self.events.push_back(Event::ReceiveCompleted(WorkCompletion {
            wr_id: self.inbound.receive.wr_id,
            qp: self.config.qp,
            status: WcStatus::Success,
            op,
            byte_len,
            immediate,
            invalidated,
            solicited: opcode.solicited(),
        }));
    }

    /// MSN that the next message of queue 0 must have, for tests that start near a wrap.
    #[cfg(test)]
    pub(crate) fn expect_send(&mut self, msn: crate::types::Msn) {
        self.inbound.sends = UntaggedQueue::expecting(msn);
    }
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

/// The part of a scatter/gather list that holds octets `offset..offset + len` of it.
pub(crate) fn sub_list(list: &[Sge], mut offset: u64, mut len: usize, out: &mut Vec<Sge>) {
    out.clear();
    for sge in list {
        if len == 0 {
            break;
        }
        let size = u64::from(sge.length);
        if offset >= size {
            offset -= size;
            continue;
        }
        let take = (size - offset).min(len as u64) as u32;
        out.push(Sge { addr: sge.addr.wrapping_add(offset), length: take, lkey: sge.lkey });
        len -= take as usize;
        offset = 0;
    }
}
