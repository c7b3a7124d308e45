// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests and their attributes.

use super::numbers::{EINVAL, NLA_HDRLEN, NLA_TYPE_MASK, NLMSG_HDRLEN};

/// A message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Client and command, or a number of netlink's own.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// The sender's number, which answers repeat.
    pub sequence: u32,
    /// All of it, as it came.
    pub header: &'a [u8; NLMSG_HDRLEN],
    /// The attributes behind the header.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first of these octets, and those behind it; `None` where there is no whole message.
    pub fn first(octets: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = octets.first_chunk::<NLMSG_HDRLEN>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
        let body = octets.get(NLMSG_HDRLEN..length)?;
        let message = Self {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            header,
            body,
        };
        Some((message, octets.get(aligned(length)..).unwrap_or_default()))
    }

    /// The number in an attribute, if there is one of this kind.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it is too short for a number of 32 bits.
    pub fn number(&self, kind: u16) -> Result<Option<u32>, i32> {
        let Some(value) = attribute(self.body, kind) else { return Ok(None) };
        let octets = value.first_chunk().ok_or(EINVAL)?;
        Ok(Some(u32::from_ne_bytes(*octets)))
    }

    /// Likewise, of an attribute that must be there.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it is not, too.
    pub fn needed(&self, kind: u16) -> Result<u32, i32> {
        self.number(kind)?.ok_or(EINVAL)
    }
}

/// The value of the last attribute of a kind, which is the one that counts. Octets that are no
/// attribute end the list.
pub fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut found = None;
    while let Some([l0, l1, k0, k1]) = list.first_chunk::<NLA_HDRLEN>() {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let Some(value) = list.get(NLA_HDRLEN..length) else { break };
        if u16::from_ne_bytes([*k0, *k1]) & NLA_TYPE_MASK == wanted {
            found = Some(value);
        }
        list = list.get(aligned(length)..).unwrap_or_default();
    }
    found
}

/// Messages and attributes begin at multiples of four.
pub(super) const fn aligned(length: usize) -> usize {
    length.wrapping_add(3) & !3
}
