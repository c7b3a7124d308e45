// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of DDP's headers, each its own type under the name the RFC gives it.

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

    /// The number of steps that `self` is ahead of `other`, modulo 2^32.
    pub const fn distance_from(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

/// Message offset: an untagged segment's place in its message (RFC 5041 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Mo(pub u32);
