// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of counts: reading, writing, comparing.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};

/// The change that is not worth a word, in hundredths.
const TOLERANCE: f64 = 5.0;

const HEAD: &str = "\
# Instructions of one iteration of each case of instructions.rs, counted by callgrind.
# `cargo xtask instructions` compares with this table and, with --write, renews it.
";
const MADE_WITH: &str = "made with ";

/// Counts, and what decides them beside the source.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Baseline {
    /// Compiler, target, C library, and what the processor can do.
    pub(super) made_with: String,
    /// Instructions of one iteration of each case.
    pub(super) counts: Vec<(String, f64)>,
}

impl Baseline {
    /// This table beside a newer one, in the order of the latter.
    pub(super) fn beside(&self, new: &Self) -> Vec<Line> {
        let find = |table: &Self, case: &str| {
            table.counts.iter().find(|(name, _)| name == case).map(|(_, count)| *count)
        };
        let mut lines: Vec<Line> = new
            .counts
            .iter()
            .map(|(case, now)| Line {
                case: case.clone(),
                before: find(self, case),
                now: Some(*now),
            })
            .collect();
        for (case, before) in &self.counts {
            if find(new, case).is_none() {
                lines.push(Line { case: case.clone(), before: Some(*before), now: None });
            }
        }
        lines
    }
}

impl FromStr for Baseline {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some(made_with) = line.strip_prefix(MADE_WITH) {
                made_with.clone_into(&mut table.made_with);
                continue;
            }
            let (case, count) = line.split_once(' ').with_context(|| format!("line {line:?}"))?;
            let count = count.trim().parse().with_context(|| format!("line {line:?}"))?;
            table.counts.push((case.to_owned(), count));
        }
        Ok(table)
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{MADE_WITH}{}", self.made_with)?;
        for (case, count) in &self.counts {
            writeln!(f, "{case:<30} {count:>10.1}")?;
        }
        Ok(())
    }
}

/// One case before and now.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Line {
    case: String,
    before: Option<f64>,
    now: Option<f64>,
}

impl Line {
    /// Hundredths that came on top.
    fn change(&self) -> Option<f64> {
        let (before, now) = (self.before?, self.now?);
        Some((now - before) / before * 100.0)
    }

    /// The reason why the case fails, if it does.
    pub(super) fn problem(&self) -> Option<String> {
        let case = &self.case;
        match (self.before, self.now, self.change()) {
            (Some(before), Some(now), Some(change)) => (change > TOLERANCE).then(|| {
                format!("{case} takes {now:.1} instructions, {before:.1} before: {change:+.1} %")
            }),
            (None, ..) => Some(format!("{case} is not in the table")),
            _ => Some(format!("{case} is in the table, but there is no such case")),
        }
    }

    /// The improvement, if it is worth a word.
    pub(super) fn improvement(&self) -> Option<String> {
        let change = self.change().filter(|change| *change < -TOLERANCE)?;
        Some(format!("{} has improved: {change:+.1} %", self.case))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |count: Option<f64>| count.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let change = self.change().map_or(String::new(), |change| format!("{change:+.1} %"));
        let (before, now) = (number(self.before), number(self.now));
        write!(f, "{:<30} {before:>10} {now:>10} {change:>9}", self.case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(counts: &[(&str, f64)]) -> Baseline {
        let counts = counts.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect();
        Baseline { made_with: "rustc 1.2.3, some-target".to_owned(), counts }
    }

    #[test]
    fn a_written_baseline_is_read_back() {
        let table = table(&[("a", 160.0), ("b_b", 66_321.5)]);
        assert_eq!(table.to_string().parse::<Baseline>().unwrap(), table);
        assert!("a many".parse::<Baseline>().is_err());
        assert!("alone".parse::<Baseline>().is_err());
    }

    #[test]
    fn only_more_than_the_tolerance_fails_or_is_told() {
        let old = table(&[("same", 100.0), ("worse", 100.0), ("bad", 100.0), ("good", 100.0)]);
        let new = table(&[("same", 95.0), ("worse", 105.0), ("bad", 105.1), ("good", 94.9)]);
        let lines = old.beside(&new);
        let problems: Vec<String> = lines.iter().filter_map(Line::problem).collect();
        assert_eq!(problems, ["bad takes 105.1 instructions, 100.0 before: +5.1 %"]);
        let better: Vec<String> = lines.iter().filter_map(Line::improvement).collect();
        assert_eq!(better, ["good has improved: -5.1 %"]);
    }

    #[test]
    fn cases_that_only_one_side_has_fail() {
        let lines = table(&[("gone", 1.0)]).beside(&table(&[("new", 1.0)]));
        let problems: Vec<String> = lines.iter().filter_map(Line::problem).collect();
        let expected =
            ["new is not in the table", "gone is in the table, but there is no such case"];
        assert_eq!(problems, expected);
    }
}
