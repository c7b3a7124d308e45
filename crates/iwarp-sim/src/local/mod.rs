// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs of two ends on one host, each played by TCP's stand-in and by a way past it: both have
//! to show each end what the other shows.
//!
//! The devices are those of [`engine`](crate::engine): without threads, in virtual time, on a
//! network in memory. Their connections move to rings in shared memory, and access each other's
//! memory, by the library's own code, as if the two devices were processes. A seed draws the
//! program, and for each of both runs another order: when an end and its workers get their turns,
//! and so when each direction switches; when an end stands still; whether one of them refuses the
//! agreement; when memory is deregistered, or the connection is aborted.
//!
//! ```text
//!   program   what both ends do, by lot
//!   end       one of them: its memory, and what it has seen
//!   play      one run
//! ```
//!
//! The ends of a run see all completions of a queue in their order with status, length, immediate
//! data and octets, what Reads and Atomics bring, the contents of exposed memory at the end of each
//! part, and how the connection ends. That must not differ. If a program races with the end of a
//! registration, or with an abort, both runs are judged by rules: success goes before failure, what
//! was received is what was sent, all that was posted completes, and memory that is deregistered
//! stays as its owner leaves it.

mod end;
mod play;
mod program;

use std::panic::{AssertUnwindSafe, catch_unwind};

use iwarp::LocalPath;

use self::play::{Play, Seen};
use self::program::Program;
use crate::choice::{Choices, split_mix};
use crate::engine::Turn;
use crate::failure::{Failure, verdict};

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Prints each step.
    pub verbose: bool,
    /// Plants a defect in the library.
    #[cfg(feature = "flaws")]
    pub flaw: iwarp::flaw::Flaw,
}

impl Options {
    /// Without a defect.
    pub fn new(verbose: bool) -> Self {
        Self {
            verbose,
            #[cfg(feature = "flaws")]
            flaw: iwarp::flaw::Flaw::default(),
        }
    }
}

/// The result of some runs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Completions that were compared or judged, of the ways past TCP.
    pub completions: u64,
    /// Ends that had moved to shared memory when their last part began.
    pub moved: u64,
    /// Requests that such an end has carried out by itself.
    pub direct: u64,
}

impl Summary {
    /// With what another run came to.
    pub const fn add(&mut self, other: &Self) {
        self.completions += other.completions;
        self.moved += other.moved;
        self.direct += other.direct;
    }
}

/// Runs one seed.
///
/// # Errors
///
/// A difference, or the rule that was broken.
pub fn run_seed(seed: u64, options: &Options) -> Result<Summary, Failure> {
    #[cfg(feature = "flaws")]
    let _planted = iwarp::flaw::plant(options.flaw);
    let _turn = Turn::take();
    let program = Program::draw(seed);
    if options.verbose {
        println!("{program:#?}");
    }
    let mut state = !seed;
    let mut run = |ways: [LocalPath; 2]| {
        let order = split_mix(&mut state);
        let mut play = Play::new(&program, ways, order, options.verbose);
        let outcome = verdict(catch_unwind(AssertUnwindSafe(|| play.all())));
        let trace = play.trace();
        let place = Some(format!("{ways:?}"));
        outcome.map(|seen| (seen, trace.clone())).map_err(|why| Failure { seed, place, why, trace })
    };
    let ways = draw_ways(&mut Choices::from_seed(seed.rotate_left(32)));
    let (by_tcp, _) = run([LocalPath::Off; 2])?;
    let (past_it, trace) = run(ways)?;
    let fail = |why| Failure { seed, place: Some(format!("{ways:?}")), why, trace };
    if program.ending.is_determined() {
        compare(&by_tcp, &past_it).map_err(fail)?;
    }
    let Seen { completions, moved, direct, .. } = past_it;
    Ok(Summary { completions, moved, direct })
}

/// Mostly both ends go one way. An end may not want to, or be unable to reach memory.
fn draw_ways(choices: &mut Choices<'_>) -> [LocalPath; 2] {
    match choices.below(12) {
        0 => [LocalPath::Off, LocalPath::Auto],
        1 => [LocalPath::Auto, LocalPath::Off],
        2 => [LocalPath::Rings, LocalPath::Auto],
        3 => [LocalPath::Share, LocalPath::Auto],
        4..=6 => [LocalPath::Rings; 2],
        _ => [LocalPath::Auto; 2],
    }
}

fn compare(by_tcp: &Seen, past_it: &Seen) -> Result<(), String> {
    for (side, (expected, seen)) in by_tcp.lines.iter().zip(&past_it.lines).enumerate() {
        let differs = expected.iter().zip(seen).position(|(one, other)| one != other);
        if differs.is_none() && expected.len() == seen.len() {
            continue;
        }
        let at = differs.unwrap_or(expected.len().min(seen.len()));
        let around =
            |lines: &[String]| lines[at.saturating_sub(6)..(at + 3).min(lines.len())].join("\n");
        return Err(format!(
            "end {side} sees something else:\n{}\nthan by TCP:\n{}",
            around(seen),
            around(expected)
        ));
    }
    Ok(())
}
