// SPDX-License-Identifier: MIT OR Apache-2.0

//! The report of a connection over TCP.

use crate::report::{self, End, Fact, Times};
use crate::verdict;
use crate::words::{bytes, count, time};

use super::Connection;

const SENT_AGAIN: [&str; 2] = ["retransmissions_of_0", "retransmissions_of_1"];
const OVERTAKEN: [&str; 2] = ["overtaken_of_0", "overtaken_of_1"];
const DUPLICATES: [&str; 2] = ["duplicate_acks_of_0", "duplicate_acks_of_1"];
const PROBES: [&str; 2] = ["probes_of_0", "probes_of_1"];
const MISSING: [&str; 2] = ["bytes_missing_of_0", "bytes_missing_of_1"];
const CLOSED: [&str; 2] = ["zero_windows_of_0", "zero_windows_of_1"];
const ROUND_TRIP: [&str; 2] = ["tcp_round_trip_of_0", "tcp_round_trip_of_1"];

impl Connection {
    /// All that is known, with the initiator in front.
    pub(super) fn report(mut self) -> report::Connection {
        let order = match self.stream.initiator().or(self.opener) {
            Some(1) => [1, 0],
            _ => [0, 1],
        };
        let mut transport = self.endings(order);
        let mut times: Vec<Times> = Vec::new();
        for (place, side) in order.into_iter().enumerate() {
            self.direction(place, side, &mut transport);
            let round_trips = std::mem::take(&mut self.directions[side].round_trips);
            let what = format!("TCP segment of {} to its ACK", self.stream.name(side));
            times.extend(round_trips.times(ROUND_TRIP[place], what));
        }
        let roles = [0, 1].map(|side| self.stream.role(side));
        let ends =
            order.map(|side| End { role: roles[side], address: self.ends[side].to_string() });
        let told = self.stream.tell(order);
        let mut findings = self.findings.into_sorted();
        for finding in &mut findings {
            finding.end = finding.end.map(|end| order[end]);
        }
        let verdict = verdict::of(&findings, told.blind);
        times.splice(0..0, told.times);
        report::Connection {
            number: 0,
            protocol: "iWARP",
            ends,
            packets: self.packets,
            first_packet: self.first.packet,
            begin: self.first.at,
            end: self.last.at,
            terms: told.terms,
            operations: told.operations,
            times,
            transport,
            findings,
            frames: told.frames,
            spans: told.spans,
            spans_left_out: told.spans_left_out,
            verdict,
        }
    }

    fn direction(&self, place: usize, side: usize, facts: &mut Vec<Fact>) {
        let (direction, window) = (&self.directions[side], &self.windows[side]);
        let name = self.stream.name(side);
        if direction.sent_again > 0 {
            let text = format!("{name} sent {} again", count(direction.sent_again, "segment"));
            facts.push(Fact::new(SENT_AGAIN[place], direction.sent_again, text));
        }
        if direction.overtaken > 0 {
            let text = format!("{} of {name} overtaken", count(direction.overtaken, "segment"));
            facts.push(Fact::new(OVERTAKEN[place], direction.overtaken, text));
        }
        if direction.duplicate_acks > 0 {
            let text = format!("{} of {name}", count(direction.duplicate_acks, "duplicate ACK"));
            facts.push(Fact::new(DUPLICATES[place], direction.duplicate_acks, text));
        }
        if direction.missing > 0 {
            let text =
                format!("{} of {name} are missing from the capture", bytes(direction.missing));
            facts.push(Fact::new(MISSING[place], direction.missing, text));
        }
        if window.closed > 0 {
            let (times, long) = (count(window.closed, "time"), time(window.for_how_long));
            let text = format!("{name}'s window closed {times}, for {long} in all");
            facts.push(Fact::new(CLOSED[place], window.closed, text));
        }
        if direction.probes > 0 {
            let text =
                format!("{} of {name}", count(direction.probes, "keep-alive or window probe"));
            facts.push(Fact::new(PROBES[place], direction.probes, text));
        }
    }

    fn endings(&self, order: [usize; 2]) -> Vec<Fact> {
        let mut facts = Vec::new();
        if let Some(mss) = order.iter().filter_map(|side| self.directions[*side].mss).min() {
            facts.push(Fact::new("mss", u64::from(mss), format!("MSS {mss}")));
        }
        let mut fins: Vec<(usize, _)> =
            order.iter().filter_map(|side| Some((*side, self.directions[*side].fin?))).collect();
        fins.sort_by_key(|(_, when)| when.packet);
        let names: Vec<String> = fins.iter().map(|(side, _)| self.stream.name(*side)).collect();
        let text = match names.as_slice() {
            [first, second] => format!("closed by {first}, then by {second} (FIN)"),
            [only] => format!("closed by {only} only (FIN)"),
            _ => String::new(),
        };
        if !text.is_empty() {
            facts.push(Fact::new("closed", names.join(", "), text));
        }
        if let Some((by, when)) = self.reset {
            let name = self.stream.name(by);
            let text = format!("reset by {name} (RST, packet {})", when.packet);
            facts.push(Fact::new("reset_by", name, text));
        }
        if facts.iter().all(|fact| fact.key == "mss") {
            facts.push(Fact::new("open", true, "still open at the end of the capture"));
        }
        facts
    }
}
