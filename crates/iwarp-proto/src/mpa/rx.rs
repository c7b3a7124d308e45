// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding and checking FPDUs in a received stream (RFC 5044 §5.2, §6).

use iwarp_types::Digest;

use super::error::MpaError;
use super::marker::{self, Layout, MARKER};
use super::wire::{CRC_FIELD, LENGTH_FIELD, MAX_ULPDU, trailer_len};
use crate::framing::{Deframe, Framed, FramingFault};

/// The receiving half of a connection in Full Operation.
///
/// Follows the chain of lengths from FPDU to FPDU; holds no octets, as the caller keeps them until
/// an FPDU is whole. If markers are in use, each one is compared with the chain.
#[derive(Debug)]
pub struct Deframer {
    position: u64,
    crc: bool,
    markers: bool,
    failed: Option<MpaError>,
}

impl Deframer {
    /// A stream of which nothing was received yet. `crc`: CRCs are checked. `markers`: this end
    /// asked for markers.
    pub fn new(crc: bool, markers: bool) -> Self {
        Self { position: 0, crc, markers, failed: None }
    }

    #[cfg(test)]
    pub(super) fn at(crc: bool, markers: bool, position: u64) -> Self {
        Self { position, crc, markers, failed: None }
    }

    /// Checks no CRCs from now on.
    pub const fn stop_crc(&mut self) {
        self.crc = false;
    }

    /// Octets of Full Operation taken so far, markers counted.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn layout(&self, ulpdu_len: usize) -> Layout {
        Layout::new(self.position, self.markers, ulpdu_len)
    }

    #[inline]
    fn find(&self, input: &mut [u8]) -> Result<Option<Framed>, MpaError> {
        if self.markers {
            return self.find_between_markers(input);
        }
        let Some(len) = self.peek_len(input)? else { return Ok(None) };
        let consumed = LENGTH_FIELD + len + trailer_len(len);
        let Some(fpdu) = input.get(..consumed) else { return Ok(None) };
        if self.crc {
            check_crc(fpdu)?;
        }
        Ok(Some(Framed { start: LENGTH_FIELD, len, consumed }))
    }

    fn find_between_markers(&self, input: &mut [u8]) -> Result<Option<Framed>, MpaError> {
        let Some(len) = self.peek_len(input)? else { return Ok(None) };
        let layout = self.layout(len);
        let total = layout.total();
        let Some(fpdu) = input.get_mut(..total) else { return Ok(None) };
        if self.crc {
            check_crc(fpdu)?;
        }
        let start = layout.length_at() + LENGTH_FIELD;
        check_markers(fpdu, layout)?;
        remove_markers(fpdu, layout, start + len);
        Ok(Some(Framed { start, len, consumed: total }))
    }
}

/// No part of an FPDU is handed over, and no marker removed, before all of it is there and its CRC
/// is good (RFC 5044 §6). Where both CRC and markers are wrong, the CRC is the fault. No more FPDUs
/// come after one (RFC 5044 §8).
impl Deframe for Deframer {
    type Error = MpaError;

    const CLOSED: MpaError = MpaError::Closed;
    const HEAD: usize = LENGTH_FIELD;

    fn fault(error: MpaError) -> &'static FramingFault {
        error.fault()
    }

    #[inline]
    fn next(&mut self, input: &mut [u8]) -> Result<Option<Framed>, MpaError> {
        let found = self.find(input);
        match found {
            Ok(Some(fpdu)) => self.position += fpdu.consumed as u64,
            Ok(None) => {}
            Err(error) => self.failed = Some(error),
        }
        found
    }

    /// Before the length field is there, the octets of the shortest FPDU.
    fn wanted(&self, input: &[u8]) -> usize {
        match self.peek_len(input) {
            Ok(Some(len)) => self.layout(len).total(),
            Ok(None) => self.layout(0).total(),
            Err(_) => 0,
        }
    }

    #[inline]
    fn peek_len(&self, input: &[u8]) -> Result<Option<usize>, MpaError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let at = Layout::leading(self.position, self.markers);
        let Some(field) = input.get(at..at + LENGTH_FIELD) else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([field[0], field[1]]));
        // A marker's pointer does not reach over a longer one. Without markers it is taken: Linux
        // siw fills TCP segments of any size, 65,483 octets on its loopback interface.
        if self.markers && len > MAX_ULPDU { Err(MpaError::Marker) } else { Ok(Some(len)) }
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
        self.markers
    }

    #[inline]
    fn can_stream(&self) -> bool {
        !self.crc && !self.markers && self.failed.is_none()
    }

    #[inline]
    fn advance(&mut self, octets: usize) {
        debug_assert!(self.can_stream());
        self.position += octets as u64;
    }
}

/// Markers go in as they came, meaningless bits included (erratum 1427).
fn check_crc(fpdu: &[u8]) -> Result<(), MpaError> {
    let (covered, field) = fpdu.split_at(fpdu.len() - CRC_FIELD);
    let mut crc = Digest::crc32c();
    crc.update(covered);
    if crc.wire() == field { Ok(()) } else { Err(MpaError::Crc) }
}

fn check_markers(fpdu: &[u8], layout: Layout) -> Result<(), MpaError> {
    let pointer = |at: usize| fpdu[at..].first_chunk().map(|&marker| marker::decode(marker));
    let length_at = layout.length_at();
    if length_at > 0 && pointer(0) != Some(0) {
        return Err(MpaError::Marker);
    }
    for n in 0..layout.inner_markers() {
        let at = layout.inner_marker_at(n);
        if pointer(at) != Some(at - length_at) {
            return Err(MpaError::Marker);
        }
    }
    Ok(())
}

/// Closes the gaps that markers leave in the ULPDU, which is to end at `end` afterwards.
fn remove_markers(fpdu: &mut [u8], layout: Layout, end: usize) {
    let count = layout.inner_markers();
    let mut filled = layout.inner_marker_at(0);
    for n in 0..count {
        if filled >= end {
            break;
        }
        let from = layout.inner_marker_at(n) + MARKER;
        let until =
            if n + 1 < count { layout.inner_marker_at(n + 1) } else { from + (end - filled) };
        fpdu.copy_within(from..until, filled);
        filled += until - from;
    }
}
