// SPDX-License-Identifier: MIT OR Apache-2.0

//! Traffic of queue pairs between two looks at the processes.

use std::time::Duration;

use super::facts::{Facts, Process, QueuePair};

/// The traffic of one queue pair, or the sum of several.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct Rates {
    /// Send work requests that have ended, in a second.
    pub(super) requests: f64,
    /// Bytes of the payloads of requests that were posted, in a second.
    pub(super) octets: f64,
    /// Messages that have come, in a second.
    pub(super) messages: f64,
}

impl Rates {
    /// Of a queue pair, which had the facts `before` so long ago. One that is new, or was reset, or
    /// whose number is another's now, has none.
    pub(super) fn of(before: Option<&QueuePair>, now: &QueuePair, time: Duration) -> Self {
        let Some(before) = before else { return Self::default() };
        let seconds = time.as_secs_f64().max(1e-3);
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Self {
            requests: rate(before.ended, now.ended),
            octets: rate(before.octets, now.octets),
            messages: rate(before.arrivals, now.arrivals),
        }
    }

    /// Of all queue pairs of a process.
    pub(super) fn of_process(before: Option<&Facts>, now: &Facts, time: Duration) -> Self {
        let rates = now.qp.iter().map(|qp| Self::of(find(before, qp), qp, time));
        rates.fold(Self::default(), Self::and)
    }

    /// The sum.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            octets: self.octets + other.octets,
            messages: self.messages + other.messages,
        }
    }
}

/// The facts of a process at an earlier look.
pub(super) fn earlier<'a>(before: &'a [Process], process: &Process) -> Option<&'a Facts> {
    before.iter().find(|one| one.pid == process.pid)?.facts()
}

/// The queue pair at an earlier look: several devices of a process may have one of that number.
pub(super) fn find<'a>(before: Option<&'a Facts>, qp: &QueuePair) -> Option<&'a QueuePair> {
    let is_it = |other: &&QueuePair| (other.number, &other.device) == (qp.number, &qp.device);
    before?.qp.iter().find(is_it)
}

/// A number of at most four digits: 950, 9.5k, 950k, 9.5M.
pub(super) fn short(number: f64) -> String {
    let mut number = number;
    for unit in ["", "k", "M", "G"] {
        // It would be shown as 1000.
        if number < 999.5 {
            let digits = usize::from(!unit.is_empty() && number < 9.95);
            return format!("{number:.digits$}{unit}");
        }
        number /= 1e3;
    }
    format!("{number:.1}T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_same_queue_pair() {
        let qp = |number, device: &str, ended| QueuePair {
            number,
            device: device.to_owned(),
            ended,
            octets: ended * 100,
            arrivals: 1,
            ..QueuePair::default()
        };
        let before = Facts { qp: vec![qp(7, "a", 10), qp(7, "b", 1000)], ..Facts::default() };
        let now = Facts { qp: vec![qp(7, "a", 30), qp(8, "a", 5)], ..Facts::default() };
        let of = |qp| Rates::of(find(Some(&before), qp), qp, Duration::from_secs(2));
        assert_eq!(of(&now.qp[0]), Rates { requests: 10.0, octets: 1000.0, messages: 0.0 });
        assert_eq!(of(&now.qp[1]), Rates::default());
        let all = Rates::of_process(Some(&before), &now, Duration::from_secs(2));
        assert_eq!(all, of(&now.qp[0]));
        // It was reset.
        let again = qp(7, "b", 3);
        assert_eq!(of(&again), Rates::default());
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (12.4, "12"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (9_949.0, "9.9k"),
            (9_951.0, "10k"),
            (123_456.0, "123k"),
            (4.4e9, "4.4G"),
            (4.4e12, "4.4T"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
