// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: what one end may send, has to place and has to complete, followed from the work
//! requests posted to it and the octets seen on the wire.

use std::collections::VecDeque;

use iwarp_proto::mpa::startup::Rtr;
use iwarp_types::mock::Region;
use iwarp_types::{AtomicOp, SendOp, Sge, Stag, WcOp, WcStatus, WorkCompletion};

use crate::bank::Bank;

macro_rules! demand {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

mod incoming;
mod outgoing;

pub(crate) use outgoing::{count_of, farewell_of};

/// Judgement of the oracle: `Err` says which rule was broken.
pub type Verdict = Result<(), String>;

/// A send work request that was taken.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The operation that was asked for.
    pub op: SendOp,
    /// Its number.
    pub wr_id: u64,
    /// Local octets.
    pub sges: Vec<Sge>,
    /// Inline octets.
    pub inline: Option<Vec<u8>>,
    /// Octets of the message.
    pub length: u32,
    /// Success raises a completion.
    pub signaled: bool,
    /// Waits for earlier Reads and Atomics.
    pub fence: bool,
    /// Stream position behind its last octet.
    wire_end: Option<u64>,
    /// Its answer was received.
    answered: bool,
    /// Its bind or invalidation was performed.
    performed: bool,
    /// It was passed over, so it has to fail.
    passed_over: bool,
}

impl Posted {
    /// A request as it is posted.
    pub fn new(wr_id: u64, op: SendOp, sges: Vec<Sge>, inline: Option<Vec<u8>>) -> Self {
        let length = match &inline {
            Some(octets) => octets.len() as u32,
            None => sges.iter().map(|sge| sge.length).sum(),
        };
        Self {
            op,
            wr_id,
            sges,
            inline,
            length,
            signaled: true,
            fence: false,
            wire_end: None,
            answered: false,
            performed: false,
            passed_over: false,
        }
    }

    const fn is_local(&self) -> bool {
        matches!(self.op, SendOp::Bind(_) | SendOp::LocalInvalidate(_))
    }

    /// True if it needs an answer.
    pub const fn asks(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::Atomic { .. })
    }

    const fn opcode(&self) -> u8 {
        match self.op {
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } => 0,
            SendOp::SendImmediate { solicited: false, .. } => 0xc,
            SendOp::SendImmediate { solicited: true, .. } => 0xd,
            SendOp::Read { .. } => 1,
            SendOp::Send { solicited, invalidate } => match (solicited, invalidate.is_some()) {
                (false, false) => 3,
                (false, true) => 4,
                (true, false) => 5,
                (true, true) => 6,
            },
            SendOp::Immediate { solicited, .. } => {
                if solicited {
                    9
                } else {
                    8
                }
            }
            SendOp::Atomic { .. } => 0xa,
            _ => 0xff,
        }
    }
}

/// A receive work request that was taken.
#[derive(Clone, Debug)]
pub struct PostedRecv {
    /// Its number.
    pub wr_id: u64,
    /// Its buffer.
    pub sges: Vec<Sge>,
}

impl PostedRecv {
    /// Octets of the buffer.
    pub fn capacity(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A request of the peer's.
#[derive(Clone, Debug)]
enum Request {
    Read { sink: (u32, u64), size: u32, source: Option<(usize, usize)>, since: u64 },
    Atomic { id: u32, stag: Stag, to: u64, op: AtomicOp, old: Option<u64> },
}

/// The meaning of an arriving segment for the end it arrives at.
#[derive(Clone, Debug)]
enum Meaning {
    Write {
        stag: Stag,
        to: u64,
    },
    Send {
        number: usize,
        opcode: u8,
        invalidate: Stag,
    },
    Immediate {
        number: usize,
        opcode: u8,
        /// Octets of the Write that it belongs to.
        write: Option<u32>,
    },
    Request(Request),
    /// To the request of ours of that number.
    Response {
        asked: usize,
    },
    /// The peer has received so many messages.
    Received(u64),
    Terminate,
}

/// A segment on its way to this end, or being placed.
#[derive(Clone, Debug)]
pub struct Arriving {
    meaning: Meaning,
    end: u64,
    last: bool,
    offset: u32,
    /// The octets that have to be placed.
    octets: Vec<u8>,
    placed: usize,
    /// It belongs to a message that waits, which has its octets already.
    joined: bool,
}

impl Arriving {
    /// True if it ends a message that a farewell counts.
    fn ends_a_message(&self) -> bool {
        self.last
            && match self.meaning {
                Meaning::Send { .. } | Meaning::Immediate { .. } => true,
                Meaning::Write { .. } => self.offset > 0 || !self.octets.is_empty(),
                _ => false,
            }
    }

    const fn awaits_octets(&self) -> bool {
        self.placed < self.octets.len() && !matches!(self.meaning, Meaning::Immediate { .. })
    }
}

/// A message to be delivered by a receive completion.
#[derive(Clone, Debug)]
struct Delivery {
    number: usize,
    opcode: u8,
    op: WcOp,
    byte_len: u32,
    immediate: Option<[u8; 8]>,
    invalidated: Option<Stag>,
    whole: bool,
}

/// A message that came before its receive, as far as it came.
#[derive(Clone, Debug, Default)]
struct Waiting {
    number: usize,
    octets: Vec<u8>,
    placed: usize,
    /// The delivery of it when it is whole.
    delivery: Option<Delivery>,
}

/// A request of this end's on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asking {
    /// For this work request.
    Posted(usize),
    /// The RTR frame.
    Rtr,
    /// An empty Read, which asks if the peer has all work requests before this one.
    Acknowledgement(usize),
}

/// The reason for which this end sends a message.
#[derive(Clone, Debug)]
enum Sending {
    Posted(usize),
    /// The second half of a Write with immediate data.
    Half(usize),
    Response {
        asked: usize,
    },
    Acknowledgement,
    /// To say how many messages were received.
    Received(u64),
    Other,
}

/// Place of octets that are being placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// In a tagged buffer.
    Remote(Stag, u64),
    /// In a local element.
    Local(Sge),
}

