// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send queue.

use alloc::vec::Vec;

use iwarp_types::{
    AccessError, Awaits, Limits, OldestSend, Payload, PostError, QpId, Refusal, Ring, SendOp,
    SendRequest, Sge, Stag, TaggedOffset, WcStatus, WorkCompletion, list::refill,
};

use crate::qp::{Config, Event, WaitingRequest, short};
use crate::rdmap::error::RdmapError;
use crate::types::Msn;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Progress {
    /// Not looked at yet.
    #[default]
    Posted,
    /// Its segments are being built, or its answer is awaited.
    Started,
    /// All its octets are built; they end at this position of the stream.
    Built(u64),
    /// The stream took its octets, up to this position; that the peer has them is not known yet.
    Sent(u64),
    /// It ended.
    Done(WcStatus),
}

/// A posted send work request.
#[derive(Debug)]
pub(crate) struct SendWqe {
    wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: Vec<u8>,
    is_inline: bool,
    pub(crate) length: u32,
    signaled: bool,
    fence: bool,
    /// MSN of its message on queue 0, where it has one.
    pub(crate) msn: Option<Msn>,
    /// Messages that were built up to the last of its own; of a one-way request that is built,
    /// where acknowledgements are waited for.
    messages: u64,
    /// The position of the stream at which it ends; likewise.
    end: u64,
    progress: Progress,
}

impl Default for SendWqe {
    fn default() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::Write { stag: Stag(0), to: TaggedOffset(0) },
            sges: Vec::new(),
            inline: Vec::new(),
            is_inline: false,
            length: 0,
            signaled: false,
            fence: false,
            msn: None,
            messages: 0,
            end: 0,
            progress: Progress::Posted,
        }
    }
}

impl SendWqe {
    pub(crate) const fn is_inline(&self) -> bool {
        self.is_inline
    }

    pub(crate) const fn fenced(&self) -> bool {
        self.fence
    }

    /// The request as it was posted.
    fn request(&self) -> SendRequest<'_> {
        let payload = match self.is_inline {
            true => Payload::Inline(&self.inline),
            false => Payload::Sges(&self.sges),
        };
        let mut request = SendRequest::new(self.wr_id, self.op, payload);
        (request.signaled, request.fence) = (self.signaled, self.fence);
        request
    }

    /// The request as it is known where this end's memory refused it.
    #[cold]
    pub(crate) fn refused_here(&self, error: AccessError) -> Refusal {
        Refusal::of_own(self.wr_id, &self.op, &self.sges, error)
    }

    /// The request as it is known where the peer refused it.
    #[cold]
    pub(crate) fn refused_there(&self) -> Refusal {
        Refusal::by_peer(self.wr_id, &self.op, self.length)
    }

    /// True if its last message is one that a farewell counts: one for queue 0, or a Write of
    /// something.
    const fn ends_in_a_message(&self) -> bool {
        match self.op {
            SendOp::Send { .. }
            | SendOp::SendImmediate { .. }
            | SendOp::Immediate { .. }
            | SendOp::WriteImmediate { .. } => true,
            SendOp::Write { .. } => self.length > 0,
            _ => false,
        }
    }

    /// True unless its completion was told, or will be.
    const fn may_be_refused(&self) -> bool {
        match self.progress {
            Progress::Done(WcStatus::Success) => self.op.is_one_way() && !self.signaled,
            Progress::Done(_) => false,
            Progress::Posted | Progress::Started | Progress::Built(_) | Progress::Sent(_) => true,
        }
    }

    /// True if all its octets were built, and it has not failed.
    const fn is_built(&self) -> bool {
        matches!(
            self.progress,
            Progress::Built(_) | Progress::Sent(_) | Progress::Done(WcStatus::Success)
        )
    }

    #[inline]
    const fn completion(&self, qp: QpId, status: WcStatus) -> WorkCompletion {
        let mut completion = WorkCompletion::new(self.wr_id, qp, self.op.completes_as(), status);
        completion.byte_len = self.length;
        completion
    }
}

