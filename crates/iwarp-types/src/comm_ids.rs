// SPDX-License-Identifier: MIT OR Apache-2.0

//! Communication ids of the connection manager.

/// The communication ids of a process, if several share the device: all those with its upper bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommIds {
    /// The first of them.
    pub first: u32,
    /// The number of lower bits that are free.
    pub free_bits: u32,
}

impl Default for CommIds {
    /// All of them.
    fn default() -> Self {
        Self { first: 0, free_bits: 32 }
    }
}

impl CommIds {
    /// The id that a random number chooses.
    #[must_use]
    pub const fn id(self, random: u32) -> u32 {
        self.first | (random as u64 & (self.count() - 1)) as u32
    }

    /// Their number.
    #[must_use]
    pub const fn count(self) -> u64 {
        // `free_bits` may be 32.
        1 << self.free_bits
    }
}
