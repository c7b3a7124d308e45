// SPDX-License-Identifier: MIT OR Apache-2.0

//! The gate of an STag: counts the uses in flight, and closes when the last one is over.
//!
//! One word: open flag, key, count. A use enters by compare-and-exchange only while the gate is
//! open and the key fits, so from the moment it is closed the count can only fall, even if a peer
//! keeps sending.

use crate::sync::{AtomicU32, Ordering, relax};

const OPEN: u32 = 1 << 31;
const KEY_SHIFT: u32 = 23;
const COUNT: u32 = (1 << KEY_SHIFT) - 1;

/// Admission to the grant that the gate's owner protects with it.
///
/// Everything done before [`Gate::open`] happens before what a successful [`Gate::try_enter`]
/// admits, and everything done before [`Gate::leave`] happens before [`Gate::close`] returns.
pub(crate) struct Gate(AtomicU32);

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Opens the gate for `key`. It must be closed, and only one thread may open or close.
    pub(crate) fn open(&self, key: u8) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), 0);
        // Release: who enters sees what is behind the gate.
        self.0.store(OPEN | u32::from(key) << KEY_SHIFT, Ordering::Release);
    }

    /// Enters if the gate is open for `key`; every success needs one [`Gate::leave`].
    #[inline]
    pub(crate) fn try_enter(&self, key: u8) -> bool {
        let wanted = OPEN | u32::from(key) << KEY_SHIFT;
        let mut word = self.0.load(Ordering::Relaxed);
        let mut round = 0;
        loop {
            if word & !COUNT != wanted {
                return false;
            }
            if word & COUNT == COUNT {
                // Eight million threads at once: wait for one of them.
                relax(round);
                round = round.saturating_add(1);
                word = self.0.load(Ordering::Relaxed);
                continue;
            }
            // Acquire: pairs with `open`.
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Ends a use.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: `close` returns after everything that was done inside.
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before & COUNT, 0);
    }

    /// Refuses new uses, then waits until those inside have left. A closed gate may be closed
    /// again.
    pub(crate) fn close(&self) {
        let mut word = self.0.fetch_and(COUNT, Ordering::Acquire) & COUNT;
        let mut round = 0;
        while word != 0 {
            relax(round);
            round = round.saturating_add(1);
            // Acquire: pairs with `leave`.
            word = self.0.load(Ordering::Acquire);
        }
    }
}
