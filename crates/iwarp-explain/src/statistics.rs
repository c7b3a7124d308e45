// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times and sizes, counted.

use std::time::Duration;

use crate::report::{Operation, Times};

/// The most times that are kept for a median; later ones count for the least and the most.
const KEPT: usize = 1 << 20;

/// Durations of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    kept: Vec<Duration>,
    count: u64,
    longest: Duration,
    shortest: Option<Duration>,
}

impl Durations {
    pub(crate) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.longest = self.longest.max(took);
        self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        if self.kept.len() < KEPT {
            self.kept.push(took);
        }
    }

    /// The least, median and longest of them; `None` if there are none.
    pub(crate) fn times(mut self, key: &'static str, what: String) -> Option<Times> {
        let shortest = self.shortest?;
        let middle = self.kept.len() / 2;
        let (_, median, _) = self.kept.select_nth_unstable(middle);
        Some(Times {
            key,
            what,
            count: self.count,
            shortest,
            median: *median,
            longest: self.longest,
        })
    }
}

/// The messages of one kind that one end sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    all: Vec<Operation>,
}

impl Messages {
    /// Counts a message of so many bytes of payload, in so many frames.
    pub(crate) fn add(&mut self, kind: &str, bytes: u64, frames: u64) {
        match self.all.iter_mut().find(|operation| operation.kind == kind) {
            Some(operation) => {
                operation.messages += 1;
                operation.frames += frames;
                operation.bytes = operation.bytes.saturating_add(bytes);
                operation.smallest = operation.smallest.min(bytes);
                operation.largest = operation.largest.max(bytes);
            }
            None => self.all.push(Operation {
                by: 0,
                kind: kind.to_owned(),
                messages: 1,
                frames,
                bytes,
                smallest: bytes,
                largest: bytes,
            }),
        }
    }

    /// The kinds, as those of the end with this number.
    pub(crate) fn by(self, end: usize) -> Vec<Operation> {
        self.all.into_iter().map(|operation| Operation { by: end, ..operation }).collect()
    }
}
