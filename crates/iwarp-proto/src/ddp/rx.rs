// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checking where a segment may go (RFC 5041 §5.4, §7.1).

use iwarp_types::AccessError;

use crate::ddp::error::DdpError;
use crate::ddp::wire::Untagged;
use crate::types::Msn;

/// The receiving side of one untagged buffer queue: messages arrive in MSN order, one at a time,
/// because the stream below delivers in order.
#[derive(Clone, Copy, Debug)]
pub struct UntaggedQueue {
    next: Msn,
}

impl UntaggedQueue {
    /// A queue that expects its first message.
    pub const fn new() -> Self {
        Self { next: Msn::FIRST }
    }

    /// A queue that expects message `msn`.
    pub const fn expecting(msn: Msn) -> Self {
        Self { next: msn }
    }

    /// The message that is expected or being received.
    pub const fn next(&self) -> Msn {
        self.next
    }

    /// Checks the MSN of a segment when `available` buffers are posted, the one in use included.
    ///
    /// RFC 5041 §7.1 wants it within the first and the last available buffer. Beyond the last
    /// one there is no buffer; any other than the next cannot be right on an ordered stream.
    #[inline]
    pub fn check_msn(&self, header: &Untagged, available: u32) -> Result<(), DdpError> {
        let ahead = header.msn.distance_from(self.next);
        if ahead == 0 && available > 0 {
            Ok(())
        } else if ahead >= available && ahead < u32::MAX / 2 {
            Err(DdpError::NoBuffer)
        } else {
            Err(DdpError::MsnRange)
        }
    }

    /// The message was delivered: the next one is expected.
    pub fn delivered(&mut self) {
        self.next = self.next.next();
    }
}

impl Default for UntaggedQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks that `len` payload octets at the segment's MO lie within a buffer of `buffer` octets.
/// An offset outside it is an invalid MO, an end outside it a message that is too long. However
/// large the buffer, a message has less than 2^32 octets (RFC 5041 §5.2).
#[inline]
pub fn check_offset(header: &Untagged, len: usize, buffer: u64) -> Result<(), DdpError> {
    let room = u32::try_from(buffer).unwrap_or(u32::MAX);
    let (buffer, mo) = (u64::from(room), u64::from(header.mo.0));
    let too_long = || {
        let octets = u32::try_from(mo + len as u64).unwrap_or(u32::MAX);
        DdpError::TooLong { octets, whole: header.last, room }
    };
    if len == 0 {
        // The end of the message may stand alone, but not behind the buffer: with it the message
        // would be longer than what was placed.
        return if mo > buffer { Err(DdpError::InvalidMo) } else { Ok(()) };
    }
    if mo >= buffer {
        // Offset 0 is never wrong in itself: a message that needs an octet is too long for none.
        return Err(if mo == 0 { too_long() } else { DdpError::InvalidMo });
    }
    if len as u64 > buffer - mo { Err(too_long()) } else { Ok(()) }
}

/// The DDP fault that a refused access to a tagged buffer is (RFC 5041 §7.2). There is no code
/// for a missing right; an STag without it is not valid for the access. Memory that is gone is no
/// fault of the peer's, and not reported as one.
impl From<AccessError> for DdpError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Bounds => Self::Bounds,
            AccessError::Wrap => Self::Wrap,
            AccessError::NotAssociated => Self::NotAssociated,
            AccessError::InvalidStag
            | AccessError::Rights
            | AccessError::Unaligned
            | AccessError::CannotInvalidate
            | AccessError::BadAddress(_) => Self::InvalidStag,
        }
    }
}
