// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory between neighbours that must not be touched.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use iwarp::{Access, MemoryRegion, ProtectionDomain};

pub const PAGE: usize = 4096;

/// One page between two that may not be touched. Dropped after the regions that lie in it.
pub struct Page {
    map: *mut u8,
}

impl Page {
    /// A page that holds `value` everywhere.
    pub fn new(value: u8) -> Self {
        // SAFETY: a new mapping; the protection of its inner page is changed before use.
        let map: *mut u8 = unsafe {
            let map = mmap_anonymous(null_mut(), 3 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE);
            let map = map.unwrap();
            mprotect(map.byte_add(PAGE), PAGE, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
            map.cast()
        };
        let page = Self { map };
        (0..PAGE).for_each(|at| page.cell(at).store(value, Ordering::Relaxed));
        page
    }

    fn start(&self) -> *mut u8 {
        self.map.wrapping_add(PAGE)
    }

    fn cell(&self, at: usize) -> &AtomicU8 {
        assert!(at < PAGE);
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { AtomicU8::from_ptr(self.start().wrapping_add(at)) }
    }

    /// The octets that it holds.
    pub fn octets(&self) -> Vec<u8> {
        (0..PAGE).map(|at| self.cell(at).load(Ordering::Relaxed)).collect()
    }

    /// Registers a part of it, under its addresses.
    pub fn register(
        &self,
        pd: &ProtectionDomain,
        range: std::ops::Range<usize>,
        access: Access,
    ) -> MemoryRegion {
        assert!(range.end <= PAGE);
        let addr = self.start().wrapping_add(range.start);
        // SAFETY: the tests drop their regions before the page, and reach it by atomics only.
        unsafe { pd.register_raw(addr, range.len(), access) }.unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing is registered in it any more.
        unsafe { munmap(self.map.cast(), 3 * PAGE) }.unwrap();
    }
}
