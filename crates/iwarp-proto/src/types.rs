//! The numbers of the protocol, each its own type under the name the RFCs give it.

use core::fmt;
use core::time::Duration;

/// Steering tag: names a tagged buffer on the wire (RFC 5041 §2.1). In this implementation a
/// 24-bit index and an 8-bit key, as the verbs have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Stag(pub u32);

impl Stag {
    /// The part that selects an entry of the STag table.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The part that must match the entry's current key.
    pub const fn key(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Debug for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stag({:#010x})", self.0)
    }
}

/// Tagged offset: an octet's place in a tagged buffer (RFC 5041 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TaggedOffset(pub u64);

impl TaggedOffset {
    /// The offset `octets` further on, modulo 2^64: whoever adds must have checked the range.
    pub const fn advanced(self, octets: u64) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

/// Queue number of an untagged buffer queue (RFC 5041 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Qn(pub u32);

impl Qn {
    /// Send messages and Immediate Data (RFC 5040 §3.1, RFC 7306 §6.3).
    pub const SEND: Self = Self(0);
    /// Read and Atomic Requests (RFC 5040 §3.1, RFC 7306 §5.2).
    pub const READ_REQUEST: Self = Self(1);
    /// Terminate (RFC 5040 §3.1).
    pub const TERMINATE: Self = Self(2);
    /// Atomic Responses (RFC 7306 §5.2).
    pub const ATOMIC_RESPONSE: Self = Self(3);
}

/// Message sequence number, one space for each queue and direction (RFC 5041 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Msn(pub u32);

impl Msn {
    /// The first message of every queue.
    pub const FIRST: Self = Self(1);

    /// The number after this one; 0xFFFF_FFFF is followed by 0.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How far `self` is ahead of `other`, modulo 2^32.
    pub const fn distance_from(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

/// Message offset: an untagged segment's place in its message (RFC 5041 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Mo(pub u32);

/// A moment, as the time since an origin that the caller chose. The core never reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub Duration);

impl Time {
    /// The moment `after` this one.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }
}
