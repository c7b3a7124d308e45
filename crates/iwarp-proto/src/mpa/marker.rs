// SPDX-License-Identifier: MIT OR Apache-2.0

//! The positions of markers in the stream, and what they point to (RFC 5044 §4.3).
//!
//! A marker of 4 octets stands at every stream position that is a multiple of 512, counted from
//! the first octet of Full Operation and markers included. As every FPDU is a multiple of 4
//! octets, a marker never splits a length field, a CRC or another marker.

use super::wire::{CRC_FIELD, LENGTH_FIELD, MARKER_INTERVAL, pad_len};

/// Octets of a marker: 16 bits reserved, 16 bits FPDUPTR.
pub const MARKER: usize = 4;

/// Octets of FPDU between two markers.
const STRIDE: u64 = MARKER_INTERVAL - MARKER as u64;

/// The places of the parts of one FPDU, counted from its first octet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    start: u64,
    markers: bool,
    ulpdu_len: usize,
}

impl Layout {
    /// The FPDU that starts at stream position `start` and carries `ulpdu_len` octets.
    pub const fn new(start: u64, markers: bool, ulpdu_len: usize) -> Self {
        Self { start, markers, ulpdu_len }
    }

    /// Octets in front of the length field: a marker where the FPDU starts on a marker position.
    pub const fn leading(start: u64, markers: bool) -> usize {
        if markers && start.is_multiple_of(MARKER_INTERVAL) { MARKER } else { 0 }
    }

    /// Offset of the length field in the FPDU.
    pub const fn length_at(self) -> usize {
        Self::leading(self.start, self.markers)
    }

    /// Octets from the length field to the first marker behind it; `None` without markers.
    pub const fn before_first_marker(self) -> Option<usize> {
        if !self.markers {
            return None;
        }
        let length_pos = self.start + self.length_at() as u64;
        Some((MARKER_INTERVAL - length_pos % MARKER_INTERVAL) as usize)
    }

    /// Markers behind the length field, the one between pad and CRC among them.
    pub const fn inner_markers(self) -> usize {
        let octets = LENGTH_FIELD + self.ulpdu_len + pad_len(self.ulpdu_len);
        match self.before_first_marker() {
            Some(first) if octets >= first => 1 + (octets - first) / STRIDE as usize,
            _ => 0,
        }
    }

    /// Offset of the `n`th marker behind the length field, from the FPDU's first octet.
    pub const fn inner_marker_at(self, n: usize) -> usize {
        match self.before_first_marker() {
            Some(first) => self.length_at() + first + n * MARKER_INTERVAL as usize,
            None => usize::MAX,
        }
    }

    /// Octets of the whole FPDU, markers and CRC field included.
    pub const fn total(self) -> usize {
        self.length_at()
            + LENGTH_FIELD
            + self.ulpdu_len
            + pad_len(self.ulpdu_len)
            + MARKER * self.inner_markers()
            + CRC_FIELD
    }
}

/// The octets of a marker `octets` behind its FPDU's length field; 0 for one between FPDUs.
pub const fn encode(octets: usize) -> [u8; MARKER] {
    let [high, low] = (octets as u16).to_be_bytes();
    [0, 0, high, low]
}

/// FPDUPTR of a received marker: the reserved half and the low two bits mean nothing
/// (RFC 5044 §4.2; the CRC takes them as they came, erratum 1427).
pub const fn decode(marker: [u8; MARKER]) -> usize {
    (u16::from_be_bytes([marker[2], marker[3]]) & !3) as usize
}
