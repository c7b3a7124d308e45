// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic operations.

/// An atomic operation on 64 bits in the host's octet order (RFC 7306 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds field by field; each set bit of `mask` is the most significant bit of a field, whose
    /// carry is dropped. A mask of zero is one field of 64 bits.
    FetchAdd {
        /// The summand.
        add: u64,
        /// Field boundaries.
        mask: u64,
    },
    /// If `(old ^ compare) & compare_mask` is zero, replaces the bits in `swap_mask`.
    CompareSwap {
        /// The value that the old one is compared with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new bits.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// The value the operation leaves where it found `old`.
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Add without the top bit of each field, then put the top bits in without carry.
                let low = !mask;
                ((old & low).wrapping_add(add & low)) ^ ((old ^ add) & mask)
            }
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (old ^ compare) & compare_mask == 0 {
                    (old & !swap_mask) | (swap & swap_mask)
                } else {
                    old
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AtomicOp;

    /// Covers: EXT-7306-5.1.1-06
    #[test]
    fn corner_61_fetch_add_mask_bit_is_the_most_significant_of_a_field() {
        let add = |old, add, mask| AtomicOp::FetchAdd { add, mask }.apply(old);
        assert_eq!(add(u64::MAX, 1, 0), 0);
        assert_eq!(add(u64::MAX, 1, 1 << 63), 0);
        assert_eq!(add(0x0000_0000_ffff_ffff, 1, 1 << 31), 0);
        assert_eq!(add(0x7fff_ffff_ffff_ffff, 1, 0), 1 << 63);
        assert_eq!(add(0x00ff_00ff_00ff_00ff, 0x0001_0001_0001_0001, 0x0080_0080_0080_0080), 0);
    }

    /// Covers: EXT-7306-5.1.2-01
    #[test]
    fn compare_swap_compares_and_replaces_under_masks() {
        let op = AtomicOp::CompareSwap {
            compare: 0x1200,
            compare_mask: 0xff00,
            swap: 0xabcd,
            swap_mask: 0x00ff,
        };
        assert_eq!(op.apply(0x1234), 0x12cd);
        assert_eq!(op.apply(0x1334), 0x1334);
    }
}
