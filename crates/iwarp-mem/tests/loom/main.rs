// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models of the lock-free parts, under every interleaving that the memory model allows. A process
//! of its own: the sources of these parts are compiled here once more, with loom's atomics.
#![allow(clippy::undocumented_unsafe_blocks, reason = "whether they are safe is what is tested")]

#[path = "../../src/buckets.rs"]
mod buckets;
mod buckets_model;
#[path = "../../src/gate.rs"]
mod gate;
mod gate_model;

/// The names that the sources take from `crate::sync`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    pub(crate) fn relax(_round: u32) {
        loom::thread::yield_now();
    }

    /// Loom overlooks that a store conflicts with another thread's load where the storing thread
    /// has itself loaded in between. This load it does not count, but checks.
    pub(crate) fn own<T>(place: &AtomicPtr<T>) -> *mut T {
        unsafe { place.unsync_load() }
    }
}
