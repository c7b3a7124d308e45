// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times of send work requests from post to completion, as processes that are watched tell them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest time of each bucket, in nanoseconds, and how many requests it has.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Times(BTreeMap<u64, u64>);

impl Times {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of those that took no longer than this.
    pub(super) fn within(&self, nanos: u64) -> u64 {
        self.0.range(..=nanos).map(|(_, count)| count).sum()
    }

    /// The times behind an earlier look. All of them, if it was reset in between.
    pub(super) fn since(&self, before: &Self) -> Self {
        let earlier = |nanos| before.0.get(nanos).copied().unwrap_or(0);
        if before.0.iter().any(|(nanos, count)| self.0.get(nanos).unwrap_or(&0) < count) {
            return self.clone();
        }
        let new = self.0.iter().map(|(nanos, count)| (*nanos, count - earlier(nanos)));
        Self(new.filter(|(_, count)| *count > 0).collect())
    }

    /// Adds those of another queue pair.
    pub(super) fn add(&mut self, other: &Self) {
        for (nanos, count) in &other.0 {
            *self.0.entry(*nanos).or_default() += count;
        }
    }

    /// The time within which that many of a thousand were, in nanoseconds.
    pub(super) fn within_which(&self, thousandths: u64) -> Option<u64> {
        let rank = (self.count() * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        let bucket = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        bucket.map(|(nanos, _)| *nanos)
    }
}

/// A time in short: 950ns, 9.5us, 950us, 9.5ms.
pub(super) fn short(nanos: u64) -> String {
    let mut number = nanos as f64;
    for unit in ["ns", "us", "ms"] {
        // It would be shown as 1000.
        if number < 999.5 {
            let digits = usize::from(unit != "ns" && number < 9.95);
            return format!("{number:.digits$}{unit}");
        }
        number /= 1e3;
    }
    format!("{number:.1}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<const N: usize> From<[(u64, u64); N]> for Times {
        fn from(buckets: [(u64, u64); N]) -> Self {
            Self(buckets.into())
        }
    }

    fn times<const N: usize>(buckets: [(u64, u64); N]) -> Times {
        buckets.into()
    }

    #[test]
    fn half_and_nearly_all_are_within_a_time() {
        let times = times([(10, 50), (20, 49), (900, 1)]);
        let within = [500, 501, 990, 991].map(|part| times.within_which(part));
        assert_eq!(within, [Some(10), Some(20), Some(20), Some(900)]);
        assert_eq!(Times::default().within_which(500), None);
        assert_eq!([9, 10, 899, 900].map(|nanos| times.within(nanos)), [0, 50, 99, 100]);
    }

    #[test]
    fn times_between_two_looks_are_those_of_the_second_alone() {
        let before = times([(10, 5), (20, 1)]);
        let after = times([(10, 5), (20, 4), (40, 2)]);
        assert_eq!(after.since(&before), times([(20, 3), (40, 2)]));
        let anew = times([(10, 2)]);
        assert_eq!(anew.since(&before), anew);
        let mut sum = before;
        sum.add(&anew);
        assert_eq!(sum, times([(10, 7), (20, 1)]));
    }

    #[test]
    fn answers_have_the_buckets_as_members() {
        let text = serde_json::json!({"1023": 2, "9": 1});
        let read: Times = serde_json::from_value(text).expect("numbers");
        assert_eq!(read, times([(9, 1), (1023, 2)]));
    }

    #[test]
    fn times_are_short() {
        for (nanos, text) in [
            (7, "7ns"),
            (1023, "1.0us"),
            (65_535, "66us"),
            (9_961_471, "10ms"),
            (68_719_476_735, "68.7s"),
        ] {
            assert_eq!(short(nanos), text);
        }
    }
}
