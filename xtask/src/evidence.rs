// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines of a failed command that say why it failed. They are repeated at the end of all
//! output, where a log that was cut in its middle still has them.

use std::collections::VecDeque;

/// Lines of a report that are kept.
const REPORT: usize = 100;
/// Lines about panics that are kept.
const PANICS: usize = 40;
/// Lines before a sudden end that are kept.
const RECENT: usize = 30;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Of sanitizers.
    report: Vec<String>,
    in_report: bool,
    /// The names of failed tests.
    failed: Vec<String>,
    /// Panics with their messages. Those that tests expect are among them.
    panics: Vec<String>,
    in_panic: bool,
    recent: VecDeque<String>,
    /// The lines before a binary that did not end by itself.
    before_death: Vec<String>,
}

impl Evidence {
    /// Takes note of a line without colours.
    pub(crate) fn add_line(&mut self, line: &str) {
        let line = line.trim_end();
        let begins =
            line.contains("WARNING: ThreadSanitizer") || line.contains("ERROR: AddressSan");
        self.in_report |= begins || line.contains("ERROR: LeakSanitizer");
        if self.in_report && self.report.len() < REPORT {
            self.report.push(line.to_owned());
        }
        self.in_report &= !line.starts_with("SUMMARY: ");
        let is_failed = line.starts_with("test ") && line.ends_with(" ... FAILED");
        if is_failed && !self.failed.iter().any(|failed| failed == line) {
            self.failed.push(line.to_owned());
        }
        let panics = line.contains("' panicked at ") || line.contains(") panicked at ");
        if (panics || self.in_panic) && self.panics.len() < PANICS {
            self.panics.push(line.to_owned());
        }
        self.in_panic = panics;
        if line.trim_start().starts_with("process didn't exit successfully: ") {
            self.before_death = self.recent.drain(..).collect();
            self.before_death.push(line.to_owned());
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(line.to_owned());
    }

    /// The lines, each behind a margin; empty where nothing was noticed.
    pub(crate) fn text(&self) -> String {
        let parts = [&self.failed, &self.panics, &self.report, &self.before_death];
        parts.into_iter().flatten().map(|line| format!("\n    | {line}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str) -> String {
        let mut evidence = Evidence::default();
        output.lines().for_each(|line| evidence.add_line(line));
        evidence.text()
    }

    #[test]
    fn a_quiet_command_leaves_none() {
        assert_eq!(of("running 2 tests\ntest a ... ok\ntest result: ok. 2 passed"), "");
    }

    #[test]
    fn a_race_is_repeated_whole() {
        let report = "WARNING: ThreadSanitizer: data race\n  Write of size 8\nSUMMARY: race in x";
        let text = of(&format!("test a ... ok\n{report}\ntest b ... ok"));
        assert_eq!(text, format!("\n{report}").replace('\n', "\n    | "));
    }

    #[test]
    fn failed_tests_are_named_once() {
        let text = of("test a ... FAILED\ntest b ... ok\ntest a ... FAILED");
        assert_eq!(text, "\n    | test a ... FAILED");
    }

    #[test]
    fn panics_have_their_messages() {
        let text = of("thread 'x' (5) panicked at a.rs:1:2:\nleft is not right\nstack backtrace:");
        assert!(text.ends_with("panicked at a.rs:1:2:\n    | left is not right"), "{text}");
    }

    #[test]
    fn a_sudden_end_shows_the_lines_before_it() {
        let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        let end = "  process didn't exit successfully: `x` (signal: 6, SIGABRT: abort)";
        let text = of(&format!("{}\n{end}", lines.join("\n")));
        assert_eq!(text.lines().count(), 1 + RECENT + 1);
        assert!(text.contains("| line 99\n") && text.ends_with(end) && !text.contains("line 69\n"));
    }
}
