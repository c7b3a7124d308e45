// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rounds, one subject after the other, so that anything that slows the machine slows all of them.
//!
//! A subject also finds the machine as the one before has left it: which threads share a CPU, what
//! is in the caches, how fast the CPU runs. So none may always follow one particular other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use super::client::{Client, Sample};
use super::cpu::Usage;
use super::plan::{Case, Measure, Subject};
use super::task::{Flow, Op, Task, Times};
use super::ways::{Way, Ways};

/// Runs before the number of messages of a round is settled, at most.
const TRIALS: usize = 16;
/// Messages of a round at most.
const MOST_MESSAGES: u64 = 1 << 24;
/// Connections that leave TCP do so within this time.
const MOVING_TIME: Duration = Duration::from_secs(6);
/// Connections made in a round at most.
const MOST_CALLS: u64 = 400;

/// The times that everything takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) rounds: usize,
    /// The time of one round of one subject.
    pub(super) time: Duration,
}

/// The results of a case, in the order of its subjects.
pub(super) struct Outcome {
    pub(super) case: Case,
    pub(super) results: Vec<Results>,
}

/// The results of one subject's rounds.
pub(super) struct Results {
    /// Messages of a round.
    pub(super) count: u64,
    /// One value of each round: bytes or messages per second, or seconds.
    pub(super) values: Vec<f64>,
    /// Usage in all rounds.
    pub(super) client: Usage,
    pub(super) server: Usage,
    pub(super) messages: u64,
    /// Seconds of all rounds.
    pub(super) seconds: f64,
    pub(super) times: Times,
    /// The ways of its connections within the host at the end of the last round.
    pub(super) ways: Ways,
    /// Requests of all rounds that the client carried out by itself in the server's memory.
    direct: u64,
}

/// Runs cases and shows how far it is.
pub(super) struct Runner<'a> {
    client: &'a mut Client,
    pace: Pace,
    seed: u64,
    bar: ProgressBar,
}

impl<'a> Runner<'a> {
    pub(super) fn new(client: &'a mut Client, pace: Pace, cases: &[Case]) -> Self {
        let subjects: usize = cases.iter().map(|case| case.subjects.len()).sum();
        // On a terminal only; one round more for warming up.
        let bar = ProgressBar::new((subjects * (pace.rounds + 1)) as u64);
        let template = "{bar:30} {eta:>4}  {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("it is well-formed"));
        Self { client, pace, seed: 0, bar }
    }

    /// Measures a case.
    pub(super) fn run(&mut self, case: Case) -> Result<Outcome> {
        let mut results = Vec::with_capacity(case.subjects.len());
        for subject in &case.subjects {
            self.show(&case, subject);
            if let Some(way) = subject.transport.way() {
                self.await_way(subject, way).with_context(|| about(&case, subject))?;
            }
            let count = self.settle(subject).with_context(|| about(&case, subject))?;
            results.push(Results::new(case.measure, count));
            self.bar.inc(1);
        }
        let subjects = case.subjects.len();
        for round in 0..self.pace.rounds {
            for at in order(round, subjects) {
                let (subject, results) = (&case.subjects[at], &mut results[at]);
                self.show(&case, subject);
                let sample = self
                    .round(subject, results.count, &mut results.times)
                    .with_context(|| about(&case, subject))?;
                if let Some(way) = subject.transport.way() {
                    let why = || self.strayed(subject).context(about(&case, subject));
                    way.is_taken(sample.ways).then_some(()).ok_or_else(why)?;
                }
                results.add(&case, &sample);
                self.bar.inc(1);
            }
        }
        Ok(Outcome { case, results })
    }

