// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of operations, made of their completions.

use iwarp_types::WorkCompletion;

use crate::Block;
use crate::cargo::Cargo;

/// The results of operations: their [`Blocks`](crate::Blocks), a
/// [`Received`](crate::Received) message, the old value of an atomic operation (`u64`), a
/// length (`usize`), or nothing.
pub trait Outcome: sealed::Outcome {}

impl<T: sealed::Outcome> Outcome for T {}

pub(super) mod sealed {
    use super::{Block, Cargo, WorkCompletion};

    pub trait Outcome: Sized {
        /// `None` where the completion cannot be of such an operation.
        fn new(completion: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self>;
    }
}

/// The old value of an atomic operation.
impl sealed::Outcome for u64 {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        Some(Self::from_ne_bytes(cargo.one()?.get(..8)?.try_into().ok()?))
    }
}

impl sealed::Outcome for () {
    fn new(_: &WorkCompletion, _: Cargo<Block>) -> Option<Self> {
        Some(())
    }
}

/// The length of a message that was received into borrowed memory.
impl sealed::Outcome for usize {
    fn new(completion: &WorkCompletion, _: Cargo<Block>) -> Option<Self> {
        Some(if completion.immediate.is_some() { 0 } else { completion.byte_len as Self })
    }
}
