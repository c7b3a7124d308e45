// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reports of connections and datagram flows of RoCE v2.

use std::time::Duration;

use iwarp_roce::wire::Transport;

use crate::findings::{Finding, Moment};
use crate::report::{Connection, End, Fact, Frame, Span, Times};
use crate::statistics::Durations;
use crate::verdict;
use crate::words::count;

use super::cm::{Exchange, ROLES};
use super::half::Half;
use super::{Roce, SENDER};

const LETTERS: [&str; 2] = ["end A", "end B"];

/// The keys of facts about each end.
struct Keys {
    sent_again: &'static str,
    overtaken: &'static str,
    naks: &'static str,
    rnr_naks: &'static str,
    duplicate_acks: &'static str,
    marked: &'static str,
    unverified: &'static str,
    ack: &'static str,
    read: &'static str,
    atomic: &'static str,
}

const KEYS: [Keys; 2] = [
    Keys {
        sent_again: "retransmissions_of_0",
        overtaken: "overtaken_of_0",
        naks: "naks_to_0",
        rnr_naks: "rnr_naks_to_0",
        duplicate_acks: "duplicate_acks_to_0",
        marked: "congestion_marks_of_0",
        unverified: "icrc_unverified_of_0",
        ack: "ack_to_0",
        read: "read_of_0",
        atomic: "atomic_of_0",
    },
    Keys {
        sent_again: "retransmissions_of_1",
        overtaken: "overtaken_of_1",
        naks: "naks_to_1",
        rnr_naks: "rnr_naks_to_1",
        duplicate_acks: "duplicate_acks_to_1",
        marked: "congestion_marks_of_1",
        unverified: "icrc_unverified_of_1",
        ack: "ack_to_1",
        read: "read_of_1",
        atomic: "atomic_of_1",
    },
];

/// The parts of a report that come from both halves.
#[derive(Default)]
struct Parts {
    findings: Vec<Finding>,
    frames: Vec<Frame>,
    spans: Vec<Span>,
    left_out: u64,
    operations: Vec<crate::report::Operation>,
    times: Vec<Times>,
    transport: Vec<Fact>,
    packets: u64,
    first: Option<Moment>,
    last: Option<Moment>,
}

impl Roce {
    /// Ends the reading.
    ///
    /// The numbers are those of datagrams that are no packets, and of messages of the connection
    /// manager outside of a set-up.
    pub(crate) fn finish(mut self) -> (Vec<Connection>, [u64; 2]) {
        let mut halves: Vec<Option<Half>> = self.halves.drain(..).map(Some).collect();
        let mut connections = Vec::new();
        for mut exchange in std::mem::take(&mut self.exchanges.all) {
            let pair = exchange.halves.map(|half| half.and_then(|half| halves[half].take()));
            let used = pair.iter().flatten().any(|half| half.packets > 0);
            exchange.finish(self.last, used, &self.settings);
            connections.push(self.connection(pair, Some(exchange)));
        }
        for index in 0..halves.len() {
            let Some(one) = halves[index].take() else { continue };
            let other = one.partner.and_then(|partner| halves[partner].take());
            if one.packets + other.as_ref().map_or(0, |other| other.packets) > 0 {
                connections.push(self.connection([Some(one), other], None));
            }
        }
        (connections, [self.strange, self.exchanges.strange])
    }

    fn connection(&self, pair: [Option<Half>; 2], exchange: Option<Exchange>) -> Connection {
        let names = if exchange.is_some() { ROLES } else { LETTERS };
        let transport = pair.iter().flatten().map(|half| half.transport).next();
        let protocol = match (&exchange, transport) {
            (Some(exchange), None) => exchange.transport(),
            (_, Some(Transport::Uc)) => "RoCE v2 UC",
            (_, Some(Transport::Ud)) => "RoCE v2 UD",
            _ => "RoCE v2 RC",
        };
        let ends = self.ends(&pair, exchange.as_ref());
        let disconnected = exchange.as_ref().and_then(|exchange| exchange.disconnect);
        let mut parts = Parts::default();
        let heard =
            [1, 0].map(|other: usize| pair[other].as_ref().is_some_and(|half| half.packets > 0));
        for (side, half) in pair.into_iter().enumerate() {
            let Some(mut half) = half else { continue };
            let last = disconnected.map_or(self.last, |(_, when)| when);
            half.finish(last, disconnected.is_some(), heard[side], &self.settings, SENDER);
            parts.half(side, half, names);
        }
        let mut terms = Vec::new();
        if let Some(exchange) = exchange {
            terms = exchange.facts();
            if let Some((by, _)) = exchange.disconnect {
                let name = names[by];
                let text = format!("disconnected by {name} (DREQ)");
                parts.transport.push(Fact::new("disconnected_by", name.to_owned(), text));
            }
            if let Some(set_up) = exchange.set_up() {
                let mut durations = Durations::default();
                durations.add(set_up);
                let times = durations.times("set_up", "set-up: REQ to RTU".to_owned());
                parts.times.splice(0..0, times);
            }
            parts.control(exchange);
        } else {
            let text = match transport {
                Some(Transport::Ud) => "datagrams",
                _ => "no set-up by the connection manager was seen",
            };
            terms.push(Fact::new("set_up_seen", false, text));
        }
        parts.findings.sort_by_key(|finding| (finding.at, finding.packet));
        parts.frames.sort_by_key(|frame| frame.packet);
        let verdict = verdict::of(&parts.findings, false);
        Connection {
            number: 0,
            protocol,
            ends,
            packets: parts.packets,
            first_packet: parts.first.map_or(0, |first| first.packet),
            begin: parts.first.map_or(Duration::ZERO, |first| first.at),
            end: parts.last.map_or(Duration::ZERO, |last| last.at),
            terms,
            operations: parts.operations,
            times: parts.times,
            transport: parts.transport,
            findings: parts.findings,
            frames: parts.frames,
            spans: parts.spans,
            spans_left_out: parts.left_out,
            verdict,
        }
    }

