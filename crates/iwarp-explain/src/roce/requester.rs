// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests of one end, and the messages that they make.

use std::collections::VecDeque;
use std::time::Duration;

use iwarp_roce::wire::{Header, Message, NakCode, Position, Psn, Transport};

use crate::findings::{Findings, Moment};
use crate::report::SpanKind;
use crate::spans::Spans;
use crate::statistics::{Durations, Messages};
use crate::words::{bytes, count};

use super::open::{Needs, Open};
use super::packet::{Decoded, kind, position};

/// A message of which packets are missing so far.
#[derive(Clone, Debug)]
struct Building {
    kind: &'static str,
    first: Psn,
    begun: Moment,
    bytes: u64,
    packets: u64,
    /// The length that the header of a Write gives.
    whole: Option<u64>,
    /// The payload of the first packet.
    size: u64,
}

/// The most messages without an answer that are remembered.
const OPEN: usize = 1 << 14;
/// The most repeated requests that are remembered.
const REPEATED: usize = 256;
/// Packets that come within this time were overtaken, not sent again.
const OVERTAKEN: Duration = Duration::from_micros(200);

/// One end as requester.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The PSN that is due next.
    pub(super) next: Option<Psn>,
    /// The PSN due next depends on the length of packets, which is not known.
    vague: bool,
    pub(super) mtu: Option<u64>,
    /// The path MTU is that of the connection manager's messages.
    pub(super) mtu_agreed: bool,
    pub(super) open: VecDeque<Open>,
    building: Option<Building>,
    /// Packets are missing, so messages may seem torn.
    torn: bool,
    /// Trains are cut by a snap length, so packets are missing throughout.
    pub(super) blind: bool,
    /// PSNs that were passed over, and when.
    holes: Vec<(Psn, u32, Moment)>,
    /// Requests that were sent again although they had been answered.
    pub(super) repeated: VecDeque<(Psn, Psn)>,
    pub(super) acknowledged: Option<Psn>,
    pub(super) messages: Messages,
    pub(super) ack_times: Durations,
    pub(super) read_times: Durations,
    pub(super) atomic_times: Durations,
    pub(super) sent_again: u64,
    pub(super) overtaken: u64,
    pub(super) lost: u64,
    pub(super) naks: u64,
    pub(super) rnr_naks: u64,
    pub(super) duplicate_acks: u64,
    /// A refusal has ended the queue pair.
    pub(super) refused: bool,
    pub(super) answers: u64,
    pub(super) requests: u64,
}

impl Requester {
    /// Takes a packet of a request.
    pub(super) fn request(
        &mut self,
        packet: &Decoded,
        when: Moment,
        name: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        self.requests += 1;
        let header = &packet.header;
        let psn = header.bth.psn;
        if header.transport == Transport::Ud {
            return self.datagram(packet, when, name, findings, spans);
        }
        if self.vague
            && let Some(next) = self.next
            && psn.ahead_of(next) >= 0
        {
            // The request behind a Read shows how many packets the answer has.
            if let Some(read) = self.open.back_mut() {
                read.last = Some(psn.previous());
            }
            self.next = Some(psn);
        }
        let ahead = self.next.map_or(0, |next| psn.ahead_of(next));
        if ahead < 0 {
            return self.again(packet, when);
        }
        self.vague = false;
        if ahead > 0 {
            self.passed_over(psn, ahead as u32, header.transport, when, name, findings);
        }
        if self.requests == 1 && !position(&header.message).begins() {
            self.torn = true;
        }
        self.next = Some(psn.plus(1));
        self.new_packet(packet, when, name, findings, spans);
    }

    fn passed_over(
        &mut self,
        psn: Psn,
        packets: u32,
        transport: Transport,
        when: Moment,
        name: &str,
        findings: &mut Findings,
    ) {
        let first = psn.plus(packets.wrapping_neg());
        self.holes.push((first, packets, when));
        self.lost += u64::from(packets);
        self.building = None;
        self.torn = true;
        if transport == Transport::Uc {
            let text = format!(
                "{} of {name} before PSN {} lost: UC sends nothing again, so their message is gone",
                count(packets.into(), "packet"),
                psn.number()
            );
            let advice = "Lost in the network or missing from the capture; use RC where messages \
                          matter.";
            findings.trouble(when, "psn-lost", 0, text, advice);
        }
    }

    /// A packet that was sent before.
    fn again(&mut self, packet: &Decoded, when: Moment) {
        let psn = packet.header.bth.psn;
        let hole = self
            .holes
            .iter()
            .position(|(first, packets, _)| (0..*packets as i32).contains(&psn.ahead_of(*first)));
        if let Some(at) = hole {
            let (_, _, since) = self.holes[at];
            if when.at.saturating_sub(since.at) < OVERTAKEN {
                self.overtaken += 1;
                return;
            }
        }
        self.sent_again += 1;
        let last = match packet.header.message {
            Message::ReadRequest(reth) => psn.plus(self.packets(reth.length.into()) - 1),
            _ => psn,
        };
        let Some(open) = self.open.iter_mut().find(|open| open.covers(psn)) else {
            if self.repeated.len() == REPEATED {
                self.repeated.pop_front();
            }
            self.repeated.push_back((psn, last));
            return;
        };
        open.again += 1;
        open.again_at = Some(when);
        if open.needs == Needs::ReadResponse {
            // A Read may be asked for from the middle on.
            let skipped = psn.ahead_of(open.first).max(0) as u64 * self.mtu.unwrap_or(0);
            open.got = skipped.min(open.bytes);
            open.due = psn;
            open.torn = false;
        }
    }

