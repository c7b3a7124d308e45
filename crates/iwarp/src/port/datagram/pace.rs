// SPDX-License-Identifier: MIT OR Apache-2.0

//! The speed at which packets go to a peer.
//!
//! A socket drops what its buffer does not hold, and RC goes back to the first packet that was
//! dropped, after a timeout perhaps. So no more should go at once than the peer's buffer takes, and
//! no faster than the peer takes it out.

use std::time::Duration;

use iwarp_types::Time;

/// A bucket of bytes that fills by time and is emptied by packets. It has no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes that come in a second.
    rate: u64,
    /// Bytes that it holds.
    depth: u64,
    /// When the bucket was, or will be, full if nothing is taken. Before now: it is full.
    full_at: Time,
}

impl Pace {
    /// A full bucket of `depth` bytes that fills by `rate` bytes a second; each is at least 1.
    pub fn new(rate: u64, depth: u64) -> Self {
        Self { rate: rate.max(1), depth: depth.max(1), full_at: Time::default() }
    }

    /// One whose bursts half fill a receive buffer of so many bytes, as the system counts them.
    pub fn for_buffer(rate: u64, buffer: usize) -> Self {
        Self::new(rate, buffer as u64 / 2)
    }

    /// Bytes that it holds now.
    pub fn room(&self, now: Time) -> u64 {
        self.depth.saturating_sub(self.missing(now))
    }

    /// Takes so many bytes, and owes those that it does not hold.
    pub fn spend(&mut self, octets: usize, now: Time) {
        let from = self.full_at.max(now);
        self.full_at = from.plus(self.time_for(octets as u64));
    }

    /// The time at which it holds so many bytes, or is full if they are more than it can hold.
    pub fn when(&self, octets: u64, now: Time) -> Time {
        let over = (self.missing(now) + octets.min(self.depth)).saturating_sub(self.depth);
        now.plus(self.time_for(over))
    }

    /// The rate, in bytes a second.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Fills by another rate (at least 1) from now on.
    pub fn set_rate(&mut self, rate: u64, now: Time) {
        let missing = self.missing(now);
        self.rate = rate.max(1);
        self.full_at = now.plus(self.time_for(missing));
    }

    /// Takes so many bytes, or says when they will be there. Bytes beyond its depth go when it is
    /// full.
    ///
    /// # Errors
    ///
    /// The time at which to ask again.
    pub fn take(&mut self, octets: usize, now: Time) -> Result<(), Time> {
        let when = self.when(octets as u64, now);
        if when > now {
            return Err(when);
        }
        self.spend(octets, now);
        Ok(())
    }

    /// Bytes that it lacks.
    fn missing(&self, now: Time) -> u64 {
        let nanos = self.full_at.0.saturating_sub(now.0).as_nanos();
        let octets = (nanos * u128::from(self.rate)).div_ceil(NANOS);
        u64::try_from(octets).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    fn time_for(&self, octets: u64) -> Duration {
        let nanos = (u128::from(octets) * NANOS).div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(all(test, not(model)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(micros: u64) -> Time {
        Time(Duration::from_micros(micros))
    }

    #[test]
    fn a_burst_passes_and_then_so_many_octets_a_second() {
        // 1 byte a microsecond.
        let mut pace = Pace::new(1_000_000, 100);
        assert_eq!(pace.take(60, at(1000)), Ok(()));
        assert_eq!(pace.take(40, at(1000)), Ok(()));
        assert_eq!(pace.take(30, at(1000)), Err(at(1030)));
        assert_eq!(pace.take(30, at(1029)), Err(at(1030)));
        assert_eq!(pace.take(30, at(1030)), Ok(()));
        // More than it holds goes when it is full, and is made up for.
        assert_eq!(pace.take(250, at(1030)), Err(at(1130)));
        assert_eq!(pace.take(250, at(1130)), Ok(()));
        assert_eq!(pace.take(1, at(1130)), Err(at(1281)));
        pace.set_rate(2_000_000, at(1130));
        let half = Time(Duration::from_nanos(1_205_500));
        assert_eq!((pace.rate(), pace.take(1, at(1130))), (2_000_000, Err(half)));
    }

    #[test]
    fn overspending_is_made_up_for() {
        let mut pace = Pace::new(1_000_000, 100);
        assert_eq!(pace.room(at(1000)), 100);
        pace.spend(130, at(1000));
        assert_eq!((pace.room(at(1000)), pace.room(at(1030))), (0, 0));
        assert_eq!((pace.when(1, at(1000)), pace.when(40, at(1010))), (at(1031), at(1070)));
        assert_eq!((pace.room(at(1070)), pace.when(40, at(1070))), (40, at(1070)));
    }

    proptest! {
        /// In any stretch of time no more passes than the bucket holds and what comes in meanwhile.
        #[test]
        fn no_stretch_has_more(
            rate in 1_u64..1 << 34,
            depth in 1_u64..1 << 20,
            asks in prop::collection::vec((1_usize..2000, 0_u64..1000), 1..200),
        ) {
            let mut pace = Pace::new(rate, depth);
            let (mut now, mut taken) = (at(7), Vec::new());
            for (octets, pause) in asks {
                now = now.plus(Duration::from_micros(pause));
                match pace.take(octets, now) {
                    Ok(()) => taken.push((now, octets as u64)),
                    Err(later) => {
                        prop_assert!(later > now);
                        prop_assert_eq!(pace.clone().take(octets, later), Ok(()));
                    }
                }
            }
            for (first, (start, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (end, octets) in &taken[first..] {
                    // The last one of them may be longer than the bucket.
                    let came = (end.0 - start.0).as_nanos() * u128::from(rate) / NANOS;
                    prop_assert!(sum <= u128::from(depth) + came + 1);
                    sum += u128::from((*octets).min(depth));
                }
            }
        }
    }
}
