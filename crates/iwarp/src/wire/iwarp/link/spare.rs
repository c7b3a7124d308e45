// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transmit queues that connections hold only while bytes wait in them.
//!
//! Each thread keeps one, as it mostly sends again; the others are the device's. If there is no
//! memory for another one, sending waits.

use std::cell::Cell;

use iwarp_mem::{afford, zeroed};
use iwarp_os::thread;
use iwarp_proto::qp::Transmit;

use crate::engine::kept;
use crate::engine::pool::Pool;
use crate::engine::sync::Mutex;

/// Bytes of staging that a sending connection holds.
const STAGING: usize = 256 * 1024;
/// Queues that are kept for later.
const KEPT: usize = 32;

/// Any part of an FPDU fits into a block of the pool.
const _: () = assert!(Transmit::MIN_CAPACITY <= Pool::BLOCK);

/// The transmit queues of a device.
#[derive(Debug)]
pub(super) struct Spare {
    /// Behind pointers: a queue goes from hand to hand with each message.
    #[allow(clippy::vec_box, reason = "they are taken out and given back behind these pointers")]
    kept: Mutex<Vec<Box<Transmit>>>,
    /// Queues that the library's own threads find there when they send for the first time, which
    /// may be in the midst of traffic, or when there is no memory.
    reserve: usize,
}

impl Spare {
    /// The queues of a device with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        let mut kept = Vec::new();
        if kept.try_reserve_exact(KEPT.max(workers)).is_ok() {
            kept.extend((0..workers).map_while(|_| with_staging(STAGING)));
        }
        Self { kept: Mutex::new(kept), reserve: workers }
    }

    /// A transmit queue, which is a small one where there is no memory for more; `None` where there
    /// is none for that either.
    pub(super) fn take(&self) -> Option<Box<Transmit>> {
        let mine = mine(Cell::take).flatten();
        let kept = mine.or_else(|| self.take_kept());
        kept.or_else(|| with_staging(STAGING)).or_else(|| with_staging(Transmit::MIN_CAPACITY))
    }

    fn take_kept(&self) -> Option<Box<Transmit>> {
        let mut kept = self.kept.lock();
        if kept.len() > self.reserve || thread::is_ours() { kept.pop() } else { None }
    }

    /// Takes one back.
    pub(super) fn give(&self, mut transmit: Box<Transmit>) {
        if !transmit.is_empty() {
            transmit.clear();
        }
        let mut left = Some(transmit);
        mine(|mine| left = mine.replace(left.take()));
        let Some(transmit) = left else { return };
        let mut kept = self.kept.lock();
        if kept.len() < KEPT.max(self.reserve) && kept.try_reserve(1).is_ok() {
            kept.push(transmit);
        }
    }
}

thread_local! {
    static HAS_MINE: Cell<bool> = const { Cell::new(false) };
    static MINE: Cell<Option<Box<Transmit>>> = const { Cell::new(None) };
}

/// Calls `f` with the place for the queue that the thread keeps, if it can keep one.
#[inline]
fn mine<R>(f: impl FnOnce(&Cell<Option<Box<Transmit>>>) -> R) -> Option<R> {
    kept::with(&HAS_MINE, &MINE, f)
}

fn with_staging(octets: usize) -> Option<Box<Transmit>> {
    let transmit = Transmit::with_staging(zeroed(octets).ok()?).ok()?;
    afford().ok()?;
    Some(Box::new(transmit))
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_for_threads_of_the_library() {
        let spare = Spare::new(1);
        let first = spare.take().unwrap();
        assert_eq!(spare.kept.lock().len(), 1, "a program's thread has taken the worker's");
        spare.give(first);
        assert_eq!(spare.kept.lock().len(), 1, "the thread keeps its own");
        let own = thread::spawn_blocked("reserve", move || {
            assert!(spare.take().is_some() && spare.kept.lock().is_empty());
        });
        own.unwrap().join();
    }
}
