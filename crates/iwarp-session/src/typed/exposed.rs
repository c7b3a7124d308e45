// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values that peers may reach.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use iwarp::verbs::ProtectionDomain;
use iwarp_mem::RegisterError;
use iwarp_types::Access;
use zerocopy::IntoBytes;

use super::{Element, LayoutError, OutOfBounds, size};
use crate::{Exposed, Grant};

/// [`Exposed`] memory as values. They are copied in and out, as peers may change them at any
/// moment: a value that one writes meanwhile may be read with a part of the old bytes.
#[derive(Debug)]
pub struct ExposedSlice<T> {
    /// Its bytes are elements.
    exposed: Exposed,
    elements: PhantomData<fn(T) -> T>,
}

impl Exposed {
    /// The memory as values.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], with the memory in it.
    pub fn typed<T: Element>(self) -> Result<ExposedSlice<T>, LayoutError<Self>> {
        match self.len().is_multiple_of(size::<T>()) {
            true => Ok(ExposedSlice { exposed: self, elements: PhantomData }),
            false => {
                let len = self.len() as u64;
                Err(LayoutError::new::<T>(self, 0, len))
            }
        }
    }
}

impl<T: Element> ExposedSlice<T> {
    /// Allocates `len` elements, all bytes zero, as [`Exposed::new`] does. For one peer only:
    /// `session.expose(..)?.typed()?`.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had, or they are too many.
    pub fn new(pd: &ProtectionDomain, len: usize, access: Access) -> Result<Self, RegisterError> {
        let len = len.checked_mul(size::<T>()).ok_or(RegisterError::InvalidRange)?;
        let exposed = Exposed::new(pd, len, access)?;
        Ok(Self { exposed, elements: PhantomData })
    }

    /// The grant to tell a peer that is to reach all of it: for
    /// [`RemoteGrant::typed`](crate::RemoteGrant::typed).
    pub fn grant(&self) -> Grant {
        self.exposed.grant()
    }

    /// The grant to tell a peer that is to reach a part, as [`Exposed::grant_of`].
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn grant_of(&self, range: Range<usize>) -> Result<Grant, OutOfBounds> {
        let count = range.end.saturating_sub(range.start);
        let start = self.offset(range.start, count)?;
        Ok(self.exposed.grant_of(start, count * size::<T>()))
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.exposed.len() / size::<T>()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.exposed.is_empty()
    }

    /// A copy of an element.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn get(&self, index: usize) -> Result<T, OutOfBounds> {
        let offset = self.offset(index, 1)?;
        let mut value = T::new_zeroed();
        self.exposed.read_at(offset, value.as_mut_bytes());
        Ok(value)
    }

    /// Stores an element.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn set(&self, index: usize, value: &T) -> Result<(), OutOfBounds> {
        self.write(index, std::slice::from_ref(value))
    }

    /// Copies of some elements.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn read(&self, range: Range<usize>) -> Result<Vec<T>, OutOfBounds> {
        self.offset(range.start, range.end.saturating_sub(range.start))?;
        range.map(|index| self.get(index)).collect()
    }

    /// Stores elements from the element `first` on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), OutOfBounds> {
        let offset = self.offset(first, values.len())?;
        self.exposed.write_at(offset, values.as_bytes());
        Ok(())
    }

    /// The memory as bytes.
    pub const fn as_exposed(&self) -> &Exposed {
        &self.exposed
    }

    /// The memory as bytes, for good.
    pub fn into_exposed(self) -> Exposed {
        self.exposed
    }

    /// The offset at which elements begin, if they exist.
    fn offset(&self, first: usize, count: usize) -> Result<usize, OutOfBounds> {
        let len = self.len();
        match first.checked_add(count) {
            Some(end) if end <= len => Ok(first * size::<T>()),
            _ => Err(OutOfBounds { first, count, len }),
        }
    }
}

impl ExposedSlice<u64> {
    /// An element as an atomic, which agrees with the peers' atomic operations.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`]
    pub fn atomic(&self, index: usize) -> Result<&AtomicU64, OutOfBounds> {
        Ok(self.exposed.atomic_u64(self.offset(index, 1)?))
    }
}
