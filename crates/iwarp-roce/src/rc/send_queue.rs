// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send queue: posted requests, and the packets that they take.
//!
//! Packets are numbered from 0 on without wrapping; a PSN is the low bits of such a number, behind
//! the first PSN. A Read takes a number for each packet of its answer (ROCE-044).

use iwarp_types::{
    AccessError, AtomicOp, Awaits, Event, Limits, OldestSend, PostError, QpId, Refusal, Ring,
    SendOp, SendRequest, WcStatus, WorkCompletion,
};

use super::pace::OVERHEAD;
use super::timer::Timer;
use crate::payload::Stored;

/// A posted send work request.
#[derive(Debug)]
pub(super) struct SendWqe {
    wr_id: u64,
    pub(super) op: SendOp,
    pub(super) payload: Stored,
    pub(super) length: u32,
    signaled: bool,
    pub(super) fence: bool,
    /// Number of its first packet, once it is started.
    pub(super) first: u64,
    /// Numbers that it takes; none for a local operation.
    packets: u32,
    /// Weight of all packets before its first.
    weight: u64,
}

impl Default for SendWqe {
    fn default() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::SEND,
            payload: Stored::default(),
            length: 0,
            signaled: false,
            fence: false,
            first: 0,
            packets: 0,
            weight: 0,
        }
    }
}

impl SendWqe {
    /// Number of the packet behind its last.
    #[inline]
    pub(super) const fn end(&self) -> u64 {
        self.first + self.packets as u64
    }

    /// True if only an answer of its own ends it (ROCE-049).
    #[inline]
    pub(super) const fn awaits_answer(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::Atomic { .. })
    }

    /// True for a Read of no octets. An answer to a later request tells as much as its own, which
    /// some responders (rxe) do not repeat if it is lost.
    #[inline]
    pub(super) const fn is_empty_read(&self) -> bool {
        matches!(self.op, SendOp::Read { invalidate: None, .. }) && self.length == 0
    }

    /// Weight of all packets before this one of its own, or the one behind its last.
    #[inline]
    pub(super) const fn weight_before(&self, packet: u64, mtu: usize) -> u64 {
        let index = packet - self.first;
        let octets = index * mtu as u64;
        let length = self.length as u64;
        self.weight + index * OVERHEAD + if octets < length { octets } else { length }
    }

    /// Describes the request, refused by this end's memory.
    #[cold]
    pub(super) fn refused_here(&self, error: AccessError) -> Refusal {
        Refusal::of_own(self.wr_id, &self.op, self.payload.sges(), error)
    }

    /// Describes the request, refused by the peer.
    #[cold]
    pub(super) fn refused_there(&self) -> Refusal {
        Refusal::by_peer(self.wr_id, &self.op, self.length)
    }

    #[inline]
    const fn completion(&self, qp: QpId, status: WcStatus) -> WorkCompletion {
        let mut completion = WorkCompletion::new(self.wr_id, qp, self.op.completes_as(), status);
        completion.byte_len = self.length;
        completion
    }
}

/// Posted requests in order: those before `unstarted` have their packets.
#[derive(Debug)]
pub(super) struct SendQueue {
    ring: Ring<SendWqe>,
    unstarted: u64,
    /// Octets of all payloads that were posted.
    octets: u64,
    /// Requests that succeeded without a completion (ROCE-072) since the last one that has one.
    silent: u32,
}

impl SendQueue {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { ring: Ring::new(capacity), unstarted: 0, octets: 0, silent: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.ring.len()
    }

    /// Number of the oldest request.
    pub(super) const fn head(&self) -> u64 {
        self.ring.head()
    }

    /// Octets of all payloads that were posted.
    pub(super) const fn octets(&self) -> u64 {
        self.octets
    }

    /// Number of the first request that was not started.
    #[inline]
    pub(super) const fn unstarted(&self) -> u64 {
        self.unstarted
    }

    /// True if a request was started and has not completed.
    pub(super) const fn has_started(&self) -> bool {
        self.ring.head() != self.unstarted
    }

    pub(super) fn post(&mut self, limits: &Limits, wr: &SendRequest<'_>) -> Result<(), PostError> {
        if !is_known(&wr.op) {
            return Err(PostError::Invalid);
        }
        let length = wr.check(limits)?;
        if self.ring.is_full() {
            return Err(PostError::QueueFull);
        }
        let slot = self.ring.next_slot()?;
        slot.wr_id = wr.wr_id;
        slot.op = wr.op;
        slot.signaled = wr.signaled;
        slot.fence = wr.fence;
        slot.length = length;
        slot.payload.set(wr.payload)?;
        self.ring.push();
        self.octets += u64::from(length);
        Ok(())
    }

