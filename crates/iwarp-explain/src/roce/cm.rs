// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exchanges of InfiniBand's connection manager: REQ, REP, RTU and the rest.

use std::net::IpAddr;

use iwarp_roce::cm::message::{CMA_HEADER_LEN, CmaHeader, Message, Rej, Rep, Req, TransportType};
use iwarp_roce::cm::{Mad, RejectReason};
use iwarp_roce::wire::Mtu;

use crate::Settings;
use crate::findings::{Findings, Moment};
use crate::report::{Fact, Frame, SpanKind};
use crate::spans::Spans;
use crate::words::{bytes, count, time};

/// An exchange, from its REQ on. Findings name the initiator 0 and the responder 1.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) ends: [IpAddr; 2],
    pub(super) req: Req,
    pub(super) rep: Option<Rep>,
    asked: Moment,
    asks: u64,
    replied: Option<Moment>,
    ready: Option<Moment>,
    pub(super) rejected: Option<RejectReason>,
    pub(super) disconnect: Option<(usize, Moment)>,
    disconnected: Option<Moment>,
    delayed: u64,
    pub(super) first: Moment,
    pub(super) last: Moment,
    pub(super) packets: u64,
    pub(super) findings: Findings,
    pub(super) spans: Spans,
    pub(super) lines: Vec<Frame>,
    /// The halves that carry its data: from the initiator, and from the responder.
    pub(super) halves: [Option<usize>; 2],
}

/// The role names of the ends.
pub(super) const ROLES: [&str; 2] = ["the initiator", "the responder"];

impl Exchange {
    fn new(ends: [IpAddr; 2], req: &Req, when: Moment) -> Self {
        Self {
            ends,
            req: *req,
            rep: None,
            asked: when,
            asks: 0,
            replied: None,
            ready: None,
            rejected: None,
            disconnect: None,
            disconnected: None,
            delayed: 0,
            first: when,
            last: when,
            packets: 0,
            findings: Findings::default(),
            spans: Spans::default(),
            lines: Vec::new(),
            halves: [None; 2],
        }
    }

    fn ids(&self) -> [u32; 2] {
        [self.req.local_comm_id, self.rep.map_or(0, |rep| rep.local_comm_id)]
    }

    /// The end that a message with these ids comes from, if it is of this exchange.
    fn sender(
        &self,
        source: IpAddr,
        destination: IpAddr,
        local: u32,
        remote: u32,
    ) -> Option<usize> {
        let [ours, theirs] = self.ids();
        [0, 1].into_iter().find(|end| {
            let ends = (self.ends[*end], self.ends[1 - end]) == (source, destination);
            // A REJ of a REQ has no id of the responder's.
            let ids = match *end {
                0 => local == ours && (remote == theirs || self.rep.is_none()),
                _ => remote == ours && (local == theirs || self.rep.is_none() || local == 0),
            };
            ends && ids
        })
    }

    fn took(&mut self, end: usize, text: &str, when: Moment, keep: bool) {
        self.packets += 1;
        self.last = when;
        self.spans.add((when.at, when.at), end, SpanKind::Control, text);
        if keep {
            let text = format!("CM {text}");
            self.lines.push(Frame { packet: when.packet, at: when.at, by: end, text });
        }
    }

    fn reject(&mut self, end: usize, rej: &Rej, when: Moment) {
        if self.rejected.is_some() {
            return;
        }
        self.rejected = Some(rej.reason);
        let text = format!(
            "{} refused the connection (CM REJ, reason {}): {}",
            ROLES[end],
            rej.reason.code(),
            rej.reason
        );
        let advice = match rej.reason {
            RejectReason::Consumer => {
                "The program at that end called rdma_reject; its private data may say why."
            }
            RejectReason::InvalidServiceId => "No program listens on that port, or not yet.",
            RejectReason::StaleConnection => {
                "An old connection of that queue pair number is still known there; try again."
            }
            _ => "Compare the parameters of the REQ with what the other end can take.",
        };
        self.findings.fault(when, "cm-rejected", end, text, advice);
    }

