// SPDX-License-Identifier: MIT OR Apache-2.0

//! The window: the amount that may be under way. It grows on clean acknowledgements and is halved
//! on loss.
//!
//! The peer's socket holds 212,992 octets by default (ROCE-074), counted with the kernel's overhead
//! for each packet. So a packet weighs its payload and a fixed overhead, and the window is in that
//! weight.

use core::time::Duration;

use iwarp_types::Time;

/// The weight of a packet beside its payload.
pub(super) const OVERHEAD: u64 = 512;

/// The window in the beginning.
const START: u64 = 64 << 10;
/// Up to here it grows by the weight acknowledged, as nearly every peer's socket holds as much.
const SAFE: u64 = 128 << 10;
/// It grows no further: a peer that sleeps between packets is kept busy by so much.
const MOST: u64 = 1 << 20;
/// It shrinks no further: some packets of the largest path MTU.
const LEAST: u64 = 16 << 10;
/// Beyond the threshold it grows by so much for each window that is acknowledged.
const STEP: u64 = 2 << 10;
/// Congestion notifications within this time tell of one congestion.
const CALM: Duration = Duration::from_micros(50);

/// Weight of the answers that one Read Request asks for, where several may be under way.
const SEGMENT: u64 = 32 << 10;
/// The amount where only one may be.
const ONLY_SEGMENT: u64 = 64 << 10;

/// The window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    window: u64,
    threshold: u64,
    /// Weight acknowledged towards the next step.
    credit: u64,
    /// Time at which congestion last lowered it.
    lowered: Option<Time>,
    /// The end, by weight, of the packets that were under way then. Notifications that come before
    /// it is acknowledged tell of that congestion.
    known: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { window: START, threshold: SAFE, credit: 0, lowered: None, known: 0 }
    }
}

impl Pace {
    /// The window, in weight.
    #[inline]
    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// Grows for acknowledged weight.
    #[inline]
    pub(super) const fn grow(&mut self, weight: u64) {
        if self.window < self.threshold {
            self.window += weight;
        } else {
            self.credit += weight;
            if self.credit >= self.window {
                self.credit = 0;
                self.window += STEP;
            }
        }
        if self.window > MOST {
            self.window = MOST;
        }
    }

    /// Halves the window: packets were lost.
    pub(super) fn shrink(&mut self) {
        self.window = (self.window / 2).max(LEAST);
        self.threshold = self.window;
        self.credit = 0;
    }

    /// Lowers the window: the network reports congestion, with packets between these two weights
    /// under way.
    pub(super) fn congested(&mut self, now: Time, acknowledged: u64, sent: u64) {
        let calm = self.lowered.is_none_or(|at| now >= at.plus(CALM));
        if calm && acknowledged >= self.known {
            self.lowered = Some(now);
            self.known = sent;
            self.shrink();
        }
    }
}

/// Packets of answers that one Read Request asks for: long Reads are asked for in pieces, so that
/// the answers, too, stay within the window. A repeated Read is cut at unchanged places, because
/// the responder knows requests by their start.
pub(super) fn segment(mtu: usize, max_rd_atomic: u8) -> u32 {
    let weight = if max_rd_atomic > 1 { SEGMENT } else { ONLY_SEGMENT };
    (weight / (mtu as u64 + OVERHEAD)).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-074
    #[test]
    fn the_window_stays_within_a_socket_buffer_until_it_has_proved_larger() {
        let mut pace = Pace::default();
        for _ in 0..SAFE / 1024 {
            pace.grow(1024);
        }
        assert!(pace.window() <= SAFE + 1024);
        for _ in 0..1_000_000 {
            pace.grow(4096);
        }
        assert_eq!(pace.window(), MOST);
        pace.shrink();
        assert_eq!(pace.window(), MOST / 2);
        for _ in 0..20 {
            pace.shrink();
        }
        assert_eq!(pace.window(), LEAST);
    }

    /// Covers: ROCE-143
    #[test]
    fn congestion_halves_the_window_once_for_what_is_under_way() {
        let mut pace = Pace::default();
        let at = |micros| Time(Duration::from_secs(1) + Duration::from_micros(micros));
        pace.congested(at(0), 0, 1000);
        pace.congested(at(49), 1000, 2000);
        // The packets that were under way then are on the way yet.
        pace.congested(at(500), 999, 2000);
        assert_eq!(pace.window(), START / 2);
        pace.congested(at(500), 1000, 2000);
        assert_eq!(pace.window(), START / 4);
        // It recovers a step a window.
        for _ in 0..4 * START / 1024 {
            pace.grow(1024);
        }
        assert!((START / 4 + STEP..START / 2 + 8 * STEP).contains(&pace.window()));
    }

    #[test]
    fn a_segment_of_a_read_fits_the_first_window() {
        for mtu in [256, 512, 1024, 2048, 4096] {
            for depth in [1, 16] {
                let packets = segment(mtu, depth);
                assert!((1..1 << 8).contains(&packets));
                assert!(u64::from(packets) * (mtu as u64 + OVERHEAD) <= START);
            }
        }
    }
}
