// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requester: chooses and builds the next packet.

use core::ops::RangeInclusive;

use iwarp_types::{
    AtomicOp, HeldBy, Memory, QpState, Refusal, SendOp, Standing, TaggedOffset, Time, WcStatus,
};

use super::pace::{self, OVERHEAD, Pace};
use super::timer::Timer;
use super::{Rc, reasons};
use crate::config::Attributes;
use crate::wire::{
    AtomicEth, AtomicKind, Bth, Burst, Header, Message, Position, Psn, Reth, SendTail, Transport,
};

/// Acknowledgements asked for in each window (ROCE-047).
const ASKS: u64 = 4;
/// Packets of a long message between two of them (ROCE-047).
const APART: RangeInclusive<u64> = 16..=64;
/// The least number of them in a window of few packets.
const LEAST_ASKS: u64 = 2;

/// The progress of requests that were sent and acknowledged.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// PSN of packet 0.
    base: Psn,
    /// The oldest packet that is not acknowledged.
    pub(super) oldest: u64,
    /// The next packet to be sent.
    pub(super) next: u64,
    /// The packet behind the last that was ever sent, and the weight of all before it.
    pub(super) end: u64,
    pub(super) end_weight: u64,
    /// The request that has the next packet; or the first that was not started.
    pub(super) cursor: u64,
    /// Weight of all packets before `next`.
    pub(super) sent: u64,
    /// Weight of all packets before `oldest`.
    pub(super) acknowledged: u64,
    /// The packet behind the last that asks for an answer, and the weight of all before it.
    asked: u64,
    asked_weight: u64,
    /// Read Requests and Atomics under way.
    pub(super) reads: u32,
    /// Packets of answers that one Read Request asks for.
    pub(super) segment: u32,
    /// The request that failed at this side, and its status; reported after those before it.
    pub(super) broken: Option<(u64, WcStatus)>,
    /// The refused access that failed it.
    pub(super) refusal: Option<Refusal>,
    pub(super) pace: Pace,
    pub(super) timer: Timer,
}

/// The next thing to be done.
enum NextWork {
    /// A local operation.
    Local,
    /// A packet that takes so many numbers; `weight` is that of all packets up to its end.
    Packet { numbers: u32, weight: u64 },
}

impl Requester {
    /// Begins at the PSN that the attributes have, with the request of this number.
    pub(super) fn new(attributes: &Attributes, cursor: u64) -> Self {
        Self {
            base: attributes.sq_psn,
            cursor,
            segment: pace::segment(attributes.mtu.octets(), attributes.max_rd_atomic),
            ..Self::default()
        }
    }

    #[inline]
    const fn psn(&self, packet: u64) -> Psn {
        self.base.plus(packet as u32)
    }

    /// The packet of this PSN, if it was sent and is unacknowledged.
    #[inline]
    pub(super) fn find(&self, psn: Psn) -> Option<u64> {
        let ahead = u64::try_from(psn.ahead_of(self.psn(self.oldest))).ok()?;
        Some(self.oldest + ahead).filter(|packet| *packet < self.end)
    }

    /// Lowers the window: packets under way met congestion.
    pub(super) fn slow_down(&mut self, now: Time) {
        self.pace.congested(now, self.acknowledged, self.end_weight.max(self.sent));
    }

    /// True if the packet before `end` asks for an acknowledgement, often enough for the window to
    /// move (ROCE-047). `weight` is that of all packets before `end`.
    fn should_ask(&self, end: u64, weight: u64) -> bool {
        let (packets, octets) = (end - self.asked, weight - self.asked_weight);
        let part = |asks| octets >= self.pace.window() / asks;
        packets >= *APART.end() || part(LEAST_ASKS) || packets >= *APART.start() && part(ASKS)
    }

    /// True if packets are under way.
    #[inline]
    pub(super) const fn is_waiting(&self) -> bool {
        self.oldest < self.next
    }

    /// A Read Request, or an Atomic, was answered. It no longer counts as under way if it was to be
    /// sent again and its first answer has come after all.
    pub(super) const fn end_read(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }

    /// Everything from the oldest packet on is sent again.
    pub(super) const fn go_back(&mut self, cursor: u64) {
        self.next = self.oldest;
        self.cursor = cursor;
        self.sent = self.acknowledged;
        self.asked = self.oldest;
        self.asked_weight = self.acknowledged;
        self.reads = 0;
    }
}

impl Rc {
    /// True if the requester has something to send, or to do.
    #[inline]
    pub(super) fn may_request(&mut self) -> bool {
        self.upcoming().is_some()
    }

