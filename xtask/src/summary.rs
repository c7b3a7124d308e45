// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of the output of `cargo xtask test`.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use crate::steps::{Due, Outcome, Step};

/// The time of the gate's steps on an idle machine of two cores when nothing has been built.
const BUDGET: Duration = Duration::from_secs(22 * 60);

/// So many of the slowest steps are named.
const SLOWEST: usize = 10;

/// A step that was run.
pub(crate) struct Line {
    pub(crate) step: &'static Step,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// The table of all steps, and what follows from it. `left_out` are those that were not chosen,
/// each with the reason.
pub(crate) fn of(lines: &[Line], not_reached: &[&Step], left_out: &[(&Step, String)]) -> String {
    let mut text = "\n════ summary\n".to_owned();
    for Line { step, outcome, took } in lines {
        let (word, note) = (outcome.word(), outcome.note());
        let _ = writeln!(text, "{:<12} {word:<8} {:>7.1} s  {note}", step.name, took.as_secs_f64());
    }
    for step in not_reached {
        let why = "an earlier step failed";
        let _ = writeln!(text, "{:<12} {:<8} {:>9}  {why}", step.name, "not run", "");
    }
    for (step, why) in left_out {
        let _ = writeln!(text, "{:<12} {:<8} {:>9}  {why}", step.name, "left out", "");
    }
    let names = |word: &str| -> Vec<&str> {
        let are = lines.iter().filter(|line| line.outcome.word() == word);
        are.map(|line| line.step.name).collect()
    };
    let all = lines.len() + not_reached.len() + left_out.len();
    let _ = writeln!(text, "\n{} of {all} steps passed", names("passed").len());
    for (word, meaning) in
        [("absent", "what they test is not there yet"), ("not run", "a tool is missing")]
    {
        let names = names(word);
        if !names.is_empty() {
            let names = names.join(" ");
            let _ = writeln!(text, "{word} ({meaning}; not counted as passed): {names}");
        }
    }
    text + &slowest(lines) + &budget(lines)
}

/// The slowest steps, with their shares of the whole.
fn slowest(lines: &[Line]) -> String {
    let all: f64 = lines.iter().map(|line| line.took.as_secs_f64()).sum();
    let mut slowest: Vec<&Line> = lines.iter().collect();
    slowest.sort_by_key(|line| Reverse(line.took));
    let named = slowest.iter().take(SLOWEST).map(|line| {
        let took = line.took.as_secs_f64();
        format!("{} {took:.0} s ({:.0} %)", line.step.name, 100.0 * took / all.max(f64::EPSILON))
    });
    format!("slowest of {all:.0} s: {}\n", named.collect::<Vec<_>>().join(", "))
}

/// The time of the gate beside what it may take.
fn budget(lines: &[Line]) -> String {
    let is_gate = |line: &&Line| matches!(line.step.due, Due::Always);
    let took: Duration = lines.iter().filter(is_gate).map(|line| line.took).sum();
    let minutes = |time: Duration| time.as_secs_f64() / 60.0;
    let mut text = format!(
        "gate: {:.1} minutes of {:.0} (idle, two cores, nothing built before)\n",
        minutes(took),
        minutes(BUDGET)
    );
    if took > BUDGET {
        text += "WARNING: the gate takes longer than its budget: was the machine idle? if so, make a \
                 step faster or move it (xtask/src/steps.rs)\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps;

    fn line(name: &str, seconds: u64) -> Line {
        let step = steps::ALL.iter().find(|step| step.name == name).unwrap();
        let took = Duration::from_secs(seconds);
        Line { step, outcome: Outcome::Passed(String::new()), took }
    }

    #[test]
    fn the_slowest_come_first_with_their_shares() {
        let lines = [line("fmt", 10), line("test", 70), line("dist", 20)];
        assert_eq!(
            slowest(&lines),
            "slowest of 100 s: test 70 s (70 %), dist 20 s (20 %), fmt 10 s (10 %)\n"
        );
    }

    #[test]
    fn only_the_gate_has_a_budget() {
        assert!(!budget(&[line("test", 1320), line("dist", 900)]).contains("WARNING"));
        assert!(budget(&[line("test", 1320), line("fmt", 1)]).contains("WARNING"));
    }
}
