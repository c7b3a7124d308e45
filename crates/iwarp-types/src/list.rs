//! Scatter/gather lists. Most have one element, which is taken without a loop.

use alloc::vec::Vec;

use crate::{PostError, Sge};

/// Octets of all elements.
#[inline]
pub fn octets_of(list: &[Sge]) -> u64 {
    match list {
        [sge] => u64::from(sge.length),
        _ => list.iter().map(|sge| u64::from(sge.length)).sum(),
    }
}

/// Replaces what is in `list`, keeping its storage.
///
/// # Errors
///
/// [`PostError::OutOfMemory`]
#[inline]
pub fn refill<T: Copy>(list: &mut Vec<T>, by: &[T]) -> Result<(), PostError> {
    list.clear();
    if list.capacity() < by.len() {
        grow(list, by.len())?;
    }
    list.extend_from_slice(by);
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<T>(list: &mut Vec<T>, len: usize) -> Result<(), PostError> {
    Ok(list.try_reserve(len)?)
}
