// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pointers found by an index: open addressing, with the index itself as the hash, since indices
//! are drawn at random.
//!
//! Looking up takes no lock and may meet a change that is under way. It never finds an item that
//! was not there, but it may miss one that is being moved to a neighbouring place; a thread that
//! finds nothing looks once more under the lock of the writers.

use crate::sync::{AtomicPtr, Ordering, own};

/// Places of a table: a power of two, of which at least one is null.
pub(crate) type Places<T> = [AtomicPtr<T>];

/// An item that is found by its index, which it knows. 0: it has none at this moment.
pub(crate) trait Indexed {
    fn index(&self) -> u32;
}

const fn next(at: usize, len: usize) -> usize {
    (at + 1) & (len - 1)
}

/// The item with this index, if it is where it belongs, as most are.
///
/// # Safety
///
/// As for [`find`].
#[inline]
pub(crate) unsafe fn find_at_home<T: Indexed>(places: &Places<T>, index: u32) -> Option<&T> {
    let home = index as usize & (places.len() - 1);
    // SAFETY: the caller's promise.
    let item = unsafe { places[home].load(Ordering::Acquire).as_ref() };
    item.filter(|item| item.index() == index)
}

/// The item with this index.
///
/// # Safety
///
/// Items whose pointers are or were among the places live as long as the places.
pub(crate) unsafe fn find<T: Indexed>(places: &Places<T>, index: u32) -> Option<&T> {
    let len = places.len();
    let mut at = index as usize & (len - 1);
    for _ in 0..len {
        // Acquire: the thread that put it there had given it its index.
        // SAFETY: the caller's promise.
        let item = unsafe { places[at].load(Ordering::Acquire).as_ref() }?;
        if item.index() == index {
            return Some(item);
        }
        at = next(at, len);
    }
    None
}

/// Adds an item under its index. There must be another null place beside the one it takes, and only
/// one thread may change the places.
///
/// # Safety
///
/// As for [`find`]; `item` is one.
pub(crate) unsafe fn insert<T: Indexed>(places: &Places<T>, item: *mut T) {
    let len = places.len();
    // SAFETY: the caller's promise.
    let mut at = unsafe { &*item }.index() as usize & (len - 1);
    while !own(&places[at]).is_null() {
        at = next(at, len);
    }
    places[at].store(item, Ordering::Release);
}

/// Takes the item with this index out, and moves those behind it that its place kept from theirs.
/// Only one thread may change the places.
///
/// # Safety
///
/// As for [`find`].
pub(crate) unsafe fn remove<T: Indexed>(places: &Places<T>, index: u32) -> Option<*mut T> {
    let len = places.len();
    let load = |at: usize| own(&places[at]);
    // SAFETY: the caller's promise.
    let index_of = |item: *mut T| unsafe { &*item }.index();
    let mut hole = index as usize & (len - 1);
    loop {
        if load(hole).is_null() {
            return None;
        }
        if index_of(load(hole)) == index {
            break;
        }
        hole = next(hole, len);
    }
    let removed = load(hole);
    let mut at = next(hole, len);
    while !load(at).is_null() {
        let item = load(at);
        let past_home = at.wrapping_sub(index_of(item) as usize) & (len - 1);
        let past_hole = at.wrapping_sub(hole) & (len - 1);
        if past_home >= past_hole {
            // It is in two places for a moment, in none never.
            places[hole].store(item, Ordering::Release);
            hole = at;
        }
        at = next(at, len);
    }
    places[hole].store(std::ptr::null_mut(), Ordering::Release);
    Some(removed)
}
