// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time by which a device goes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iwarp_types::Time;

/// The time of a device where it makes connections: pauses between attempts, the time that a
/// start-up frame may take, the time that work waits for a peer. Connections that are up go by the
/// system's clock, unless the device has no threads ([`Device::turned`](crate::Device::turned)):
/// then all of it goes by this one.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<ManualClock>);

/// A clock that stands still until it is told to go on.
///
/// Threads that have called the library and wait with a timeout of their own wait by the system's.
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Mutex<ClockState>>);

#[derive(Default)]
struct ClockState {
    now: Time,
    serial: u64,
    due: BTreeMap<(Time, u64), Box<dyn FnOnce() + Send>>,
    meanwhile: Option<Meanwhile>,
}

/// Things that happen while a caller has given up its CPU, for so long at most.
type Meanwhile = Arc<dyn Fn(&ManualClock, Duration) + Send + Sync>;

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Some(clock))
    }
}

impl Clock {
    /// The system's.
    pub const fn system() -> Self {
        Self(None)
    }

    pub(crate) fn now(&self) -> Time {
        match &self.0 {
            None => Time(iwarp_os::clock::now()),
            Some(manual) => manual.lock().now,
        }
    }

    /// Nanoseconds, nearly: what the hot path reads.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            None => iwarp_os::ticks::nanos(),
            Some(manual) => manual.nanos(),
        }
    }

    /// The caller gives up its CPU.
    pub(crate) fn yield_now(&self) {
        match &self.0 {
            None => iwarp_os::clock::yield_now(),
            Some(manual) => manual.pass(Duration::ZERO),
        }
    }

    /// The caller is about to sleep for that long. Returns the part of it left to sleep by the
    /// system's clock: none where this one is set by hand.
    pub(crate) fn sleep(&self, time: Duration) -> Duration {
        let Some(manual) = &self.0 else { return time };
        manual.pass(time);
        Duration::ZERO
    }

    /// The clock that calls by itself what is due; `None`: the system's.
    pub(crate) const fn as_manual(&self) -> Option<&ManualClock> {
        self.0.as_ref()
    }
}

impl ManualClock {
    /// One that begins at 0.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that it shows.
    pub fn now(&self) -> Duration {
        self.lock().now.0
    }

    #[cold]
    fn nanos(&self) -> u64 {
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has `what` called whenever a caller thread gives up its CPU within the library: for no time
    /// in particular, or for so long at most. That is where a simulator lets others go on.
    pub fn meanwhile(&self, what: impl Fn(&Self, Duration) + Send + Sync + 'static) {
        self.lock().meanwhile = Some(Arc::new(what));
    }

    fn pass(&self, time: Duration) {
        let meanwhile = self.lock().meanwhile.clone();
        match meanwhile {
            Some(meanwhile) => meanwhile(self, time),
            None => iwarp_os::clock::yield_now(),
        }
    }

    /// Goes on by so much, and calls what is due on the way, each at its time, in this thread.
    pub fn advance(&self, by: Duration) {
        let end = self.lock().now.plus(by);
        loop {
            let mut state = self.lock();
            let due = match state.due.first_entry() {
                Some(first) if first.key().0 <= end => first.remove_entry(),
                _ => {
                    state.now = state.now.max(end);
                    return;
                }
            };
            let ((at, _), what) = due;
            state.now = state.now.max(at);
            drop(state);
            what();
        }
    }

    /// Goes on by so much at once, as if the machine had stood still: what came due meanwhile is
    /// called late.
    pub fn jump(&self, by: Duration) {
        {
            let mut state = self.lock();
            state.now = state.now.plus(by);
        }
        self.advance(Duration::ZERO);
    }

    /// Calls `what` at that time, and not before the next [`Self::advance`], unless the result is
    /// dropped before.
    pub(crate) fn call(&self, at: Time, what: Box<dyn FnOnce() + Send>) -> Scheduled {
        let mut state = self.lock();
        state.serial += 1;
        let key = (at, state.serial);
        state.due.insert(key, what);
        Scheduled { clock: self.clone(), key }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let calls = state.due.len();
        f.debug_struct("ManualClock").field("now", &state.now).field("calls", &calls).finish()
    }
}

/// A call that is not made once this is dropped.
#[derive(Debug)]
pub(crate) struct Scheduled {
    clock: ManualClock,
    key: (Time, u64),
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        let cancelled = self.clock.lock().due.remove(&self.key);
        // Not with the clock locked: it may hold what asks the clock when it goes.
        drop(cancelled);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn calls_come_at_their_due_time() {
        let clock = ManualClock::new();
        let called = Arc::new(Mutex::new(Vec::new()));
        let at = |millis| Time(Duration::from_millis(millis));
        let call = |millis| {
            let (seen, time) = (Arc::clone(&called), Clock::from(clock.clone()));
            clock.call(at(millis), Box::new(move || seen.lock().unwrap().push(time.now())))
        };
        let _calls = [call(30), call(10), call(50)];
        drop(call(20));
        clock.advance(Duration::from_millis(40));
        assert_eq!(*called.lock().unwrap(), [at(10), at(30)]);
        assert_eq!(Clock::from(clock.clone()).now(), at(40));
        clock.advance(Duration::from_millis(10));
        assert_eq!(called.lock().unwrap().len(), 3);
    }
}
