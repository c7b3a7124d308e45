// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send buffer: octets that the program has handed over, until the transport has taken them.

use alloc::collections::VecDeque;

use super::span::Spans;

/// The destination of octets in the send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The stream.
    Stream,
    /// A region that the peer has mapped.
    Mapped { addr: u64, key: u32 },
}

/// Octets with one destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) target: Target,
    pub(super) len: usize,
}

/// A circular buffer. Octet `n` of all that were ever in it lies at `n` modulo its capacity.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    capacity: usize,
    /// Octets that the transport has taken.
    freed: u64,
    /// Octets that were posted.
    posted: u64,
    /// Octets that the program has handed over.
    filled: u64,
    /// Octets between `posted` and `filled`.
    segments: VecDeque<Segment>,
    most_segments: usize,
}

impl Outbox {
    pub(super) fn new(capacity: usize, most_segments: usize) -> Self {
        Self { capacity, freed: 0, posted: 0, filled: 0, segments: VecDeque::new(), most_segments }
    }

    /// Octets for which there is room.
    pub(super) fn room(&self) -> usize {
        if self.segments.len() >= self.most_segments {
            return 0;
        }
        self.capacity - (self.filled - self.freed) as usize
    }

    /// The place for the next octets, `max` at most.
    pub(super) fn space(&self, max: usize) -> Spans {
        Spans::circular(self.filled, self.room().min(max), self.capacity)
    }

    /// So many octets of [`space`](Self::space) were filled.
    pub(super) fn fill(&mut self, target: Target, len: usize) {
        debug_assert!(len <= self.room());
        let len = len.min(self.room());
        if len == 0 {
            return;
        }
        self.filled += len as u64;
        match self.segments.back_mut() {
            Some(last) if last.target == Target::Stream && target == Target::Stream => {
                last.len += len;
            }
            _ => self.segments.push_back(Segment { target, len }),
        }
    }

    /// The next octets to post.
    pub(super) fn next(&self) -> Option<Segment> {
        self.segments.front().copied()
    }

    /// Posts so many octets of [`next`](Self::next): their place.
    pub(super) fn post(&mut self, len: usize) -> Spans {
        let spans = Spans::circular(self.posted, len, self.capacity);
        self.posted += len as u64;
        if let Some(first) = self.segments.front_mut() {
            debug_assert!(len <= first.len);
            first.len -= len;
            if first.len == 0 {
                self.segments.pop_front();
            }
        }
        spans
    }

    /// The transport has taken so many octets more.
    pub(super) fn free(&mut self, len: usize) {
        self.freed = (self.freed + len as u64).min(self.posted);
    }

    /// True if all octets were posted.
    pub(super) fn is_posted(&self) -> bool {
        self.segments.is_empty()
    }

    /// Forgets what was not posted.
    pub(super) fn discard(&mut self) {
        self.segments.clear();
        self.filled = self.posted;
    }
}
