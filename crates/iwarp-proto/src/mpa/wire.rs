// SPDX-License-Identifier: MIT OR Apache-2.0

//! The octets of FPDUs and of start-up frames (RFC 5044 §4, §7.1.1; RFC 6581 §6, §9).

use alloc::vec::Vec;

use iwarp_types::RtrTypes;

use super::error::StartupError;

/// The longest ULPDU that may be sent (RFC 5044 §3).
pub const MAX_ULPDU: usize = 64768;
/// The smallest MULPDU that may be offered, however small TCP's segments are (RFC 5044 §3).
pub const MIN_MULPDU: usize = 128;
/// Octets of stream from one marker to the next (RFC 5044 §4.3).
pub const MARKER_INTERVAL: u64 = 512;
/// Octets of the ULPDU_Length field.
pub const LENGTH_FIELD: usize = 2;
/// Octets of the CRC field, which is there even when CRCs are off.
pub const CRC_FIELD: usize = 4;

/// Octets of padding that make length field and ULPDU a multiple of 4 (RFC 5044 §4.1).
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_FIELD + ulpdu_len).wrapping_neg() % 4
}

/// Octets behind the ULPDU where no markers are in use: padding and CRC field.
pub const fn trailer_len(ulpdu_len: usize) -> usize {
    pad_len(ulpdu_len) + CRC_FIELD
}

/// The largest ULPDU whose FPDU fits one TCP segment of `emss` octets (RFC 5044 §4.5), never
/// below [`MIN_MULPDU`] nor above [`MAX_ULPDU`]. `markers` says whether they are sent.
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let marker_octets = if markers { 4 * emss.div_ceil(MARKER_INTERVAL as usize) } else { 0 };
    let overhead = LENGTH_FIELD + CRC_FIELD + marker_octets + emss % 4;
    let fits = emss.saturating_sub(overhead);
    if fits < MIN_MULPDU {
        MIN_MULPDU
    } else if fits > MAX_ULPDU {
        MAX_ULPDU
    } else {
        fits
    }
}

/// Octets of a start-up frame in front of its private data.
pub const FRAME_HEADER: usize = 20;
/// Most octets of private data in a start-up frame, the enhanced word among them.
pub const MAX_PRIVATE_DATA: usize = 512;
/// The IRD or ORD that says "negotiated by the ULP": not a number (RFC 6581 §9.1).
pub const ULP_NEGOTIATES: u16 = 0x3fff;

const KEY_LEN: usize = 16;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Which of the two start-up frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameKind {
    /// From the Initiator.
    Request,
    /// From the Responder.
    Reply,
}

impl FrameKind {
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// A start-up frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Request or Reply.
    pub kind: FrameKind,
    /// M: the sender wants markers in what it receives.
    pub markers: bool,
    /// C: the sender wants CRCs, which then both ends generate and check.
    pub crc: bool,
    /// R: a Reply that refuses the connection. Sent as zero in a Request and not looked at there.
    pub rejected: bool,
    /// Revision of MPA.
    pub rev: u8,
    /// The enhanced word. Present only from revision 2 on: in revision 1 its flag is one of the
    /// reserved bits, which are not looked at.
    pub enhanced: Option<EnhancedData>,
    /// Private data of the ULP, without the enhanced word.
    pub private_data: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Most octets of ULP private data beside what else the frame carries.
    pub const fn private_data_limit(enhanced: bool) -> usize {
        if enhanced { MAX_PRIVATE_DATA - EnhancedData::LEN } else { MAX_PRIVATE_DATA }
    }

