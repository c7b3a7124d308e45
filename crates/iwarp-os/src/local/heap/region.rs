// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses that are set aside for arenas, so that one look at an address tells whether a block of
//! the program's allocator lies in one. A child inherits them: the arenas of its parent keep their
//! places, and its own lie behind those.

use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::free::Free;
use crate::local::huge::HUGE;

/// Bytes of the region, and the least that is worth having.
const LEN: usize = if usize::BITS >= 64 { 1 << 36 } else { 0 };
const LEAST: usize = 1 << 28;

/// The first address; 0 for none.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The address behind the last one that this process or its ancestors have had an arena at.
static USED: AtomicUsize = AtomicUsize::new(0);

const INACCESSIBLE: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Sets the addresses aside, once, and says the first of them and their number. `None` where the
/// system has none.
pub(super) fn reserve() -> Option<(usize, usize)> {
    // Of a limited number (`ulimit -v`), most are for other things.
    let most = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let mut len = most.map_or(LEN, |most| LEN.min((most / 8) as usize & !(LEAST - 1)));
    while FIRST.load(Ordering::Relaxed) == 0 && len >= LEAST {
        // SAFETY: a new mapping where the system likes it.
        let first = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), len, ProtFlags::empty(), INACCESSIBLE)
        };
        if let Ok(first) = first {
            // Arenas begin where huge pages can.
            let first = first.expose_provenance().next_multiple_of(HUGE);
            USED.store(first, Ordering::Relaxed);
            END.store(first + len - HUGE, Ordering::Relaxed);
            FIRST.store(first, Ordering::Release);
        }
        len /= 2;
    }
    let first = FIRST.load(Ordering::Acquire);
    (first != 0).then(|| (first, END.load(Ordering::Relaxed) - first))
}

/// True if the address is one of those that are set aside.
pub(super) fn holds(addr: usize) -> bool {
    let first = FIRST.load(Ordering::Acquire);
    first != 0 && (first..END.load(Ordering::Relaxed)).contains(&addr)
}

/// The places that neither this process nor its ancestors have used; `None` without a region.
pub(super) fn unused() -> Option<Free> {
    let there = FIRST.load(Ordering::Acquire) != 0;
    there.then(|| Free::between(USED.load(Ordering::Relaxed), END.load(Ordering::Relaxed)))
}

/// An arena is about to be mapped in this place.
pub(super) fn note_used(end: usize) {
    USED.fetch_max(end, Ordering::Relaxed);
}

/// Has addresses be inaccessible, for which nothing else is mapped there meanwhile.
pub(super) fn vacate(first: usize, len: usize) {
    let (place, flags) = (with_exposed_provenance_mut(first), INACCESSIBLE | MapFlags::FIXED);
    // SAFETY: it takes the place of an arena to which nothing refers.
    let _ = unsafe { rustix::mm::mmap_anonymous(place, len, ProtFlags::empty(), flags) };
}
