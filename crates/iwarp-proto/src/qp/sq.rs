//! The send queue.

use alloc::vec::Vec;

use crate::memory::{QpId, Sge};
use crate::qp::Config;
use crate::qp::ring::Ring;
use crate::qp::wr::{Payload, PostError, SendOp, SendRequest, WcStatus, WorkCompletion};
use crate::types::{Stag, TaggedOffset};

/// Longest message, as devices have it: `ibv_port_attr.max_msg_sz`.
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Progress {
    /// Not looked at yet.
    #[default]
    Posted,
    /// Its segments are being built, or its answer is awaited.
    Started,
    /// All its octets are built; they end at this position of the stream.
    Built(u64),
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
}

/// Posted requests in order: `head..next` are started, `next..tail` wait.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring<SendWqe>,
    next: u64,
    waiting_for_kind: bool,
}

impl SendQueue {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { ring: Ring::new(capacity), next: 0, waiting_for_kind: false }
    }

    pub(crate) const fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a request was started and has not completed.
    pub(crate) const fn has_started(&self) -> bool {
        self.ring.head() != self.next
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

    pub(crate) fn post(&mut self, config: &Config, wr: &SendRequest<'_>) -> Result<(), PostError> {
        let length = check(config, wr)?;
        let slot = self.ring.push_slot().ok_or(PostError::QueueFull)?;
        slot.wr_id = wr.wr_id;
        slot.op = wr.op;
        slot.signaled = wr.signaled;
        slot.fence = wr.fence;
        slot.length = length;
        slot.progress = Progress::Posted;
        slot.sges.clear();
        slot.inline.clear();
        slot.is_inline = false;
        match wr.payload {
            Payload::Sges(sges) => slot.sges.extend_from_slice(sges),
            Payload::Inline(octets) => {
                slot.is_inline = true;
                slot.inline.extend_from_slice(octets);
            }
        }
        Ok(())
    }

    /// The first request that was not started, with its number.
    pub(crate) fn next_unstarted(&mut self) -> Option<(u64, &mut SendWqe)> {
        while self.next != self.ring.tail() {
            let number = self.next;
            if matches!(self.ring.at(number).progress, Progress::Posted) {
                return Some((number, self.ring.at(number)));
            }
            self.next += 1;
        }
        None
    }

    /// Marks the first waiting request as started.
    pub(crate) fn start(&mut self) {
        self.ring.at(self.next).progress = Progress::Started;
        self.next += 1;
    }

    pub(crate) fn at(&mut self, number: u64) -> &mut SendWqe {
        self.ring.at(number)
    }

    /// All octets of a request are built and end at `position`; it is done when they are taken.
    pub(crate) fn built(&mut self, number: u64, position: u64) {
        self.ring.at(number).progress = Progress::Built(position);
    }

    /// A request ended well.
    pub(crate) fn complete(&mut self, number: u64) {
        self.fail(number, WcStatus::Success);
    }

    /// A request ended with `status`.
    pub(crate) fn fail(&mut self, number: u64, status: WcStatus) {
        let wqe = self.ring.at(number);
        if !matches!(wqe.progress, Progress::Done(_)) {
            wqe.progress = Progress::Done(status);
        }
    }

    /// The stream took all octets up to `position`.
    pub(crate) fn taken(&mut self, position: u64) {
        for number in self.ring.head()..self.next {
            let wqe = self.ring.at(number);
            match wqe.progress {
                Progress::Built(end) if end <= position => {
                    wqe.progress = Progress::Done(WcStatus::Success);
                }
                Progress::Built(_) => break,
                Progress::Posted | Progress::Started | Progress::Done(_) => {}
            }
        }
    }

    /// Whether a started request still has octets to build or to be taken.
    pub(crate) fn waits_for_stream(&mut self) -> bool {
        (self.ring.head()..self.next).any(|number| {
            let wqe = self.ring.at(number);
            match wqe.progress {
                Progress::Built(_) => true,
                Progress::Started => wqe.op.is_one_way(),
                Progress::Posted | Progress::Done(_) => false,
            }
        })
    }

    /// Ends everything that is not done as flushed, and what stands behind that: nothing succeeds
    /// any more once a request has not.
    pub(crate) fn flush(&mut self) {
        self.waiting_for_kind = false;
        self.next = self.ring.tail();
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

    /// Takes the oldest request if it is done: `Some(None)` where no completion is due.
    pub(crate) fn pop_done(&mut self, qp: QpId) -> Option<Option<WorkCompletion>> {
        let wqe = self.ring.front()?;
        let Progress::Done(status) = wqe.progress else { return None };
        let due = wqe.signaled || status != WcStatus::Success;
        let completion = due.then(|| WorkCompletion {
            wr_id: wqe.wr_id,
            qp,
            status,
            op: wqe.op.completes_as(),
            byte_len: wqe.length,
            immediate: None,
            invalidated: None,
            solicited: false,
        });
        self.ring.pop();
        self.next = self.next.max(self.ring.head());
        Some(completion)
    }
}

/// Checks a request against the queue pair's limits and returns the message's length.
fn check(config: &Config, wr: &SendRequest<'_>) -> Result<u32, PostError> {
    let length = match wr.payload {
        Payload::Inline(octets) => {
            if !wr.op.has_payload() && !octets.is_empty() {
                return Err(PostError::Invalid);
            }
            if octets.len() > config.max_inline {
                return Err(PostError::InlineTooLong);
            }
            octets.len() as u64
        }
        Payload::Sges(sges) => {
            if sges.len() > config.max_send_sge {
                return Err(PostError::TooManySges);
            }
            sges.iter().map(|sge| u64::from(sge.length)).sum()
        }
    };
    if length > MAX_MESSAGE {
        return Err(PostError::MessageTooLong);
    }
    if wr.op.is_atomic() && length != 8 {
        return Err(PostError::Invalid);
    }
    Ok(length as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: VERBS-hilland-6.2.4-01
    #[test]
    fn nothing_succeeds_behind_a_flushed_request() {
        let mut queue = SendQueue::new(4);
        let write = SendOp::Write { stag: Stag(1), to: TaggedOffset(0) };
        let read = SendOp::Read { stag: Stag(1), to: TaggedOffset(0), invalidate: None };
        for (wr_id, op) in [(0, write), (1, read), (2, write), (3, write)] {
            let payload = Payload::Inline(&[]);
            let request = SendRequest { wr_id, op, payload, signaled: true, fence: false };
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
        let status = |_| queue.pop_done(QpId(0)).unwrap().unwrap().status;
        let ended: [WcStatus; 4] = core::array::from_fn(status);
        assert_eq!(ended[0], WcStatus::Success);
        assert_eq!(ended[1..], [WcStatus::Flushed; 3]);
    }
}
