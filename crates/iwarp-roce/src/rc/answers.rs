// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers, as the requester takes them: acknowledgements, NAKs, Read Responses, Atomic
//! Acknowledges.

use iwarp_types::{AccessError, Event, Invalidator, Memory, Reason, SendOp, Time, WcStatus};

use super::timer::Due;
use super::{Rc, reasons};
use crate::payload::place;
use crate::wire::{Aeth, Message, NakCode, Packet, Position, RnrTimer, Syndrome};

impl Rc {
    /// Takes the peer's answer to a request.
    pub(super) fn answer<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        now: Time,
        memory: &M,
    ) {
        // Answers to packets never sent, or already acknowledged, are ignored (ROCE-053, ROCE-071).
        let Some(number) = self.requester.find(packet.header.bth.psn) else { return };
        match packet.header.message {
            Message::Acknowledge(aeth) => self.take_acknowledgement(number, aeth, now),
            Message::ReadResponse { position, aeth } => {
                self.take_read_response(number, position, aeth, packet.payload, now, memory);
            }
            Message::AtomicAcknowledge { aeth, original } => {
                self.take_original(number, aeth, original, now, memory);
            }
            _ => {}
        }
    }

    fn take_acknowledgement(&mut self, number: u64, aeth: Aeth, now: Time) {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                if !self.acknowledge(number + 1, now) {
                    self.ask_again();
                }
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                self.counters.rcvd_seq_err += 1;
                self.acknowledge(number, now);
                self.ask_again();
            }
            Syndrome::RnrNak(timer) => self.take_rnr_nak(number, timer, now),
            Syndrome::Nak(code) => {
                let status = match code {
                    NakCode::RemoteAccess => WcStatus::RemoteAccess,
                    NakCode::RemoteOperation => WcStatus::RemoteOperation,
                    _ => WcStatus::RemoteInvalidRequest,
                };
                self.take_refusal(number, status, reasons::of_nak(code), now);
            }
            Syndrome::Reserved(_) => {
                self.take_refusal(number, WcStatus::BadResponse, reasons::UNKNOWN_NAK, now);
            }
        }
    }

    /// Acknowledges all packets before `to` (ROCE-048), up to the first Read or Atomic that lacks
    /// its answer (ROCE-049): false if there is one. A Read of no octets needs none.
    fn acknowledge(&mut self, to: u64, now: Time) -> bool {
        let before = self.requester.oldest;
        let clear = loop {
            let Some(wqe) = self.sq.oldest_started() else { break true };
            let end = wqe.end();
            if wqe.awaits_answer() {
                if !wqe.is_empty_read() || to < end {
                    break to <= self.requester.oldest;
                }
                self.requester.end_read();
            }
            if to < end {
                self.requester.oldest = self.requester.oldest.max(to);
                break true;
            }
            self.requester.oldest = end;
            self.reap();
        };
        if self.requester.oldest > before {
            self.move_on(now);
        }
        clear
    }

    /// The oldest unacknowledged packet has changed.
    fn move_on(&mut self, now: Time) {
        let Self { requester, sq, attributes, .. } = self;
        let mtu = attributes.mtu.octets();
        let oldest = requester.oldest;
        let weight = match sq.oldest_started() {
            Some(wqe) => wqe.weight_before(oldest, mtu),
            None => requester.end_weight,
        };
        requester.pace.grow(weight - requester.acknowledged);
        requester.acknowledged = weight;
        requester.cursor = requester.cursor.max(sq.head());
        if requester.next < oldest {
            // Packets that would be sent again have arrived after all.
            requester.next = oldest;
            requester.sent = weight;
            requester.cursor = sq.find(oldest, requester.cursor);
        }
        requester.timer.progress();
        if requester.is_waiting() {
            requester.timer.arm(now, attributes.timeout);
        }
    }

    /// The oldest packet, or its answer, is missing: sends everything from there on again, but only
    /// once for all answers that tell of it (ROCE-057).
    fn ask_again(&mut self) {
        if !self.is_alive() {
            return;
        }
        let Self { requester, attributes, .. } = self;
        if requester.timer.goes_back_to(requester.oldest) {
            let may = requester.timer.retry_as_told(attributes.retry_count);
            self.send_again(may);
        }
    }

    /// Sends everything unacknowledged again if it `may`; else the tries are used up (ROCE-062).
    fn send_again(&mut self, may: bool) {
        self.requester.pace.shrink();
        if may {
            self.go_back();
        } else {
            self.fail_request(self.sq.head(), WcStatus::RetryExceeded, Event::Lost);
        }
    }

    fn go_back(&mut self) {
        self.counters.completer_retry_err += 1;
        let cursor = self.sq.find(self.requester.oldest, 0);
        self.requester.go_back(cursor);
    }

    /// The deadline of [`iwarp_types::Core::poll_timeout`] has come.
    pub(super) fn tick(&mut self, now: Time) {
        let due = self.requester.timer.tick(now);
        if !self.requester.is_waiting() || !self.is_alive() {
            return;
        }
        match due {
            Some(Due::Repeat) => self.go_back(),
            Some(Due::Overdue) => {
                self.counters.local_ack_timeout_err += 1;
                let may = self.requester.timer.retry(self.attributes.retry_count);
                self.send_again(may);
            }
            None => {}
        }
    }

    fn take_rnr_nak(&mut self, number: u64, wait: RnrTimer, now: Time) {
        if !self.acknowledge(number, now) {
            return self.ask_again();
        }
        if !self.is_alive() || self.requester.timer.is_waiting() {
            return;
        }
        self.counters.rcvd_rnr_err += 1;
        let resume = now.plus(wait.duration());
        if self.requester.timer.retry_at(resume, self.attributes.rnr_retry) {
            self.go_back();
        } else {
            let event = Event::Terminated(reasons::NO_RECEIVE);
            self.fail_request(self.sq.head(), WcStatus::RnrRetryExceeded, event);
        }
    }

    /// The peer refuses the request that has this packet; those before it succeed (ROCE-065).
    #[cold]
    fn take_refusal(&mut self, number: u64, status: WcStatus, reason: Reason, now: Time) {
        self.acknowledge(number, now);
        if self.is_alive() {
            let request = self.sq.find(number, 0);
            let is_started = request < self.sq.unstarted();
            self.refusal = is_started.then(|| self.sq.at(request).refused_there());
            self.fail_request(request, status, Event::Terminated(reason));
        }
    }

    #[cold]
    fn take_nonsense(&mut self) {
        self.break_off(reasons::BAD_RESPONSE);
    }

    /// An answer does not fit its request (ROCE-052, ROCE-054).
    #[cold]
    fn break_off(&mut self, reason: Reason) {
        if self.is_alive() {
            let event = Event::Fault(reason);
            self.fail_request(self.sq.head(), WcStatus::BadResponse, event);
        }
    }

    fn take_read_response<M: Memory + ?Sized>(
        &mut self,
        number: u64,
        position: Position,
        aeth: Option<Aeth>,
        payload: &[u8],
        now: Time,
        memory: &M,
    ) {
        if !self.acknowledge(number, now) {
            return self.ask_again();
        }
        let who = self.accessor();
        let Self { requester, sq, attributes, pieces, .. } = self;
        let oldest = requester.oldest;
        let Some(wqe) = sq.oldest_started().filter(|wqe| is_read(&wqe.op) && oldest == number)
        else {
            return self.take_nonsense();
        };
        let mtu = attributes.mtu.octets();
        let index = number - wqe.first;
        let is_last = number + 1 == wqe.end();
        // A Read is asked for in pieces; each has a last packet of its own.
        let ends = is_last || (index + 1).is_multiple_of(u64::from(requester.segment));
        let offset = index * mtu as u64;
        let expected = (u64::from(wqe.length) - offset).min(mtu as u64);
        let says_yes = aeth.is_none_or(|aeth| matches!(aeth.syndrome, Syndrome::Ack { .. }));
        if payload.len() > mtu || !position.ends() && payload.len() < mtu {
            return self.break_off(reasons::response_of_mtu(mtu, payload.len()));
        }
        if position.ends() != ends || payload.len() as u64 != expected || !says_yes {
            return self.take_nonsense();
        }
        let mut placed = place(wqe.payload.sges(), offset, payload, pieces, who, memory);
        if is_last && let SendOp::Read { invalidate: Some(stag), .. } = wqe.op {
            placed = placed.and_then(|()| memory.invalidate(who, stag, Invalidator::Local));
        }
        if let Err(error) = placed {
            return self.fail_oldest(error);
        }
        requester.oldest = number + 1;
        if ends {
            requester.end_read();
        }
        if is_last {
            self.reap();
        }
        self.move_on(now);
    }

    fn take_original<M: Memory + ?Sized>(
        &mut self,
        number: u64,
        aeth: Aeth,
        original: u64,
        now: Time,
        memory: &M,
    ) {
        if !self.acknowledge(number, now) {
            return self.ask_again();
        }
        let who = self.accessor();
        let Self { requester, sq, pieces, .. } = self;
        let oldest = requester.oldest;
        let is_atomic = |op: &SendOp| matches!(op, SendOp::Atomic { .. });
        let fits = matches!(aeth.syndrome, Syndrome::Ack { .. }) && oldest == number;
        let Some(wqe) = sq.oldest_started().filter(|wqe| is_atomic(&wqe.op) && fits) else {
            return self.take_nonsense();
        };
        let original = original.to_ne_bytes();
        if let Err(error) = place(wqe.payload.sges(), 0, &original, pieces, who, memory) {
            return self.fail_oldest(error);
        }
        requester.oldest = number + 1;
        requester.end_read();
        self.reap();
        self.move_on(now);
    }

    /// The memory of the oldest request refuses its answer.
    #[cold]
    fn fail_oldest(&mut self, error: AccessError) {
        self.note_oldest(error);
        let event = Event::Fault(reasons::LOCAL_MEMORY);
        self.fail_request(self.sq.head(), WcStatus::LocalProtection, event);
    }
}

const fn is_read(op: &SendOp) -> bool {
    matches!(op, SendOp::Read { .. })
}
