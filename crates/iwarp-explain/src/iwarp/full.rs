// SPDX-License-Identifier: MIT OR Apache-2.0

//! Full Operation: FPDUs, and the messages in them.

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::rdmap::wire::{AtomicRequest, AtomicResponse, Opcode, ReadRequest, Terminate};

use crate::findings::{Findings, Moment};
use crate::report::SpanKind;
use crate::words::{bytes, time};

use super::fpdu::{self, Crc, Fpdu, Framing, Look};
use super::reads::Asked;
use super::segment::{self, Read, Segment};
use super::terminate::{self, Cause};
use super::{Stage, Stream};

impl Stream {
    /// Takes FPDUs from the front of a direction as long as they are whole.
    pub(super) fn full(&mut self, from: usize, framing: Framing, findings: &mut Findings) {
        loop {
            let direction = &mut self.directions[from];
            match fpdu::look(&direction.buffer, 0, framing) {
                Look::Short(_) => return,
                Look::Hidden => {
                    direction.stage = Stage::Lost(Some(framing));
                    self.lose(from);
                    // The search must not find the place that is hidden.
                    return;
                }
                Look::Whole(fpdu) => {
                    let when = direction.buffer.moment(fpdu.total - 1);
                    let first = direction.buffer.moment(0);
                    if !self.fpdu(from, &fpdu, (first, when), findings) {
                        let direction = &mut self.directions[from];
                        direction.buffer.take(4);
                        direction.stage = Stage::Lost(Some(framing));
                        self.lose(from);
                        return;
                    }
                    self.directions[from].buffer.take(fpdu.total);
                }
            }
        }
    }

    /// Takes an FPDU. False if it makes no sense, so that the stream's order is lost.
    fn fpdu(
        &mut self,
        from: usize,
        fpdu: &Fpdu,
        (first, when): (Moment, Moment),
        findings: &mut Findings,
    ) -> bool {
        let name = self.names.of(from);
        if let Some((found, right)) = fpdu.marker {
            let text = format!(
                "{name} sent a marker that points {found} bytes back; the FPDU began {right} before \
                 it"
            );
            let advice = "The two stacks count markers differently, or bytes were lost or added on \
                          the way.";
            findings.fault(when, "wrong-marker", from, text, advice);
        }
        let known = self.frames.iter().all(Option::is_some) && !self.directions[from].gapped;
        if fpdu.crc == Crc::Bad {
            self.bad_crcs[from] += 1;
            let text = format!(
                "the CRC of an FPDU of {name} ({} of ULPDU) does not match its bytes",
                bytes(fpdu.length as u64)
            );
            let advice = "The receiver ends the stream at this. Bytes were damaged behind the \
                          sender's CRC: memory that changed while it was sent, a middlebox, a \
                          faulty card.";
            findings.fault(when, "bad-crc", from, text, advice);
            self.line(when, from, || "FPDU with a bad CRC".to_owned());
            self.lose(from);
            self.directions[from].fpdus += 1;
            return fpdu::plausible(&fpdu.ulpdu);
        }
        if fpdu.crc == Crc::Unverified {
            self.unverified += 1;
        }
        let read = segment::read(fpdu);
        let certain = fpdu.crc == Crc::Good || known;
        match read {
            Read::Segment(segment) => {
                self.directions[from].fpdus += 1;
                self.segment(from, &segment, (first, when), findings);
                true
            }
            Read::Broken(_) if !certain => false,
            Read::Broken(broken) => {
                self.directions[from].fpdus += 1;
                let advice = "The sending stack is at fault, or the bytes are not iWARP; the \
                              receiver ends the stream at this.";
                let text = format!("{name} sent {}", broken.text);
                self.line(when, from, || format!("unreadable: {}", broken.text));
                findings.fault(when, broken.kind, from, text, advice);
                true
            }
            Read::Cut => {
                self.directions[from].fpdus += 1;
                self.senders[from].messages.add("unreadable (cut by the snap length)", 0, 1);
                self.lose(from);
                true
            }
        }
    }

