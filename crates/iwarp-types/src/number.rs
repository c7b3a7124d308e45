// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names and numbers, each its own type.

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
    /// The offset `octets` further on, modulo 2^64: the caller must have checked the range.
    pub const fn advanced(self, octets: u64) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

/// Protection domain number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// Queue pair number: what a stream-scoped STag (memory window type 2) is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QpId(pub u32);

/// On whose behalf memory is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accessor {
    /// The protection domain of the queue pair.
    pub pd: PdId,
    /// The queue pair.
    pub qp: QpId,
}

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
