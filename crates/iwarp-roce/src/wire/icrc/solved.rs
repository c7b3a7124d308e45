// SPDX-License-Identifier: MIT OR Apache-2.0

//! Identifications that were found before.
//!
//! The packets of a train have one length and are numbered 0, 1, 2 and so on, so the differences of
//! their ICRCs are few, and come again with each train. To go back over a packet takes longer than
//! all else that is done with a short one.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::Identification;

/// Differences that are remembered: of two trains, as a place may be another's.
const PLACES: usize = 256;

/// A difference of ICRCs, the octets of the packet, and the identification that explains it.
type Known = (u32, u16, Identification);

/// The memory of them. It has no difference of 0, which needs no memory.
///
/// It has an allocation of its own, which can be refused: what holds it stays small, and a small
/// allocation is never refused.
#[derive(Debug)]
pub(super) struct Solved(Box<[Known]>);

impl Solved {
    /// A memory that is empty.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(super) fn new() -> Result<Self, TryReserveError> {
        let mut places = Vec::new();
        places.try_reserve_exact(PLACES)?;
        places.resize(PLACES, (0, 0, Identification::new(0)));
        Ok(Self(places.into_boxed_slice()))
    }

    /// The result of `solve` for a difference other than 0 and a packet of so many octets.
    #[inline]
    pub(super) fn or(
        &mut self,
        difference: u32,
        octets: usize,
        solve: impl FnOnce() -> Option<Identification>,
    ) -> Option<Identification> {
        // All lengths of packets fit.
        let octets = octets as u16;
        // The golden ratio mixes the bits.
        let place = difference.wrapping_add(octets.into()).wrapping_mul(0x9e37_79b9);
        let known = &mut self.0[place as usize >> (u32::BITS - PLACES.ilog2())];
        if (known.0, known.1) == (difference, octets) {
            return Some(known.2);
        }
        let id = solve()?;
        *known = (difference, octets, id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_train_like_the_last_is_known() {
        let mut solved = Solved::new().unwrap();
        let asked = Cell::new(0);
        let mut find = |difference: u32, octets| {
            let solve = || {
                asked.set(asked.get() + 1);
                Some(Identification::new(difference as u16))
            };
            let id = solved.or(difference, octets, solve).unwrap();
            assert_eq!(id, Identification::new(difference as u16));
        };
        for train in 0..10 {
            // Differences are linear in the number.
            (1..64_u32).for_each(|number| find(number.wrapping_mul(0x2545_f491), 1040));
            assert!(train > 0 || asked.get() == 63);
        }
        assert!(asked.get() < 200, "{}", asked.get());
        // Others of that length, and those of another.
        let before = asked.get();
        find(1, 1040);
        find(0x2545_f491, 1041);
        assert_eq!(asked.get(), before + 2);
    }

    #[test]
    fn a_difference_without_an_explanation_is_not_remembered() {
        let mut solved = Solved::new().unwrap();
        assert_eq!(solved.or(7, 16, || None), None);
        assert_eq!(solved.or(7, 16, || Some(Identification::new(1))), Some(Identification::new(1)));
        assert_eq!(solved.or(7, 16, || None), Some(Identification::new(1)));
        assert_eq!(solved.or(7, 17, || None), None);
    }
}
