// SPDX-License-Identifier: MIT OR Apache-2.0

//! A rule that was broken, and where.

use std::fmt;
use std::thread;

/// A rule that was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// The point that the run had reached, where the simulator counts that: `step 12, Rough`.
    pub place: Option<String>,
    /// Which rule.
    pub why: String,
    /// The last steps, if they were recorded.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "seed {}", self.seed)?;
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for Failure {}

/// The result of a run that may have panicked: a panic is a finding like any other.
pub(crate) fn verdict<T>(result: thread::Result<Result<T, String>>) -> Result<T, String> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
