// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that operations take and give back.

use iwarp_types::WorkCompletion;

use crate::cargo::Cargo;
use crate::{Block, Outcome, outcome};

/// The memory that Sends, Writes and Reads carry: one [`Block`], or several (`[Block; N]`,
/// `Vec<Block>`), whose bytes are one message or one range of the peer's memory, in their order.
/// They come back in the same shape.
///
/// A session takes as many at a time as [`Config::max_blocks`](crate::Config::max_blocks).
pub trait Blocks: sealed::Blocks + Outcome {}

impl<B: sealed::Blocks + Outcome> Blocks for B {}

/// The memory that receives fill, as [`Blocks`] are what Sends carry: one [`Block`], or several
/// (`[Block; N]`, `Vec<Block>`), one after the other, each from its first byte to its capacity.
/// When a message has come they have as many of its bytes each: a message that ends before a block
/// leaves that one empty.
pub trait Room: Blocks + sealed::Room {}

impl<B: Blocks + sealed::Room> Room for B {}

pub(super) mod sealed {
    use super::{Block, Cargo};

    pub trait Blocks {
        fn into_cargo(self) -> Cargo<Block>;
    }

    /// Any number of bytes may be left in them.
    pub trait Room {}
}

impl sealed::Room for Block {}
impl sealed::Room for Vec<Block> {}
impl<const N: usize> sealed::Room for [Block; N] {}

impl sealed::Blocks for Block {
    fn into_cargo(self) -> Cargo<Block> {
        Cargo::One(self)
    }
}

impl sealed::Blocks for Vec<Block> {
    fn into_cargo(self) -> Cargo<Block> {
        Cargo::Several(self)
    }
}

impl<const N: usize> sealed::Blocks for [Block; N] {
    fn into_cargo(self) -> Cargo<Block> {
        Cargo::Several(Vec::from(self))
    }
}

impl outcome::sealed::Outcome for Block {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.one()
    }
}

impl outcome::sealed::Outcome for Vec<Block> {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.several()
    }
}

impl<const N: usize> outcome::sealed::Outcome for [Block; N] {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.several()?.try_into().ok()
    }
}