    /// The octets of the frame, or [`StartupError::PrivateDataTooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, StartupError> {
        if self.private_data.len() > Self::private_data_limit(self.enhanced.is_some()) {
            return Err(StartupError::PrivateDataTooLong(self.private_data.len()));
        }
        let enhanced_len = if self.enhanced.is_some() { EnhancedData::LEN } else { 0 };
        let pd_length = enhanced_len + self.private_data.len();
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        let mut out = Vec::with_capacity(FRAME_HEADER + pd_length);
        out.extend_from_slice(self.kind.key());
        out.push(
            flag(self.markers, MARKERS)
                | flag(self.crc, CRC)
                | flag(self.rejected && self.kind == FrameKind::Reply, REJECTED)
                | flag(self.enhanced.is_some(), ENHANCED),
        );
        out.push(self.rev);
        out.extend_from_slice(&(pd_length as u16).to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            out.extend_from_slice(&enhanced.encode());
        }
        out.extend_from_slice(self.private_data);
        Ok(out)
    }

    /// Reads the frame at the head of `input`. Returns it with the octets it takes, or `None`
    /// while it may still become one. A wrong key, revision or length is reported with the first
    /// octet that shows it, so a peer that is no MPA peer cannot hold a connection until the
    /// deadline.
    ///
    /// Revisions from 1 to `max_rev` pass.
    pub fn parse(
        kind: FrameKind,
        max_rev: u8,
        input: &'a [u8],
    ) -> Result<Option<(Self, usize)>, StartupError> {
        let key_seen = input.len().min(KEY_LEN);
        if input[..key_seen] != kind.key()[..key_seen] {
            return Err(StartupError::Key);
        }
        match input.get(KEY_LEN + 1) {
            Some(&rev) if rev == 0 || rev > max_rev => return Err(StartupError::Revision(rev)),
            _ => {}
        }
        let Some(header) = input.first_chunk::<FRAME_HEADER>() else { return Ok(None) };
        let (flags, rev) = (header[KEY_LEN], header[KEY_LEN + 1]);
        let pd_length = usize::from(u16::from_be_bytes([header[18], header[19]]));
        if pd_length > MAX_PRIVATE_DATA {
            return Err(StartupError::PrivateDataTooLong(pd_length));
        }
        let has_enhanced = rev >= 2 && flags & ENHANCED != 0;
        if has_enhanced && pd_length < EnhancedData::LEN {
            return Err(StartupError::EnhancedDataMissing);
        }
        let Some(mut private_data) = input.get(FRAME_HEADER..FRAME_HEADER + pd_length) else {
            return Ok(None);
        };
        let mut enhanced = None;
        if has_enhanced && let Some((word, rest)) = private_data.split_first_chunk() {
            enhanced = Some(EnhancedData::decode(*word));
            private_data = rest;
        }
        let frame = Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            rejected: flags & REJECTED != 0 && kind == FrameKind::Reply,
            rev,
            enhanced,
            private_data,
        };
        Ok(Some((frame, FRAME_HEADER + pd_length)))
    }

    /// Octets of the frame at the head of `input` that are not there yet, as far as they show how
    /// long it is. A reader that reads no more than these takes nothing of what follows the frame.
    pub fn missing(input: &[u8]) -> usize {
        let pd_length = match input.first_chunk::<FRAME_HEADER>() {
            Some(header) => usize::from(u16::from_be_bytes([header[18], header[19]])),
            None => 0,
        };
        (FRAME_HEADER + pd_length).saturating_sub(input.len())
    }

    /// True if the frame at the head of `input`, of which the private data may be missing, asks for
    /// markers in what its sender receives.
    pub fn asks_for_markers(input: &[u8]) -> bool {
        input.get(KEY_LEN).is_some_and(|flags| flags & MARKERS != 0)
    }
}

/// The word in front of the private data of an enhanced frame (RFC 6581 §9). All values are the
/// sender's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EnhancedData {
    /// A: peer-to-peer model, so the Initiator begins with a ready-to-receive indication.
    pub peer_to_peer: bool,
    /// B, C and D. Without A they are sent as zero and read as none.
    pub rtr: RtrTypes,
    /// Inbound RDMA Read queue depth, 14 bits, or [`ULP_NEGOTIATES`].
    pub ird: u16,
    /// Outbound RDMA Read queue depth, 14 bits, or [`ULP_NEGOTIATES`].
    pub ord: u16,
}

impl EnhancedData {
    /// Octets.
    pub const LEN: usize = 4;

    const A: u16 = 0x8000;
    const B: u16 = 0x4000;
    const C: u16 = 0x8000;
    const D: u16 = 0x4000;
    const DEPTH: u16 = 0x3fff;

    /// The octets of the word. Depths are cut to 14 bits: the caller has checked them.
    pub const fn encode(self) -> [u8; Self::LEN] {
        let rtr = if self.peer_to_peer { self.rtr } else { RtrTypes::NONE };
        let mut high = self.ird & Self::DEPTH;
        let mut low = self.ord & Self::DEPTH;
        if self.peer_to_peer {
            high |= Self::A;
        }
        if rtr.send {
            high |= Self::B;
        }
        if rtr.write {
            low |= Self::C;
        }
        if rtr.read {
            low |= Self::D;
        }
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        [a, b, c, d]
    }

    /// Reads the word.
    pub const fn decode(octets: [u8; Self::LEN]) -> Self {
        let high = u16::from_be_bytes([octets[0], octets[1]]);
        let low = u16::from_be_bytes([octets[2], octets[3]]);
        let peer_to_peer = high & Self::A != 0;
        let rtr = if peer_to_peer {
            RtrTypes {
                send: high & Self::B != 0,
                write: low & Self::C != 0,
                read: low & Self::D != 0,
            }
        } else {
            RtrTypes::NONE
        };
        Self { peer_to_peer, rtr, ird: high & Self::DEPTH, ord: low & Self::DEPTH }
    }
}