    /// Sends at most so many packets. False if no packet is left that may be sent now.
    pub(super) fn request<M: Memory + ?Sized>(
        &mut self,
        most: usize,
        burst: &mut Burst,
        now: Time,
        memory: &M,
    ) -> bool {
        for _ in 0..most {
            if burst.is_full() {
                return false;
            }
            match self.upcoming() {
                None => return false,
                Some(NextWork::Local) => self.perform(memory),
                Some(NextWork::Packet { numbers, weight }) => {
                    self.send(numbers, weight, burst, now, memory);
                }
            }
        }
        true
    }

    /// The state of the send queue, for people.
    pub(super) fn standing(&mut self) -> Standing {
        let oldest = self.sq.oldest(self.requester.next, &self.requester.timer);
        let reads = self.requester.reads;
        let held = match self.sq.first_unstarted() {
            None => None,
            Some(_) if self.state != QpState::Rts => Some(HeldBy::State),
            Some(wqe) if wqe.fence && reads > 0 => Some(HeldBy::Fence),
            Some(wqe) if wqe.awaits_answer() && reads >= self.attributes.max_rd_atomic.into() => {
                Some(HeldBy::ReadDepth)
            }
            Some(_) => Some(HeldBy::Turn),
        };
        Standing { ended: self.sq.head(), octets: self.sq.octets(), oldest, held }
    }

    /// The next thing to be done, if it may be done now.
    #[inline]
    fn upcoming(&mut self) -> Option<NextWork> {
        let Self { requester, sq, state, attributes, .. } = self;
        if !matches!(state, QpState::Rts | QpState::Sqd) || requester.timer.is_waiting() {
            return None;
        }
        if requester.broken.is_some_and(|(number, _)| requester.cursor >= number) {
            return None;
        }
        let mtu = attributes.mtu.octets();
        let wqe = loop {
            if requester.cursor == sq.unstarted() {
                let has_started = sq.has_started();
                let wqe = sq.first_unstarted()?;
                if *state != QpState::Rts || (wqe.fence && requester.reads > 0) {
                    return None;
                }
                match wqe.op {
                    // Octets that were sent before may have to be read from memory again
                    // (ROCE-070).
                    SendOp::LocalInvalidate(_) if has_started => return None,
                    SendOp::LocalInvalidate(_) | SendOp::Bind(_) => return Some(NextWork::Local),
                    op if !op.may_have(wqe.length) => return Some(NextWork::Local),
                    _ => sq.start(requester.next, requester.sent, mtu),
                }
            }
            let wqe = sq.at(requester.cursor);
            if requester.next < wqe.end() {
                break wqe;
            }
            requester.cursor += 1;
        };
        let mut numbers = 1;
        if wqe.awaits_answer() {
            if requester.reads >= u32::from(attributes.max_rd_atomic) {
                return None;
            }
            let index = (requester.next - wqe.first) as u32;
            let left = (wqe.end() - requester.next) as u32;
            numbers = left.min(requester.segment - index % requester.segment);
        }
        let weight = wqe.weight_before(requester.next + u64::from(numbers), mtu);
        // The window opens only if an answer is on its way.
        let opens = requester.asked > requester.oldest;
        if opens && weight - requester.acknowledged > requester.pace.window() {
            return None;
        }
        Some(NextWork::Packet { numbers, weight })
    }

    /// Builds the next packet.
    fn send<M: Memory + ?Sized>(
        &mut self,
        numbers: u32,
        weight: u64,
        burst: &mut Burst,
        now: Time,
        memory: &M,
    ) {
        let who = self.accessor();
        let Self { requester, sq, attributes, pieces, .. } = self;
        let mtu = attributes.mtu.octets();
        let wqe = sq.at(requester.cursor);
        let index = requester.next - wqe.first;
        let end = requester.next + u64::from(numbers);
        let (begins, ends) = (index == 0, end == wqe.end());
        let answered = wqe.awaits_answer();
        let window = requester.pace.window();
        let closes = weight + mtu as u64 + OVERHEAD - requester.acknowledged > window;
        let asks = ends || answered || closes || requester.should_ask(end, weight);
        let mut bth = Bth::new(attributes.dest_qp, requester.psn(requester.next)).asking(asks);
        bth.pkey = attributes.pkey;
        bth.solicited = ends && is_solicited(&wqe.op);
        let offset = index * mtu as u64;
        let left = u64::from(wqe.length) - offset.min(u64::from(wqe.length));
        let payload = if answered { 0 } else { left.min(mtu as u64) as usize };
        let asked = left.min(u64::from(numbers) * mtu as u64) as u32;
        let message = message(&wqe.op, wqe.length, Position::of(begins, ends), offset, asked);
        let header = Header { bth, transport: Transport::Rc, deth: None, message };
        // Memory for an answer is checked only when the answer comes, as with cards.
        let sent = burst.push(&attributes.path, &header, payload, |out, digest| {
            wqe.payload.gather(offset, out, digest, pieces, who, memory).map_err(drop)
        });
        if sent.is_err() {
            self.note_unreadable(self.requester.cursor, memory);
            self.fail_in_turn(self.requester.cursor, WcStatus::LocalProtection);
            return;
        }
        requester.reads += u32::from(answered);
        requester.next = end;
        requester.end = requester.end.max(end);
        requester.end_weight = requester.end_weight.max(weight);
        requester.sent = weight;
        if asks {
            requester.asked = end;
            requester.asked_weight = weight;
        }
        requester.timer.arm(now, attributes.timeout);
    }

