// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding out whether a peer that does not acknowledge what is sent is still there.
//!
//! A peer may not read for hours: its program is stopped, or has no receives. Its system still
//! answers, to probes of its closed window as to segments that are sent again, and then it lives,
//! as a peer does whose adapter answers. The system's own bound (`TCP_USER_TIMEOUT`) counts the
//! time without progress instead. So a [`PeerWatch`] looks at what the system knows now and then,
//! while anything is outstanding: a peer is gone when it has left questions unanswered for as long
//! as the connection's patience.
//!
//! The system's interval between questions doubles with each time, and goes on growing while the
//! peer answers that its window is closed: up to 2 minutes. If the system can be told to (Linux
//! 6.15), it asks again after a fifth of the patience; elsewhere a peer that vanishes with its
//! window closed is found after its next three probes.
//!
//! If the program sets a timeout and retry count, a silent peer is noticed after these: the oldest
//! request fails with `RetryExceeded`, and the rest is flushed. If nothing is unacknowledged but an
//! answer is due, keepalive asks. Sending starts the looks; an idle connection has none.

use std::time::Duration;

use iwarp_os::Vitals;
use iwarp_types::Time;

/// Questions that a peer has to leave unanswered: one or two may get lost on a path that works.
const QUESTIONS: u32 = 3;
/// Looks in the time of the patience. Which of the questions were left unanswered shows from the
/// look after the last answer on, so a peer may live on for so much longer.
const LOOKS: u32 = 25;
/// Questions in that time, where the system can be told.
const ASKED: u32 = 5;
/// Time between looks, and between questions, is not less.
const SHORTEST: Duration = Duration::from_millis(50);

/// The interval at which a connection of that patience is looked at.
pub(crate) fn pause(patience: Duration) -> Duration {
    (patience / LOOKS).clamp(SHORTEST, Duration::from_secs(1))
}

/// The interval at which the peer is to be asked.
pub(crate) fn question_pause(patience: Duration) -> Duration {
    (patience / ASKED).clamp(SHORTEST, Duration::from_secs(5))
}

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerWatch {
    /// When that was last done, or the watch began.
    looked: Time,
    /// The system's count of questions when the peer's last answer was seen.
    answered: Option<Count>,
    /// Since when the peer owes an answer.
    asked: Option<Time>,
}

/// The bytes that were sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// Counts the attempts for one segment, also those that fail on this host.
    retransmits: u8,
    /// Counts also what is sent again into a closed window.
    total: u32,
}

impl Count {
    const fn of(vitals: &Vitals) -> Self {
        Self { retransmits: vitals.retransmits, total: vitals.total_retransmits }
    }

    fn since(self, earlier: Self) -> u32 {
        let attempts = u32::from(self.retransmits.saturating_sub(earlier.retransmits));
        attempts.max(self.total.wrapping_sub(earlier.total))
    }
}

/// The result of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// No bytes are outstanding.
    Idle,
    /// The peer answers, or may still do so: look again then.
    Waiting(Time),
    /// The peer is gone.
    Gone,
}

impl PeerWatch {
    /// Begins when something was sent.
    pub(crate) const fn new(now: Time) -> Self {
        Self { looked: now, answered: None, asked: None }
    }

