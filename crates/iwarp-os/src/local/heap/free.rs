// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes of an arena that no block has, or the addresses of the region that no arena has.

use std::collections::BTreeMap;

/// Ranges that do not touch each other: their length, by their beginning.
#[derive(Debug, Default)]
pub(super) struct Free(BTreeMap<usize, usize>);

impl Free {
    /// All bytes of an arena of this length.
    pub(super) fn all(len: usize) -> Self {
        Self::between(0, len)
    }

    /// The bytes from `at` to `end`.
    pub(super) fn between(at: usize, end: usize) -> Self {
        let some = (at < end).then_some((at, end - at));
        Self(BTreeMap::from_iter(some))
    }

    /// True if all bytes of an arena of this length are free.
    pub(super) fn is_all(&self, len: usize) -> bool {
        self.0.get(&0) == Some(&len)
    }

    /// The beginning of `len` bytes, which are not free any more: the first that are there, at a
    /// multiple of `align`.
    pub(super) fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let mut all = self.0.iter();
        let (begin, at, end) = all.find_map(|(&begin, &there)| {
            let (at, end) = (begin.checked_next_multiple_of(align)?, begin + there);
            (at.checked_add(len)? <= end).then_some((begin, at, end))
        })?;
        self.0.remove(&begin);
        for (from, to) in [(begin, at), (at + len, end)] {
            if from < to {
                self.0.insert(from, to - from);
            }
        }
        Some(at)
    }

    /// Puts bytes back.
    pub(super) fn put(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &there)) = self.0.range(..at).next_back()
            && before + there == at
        {
            self.0.remove(&before);
            (at, len) = (before, there + len);
        }
        if let Some(behind) = self.0.remove(&(at + len)) {
            len += behind;
        }
        self.0.insert(at, len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    proptest! {
        /// Blocks of random lengths come and go: none has a byte of another, and in the end all are
        /// one range again.
        #[test]
        fn no_byte_is_given_out_twice_and_none_is_lost(
            steps in prop::collection::vec(
                (1_usize..12, 0_u32..4, any::<prop::sample::Index>()), 1..200
            )
        ) {
            let mut free = Free::all(LEN);
            let mut given = Vec::new();
            let mut taken = [false; LEN];
            for (len, align, which) in steps {
                if let Some(at) = free.take(len, 1 << align) {
                    prop_assert!(at.is_multiple_of(1 << align));
                    for byte in &mut taken[at..at + len] {
                        prop_assert!(!std::mem::replace(byte, true));
                    }
                    given.push((at, len));
                } else if !given.is_empty() {
                    let (at, len) = given.swap_remove(which.index(given.len()));
                    taken[at..at + len].fill(false);
                    free.put(at, len);
                }
                let free_bytes: usize = free.0.values().sum();
                prop_assert_eq!(free_bytes, taken.iter().filter(|taken| !**taken).count());
            }
            for (at, len) in given {
                free.put(at, len);
            }
            prop_assert_eq!(free.0.into_iter().collect::<Vec<_>>(), [(0, LEN)]);
        }
    }
}
