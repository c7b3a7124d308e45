// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making FPDUs (RFC 5044 §4).

use iwarp_types::Digest;

use super::marker::{self, Layout};
use super::wire::{CRC_FIELD, LENGTH_FIELD, MARKER_INTERVAL, MAX_ULPDU, pad_len, trailer_len};
use crate::framing::Frame;

/// Octets of the shortest FPDU without markers; its pad and CRC field are no longer.
const SHORTEST: usize = 8;
/// Octets of payload up to which the CRC is computed of the FPDU that was written, all at once:
/// that costs less than to carry it from piece to piece.
const SUMMED_AT_ONCE: usize = 192;

/// The sending half of a connection in Full Operation.
///
/// Knows how far the stream has come, and so where markers belong. One call frames one ULPDU, and
/// an FPDU is made whole or not at all.
#[derive(Debug)]
pub struct Framer {
    position: u64,
    crc: bool,
    markers: bool,
}

impl Framer {
    /// A stream of which nothing is framed yet. `crc`: generate CRCs. `markers`: the peer asked
    /// for markers.
    pub fn new(crc: bool, markers: bool) -> Self {
        Self { position: 0, crc, markers }
    }

    #[cfg(test)]
    pub(super) fn at(crc: bool, markers: bool, position: u64) -> Self {
        Self { position, crc, markers }
    }

    /// Frames no CRCs from now on: the field has zeros.
    pub const fn stop_crc(&mut self) {
        self.crc = false;
    }

    #[inline(never)]
    fn write_with_markers<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: &mut impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let ulpdu_len = header.len() + payload_len;
        let layout = self.layout(ulpdu_len);
        let total = layout.total();
        let mut fpdu = Writer {
            out: &mut out[..total],
            at: 0,
            summed: 0,
            length_at: layout.length_at(),
            next_marker: layout.inner_marker_at(0),
            crc: self.crc.then(Digest::crc32c),
        };
        if fpdu.length_at > 0 {
            fpdu.put(&marker::encode(0));
        }
        fpdu.put(&(ulpdu_len as u16).to_be_bytes());
        fpdu.put_between_markers(header);
        fpdu.fill_between_markers(payload_len, fill)?;
        fpdu.put_between_markers(&[0; 3][..pad_len(ulpdu_len)]);
        fpdu.marker_if_due();
        fpdu.finish();
        self.position += total as u64;
        Ok(total)
    }

    fn layout(&self, ulpdu_len: usize) -> Layout {
        check_len(ulpdu_len);
        Layout::new(self.position, self.markers, ulpdu_len)
    }
}

/// Positions and lengths count markers. The ULPDU is no longer than [`MAX_ULPDU`].
impl Frame for Framer {
    fn max_ulpdu(&self) -> usize {
        MAX_ULPDU
    }

    #[inline]
    fn position(&self) -> u64 {
        self.position
    }

    #[inline]
    fn interleaves(&self) -> bool {
        self.markers
    }

    #[inline]
    fn sends_in_place(&self) -> bool {
        !self.crc && !self.markers
    }

    #[inline]
    fn frame_len(&self, ulpdu_len: usize) -> usize {
        self.layout(ulpdu_len).total()
    }

    #[inline]
    fn trailer_len(&self, ulpdu_len: usize) -> usize {
        trailer_len(ulpdu_len)
    }

    /// Of a short payload the CRC is computed when it was copied.
    #[inline]
    fn write<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        mut fill: impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E> {
        if self.markers {
            return self.write_with_markers(out, header, payload_len, &mut fill);
        }
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
        debug_assert!(!self.markers);
        let ulpdu_len = header.len() + payload_len;
        check_len(ulpdu_len);
        let pad = pad_len(ulpdu_len);
        let total = LENGTH_FIELD + ulpdu_len + pad + CRC_FIELD;
        let out = &mut out[..total];
        // Pad and CRC field, which without CRCs may hold anything (RFC 5044 §4.1), and what is
        // written over: of a length that the compiler knows.
        out[total - SHORTEST..].copy_from_slice(&[0; SHORTEST]);
        let (head, rest) = out.split_at_mut(LENGTH_FIELD + header.len());
        let (length, ddp) = head.split_at_mut(LENGTH_FIELD);
        length.copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
        copy_header(ddp, header);
        let payload = &mut rest[..payload_len];
        let mut crc = Digest::crc32c();
        let carried = self.crc && payload_len > SUMMED_AT_ONCE;
        if carried {
            begin_sum(&mut crc, head);
        }
        if payload_len > 0 {
            fill(0, payload, carried.then_some(&mut crc))?;
        }
        if self.crc {
            let (covered, field) = out.split_at_mut(total - CRC_FIELD);
            // The octets that the CRC has not taken yet: the pad, or everything.
            let from = if carried { covered.len() - pad } else { 0 };
            crc.update(&covered[from..]);
            field.copy_from_slice(&crc.wire());
        }
        self.position += total as u64;
        Ok(total)
    }