    fn ends(&self, pair: &[Option<Half>; 2], exchange: Option<&Exchange>) -> [End; 2] {
        let roles = if exchange.is_some() { ["initiator", "responder"] } else { LETTERS };
        [0, 1].map(|side| {
            let (own, other) = (&pair[side], &pair[1 - side]);
            let address = match (exchange, own, other) {
                (Some(exchange), ..) => Some(exchange.ends[side]),
                (None, Some(own), _) => Some(own.key.source),
                (None, None, other) => other.as_ref().map(|other| other.key.destination),
            };
            let queue_pair = match exchange {
                Some(exchange) if side == 0 => Some(exchange.req.local_qpn),
                Some(exchange) => exchange.rep.map(|rep| rep.local_qpn),
                None => other
                    .as_ref()
                    .map(|other| other.key.queue_pair)
                    .or(own.as_ref().and_then(|own| own.key.from)),
            };
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            let queue_pair = match queue_pair {
                Some(number) => format!("QP {number:#08x}"),
                None => "a QP that was not seen".to_owned(),
            };
            End { role: roles[side], address: format!("{address} {queue_pair}") }
        })
    }
}

impl Parts {
    fn saw(&mut self, first: Moment, last: Moment, packets: u64) {
        self.packets += packets;
        if packets == 0 {
            return;
        }
        if self.first.is_none_or(|known| first.packet < known.packet) {
            self.first = Some(first);
        }
        if self.last.is_none_or(|known| last.packet > known.packet) {
            self.last = Some(last);
        }
    }

    fn half(&mut self, side: usize, half: Half, names: [&str; 2]) {
        let order = [side, 1 - side];
        let named = |text: String| {
            let text = text.replace(SENDER[0], names[order[0]]);
            text.replace(SENDER[1], names[order[1]])
        };
        self.saw(half.first, half.last, half.packets);
        for mut finding in half.findings.into_sorted() {
            finding.text = named(finding.text);
            finding.end = finding.end.map(|end| order[end]);
            self.findings.push(finding);
        }
        let (spans, left_out) = half.spans.ordered(order);
        self.left_out += left_out;
        self.spans.extend(spans.into_iter().map(|span| Span { text: named(span.text), ..span }));
        self.frames.extend(half.lines.into_iter().map(|line| Frame { by: side, ..line }));
        let (name, keys) = (names[side], &KEYS[side]);
        let requester = half.requester;
        self.operations.extend(requester.messages.by(side));
        let what = format!("{name}'s last packet of a message to its ACK");
        self.times.extend(requester.ack_times.times(keys.ack, what));
        let what = format!("RDMA READ of {name}: request to the last packet of the response");
        self.times.extend(requester.read_times.times(keys.read, what));
        let what = format!("Atomic of {name}: request to answer");
        self.times.extend(requester.atomic_times.times(keys.atomic, what));
        let facts = [
            (
                keys.sent_again,
                requester.sent_again,
                format!("{name} sent {} again", count(requester.sent_again, "packet")),
            ),
            (
                keys.overtaken,
                requester.overtaken,
                format!("{} of {name} overtaken", count(requester.overtaken, "packet")),
            ),
            (keys.naks, requester.naks, format!("{} to {name}", count(requester.naks, "NAK"))),
            (
                keys.rnr_naks,
                requester.rnr_naks,
                format!("{} to {name}", count(requester.rnr_naks, "RNR NAK")),
            ),
            (
                keys.duplicate_acks,
                requester.duplicate_acks,
                format!("{} to {name}", count(requester.duplicate_acks, "duplicate ACK")),
            ),
            (
                keys.marked,
                half.marked,
                format!("{} of {name} marked for congestion (ECN)", count(half.marked, "packet")),
            ),
            (
                keys.unverified,
                half.unverified,
                format!("ICRC unverified in {} of {name}", count(half.unverified, "packet")),
            ),
        ];
        for (key, number, text) in facts {
            if number > 0 {
                self.transport.push(Fact::new(key, number, text));
            }
        }
    }

    fn control(&mut self, exchange: Exchange) {
        self.saw(exchange.first, exchange.last, exchange.packets);
        self.findings.extend(exchange.findings.into_sorted());
        self.frames.extend(exchange.lines);
        self.spans.extend(exchange.spans.all);
    }
}
