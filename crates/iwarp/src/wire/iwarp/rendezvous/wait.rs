// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time that work waits for a peer that does not come.

use std::time::Duration;

use iwarp_types::Time;

/// The longest pause between two looks at whether work waits, and so the most that one of them
/// counts.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The time for which work has waited, as this process has seen it. A machine that stood still for
/// seconds has kept the peer waiting as well, so its pause counts as one look.
#[derive(Default)]
pub(super) struct WaitedTime {
    last: Option<Time>,
    spent: Duration,
}

impl WaitedTime {
    /// Looks, while work waits or while none does, and says for how long it has.
    pub(super) fn look(&mut self, waits: bool, now: Time) -> Duration {
        if waits {
            let since = self.last.map_or(Duration::ZERO, |last| now.0.saturating_sub(last.0));
            self.spent += since.min(LOOK);
            self.last = Some(now);
        } else {
            *self = Self::default();
        }
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    #[test]
    fn time_counts_from_when_work_waits() {
        let mut waited = WaitedTime::default();
        let looks = [(false, 0, 0), (true, 900, 0), (true, 1000, 100), (true, 1500, 600)];
        for (waits, now, spent) in looks {
            assert_eq!(waited.look(waits, at(now)).as_millis(), spent, "{now}");
        }
        assert_eq!(waited.look(false, at(1600)), Duration::ZERO);
        assert_eq!(waited.look(true, at(1700)), Duration::ZERO);
    }

    #[test]
    fn a_machine_that_stood_still_has_looked_once() {
        let mut waited = WaitedTime::default();
        waited.look(true, at(1000));
        assert_eq!(waited.look(true, at(61_000)), LOOK);
        assert_eq!(waited.look(true, at(61_100)), LOOK + Duration::from_millis(100));
    }
}
