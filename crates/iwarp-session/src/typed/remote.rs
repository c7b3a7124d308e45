// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values in a peer's memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use iwarp_types::{AtomicOp, WorkCompletion};
use zerocopy::IntoBytes;

use super::{Element, LayoutError, TypedBlock, size};
use crate::cargo::Cargo;
use crate::{Block, Failure, OperationError, Outcome, Pending, Posts, RemoteGrant};
use crate::{outcome, post};

/// The values that a peer lets this side reach.
///
/// Its operations are posted by a [`Session`](crate::Session), a
/// [`Permit`](crate::Permit) or a [`Batch`](crate::Batch) (`samples.read(&mut
/// batch, 7)`). Elements outside the slice are refused with [`OperationError::OutsideGrant`].
pub struct RemoteSlice<T> {
    grant: RemoteGrant,
    elements: PhantomData<fn(T) -> T>,
}

impl RemoteGrant {
    /// The peer's memory as values. Both ends must agree on the type: that cannot be checked.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] where its length is not a whole number of elements.
    pub fn typed<T: Element>(&self) -> Result<RemoteSlice<T>, LayoutError<Self>> {
        match self.len().is_multiple_of(size::<T>() as u64) {
            true => Ok(RemoteSlice { grant: *self, elements: PhantomData }),
            false => Err(LayoutError::new::<T>(*self, 0, self.len())),
        }
    }
}

impl<T: Element> RemoteSlice<T> {
    /// This memory as bytes.
    pub const fn grant(&self) -> &RemoteGrant {
        &self.grant
    }

    /// Elements.
    pub fn len(&self) -> u64 {
        self.grant.len() / size::<T>() as u64
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.grant.is_empty()
    }

    /// Some of the elements as a slice of their own; `None` if they are not within.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let len = bytes::<T>(range.end.checked_sub(range.start)?);
        let grant = self.grant.part(bytes::<T>(range.start), len)?;
        Some(Self { grant, elements: PhantomData })
    }

    /// Reads an element, into memory that is allocated for it.
    pub fn read(&self, by: impl Posts, index: u64) -> Pending<[T; 1]> {
        self.read_new(by, index, 1)
    }

    /// Reads some elements, into memory that is allocated for them.
    pub fn read_range(&self, by: impl Posts, range: Range<u64>) -> Pending<Vec<T>> {
        self.read_new(by, range.start, range.end.saturating_sub(range.start))
    }

    /// Reads from the element `first` on, as many elements as the block has.
    pub fn read_into(
        &self,
        by: impl Posts,
        first: u64,
        into: TypedBlock<T>,
    ) -> Pending<TypedBlock<T>> {
        by.post_by(|post| post.read(&self.grant, bytes::<T>(first), into))
    }

    /// Writes the block's elements from the element `first` on.
    pub fn write(
        &self,
        by: impl Posts,
        first: u64,
        values: TypedBlock<T>,
    ) -> Pending<TypedBlock<T>> {
        by.post_by(|post| post.write(values, &self.grant, bytes::<T>(first)))
    }

    /// As [`Self::write`], for few elements that are copied at once: up to
    /// [`Config::max_inline`](crate::Config::max_inline) bytes.
    pub fn write_inline(&self, by: impl Posts, first: u64, values: &[T]) -> Pending<()> {
        let offset = bytes::<T>(first);
        by.post_by(|post| post.write_inline(values.as_bytes(), &self.grant, offset))
    }

    fn read_new<R: Outcome>(&self, by: impl Posts, first: u64, count: u64) -> Pending<R> {
        let (offset, len) = (bytes::<T>(first), bytes::<T>(count));
        by.post_by(|post| {
            // Before anything is allocated.
            let within = self.grant.at(offset, len).and(usize::try_from(len).ok());
            let block = within.ok_or(OperationError::OutsideGrant);
            let block = block.and_then(|len| Ok(Block::new(&post.handle.pd, len)?));
            let block = block.map_err(|error| Failure::new(error, None));
            post.read_cargo(&self.grant, offset, block.map(Cargo::One))
        })
    }
}

/// Bytes of so many elements; more than any grant has where that is no number.
fn bytes<T>(elements: u64) -> u64 {
    elements.saturating_mul(size::<T>() as u64)
}

/// Integers that peers can change atomically: `u64` and `i64`.
pub trait Word: Element + Outcome + sealed::Word {}

impl Word for u64 {}
impl Word for i64 {}

mod sealed {
    pub trait Word {
        fn to_bits(self) -> u64;
    }

    impl Word for u64 {
        fn to_bits(self) -> u64 {
            self
        }
    }

    impl Word for i64 {
        fn to_bits(self) -> u64 {
            self.cast_unsigned()
        }
    }
}

/// The old value of an atomic operation.
impl outcome::sealed::Outcome for i64 {
    fn new(completion: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        u64::new(completion, cargo).map(u64::cast_signed)
    }
}

impl<T: Word> RemoteSlice<T> {
    /// Adds to an element, and returns what it was
    /// ([`Session::fetch_add`](crate::Session::fetch_add)).
    pub fn fetch_add(&self, by: impl Posts, index: u64, add: T) -> Pending<T> {
        self.atomic(by, index, post::fetch_add(add.to_bits()))
    }

    /// Replaces an element by `swap` if it is `compare`, and returns what it was
    /// ([`Session::compare_swap`](crate::Session::compare_swap)).
    pub fn compare_swap(&self, by: impl Posts, index: u64, compare: T, swap: T) -> Pending<T> {
        self.atomic(by, index, post::compare_swap(compare.to_bits(), swap.to_bits()))
    }

    fn atomic(&self, by: impl Posts, index: u64, op: AtomicOp) -> Pending<T> {
        by.post_by(|post| post.atomic(&self.grant, bytes::<T>(index), op))
    }
}

impl<T> Clone for RemoteSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RemoteSlice<T> {}

impl<T> fmt::Debug for RemoteSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteSlice").field(&self.grant).finish()
    }
}
