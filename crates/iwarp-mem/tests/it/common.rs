// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory with forbidden neighbours, and short names.
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

use iwarp_mem::{MemoryTable, RegionSpec, Scope};
use iwarp_types::{Access, Accessor, PdId, QpId, Sge, Stag, TaggedOffset};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

pub(crate) const PAGE: usize = 4096;
pub(crate) const PD: PdId = PdId(3);
pub(crate) const WHO: Accessor = Accessor { pd: PD, qp: QpId(5) };
pub(crate) const OTHER_PD: Accessor = Accessor { pd: PdId(4), qp: QpId(5) };
pub(crate) const OTHER_QP: Accessor = Accessor { pd: PD, qp: QpId(6) };

pub(crate) const LOCAL: Access = Access::LOCAL_WRITE;
pub(crate) const READ: Access = Access::REMOTE_READ;
pub(crate) const ZERO: Access = Access::ZERO_BASED;

pub(crate) fn all() -> Access {
    LOCAL | READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND
}

pub(crate) fn to(offset: u64) -> TaggedOffset {
    TaggedOffset(offset)
}

pub(crate) fn sge(lkey: Stag, addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey }
}

/// Whole pages between two that may not be touched.
pub(crate) struct Pages {
    map: *mut u8,
    len: usize,
}

// SAFETY: mapped memory belongs to no thread; the tests order their accesses.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: a new mapping; the protection of its inner pages is changed before use.
        let map = unsafe {
            let map =
                mmap_anonymous(null_mut(), len + 2 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE)
                    .unwrap();
            mprotect(map.byte_add(PAGE), len, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
            map.cast()
        };
        Self { map, len }
    }

    /// The first byte that may be touched.
    pub(crate) fn start(&self) -> *mut u8 {
        self.map.wrapping_add(PAGE)
    }

    /// The byte behind the last one that may be touched.
    pub(crate) fn end(&self) -> *mut u8 {
        self.start().wrapping_add(self.len)
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        (0..self.len).map(|at| self.cell(at).load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn fill(&self, value: u8) {
        (0..self.len).for_each(|at| self.cell(at).store(value, Ordering::Relaxed));
    }

    pub(crate) fn cell(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len);
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { AtomicU8::from_ptr(self.start().wrapping_add(at)) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the tests drop their tables first or use them no more.
        unsafe { munmap(self.map.cast(), self.len + 2 * PAGE) }.unwrap();
    }
}

/// Registers memory that is addressed by virtual address.
pub(crate) fn register(table: &MemoryTable, addr: *mut u8, len: usize, access: Access) -> Stag {
    register_in(table, addr, len, access, Scope::Domain)
}

/// Registers memory for a stream.
pub(crate) fn register_in(
    table: &MemoryTable,
    addr: *mut u8,
    len: usize,
    access: Access,
    scope: Scope,
) -> Stag {
    let spec = RegionSpec { scope, ..RegionSpec::new(PD, addr, len, access) };
    // SAFETY: the tests keep their pages mapped, and reach them by atomics.
    unsafe { table.register(spec) }.unwrap()
}
