// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads and Atomics under way: what was asked of the peer (bounded by ORD), and what the peer
//! asked (bounded by IRD). Both kinds share queue number 1, its MSNs and these bounds
//! (RFC 5040 §6.1, RFC 7306 §5.2).
//!
//! The sink STag of a Read (top bit set, then a serial number) names nothing in the STag table,
//! whose indices stay below 2^23. A Read Response is matched against the outbound read queue: STag,
//! TO and length must be the expected ones. So the peer can use the sink for nothing else, scatter
//! lists of Reads cost no registration, and nothing needs revoking afterwards.

use alloc::collections::{TryReserveError, VecDeque};

use iwarp_types::{AtomicOp, Stag, TaggedOffset};

use crate::rdmap::wire::ReadRequest;
use crate::types::Msn;

/// A request of ours that the peer has not fully answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outstanding {
    /// MSN of the request on queue 1.
    pub(crate) msn: Msn,
    pub(crate) purpose: Purpose,
    pub(crate) awaits: Awaits,
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// This work request.
    Request(u64),
    /// The frame that a peer-to-peer connection begins with.
    Rtr,
    /// Its answer tells that the peer has all work requests before this number.
    Acknowledgement(u64),
}

impl Outstanding {
    /// Its work request, where it is for one.
    pub(crate) const fn wqe(&self) -> Option<u64> {
        match self.purpose {
            Purpose::Request(number) => Some(number),
            Purpose::Rtr | Purpose::Acknowledgement(_) => None,
        }
    }
}

/// The answer that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// A Read Response of `size` octets to `sink_stag`, of which `received` have come.
    Read { sink_stag: Stag, sink_to: TaggedOffset, size: u32, received: u32 },
    /// An Atomic Response.
    Atomic { request_id: u32 },
}

/// Outbound read queue.
#[derive(Debug)]
pub(crate) struct OutboundReads {
    queue: VecDeque<Outstanding>,
    depth: usize,
    spare: usize,
    /// One of them is an acknowledgement, at most.
    acknowledging: bool,
    next_msn: Msn,
    serial: u32,
}

impl OutboundReads {
    /// The program may use `depth`; `spare` more are for acknowledgements.
    pub(crate) const fn new(depth: usize, spare: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            depth,
            spare,
            acknowledging: false,
            next_msn: Msn::FIRST,
            serial: 0,
        }
    }

    /// Makes room for all there can be, so that none needs any later.
    pub(crate) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.queue.try_reserve_exact(self.depth + self.spare)
    }

    /// ORD, as the program knows it.
    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }

    /// ORD, as the peer knows it.
    pub(crate) const fn all(&self) -> usize {
        self.depth + self.spare
    }

    /// True if a request of the program's is under way.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests() > 0
    }

    /// True if another request of the program's must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.requests() >= self.depth || self.queue.len() >= self.all()
    }

    /// True if a request for an acknowledgement may be sent: one at a time.
    pub(crate) fn may_acknowledge(&self) -> bool {
        !self.acknowledging && self.queue.len() < self.all()
    }

    fn requests(&self) -> usize {
        self.queue.len() - usize::from(self.acknowledging)
    }

    /// A number that no request under way uses, for sink STags and request identifiers.
    pub(crate) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    /// Records a request before any octet of it is built, so that no answer can be too early.
    pub(crate) fn push(&mut self, purpose: Purpose, awaits: Awaits) -> Msn {
        let msn = self.next_msn;
        self.next_msn = msn.next();
        self.acknowledging |= matches!(purpose, Purpose::Acknowledgement(_));
        self.queue.push_back(Outstanding { msn, purpose, awaits });
        msn
    }

    /// The request whose answer is due next: answers come in the order of requests.
    pub(crate) fn front(&mut self) -> Option<&mut Outstanding> {
        self.queue.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<Outstanding> {
        let answered = self.queue.pop_front()?;
        self.acknowledging &= !matches!(answered.purpose, Purpose::Acknowledgement(_));
        Some(answered)
    }

    /// The work request that sent request `msn`.
    pub(crate) fn request_with(&self, msn: Msn) -> Option<u64> {
        self.queue.iter().find(|request| request.msn == msn).and_then(Outstanding::wqe)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.acknowledging = false;
    }
}

