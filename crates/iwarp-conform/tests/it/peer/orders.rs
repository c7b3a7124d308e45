// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of the peer by itself, on orders: it reads, writes and sends.

use std::collections::VecDeque;

use iwarp_conform::order::{self, DONE, Operation, Request};
use iwarp_conform::wire::segment::{Destination, Kind, ReadRequest, Segment};

use super::{Fault, LENT, PIECE, Peer, ddp, rdmap};

/// The memory into which it reads, and from which it writes.
pub(super) const SINK: u32 = 0x100;

/// The work requests of an order.
pub(super) struct Orders {
    /// Reads and Atomics that may be under way.
    depth: usize,
    /// Requests that are not yet begun.
    waiting: VecDeque<Request>,
    /// Requests that are asked for, and how many bytes have come, or of an Atomic its identifier.
    pub(super) under_way: VecDeque<(Request, u32)>,
}

impl Orders {
    pub(super) fn new(depth: u16) -> Self {
        Self { depth: depth.into(), waiting: VecDeque::new(), under_way: VecDeque::new() }
    }

    pub(super) fn is_asking(&self) -> bool {
        !self.under_way.is_empty()
    }
}

impl Peer {
    /// Carries out an order, where the message is one.
    pub(super) fn obey(&mut self, message: &[u8]) -> bool {
        let Some(requests) = order::decode(message, LENT) else { return false };
        let mut requests = requests.expect("a right order");
        if self.is("works in reverse") {
            requests.reverse();
        }
        if self.is("is done before it begins") {
            self.send(Kind::Send, DONE);
        }
        self.orders.waiting.extend(requests);
        self.go_on();
        true
    }

    /// Begins the requests that may be under way, and says when all is done.
    pub(super) fn go_on(&mut self) {
        while let Some(&request) = self.orders.waiting.front() {
            if is_asked_for(&request) && !self.may_ask(&request) {
                return;
            }
            self.orders.waiting.pop_front();
            self.begin(request);
        }
        if !self.orders.is_asking() && !self.is("is done before it begins") {
            self.send(Kind::Send, DONE);
        }
    }

    /// True if a Read or Atomic may be asked for now.
    fn may_ask(&self, request: &Request) -> bool {
        match self.wrong {
            "asks for too many at a time" | "forgets the Reply's IRD" => true,
            "counts no Atomics" if is_atomic(request) => true,
            _ => self.orders.under_way.len() < self.orders.depth,
        }
    }

    fn begin(&mut self, request: Request) {
        let Request { operation, at, length, stag, to } = request;
        let data = self.regions[&SINK].data[at..][..length].to_vec();
        match operation {
            Operation::Read => self.ask(request),
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => self.ask_atomic(request),
            Operation::Write => self.write(stag, to, &data),
            Operation::Send { solicited, invalidate } => {
                let kind = match (solicited, invalidate) {
                    (false, false) => Kind::Send,
                    (false, true) => Kind::SendInvalidate,
                    (true, false) => Kind::SendSolicited,
                    (true, true) => Kind::SendSolicitedInvalidate,
                };
                self.long_send(kind, stag, &data);
            }
            Operation::Immediate { solicited } => self.immediate(solicited, to.to_be_bytes()),
            Operation::WriteImmediate { solicited, data: [a, b, c, d] } => {
                let immediate = [a, b, c, d, 0, 0, 0, 0];
                if self.is("sends Immediate Data in front of their Write") {
                    self.immediate(solicited, immediate);
                    return self.write(stag, to, &data);
                }
                self.write(stag, to, &data);
                self.immediate(solicited, immediate);
            }
        }
    }

    fn immediate(&mut self, solicited: bool, data: [u8; 8]) {
        let solicits = solicited && !self.is("forgets to solicit Immediate Data");
        let kind = if solicits { Kind::ImmediateSolicited } else { Kind::Immediate };
        let len = if self.is("sends four bytes of Immediate Data") { 4 } else { data.len() };
        self.send(kind, &data[..len]);
        if self.is("numbers no Immediate Data") {
            self.sent[0] -= 1;
        }
    }

    fn ask(&mut self, request: Request) {
        let mut said = ReadRequest {
            sink_stag: SINK,
            sink_to: request.at as u64,
            size: request.length as u32,
            source_stag: request.stag,
            source_to: request.to,
        };
        said.size -= u32::from(self.is("asks for a byte too few"));
        said.source_to ^= u64::from(self.is("asks for another place"));
        said.source_stag ^= u32::from(self.is("asks for other memory"));
        let mut bytes = said.encode();
        if self.is("asks in a header that is too long") {
            bytes.push(0);
        }
        let kind = if self.is("asks by a Send") { Kind::Send } else { Kind::ReadRequest };
        self.send(kind, &bytes);
        self.orders.under_way.push_back((request, 0));
    }