    /// The request of that number.
    #[inline]
    pub(super) fn at(&mut self, number: u64) -> &mut SendWqe {
        self.ring.at(number)
    }

    /// The first request that was not started.
    #[inline]
    pub(super) fn first_unstarted(&mut self) -> Option<&mut SendWqe> {
        if self.unstarted == self.ring.tail() { None } else { Some(self.ring.at(self.unstarted)) }
    }

    /// The oldest request, of which `next` is the first packet that was not sent, for people.
    pub(super) fn oldest(&mut self, next: u64, timer: &Timer) -> Option<OldestSend> {
        let has_started = self.has_started();
        let wqe = self.ring.front()?;
        let tries = timer.tries();
        let awaits = match timer.rnr_tries() {
            Some(tries) => Awaits::Receive { tries },
            None if !has_started || next < wqe.end() => Awaits::Transmission,
            None if wqe.awaits_answer() => Awaits::Answer { tries },
            None => Awaits::Acknowledgement { tries },
        };
        let SendWqe { wr_id, op, length, .. } = wqe;
        Some(OldestSend { wr_id: *wr_id, op: op.completes_as(), length: *length, awaits })
    }

    /// The oldest request, if it was started.
    #[inline]
    pub(super) fn oldest_started(&mut self) -> Option<&mut SendWqe> {
        if self.has_started() { self.ring.front() } else { None }
    }

    /// Gives the first request that was not started its packets: the first is `first`, and all
    /// before it weigh `weight`.
    #[inline]
    pub(super) fn start(&mut self, first: u64, weight: u64, mtu: usize) {
        let wqe = self.ring.at(self.unstarted);
        wqe.first = first;
        wqe.weight = weight;
        wqe.packets = match wqe.op {
            SendOp::Bind(_) | SendOp::LocalInvalidate(_) => 0,
            SendOp::Atomic { .. } => 1,
            _ => wqe.length.div_ceil(mtu as u32).max(1),
        };
        self.unstarted += 1;
    }

    /// Number of the started request that has this packet, or else of the first unstarted one.
    /// Requests before `from` do not have it.
    pub(super) fn find(&mut self, packet: u64, from: u64) -> u64 {
        let mut number = from.max(self.head());
        while number < self.unstarted && self.ring.at(number).end() <= packet {
            number += 1;
        }
        number
    }

    /// Completes the oldest request with success.
    #[inline]
    pub(super) fn complete(&mut self, qp: QpId, tell: impl FnMut(Event)) {
        let Some(wqe) = self.ring.front() else { return };
        if wqe.signaled {
            let completion = wqe.completion(qp, WcStatus::Success);
            self.tell(completion, tell);
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
        self.ring.pop();
    }

    /// Ends all requests as flushed, but the `failed` one with its status.
    pub(super) fn flush(
        &mut self,
        qp: QpId,
        failed: Option<(u64, WcStatus)>,
        mut tell: impl FnMut(Event),
    ) {
        // An answer that is lost cannot be asked for again, though later requests were executed.
        let mut lost = failed.is_some_and(|(number, _)| number > self.head());
        while let Some(wqe) = self.ring.front() {
            let mut completion = wqe.completion(qp, WcStatus::Flushed);
            completion.status = match failed {
                Some((number, status)) if number == self.ring.head() => status,
                _ if core::mem::take(&mut lost) => WcStatus::RetryExceeded,
                _ => WcStatus::Flushed,
            };
            self.tell(completion, &mut tell);
            self.ring.pop();
        }
        self.unstarted = self.ring.tail();
    }

    #[inline]
    fn tell(&mut self, completion: WorkCompletion, mut tell: impl FnMut(Event)) {
        if self.silent > 0 {
            tell(Event::SilentSends(core::mem::take(&mut self.silent)));
        }
        tell(Event::SendCompleted(completion));
    }
}

/// True if RoCE has the operation: its Atomics have no masks, and immediate data alone are iWARP's.
const fn is_known(op: &SendOp) -> bool {
    match op {
        SendOp::Write { .. }
        | SendOp::Send { .. }
        | SendOp::SendImmediate { .. }
        | SendOp::WriteImmediate { .. }
        | SendOp::Read { .. }
        | SendOp::Bind(_)
        | SendOp::LocalInvalidate(_) => true,
        SendOp::Atomic { op: AtomicOp::FetchAdd { mask, .. }, .. } => *mask == 0,
        SendOp::Atomic { op: AtomicOp::CompareSwap { compare_mask, swap_mask, .. }, .. } => {
            *compare_mask == u64::MAX && *swap_mask == u64::MAX
        }
        _ => false,
    }
}