/// A request of the peer's that has not been fully answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Read(ReadRequest),
    Atomic { request_id: u32, stag: Stag, to: TaggedOffset, op: AtomicOp },
}

/// A request with the header that asked, for the Terminate that may have to quote it.
type Request = (Asked, [u8; crate::ddp::wire::UNTAGGED_LEN]);

/// The messages that stood before a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    /// Messages that came before their receive ([`Config::park`](crate::qp::Config::park)).
    pub(crate) late: u64,
    /// All, Writes of nothing included.
    pub(crate) all: u64,
}

/// Inbound read queue: each request with what stood before it.
#[derive(Debug)]
pub(crate) struct InboundReads {
    queue: VecDeque<(Request, Before)>,
    depth: usize,
    spare: usize,
}

impl InboundReads {
    /// The program knows of `depth`; `spare` more are for the peer's acknowledgements.
    pub(crate) const fn new(depth: usize, spare: usize) -> Self {
        Self { queue: VecDeque::new(), depth, spare }
    }

    /// Makes room for all there can be, so that none needs any later.
    pub(crate) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.queue.try_reserve_exact(self.depth + self.spare)
    }

    /// IRD, as the program knows it.
    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests that may still arrive.
    pub(crate) fn free(&self) -> u32 {
        (self.depth + self.spare - self.queue.len()) as u32
    }

    /// A request that stands behind these messages.
    pub(crate) fn push(&mut self, request: Request, before: Before) {
        self.queue.push_back((request, before));
    }

    pub(crate) fn front(&self) -> Option<&Request> {
        self.queue.front().map(|(request, _)| request)
    }

    /// True if the oldest may be answered when so many late messages are delivered.
    pub(crate) fn is_due(&self, delivered: u64) -> bool {
        self.queue.front().is_some_and(|(_, before)| before.late <= delivered)
    }

    /// True if the newest may not be answered before more late messages than these are delivered.
    pub(crate) fn waits(&self, delivered: u64) -> bool {
        self.queue.back().is_some_and(|(_, before)| before.late > delivered)
    }

    /// True if the oldest is a Read of no octets, which asks whether what came before it has
    /// arrived.
    pub(crate) fn begins_with_an_empty_one(&self) -> bool {
        self.front().is_some_and(is_empty)
    }

    /// True if the only request is such a Read.
    pub(crate) fn only_asks_whether_it_arrived(&self) -> bool {
        self.queue.len() == 1 && self.begins_with_an_empty_one()
    }

    /// The oldest was answered: the messages that stood before it.
    pub(crate) fn pop(&mut self) -> Option<Before> {
        self.queue.pop_front().map(|(_, before)| before)
    }

    /// True if any request is other than a Read of no octets.
    pub(crate) fn ask_for_more(&self) -> bool {
        self.queue.iter().any(|(request, _)| !is_empty(request))
    }

    /// Drops all but the Reads of no octets at the front, which ask no more than whether what
    /// came before them has arrived, as long as it has: `delivered` late messages were. Returns
    /// whether any are left.
    pub(crate) fn keep_empty(&mut self, delivered: u64) -> bool {
        let says_so =
            |(request, before): &&(Request, Before)| is_empty(request) && before.late <= delivered;
        let keep = self.queue.iter().take_while(says_so).count();
        self.queue.truncate(keep);
        keep > 0
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// True if the request is a Read of no octets.
const fn is_empty(request: &Request) -> bool {
    matches!(request.0, Asked::Read(ReadRequest { size: 0, .. }))
}