/// The oracle's knowledge of one end.
#[derive(Debug, Default)]
pub struct Model {
    /// Send work requests in order.
    pub sends: Vec<Posted>,
    wire_next: usize,
    /// Send work requests that have ended.
    pub ended_sends: usize,
    /// Receive work requests in order.
    pub recvs: Vec<PostedRecv>,
    /// Receive work requests that have ended.
    pub ended_recvs: usize,
    /// Octets that the stream took from this end.
    pub taken: u64,
    sending: Option<Sending>,
    /// The frame that must come first.
    pub rtr: Option<Rtr>,
    /// A greeting may come.
    pub greets: bool,
    /// An unposted empty Write may come, to wake a responder.
    pub nudges: bool,
    /// Operations of RFC 7306 are not to be used.
    pub refuses: bool,
    /// ORD, and what is there for acknowledgements besides.
    pub ord: [usize; 2],
    /// IRD, all in all.
    pub ird: usize,
    /// Operations of our own are announced, and Immediate Data of Writes is marked.
    pub own: bool,
    /// Signalled one-way requests complete when the peer has acknowledged them.
    pub acknowledges: bool,
    /// The peer wants to be told how many messages were received, when this end leaves and while
    /// messages wait for receives.
    pub bids_farewell: bool,
    said_farewell: bool,
    /// Of each message sent, behind which work request it stands with all before it.
    sent_messages: Vec<usize>,
    /// Of each message that came whole, the receive that it is for, if it needs one.
    whole_messages: Vec<Option<usize>>,
    /// The first receive that did not end well.
    failed_recv: Option<usize>,
    /// Messages without a receive wait.
    pub parks: bool,
    /// Payload is placed before its FPDU is whole.
    pub streams: bool,
    acknowledged: usize,
    /// The Write that is half of its work request.
    half: Option<usize>,
    waiting: VecDeque<Waiting>,
    /// This end is a responder and has received no valid FPDU.
    pub gated: bool,
    /// Requests of ours on the wire.
    asked: Vec<Asking>,
    /// The number of them that were answered.
    answered: usize,
    /// Requests of the peer's, with how many messages came before each.
    requests: VecDeque<(Request, usize)>,
    answers_begun: usize,
    arriving: VecDeque<Arriving>,
    /// Placed of an FPDU of which not everything was sent.
    early: Vec<(Placing, Vec<u8>)>,
    /// Octets of the stream that this end has used.
    pub consumed: u64,
    send_number: usize,
    deliveries: VecDeque<Delivery>,
    message_whole: bool,
    /// Something not of this model may have happened: less is required from here on.
    pub disturbed: bool,
    /// A completion with an error other than flushed was seen.
    pub failed: Option<WcStatus>,
    /// Flushing has begun.
    pub flushing: bool,
    /// Code of the Terminate that this end sent.
    pub terminate: Option<(u8, u8, u8)>,
    /// Set if requests of RFC 7306 may fail because the peer has not told its capabilities.
    pub extensions_may_fail: bool,
    /// The program disconnected: what is accepted may succeed behind what was flushed.
    pub disconnected: bool,
    /// Set if the stream is not followed: success is not judged.
    pub blind: bool,
    /// Completions that were checked.
    pub completions: u64,
}

impl Model {
    /// Requests of the peer's that this end has not answered.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Messages of the peer's wait for a receive.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The peer has received so many octets of the stream: what ends among them may succeed.
    pub fn received_by_peer(&mut self, position: u64) {
        let ends = |wqe: &Posted| wqe.wire_end.is_some_and(|end| end <= position);
        let behind = self.sends.iter().rposition(ends).map_or(0, |index| index + 1);
        self.acknowledged = self.acknowledged.max(behind);
    }

