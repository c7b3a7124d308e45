// SPDX-License-Identifier: MIT OR Apache-2.0

//! Huge pages for long pieces of shared memory.
//!
//! Most systems have none for memfds, unless a process asks for each of them
//! (`transparent_hugepage/shmem_enabled`, `MADV_COLLAPSE` since Linux 6.1). One replaces 512 pages
//! whose first uses take the system microseconds each, at both ends.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a huge page where pages have 4 KiB. Elsewhere the system refuses such a range.
pub(super) const HUGE: usize = 2 << 20;

/// Bytes that are asked for at a time: some of what is done for a call is done once.
pub(super) const STEP: usize = 8 * HUGE;

/// `MADV_COLLAPSE`, which not every C library names.
const COLLAPSE: libc::c_int = 25;

/// The system knows no way to ask for one.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// It has given one.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// The huge pages that lie in a range of addresses.
fn within(first: usize, len: usize) -> Range<usize> {
    let begin = first.next_multiple_of(HUGE);
    begin..begin.max((first + len) & !(HUGE - 1))
}

/// Has these bytes lie in huge pages, as far as there are any, and says whether there are. They
/// hold what they held, and are those of a mapping of a memfd, which stays meanwhile.
pub(super) fn collapse(first: usize, len: usize) -> bool {
    let huge = within(first, len);
    if huge.is_empty() {
        return true;
    }
    if REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    for at in huge.clone().step_by(HUGE) {
        // A huge page is made of one that has some of it.
        // SAFETY: the caller's mapping; it changes no contents.
        let there = unsafe {
            rustix::mm::madvise(with_exposed_provenance_mut(at), 1, Advice::LinuxPopulateWrite)
        };
        if there.is_err() {
            return false;
        }
    }
    // SAFETY: as above.
    let given = unsafe {
        libc::madvise(with_exposed_provenance_mut(huge.start), huge.len(), COLLAPSE) == 0
    };
    if given {
        GIVEN.store(true, Ordering::Relaxed);
    } else if io::Error::last_os_error().kind() == io::ErrorKind::InvalidInput {
        // It may be the range.
        REFUSED.fetch_or(!GIVEN.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    given
}

/// Has huge pages of a new private mapping come into being as they are used, in this range.
pub(super) fn prefer(first: usize, len: usize) {
    let huge = within(first, len);
    if !huge.is_empty() {
        let place = with_exposed_provenance_mut(huge.start);
        // SAFETY: the caller's mapping; it changes no contents. Without, pages are small.
        let _ = unsafe { rustix::mm::madvise(place, huge.len(), Advice::LinuxHugepage) };
    }
}

/// Maps a file at addresses that begin where a huge page can, or where the system likes it.
pub(super) fn map(
    len: usize,
    rights: ProtFlags,
    flags: MapFlags,
    fd: BorrowedFd<'_>,
) -> io::Result<*mut c_void> {
    if let Ok(place) = set_aside(len) {
        let flags = flags | MapFlags::FIXED;
        // SAFETY: a new mapping in the place of nothing.
        let mapped = unsafe { rustix::mm::mmap(place, len, rights, flags, fd, 0) };
        if let Ok(mapped) = mapped {
            return Ok(mapped);
        }
        // The place stays set aside: another mapping may be there after a failure.
    }
    // SAFETY: a new mapping.
    Ok(unsafe { rustix::mm::mmap(null_mut(), len, rights, flags, fd, 0)? })
}

fn set_aside(len: usize) -> io::Result<*mut c_void> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let more = len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new mapping where the system likes it.
    let all = unsafe { rustix::mm::mmap_anonymous(null_mut(), more, ProtFlags::empty(), flags)? };
    let first = all.map_addr(|all| all.next_multiple_of(HUGE));
    unmap(all.addr(), first.addr());
    unmap(first.addr() + len, all.addr() + more);
    Ok(first)
}

/// Unmaps addresses that were set aside and that nothing uses.
fn unmap(from: usize, to: usize) {
    if from < to {
        let surplus = with_exposed_provenance_mut(from);
        // SAFETY: the caller's promise.
        let _ = unsafe { rustix::mm::munmap(surplus, to - from) };
    }
}

/// True unless the system refuses huge pages.
#[cfg(test)]
pub(super) fn are_there() -> bool {
    !REFUSED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_huge_pages_are_asked_for() {
        assert_eq!(within(0, HUGE), 0..HUGE);
        assert_eq!(within(1, HUGE), HUGE..HUGE);
        assert_eq!(within(1, 2 * HUGE), HUGE..2 * HUGE);
        assert_eq!(within(HUGE, 3 * HUGE - 1), HUGE..3 * HUGE);
        assert!(within(HUGE + 4096, 4096).is_empty());
    }

    #[test]
    fn addresses_begin_with_a_huge_page() {
        for len in [4096, HUGE, HUGE + 4096] {
            let first = set_aside(len).unwrap();
            assert!(first.addr().is_multiple_of(HUGE));
            unmap(first.addr(), first.addr() + len);
        }
    }
}