    /// Prints something while the bar is away.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, case: &Case, subject: &Subject) {
        self.bar.set_message(about(case, subject));
    }

    fn round(&mut self, subject: &Subject, count: u64, times: &mut Times) -> Result<Sample> {
        self.seed += 1;
        let task = Task { count, seed: self.seed, ..subject.task.clone() };
        self.client.round(subject.contender, &task, times)
    }

    /// Runs rounds of few messages until the connections take the way that they were asked to.
    fn await_way(&mut self, subject: &Subject, way: Way) -> Result<()> {
        let deadline = Instant::now() + MOVING_TIME;
        let (mut times, unit) = (Times::new(1), subject.task.unit());
        while !way.is_taken(self.round(subject, unit, &mut times)?.ways) {
            let is_known = self.client.hindrance(subject.contender).is_some();
            if is_known || Instant::now() > deadline {
                return Err(self.strayed(subject));
            }
        }
        Ok(())
    }

    /// The error of connections that do not take the way that they were asked to.
    fn strayed(&self, subject: &Subject) -> anyhow::Error {
        if subject.transport.way() == Some(Way::Off) {
            return anyhow!("the connection has left TCP");
        }
        let why = self.client.hindrance(subject.contender);
        let why = why.as_deref().unwrap_or("IWARP_LOG=info has a line that says why");
        anyhow!("the connection stays with TCP: {why}")
    }

    /// Warms up, and finds out how many messages a round takes.
    fn settle(&mut self, subject: &Subject) -> Result<u64> {
        let unit = subject.task.unit();
        // Ports of connections that have ended are not used again for a minute.
        let most = if subject.task.flow == Flow::Dial { MOST_CALLS } else { MOST_MESSAGES };
        let round_up = |count: u64| count.clamp(1, most).next_multiple_of(unit);
        let mut times = Times::new(1);
        let mut count = unit;
        for _ in 0..TRIALS {
            let sample = self.round(subject, count, &mut times)?;
            let part = sample.time.as_secs_f64() / self.pace.time.as_secs_f64();
            let next = round_up((count as f64 / part.max(1.0 / 16.0)) as u64);
            if part > 0.25 || next <= count {
                return Ok(next);
            }
            count = next;
        }
        Ok(count)
    }
}

/// The order of the subjects in a round: that of a Williams design, in which each is at each place
/// equally often, and follows each other one equally often (after `subjects` rounds, or twice as
/// many where their number is odd).
fn order(round: usize, subjects: usize) -> impl Iterator<Item = usize> {
    let backwards = subjects % 2 == 1 && (round / subjects) % 2 == 1;
    (0..subjects).map(move |turn| {
        let turn = if backwards { subjects - 1 - turn } else { turn };
        // 0, 1, n - 1, 2, n - 2 ...
        let zigzag = if turn % 2 == 1 { turn.div_ceil(2) } else { subjects - turn / 2 };
        (zigzag + round) % subjects
    })
}

impl Results {
    fn new(measure: Measure, count: u64) -> Self {
        let ways = if measure == Measure::Latency { 2 } else { 1 };
        Self {
            count,
            values: Vec::new(),
            client: Usage::default(),
            server: Usage::default(),
            messages: 0,
            seconds: 0.0,
            times: Times::new(ways),
            ways: Ways::default(),
            direct: 0,
        }
    }

    /// The part of the messages that the client carried out by itself in the server's memory, where
    /// they are no messages for its program.
    pub(super) fn direct_part(&self, subject: &Subject) -> Option<f64> {
        let may_be = subject.transport.is_rdma() && subject.task.op != Op::Send;
        // Credits are requests, too.
        may_be.then(|| (self.direct as f64 / self.messages.max(1) as f64).min(1.0))
    }

    fn add(&mut self, case: &Case, sample: &Sample) {
        let seconds = sample.time.as_secs_f64();
        let messages = self.count as f64;
        self.values.push(match case.measure {
            Measure::Bandwidth => messages * case.size as f64 / seconds,
            Measure::Latency => seconds / (2.0 * messages),
            Measure::RoundTrip => seconds / messages,
            Measure::Rate | Measure::Connect => messages / seconds,
        });
        self.client += sample.client;
        self.server += sample.server;
        self.messages += self.count;
        self.ways = sample.ways;
        self.direct += sample.direct;
        self.seconds += seconds;
    }
}

fn about(case: &Case, subject: &Subject) -> String {
    format!("{}, {}", subject.name, iwarp_kit::size::show(case.size))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_subject_is_at_each_place_and_behind_each_other_one_equally_often() {
        for subjects in 1..=9 {
            let rounds = if subjects % 2 == 1 { 2 * subjects } else { subjects };
            let mut places = BTreeMap::<_, usize>::new();
            let mut neighbours = BTreeMap::<_, usize>::new();
            for round in 0..rounds {
                let order: Vec<_> = order(round, subjects).collect();
                for (place, subject) in order.iter().enumerate() {
                    *places.entry((place, *subject)).or_default() += 1;
                }
                for two in order.windows(2) {
                    *neighbours.entry((two[0], two[1])).or_default() += 1;
                }
            }
            let each = rounds / subjects;
            assert_eq!(places.len(), subjects * subjects);
            assert!(places.values().all(|count| *count == each), "{subjects}: {places:?}");
            assert_eq!(neighbours.len(), subjects * (subjects - 1));
            assert!(neighbours.values().all(|count| *count == each), "{subjects}: {neighbours:?}");
        }
    }
}
