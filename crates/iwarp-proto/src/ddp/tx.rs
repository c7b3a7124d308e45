//! Cutting a message into segments (RFC 5041 §5.2).

use crate::ddp::wire::{Header, Tagged, Untagged};
use crate::types::Mo;

/// A message on its way out: hands over one segment after another, in rising offsets, each of at
/// most the MULPDU of that moment (which may change between segments, RFC 5041 §3).
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

    /// Payload octets handed over so far.
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Payload octets handed over before the segment that was last handed over.
    pub const fn sent_before_last_segment(&self) -> u32 {
        self.before
    }

    /// Whether the last segment was handed over.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The next segment, of at most `mulpdu` octets with its header; `None` after the last one.
    /// A zero-length message is one segment; a message that fits exactly gets no empty one
    /// behind it.
    pub fn next_segment(&mut self, mulpdu: usize) -> Option<Segment> {
        if self.done {
            return None;
        }
        let room = u32::try_from(mulpdu - self.first.wire_len()).unwrap_or(u32::MAX);
        let offset = self.sent;
        let len = room.min(self.length - offset);
        let last = offset + len == self.length;
        self.before = offset;
        self.sent += len;
        self.done = last;
        let header = match self.first {
            Header::Tagged(h) => {
                Header::Tagged(Tagged { last, to: h.to.advanced(u64::from(offset)), ..h })
            }
            Header::Untagged(h) => Header::Untagged(Untagged { last, mo: Mo(offset), ..h }),
        };
        Some(Segment { header, offset, len })
    }
}
