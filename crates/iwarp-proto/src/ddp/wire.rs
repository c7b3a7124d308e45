// SPDX-License-Identifier: MIT OR Apache-2.0

//! DDP headers (RFC 5041 §4).

use iwarp_types::{Stag, TaggedOffset};

use crate::ddp::error::DdpError;
use crate::types::{Mo, Msn, Qn};

/// Octets of a tagged header.
pub const TAGGED_LEN: usize = 14;
/// Octets of an untagged header.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED_FLAG: u8 = 0x80;
const LAST_FLAG: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// Header of a segment for a tagged buffer (RFC 5041 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// Last segment of its message.
    pub last: bool,
    /// RsvdULP: carried for the layer above, unread.
    pub rsvd_ulp: u8,
    /// The tagged buffer.
    pub stag: Stag,
    /// The tagged offset in it that the payload goes to.
    pub to: TaggedOffset,
}

/// Header of a segment for an untagged buffer (RFC 5041 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untagged {
    /// Last segment of its message.
    pub last: bool,
    /// RsvdULP: carried for the layer above, unread.
    pub rsvd_ulp: [u8; 5],
    /// The queue.
    pub qn: Qn,
    /// The message within the queue.
    pub msn: Msn,
    /// The offset in the message's buffer that the payload goes to.
    pub mo: Mo,
}

impl Tagged {
    /// Reads the header of a ULPDU that [`Header::is_tagged`].
    #[inline]
    pub(crate) fn read(ulpdu: &[u8]) -> Result<Self, DdpError> {
        let h: &[u8; TAGGED_LEN] = ulpdu.first_chunk().ok_or(DdpError::Truncated)?;
        Ok(Self {
            last: h[0] & LAST_FLAG != 0,
            rsvd_ulp: h[1],
            stag: Stag(be32(h, 2)),
            to: TaggedOffset(be64(h, 6)),
        })
    }

    /// The octets of the header.
    #[inline]
    pub fn octets(&self) -> [u8; TAGGED_LEN] {
        let mut out = [0; TAGGED_LEN];
        out[0] = TAGGED_FLAG | last_flag(self.last) | VERSION;
        out[1] = self.rsvd_ulp;
        out[2..6].copy_from_slice(&self.stag.0.to_be_bytes());
        out[6..14].copy_from_slice(&self.to.0.to_be_bytes());
        out
    }
}

impl Untagged {
    /// Reads the header of a ULPDU that is not [`Header::is_tagged`].
    #[inline]
    pub(crate) fn read(ulpdu: &[u8]) -> Result<Self, DdpError> {
        let h: &[u8; UNTAGGED_LEN] = ulpdu.first_chunk().ok_or(DdpError::Truncated)?;
        Ok(Self {
            last: h[0] & LAST_FLAG != 0,
            rsvd_ulp: [h[1], h[2], h[3], h[4], h[5]],
            qn: Qn(be32(h, 6)),
            msn: Msn(be32(h, 10)),
            mo: Mo(be32(h, 14)),
        })
    }

    /// The octets of the header.
    #[inline]
    pub fn octets(&self) -> [u8; UNTAGGED_LEN] {
        let mut out = [0; UNTAGGED_LEN];
        out[0] = last_flag(self.last) | VERSION;
        out[1..6].copy_from_slice(&self.rsvd_ulp);
        out[6..10].copy_from_slice(&self.qn.0.to_be_bytes());
        out[10..14].copy_from_slice(&self.msn.0.to_be_bytes());
        out[14..18].copy_from_slice(&self.mo.0.to_be_bytes());
        out
    }
}

/// Either header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// T = 1.
    Tagged(Tagged),
    /// T = 0.
    Untagged(Untagged),
}

impl Header {
    /// Octets that the header at the start of `ulpdu` takes, by its own T bit; `None` when there
    /// is not one octet.
    #[inline]
    pub fn len_of(ulpdu: &[u8]) -> Option<usize> {
        ulpdu.first().map(|control| Self::len_for(*control))
    }

    const fn len_for(control: u8) -> usize {
        if control & TAGGED_FLAG != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
    }

    /// The octets behind the header in `ulpdu`: none where that is too short for one.
    #[inline]
    pub(crate) fn payload_of(ulpdu: &[u8]) -> &[u8] {
        Self::len_of(ulpdu).and_then(|len| ulpdu.get(len..)).unwrap_or_default()
    }

    /// True if a header that begins with `control` is that of a message's last segment.
    #[inline]
    pub(crate) const fn is_last(control: u8) -> bool {
        control & LAST_FLAG != 0
    }

    /// Reads the header at the start of a ULPDU. Reserved bits are not looked at (RFC 5041 §4.1).
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<Self, DdpError> {
        Ok(match Self::is_tagged(ulpdu)? {
            true => Self::Tagged(Tagged::read(ulpdu)?),
            false => Self::Untagged(Untagged::read(ulpdu)?),
        })
    }