/// An acknowledgement is asked for in the middle of other work when so many requests wait for one
/// ([`Config::acknowledge`]).
const PRESSING: u32 = 16;
/// Or when so many octets would go out before it.
const PRESSING_OCTETS: u64 = 256 * 1024;

/// Posted requests in order: `head..next` are started, `next..tail` wait.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring<SendWqe>,
    next: u64,
    /// Octets of all payloads that were posted.
    octets: u64,
    waiting_for_kind: bool,
    /// Started one-way requests of which octets are to be built or taken.
    in_stream: usize,
    /// Requests that ended without a completion since the last one that has one.
    silent: u32,
    /// No request before this one has octets to be taken.
    stream_next: u64,
    /// Behind the last request that is no Write, Read or Atomic.
    others_below: u64,
    /// The position of the stream at which the last of them ends that was built.
    others_end: u64,
    acks: Acknowledgements,
    /// Requests at which the peer's words had this end look.
    #[cfg(test)]
    pub(crate) looked_at: u64,
}

/// Which signalled one-way requests the peer is known to have received.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledgements {
    /// They are waited for.
    on: bool,
    /// Behind the last request that waits for one.
    wanted: u64,
    /// The request that was answered last, or will be answered next, stands behind all requests
    /// before this one; or the peer has said that it has received them.
    covered: u64,
    /// The peer has all requests before this one.
    arrived: u64,
    /// Requests, and their octets, that want an acknowledgement and none is under way.
    pending: u32,
    pending_octets: u64,
    /// Messages that were built so far, as a farewell counts them.
    messages: u64,
    /// The number of them that the peer has said last.
    told: u64,
    /// The first request of which that number says nothing.
    told_below: u64,
}

impl SendQueue {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            next: 0,
            octets: 0,
            waiting_for_kind: false,
            in_stream: 0,
            silent: 0,
            stream_next: 0,
            others_below: 0,
            others_end: 0,
            acks: Acknowledgements {
                on: false,
                wanted: 0,
                covered: 0,
                arrived: 0,
                pending: 0,
                pending_octets: 0,
                messages: 0,
                told: 0,
                told_below: 0,
            },
            #[cfg(test)]
            looked_at: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes out everything, in order, as it was posted.
    pub(crate) fn take_out(&mut self, mut take: impl FnMut(&SendRequest<'_>)) {
        while let Some(wqe) = self.ring.front() {
            take(&wqe.request());
            self.ring.pop();
        }
        self.next = self.ring.head();
    }

    /// Requests that have ended.
    pub(crate) const fn ended(&self) -> u64 {
        self.ring.head()
    }

    /// Octets of all payloads that were posted.
    pub(crate) const fn octets(&self) -> u64 {
        self.octets
    }

    /// The oldest request, for people.
    pub(crate) fn oldest_standing(&mut self) -> Option<OldestSend> {
        let wqe = self.ring.front()?;
        let awaits = match wqe.progress {
            Progress::Started if wqe.op.awaits_answer() => Awaits::Answer { tries: 0 },
            Progress::Posted | Progress::Started | Progress::Built(_) => Awaits::Transmission,
            Progress::Sent(_) | Progress::Done(_) => Awaits::Acknowledgement { tries: 0 },
        };
        let SendWqe { wr_id, op, length, .. } = wqe;
        Some(OldestSend { wr_id: *wr_id, op: op.completes_as(), length: *length, awaits })
    }

    /// The first request that was not started.
    pub(crate) fn next_waiting(&mut self) -> Option<WaitingRequest<'_>> {
        let oldest = self.ring.head();
        let others_end = (self.others_below <= oldest).then_some(self.others_end);
        let (number, wqe) = self.next_unstarted()?;
        Some(WaitingRequest { number, oldest, request: wqe.request(), others_end })
    }

