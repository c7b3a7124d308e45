// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers that a thread keeps for its next use.
//!
//! An ending thread has them no more while exit handlers and destructors of its other thread-locals
//! still end connections. So a thread's place for one is only ever tried.

use std::cell::Cell;
use std::thread::LocalKey;

use iwarp_mem::afford;

use crate::engine::users;

/// Calls `f` with the thread's `place`; `None` where the thread cannot keep anything, for want of
/// memory or because it is about to end.
///
/// `has_place`: the thread has, or had, the place. The C library ends the process where it has no
/// memory to note that a place is to be dropped with the thread.
#[inline(always)]
pub(crate) fn with<T, R>(
    has_place: &'static LocalKey<Cell<bool>>,
    place: &'static LocalKey<Cell<T>>,
    f: impl FnOnce(&Cell<T>) -> R,
) -> Option<R> {
    if !has_place.get() {
        afford().ok()?;
        users::enter();
        has_place.set(true);
    }
    place.try_with(f).ok()
}
