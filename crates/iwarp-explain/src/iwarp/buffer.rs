// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes of a stream that are not yet taken apart, some of them unknown.

use std::collections::VecDeque;
use std::ops::Range;

use crate::findings::Moment;
use crate::tcp::Chunk;

/// Bytes of a stream from some place on.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The place in the stream of the first of `bytes`.
    base: i64,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are taken.
    head: usize,
    /// Ranges that a snap length has cut.
    unknown: VecDeque<Range<i64>>,
    /// The begins of packets, with their moments.
    marks: VecDeque<(i64, Moment)>,
}

/// Taken bytes that are kept before the rest is moved.
const SLACK: usize = 1 << 16;

impl Buffer {
    pub(super) fn push(&mut self, chunk: &Chunk) {
        if self.len() == 0 {
            self.restart(chunk.at);
        }
        self.marks.push_back((chunk.at, chunk.when));
        self.bytes.extend_from_slice(&chunk.bytes);
        if chunk.bytes.len() < chunk.length {
            let from = chunk.at + chunk.bytes.len() as i64;
            let to = chunk.at + chunk.length as i64;
            self.bytes.resize(self.bytes.len() + chunk.length - chunk.bytes.len(), 0);
            self.unknown.push_back(from..to);
        }
    }

    /// Forgets everything; the next bytes begin at `place`.
    pub(super) fn restart(&mut self, place: i64) {
        *self = Self { base: place, ..Self::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// The packets that the bytes come from.
    pub(super) fn packets(&self) -> usize {
        self.marks.len()
    }

    /// The place in the stream of the first byte.
    pub(super) fn place(&self) -> i64 {
        self.base + self.head as i64
    }

    /// All bytes; unknown ones are zeros.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// The number of bytes from `from` on that are known, up to `most`.
    pub(super) fn known(&self, from: usize, most: usize) -> usize {
        let from = self.place() + from as i64;
        let end = from + most as i64;
        let first = self.unknown.iter().filter(|range| range.end > from && range.start < end);
        let first = first.map(|range| range.start.max(from)).min();
        first.map_or(most, |first| (first - from) as usize)
    }

    /// The moment at which the byte at `at` came.
    pub(super) fn moment(&self, at: usize) -> Moment {
        let place = self.place() + at as i64;
        let last = self.marks.iter().rev().find(|(begin, _)| *begin <= place);
        last.or(self.marks.front()).map(|(_, when)| *when).unwrap_or_default()
    }

    /// The begins of packets, counted from the first byte.
    pub(super) fn boundaries(&self) -> Vec<usize> {
        let place = self.place();
        let len = self.len();
        self.marks
            .iter()
            .filter_map(|(begin, _)| usize::try_from(*begin - place).ok())
            .filter(|at| *at < len)
            .collect()
    }

    /// Takes bytes from the front.
    pub(super) fn take(&mut self, bytes: usize) {
        self.head += bytes.min(self.len());
        let place = self.place();
        while self.unknown.front().is_some_and(|range| range.end <= place) {
            self.unknown.pop_front();
        }
        // The packet of the first byte is still needed.
        while self.marks.get(1).is_some_and(|(begin, _)| *begin <= place) {
            self.marks.pop_front();
        }
        if self.head >= SLACK {
            self.bytes.drain(..self.head);
            self.base += self.head as i64;
            self.head = 0;
        }
    }
}
