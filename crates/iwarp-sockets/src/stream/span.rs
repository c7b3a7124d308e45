// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parts of a circular buffer.

use core::ops::Range;

/// One part of a buffer, or two where it goes on at the buffer's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spans {
    parts: [Range<usize>; 2],
}

impl Spans {
    /// `len` octets from stream position `from` on, in a circular buffer of `capacity` octets.
    pub(super) fn circular(from: u64, len: usize, capacity: usize) -> Self {
        let at = (from % capacity as u64) as usize;
        let first = len.min(capacity - at);
        Self { parts: [at..at + first, 0..len - first] }
    }

    /// The parts that are not empty, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.parts.iter().filter(|part| !part.is_empty()).cloned()
    }

    /// Octets of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(ExactSizeIterator::len).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::Spans;

    proptest! {
        #[test]
        fn spans_are_the_octets_in_their_order(
            from in 0u64..100, capacity in 1usize..20, part in 0.0..=1.0
        ) {
            let len = (capacity as f64 * part) as usize;
            let spans = Spans::circular(from, len, capacity);
            let octets: Vec<usize> = spans.iter().flatten().collect();
            let expected: Vec<usize> =
                (0..len).map(|n| ((from + n as u64) % capacity as u64) as usize).collect();
            prop_assert_eq!(octets, expected);
            prop_assert_eq!(spans.len(), len);
            prop_assert_eq!(spans.is_empty(), len == 0);
            prop_assert!(spans.iter().count() <= 2);
        }
    }
}
