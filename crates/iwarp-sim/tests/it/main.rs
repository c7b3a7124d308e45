// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simulators: nothing is found in what they run as it is, and what is planted in it is.

mod conform;
#[cfg(feature = "flaws")]
mod engine;
#[cfg(feature = "flaws")]
mod local;
mod oracle;
mod roce;

use std::fmt::Debug;
use std::ops::Range;

use iwarp_sim::Failure;

/// Runs seeds, none of which may find anything, and adds up what they came to.
fn run<S: Default>(
    seeds: Range<u64>,
    run_seed: impl Fn(u64) -> Result<S, Failure>,
    add: impl Fn(&mut S, &S),
) -> S {
    let mut total = S::default();
    for seed in seeds {
        add(&mut total, &run_seed(seed).unwrap_or_else(|failure| panic!("{failure}")));
    }
    total
}

/// Runs seeds until one finds the defect, in words of which `what` is a part.
fn finds<S>(
    flaw: impl Debug,
    what: &str,
    seeds: u64,
    run_seed: impl Fn(u64) -> Result<S, Failure>,
) {
    let mut verdicts = Vec::new();
    for seed in 0..seeds {
        let Err(failure) = run_seed(seed) else { continue };
        if failure.why.contains(what) {
            println!("{flaw:?} is found by seed {seed}: {}", failure.why);
            return;
        }
        verdicts.push(failure.why);
    }
    panic!("{flaw:?} is not found as {what:?} by {seeds} seeds but as {verdicts:#?}");
}
