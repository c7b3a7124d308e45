// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cutting a message into segments (RFC 5041 §5.2).

use crate::ddp::wire::{Header, Octets, Tagged, Untagged};
use crate::types::Mo;

/// A message on its way out: hands over one segment after another, or several at once, in rising
/// offsets, each of at most the MULPDU of that moment (which may change between segments,
/// RFC 5041 §3).
#[derive(Clone, Copy, Debug)]
pub struct Message {
    first: Header,
    length: u32,
    sent: u32,
    before: u32,
    done: bool,
}

/// One segment of a [`Message`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The header, L and offsets set.
    pub header: Header,
    /// First payload octet, counted from the start of the message.
    pub offset: u32,
    /// Payload octets.
    pub len: u32,
}

/// Consecutive segments of a [`Message`], at least one. All are as long as the MULPDU allows, but
/// for the one that ends the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The message's: L not set, and its first offset.
    first: Header,
    /// First payload octet, counted from the start of the message.
    pub offset: u32,
    /// Payload octets of all segments.
    pub len: u32,
    /// Payload octets of each but the last segment.
    each: u32,
    /// The last one ends the message.
    ends: bool,
}

impl Run {
    /// True if it is one segment.
    #[inline]
    pub(crate) const fn is_single(&self) -> bool {
        self.len <= self.each
    }

    /// Payload octets of the segment behind the first `done` of the run, and whether it ends the
    /// message.
    #[inline]
    const fn cut(&self, done: u32) -> (u32, bool) {
        let left = self.len - done;
        let len = if self.each < left { self.each } else { left };
        (len, self.ends && len == left)
    }

    /// The segment that begins behind the first `done` payload octets of the run.
    #[inline]
    pub fn segment(&self, done: u32) -> Segment {
        let offset = self.offset + done;
        let (len, last) = self.cut(done);
        let header = match self.first {
            Header::Tagged(h) => {
                Header::Tagged(Tagged { last, to: h.to.advanced(u64::from(offset)), ..h })
            }
            Header::Untagged(h) => Header::Untagged(Untagged { last, mo: Mo(offset), ..h }),
        };
        Segment { header, offset, len }
    }
}

/// The headers of a run's segments, each made from the one before: most of their octets are alike.
#[derive(Debug)]
pub(crate) struct Headers<'a> {
    run: &'a Run,
    octets: Octets,
    /// TO or MO of the run's first octet.
    first: u64,
}

impl<'a> Headers<'a> {
    pub(crate) fn of(run: &'a Run) -> Self {
        let Segment { header, .. } = run.segment(0);
        let first = match header {
            Header::Tagged(h) => h.to.0,
            Header::Untagged(h) => u64::from(h.mo.0),
        };
        Self { run, octets: Octets::of(&header), first }
    }

    /// The header's octets and the number of payload octets of the segment that begins behind the
    /// first `done` of the run.
    #[inline]
    pub(crate) fn segment(&mut self, done: u32) -> (&[u8], u32) {
        let (len, last) = self.run.cut(done);
        (self.octets.at(self.first.wrapping_add(u64::from(done)), last), len)
    }
}

impl Message {
    /// A message of `length` octets whose first octet goes to the tagged buffer and offset that
    /// `header` names.
    pub const fn tagged(header: Tagged, length: u32) -> Self {
        Self { first: Header::Tagged(header), length, sent: 0, before: 0, done: false }
    }

    /// A message of `length` octets for the untagged buffer of `header`'s QN and MSN.
    pub const fn untagged(header: Untagged, length: u32) -> Self {
        Self { first: Header::Untagged(header), length, sent: 0, before: 0, done: false }
    }

    /// The header of its first segment, L not set.
    pub const fn header(&self) -> &Header {
        &self.first
    }

    /// Payload octets.
    #[inline]
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// Payload octets handed over so far.
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Payload octets handed over before the segments that were last handed over.
    pub const fn sent_before_last_run(&self) -> u32 {
        self.before
    }

    /// True if the last segment was handed over.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The next segment, of at most `mulpdu` octets with its header; `None` after the last one.
    /// A zero-length message is one segment; a message that fits exactly gets no empty one
    /// behind it.
    pub fn next_segment(&mut self, mulpdu: usize) -> Option<Segment> {
        self.next_run(mulpdu, 1).map(|run| run.segment(0))
    }

    /// All of a message that begins, as one segment, which the MULPDU has to allow.
    #[inline(always)]
    pub(crate) fn whole(&mut self) -> Segment {
        self.sent = self.length;
        self.done = true;
        let header = match self.first {
            Header::Tagged(h) => Header::Tagged(Tagged { last: true, ..h }),
            Header::Untagged(h) => Header::Untagged(Untagged { last: true, mo: Mo(0), ..h }),
        };
        Segment { header, offset: 0, len: self.length }
    }

    /// Describes up to `most` segments at once, at least one, as one run.
    #[inline(always)]
    pub fn next_run(&mut self, mulpdu: usize, most: u32) -> Option<Run> {
        if self.done {
            return None;
        }
        let each = u32::try_from(mulpdu - self.first.wire_len()).unwrap_or(u32::MAX);
        let offset = self.sent;
        let left = self.length - offset;
        let len = if left <= each { left } else { left.min(each.saturating_mul(most.max(1))) };
        let ends = len == left;
        self.before = offset;
        self.sent += len;
        self.done = ends;
        Some(Run { first: self.first, offset, len, each, ends })
    }
}