    /// The number of the first request that was not started.
    pub(crate) const fn next_number_is(&self, number: u64) -> bool {
        self.next == number && self.ring.head() == number && self.ring.tail() > number
    }

    /// True if a request was started and has not completed.
    pub(crate) const fn has_started(&self) -> bool {
        self.ring.head() != self.next
    }

    /// True if all requests were started, and acknowledgements are not awaited.
    pub(crate) const fn is_started(&self) -> bool {
        self.ring.tail() == self.next && !self.acks.on
    }

    /// Number of the request that was posted last.
    pub(crate) const fn last_posted(&self) -> u64 {
        self.ring.tail() - 1
    }

    /// The request at the front of those that wait is held up until it is known what the peer
    /// can do.
    pub(crate) const fn waits_for_peer_kind(&self) -> bool {
        self.waiting_for_kind
    }

    pub(crate) fn set_waits_for_peer_kind(&mut self, waits: bool) {
        self.waiting_for_kind = waits;
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, config: &Config, wr: &SendRequest<'_>) -> Result<(), PostError> {
        let length = check(config, wr)?;
        if self.ring.is_full() {
            return Err(PostError::QueueFull);
        }
        let slot = self.ring.next_slot()?;
        // First what may fail: the slot tells of an earlier request until it is another's.
        let is_inline = match wr.payload {
            Payload::Sges(sges) => {
                refill(&mut slot.sges, sges)?;
                slot.inline.clear();
                false
            }
            Payload::Inline(octets) => {
                refill(&mut slot.inline, octets)?;
                slot.sges.clear();
                true
            }
            _ => return Err(PostError::Invalid),
        };
        slot.is_inline = is_inline;
        slot.wr_id = wr.wr_id;
        slot.op = wr.op;
        slot.signaled = wr.signaled;
        slot.fence = wr.fence;
        slot.length = length;
        slot.msn = None;
        slot.progress = Progress::Posted;
        self.ring.push();
        self.octets += u64::from(length);
        if !wr.op.is_one_sided() {
            self.others_below = self.ring.tail();
        }
        Ok(())
    }

    /// True if [`Self::post`] would take the request, but for a want of memory.
    pub(crate) fn would_take(&self, config: &Config, wr: &SendRequest<'_>) -> bool {
        check(config, wr).is_ok() && !self.ring.is_full()
    }

    /// The first request that was not started, with its number.
    #[inline(always)]
    pub(crate) fn next_unstarted(&mut self) -> Option<(u64, &mut SendWqe)> {
        if self.has_none_waiting() {
            return None;
        }
        if self.ring.at(self.next).progress != Progress::Posted {
            self.skip_ended();
            if self.has_none_waiting() {
                return None;
            }
        }
        Some((self.next, self.ring.at(self.next)))
    }

    /// Goes past requests that have ended before they were started.
    #[cold]
    fn skip_ended(&mut self) {
        while !self.has_none_waiting() && self.ring.at(self.next).progress != Progress::Posted {
            self.next += 1;
        }
    }

    /// True if no request waits to be started.
    #[inline]
    pub(crate) const fn has_none_waiting(&self) -> bool {
        self.ring.tail() == self.next
    }

    /// Marks the first waiting request, which is a one-way one, as started.
    #[inline]
    pub(crate) fn start_one_way(&mut self) {
        self.ring.at(self.next).progress = Progress::Started;
        self.in_stream += 1;
        self.next += 1;
    }

    /// Marks the first waiting request as started.
    pub(crate) fn start(&mut self) {
        let wqe = self.ring.at(self.next);
        wqe.progress = Progress::Started;
        self.in_stream += usize::from(wqe.op.is_one_way());
        self.next += 1;
    }

    pub(crate) fn at(&mut self, number: u64) -> &mut SendWqe {
        self.ring.at(number)
    }

