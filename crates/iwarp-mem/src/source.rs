// SPDX-License-Identifier: MIT OR Apache-2.0

//! A source of memory for [`Buffer`](crate::Buffer)s besides the allocator: memory that other
//! processes can map, for those that reach it by loads and stores.

use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Gives out memory for buffers, for as long as the process lives.
pub trait BufferSource: fmt::Debug + Send + Sync {
    /// `len` bytes of zero, more than none, that begin on a page; `None` where the allocator is to
    /// have them.
    fn allocate(&self, len: usize) -> Option<NonNull<u8>>;

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// It was allocated here with this length, and is not used any more.
    unsafe fn free(&self, first: NonNull<u8>, len: usize);

    /// True if all of these bytes are of this source.
    fn holds(&self, addr: usize, len: usize) -> bool;

    /// All of these bytes are about to be used. They may be another's.
    fn will_use(&self, addr: usize, len: usize);
}

static SOURCE: OnceLock<&'static dyn BufferSource> = OnceLock::new();

/// Has buffers that are made from now on get their memory from `source`. The first one stays.
pub fn set_buffer_source(source: &'static dyn BufferSource) {
    let _ = SOURCE.set(source);
}

/// The source, once there is one.
pub(crate) fn of_buffers() -> Option<&'static dyn BufferSource> {
    SOURCE.get().copied()
}

/// True if all of these bytes are of the source.
pub(crate) fn holds(addr: usize, len: usize) -> bool {
    of_buffers().is_some_and(|source| source.holds(addr, len))
}

/// Tells the source.
pub(crate) fn will_use(addr: usize, len: usize) {
    if let Some(source) = of_buffers() {
        source.will_use(addr, len);
    }
}