    /// Messages of the peer's that were received, with none in front of them that was not.
    fn received(&self) -> usize {
        self.whole_messages
            .iter()
            .take_while(|recv| recv.is_none_or(|recv| recv < self.ended_recvs))
            .count()
    }

    /// All is at rest: requests that the other end, `peer`, has received have completed,
    /// although messages behind them wait for receives there.
    pub fn check_complete(&self, peer: &Self) -> Verdict {
        let received = peer.received();
        let below = received.checked_sub(1).map_or(0, |last| self.sent_messages[last]);
        let mut left = (self.ended_sends..below).map(|index| &self.sends[index]);
        match left.find(|wqe| wqe.signaled) {
            Some(wqe) => Err(format!("{} was received, and has not completed", wqe.wr_id)),
            None => Ok(()),
        }
    }

    /// Work requests that have not ended: sends, receives.
    pub fn outstanding(&self) -> (usize, usize) {
        (self.sends.len() - self.ended_sends, self.recvs.len() - self.ended_recvs)
    }

    /// True if a Read or Atomic may still look at the peer's memory.
    pub fn asks(&self) -> bool {
        self.sends[self.ended_sends..].iter().any(Posted::asks)
    }

    /// The message that the next receive completion is about.
    fn next_delivery(&mut self) -> Option<Delivery> {
        let due = self.ended_recvs - 1;
        match self.waiting.front() {
            Some(Waiting { number, octets, placed, delivery: Some(delivery) })
                if *number == due =>
            {
                let whole = *placed == octets.len();
                let delivery = Delivery { whole, ..delivery.clone() };
                self.waiting.pop_front();
                Some(delivery)
            }
            _ => self.deliveries.pop_front(),
        }
    }

    /// A window was bound or an STag invalidated by a work request.
    pub fn performed(&mut self, is_bind: bool, stag: Stag) -> Verdict {
        let next = self.sends.iter_mut().skip(self.ended_sends).find(|wqe| {
            !wqe.performed
                && match wqe.op {
                    SendOp::Bind(bind) => is_bind && bind.window == stag,
                    SendOp::LocalInvalidate(at) => !is_bind && at == stag,
                    SendOp::Read { invalidate, .. } => !is_bind && invalidate == Some(stag),
                    _ => false,
                }
        });
        next.ok_or("memory operation that nobody asked for")?.performed = true;
        Ok(())
    }

    fn succeeded(&self, index: usize) -> bool {
        let wqe = &self.sends[index];
        let acknowledged = !self.acknowledges || !wqe.signaled || index < self.acknowledged;
        match wqe.op {
            _ if self.blind => true,
            SendOp::Bind(_) | SendOp::LocalInvalidate(_) => wqe.performed,
            SendOp::Read { invalidate, .. } => {
                wqe.answered && (invalidate.is_none() || wqe.performed)
            }
            _ if wqe.asks() => wqe.answered,
            _ => acknowledged && wqe.wire_end.is_some_and(|end| end <= self.taken),
        }
    }

    /// A send completion: in order, once, and true. Returns the request.
    pub fn send_completed(
        &mut self,
        wc: &WorkCompletion,
        in_error: bool,
    ) -> Result<Posted, String> {
        self.completions += 1;
        loop {
            let Some(wqe) = self.sends.get(self.ended_sends) else {
                return Err(format!("completion of {} which is not outstanding", wc.wr_id));
            };
            let succeeded = self.succeeded(self.ended_sends);
            if wqe.wr_id != wc.wr_id {
                demand!(!wqe.signaled, "completion of {} overtakes {}", wc.wr_id, wqe.wr_id);
                demand!(succeeded, "unsignaled {} ended without success", wqe.wr_id);
                self.ended_sends += 1;
                continue;
            }
            let wqe = wqe.clone();
            self.ended_sends += 1;
            demand!(wc.op == wqe.op.completes_as(), "completion of {:?} says {:?}", wqe.op, wc.op);
            match wc.status {
                WcStatus::Success => {
                    demand!(wqe.signaled, "unsignaled {} completed", wqe.wr_id);
                    demand!(succeeded, "{:?} completed before it was done", wqe.op);
                    demand!(!self.flushing, "success behind a flushed request");
                }
                WcStatus::Flushed => {
                    demand!(in_error, "flushed although the queue pair is not in error");
                    self.flushing = true;
                }
                WcStatus::RemoteInvalidRequest
                    if wqe.op.extension().is_some() && self.extensions_may_fail => {}
                status => self.error_completion(status, in_error)?,
            }
            return Ok(wqe);
        }
    }