    /// Which header the ULPDU begins with, of the version that is known.
    #[inline]
    pub(crate) fn is_tagged(ulpdu: &[u8]) -> Result<bool, DdpError> {
        let control = *ulpdu.first().ok_or(DdpError::Truncated)?;
        let tagged = control & TAGGED_FLAG != 0;
        if control & VERSION_MASK != VERSION {
            return Err(if tagged { DdpError::TaggedVersion } else { DdpError::UntaggedVersion });
        }
        Ok(tagged)
    }

    /// Octets this header takes.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// True if this is the last segment of its message.
    pub const fn last(&self) -> bool {
        match self {
            Self::Tagged(h) => h.last,
            Self::Untagged(h) => h.last,
        }
    }

    /// Writes the header to the start of `out`, which must have room, and returns its length.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Tagged(h) => {
                out[..TAGGED_LEN].copy_from_slice(&h.octets());
                TAGGED_LEN
            }
            Self::Untagged(h) => {
                out[..UNTAGGED_LEN].copy_from_slice(&h.octets());
                UNTAGGED_LEN
            }
        }
    }
}

/// The octets of the headers of a message's segments, which differ in L and in the place of the
/// payload only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets {
    octets: [u8; UNTAGGED_LEN],
    len: usize,
}

impl Octets {
    pub(crate) fn of(header: &Header) -> Self {
        let mut octets = [0; UNTAGGED_LEN];
        let len = header.emit(&mut octets);
        Self { octets, len }
    }

    /// The header of the segment whose payload goes to this TO or MO.
    #[inline]
    pub(crate) fn at(&mut self, place: u64, last: bool) -> &[u8] {
        self.octets[0] = self.octets[0] & !LAST_FLAG | last_flag(last);
        if self.len == TAGGED_LEN {
            self.octets[6..14].copy_from_slice(&place.to_be_bytes());
            &self.octets[..TAGGED_LEN]
        } else {
            self.octets[14..18].copy_from_slice(&(place as u32).to_be_bytes());
            &self.octets
        }
    }
}

/// Knows the segments that continue a message, each where the one before ended, by the octets of
/// their headers. One whose reserved bits are others than those of the first is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// Octets of a header.
    header_len: usize,
    /// The first eight octets, without L, and which of their bits have to be so.
    head: u64,
    mask: u64,
    /// QN and MSN, or nothing.
    message: u64,
    /// TO or MO of the next segment.
    at: u64,
}

impl Continuation {
    /// Begins with the segment in `ulpdu`. `None` where that ends its message, or is none.
    pub fn of(ulpdu: &[u8]) -> Option<Self> {
        if ulpdu.first()? & LAST_FLAG != 0 {
            return None;
        }
        let first = match Header::parse(ulpdu).ok()? {
            Header::Tagged(h) => Self {
                header_len: TAGGED_LEN,
                head: be64(ulpdu, 0),
                // The last two octets are of the TO.
                mask: !0xffff,
                message: 0,
                at: h.to.0,
            },
            Header::Untagged(h) => Self {
                header_len: UNTAGGED_LEN,
                head: be64(ulpdu, 0),
                mask: !0,
                message: be64(ulpdu, 6),
                at: u64::from(h.mo.0),
            },
        };
        Some(Self { mask: first.mask & !(u64::from(LAST_FLAG) << 56), ..first })
    }

    /// Goes on behind `len` octets of payload.
    #[inline]
    pub const fn advance(&mut self, len: u32) {
        let at = self.at.wrapping_add(len as u64);
        self.at = if self.header_len == TAGGED_LEN { at } else { at & 0xffff_ffff };
    }

    /// Octets of the header of each segment.
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// `Some` if the segment in `ulpdu` is the next one: true if it is the last.
    #[inline]
    pub fn is_next(&self, ulpdu: &[u8]) -> Option<bool> {
        let h: &[u8; TAGGED_LEN] = ulpdu.first_chunk()?;
        let (head, place) = (be64(h, 0), be64(h, 6));
        let fits = if self.header_len == TAGGED_LEN {
            place == self.at
        } else {
            let h: &[u8; UNTAGGED_LEN] = ulpdu.first_chunk()?;
            place == self.message && u64::from(be32(h, 14)) == self.at
        };
        let same = (head ^ self.head) & self.mask == 0;
        (same && fits).then_some(h[0] & LAST_FLAG != 0)
    }
}

const fn last_flag(last: bool) -> u8 {
    if last { LAST_FLAG } else { 0 }
}

/// Reads 32 bits in network order; the caller has checked the length.
#[inline]
pub(crate) fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

/// Reads 64 bits in network order; the caller has checked the length.
#[inline]
pub(crate) fn be64(octets: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&octets[at..at + 8]);
    u64::from_be_bytes(word)
}
