// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets from one end to a queue pair of the other.

use std::net::IpAddr;

use iwarp_roce::wire::Transport;

use crate::Settings;
use crate::findings::{Findings, Moment};
use crate::report::Frame;
use crate::spans::Spans;
use crate::words::{count, time};

use super::answers::RNR_ADVICE;
use super::open::Needs;
use super::packet::{Decoded, Icrc};
use super::requester::Requester;

/// The packets that belong together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The queue pair that they are for.
    pub(super) queue_pair: u32,
    /// The queue pair that they are from, which only UD tells.
    pub(super) from: Option<u32>,
}

/// The packets of one key. Findings name their sender 0, and the other end 1.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) key: Key,
    pub(super) transport: Transport,
    pub(super) partner: Option<usize>,
    pub(super) requester: Requester,
    pub(super) findings: Findings,
    pub(super) spans: Spans,
    pub(super) lines: Vec<Frame>,
    pub(super) packets: u64,
    pub(super) first: Moment,
    pub(super) last: Moment,
    pub(super) marked: u64,
    bad: Vec<Moment>,
    pub(super) good: u64,
    pub(super) unverified: u64,
}

impl Half {
    pub(super) fn new(key: Key, transport: Transport, when: Moment) -> Self {
        Self {
            key,
            transport,
            partner: None,
            requester: Requester::default(),
            findings: Findings::default(),
            spans: Spans::default(),
            lines: Vec::new(),
            packets: 0,
            first: when,
            last: when,
            marked: 0,
            bad: Vec::new(),
            good: 0,
            unverified: 0,
        }
    }

    /// Counts a packet.
    pub(super) fn count(&mut self, packet: &Decoded, when: Moment) {
        if self.packets == 0 {
            self.first = when;
        }
        self.packets += 1;
        self.last = when;
        self.marked += u64::from(packet.congested);
        match packet.icrc {
            Icrc::Good => self.good += 1,
            Icrc::Bad => self.bad.push(when),
            Icrc::Unverified | Icrc::Empty => self.unverified += 1,
        }
    }

    /// Judges the end.
    pub(super) fn finish(
        &mut self,
        last: Moment,
        disconnected: bool,
        heard: bool,
        settings: &Settings,
        [one, other]: [&str; 2],
    ) {
        self.icrcs(one);
        let transport = self.transport;
        if transport != Transport::Rc || self.requester.refused || self.requester.blind {
            return;
        }
        let open: Vec<_> = self.requester.open.drain(..).collect();
        if !heard
            && self.requester.answers == 0
            && let Some(first) = open.first()
            && !open.iter().any(|open| open.again > 0)
        {
            let text =
                format!("no packet of {other} to {one} was seen, so answers cannot be judged");
            self.findings.remark(first.begun, "one-direction", 1, text);
            return;
        }
        let Some(oldest) = open.first() else { return };
        let lacks = self.requester.is_torn() || self.findings.has("capture-gap");
        let waited = last.at.saturating_sub(oldest.begun.at);
        let text = oldest.text();
        if let Some((since, timer)) = oldest.rnr_since {
            let text = format!(
                "{other} never had a receive for {text}: {} (timer {}), until {one} gave up after {}",
                count(oldest.rnr, "RNR NAK"),
                time(timer.duration()),
                time(waited)
            );
            self.findings.fault(since, "rnr-exceeded", 1, text, RNR_ADVICE);
            return;
        }
        let answer = match oldest.needs {
            Needs::Acknowledgement => "acknowledged",
            _ => "answered",
        };
        if let Some(again) = oldest.again_at {
            let text = format!(
                "{other} never {answer} {text}, which {one} sent again {} in {} (retry exceeded)",
                count(oldest.again, "time"),
                time(again.at.saturating_sub(oldest.begun.at))
            );
            let advice = "The other end is gone, its queue pair is in error, or the network drops \
                          the packets: look at the end's log, then at firewalls for UDP port 4791.";
            self.findings.fault(oldest.begun, "retry-exceeded", 1, text, advice);
        } else if waited < settings.stall || disconnected || !oldest.asks || lacks {
            let text = format!("the capture ends before {text} was {answer}");
            self.findings.remark(oldest.begun, "open-request", 1, text);
        } else {
            let text = format!("{other} never {answer} {text}, though {} passed", time(waited));
            let advice = "The other end was stopped or gone, or the capture lacks its packets.";
            self.findings.fault(oldest.begun, "unanswered", 1, text, advice);
        }
    }

    fn icrcs(&mut self, one: &str) {
        let Some(first) = self.bad.first().copied() else { return };
        let bad = self.bad.len() as u64;
        if self.good == 0 && bad > 1 {
            let text = format!(
                "no ICRC of {one} is right: the capture was taken before a card filled them in, or \
                 addresses were rewritten on the way"
            );
            self.findings.remark(first, "icrc-unusable", 0, text);
            return;
        }
        let text = format!(
            "the ICRC of {} of {one} does not match its bytes, so the receiver drops it",
            match bad {
                1 => "a packet".to_owned(),
                bad => format!("{} (the first)", count(bad, "packet")),
            }
        );
        let advice = "Bytes were damaged or rewritten on the way.";
        match self.transport {
            Transport::Rc => self.findings.trouble(first, "bad-icrc", 0, text, advice),
            _ => self.findings.fault(first, "bad-icrc", 0, text, advice),
        }
    }
}
