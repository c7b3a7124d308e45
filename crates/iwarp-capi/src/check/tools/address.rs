// SPDX-License-Identifier: MIT OR Apache-2.0

//! AddressSanitizer: it knows which memory is freed, or belongs to no object.

use std::ffi::c_void;
use std::ops::Range;

use super::function;

/// `__asan_region_is_poisoned`: the first byte that is not to be used, or null.
type IsPoisoned = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;

#[derive(Debug)]
pub(super) struct Address {
    is_poisoned: IsPoisoned,
}

impl Address {
    /// The sanitizer, if the program has it.
    pub(super) fn find() -> Option<Self> {
        let found = function(c"__asan_region_is_poisoned")?;
        // SAFETY: the sanitizer's function has this type.
        let is_poisoned = unsafe { std::mem::transmute::<*mut c_void, IsPoisoned>(found) };
        Some(Self { is_poisoned })
    }

    pub(super) fn poisoned(&self, memory: &Range<usize>) -> Option<usize> {
        let start = std::ptr::without_provenance_mut(memory.start);
        // SAFETY: it looks at the sanitizer's notes only.
        let first = unsafe { (self.is_poisoned)(start, memory.len()) };
        (!first.is_null()).then_some(first.addr())
    }
}
