// SPDX-License-Identifier: MIT OR Apache-2.0

//! The blocks of an operation, on their way in and back.

use std::iter::Chain;
use std::{option, slice, vec};

use crate::Block;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::domain;

    fn blocks(lens: &[usize]) -> Cargo<Block> {
        let pd = domain();
        Cargo::Several(lens.iter().map(|len| Block::new(&pd, *len).unwrap()).collect())
    }

    fn lens(cargo: &Cargo<Block>) -> Vec<usize> {
        cargo.as_slice().iter().map(|block| block.len()).collect()
    }

    #[test]
    fn a_message_fills_one_block_after_the_other() {
        for (len, expected) in [(0, [0, 0, 0]), (4, [4, 0, 0]), (5, [4, 1, 0]), (14, [4, 8, 2])] {
            let mut cargo = blocks(&[4, 8, 2]);
            cargo.fill(len);
            assert_eq!((lens(&cargo), cargo.len()), (expected.to_vec(), len as u64));
        }
    }

    /// The blocks may have been made short for the last message.
    #[test]
    fn a_message_may_be_longer_than_the_blocks_were_before() {
        let mut cargo = blocks(&[4, 8]);
        cargo.fill(1);
        cargo.fill(12);
        assert_eq!(lens(&cargo), [4, 8]);
    }

    #[test]
    fn blocks_keep_their_order_and_their_shape() {
        let cargo = Cargo::Several(vec![3, 1, 2]).map(|n| 10 * n);
        assert_eq!(cargo.as_slice(), [30, 10, 20]);
        assert_eq!(cargo.into_iter().collect::<Vec<_>>(), [30, 10, 20]);
        assert_eq!((Cargo::One(1).several(), Cargo::Several(vec![1]).one()), (None, None));
        let mut one = Cargo::One(7);
        assert_eq!((one.take().one(), one.as_slice()), (Some(7), &[][..]));
    }
}
