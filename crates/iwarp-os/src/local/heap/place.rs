// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names that other processes have for bytes of arenas.

/// Arenas that a process has at most, each with a descriptor. Further memory is the allocator's.
pub const ARENAS: usize = 64;

/// Bytes of an arena, as other processes name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaPlace {
    /// The number of the arena, below [`ARENAS`].
    pub arena: u32,
    /// Bytes before the first of them.
    pub offset: u64,
}
