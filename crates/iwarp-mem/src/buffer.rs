// SPDX-License-Identifier: MIT OR Apache-2.0

//! Owned memory that a safe program can register.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::room::OutOfMemory;
use crate::source::{self, BufferSource};

const PAGE: usize = 4096;
const WORD: usize = size_of::<usize>();

/// Bytes, zeroed at first, that begin on a page. The network may read and write them while they
/// are registered, so they are copied in and out or reached by atomics, but never borrowed.
#[derive(Debug)]
pub struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
    /// The source of the memory; `None` for the allocator.
    source: Option<&'static dyn BufferSource>,
}

// SAFETY: the memory is owned, and every access of this type to it is atomic.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes of zero.
    ///
    /// # Panics
    ///
    /// If `len` is more than an object can have. Out of memory aborts, as it does for a `Vec`.
    pub fn new(len: usize) -> Self {
        Self::try_new(len).unwrap_or_else(|_| match Self::layout(len) {
            Some(layout) => handle_alloc_error(layout),
            None => unreachable!("no octets need no memory"),
        })
    }

    /// `len` bytes of zero, or an error where there is no memory for them.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]
    ///
    /// # Panics
    ///
    /// If `len` is more than an object can have.
    pub fn try_new(len: usize) -> Result<Self, OutOfMemory> {
        let Some(layout) = Self::layout(len) else {
            return Ok(Self { ptr: NonNull::dangling(), len: 0, source: None });
        };
        if let Some(source) = source::of_buffers()
            && let Some(ptr) = source.allocate(len)
        {
            return Ok(Self { ptr, len, source: Some(source) });
        }
        Self::allocated(layout)
    }

    /// As [`Self::try_new`], from the allocator.
    pub(crate) fn try_own(len: usize) -> Result<Self, OutOfMemory> {
        Self::layout(len).map_or_else(|| Self::try_new(len), Self::allocated)
    }

    /// Memory of the allocator.
    fn allocated(layout: Layout) -> Result<Self, OutOfMemory> {
        // SAFETY: a layout of these is not empty.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory)?;
        Ok(Self { ptr, len: layout.size(), source: None })
    }

    fn layout(len: usize) -> Option<Layout> {
        (len > 0).then(|| Layout::from_size_align(len, PAGE).expect("no object is that large"))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Copies `dst.len()` bytes from `offset` on. The copy may include a part of the bytes that the
    /// network stores meanwhile.
    ///
    /// # Panics
    ///
    /// If they are not all within the buffer.
    pub fn read_at(&self, offset: usize, dst: &mut [u8]) {
        let mut at = self.range(offset, dst.len());
        let (head, words) = dst.split_at_mut(at.align_offset(WORD).min(dst.len()));
        for octet in head {
            // SAFETY: `range` checked it; so for the others.
            *octet = unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
        let mut words = words.chunks_exact_mut(WORD);
        for word in &mut words {
            // SAFETY: see above; aligned, as the head ended there.
            let value = unsafe { AtomicUsize::from_ptr(at.cast()) }.load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
            at = at.wrapping_add(WORD);
        }
        for octet in words.into_remainder() {
            // SAFETY: see above.
            *octet = unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
    }

    /// Stores `src` from `offset` on.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn write_at(&self, offset: usize, src: &[u8]) {
        let mut at = self.range(offset, src.len());
        let (head, words) = src.split_at(at.align_offset(WORD).min(src.len()));
        for &octet in head {
            // SAFETY: `range` checked it; so for the others.
            unsafe { AtomicU8::from_ptr(at) }.store(octet, Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
        let words = words.chunks_exact(WORD);
        let tail = words.remainder();
        for word in words {
            let value = usize::from_ne_bytes(word.try_into().expect("a word's octets"));
            // SAFETY: see above; aligned, as the head ended there.
            unsafe { AtomicUsize::from_ptr(at.cast()) }.store(value, Ordering::Relaxed);
            at = at.wrapping_add(WORD);
        }
        for &octet in tail {
            // SAFETY: see above.
            unsafe { AtomicU8::from_ptr(at) }.store(octet, Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
    }

    /// A copy of the whole.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut octets = vec![0; self.len];
        self.read_at(0, &mut octets);
        octets
    }

    /// The byte at `offset`, to poll or set. A load with `Acquire` that sees the last byte of a
    /// message sees the whole message in later reads.
    ///
    /// # Panics
    ///
    /// If it is not within the buffer.
    pub fn atomic_u8(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: in range, and the memory lives as long as the borrow of self.
        unsafe { AtomicU8::from_ptr(self.range(offset, 1)) }
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If they are not within the buffer, or `offset` is not a multiple of 4.
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "an atomic of 4 octets is aligned");
        // SAFETY: as above; aligned, as the buffer is.
        unsafe { AtomicU32::from_ptr(self.range(offset, 4).cast()) }
    }

    /// The 8 bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If they are not within the buffer, or `offset` is not a multiple of 8.
    #[cfg(target_has_atomic = "64")]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "an atomic of 8 octets is aligned");
        // SAFETY: as above; aligned, as the buffer is.
        unsafe { AtomicU64::from_ptr(self.range(offset, 8).cast()) }
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {offset} of a buffer of {}", self.len);
        self.ptr.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(layout) = Self::layout(self.len) else { return };
        match self.source {
            // SAFETY: it has allocated so many bytes; a registration would hold the buffer alive.
            Some(source) => unsafe { source.free(self.ptr, self.len) },
            // SAFETY: allocated with this layout; as above.
            None => unsafe { dealloc(self.ptr.as_ptr(), layout) },
        }
    }
}