    /// Judges the end. `used`: packets of the connection were seen.
    pub(super) fn finish(&mut self, last: Moment, used: bool, settings: &Settings) {
        let waited = last.at.saturating_sub(self.asked.at);
        if self.rep.is_none() && self.rejected.is_none() {
            if waited < settings.stall {
                self.findings.remark(
                    self.asked,
                    "set-up-open",
                    None,
                    "the capture ends in the set-up",
                );
            } else {
                let text = format!(
                    "the set-up stopped: the responder never answered the REQ, which was sent {} in {}",
                    count(self.asks, "time"),
                    time(waited)
                );
                let advice = "That host is down, drops UDP port 4791, or has no RoCE device with that \
                              address.";
                self.findings.fault(self.asked, "cm-unanswered", 1, text, advice);
            }
        }
        if self.rep.is_some() && self.ready.is_none() && !used && self.rejected.is_none() {
            let when = self.replied.unwrap_or(self.asked);
            let text = "the set-up stopped: the REP was never followed by an RTU";
            let advice = "The initiator gave up, or the REP was lost.";
            self.findings.fault(when, "cm-no-rtu", 0, text, advice);
        }
    }

    pub(super) fn transport(&self) -> &'static str {
        match self.req.transport {
            TransportType::Rc => "RoCE v2 RC",
            TransportType::Uc => "RoCE v2 UC",
            _ => "RoCE v2",
        }
    }

    /// The terms as facts.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let req = &self.req;
        let mut facts = Vec::new();
        if let Some((space, port)) = req.service_id.port() {
            let text = format!("to port {port} (RDMA_PS_{})", format!("{space:?}").to_uppercase());
            facts.push(Fact::new("port", u64::from(port), text));
        }
        if let Some(mtu) = Mtu::from_code(req.mtu) {
            let octets = mtu.octets() as u64;
            facts.push(Fact::new("path_mtu", octets, format!("path MTU {octets}")));
        }
        let depths = (req.initiator_depth, req.responder_resources);
        facts.push(Fact::new(
            "initiator_depth",
            u64::from(depths.0),
            format!("initiator: up to {} Reads out, {} in", depths.0, depths.1),
        ));
        if let Some(rep) = self.rep {
            let depths = (rep.initiator_depth, rep.responder_resources);
            facts.push(Fact::new(
                "responder_depth",
                u64::from(depths.0),
                format!("responder: up to {} Reads out, {} in", depths.0, depths.1),
            ));
            facts.push(Fact::new(
                "starting_psn_of_initiator",
                u64::from(rep.starting_psn.number()),
                format!("initiator starts at PSN {}", rep.starting_psn.number()),
            ));
        }
        let psn = req.starting_psn.number();
        facts.push(Fact::new(
            "starting_psn_of_responder",
            u64::from(psn),
            format!("responder starts at PSN {psn}"),
        ));
        let rnr =
            if req.rnr_retry == 7 { "without end".to_owned() } else { req.rnr_retry.to_string() };
        facts.push(Fact::new(
            "retry_count",
            u64::from(req.retry_count),
            format!("retries {}, RNR retries {rnr}", req.retry_count),
        ));
        let skip = if CmaHeader::read(&req.private_data).is_some() { CMA_HEADER_LEN } else { 0 };
        let data = req.private_data.get(skip..).unwrap_or_default();
        let used = data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1) as u64;
        if used > 0 {
            let text = format!("initiator: at least {} of private data", bytes(used));
            facts.push(Fact::new("initiator_private_data", used, text));
        }
        let mut seen = vec!["REQ"];
        if self.delayed > 0 {
            seen.push("MRA");
        }
        for (was, name) in [
            (self.rep.is_some(), "REP"),
            (self.ready.is_some(), "RTU"),
            (self.rejected.is_some(), "REJ"),
            (self.disconnect.is_some(), "DREQ"),
            (self.disconnected.is_some(), "DREP"),
        ] {
            if was {
                seen.push(name);
            }
        }
        facts.push(Fact::new("cm_messages", seen.join(" "), format!("CM: {}", seen.join(", "))));
        if self.asks > 1 {
            facts.push(Fact::new("requests", self.asks, format!("REQ sent {} times", self.asks)));
        }
        facts
    }

    /// The time from the REQ to the RTU.
    pub(super) fn set_up(&self) -> Option<std::time::Duration> {
        Some(self.ready?.at.saturating_sub(self.asked.at))
    }
}

