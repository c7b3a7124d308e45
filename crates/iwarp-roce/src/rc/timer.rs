// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deadlines of the requester, and how often it has tried.

use core::time::Duration;

use iwarp_types::Time;

/// Local ACK timeout code 0: no deadline at all.
const FOR_EVER: u8 = 0;
/// An rnr_retry of 7: no limit.
const WITHOUT_END: u8 = 7;
/// Codes below this one count as it, 4.2 ms: threads of either end may wait as long for a CPU.
const SHORTEST: u8 = 10;
/// The first wait is the timeout, later ones are twice and four times as long, as the verbs allow.
const LONGEST_SHIFT: u8 = 2;

/// The work that is due when a deadline has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// The packets that a NAK had sent again are sent once more; that is no further try.
    Repeat,
    /// An answer is overdue.
    Overdue,
}

/// When the requester acts unasked, and how often it may.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Timer {
    /// When the oldest packet is sent again for want of an answer.
    deadline: Option<Time>,
    /// When sending goes on after an RNR NAK.
    resume: Option<Time>,
    /// Goes without progress.
    tries: u8,
    /// Those of them that waited in vain: a NAK tells of a peer that answers, so it makes no wait
    /// longer.
    waits: u8,
    /// A NAK had packets sent again. A responder asks for a packet once, so where that one is lost
    /// again nobody says so: the next wait is short.
    repeats: bool,
    /// RNR NAKs without progress.
    rnr_tries: u8,
    /// The packet that a NAK, told or implied, made the oldest that was sent again.
    gone_back: Option<u64>,
}

/// Time to wait for an answer, of a local ACK timeout code and after so many waits in vain.
fn wait(code: u8, waits: u8) -> Option<Duration> {
    if code == FOR_EVER {
        return None;
    }
    let nanos = 4096_u64 << code.clamp(SHORTEST, 31);
    Some(Duration::from_nanos(nanos << waits.min(LONGEST_SHIFT)))
}

impl Timer {
    /// Begins to wait for an answer, unless it does already.
    #[inline]
    pub(super) fn arm(&mut self, now: Time, code: u8) {
        if self.deadline.is_none() {
            let code = if self.repeats { code.min(SHORTEST) } else { code };
            self.deadline = wait(code, self.waits).map(|wait| now.plus(wait));
        }
    }

    /// The packet whose answer is waited for has left so much later than was said.
    pub(super) fn postpone(&mut self, by: Duration) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = deadline.plus(by);
        }
    }

    /// Nothing is waited for.
    #[inline]
    pub(super) const fn disarm(&mut self) {
        self.deadline = None;
    }

    /// An answer brought something new.
    #[inline]
    pub(super) const fn progress(&mut self) {
        self.deadline = None;
        self.tries = 0;
        self.waits = 0;
        self.repeats = false;
        self.rnr_tries = 0;
        self.gone_back = None;
    }

    /// Whether sending waits for the peer to have receives.
    #[inline]
    pub(super) const fn is_waiting(&self) -> bool {
        self.resume.is_some()
    }

    /// One more go, for want of an answer; false where there were enough.
    pub(super) const fn retry(&mut self, retry_count: u8) -> bool {
        self.waits = self.waits.saturating_add(1);
        self.try_again(retry_count)
    }

    /// As [`Self::retry`], because a NAK, told or implied, asks for it.
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

    /// A NAK asks for packets from `oldest` on; false where one has before, without progress since.
    pub(super) fn goes_back_to(&mut self, oldest: u64) -> bool {
        self.gone_back.replace(oldest) != Some(oldest)
    }

    /// The next of the deadlines.
    pub(super) fn next(&self) -> Option<Time> {
        self.resume.or(self.deadline)
    }

    /// Goes on with sending where the time has come.
    #[inline]
    pub(super) fn resume(&mut self, now: Time) {
        self.resume.take_if(|at| now >= *at);
    }

    /// Tells the time. What is due is forgotten.
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
