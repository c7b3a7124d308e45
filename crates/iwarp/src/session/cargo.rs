// SPDX-License-Identifier: MIT OR Apache-2.0

//! The blocks of an operation, on their way in and back.

use std::iter::Chain;
use std::{option, slice, vec};

use iwarp_types::WorkCompletion;

use crate::session::block::Lent;
use crate::session::{Block, Failure, OperationError, Outcome};
use crate::verbs::ProtectionDomain;

/// The memory that Sends, Writes and Reads carry: one [`Block`], or several (`[Block; N]`,
/// `Vec<Block>`), whose bytes are one message or one range of the peer's memory, in their order.
/// They come back in the same shape.
///
/// A session takes as many at a time as [`Config::max_blocks`](crate::session::Config::max_blocks).
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

impl super::pending::sealed::Outcome for Block {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.one()
    }
}

impl super::pending::sealed::Outcome for Vec<Block> {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.several()
    }
}

impl<const N: usize> super::pending::sealed::Outcome for [Block; N] {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.several()?.try_into().ok()
    }
}

/// The blocks of an operation, or what became of them. One takes no storage of its own.
#[derive(Debug)]
pub enum Cargo<T> {
    /// It has bytes of another kind, or none.
    None,
    One(T),
    Several(Vec<T>),
}

impl<T> Cargo<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => slice::from_ref(one),
            Self::Several(several) => several,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(one) => slice::from_mut(one),
            Self::Several(several) => several,
        }
    }

    pub(super) fn one(self) -> Option<T> {
        match self {
            Self::One(one) => Some(one),
            Self::None | Self::Several(_) => None,
        }
    }

    pub(super) fn several(self) -> Option<Vec<T>> {
        match self {
            Self::Several(several) => Some(several),
            Self::None | Self::One(_) => None,
        }
    }

    pub(super) fn map<U>(self, mut change: impl FnMut(T) -> U) -> Cargo<U> {
        match self {
            Self::None => Cargo::None,
            Self::One(one) => Cargo::One(change(one)),
            Self::Several(several) => Cargo::Several(several.into_iter().map(change).collect()),
        }
    }

    /// Leaves nothing behind.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }
}

impl<T> IntoIterator for Cargo<T> {
    type Item = T;
    type IntoIter = Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, several) = match self {
            Self::None => (None, Vec::new()),
            Self::One(one) => (Some(one), Vec::new()),
            Self::Several(several) => (None, several),
        };
        one.into_iter().chain(several)
    }
}

impl<T> From<Option<T>> for Cargo<T> {
    fn from(one: Option<T>) -> Self {
        one.map_or(Self::None, Self::One)
    }
}

impl Cargo<Block> {
    /// Bytes, together.
    pub(super) fn len(&self) -> u64 {
        self.as_slice().iter().map(|block| block.len() as u64).sum()
    }

    /// Makes a message of so many bytes of them: it has filled one after the other.
    pub(super) fn fill(&mut self, len: usize) {
        let mut left = len;
        for block in self.as_mut_slice() {
            let part = left.min(block.capacity());
            block.set_len(part);
            left -= part;
        }
    }

    /// Hands all of them to an operation of that domain, or none.
    pub(super) fn lend(self, pd: &ProtectionDomain) -> Result<Cargo<Lent>, Failure> {
        if !self.as_slice().iter().all(|block| block.is_of(pd)) {
            return Err(Failure::with(OperationError::OtherDomain, self));
        }
        match self {
            Self::None => Ok(Cargo::None),
            Self::One(block) => match block.lend() {
                Ok(lent) => Ok(Cargo::One(lent)),
                Err((block, error)) => Err(Failure::new(error, Some(block))),
            },
            Self::Several(blocks) => {
                let mut lent = Vec::with_capacity(blocks.len());
                let mut blocks = blocks.into_iter();
                while let Some(block) = blocks.next() {
                    match block.lend() {
                        Ok(block) => lent.push(block),
                        Err((block, error)) => {
                            let before = lent.into_iter().map(Lent::take_back);
                            let all = before.chain([block]).chain(blocks).collect();
                            return Err(Failure::with(error, Self::Several(all)));
                        }
                    }
                }
                Ok(Cargo::Several(lent))
            }
        }
    }
}

impl Cargo<Lent> {
    /// Ends all use of the bytes: afterwards they are the program's again.
    pub(super) fn take_back(self) -> Cargo<Block> {
        self.map(Lent::take_back)
    }
}