    /// The packets that so many bytes take; 1 where that is not known.
    fn packets(&self, bytes: u64) -> u32 {
        self.mtu.map_or(1, |mtu| bytes.div_ceil(mtu).clamp(1, 1 << 23) as u32)
    }

    fn new_packet(
        &mut self,
        packet: &Decoded,
        when: Moment,
        name: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        let header = &packet.header;
        let psn = header.bth.psn;
        match header.message {
            Message::ReadRequest(reth) => {
                let length = u64::from(reth.length);
                let known = self.mtu.is_some() || length <= 256;
                let last = psn.plus(self.packets(length) - 1);
                self.vague = !known;
                self.next = Some(last.plus(1));
                self.messages.add("RDMA READ request", length, 1);
                let mut open = open(header, Needs::ReadResponse, (psn, psn), length, when);
                open.last = known.then_some(last);
                self.add(open);
            }
            Message::Atomic(_) => {
                self.messages.add(kind(&header.message), 8, 1);
                self.add(open(header, Needs::AtomicAcknowledge, (psn, psn), 8, when));
            }
            _ => self.part(packet, when, name, findings, spans),
        }
    }

    fn add(&mut self, open: Open) {
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back(open);
    }

    /// Takes a part of a Send or Write.
    fn part(
        &mut self,
        packet: &Decoded,
        when: Moment,
        name: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        let header = &packet.header;
        let psn = header.bth.psn;
        let position = position(&header.message);
        let advice = "The sending stack is at fault; report it with this capture.";
        if position.begins() {
            if let Some(before) = &self.building
                && !self.torn
            {
                let text = format!(
                    "{name} began a {} before the last packet of the {} of packet {}",
                    kind(&header.message),
                    before.kind,
                    before.begun.packet
                );
                findings.fault(when, "message-unfinished", 0, text, advice);
            }
            self.torn = false;
            let whole = match header.message {
                Message::WriteBegin { reth, .. } => Some(u64::from(reth.length)),
                _ => None,
            };
            let kind = kind(&header.message);
            let (bytes, packets) = (0, 0);
            let begun = when;
            let size = packet.length;
            self.building = Some(Building { kind, first: psn, begun, bytes, packets, whole, size });
        }
        let Some(building) = &mut self.building else {
            if !self.torn {
                let text = format!(
                    "{name} sent an opcode out of turn: the {} packet of a {} without a first",
                    if position.ends() { "last" } else { "middle" },
                    kind(&header.message)
                );
                findings.fault(when, "unexpected-opcode", 0, text, advice);
            }
            return;
        };
        building.bytes += packet.length;
        building.packets += 1;
        building.kind = kind(&header.message);
        if !position.ends() {
            let right = if self.mtu_agreed { self.mtu } else { None }.unwrap_or(building.size);
            if packet.length != right {
                let text = format!(
                    "{name} sent {} in a packet that is not the last of its message; the path MTU \
                     is {right}",
                    bytes(packet.length)
                );
                findings.fault(when, "packet-length", 0, text, advice);
            } else {
                self.mtu.get_or_insert(right);
            }
            return;
        }
        let Some(built) = self.building.take() else { return };
        if let Some(whole) = built.whole
            && whole != built.bytes
        {
            let text = format!(
                "{name} sent {} in an RDMA WRITE whose header says {}",
                bytes(built.bytes),
                bytes(whole)
            );
            findings.fault(when, "write-length", 0, text, advice);
        }
        self.messages.add(built.kind, built.bytes, built.packets);
        let text = format!("{}: {}", built.kind, bytes(built.bytes));
        spans.add((built.begun.at, when.at), 0, SpanKind::Message, text);
        if header.transport == Transport::Rc {
            let mut open =
                open(header, Needs::Acknowledgement, (built.first, psn), built.bytes, when);
            open.begun = built.begun;
            open.kind = built.kind;
            self.add(open);
        }
    }

    fn datagram(
        &mut self,
        packet: &Decoded,
        when: Moment,
        name: &str,
        findings: &mut Findings,
        spans: &mut Spans,
    ) {
        const MOST: u64 = 4096;
        let kind = kind(&packet.header.message);
        self.messages.add(kind, packet.length, 1);
        spans.add(
            (when.at, when.at),
            0,
            SpanKind::Message,
            format!("{kind}: {}", bytes(packet.length)),
        );
        if packet.length > MOST {
            let text = format!(
                "{name} sent a UD message of {}, too long: the largest path MTU is {MOST}",
                bytes(packet.length)
            );
            let advice = "UD messages are one packet each; receivers drop what is longer.";
            findings.fault(when, "ud-too-long", 0, text, advice);
        }
    }

    /// A train is cut: only the headers of its first packet are known.
    pub(super) fn lose(&mut self) {
        self.blind = true;
        self.torn = true;
        self.next = None;
        self.building = None;
        self.open.clear();
    }

    /// True if packets are missing that no later packet has brought.
    pub(super) fn is_torn(&self) -> bool {
        self.torn || self.blind || !self.holes.is_empty()
    }
}

fn open(
    header: &Header,
    needs: Needs,
    (first, last): (Psn, Psn),
    bytes: u64,
    when: Moment,
) -> Open {
    Open {
        kind: kind(&header.message),
        needs,
        first,
        last: Some(last),
        bytes,
        begun: when,
        sent: when,
        asks: header.bth.ack_req || needs != Needs::Acknowledgement,
        again: 0,
        again_at: None,
        got: 0,
        due: first,
        torn: false,
        rnr: 0,
        rnr_since: None,
    }
}

/// The name of a refusal.
pub(super) const fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::SequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccess => "remote access error",
        NakCode::RemoteOperation => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
    }
}

/// The place of a Read Response in its answer.
pub(super) const fn ends(position: Position) -> bool {
    position.ends()
}
