//! Reads and Atomics under way: what was asked of the peer (bounded by ORD), and what the peer
//! asked (bounded by IRD). Both kinds share queue number 1, its MSNs and these bounds
//! (RFC 5040 §6.1, RFC 7306 §5.2).

use alloc::collections::VecDeque;

use crate::memory::AtomicOp;
use crate::rdmap::wire::ReadRequest;
use crate::types::{Msn, Stag, TaggedOffset};

/// A request of ours that the peer has not fully answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outstanding {
    /// MSN of the request on queue 1.
    pub(crate) msn: Msn,
    /// Its work request; `None` for the RTR Read, which has none.
    pub(crate) wqe: Option<u64>,
    pub(crate) awaits: Awaits,
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
    next_msn: Msn,
    serial: u32,
}

impl OutboundReads {
    pub(crate) const fn new(depth: usize) -> Self {
        Self { queue: VecDeque::new(), depth, next_msn: Msn::FIRST, serial: 0 }
    }

    /// ORD.
    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.depth
    }

    /// A number that no request under way uses, for sink STags and request identifiers.
    pub(crate) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    /// Records a request before any octet of it is built, so that no answer can be too early.
    pub(crate) fn push(&mut self, wqe: Option<u64>, awaits: Awaits) -> Msn {
        let msn = self.next_msn;
        self.next_msn = msn.next();
        self.queue.push_back(Outstanding { msn, wqe, awaits });
        msn
    }

    /// The request whose answer is due next: answers come in the order of requests.
    pub(crate) fn front(&mut self) -> Option<&mut Outstanding> {
        self.queue.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<Outstanding> {
        self.queue.pop_front()
    }

    /// The work request that sent request `msn`.
    pub(crate) fn request_with(&self, msn: Msn) -> Option<u64> {
        self.queue.iter().find(|request| request.msn == msn).and_then(|request| request.wqe)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// A request of the peer's that has not been fully answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Read(ReadRequest),
    Atomic { request_id: u32, stag: Stag, to: TaggedOffset, op: AtomicOp },
}

/// Inbound read queue: each entry with the header that asked, for the Terminate that may
/// have to quote it.
#[derive(Debug)]
pub(crate) struct InboundReads {
    queue: VecDeque<(Asked, [u8; crate::ddp::wire::UNTAGGED_LEN])>,
    depth: usize,
}

impl InboundReads {
    pub(crate) const fn new(depth: usize) -> Self {
        Self { queue: VecDeque::new(), depth }
    }

    /// IRD.
    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests that may still arrive.
    pub(crate) fn free(&self) -> u32 {
        (self.depth - self.queue.len()) as u32
    }

    pub(crate) fn push(&mut self, asked: Asked, header: [u8; crate::ddp::wire::UNTAGGED_LEN]) {
        self.queue.push_back((asked, header));
    }

    pub(crate) fn front(&self) -> Option<&(Asked, [u8; crate::ddp::wire::UNTAGGED_LEN])> {
        self.queue.front()
    }

    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}