    fn error_completion(&mut self, status: WcStatus, in_error: bool) -> Verdict {
        demand!(in_error, "{status:?} although the queue pair is not in error");
        demand!(
            self.failed.is_none(),
            "{status:?} behind {:?}: at most one completion is not flushed",
            self.failed
        );
        self.failed = Some(status);
        Ok(())
    }

    /// A receive completion: in order, once, and true.
    pub fn recv_completed(&mut self, wc: &WorkCompletion, in_error: bool, bank: &Bank) -> Verdict {
        self.completions += 1;
        let number = self.ended_recvs;
        let Some(recv) = self.recvs.get(number) else {
            return Err(format!("completion of receive {} which is not posted", wc.wr_id));
        };
        demand!(recv.wr_id == wc.wr_id, "receive {} overtakes {}", wc.wr_id, recv.wr_id);
        let sges = recv.sges.clone();
        self.ended_recvs += 1;
        if wc.status != WcStatus::Success {
            self.failed_recv.get_or_insert(number);
        }
        match wc.status {
            WcStatus::Success => {}
            WcStatus::Flushed => {
                demand!(in_error, "receive flushed although the queue pair is not in error");
                return Ok(());
            }
            status => return self.error_completion(status, in_error),
        }
        let delivery = self.next_delivery().ok_or("receive completed without a message")?;
        demand!(delivery.number == number, "message {} in receive {number}", delivery.number);
        demand!(delivery.whole, "message delivered before it was placed");
        demand!(
            wc.byte_len == delivery.byte_len,
            "message of {} octets, completion says {}",
            delivery.byte_len,
            wc.byte_len
        );
        demand!(wc.immediate == delivery.immediate, "immediate data differ");
        demand!(wc.invalidated == delivery.invalidated, "invalidated STag differs");
        let solicited = matches!(delivery.opcode, 5 | 6 | 9 | 0xd);
        demand!(wc.solicited == solicited, "solicited flag differs");
        demand!(wc.op == delivery.op, "receive completed as {:?}", wc.op);
        if wc.op == WcOp::Recv {
            check_shadow(&sges, delivery.byte_len as usize, bank)?;
        }
        Ok(())
    }

    /// Checks that everything done has been completed, no matter what the other direction does.
    pub fn check_prompt(&self) -> Verdict {
        if self.blind {
            return Ok(());
        }
        demand!(self.deliveries.is_empty(), "a received message is held back");
        if let Some(waiting) = self.waiting.front()
            && !self.streams
        {
            let posted = waiting.number < self.recvs.len();
            demand!(!posted || waiting.delivery.is_none(), "a parked message is held back");
        }
        for (index, wqe) in self.sends.iter().enumerate().skip(self.ended_sends) {
            if wqe.passed_over && !wqe.signaled {
                continue;
            }
            if !self.succeeded(index) {
                break;
            }
            demand!(!wqe.signaled, "completion of {:?} is held back", wqe.op);
        }
        Ok(())
    }

    /// Checks that every request has ended, unsignaled ones with success.
    pub fn check_finished(&mut self, receives_too: bool) -> Verdict {
        while let Some(wqe) = self.sends.get(self.ended_sends) {
            demand!(
                !wqe.signaled && self.succeeded(self.ended_sends),
                "{:?} ({}) never completed",
                wqe.op,
                wqe.wr_id
            );
            self.ended_sends += 1;
        }
        if receives_too {
            demand!(
                self.ended_recvs == self.recvs.len(),
                "{} receives never completed",
                self.recvs.len() - self.ended_recvs
            );
        }
        Ok(())
    }

    /// True if octets may be placed by that local element: it belongs to a receive or sink that has
    /// not ended.
    pub fn grants(&self, sge: Sge) -> bool {
        let inside = |own: &Sge| {
            own.lkey == sge.lkey
                && sge.addr >= own.addr
                && sge.addr + u64::from(sge.length) <= own.addr + u64::from(own.length)
        };
        self.recvs[self.ended_recvs..].iter().any(|recv| recv.sges.iter().any(inside))
            || self.sends[self.ended_sends..]
                .iter()
                .any(|wqe| wqe.asks() && wqe.sges.iter().any(inside))
    }
}

/// The first `len` octets of a list are what the oracle says.
fn check_shadow(list: &[Sge], mut len: usize, bank: &Bank) -> Verdict {
    for sge in list {
        let take = len.min(sge.length as usize);
        len -= take;
        let named = |region: &Region| region.stag.index() == sge.lkey.index();
        let (region, shadow) =
            bank.judged().find(|(region, _)| named(region)).ok_or("receive in no region")?;
        let Some(start) = sge.addr.checked_sub(region.base).filter(|_| take > 0) else { continue };
        let range = start as usize..start as usize + take;
        demand!(
            region.octets.get(range.clone()) == shadow.get(range),
            "received octets are not what was sent"
        );
    }
    Ok(())
}
