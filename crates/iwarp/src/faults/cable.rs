// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ports of this process as if their cables were pulled (`iwarp set PID link=down`).
//!
//! Datagrams and new connections look here; streams that exist are told, and stop
//! ([`StreamMover::cable`](crate::engine::mover::StreamMover::cable)).

use std::sync::atomic::{AtomicBool, Ordering};

/// A forked child has the ports as they were.
static IS_PULLED: AtomicBool = AtomicBool::new(false);

/// True while the ports are down.
#[inline]
pub fn is_pulled() -> bool {
    IS_PULLED.load(Ordering::SeqCst)
}

/// Pulls the cables, or puts them back. False where they are so already.
pub(crate) fn pull(pulled: bool) -> bool {
    IS_PULLED.swap(pulled, Ordering::SeqCst) != pulled
}
