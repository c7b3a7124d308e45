// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends a run of cases early: a peer that says nothing, or too little too slowly, would hold it up
//! for the patience of each case.

use std::time::{Duration, Instant};

use iwarp_conform::verdict::{Outcome, Verdict};

/// Cases in a row in which a server may say nothing at all: after these no more are run.
const SILENT: usize = 3;
/// As [`SILENT`], for a client, which may still have to be started: a minute, with the default
/// patience.
const ABSENT: usize = 12;

/// Looks at outcomes as they come.
pub(super) struct Watch {
    patience: Duration,
    limit: Duration,
    listens: bool,
    begun: Instant,
    /// The end of the last case.
    last: Instant,
    silent: usize,
}

impl Watch {
    pub(super) fn new(patience: Duration, limit: Duration, listens: bool) -> Self {
        let begun = Instant::now();
        Self { patience, limit, listens, begun, last: begun, silent: 0 }
    }

    /// The reason to leave out the `left` cases; `None` to go on.
    pub(super) fn stops(&self, left: usize) -> Option<String> {
        let Self { patience, limit, silent, .. } = self;
        let (most, who) = match self.listens {
            true => (ABSENT, "no client has come or said anything"),
            false => (SILENT, "the peer has said nothing"),
        };
        if *silent >= most {
            return Some(format!(
                "{who} for {silent} cases of {patience:?}: the other {left} are not run; \
                 is it iWARP that listens there, and can it be reached? --patience waits longer"
            ));
        }
        (self.begun.elapsed() >= *limit).then(|| {
            format!("the limit of {limit:?} is over: the other {left} are not run (--limit)")
        })
    }

    /// A case has ended.
    pub(super) fn has_run(&mut self, outcome: &Outcome) {
        let took = self.last.elapsed();
        self.last = Instant::now();
        let record = outcome.record.as_ref();
        if record.is_some_and(|record| record.events.iter().any(|event| !event.sent)) {
            self.silent = 0;
        } else if outcome.verdict != Verdict::Conforms && took >= self.patience {
            self.silent += 1;
        }
        // One that was not for this peer says nothing of it.
    }
}
