// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times as codes.

use core::time::Duration;

/// A time as one of 32 codes: 4.096 us x 2^code. Linux uses 1 ms x 2^(code - 8), which is 2 % less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TimeCode(u8);

impl TimeCode {
    /// The code in the low five bits.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time that it stands for: 4 us to 2.4 hours.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }

    /// The ACK timeout of a queue pair whose packets live so long, towards a peer that takes
    /// `delay` to acknowledge: the larger of the two, and one more where they are alike
    /// (`cm_ack_timeout` of Linux).
    #[must_use]
    pub const fn ack_timeout(delay: Self, lifetime: Self) -> Self {
        let (way, delay) = (lifetime.0 + 1, delay.0);
        let code = if way >= delay {
            way + (delay + 1 >= way) as u8
        } else {
            delay + (way + 1 >= delay) as u8
        };
        Self(if code > 31 { 31 } else { code })
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, TimeCode};

    #[test]
    fn codes_stand_for_powers_of_two() {
        let of = |code| TimeCode::new(code).duration();
        assert_eq!(of(0), Duration::from_nanos(4096));
        assert_eq!(of(20).as_millis(), 4294);
        assert_eq!(of(24).as_secs(), 68);
        assert_eq!(of(31).as_secs(), 8796);
        assert_eq!(TimeCode::new(32).code(), 0);
    }

    /// The timeouts that Linux 6.1 and 7.3 ask for: packet lives of 18 and 16, and a delay of 15.
    #[test]
    fn the_ack_timeout_is_more_than_the_way() {
        let of =
            |delay, life| TimeCode::ack_timeout(TimeCode::new(delay), TimeCode::new(life)).code();
        assert_eq!([of(15, 18), of(15, 16), of(15, 15), of(15, 14)], [19, 17, 17, 16]);
        assert_eq!([of(20, 3), of(20, 18), of(31, 31), of(0, 0)], [20, 21, 31, 2]);
    }
}