    /// All octets of a request are built and end at `position`; it is done when they are taken.
    #[inline]
    pub(crate) fn built(&mut self, number: u64, position: u64) {
        let wqe = self.ring.at(number);
        if wqe.progress != Progress::Started {
            return;
        }
        wqe.progress = Progress::Built(position);
        if number < self.others_below && !wqe.op.is_one_sided() {
            self.others_end = position;
        }
        if self.acks.on {
            self.acks.messages += u64::from(wqe.ends_in_a_message());
            wqe.messages = self.acks.messages;
            wqe.end = position;
            if wqe.signaled {
                self.acks.wanted = number + 1;
                self.acks.pending += 1;
                self.acks.pending_octets += u64::from(wqe.length);
            }
        }
    }

    /// A message that no request asked for goes out in front of them.
    pub(crate) const fn count_own_message(&mut self) {
        self.acks.messages += 1;
    }

    /// The Write of a Write with immediate data was built, which the peer counts by itself.
    pub(crate) fn built_prelude(&mut self, number: u64) {
        if self.acks.on {
            self.acks.messages += u64::from(self.ring.at(number).length > 0);
        }
    }

    /// The peer says that it has received the first `received` messages, which it may say at any
    /// time: requests that end among them need no other acknowledgement. A number cannot be less
    /// than the one before; one that is not more may yet speak of Writes of nothing.
    ///
    /// Each request is looked at once, however often the peer speaks.
    pub(crate) fn told_received(&mut self, received: u64) -> Result<(), RdmapError> {
        if !self.acks.on {
            return Ok(());
        }
        if received > self.acks.messages {
            return Err(RdmapError::Stream("more messages are said to be received than were sent"));
        }
        if received < self.acks.told {
            return Err(RdmapError::Stream("fewer messages are said to be received than before"));
        }
        self.acks.told = received;
        let mut below = 0;
        let mut number = self.acks.told_below.max(self.ring.head());
        while number < self.next {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let wqe = self.ring.at(number);
            let is_built = wqe.is_built();
            if wqe.op.is_one_way() {
                if wqe.progress == Progress::Started || (is_built && wqe.messages > received) {
                    break;
                }
                if is_built {
                    below = number + 1;
                    if wqe.signaled && number >= self.acks.covered {
                        self.acks.pending -= 1;
                        self.acks.pending_octets -= u64::from(wqe.length);
                    }
                }
            }
            number += 1;
        }
        self.acks.told_below = number;
        self.acks.covered = self.acks.covered.max(below);
        self.acknowledged(below);
        Ok(())
    }

    /// Behind the last request whose octets all stand before `position` of the stream, among those
    /// that wait to be acknowledged.
    pub(crate) fn sent_before(&mut self, position: u64) -> u64 {
        let is_before = |progress| matches!(progress, Progress::Sent(end) if end <= position);
        (self.ring.head()..self.next)
            .rfind(|number| is_before(self.ring.at(*number).progress))
            .map_or(0, |number| number + 1)
    }

    /// The request that the octet at `position` of the stream is part of.
    pub(crate) fn find_built(&mut self, position: u64) -> Option<u64> {
        (self.ring.head()..self.next).find(|number| {
            let wqe = self.ring.at(*number);
            match wqe.progress {
                Progress::Built(end) => position < end,
                Progress::Started => wqe.op.is_one_way(),
                Progress::Posted | Progress::Sent(_) | Progress::Done(_) => false,
            }
        })
    }

    /// A request was carried out where the peer had all before it.
    pub(crate) fn carried_out(&mut self, number: u64) {
        self.acks.arrived = self.acks.arrived.max(number + 1);
        self.complete(number);
    }

    /// A request ended well.
    pub(crate) fn complete(&mut self, number: u64) {
        self.fail(number, WcStatus::Success);
    }

    /// A request ended with `status`.
    pub(crate) fn fail(&mut self, number: u64, status: WcStatus) {
        let wqe = self.ring.at(number);
        match wqe.progress {
            Progress::Done(_) => return,
            Progress::Built(_) => self.in_stream -= 1,
            Progress::Started => self.in_stream -= usize::from(wqe.op.is_one_way()),
            Progress::Posted | Progress::Sent(_) => {}
        }
        wqe.progress = Progress::Done(status);
    }

