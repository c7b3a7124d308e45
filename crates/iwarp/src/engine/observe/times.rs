// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times of the send work requests of a queue pair, from their posts to their completions.
//!
//! They are taken only while somebody watches: a post reads the clock then, and so does a
//! completion. The buckets of the histogram are eight to each power of two, so a time is known to
//! an eighth.

use std::time::Duration;

use iwarp_mem::OutOfMemory;

/// Buckets of a power of two, as a power of two.
const FINE: u32 = 3;
/// Longer times, of more than a minute, count as this one, in nanoseconds.
const MOST: u64 = (1 << 36) - 1;
const BUCKETS: usize = bucket(MOST) + 1;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Times {
    /// The end of the watch.
    until: Duration,
    /// The post of a request that is carried out before it is taken.
    begun: Option<Duration>,
    buckets: Vec<u64>,
}

impl Times {
    pub(super) fn new(until: Duration) -> Result<Box<Self>, OutOfMemory> {
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(BUCKETS).map_err(|_| OutOfMemory)?;
        buckets.resize(BUCKETS, 0);
        Ok(Box::new(Self { until, begun: None, buckets }))
    }

    /// The watch goes on until then, if it does not for longer.
    pub(super) fn extend(&mut self, until: Duration) {
        self.until = self.until.max(until);
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        now > self.until
    }

    pub(super) fn begins(&mut self, now: Duration) {
        self.begun.get_or_insert(now);
    }

    pub(super) fn forget_begun(&mut self) {
        self.begun = None;
    }

    /// The time of the post of a request that is taken now.
    pub(super) fn posted(&mut self, now: Duration) -> Duration {
        self.begun.take().unwrap_or(now)
    }

    pub(super) fn ended(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(MOST);
        self.buckets[bucket(nanos.min(MOST))] += 1;
    }

    /// The longest time of each bucket that has some, in nanoseconds, and how many it has.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let numbered = self.buckets.iter().enumerate();
        numbered.filter(|(_, count)| **count > 0).map(|(bucket, count)| (longest(bucket), *count))
    }
}

const fn bucket(nanos: u64) -> usize {
    let shift = match nanos >> FINE {
        0 => return nanos as usize,
        more => more.ilog2(),
    };
    ((shift << FINE) as u64 + (nanos >> shift)) as usize
}

const fn longest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket >> FINE {
        0 => bucket,
        octave => {
            let first = (bucket & ((1 << FINE) - 1)) | (1 << FINE);
            ((first + 1) << (octave - 1)) - 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_an_eighth_wide() {
        let mut first = 0;
        for number in 0..BUCKETS {
            let last = longest(number);
            assert_eq!([bucket(first), bucket(last)], [number; 2], "{first} to {last}");
            assert!((last - first) * 8 <= first, "{first} to {last}");
            first = last + 1;
        }
        assert_eq!(first, MOST + 1);
    }

    #[test]
    fn times_are_counted() {
        let mut times = Times::new(Duration::from_secs(5)).unwrap();
        for nanos in [1_000, 1_001, 70_000_000_000, 1 << 63] {
            times.ended(Duration::from_nanos(nanos));
        }
        let counts: Vec<_> = times.counts().collect();
        assert_eq!(counts, [(1023, 2), (MOST, 2)]);
    }

    #[test]
    fn the_longest_watch_holds() {
        let seconds = Duration::from_secs;
        let mut times = Times::new(seconds(5)).unwrap();
        times.extend(seconds(3));
        assert!(!times.is_over(seconds(5)) && times.is_over(seconds(6)));
        times.extend(seconds(7));
        assert!(!times.is_over(seconds(7)));
    }

    #[test]
    fn a_request_begins_with_its_post() {
        let seconds = Duration::from_secs;
        let mut times = Times::new(seconds(5)).unwrap();
        times.begins(seconds(1));
        times.begins(seconds(2));
        assert_eq!(times.posted(seconds(3)), seconds(1));
        assert_eq!(times.posted(seconds(4)), seconds(4));
        times.begins(seconds(4));
        times.forget_begun();
        assert_eq!(times.posted(seconds(5)), seconds(5));
    }
}
