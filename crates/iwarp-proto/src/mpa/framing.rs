// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA as a framing of DDP segments.

use iwarp_types::Digest;

use super::error::MpaError;
use super::rx::Deframer;
use super::tx::Framer;
use super::wire::{LENGTH_FIELD, MAX_ULPDU, trailer_len};
use crate::framing::{Deframe, Frame, Framed, FramingFault, MAX_FRAME};

/// Markers take less than one octet in 64 of the longest FPDU.
const _: () = assert!(MAX_ULPDU + MAX_ULPDU / 64 <= MAX_FRAME);

/// Error type of MPA's faults (RFC 5044 §8).
const MPA_ERROR: u8 = 0;

static CLOSED: FramingFault = fault(MpaError::Closed);
static CRC: FramingFault = fault(MpaError::Crc);
static MARKER: FramingFault = fault(MpaError::Marker);

const fn fault(error: MpaError) -> FramingFault {
    FramingFault { etype: MPA_ERROR, code: error.code(), text: error.text() }
}

impl MpaError {
    /// The fault for a Terminate.
    pub const fn fault(self) -> &'static FramingFault {
        match self {
            Self::Closed => &CLOSED,
            Self::Crc => &CRC,
            Self::Marker => &MARKER,
        }
    }
}

/// Every method is the framer's own of that name, or of one like it.
impl Frame for Framer {
    fn max_ulpdu(&self) -> usize {
        MAX_ULPDU
    }

    #[inline]
    fn position(&self) -> u64 {
        self.position()
    }

    #[inline]
    fn interleaves(&self) -> bool {
        self.markers()
    }

    #[inline]
    fn sends_in_place(&self) -> bool {
        !self.crc() && !self.markers()
    }

    #[inline]
    fn frame_len(&self, ulpdu_len: usize) -> usize {
        self.fpdu_len(ulpdu_len)
    }

    #[inline]
    fn trailer_len(&self, ulpdu_len: usize) -> usize {
        trailer_len(ulpdu_len)
    }

    #[inline]
    fn write<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.write(out, header, payload_len, fill)
    }

    #[inline]
    fn write_contiguous<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnOnce(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.write_plain(out, header, payload_len, fill)
    }

    #[inline]
    fn write_head(&mut self, out: &mut [u8], header: &[u8], payload_len: usize) -> usize {
        self.write_gathered(out, header, payload_len)
    }
}

/// Every method is the deframer's own of that name.
impl Deframe for Deframer {
    type Error = MpaError;

    const CLOSED: MpaError = MpaError::Closed;
    const HEAD: usize = LENGTH_FIELD;

    fn fault(error: MpaError) -> &'static FramingFault {
        error.fault()
    }

    #[inline]
    fn next(&mut self, input: &mut [u8]) -> Result<Option<Framed>, MpaError> {
        self.next(input)
    }

    fn wanted(&self, input: &[u8]) -> usize {
        self.wanted(input)
    }

    #[inline]
    fn peek_len(&self, input: &[u8]) -> Result<Option<usize>, MpaError> {
        self.peek_len(input)
    }

    #[inline]
    fn peek_short(&self, input: &[u8]) -> Option<(u8, u8)> {
        match *input {
            [0, len, first, ..] => Some((len, first)),
            _ => None,
        }
    }

    #[inline]
    fn trailer_len(&self, ulpdu_len: usize) -> usize {
        trailer_len(ulpdu_len)
    }

    #[inline]
    fn interleaves(&self) -> bool {
        self.markers()
    }

    #[inline]
    fn can_stream(&self) -> bool {
        self.can_stream()
    }

    #[inline]
    fn advance(&mut self, octets: usize) {
        self.advance(octets);
    }
}