    /// The oldest request is answered.
    pub(super) fn is_answered(&mut self) {
        self.orders.under_way.pop_front();
        self.go_on();
    }

    /// Takes a segment of a Read Response.
    pub(super) fn answered(&mut self, stag: u32, to: u64, segment: &Segment) -> Result<(), Fault> {
        let len = segment.payload.len() as u32;
        let Some(&(due, came)) = self.orders.under_way.front() else {
            return if self.is("takes answers that nobody asked for") {
                Ok(())
            } else {
                Err(rdmap(6))
            };
        };
        if is_atomic(&due) && !self.is("takes Read Responses for Atomics") {
            return Err(rdmap(6));
        }
        let (destination, size) = (due.at as u64 + u64::from(came), due.length as u32);
        if len > 0 && !is_atomic(&due) {
            if stag != SINK && !self.is("takes answers to any STag") {
                return Err(ddp(1, 0));
            }
            if to != destination && !self.is("takes answers to any place") {
                return Err(ddp(1, 1));
            }
            if came + len > size && !self.is("takes answers of any length") {
                return Err(ddp(1, 1));
            }
        }
        let data = &mut self.regions.get_mut(&SINK).expect("there").data;
        let places = destination as usize..;
        if self.wrong != "places no answers" {
            for (at, byte) in places.zip(&segment.payload) {
                if let Some(destination) = data.get_mut(at) {
                    *destination = *byte;
                }
            }
        }
        self.orders.under_way[0].1 += len;
        if !segment.is_last() && !self.is("is done with the first segment") {
            return Ok(());
        }
        if came + len < size && segment.is_last() {
            return Err(rdmap(7));
        }
        self.is_answered();
        Ok(())
    }

    fn write(&mut self, stag: u32, to: u64, data: &[u8]) {
        let pieces = data.chunks(PIECE).count().max(1);
        for number in 0..pieces {
            let at = number * PIECE;
            let piece = data[at..].chunks(PIECE).next().unwrap_or_default();
            let offset = if self.is("writes each segment to the same place") { 0 } else { at };
            let changed = u32::from(number > 0 && self.is("changes the STag inside a Write"));
            let destination =
                Destination::Tagged { stag: stag ^ changed, to: to.wrapping_add(offset as u64) };
            let last = number + 1 == pieces || self.is("says last in each segment");
            self.segment(Kind::Write, destination, last, piece);
            if number == 0 && pieces > 1 && self.is("sends inside a Write") {
                self.send(Kind::Send, b"inside");
            }
        }
    }

    fn long_send(&mut self, kind: Kind, stag: u32, data: &[u8]) {
        let kind = match kind {
            Kind::SendSolicited if self.is("forgets to solicit") => Kind::Send,
            Kind::SendSolicitedInvalidate if self.is("forgets to solicit an invalidation") => {
                Kind::SendInvalidate
            }
            kind => kind,
        };
        let names = kind.invalidates() && !self.is("names nothing to invalidate");
        let invalidate = if names || self.is("always names an STag") { stag | 1 } else { 0 };
        let invalidate = if names { stag } else { invalidate };
        let data = if self.is("sends no more than a segment") {
            &data[..data.len().min(PIECE)]
        } else {
            data
        };
        let msn = self.number(0);
        let pieces = data.chunks(PIECE).count().max(1);
        for number in 0..pieces {
            let at = number * PIECE;
            let piece = data[at..].chunks(PIECE).next().unwrap_or_default();
            let mo = if self.is("counts no MO") { 0 } else { at as u32 };
            let msn = msn + u32::from(number > 0 && self.is("counts MSNs by segments"));
            let destination = Destination::Untagged { invalidate, qn: 0, msn, mo };
            self.segment(kind, destination, number + 1 == pieces, piece);
        }
    }
}

/// True if a work request is answered by the tester.
fn is_asked_for(request: &Request) -> bool {
    request.operation == Operation::Read || is_atomic(request)
}

pub(super) fn is_atomic(request: &Request) -> bool {
    matches!(request.operation, Operation::FetchAdd { .. } | Operation::CompareSwap { .. })
}
