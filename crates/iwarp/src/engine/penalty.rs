//! For how long what turned out badly is not done again.

use crate::engine::sync::{AtomicU32, Ordering};

/// Times that it is left out: at first and at most.
const FIRST: u32 = 256;
const LAST: u32 = 1 << 20;

/// What was learned of one thing that is tried now and then. All of it is a hint: races between
/// threads cost some time at worst.
#[derive(Debug)]
pub(crate) struct Penalty {
    /// Times to come that it is left out.
    left: AtomicU32,
    /// How many it will be when it turns out badly again.
    next: AtomicU32,
}

impl Penalty {
    pub(crate) fn new() -> Self {
        Self { left: AtomicU32::new(0), next: AtomicU32::new(FIRST) }
    }

    /// It could be done now. Whether it is left out, which counts.
    pub(crate) fn applies(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// It was done, and turned out badly or well.
    pub(crate) fn judge(&self, badly: bool) {
        let next = self.next.load(Ordering::Relaxed);
        if badly {
            self.left.store(next, Ordering::Relaxed);
            self.next.store((next * 4).min(LAST), Ordering::Relaxed);
        } else if next > FIRST {
            self.next.store((next / 2).max(FIRST), Ordering::Relaxed);
        }
    }
}
