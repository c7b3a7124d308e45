// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answers to the requests of one end.

use iwarp_roce::wire::{Message, NakCode, Psn, RnrTimer, Syndrome};

use crate::findings::{Findings, Moment};
use crate::report::SpanKind;
use crate::spans::Spans;
use crate::words::{bytes, count, time};

use super::open::Needs;
use super::packet::Decoded;
use super::requester::{Requester, ends, nak};

impl Requester {
    /// Takes an answer. Findings name the requester 0 and the responder 1.
    pub(super) fn answer(
        &mut self,
        packet: &Decoded,
        when: Moment,
        [one, other]: [&str; 2],
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        self.answers += 1;
        let psn = packet.header.bth.psn;
        match packet.header.message {
            Message::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack { .. } => self.acknowledge(psn, when, other, findings),
                Syndrome::RnrNak(timer) => self.rnr(psn, timer, when, spans),
                Syndrome::Nak(code) => self.refuse(psn, code, when, [one, other], findings, spans),
                Syndrome::Reserved(octet) => {
                    let text =
                        format!("{other} acknowledged with the reserved syndrome {octet:#04x}");
                    findings.fault(when, "reserved-syndrome", 1, text, "");
                }
            },
            Message::ReadResponse { position, .. } => {
                let last = ends(position);
                self.read_response(psn, packet.length, last, when, other, findings, spans);
            }
            Message::AtomicAcknowledge { .. } => self.atomic(psn, when, other, findings, spans),
            _ => {}
        }
    }

    fn acknowledge(&mut self, psn: Psn, when: Moment, other: &str, findings: &mut Findings) {
        if self.acknowledged.is_some_and(|before| psn.ahead_of(before) <= 0) {
            self.duplicate_acks += 1;
            return;
        }
        if let Some(next) = self.next
            && psn.ahead_of(next) >= 0
            && self.requests > 0
            && !self.blind
        {
            let text = format!(
                "{other} acknowledged PSN {}, which the capture does not have",
                psn.number()
            );
            findings.remark(when, "capture-gap", 1, text);
            self.next = Some(psn.plus(1));
        }
        self.acknowledged = Some(psn);
        self.done_up_to(psn, when, other, findings);
    }

    /// All but Reads and Atomics up to a PSN are acknowledged.
    fn done_up_to(&mut self, psn: Psn, when: Moment, other: &str, findings: &mut Findings) {
        let mut index = 0;
        while let Some(open) = self.open.get(index) {
            if psn.ahead_of(open.first) < 0 {
                break;
            }
            if open.needs != Needs::Acknowledgement || !open.is_within(psn) {
                index += 1;
                continue;
            }
            let Some(open) = self.open.remove(index) else { break };
            if open.again == 0 && open.rnr == 0 {
                self.ack_times.add(when.at.saturating_sub(open.sent.at));
            }
            if let Some((since, timer)) = open.rnr_since {
                let text = format!(
                    "{other} had no receive for {}: {} (timer {}); taken after {}",
                    open.text(),
                    count(open.rnr, "RNR NAK"),
                    time(timer.duration()),
                    time(when.at.saturating_sub(since.at))
                );
                findings.trouble(since, "rnr", 1, text, RNR_ADVICE);
            }
        }
    }

    fn rnr(&mut self, psn: Psn, timer: RnrTimer, when: Moment, spans: &mut Spans) {
        self.rnr_naks += 1;
        let text = format!("RNR NAK, timer {}", time(timer.duration()));
        spans.add((when.at, when.at), 1, SpanKind::Refusal, text);
        if let Some(open) = self.open.iter_mut().find(|open| open.covers(psn)) {
            open.rnr += 1;
            open.rnr_since.get_or_insert((when, timer));
        }
    }

    fn refuse(
        &mut self,
        psn: Psn,
        code: NakCode,
        when: Moment,
        [one, other]: [&str; 2],
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        self.naks += 1;
        let name = nak(code);
        spans.add((when.at, when.at), 1, SpanKind::Refusal, format!("NAK: {name}"));
        let what = self
            .open
            .iter()
            .find(|open| open.covers(psn))
            .map_or_else(|| format!("PSN {}", psn.number()), |open| open.text());
        let (kind, text, advice) = match code {
            NakCode::SequenceError => {
                // The one before is acknowledged by it.
                self.done_up_to(psn.previous(), when, other, findings);
                let text = format!(
                    "{other} missed PSN {} of {one} (NAK, {name}), so {one} has to send again from \
                     there",
                    psn.number()
                );
                let advice = "A packet was lost before it: look at drops in queues, cards and \
                              sockets, or at flow control (PFC) in the network.";
                findings.trouble(when, "nak-sequence", None, text, advice);
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => (
                "nak-invalid-request",
                format!("{other} refused {what} as invalid (NAK, {name}), which {one} caused"),
                "Its length, opcode or order does not suit the queue pair: a Send longer than the \
                 receive, an operation that was not enabled, too many Reads or Atomics at a time.",
            ),
            NakCode::RemoteAccess => (
                "nak-remote-access",
                format!(
                    "{other} refused {what}: access is not granted (NAK, {name}), which {one} caused"
                ),
                "Compare rkey, address and length with the region that the peer registered, and \
                 its rights with the operation.",
            ),
            NakCode::RemoteOperation => (
                "nak-remote-operational",
                format!("{other} failed to carry {what} out (NAK, {name})"),
                "The responder is at fault: look at its log.",
            ),
        };
        self.refused = true;
        let end = if kind == "nak-remote-operational" { 1 } else { 0 };
        findings.fault(when, kind, end, text, advice);
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's facts")]
    fn read_response(
        &mut self,
        psn: Psn,
        length: u64,
        last: bool,
        when: Moment,
        other: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        self.done_up_to(psn.previous(), when, other, findings);
        let reads = |open: &super::open::Open| open.needs == Needs::ReadResponse;
        let Some(index) = self.open.iter().position(|open| reads(open) && open.covers(psn)) else {
            return self.unasked(psn, "RDMA READ response", when, other, findings);
        };
        if !last {
            self.mtu.get_or_insert(length);
        }
        let open = &mut self.open[index];
        let ahead = psn.ahead_of(open.due);
        if ahead < 0 && open.again == 0 {
            let text = format!(
                "{other} sent the RDMA READ response with PSN {} twice, and was asked once",
                psn.number()
            );
            findings.fault(when, "read-response-twice", 1, text, "");
            return;
        }
        if ahead > 0 && self.blind {
            open.torn = true;
        } else if ahead > 0 {
            open.torn = true;
            let text = format!(
                "{} of the RDMA READ response before PSN {} lost",
                count(ahead as u64, "packet"),
                psn.number()
            );
            let advice = "Lost in the network or missing from the capture; the requester asks \
                          again.";
            findings.trouble(when, "psn-lost", None, text, advice);
        }
        open.due = psn.plus(1);
        open.got += length;
        if !last {
            return;
        }
        if open.torn {
            // It will be asked for again, or the capture lacks packets.
            let (first, end) = (open.first, psn);
            self.repeated.push_back((first, end));
            return;
        }
        if open.got != open.bytes && open.again == 0 {
            let text = format!(
                "{other} answered a READ of {} with {}",
                bytes(open.bytes),
                bytes(open.got)
            );
            findings.fault(when, "read-response-length", 1, text, "");
        }
        let Some(open) = self.open.remove(index) else { return };
        self.messages_answered(psn);
        let took = when.at.saturating_sub(open.begun.at);
        self.read_times.add(took);
        let text = format!("RDMA READ of {}: {}", bytes(open.bytes), time(took));
        spans.add((open.begun.at, when.at), 0, SpanKind::Read, text);
    }

    fn messages_answered(&mut self, psn: Psn) {
        let later = self.acknowledged.is_none_or(|before| psn.ahead_of(before) > 0);
        if later {
            self.acknowledged = Some(psn);
        }
    }

    fn atomic(
        &mut self,
        psn: Psn,
        when: Moment,
        other: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        self.done_up_to(psn.previous(), when, other, findings);
        let fits =
            |open: &super::open::Open| open.needs == Needs::AtomicAcknowledge && open.first == psn;
        let Some(index) = self.open.iter().position(fits) else {
            return self.unasked(psn, "Atomic Acknowledge", when, other, findings);
        };
        let Some(open) = self.open.remove(index) else { return };
        self.messages_answered(psn);
        let took = when.at.saturating_sub(open.begun.at);
        self.atomic_times.add(took);
        spans.add(
            (open.begun.at, when.at),
            0,
            SpanKind::Read,
            format!("{}: {}", open.kind, time(took)),
        );
    }

    /// An answer without an open request.
    fn unasked(
        &mut self,
        psn: Psn,
        what: &str,
        when: Moment,
        other: &str,
        findings: &mut Findings,
    ) {
        let asked_again = self
            .repeated
            .iter()
            .any(|(first, last)| psn.ahead_of(*first) >= 0 && last.ahead_of(psn) >= 0);
        if asked_again || self.requests == 0 || self.is_torn() {
            return;
        }
        let before = self.acknowledged.is_some_and(|acknowledged| psn.ahead_of(acknowledged) <= 0);
        let advice = "The answering stack is at fault; report it with this capture.";
        if before {
            let number = psn.number();
            let text =
                format!("{other} sent a second {what} with PSN {number}, and was asked once");
            findings.fault(when, "read-response-twice", 1, text, advice);
        } else {
            let text = format!("{other} sent an {what} without a request (PSN {})", psn.number());
            findings.fault(when, "read-response-unasked", 1, text, advice);
        }
    }
}

pub(super) const RNR_ADVICE: &str =
    "The program at that end posted no receive in time: post more, earlier, or agree on credits.";
