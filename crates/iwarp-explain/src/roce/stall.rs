// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses between two queue pairs, and the end that the other waited for.

use crate::Settings;
use crate::findings::Moment;
use crate::report::SpanKind;
use crate::words::time;

use super::half::Half;
use super::open::Needs;

impl Half {
    /// A pause since `since` ends, in which this requester may have waited.
    pub(super) fn pause(
        &mut self,
        since: Moment,
        when: Moment,
        settings: &Settings,
        [one, other]: [&str; 2],
    ) {
        let took = when.at.saturating_sub(since.at);
        if took < settings.stall || self.requester.refused || self.requester.blind {
            return;
        }
        let Some(open) = self.requester.open.iter().find(|open| open.asks) else { return };
        // The finding about receivers that are not ready says it better.
        if open.rnr > 0 {
            return;
        }
        let (took, what) = (time(took), open.text());
        let text = match open.needs {
            Needs::Acknowledgement => {
                format!("no ACK from {other} for {took}: {one} waited for that of {what}")
            }
            Needs::ReadResponse => format!("{other} owed the response to {what} for {took}"),
            Needs::AtomicAcknowledge => format!("{other} owed the answer to {what} for {took}"),
        };
        let kind = if open.needs == Needs::Acknowledgement { "no-ack" } else { "stall" };
        let advice =
            "Packets or their acknowledgements were lost, or that end was busy or stopped.";
        self.spans.add((since.at, when.at), 0, SpanKind::Stall, text.clone());
        self.findings.trouble(since, kind, 1, text, advice);
    }
}