/// All exchanges.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    pub(super) all: Vec<Exchange>,
    pub(super) strange: u64,
}

/// A change that concerns packets of data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The exchange with this index was accepted.
    Accepted(usize),
    None,
}

impl Exchanges {
    /// Takes a management datagram.
    pub(super) fn take(
        &mut self,
        [source, destination]: [IpAddr; 2],
        octets: &[u8],
        when: Moment,
        keep: bool,
    ) -> Change {
        let Ok(mad) = Mad::parse(octets) else {
            self.strange += 1;
            return Change::None;
        };
        if let Message::Req(req) = &mad.message {
            self.req([source, destination], req, when, keep);
            return Change::None;
        }
        let (local, remote) = match &mad.message {
            Message::Rep(one) => (one.local_comm_id, one.remote_comm_id),
            Message::Rtu(one) => (one.local_comm_id, one.remote_comm_id),
            Message::Rej(one) => (one.local_comm_id, one.remote_comm_id),
            Message::Mra(one) => (one.local_comm_id, one.remote_comm_id),
            Message::Dreq(one) => (one.local_comm_id, one.remote_comm_id),
            Message::Drep(one) => (one.local_comm_id, one.remote_comm_id),
            _ => {
                self.strange += 1;
                return Change::None;
            }
        };
        let found = self.all.iter_mut().enumerate().rev().find_map(|(index, exchange)| {
            let sender = exchange.sender(source, destination, local, remote)?;
            Some((index, exchange, sender))
        });
        let Some((index, exchange, sender)) = found else {
            self.strange += 1;
            return Change::None;
        };
        match &mad.message {
            Message::Rep(rep) => {
                exchange.took(sender, "REP", when, keep);
                let first = exchange.rep.is_none();
                exchange.rep = Some(*rep);
                exchange.replied.get_or_insert(when);
                if first {
                    return Change::Accepted(index);
                }
            }
            Message::Rtu(_) => {
                exchange.took(sender, "RTU", when, keep);
                exchange.ready.get_or_insert(when);
            }
            Message::Rej(rej) => {
                exchange.took(sender, "REJ", when, keep);
                exchange.reject(sender, rej, when);
            }
            Message::Mra(_) => {
                exchange.took(sender, "MRA", when, keep);
                exchange.delayed += 1;
            }
            Message::Dreq(_) => {
                exchange.took(sender, "DREQ", when, keep);
                exchange.disconnect.get_or_insert((sender, when));
            }
            Message::Drep(_) => {
                exchange.took(sender, "DREP", when, keep);
                exchange.disconnected.get_or_insert(when);
            }
            _ => {}
        }
        Change::None
    }

    fn req(&mut self, ends: [IpAddr; 2], req: &Req, when: Moment, keep: bool) {
        let same = |exchange: &&mut Exchange| {
            let known =
                (exchange.req.local_comm_id, exchange.req.local_qpn, exchange.req.local_ca_guid);
            exchange.ends == ends && known == (req.local_comm_id, req.local_qpn, req.local_ca_guid)
        };
        if let Some(exchange) = self.all.iter_mut().rev().find(same) {
            exchange.asks += 1;
            exchange.took(0, "REQ, again", when, keep);
            return;
        }
        let mut exchange = Exchange::new(ends, req, when);
        exchange.asks = 1;
        exchange.took(0, "REQ", when, keep);
        self.all.push(exchange);
    }
}