    /// The stream took all octets up to `position`.
    pub(crate) fn taken(&mut self, position: u64) {
        self.stream_next = self.stream_next.max(self.ring.head());
        while self.stream_next < self.next {
            let number = self.stream_next;
            let wqe = self.ring.at(number);
            match wqe.progress {
                Progress::Built(end) if end <= position => {
                    let waits = self.acks.on && wqe.signaled && number >= self.acks.arrived;
                    wqe.progress =
                        if waits { Progress::Sent(end) } else { Progress::Done(WcStatus::Success) };
                    self.in_stream -= 1;
                }
                Progress::Built(_) => break,
                Progress::Started if wqe.op.is_one_way() => break,
                Progress::Posted | Progress::Started | Progress::Sent(_) | Progress::Done(_) => {}
            }
            self.stream_next += 1;
        }
    }

    /// True if a started request still has octets to build or to be taken.
    pub(crate) const fn waits_for_stream(&self) -> bool {
        self.in_stream > 0
    }

    /// From now on signalled one-way requests complete when the peer has them.
    pub(crate) const fn await_acknowledgements(&mut self) {
        self.acks.on = true;
    }

    /// True if a request was sent that no request under way will acknowledge.
    pub(crate) const fn wants_acknowledgement(&self) -> bool {
        self.acks.wanted > self.acks.covered
    }

    /// True if asking for it should not wait until the next request, of `length` octets, is sent.
    pub(crate) fn acknowledgement_is_pressing(&self, length: u32) -> bool {
        self.acks.pending >= PRESSING
            || self.acks.pending_octets + u64::from(length) > PRESSING_OCTETS
    }

    /// Number of the request that will be started next.
    pub(crate) const fn next_number(&self) -> u64 {
        self.next
    }

    /// A request that the peer will answer stands in the stream behind all before `below`.
    pub(crate) const fn cover(&mut self, below: u64) {
        self.acks.covered = below;
        self.acks.pending = 0;
        self.acks.pending_octets = 0;
    }

    /// The peer has everything before `below`.
    pub(crate) fn acknowledged(&mut self, below: u64) {
        if !self.acks.on {
            return;
        }
        for number in self.acks.arrived.max(self.ring.head())..below {
            let wqe = self.ring.at(number);
            if matches!(wqe.progress, Progress::Sent(_)) {
                wqe.progress = Progress::Done(WcStatus::Success);
            }
        }
        self.acks.arrived = self.acks.arrived.max(below);
    }

    /// The peer has everything before `below`, as it found a fault with that request. This end may
    /// have to learn yet that the stream took it.
    #[cold]
    pub(crate) fn arrived_before(&mut self, below: u64) {
        for number in self.ring.head()..below {
            let wqe = self.ring.at(number);
            if matches!(wqe.progress, Progress::Built(_)) {
                wqe.progress = Progress::Done(WcStatus::Success);
                self.in_stream -= 1;
            }
        }
        self.acknowledged(below);
    }

    /// The peer has everything whose octets stand before `position` of the stream.
    pub(crate) fn acknowledged_before(&mut self, position: u64) {
        if !self.acks.on {
            return;
        }
        let mut number = self.first_unsure();
        while number < self.next {
            let Some(wqe) = self.ring.remembered(number) else { break };
            match wqe.progress {
                Progress::Sent(end) if end <= position => {
                    let length = u64::from(wqe.length);
                    self.ring.at(number).progress = Progress::Done(WcStatus::Success);
                    if number >= self.acks.covered {
                        self.acks.pending -= 1;
                        self.acks.pending_octets -= length;
                    }
                }
                Progress::Sent(_) | Progress::Built(_) => break,
                Progress::Started if wqe.op.is_one_way() => break,
                Progress::Done(_) if wqe.may_be_refused() && wqe.end > position => break,
                Progress::Posted | Progress::Started | Progress::Done(_) => {}
            }
            number += 1;
        }
        self.acks.arrived = number;
        self.acks.covered = self.acks.covered.max(number);
    }

