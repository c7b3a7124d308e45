// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transmit queues that connections hold only while bytes wait in them.
//!
//! Each thread keeps one, as it mostly sends again; the others are the device's. If there is no memory
//! for another one, sending waits.

use std::cell::Cell;

use iwarp_mem::{afford, zeroed};
use iwarp_proto::qp::Transmit;

use crate::engine::pool::Pool;
use crate::engine::sync::Mutex;
use crate::engine::users;

/// Bytes of staging that a sending connection holds.
const STAGING: usize = 256 * 1024;
/// Queues that are kept for later.
const KEPT: usize = 32;

/// Any part of an FPDU fits into a block of the pool.
const _: () = assert!(Transmit::MIN_CAPACITY <= Pool::BLOCK);

/// The transmit queues of a device.
#[derive(Debug)]
pub(super) struct Spare(Mutex<Vec<Transmit>>);

impl Default for Spare {
    /// With one in it, for a worker that sends for the first time in the midst of traffic.
    fn default() -> Self {
        let mut kept = Vec::new();
        if kept.try_reserve_exact(KEPT).is_ok() {
            kept.extend(with_staging(STAGING));
        }
        Self(Mutex::new(kept))
    }
}

impl Spare {
    /// A transmit queue, which is a small one where there is no memory for more; `None` where there
    /// is none for that either.
    pub(super) fn take(&self) -> Option<Transmit> {
        let Self(others) = self;
        let mine = mine(Cell::take).flatten();
        let kept = mine.or_else(|| others.lock().pop());
        kept.or_else(|| with_staging(STAGING)).or_else(|| with_staging(Transmit::MIN_CAPACITY))
    }

    /// Takes one back.
    pub(super) fn give(&self, mut transmit: Transmit) {
        let Self(others) = self;
        transmit.clear();
        let mut left = Some(transmit);
        mine(|mine| left = mine.replace(left.take()));
        let Some(transmit) = left else { return };
        let mut kept = others.lock();
        if kept.len() < kept.capacity() {
            kept.push(transmit);
        }
    }
}

// An ending thread has it no more while exit handlers and destructors of its other thread-locals
// still end connections. So it is only ever tried.
thread_local! {
    /// This thread has, or had, [`MINE`]. The C library ends the process where it has no memory to
    /// note that one is to be dropped with the thread.
    static HAS_MINE: Cell<bool> = const { Cell::new(false) };
    static MINE: Cell<Option<Transmit>> = const { Cell::new(None) };
}

/// Calls `f` with the place for the queue that the thread keeps; `None` where it cannot keep one, for
/// want of memory or because it is about to end.
#[inline]
fn mine<R>(f: impl FnOnce(&Cell<Option<Transmit>>) -> R) -> Option<R> {
    if !HAS_MINE.get() {
        afford().ok()?;
        users::enter();
        HAS_MINE.set(true);
    }
    MINE.try_with(f).ok()
}

fn with_staging(octets: usize) -> Option<Transmit> {
    Transmit::with_staging(zeroed(octets).ok()?).ok()
}