    /// Performs the first unstarted request, a local operation, or finds its length wrong.
    #[cold]
    fn perform<M: Memory + ?Sized>(&mut self, memory: &M) {
        let who = self.accessor();
        let Self { requester, sq, attributes, .. } = self;
        let number = sq.unstarted();
        sq.start(requester.next, requester.sent, attributes.mtu.octets());
        let done = match sq.at(number).op {
            SendOp::Bind(bind) => memory.bind_window(who, bind),
            SendOp::LocalInvalidate(stag) => {
                memory.invalidate(who, stag, iwarp_types::Invalidator::Local)
            }
            _ => return self.fail_in_turn(number, WcStatus::LocalLength),
        };
        match done {
            Ok(()) => {
                requester.cursor = number + 1;
                self.reap();
            }
            // InfiniBand's "memory management operation error", for both.
            Err(_) => self.fail_in_turn(number, WcStatus::WindowBind),
        }
    }

    /// A request failed at this side: it ends when all before it have ended, and all behind it are
    /// flushed then.
    #[cold]
    fn fail_in_turn(&mut self, number: u64, status: WcStatus) {
        self.requester.broken = Some((number, status));
        self.reap();
    }

    /// Completes the requests that are done, in their order (ROCE-051).
    #[inline]
    pub(super) fn reap(&mut self) {
        let Self { requester, sq, events, config, .. } = self;
        let broken = requester.broken.map(|(number, _)| number);
        while broken != Some(sq.head())
            && sq.oldest_started().is_some_and(|wqe| wqe.end() <= requester.oldest)
        {
            sq.complete(config.qp, |event| events.push_back(event));
        }
        if let Some((number, status)) = requester.broken
            && number == sq.head()
        {
            self.refusal = self.requester.refusal.take();
            self.fail_request(number, status, iwarp_types::Event::Fault(reasons::LOCAL_MEMORY));
        }
        self.report_drained();
    }
}

/// The message of a packet. `offset` is the number of octets of its request before it, `asked` that
/// of the octets a Read Request asks for.
#[inline]
fn message(op: &SendOp, length: u32, position: Position, offset: u64, asked: u32) -> Message {
    let ends = position.ends();
    match *op {
        SendOp::Write { stag, to } => write(position, Reth { va: to, rkey: stag, length }, None),
        SendOp::WriteImmediate { stag, to, data, .. } => {
            write(position, Reth { va: to, rkey: stag, length }, ends.then_some(data))
        }
        SendOp::Read { stag, to, .. } => {
            Message::ReadRequest(Reth { va: to.advanced(offset), rkey: stag, length: asked })
        }
        SendOp::Atomic { stag, to, op } => Message::Atomic(atomic(stag, to, op)),
        SendOp::SendImmediate { data, .. } if ends => {
            Message::Send { position, tail: SendTail::Immediate(data) }
        }
        SendOp::Send { invalidate: Some(stag), .. } if ends => {
            Message::Send { position, tail: SendTail::Invalidate(stag) }
        }
        // An operation that RoCE lacks was refused when it was posted.
        _ => Message::Send { position, tail: SendTail::Plain },
    }
}

const fn write(position: Position, reth: Reth, immediate: Option<[u8; 4]>) -> Message {
    match position.begins() {
        true => Message::WriteBegin { only: position.ends(), reth, immediate },
        false => Message::WriteMore { last: position.ends(), immediate },
    }
}

const fn atomic(rkey: iwarp_types::Stag, va: TaggedOffset, op: AtomicOp) -> AtomicEth {
    let kind = match op {
        AtomicOp::FetchAdd { add, .. } => AtomicKind::FetchAdd { add },
        AtomicOp::CompareSwap { compare, swap, .. } => AtomicKind::CompareSwap { compare, swap },
    };
    AtomicEth { va, rkey, kind }
}

const fn is_solicited(op: &SendOp) -> bool {
    match *op {
        SendOp::Send { solicited, .. }
        | SendOp::SendImmediate { solicited, .. }
        | SendOp::WriteImmediate { solicited, .. } => solicited,
        _ => false,
    }
}
