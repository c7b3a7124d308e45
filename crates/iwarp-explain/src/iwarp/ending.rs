// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a connection, and what was left undone at it.

use iwarp_proto::mpa::wire::FrameKind;

use crate::findings::{Findings, Moment};
use crate::words::{bytes, time};

use super::{Stage, Stream, fpdu, startup};

/// The end of a connection, as TCP saw it.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) fins: [Option<Moment>; 2],
    pub(crate) reset: Option<(usize, Moment)>,
    pub(crate) last: Moment,
}

impl Stream {
    /// Judges the end.
    pub(crate) fn finish(&mut self, ending: &Ending, findings: &mut Findings) {
        self.close_start_up(ending, findings);
        let terminated = self.directions.iter().any(|direction| direction.terminated.is_some());
        let fins = ending.fins.iter().any(Option::is_some);
        let closed = fins || ending.reset.is_some();
        let excused = terminated || findings.has("rejected");
        for end in [0, 1] {
            let whole = (closed, excused);
            let stall = self.settings.stall;
            self.asking[end].finish(whole, ending.last, stall, (end, self.names), findings);
        }
        for end in [0, 1] {
            self.cut_off(end, ending, excused, findings);
        }
        if let Some((by, when)) = ending.reset
            && !excused
            && !ending.fins.iter().all(Option::is_some)
            && !findings.has("reset")
            && !findings.has("start-up-unanswered")
        {
            let text =
                format!("{} reset the connection (RST) instead of closing it", self.name(by));
            let advice = "A program that dies or destroys its queue pair without disconnecting \
                          does this; some cards always do.";
            if fins {
                findings.remark(when, "reset-at-end", by, text);
            } else {
                findings.trouble(when, "reset-at-end", by, text, advice);
            }
        }
    }

    fn close_start_up(&self, ending: &Ending, findings: &mut Findings) {
        let (asker, seen) = match self.frames {
            [Some(seen), None] => (0, seen),
            [None, Some(seen)] => (1, seen),
            _ => return,
        };
        let answerer = 1 - asker;
        if seen.kind != FrameKind::Request || self.directions[answerer].fpdus > 0 {
            return;
        }
        let waited = time(ending.last.at.saturating_sub(seen.when.at));
        let end = match (ending.reset, ending.fins) {
            (Some((by, _)), _) => format!("{} reset the connection", self.name(by)),
            (None, fins) if fins[answerer].is_some() => {
                format!("{} closed the connection", self.name(answerer))
            }
            (None, fins) if fins[asker].is_some() => format!("{} gave up", self.name(asker)),
            _ if ending.last.at.saturating_sub(seen.when.at) < self.settings.stall => {
                findings.remark(
                    seen.when,
                    "start-up-open",
                    None,
                    "the capture ends in the start-up",
                );
                return;
            }
            _ => "the capture ended".to_owned(),
        };
        if seen.meets && ending.fins[asker].is_some() {
            let text = startup::left_over(&self.name(asker), "gave it up");
            return findings.remark(seen.when, "start-up-open", asker, text);
        }
        let begun = self.directions[answerer].buffer.len();
        let part = match begun {
            0 => String::new(),
            begun => format!(" but for {}", bytes(begun as u64)),
        };
        let text = format!(
            "the start-up stopped: the MPA Request was never answered{part}; {end} after {waited}"
        );
        let advice = "The program at the other end did not accept, or does not speak iWARP on this \
                      port.";
        findings.fault(seen.when, "start-up-unanswered", answerer, text, advice);
    }

    /// A stream that ends within a message.
    fn cut_off(&self, end: usize, ending: &Ending, excused: bool, findings: &mut Findings) {
        let direction = &self.directions[end];
        let Stage::Full(framing) = direction.stage else { return };
        // After a gap the place of FPDUs is a guess.
        if excused || direction.gapped {
            return;
        }
        let begun = direction.buffer.len();
        let unfinished = self.senders[end].unfinished();
        let part = match (begun, unfinished) {
            (0, None) => return,
            (0, Some((kind, sent, _))) => format!("a {kind}, of which {} had come", bytes(sent)),
            (begun, _) => match fpdu::look(&direction.buffer, 0, framing) {
                fpdu::Look::Short(total) => format!("an FPDU: {begun} of {total} bytes had come"),
                _ => format!("an FPDU: {begun} bytes had come"),
            },
        };
        let name = self.name(end);
        if let Some((by, when)) = ending.reset {
            let by_name = self.name(by);
            let text = format!(
                "{by_name} reset the connection (RST) in mid message: {name} was within {part}"
            );
            let advice = "The program at that end died or gave up; its own log knows more.";
            findings.fault(when, "reset", by, text, advice);
        } else if let Some(when) = ending.fins[end] {
            let text = format!("{name} closed its stream (FIN) amid a message, within {part}");
            let advice = "The sending stack or program ended before its data were out.";
            findings.fault(when, "fin-in-message", end, text, advice);
        } else {
            let when = direction.buffer.moment(0);
            let text = format!("the capture ends within {part}");
            findings.remark(when, "capture-ends", end, text);
        }
    }
}