    /// `vitals` are those of this moment, and `patience` the time for which a peer may be silent.
    pub(crate) fn look(&mut self, now: Time, vitals: &Vitals, patience: Duration) -> Verdict {
        if vitals.outstanding == 0 {
            return Verdict::Idle;
        }
        let count = Count::of(vitals);
        let heard = Time(now.0.saturating_sub(vitals.last_ack));
        let looked = std::mem::replace(&mut self.looked, now);
        if heard > looked {
            self.answered = Some(count);
            self.asked = None;
        }
        // At first there is nothing to compare with but what counts for one segment.
        let first = Count { retransmits: 0, ..count };
        let resent = count.since(*self.answered.get_or_insert(first));
        let questions = resent.max(u32::from(vitals.probes));
        let next = now.plus(pause(patience));
        if questions == 0 {
            return Verdict::Waiting(next);
        }
        let asked = *self.asked.get_or_insert(heard.max(looked));
        let end = asked.plus(patience);
        if now < end {
            return Verdict::Waiting(next.min(end));
        }
        if questions < QUESTIONS { Verdict::Waiting(next) } else { Verdict::Gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(25);
    const START: Time = Time(Duration::from_secs(10_000));

    /// A peer's side of a connection, second by second.
    struct Path {
        now: Time,
        /// The time when something was last heard.
        heard: Time,
        vitals: Vitals,
    }

    impl Path {
        fn new() -> Self {
            let vitals = Vitals { outstanding: 1000, ..Vitals::default() };
            Self { now: START, heard: START, vitals }
        }

        fn after(&self) -> Duration {
            self.now.0.saturating_sub(START.0)
        }

        /// Time passes up to `at`; `event` is what happens in each tenth of a second.
        fn pass(&mut self, at: Time, mut event: impl FnMut(&mut Self)) {
            while self.now < at {
                self.now = self.now.plus(Duration::from_millis(100));
                event(self);
            }
        }

        fn look(&mut self, watch: &mut PeerWatch) -> Verdict {
            self.vitals.last_ack = self.now.0.saturating_sub(self.heard.0);
            watch.look(self.now, &self.vitals, PATIENCE)
        }

        /// Looks as often as is wanted, for an hour at most; when the peer was found to be gone.
        fn watch(&mut self, mut event: impl FnMut(&mut Self)) -> Option<Duration> {
            let mut watch = PeerWatch::new(self.now);
            let mut next = START.plus(pause(PATIENCE));
            while self.after() < Duration::from_secs(3600) {
                self.pass(next, &mut event);
                match self.look(&mut watch) {
                    Verdict::Waiting(at) => {
                        assert!(at > self.now, "looks in vain");
                        next = at;
                    }
                    Verdict::Gone => return Some(self.after()),
                    Verdict::Idle => return None,
                }
            }
            None
        }
    }

    /// Questions whose pauses double, from 0.2 s up to a longest one.
    struct Backoff {
        next: Duration,
        pause: Duration,
        longest: Duration,
    }

    impl Backoff {
        fn new(longest: u64) -> Self {
            let pause = Duration::from_millis(200);
            Self { next: pause, pause, longest: Duration::from_secs(longest) }
        }

        fn asks(&mut self, after: Duration) -> bool {
            if after < self.next {
                return false;
            }
            self.pause = (self.pause * 2).min(self.longest);
            self.next += self.pause;
            true
        }
    }

    fn resend(path: &mut Path) {
        path.vitals.retransmits = path.vitals.retransmits.saturating_add(1);
        path.vitals.total_retransmits += 1;
    }

    #[test]
    fn a_watch_without_outstanding_data_is_idle() {
        let vitals = Vitals { last_ack: Duration::from_secs(3600), ..Vitals::default() };
        assert_eq!(PeerWatch::new(START).look(START, &vitals, PATIENCE), Verdict::Idle);
    }

    #[test]
    fn a_peer_that_vanishes_is_found_in_time() {
        for longest in [5, 120] {
            // After long silence for want of anything to say, or in the midst of traffic.
            for before in [Duration::from_secs(3600), Duration::ZERO] {
                let mut backoff = Backoff::new(longest);
                let mut path = Path::new();
                path.heard = Time(START.0 - before);
                path.vitals.in_flight = 10;
                let found = path.watch(|path| {
                    if backoff.asks(path.after()) {
                        resend(path);
                    }
                });
                let found = found.expect("found").as_secs_f32();
                assert!((25.0..=26.5).contains(&found), "{found} s");
            }
        }
    }

    #[test]
    fn when_it_vanishes_between_two_looks_matters_little() {
        for gone in (0..6000).step_by(100).map(Duration::from_millis) {
            let mut backoff = Backoff::new(5);
            let found = Path::new().watch(|path| {
                if path.after() < gone {
                    path.heard = path.now;
                } else if backoff.asks(path.after() - gone) {
                    resend(path);
                }
            });
            let found = (found.expect("found") - gone).as_secs_f32();
            assert!((24.5..=27.0).contains(&found), "{found} s after {gone:?}");
        }
    }

    #[test]
    fn a_peer_that_vanishes_with_this_host_s_own_link_is_found_too() {
        // Sending again fails: it counts as attempts only.
        let mut backoff = Backoff::new(120);
        let found = Path::new().watch(|path| {
            if backoff.asks(path.after()) {
                path.vitals.retransmits += 1;
            }
        });
        assert!((25.0..=26.5).contains(&found.expect("found").as_secs_f32()));
    }

    #[test]
    fn traffic_goes_on_for_ever() {
        let mut path = Path::new();
        path.vitals.in_flight = 50;
        let found = path.watch(|path| {
            path.heard = path.now;
            // Loss now and then.
            path.vitals.total_retransmits += u32::from(path.now.0.as_millis() % 700 == 0);
        });
        assert_eq!(found, None);
    }

    /// The answers that a stopped program's system gives for hours.
    #[test]
    fn a_closed_window_that_is_answered_is_life() {
        for longest in [5, 120] {
            let mut backoff = Backoff::new(longest);
            let found = Path::new().watch(|path| {
                if backoff.asks(path.after()) {
                    path.heard = path.now;
                }
            });
            assert_eq!(found, None, "pauses up to {longest} s");
        }
    }

    /// Segments that a full peer drops are sent again, and answered, but not taken.
    #[test]
    fn segments_that_are_refused_time_and_again_are_answered_too() {
        for longest in [5, 120] {
            let mut backoff = Backoff::new(longest);
            let mut path = Path::new();
            path.vitals.in_flight = 3;
            let found = path.watch(|path| {
                if backoff.asks(path.after()) {
                    path.vitals.total_retransmits += 1;
                    path.heard = path.now;
                }
            });
            assert_eq!(found, None, "pauses up to {longest} s");
        }
    }

    #[test]
    fn a_look_between_question_and_answer_kills_nobody() {
        let mut path = Path::new();
        let mut watch = PeerWatch::new(START);
        for _ in 0..10 {
            // The question comes after two minutes, and is looked at before its answer.
            path.now = path.now.plus(Duration::from_secs(120));
            path.vitals.probes = 1;
            assert!(matches!(path.look(&mut watch), Verdict::Waiting(_)));
            path.now = path.now.plus(Duration::from_millis(100));
            path.heard = path.now;
            path.vitals.probes = 0;
            path.now = path.now.plus(Duration::from_secs(1));
            assert!(matches!(path.look(&mut watch), Verdict::Waiting(_)));
        }
    }

    #[test]
    fn one_lost_probe_kills_nobody() {
        let mut backoff = Backoff::new(120);
        let mut number = 0;
        let found = Path::new().watch(|path| {
            if backoff.asks(path.after()) {
                number += 1;
                // Each third answer is there.
                if number % 3 == 0 {
                    (path.heard, path.vitals.probes) = (path.now, 0);
                } else {
                    path.vitals.probes += 1;
                }
            }
        });
        assert_eq!(found, None);
    }

    #[test]
    fn a_peer_that_vanishes_with_its_window_closed_is_found() {
        // The window is closed for ten minutes before.
        let gone = Duration::from_secs(600);
        for (longest, bound) in [(5, 35), (120, 3 * 120 + 30)] {
            let mut backoff = Backoff::new(longest);
            let found = Path::new().watch(|path| {
                if backoff.asks(path.after()) {
                    if path.after() < gone {
                        path.heard = path.now;
                    } else {
                        path.vitals.probes += 1;
                    }
                }
            });
            let found = found.expect("found") - gone;
            assert!(found >= PATIENCE && found.as_secs() <= bound, "{found:?}");
        }
    }
}