    /// The first request that the peer is not known to have, of those that have no completion and
    /// are remembered.
    fn first_unsure(&self) -> u64 {
        let head = self.ring.head();
        // A program that signals so seldom goes beyond any other device's queue, and its completion
        // queue may have no room.
        let is_forgiven = self.silent as usize >= self.ring.capacity();
        if self.acks.arrived >= head || is_forgiven {
            return self.acks.arrived.max(head);
        }
        let since_completion = head.saturating_sub(self.silent.into());
        self.acks.arrived.max(since_completion).max(self.ring.first_remembered())
    }

    /// True if a request was sent that is not known to have arrived.
    pub(crate) const fn awaits_acknowledgement(&self) -> bool {
        self.acks.on && self.acks.wanted > self.acks.arrived
    }

    /// The oldest request that has not ended and that `is_it` picks; only where acknowledgements
    /// are waited for, as requests that are sent are forgotten elsewhere.
    pub(crate) fn find_sent(&mut self, is_it: impl Fn(&SendWqe) -> bool) -> Option<u64> {
        if !self.acks.on {
            return None;
        }
        (self.ring.head()..self.next).find(|number| {
            let wqe = self.ring.at(*number);
            !matches!(wqe.progress, Progress::Done(_)) && is_it(wqe)
        })
    }

    /// The request that the peer refuses and that `is_it` picks, if acknowledgements are waited
    /// for: the only one that the peer is not known to have and that has no completion; or else the
    /// oldest that has not ended. One that has ended without a completion has not, from now on, nor
    /// have those behind it. `takes_back`: there is room for [so many](Self::may_be_taken_back)
    /// completions more.
    #[cold]
    pub(crate) fn find_refused(
        &mut self,
        takes_back: bool,
        is_it: impl Fn(&SendWqe) -> bool,
    ) -> Option<u64> {
        if !self.acks.on {
            return None;
        }
        let is_refused = |number: &u64| {
            let wqe = self.ring.remembered(*number);
            wqe.is_some_and(|wqe| wqe.may_be_refused() && is_it(wqe))
        };
        let mut refused = (self.first_unsure()..self.next).filter(is_refused);
        let (Some(found), None, true) = (refused.next(), refused.next(), takes_back) else {
            return self.find_sent(is_it);
        };
        self.silent -= self.ring.head().saturating_sub(found) as u32;
        self.ring.take_back(found);
        for number in found..self.next {
            let wqe = self.ring.at(number);
            if matches!(wqe.progress, Progress::Done(_)) && wqe.may_be_refused() {
                wqe.progress = Progress::Sent(0);
            }
        }
        Some(found)
    }

    /// Requests that have ended without a completion and that [`Self::find_refused`] may find.
    pub(crate) fn may_be_taken_back(&self) -> usize {
        self.ring.head().saturating_sub(self.first_unsure()) as usize
    }

    /// The latest request that `is_it` picks, ended or not, as far back as they are remembered.
    #[cold]
    pub(crate) fn find_latest(&self, is_it: impl Fn(&SendWqe) -> bool) -> Option<&SendWqe> {
        self.ring.latest().find(|wqe| is_it(wqe))
    }

    /// The oldest request that has not ended.
    pub(crate) fn oldest(&mut self) -> Option<u64> {
        (self.ring.head()..self.ring.tail())
            .find(|number| !matches!(self.ring.at(*number).progress, Progress::Done(_)))
    }

    /// True if no request waits for anything but the peer's acknowledgement.
    pub(crate) fn awaits_only_acknowledgements(&mut self) -> bool {
        (self.ring.head()..self.ring.tail()).all(|number| {
            matches!(self.ring.at(number).progress, Progress::Sent(_) | Progress::Done(_))
        })
    }

