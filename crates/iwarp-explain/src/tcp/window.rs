// SPDX-License-Identifier: MIT OR Apache-2.0

//! The window that an end opens to its peer.

use std::time::Duration;

use crate::findings::Moment;

/// The window of one end.
#[derive(Debug, Default)]
pub(crate) struct Window {
    closed_since: Option<Moment>,
    /// Times that it was closed.
    pub(crate) closed: u64,
    /// The time for which it was closed in all.
    pub(crate) for_how_long: Duration,
    /// The smallest that was announced after the start, in bytes.
    pub(crate) smallest: Option<u64>,
}

impl Window {
    /// Takes what a segment announces. Returns the wait that ends by it.
    pub(crate) fn announced(&mut self, bytes: u64, when: Moment) -> Option<(Moment, Duration)> {
        self.smallest = Some(self.smallest.map_or(bytes, |smallest| smallest.min(bytes)));
        match (bytes, self.closed_since) {
            (0, None) => {
                self.closed += 1;
                self.closed_since = Some(when);
                None
            }
            (0, Some(_)) | (_, None) => None,
            (_, Some(_)) => self.ends(when.at),
        }
    }

    /// Ends the wait, if there is one: the connection ends, or the window opens.
    pub(crate) fn ends(&mut self, at: Duration) -> Option<(Moment, Duration)> {
        let since = self.closed_since.take()?;
        let took = at.saturating_sub(since.at);
        self.for_how_long += took;
        Some((since, took))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed_since.is_some()
    }
}
