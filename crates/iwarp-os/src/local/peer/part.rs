// SPDX-License-Identifier: MIT OR Apache-2.0

//! One piece of another process's memory.

use std::mem::offset_of;

/// Bytes in the memory of another process, which may not be there.
///
/// It has the layout of `struct iovec`, so a slice of parts goes to the kernel as it is. There is
/// no pointer in it: the address means nothing in this process.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemotePart {
    address: usize,
    len: usize,
}

const _: () = {
    assert!(size_of::<RemotePart>() == size_of::<libc::iovec>());
    assert!(align_of::<RemotePart>() == align_of::<libc::iovec>());
    assert!(offset_of!(RemotePart, address) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(RemotePart, len) == offset_of!(libc::iovec, iov_len));
};

impl RemotePart {
    /// A part without bytes, for initialising arrays.
    pub const EMPTY: Self = Self { address: 0, len: 0 };

    /// A peer's word about its memory, taken for true so far as there can be such memory: `None`
    /// where it would end beyond the last address.
    pub fn new(address: u64, len: u64) -> Option<Self> {
        let (address, len) = (usize::try_from(address).ok()?, usize::try_from(len).ok()?);
        isize::try_from(len).ok()?;
        address.checked_add(len)?;
        Some(Self { address, len })
    }

    /// The address of its first byte, in the other process.
    pub const fn address(&self) -> u64 {
        self.address as u64
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part without its first `n` bytes.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> Self {
        assert!(n <= self.len, "skipped past the end of the part");
        Self { address: self.address + n, len: self.len - n }
    }

    /// The first `n` bytes of the part.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn take(self, n: usize) -> Self {
        assert!(n <= self.len, "took more than the part has");
        Self { len: n, ..self }
    }
}
