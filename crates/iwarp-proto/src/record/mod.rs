// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records: the framing of DDP segments for transports that lose and change nothing themselves.
//!
//! A record is the length of a ULPDU in 4 octets, most significant first, and the ULPDU. It has
//! neither pad nor CRC, and nothing stands within it, so payloads are sent from where they lie and
//! placed as they come. Both ends have to know how long a ULPDU may be: no frames of start-up say
//! it.
//!
//! ```text
//!   length (32 bits) ULPDU
//! ```
//!
//! A ring in memory that two processes of one host share needs no more. A transport of messages
//! with a digest of its own (SCTP, RFC 5043) sends each record as a message, of which the length
//! gives the end: the port takes it off and puts it on again. Any other transport has to bring the
//! digest that RFC 5041 §3(6) demands.

use iwarp_types::Digest;

use crate::framing::{Deframe, Frame, Framed, FramingFault, LEAST_MAX_ULPDU};

#[cfg(test)]
mod tests;

/// Octets of the length field.
pub const LENGTH_FIELD: usize = 4;

/// Octets of the longest ULPDU that an end may take: its frame has a length that any processor can
/// count.
pub const MOST: u32 = 1 << 30;

const fn check(max_ulpdu: u32) {
    assert!(max_ulpdu >= LEAST_MAX_ULPDU as u32 && max_ulpdu <= MOST, "length of a ULPDU");
}

/// Error type of a Terminate for a fault of the records. MPA's is 0.
const ETYPE: u8 = 1;

static CLOSED: FramingFault =
    FramingFault { etype: ETYPE, code: 0x01, text: "stream ended within a record" };
static TOO_LONG: FramingFault =
    FramingFault { etype: ETYPE, code: 0x02, text: "record is longer than this end takes" };

/// A fault of a stream of records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{}", self.fault().text)]
pub enum RecordError {
    /// The stream ended within a record.
    Closed,
    /// A record is longer than this end takes.
    TooLong,
}

impl RecordError {
    /// The fault for a Terminate.
    pub const fn fault(self) -> &'static FramingFault {
        match self {
            Self::Closed => &CLOSED,
            Self::TooLong => &TOO_LONG,
        }
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Framer {
    position: u64,
    max_ulpdu: u32,
}

impl Framer {
    /// A stream of which nothing is framed yet, to a peer that takes ULPDUs of so many octets.
    ///
    /// # Panics
    ///
    /// If these are fewer than [`LEAST_MAX_ULPDU`], as a queue pair may build ULPDUs of that
    /// length, or more than [`MOST`]. A number that a peer has chosen is to be checked before.
    pub const fn new(max_ulpdu: u32) -> Self {
        check(max_ulpdu);
        Self { position: 0, max_ulpdu }
    }

    /// Writes length field and header.
    #[inline]
    fn begin(&self, out: &mut [u8], header: &[u8], payload_len: usize) -> usize {
        let ulpdu_len = header.len() + payload_len;
        assert!(ulpdu_len <= self.max_ulpdu as usize, "ULPDU of {ulpdu_len} octets");
        let head = LENGTH_FIELD + header.len();
        out[..LENGTH_FIELD].copy_from_slice(&(ulpdu_len as u32).to_be_bytes());
        out[LENGTH_FIELD..head].copy_from_slice(header);
        head
    }
}

impl Frame for Framer {
    fn max_ulpdu(&self) -> usize {
        self.max_ulpdu as usize
    }

    #[inline]
    fn position(&self) -> u64 {
        self.position
    }

    #[inline]
    fn interleaves(&self) -> bool {
        false
    }

    #[inline]
    fn sends_in_place(&self) -> bool {
        true
    }

    #[inline]
    fn frame_len(&self, ulpdu_len: usize) -> usize {
        LENGTH_FIELD + ulpdu_len
    }

    #[inline]
    fn trailer_len(&self, _: usize) -> usize {
        0
    }

    #[inline]
    fn write<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.write_contiguous(out, header, payload_len, fill)
    }

    #[inline]
    fn write_contiguous<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnOnce(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let head = self.begin(out, header, payload_len);
        let total = head + payload_len;
        if payload_len > 0 {
            fill(0, &mut out[head..total], None)?;
        }
        self.position += total as u64;
        Ok(total)
    }

    #[inline]
    fn write_head(&mut self, out: &mut [u8], header: &[u8], payload_len: usize) -> usize {
        let head = self.begin(out, header, payload_len);
        self.position += (head + payload_len) as u64;
        head
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Deframer {
    max_ulpdu: u32,
}

impl Deframer {
    /// A stream of which nothing was received yet. This end takes ULPDUs of so many octets.
    ///
    /// # Panics
    ///
    /// As [`Framer::new`].
    pub const fn new(max_ulpdu: u32) -> Self {
        check(max_ulpdu);
        Self { max_ulpdu }
    }
}

/// An error needs no memory: its record stays at the head of the input.
impl Deframe for Deframer {
    type Error = RecordError;

    const CLOSED: RecordError = RecordError::Closed;
    const HEAD: usize = LENGTH_FIELD;

    fn fault(error: RecordError) -> &'static FramingFault {
        error.fault()
    }

    #[inline]
    fn next(&mut self, input: &mut [u8]) -> Result<Option<Framed>, RecordError> {
        let Some(len) = self.peek_len(input)? else { return Ok(None) };
        let consumed = LENGTH_FIELD + len;
        let is_whole = consumed <= input.len();
        Ok(is_whole.then_some(Framed { start: LENGTH_FIELD, len, consumed }))
    }

    fn wanted(&self, input: &[u8]) -> usize {
        match self.peek_len(input) {
            Ok(len) => LENGTH_FIELD + len.unwrap_or(0),
            Err(_) => 0,
        }
    }

    #[inline]
    fn peek_len(&self, input: &[u8]) -> Result<Option<usize>, RecordError> {
        let Some(field) = input.first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*field);
        if len > self.max_ulpdu { Err(RecordError::TooLong) } else { Ok(Some(len as usize)) }
    }

    #[inline]
    fn peek_short(&self, input: &[u8]) -> Option<(u8, u8)> {
        match *input {
            [0, 0, 0, len, first, ..] => Some((len, first)),
            _ => None,
        }
    }

    #[inline]
    fn trailer_len(&self, _: usize) -> usize {
        0
    }

    #[inline]
    fn interleaves(&self) -> bool {
        false
    }

    #[inline]
    fn can_stream(&self) -> bool {
        true
    }

    #[inline]
    fn advance(&mut self, _: usize) {}
}
