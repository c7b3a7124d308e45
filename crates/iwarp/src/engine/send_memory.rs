// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that the system may keep for peers that do not read.
//!
//! A socket's buffer grows to megabytes, and a peer that reads slowly, or not at all, has it
//! filled. So a connection borrows the right to have bytes waiting unsent from what the process may
//! spend on it. While connections are few, each has all that is of use; the more there are the less
//! is lent, down to what a connection needs at least. Bytes on their way (sent, and not
//! acknowledged yet) are TCP's own matter and not limited here: bandwidth over distance takes them.

use std::sync::Arc;

use crate::engine::sync::{AtomicUsize, Ordering};

/// More is of no use.
const MOST: usize = 1024 * 1024;
/// The memory that each connection has in any case: about an FPDU of the largest size.
pub(crate) const LEAST: usize = 64 * 1024;
/// The part of what is left that one connection may have.
const PART: usize = 16;

/// The memory that a process may spend, less what it has lent.
#[derive(Debug)]
pub(crate) struct SendMemory {
    left: AtomicUsize,
}

/// The memory that a connection has borrowed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    octets: usize,
    /// So much of it has to be returned.
    borrowed: usize,
    lender: Arc<SendMemory>,
}

impl SendMemory {
    pub(crate) fn new(octets: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(octets) })
    }

    pub(crate) fn lend(self: &Arc<Self>) -> Loan {
        let part = |left: usize| (left / PART).min(MOST);
        let take = |left: usize| Some(left - part(left));
        let (Ok(left) | Err(left)) =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let borrowed = part(left);
        Loan { octets: borrowed.max(LEAST), borrowed, lender: Arc::clone(self) }
    }
}

impl Loan {
    /// Bytes that may wait unsent.
    pub(crate) const fn octets(&self) -> usize {
        self.octets
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lender.left.fetch_add(self.borrowed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_plenty_and_many_stay_within_the_bound() {
        const BUDGET: usize = 64 << 20;
        let memory = SendMemory::new(BUDGET);
        let loans: Vec<_> = (0..10_000).map(|_| memory.lend()).collect();
        assert!(loans[..40].iter().all(|loan| loan.octets() == MOST));
        assert!(loans.iter().all(|loan| loan.octets() >= LEAST));
        assert!(loans.is_sorted_by(|a, b| a.octets() >= b.octets()));
        let beyond: usize = loans.iter().map(Loan::octets).sum();
        assert!(beyond <= BUDGET + 10_000 * LEAST);
        let few: usize = loans[..300].iter().map(Loan::octets).sum();
        assert!(few <= BUDGET + 300 * LEAST, "{few}");
        drop(loans);
        assert_eq!(memory.left.load(Ordering::Relaxed), BUDGET);
        assert_eq!(memory.lend().octets(), MOST);
    }
}