    fn segment(
        &mut self,
        from: usize,
        segment: &Segment,
        (first, when): (Moment, Moment),
        findings: &mut Findings,
    ) {
        let names = self.names;
        let name = names.of(from);
        self.line(when, from, || segment.line());
        if self.directions[from].terminated.is_some() {
            let text = format!("{name} sent a {} after its Terminate", segment.kind());
            findings.trouble(when, "after-terminate", from, text, "");
        }
        if let Some((found, right)) = segment.wrong_length() {
            let text = format!("{name} sent a {} of {found} bytes; it has {right}", segment.kind());
            let advice = "The sending stack is at fault; report it with this capture.";
            findings.fault(when, "header-length", from, text, advice);
        }
        let message = self.senders[from].segment(segment, first, (from, name), findings);
        match (segment.opcode, segment.header) {
            (Opcode::ReadRequest, _) => {
                if let Some(read) = ReadRequest::parse(&segment.payload) {
                    let sink = (read.sink_stag.0, read.sink_to.0);
                    let asked = Asked::read(when, sink, read.size.into());
                    self.asking[from].ask(asked, from, names, findings);
                } else {
                    // The header is cut, so the answer cannot be matched.
                    self.asking[from].uncertain = true;
                }
            }
            (Opcode::AtomicRequest, _) => match AtomicRequest::parse(&segment.payload) {
                Some(atomic) => {
                    let asked = Asked::atomic(when, atomic.request_id);
                    self.asking[from].ask(asked, from, names, findings);
                }
                None => self.asking[from].uncertain = true,
            },
            (Opcode::ReadResponse, Header::Tagged(header)) => {
                let part = (header.stag.0, header.to.0, segment.length, segment.last);
                let asking = &mut self.asking[1 - from];
                let done = asking.response(part, when, (from, names), findings);
                self.answered(1 - from, done, "Read", when, findings);
            }
            (Opcode::AtomicResponse, _) => {
                let asking = &mut self.asking[1 - from];
                let done = match AtomicResponse::parse(&segment.payload) {
                    Some(answer) => {
                        asking.atomic_response(answer.request_id, when, (from, names), findings)
                    }
                    None => None,
                };
                self.answered(1 - from, done, "Atomic", when, findings);
            }
            (Opcode::Terminate, _) => {
                self.terminate(from, segment, when, findings);
            }
            _ => {}
        }
        let alone = !matches!(
            segment.opcode,
            Opcode::ReadRequest
                | Opcode::ReadResponse
                | Opcode::AtomicRequest
                | Opcode::AtomicResponse
                | Opcode::Terminate
        );
        if let Some(message) = message
            && alone
        {
            let text = format!("{}: {}", message.kind, bytes(message.bytes));
            self.spans.add((message.from.at, when.at), from, SpanKind::Message, text);
        }
    }

    /// A request of the end `asker` is answered.
    fn answered(
        &mut self,
        asker: usize,
        done: Option<Asked>,
        what: &str,
        when: Moment,
        findings: &mut Findings,
    ) {
        let Some(asked) = done else { return };
        let took = when.at.saturating_sub(asked.when.at);
        let text = format!("{what} of {}: {}", bytes(asked.size), time(took));
        self.spans.add((asked.when.at, when.at), asker, SpanKind::Read, text);
        // A pause in it has been told already.
        let told = ["stall", "no-ack", "zero-window"]
            .iter()
            .any(|kind| findings.has_within(kind, asked.when.at, when.at));
        if took >= self.settings.stall && !told {
            let text = format!(
                "{} took {} for {}, while other frames passed",
                self.names.of(1 - asker),
                time(took),
                asked.text()
            );
            findings.trouble(asked.when, "slow-answer", 1 - asker, text, "");
        }
    }

    fn terminate(&mut self, from: usize, segment: &Segment, when: Moment, findings: &mut Findings) {
        self.directions[from].terminated.get_or_insert(when);
        let (name, other) = (self.names.of(from), self.names.of(1 - from));
        let Some(terminate) = Terminate::parse(&segment.payload) else {
            let text = format!("{name} ended the stream by a Terminate without a readable code");
            findings.fault(when, "terminate", from, text, "");
            return;
        };
        let code = terminate.code;
        let meaning = terminate::explain(code);
        let (end, blame) = match meaning.cause {
            Cause::Receiver => (Some(1 - from), format!(", which {other} caused")),
            Cause::Sender => (Some(from), format!(", for which {name} itself is to blame")),
            Cause::Unknown => (None, String::new()),
        };
        let about = terminate::segment(&terminate)
            .map(|segment| format!("; it quotes {segment}"))
            .unwrap_or_default();
        let text = format!(
            "{name} sent a Terminate, {} (layer {}, type {}, code {:#04x}): {}{blame}{about}",
            code.name(),
            code.layer,
            code.etype,
            code.code,
            meaning.text
        );
        self.spans.add((when.at, when.at), from, SpanKind::Refusal, text.clone());
        findings.fault(when, "terminate", end, text, meaning.advice);
    }
}
