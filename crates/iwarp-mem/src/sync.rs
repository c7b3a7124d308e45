// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pieces that the gate is built from; its model in `tests/loom` brings others.

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The contents of a place, for the only thread that changes it.
pub(crate) fn own<T>(place: &AtomicPtr<T>) -> *mut T {
    place.load(Ordering::Relaxed)
}

/// Lets others run between two looks at something that will change within microseconds.
pub(crate) fn relax(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        // On one CPU the user we wait for needs it.
        64..4096 => std::thread::yield_now(),
        // It was preempted by something that yielding does not help against (real-time policy).
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}
