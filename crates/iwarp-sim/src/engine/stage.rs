// SPDX-License-Identifier: MIT OR Apache-2.0

//! The clock, and the workers that take their turns by it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use iwarp::Turns;
use iwarp::port::ManualClock;

use crate::choice::Choices;

/// Turns without the clock going on, after which workers are taken to spin.
const SPINNING: u64 = 20_000;
/// Lines of the trace that are kept.
const TRACE: usize = 60;

/// See the [module](self).
pub(crate) struct Stage {
    pub(crate) clock: ManualClock,
    workers: Arc<Mutex<Workers>>,
    trace: Vec<String>,
    verbose: bool,
    digest: u64,
}

struct Workers {
    /// Of each device.
    turns: Vec<Turns>,
    /// Decides what others do while a caller pauses.
    choices: Choices<'static>,
    /// The device whose workers take no turns.
    stopped: Option<usize>,
    taken: u64,
    pauses: u64,
}

impl Workers {
    /// Workers that would be awake now: device and worker.
    fn awake(&self) -> Vec<(usize, usize)> {
        let all = self.turns.iter().enumerate();
        let all = all.filter(|(device, _)| Some(*device) != self.stopped);
        let all = all.flat_map(|(device, turns)| {
            (0..turns.workers()).map(move |worker| (device, worker)).zip(std::iter::repeat(turns))
        });
        all.filter(|((_, worker), turns)| turns.is_awake(*worker)).map(|(name, _)| name).collect()
    }

    fn turn(&mut self, (device, worker): (usize, usize)) {
        self.turns[device].turn(worker);
        self.taken += 1;
    }

    /// A caller has given up its CPU for so long at most: others go on.
    fn meanwhile(&mut self, clock: &ManualClock, time: Duration) {
        self.pauses += 1;
        let passes = self.choices.range(200, 20_000);
        clock.advance(time.max(Duration::from_nanos(passes)));
        let awake = self.awake();
        if !awake.is_empty() {
            let next = self.choices.pick(&awake);
            self.turn(next);
        }
    }
}

impl Stage {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let choices = Choices::from_seed(!seed);
        let workers = Workers { turns: Vec::new(), choices, stopped: None, taken: 0, pauses: 0 };
        let workers = Arc::new(Mutex::new(workers));
        let clock = ManualClock::new();
        let others: Weak<Mutex<Workers>> = Arc::downgrade(&workers);
        clock.meanwhile(move |clock, time| {
            if let Some(workers) = others.upgrade() {
                // A worker that pauses within its turn has them.
                match workers.try_lock() {
                    Ok(mut workers) => workers.meanwhile(clock, time),
                    Err(_) => clock.advance(Duration::from_micros(1)),
                }
            }
        });
        Self { clock, workers, trace: Vec::new(), verbose, digest: 0 }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Workers) -> R) -> R {
        f(&mut self.workers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on the workers of that device take turns.
    pub(crate) fn add(&self, turns: Turns) {
        self.with(|workers| workers.turns.push(turns));
    }

    /// The workers of that device, in the order of [`Self::add`], take no turns until
    /// [`Self::go_on`].
    pub(crate) fn stop(&self, device: usize) {
        self.with(|workers| workers.stopped = Some(device));
    }

    /// See [`Self::stop`].
    pub(crate) fn go_on(&self) {
        self.with(|workers| workers.stopped = None);
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{:>12} ns  {}", self.clock.now().as_nanos(), line());
        for octet in line.bytes() {
            self.digest = (self.digest ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.verbose {
            println!("{line}");
        }
        if self.trace.len() >= 2 * TRACE {
            self.trace.drain(..TRACE);
        }
        self.trace.push(line);
    }

    pub(crate) fn trace(&mut self) -> Vec<String> {
        let surplus = self.trace.len().saturating_sub(TRACE);
        self.trace.split_off(surplus)
    }

    /// Of all that was noted.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Turns that were taken, and pauses of callers.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.with(|workers| (workers.taken, workers.pauses))
    }

    /// A worker that would be awake takes its turn. False when all sleep.
    pub(crate) fn turn(&mut self, choices: &mut Choices<'_>) -> bool {
        let awake = self.with(|workers| workers.awake());
        if awake.is_empty() {
            return false;
        }
        let (device, worker) = choices.pick(&awake);
        self.note(|| format!("worker {device}.{worker}"));
        self.with(|workers| workers.turn((device, worker)));
        true
    }

    /// Workers take turns until all sleep.
    pub(crate) fn run(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        for _ in 0..SPINNING {
            if !self.turn(choices) {
                return Ok(());
            }
        }
        Err(format!("workers took {SPINNING} turns, and time stood still"))
    }

    /// When the next worker wakes by itself.
    fn next_wake(&self) -> Option<Duration> {
        self.with(|workers| {
            let each = workers.turns.iter().enumerate();
            let each = each.filter(|(device, _)| Some(*device) != workers.stopped);
            each.flat_map(|(_, turns)| (0..turns.workers()).filter_map(|of| turns.sleeps_until(of)))
                .min()
        })
    }

    /// The clock goes on by so much.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }

    /// The clock goes on to the next time at which a worker wakes, but not beyond `end`. False when
    /// none does before.
    pub(crate) fn advance_to_wake(&mut self, end: Duration) -> bool {
        let now = self.clock.now();
        let Some(next) = self.next_wake().filter(|next| *next <= end) else {
            self.clock.advance(end.saturating_sub(now));
            return false;
        };
        self.clock.advance(next.saturating_sub(now));
        true
    }

    /// The workers alone are at it until none would wake before so much time has passed.
    pub(crate) fn pass(&mut self, time: Duration, choices: &mut Choices<'_>) -> Result<(), String> {
        let end = self.clock.now() + time;
        loop {
            self.run(choices)?;
            if !self.advance_to_wake(end) {
                return self.run(choices);
            }
        }
    }
}
