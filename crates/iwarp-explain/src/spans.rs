// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operations of a connection in time, for a picture.

use std::time::Duration;

use crate::report::{Span, SpanKind};

/// More than these are left out of the picture.
const KEPT: usize = 3000;

/// The spans of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    pub(crate) all: Vec<Span>,
    pub(crate) left_out: u64,
}

impl Spans {
    pub(crate) fn add(
        &mut self,
        (from, to): (Duration, Duration),
        by: usize,
        kind: SpanKind,
        text: impl Into<String>,
    ) {
        // Waits and refusals are few and matter most.
        if self.all.len() >= KEPT && !matches!(kind, SpanKind::Stall | SpanKind::Refusal) {
            self.left_out += 1;
            return;
        }
        if self.all.len() < 2 * KEPT {
            self.all.push(Span { from, to, by, kind, text: text.into() });
        }
    }

    /// The spans, with the ends in another order.
    pub(crate) fn ordered(mut self, order: [usize; 2]) -> (Vec<Span>, u64) {
        for span in &mut self.all {
            span.by = order[span.by];
        }
        (self.all, self.left_out)
    }
}