    fn measure(&self, frame: &[u8]) -> Option<(usize, usize)> {
        let ulpdu = usize::from(u16::from_be_bytes(*frame.first_chunk()?));
        let total = LENGTH_FIELD + ulpdu + trailer_len(ulpdu);
        (!self.markers).then_some((LENGTH_FIELD, total))
    }

    #[inline]
    fn write_head(&mut self, out: &mut [u8], header: &[u8], payload_len: usize) -> usize {
        assert!(!self.crc && !self.markers, "CRCs and markers need the payload");
        let ulpdu_len = header.len() + payload_len;
        let total = self.frame_len(ulpdu_len);
        let head = LENGTH_FIELD + header.len();
        out[..LENGTH_FIELD].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
        out[LENGTH_FIELD..head].copy_from_slice(header);
        self.position += total as u64;
        head
    }
}

/// Copies a header without a call where it has a usual length.
#[inline]
fn copy_header(out: &mut [u8], header: &[u8]) {
    let n = header.len();
    if (8..=24).contains(&n) && out.len() == n {
        let middle = 8.min(n - 8);
        for at in [0, middle, n - 8] {
            out[at..at + 8].copy_from_slice(&header[at..at + 8]);
        }
    } else {
        out.copy_from_slice(header);
    }
}

#[inline]
fn check_len(ulpdu_len: usize) {
    assert!(ulpdu_len <= MAX_ULPDU, "ULPDU of {ulpdu_len} octets (RFC 5044 §3)");
}

/// One FPDU with markers being written. Octets under the CRC are fed in the longest possible runs.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Octets that the CRC has taken.
    summed: usize,
    length_at: usize,
    next_marker: usize,
    crc: Option<Digest>,
}

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) {
        let end = self.at + octets.len();
        self.out[self.at..end].copy_from_slice(octets);
        self.at = end;
    }

    fn marker_if_due(&mut self) {
        if self.at == self.next_marker {
            self.put(&marker::encode(self.at - self.length_at));
            self.next_marker += MARKER_INTERVAL as usize;
        }
    }

    fn put_between_markers(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            self.marker_if_due();
            let (now, later) = octets.split_at(octets.len().min(self.next_marker - self.at));
            self.put(now);
            octets = later;
        }
    }

    fn fill_between_markers<E>(
        &mut self,
        len: usize,
        fill: &mut impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut offset = 0;
        while offset < len {
            self.marker_if_due();
            let run = (len - offset).min(self.next_marker - self.at);
            self.sum();
            let end = self.at + run;
            fill(offset, &mut self.out[self.at..end], self.crc.as_mut())?;
            self.at = end;
            self.summed = end;
            offset += run;
        }
        Ok(())
    }

    /// Feeds the CRC with what was written since it last took something.
    fn sum(&mut self) {
        if let Some(crc) = &mut self.crc {
            crc.update(&self.out[self.summed..self.at]);
        }
        self.summed = self.at;
    }

    fn finish(mut self) {
        self.sum();
        // Without CRCs the field may hold anything (RFC 5044 §4.1).
        let crc = self.crc.map_or([0; 4], Digest::wire);
        self.put(&crc);
        debug_assert_eq!(self.at, self.out.len());
    }
}
/// A function of its own: in place it costs registers where segments have no CRC.
#[inline(never)]
fn begin_sum(crc: &mut Digest, head: &[u8]) {
    crc.update(head);
}
