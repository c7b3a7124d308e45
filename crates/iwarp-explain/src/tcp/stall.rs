// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses, and the end that the other waited for.

use std::time::Duration;

use crate::findings::Moment;
use crate::words::{bytes, time};

use super::Connection;
use super::direction::Arrival;

/// A pause, as things stood in it.
#[derive(Debug)]
pub(super) struct Silence {
    since: Moment,
    took: Duration,
    in_flight: [u64; 2],
    owed: Option<(usize, String)>,
}

impl Connection {
    /// The pause that a segment ends, if it was long.
    pub(super) fn silence(&self, at: Duration) -> Option<Silence> {
        let took = at.saturating_sub(self.active.at);
        if self.packets == 0 || took < self.settings.stall {
            return None;
        }
        Some(Silence {
            since: self.active,
            took,
            in_flight: [0, 1].map(|side| self.directions[side].in_flight()),
            owed: self.stream.owed(),
        })
    }

    /// Says who waited for whom in a pause that the end `from` ended.
    pub(super) fn pause(&mut self, silence: &Silence, from: usize, arrival: Arrival, when: Moment) {
        if self.is_over() || self.windows.iter().any(|window| window.is_closed()) {
            return;
        }
        let took = time(silence.took);
        if arrival == Arrival::Again {
            let text = format!(
                "no ACK from {} for {took}: {} of {} went unacknowledged until TCP sent them again",
                self.name(1 - from),
                bytes(silence.in_flight[from]),
                self.name(from),
            );
            let advice = "Segments or their acknowledgements were lost: look at the network \
                          between the ends, and at drops in their cards and queues.";
            self.stream.stalled(silence.since.at, when.at, from, &text);
            self.findings.trouble(silence.since, "no-ack", from, text, advice);
            return;
        }
        let Some((debtor, what)) = &silence.owed else {
            if self.opener.is_some() && self.directions[1 - from].syns == 0 {
                let text = format!("no answer to the SYN for {took}");
                self.findings.trouble(silence.since, "syn-unanswered", 1 - from, text, "");
            }
            return;
        };
        let text = format!("{} owed {what} for {took}", self.name(*debtor));
        let advice = "The program, stack or card at that end was busy or stopped; the network had \
                      acknowledged the question.";
        self.stream.stalled(silence.since.at, when.at, 1 - debtor, &text);
        self.findings.trouble(silence.since, "stall", *debtor, text, advice);
    }

    /// Bytes at the end of the capture that were sent and never acknowledged.
    pub(super) fn unacknowledged(&mut self) {
        if self.is_over() {
            return;
        }
        for side in [0, 1] {
            let direction = &self.directions[side];
            let (Some(since), open) = (direction.last_sent(), direction.in_flight()) else {
                continue;
            };
            let took = self.last.at.saturating_sub(since.at);
            if open > 0 && took >= self.settings.stall && direction.sent_again > 0 {
                let text = format!(
                    "no ACK from {} for {} at the end of the capture: {} of {} were sent again and \
                     again",
                    self.name(1 - side),
                    time(took),
                    bytes(open),
                    self.name(side)
                );
                let advice = "The other end, or the network to it, is gone.";
                self.findings.fault(since, "no-ack-at-end", 1 - side, text, advice);
            }
        }
    }
}
