// SPDX-License-Identifier: MIT OR Apache-2.0

//! The marks of one direction: a bit for each slot, and a word that says where to look.
//!
//! The word that says where to look also says that the taker is about to sleep. Both are changed by
//! operations on that one word, so of a mark and a taker that falls asleep one sees the other: no
//! fence is needed. `tests/loom` compiles this file once more, with the atomics of a model checker.

use crate::sync::{AtomicU64, Ordering};

/// Bits of a word.
const BITS: usize = 64;

/// Words of bits that one bit of the summary stands for.
const WORDS_EACH: usize = 2;

/// In the summary: the taker is about to sleep, or does.
const LISTENS: u64 = 1 << 63;

/// The shared words of one direction: a bit for each of `64 * WORDS` slots.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Words<const WORDS: usize> {
    /// A bit for every two words that may have marks, and [`LISTENS`].
    pub(crate) summary: AtomicU64,
    pub(crate) marks: Line<[AtomicU64; WORDS]>,
}

/// Words that are looked at only if the summary says so.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Line<T>(pub(crate) T);

impl<const WORDS: usize> Words<WORDS> {
    /// Marks a slot. True if the taker is to be woken: one caller for each time that it sleeps.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub(crate) fn mark(&self, slot: usize) -> bool {
        self.put(slot) && self.wakes()
    }

    /// Marks a slot. True if the taker listens, and is to be told by [`Self::wakes`] or otherwise.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub(crate) fn put(&self, slot: usize) -> bool {
        let word = slot / BITS;
        self.marks.0[word].fetch_or(1 << (slot % BITS), Ordering::Release);
        // Also if the bit was there: another thread may have set it and not come this far.
        let before = self.summary.fetch_or(1 << (word / WORDS_EACH), Ordering::AcqRel);
        before & LISTENS != 0
    }

    /// True if the caller is to wake the taker: one caller for each time that it sleeps.
    pub(crate) fn wakes(&self) -> bool {
        self.summary.fetch_and(!LISTENS, Ordering::AcqRel) & LISTENS != 0
    }

    /// True if something may be marked.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.summary.load(Ordering::Relaxed) & !LISTENS != 0
    }

    /// Takes all marks. The taker listens no more.
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) {
        let summary = self.summary.swap(0, Ordering::AcqRel);
        for (number, words) in self.marks.0.chunks(WORDS_EACH).enumerate() {
            if summary & 1 << number == 0 {
                continue;
            }
            for (at, word) in words.iter().enumerate() {
                let mut bits = match word.load(Ordering::Relaxed) {
                    0 => continue,
                    _ => word.swap(0, Ordering::Acquire),
                };
                while bits != 0 {
                    let bit = bits.trailing_zeros() as usize;
                    each((number * WORDS_EACH + at) * BITS + bit);
                    bits &= bits - 1;
                }
            }
        }
    }

    /// The taker is about to sleep. True if something may be marked already.
    pub(crate) fn listen(&self) -> bool {
        self.summary.fetch_or(LISTENS, Ordering::AcqRel) & !LISTENS != 0
    }
}
