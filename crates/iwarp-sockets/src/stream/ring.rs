// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive ring of this end: two halves, which the peer fills in turn, each to its last octet
//! (RS-FLOW-01, RS-FLOW-03).

use super::error::Violation;
use super::span::Spans;

/// Counts of the stream's octets. Octet `n` lies at `n` modulo the ring's length.
#[derive(Clone, Debug)]
pub(super) struct ReceiveRing {
    half: u32,
    /// Octets that the peer has written.
    written: u64,
    /// Octets that the program has taken.
    taken: u64,
    /// Octets for which memory was announced: whole halves.
    announced: u64,
}

impl ReceiveRing {
    /// The first half is announced with the connection.
    pub(super) fn new(half: u32) -> Self {
        Self { half, written: 0, taken: 0, announced: half.into() }
    }

    /// The peer has written so many octets.
    pub(super) fn write(&mut self, octets: u32) -> Result<(), Violation> {
        if octets == 0 {
            return Err(Violation::EmptyData);
        }
        let room = self.room();
        if octets > room {
            return Err(Violation::DataBeyondRoom { octets, room });
        }
        self.written += u64::from(octets);
        Ok(())
    }

    /// Octets that the peer may write before the end of the half.
    fn room(&self) -> u32 {
        let half = u64::from(self.half);
        let end_of_half = (self.written / half + 1) * half;
        (end_of_half.min(self.announced) - self.written) as u32
    }

    /// Octets for the program.
    pub(super) fn readable(&self) -> usize {
        (self.written - self.taken) as usize
    }

    /// The place of the next octets for the program, `max` at most.
    pub(super) fn peek(&self, max: usize) -> Spans {
        Spans::circular(self.taken, self.readable().min(max), 2 * self.half as usize)
    }

    /// The program has taken so many octets; no more than there are.
    pub(super) fn take(&mut self, octets: usize) {
        debug_assert!(octets <= self.readable());
        self.taken += octets.min(self.readable()) as u64;
    }

    /// True if a half is free that was not announced.
    pub(super) fn is_half_free(&self) -> bool {
        self.announced - self.taken <= u64::from(self.half)
    }

    /// Announces the half that is free: its index, which is also that of the SGL entry.
    pub(super) fn announce(&mut self) -> u32 {
        debug_assert!(self.is_half_free());
        let index = self.announced / u64::from(self.half) % 2;
        self.announced += u64::from(self.half);
        index as u32
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::ReceiveRing;
    use crate::stream::Violation;

    /// Covers: RS-FLOW-01, RS-FLOW-02, RS-FLOW-03
    #[test]
    fn halves_are_announced_in_turn() {
        let mut ring = ReceiveRing::new(8);
        assert!(ring.is_half_free(), "the second, at once");
        assert_eq!(ring.announce(), 1);
        assert!(!ring.is_half_free());
        ring.write(8).unwrap();
        ring.write(3).unwrap();
        ring.take(7);
        assert!(!ring.is_half_free());
        assert!(ring.peek(100).iter().eq(core::iter::once(7..11)));
        ring.take(1);
        assert!(ring.is_half_free());
        assert_eq!(ring.announce(), 0);
        ring.write(5).unwrap();
        ring.write(2).unwrap();
        assert_eq!(ring.peek(100).iter().collect::<Vec<_>>(), [8..16, 0..2]);
        assert!(ring.peek(3).iter().eq(core::iter::once(8..11)));
    }

    /// Covers: RS-MSG-08
    #[test]
    fn data_that_do_not_fit_are_refused() {
        let mut ring = ReceiveRing::new(8);
        let beyond = |octets, room| Err(Violation::DataBeyondRoom { octets, room });
        assert_eq!(ring.write(0), Err(Violation::EmptyData));
        assert_eq!(ring.write(9), beyond(9, 8));
        ring.announce();
        assert_eq!(ring.write(9), beyond(9, 8), "no message spans two halves");
        ring.write(5).unwrap();
        assert_eq!(ring.write(4), beyond(4, 3));
        ring.write(3).unwrap();
        ring.write(8).unwrap();
        assert_eq!(ring.write(1), beyond(1, 0));
        assert_eq!(ring.write(u32::MAX), beyond(u32::MAX, 0));
        assert_eq!(ring.readable(), 16);
    }
}
