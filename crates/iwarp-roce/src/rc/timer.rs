// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deadlines of the requester, and the number of its tries.

use core::time::Duration;

use iwarp_types::Time;

/// Local ACK timeout code 0: no deadline at all (ROCE-061).
const FOR_EVER: u8 = 0;
/// An rnr_retry of 7: no limit (ROCE-058).
const WITHOUT_END: u8 = 7;
/// Codes below this one count as it, 4.2 ms: threads of either end may wait as long for a CPU.
const SHORTEST: u8 = 10;
/// The first wait is the timeout, later ones are twice and four times as long, as allowed
/// (ROCE-064).
const LONGEST_SHIFT: u8 = 2;

/// The work that is due when a deadline has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Packets sent again after a NAK are sent once more, which is no further try.
    Repeat,
    /// An answer is overdue.
    Overdue,
}

/// The deadlines at which the requester acts unasked, and its tries so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Timer {
    /// Time at which the oldest packet is sent again for want of an answer.
    deadline: Option<Time>,
    /// Time at which sending goes on after an RNR NAK.
    resume: Option<Time>,
    /// Tries without progress (ROCE-063).
    tries: u8,
    /// The tries that waited in vain: a NAK tells of a peer that answers, so it makes no wait
    /// longer.
    waits: u8,
    /// Set after a NAK had packets sent again. A responder asks for a packet only once (ROCE-076),
    /// so if the packet is lost again, no second NAK comes: the next wait is short.
    repeats: bool,
    /// RNR NAKs without progress.
    rnr_tries: u8,
    /// The oldest packet that was sent again because of a NAK, explicit or implied.
    gone_back: Option<u64>,
}

/// Time to wait for an answer, by the local ACK timeout code, after so many waits in vain.
fn wait(code: u8, waits: u8) -> Option<Duration> {
    if code == FOR_EVER {
        return None;
    }
    let nanos = 4096_u64 << code.clamp(SHORTEST, 31);
    Some(Duration::from_nanos(nanos << waits.min(LONGEST_SHIFT)))
}

impl Timer {
    /// Begins to wait for an answer, unless it waits already.
    #[inline]
    pub(super) fn arm(&mut self, now: Time, code: u8) {
        if self.deadline.is_none() {
            let code = if self.repeats { code.min(SHORTEST) } else { code };
            self.deadline = wait(code, self.waits).map(|wait| now.plus(wait));
        }
    }

    /// The packet whose answer is awaited left `by` later than assumed.
    pub(super) fn postpone(&mut self, by: Duration) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = deadline.plus(by);
        }
    }

    /// Ends the wait for an answer.
    #[inline]
    pub(super) const fn disarm(&mut self) {
        self.deadline = None;
    }

    /// An answer brought progress: the tries count from 0 again (ROCE-063).
    #[inline]
    pub(super) const fn progress(&mut self) {
        self.deadline = None;
        self.tries = 0;
        self.waits = 0;
        self.repeats = false;
        self.rnr_tries = 0;
        self.gone_back = None;
    }

    /// True if sending waits for the peer to have receives.
    #[inline]
    pub(super) const fn is_waiting(&self) -> bool {
        self.resume.is_some()
    }

    /// Tries without progress, for want of an answer.
    pub(super) const fn tries(&self) -> u8 {
        self.tries
    }

    /// RNR NAKs without progress, while the peer is known to have no receive.
    pub(super) const fn rnr_tries(&self) -> Option<u8> {
        if self.rnr_tries > 0 { Some(self.rnr_tries) } else { None }
    }

    /// One more try, for want of an answer; false if the tries are used up (ROCE-062).
    pub(super) const fn retry(&mut self, retry_count: u8) -> bool {
        self.waits = self.waits.saturating_add(1);
        self.try_again(retry_count)
    }

    /// As [`Self::retry`], because a NAK, explicit or implied, asks for it.
    pub(super) const fn retry_as_told(&mut self, retry_count: u8) -> bool {
        self.repeats = true;
        self.try_again(retry_count)
    }

    const fn try_again(&mut self, retry_count: u8) -> bool {
        self.disarm();
        self.tries = self.tries.saturating_add(1);
        self.tries <= retry_count
    }

    /// As [`Self::retry`], because of an RNR NAK: sending goes on at `resume`.
    pub(super) const fn retry_at(&mut self, resume: Time, rnr_retry: u8) -> bool {
        self.disarm();
        self.repeats = false;
        self.resume = Some(resume);
        self.rnr_tries = self.rnr_tries.saturating_add(1);
        rnr_retry >= WITHOUT_END || self.rnr_tries <= rnr_retry
    }

    /// A NAK asks for packets from `oldest` on; false if one did before, without progress since
    /// (ROCE-057).
    pub(super) fn goes_back_to(&mut self, oldest: u64) -> bool {
        self.gone_back.replace(oldest) != Some(oldest)
    }

    /// The next of the deadlines.
    pub(super) fn next(&self) -> Option<Time> {
        self.resume.or(self.deadline)
    }

    /// Goes on with sending if the time has come.
    #[inline]
    pub(super) fn resume(&mut self, now: Time) {
        self.resume.take_if(|at| now >= *at);
    }

    /// Returns the action due at `now`, and clears its deadline.
    pub(super) fn tick(&mut self, now: Time) -> Option<Due> {
        self.resume(now);
        self.deadline.take_if(|at| now >= *at)?;
        if core::mem::take(&mut self.repeats) {
            return Some(Due::Repeat);
        }
        // A NAK that comes after this is no echo of what was sent before.
        self.gone_back = None;
        Some(Due::Overdue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-061, ROCE-064
    #[test]
    fn the_wait_is_at_least_the_timeout_and_at_most_four_times_as_long() {
        for code in SHORTEST..32 {
            let timeout = Duration::from_nanos(4096 << code);
            for waits in 0..=7 {
                let wait = wait(code, waits).unwrap();
                assert!(timeout <= wait && wait <= 4 * timeout);
            }
        }
        assert_eq!(wait(14, 7), wait(16, 0));
        // `docs/roce.md` says this of short timeouts.
        assert_eq!(wait(1, 0), wait(SHORTEST, 0));
        assert_eq!(wait(SHORTEST, 0), Some(Duration::from_nanos(4_194_304)));
        assert_eq!(wait(0, 0), None);
    }

    /// Covers: ROCE-058, ROCE-062
    #[test]
    fn goes_are_counted_to_the_limit() {
        let mut timer = Timer::default();
        assert!(!timer.retry(0));
        timer.progress();
        assert!(timer.retry(2) && timer.retry(2) && !timer.retry(2));
        let mut timer = Timer::default();
        for _ in 0..1000 {
            assert!(timer.retry_at(Time::default(), 7));
        }
        assert!(!timer.retry_at(Time::default(), 6));
    }
}
