// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks of values.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use iwarp::verbs::ProtectionDomain;
use iwarp_mem::RegisterError;
use iwarp_types::WorkCompletion;
use zerocopy::FromBytes;

use super::{Element, LayoutError, size};
use crate::cargo::Cargo;
use crate::{Block, blocks, outcome};

/// A [`Block`] whose bytes are values: a slice of them while the program has it. Every operation
/// that takes a block takes this as well.
pub struct TypedBlock<T> {
    /// Its bytes are elements, aligned.
    block: Block,
    elements: PhantomData<T>,
}

impl<T: Element> TypedBlock<T> {
    /// Allocates `len` elements, all bytes zero, that belong to no pool.
    ///
    /// # Errors
    ///
    /// As [`Block::new`].
    pub fn new(pd: &ProtectionDomain, len: usize) -> Result<Self, RegisterError> {
        let len = len.checked_mul(size::<T>()).ok_or(RegisterError::InvalidRange)?;
        // A block begins on a page.
        Block::new(pd, len)?.typed().map_err(|_| RegisterError::InvalidRange)
    }

    fn of(block: Block) -> Self {
        Self { block, elements: PhantomData }
    }

    /// The block as bytes.
    pub fn into_block(self) -> Block {
        self.block
    }
}

impl Block {
    /// The block as values, such as a message that was received.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], with the block in it.
    pub fn typed<T: Element>(self) -> Result<TypedBlock<T>, LayoutError<Self>> {
        let range = self.range();
        let is_whole = range.len().is_multiple_of(size::<T>());
        // No bytes are no elements, wherever they are.
        if range.is_empty() || (is_whole && <[T]>::ref_from_bytes(&self).is_ok()) {
            return Ok(TypedBlock::of(self));
        }
        Err(LayoutError::new::<T>(self, range.start as u64, range.len() as u64))
    }
}

impl<T: Element> Deref for TypedBlock<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        <[T]>::ref_from_bytes(&self.block).unwrap_or_default()
    }
}

impl<T: Element> DerefMut for TypedBlock<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        <[T]>::mut_from_bytes(&mut self.block).unwrap_or_default()
    }
}

impl<T: Element> blocks::sealed::Blocks for TypedBlock<T> {
    fn into_cargo(self) -> Cargo<Block> {
        Cargo::One(self.block)
    }
}

impl<T: Element> outcome::sealed::Outcome for TypedBlock<T> {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        cargo.one().map(Self::of)
    }
}

impl<T> fmt::Debug for TypedBlock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedBlock").field(&self.block).finish()
    }
}