    /// Ends everything that is not done as flushed, and what stands behind that: nothing succeeds
    /// any more once a request has not.
    pub(crate) fn flush(&mut self) {
        self.waiting_for_kind = false;
        self.next = self.ring.tail();
        self.in_stream = 0;
        let mut ended = false;
        for number in self.ring.head()..self.next {
            let progress = &mut self.ring.at(number).progress;
            match progress {
                Progress::Done(WcStatus::Success) if !ended => {}
                Progress::Done(status) if *status != WcStatus::Success => ended = true,
                _ => {
                    ended = true;
                    *progress = Progress::Done(WcStatus::Flushed);
                }
            }
        }
    }

    /// Ends what was not started as flushed.
    pub(crate) fn flush_unstarted(&mut self) {
        self.waiting_for_kind = false;
        for number in self.next..self.ring.tail() {
            self.fail(number, WcStatus::Flushed);
        }
        self.next = self.ring.tail();
    }

    /// Takes the oldest request if it is done, and tells its completion if one is due, and how many
    /// before it had none. False where it is not done, or there is none.
    pub(crate) fn pop_done(&mut self, qp: QpId, tell: impl FnMut(Event)) -> bool {
        let Some(wqe) = self.ring.front() else { return false };
        let Progress::Done(status) = wqe.progress else { return false };
        if wqe.signaled || status != WcStatus::Success {
            let completion = wqe.completion(qp, status);
            self.tell(completion, tell);
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
        self.ring.pop();
        self.next = self.next.max(self.ring.head());
        true
    }

    /// Ends the oldest request well because the stream took all octets up to `position`: does to it
    /// what [`Self::taken`] and [`Self::pop_done`] would do.
    #[inline]
    pub(crate) fn pop_taken(&mut self, position: u64, qp: QpId, tell: impl FnMut(Event)) -> bool {
        let Some(wqe) = self.ring.front() else { return false };
        if !short::ways()
            || self.acks.on
            || !matches!(wqe.progress, Progress::Built(end) if end <= position)
        {
            return false;
        }
        if wqe.signaled {
            let completion = wqe.completion(qp, WcStatus::Success);
            self.tell(completion, tell);
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
        self.in_stream -= 1;
        self.ring.pop();
        true
    }

    #[inline]
    fn tell(&mut self, completion: WorkCompletion, mut tell: impl FnMut(Event)) {
        if self.silent > 0 {
            tell(Event::SilentSends(core::mem::take(&mut self.silent)));
        }
        tell(Event::SendCompleted(completion));
    }
}

/// True if iWARP has the operation: the vocabulary may have others, for other wires.
const fn is_known(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Write { .. }
            | SendOp::Send { .. }
            | SendOp::Immediate { .. }
            | SendOp::SendImmediate { .. }
            | SendOp::WriteImmediate { .. }
            | SendOp::Read { .. }
            | SendOp::Atomic { .. }
            | SendOp::Bind(_)
            | SendOp::LocalInvalidate(_)
    )
}

/// Checks a request against the queue pair's limits and returns the message's length.
#[inline]
fn check(config: &Config, wr: &SendRequest<'_>) -> Result<u32, PostError> {
    if !is_known(&wr.op) {
        return Err(PostError::Invalid);
    }
    wr.check(&Limits { max_send_sge: config.max_send_sge, max_inline: config.max_inline })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: VERBS-hilland-6.2.4-01
    #[test]
    fn requests_behind_a_flushed_one_do_not_succeed() {
        let mut queue = SendQueue::new(4);
        let write = SendOp::Write { stag: Stag(1), to: TaggedOffset(0) };
        let read = SendOp::Read { stag: Stag(1), to: TaggedOffset(0), invalidate: None };
        for (wr_id, op) in [(0, write), (1, read), (2, write), (3, write)] {
            let request = SendRequest::new(wr_id, op, Payload::Inline(&[])).signaled();
            queue.post(&Config::default(), &request).unwrap();
        }
        for number in 0..4 {
            assert_eq!(queue.next_unstarted().unwrap().0, number);
            queue.start();
        }
        queue.built(0, 10);
        queue.built(2, 20);
        queue.built(3, 30);
        queue.taken(20);
        queue.flush();
        let status = |_| {
            let completion = |event| match event {
                Event::SendCompleted(completion) => Some(completion.status),
                _ => None,
            };
            let mut status = None;
            assert!(queue.pop_done(QpId(0), |event| status = completion(event)));
            status.unwrap()
        };
        let ended: [WcStatus; 4] = core::array::from_fn(status);
        assert_eq!(ended[0], WcStatus::Success);
        assert_eq!(ended[1..], [WcStatus::Flushed; 3]);
    }

    /// By the positions at which they end, however the peer's words and the stream's come.
    #[test]
    fn requests_that_the_peer_has_taken_in_are_done() {
        let mut queue = SendQueue::new(8);
        queue.await_acknowledgements();
        for wr_id in 0..6 {
            let request = SendRequest::new(wr_id, SendOp::SEND, Payload::Inline(&[]));
            // One in three asks for no completion.
            let request = if wr_id % 3 == 2 { request } else { request.signaled() };
            queue.post(&Config::default(), &request).unwrap();
            queue.next_unstarted().unwrap();
            queue.start();
            queue.built(wr_id, 10 * (wr_id + 1));
        }
        let done = |queue: &mut SendQueue| {
            let mut count = 0;
            while queue.pop_done(QpId(0), |_| ()) {
                count += 1;
            }
            count
        };
        // The stream has not taken them: the peer cannot have them.
        queue.acknowledged_before(60);
        assert_eq!(done(&mut queue), 0);
        queue.taken(45);
        queue.acknowledged_before(19);
        assert_eq!(done(&mut queue), 1);
        assert!(queue.awaits_acknowledgement());
        queue.acknowledged_before(20);
        assert_eq!(done(&mut queue), 2);
        queue.taken(60);
        queue.acknowledged_before(60);
        assert_eq!(done(&mut queue), 3);
        assert!(!queue.awaits_acknowledgement() && queue.is_empty());
        assert_eq!((queue.acks.pending, queue.acks.pending_octets), (0, 0));
    }

    /// One without a completion has ended, and the peer may still refuse it, until it has
    /// taken in all of it.
    #[test]
    fn an_unsignaled_request_may_be_refused_until_the_peer_has_it() {
        for (upto, found) in [(0, Some(0)), (10, Some(1)), (19, Some(1)), (20, None)] {
            let mut queue = SendQueue::new(8);
            queue.await_acknowledgements();
            for wr_id in 0..3 {
                let request = SendRequest::new(wr_id, SendOp::SEND, Payload::Inline(&[]));
                let request = if wr_id < 2 { request } else { request.signaled() };
                queue.post(&Config::default(), &request).unwrap();
                queue.next_unstarted().unwrap();
                queue.start();
                queue.built(wr_id, 10 * (wr_id + 1));
            }
            queue.taken(30);
            while queue.pop_done(QpId(0), |_| ()) {}
            queue.acknowledged_before(upto);
            assert_eq!((queue.len(), queue.silent), (1, 2));
            assert_eq!(queue.may_be_taken_back() as u64, 2 - found.unwrap_or(2));
            if found == Some(0) {
                // Which of several it is cannot be told: the oldest of those that have not ended.
                assert_eq!(queue.find_refused(true, |_| true), Some(2));
                assert_eq!(queue.find_refused(false, |wqe| wqe.wr_id == 0), None);
                assert_eq!(queue.silent, 2);
            }
            assert_eq!(queue.find_refused(true, |wqe| Some(wqe.wr_id) == found), found);
            assert_eq!(queue.len() as u64, 3 - found.unwrap_or(2));
            assert_eq!(u64::from(queue.silent), found.unwrap_or(2));
        }
    }
}
