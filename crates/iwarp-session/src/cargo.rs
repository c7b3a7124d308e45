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
