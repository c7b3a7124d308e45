// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names of the tests that failed, read off the output of `cargo test` and of nextest.

use std::fmt;
use std::mem;
use std::process::Command;

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Its binary, as nextest names it: the package, behind which a test's or a program's name may
    /// follow (`iwarp::it`, `iwarp-cli::bin/iwarp`).
    pub(crate) binary: String,
    /// Its path within the binary.
    pub(crate) name: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary, self.name)
    }
}

/// The programs that run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    Cargo,
    Nextest,
}

impl Runner {
    pub(crate) fn of(command: &Command) -> Self {
        match command.get_args().any(|argument| argument == "nextest") {
            true => Self::Nextest,
            false => Self::Cargo,
        }
    }

    /// The status with which it ends if tests failed, and nothing else did.
    const fn status(self) -> i32 {
        match self {
            Self::Cargo => 101,
            Self::Nextest => 100,
        }
    }
}

/// A stream of a runner's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Errors,
}

/// The failures among what a runner has said so far.
#[derive(Debug)]
pub(crate) struct Failures {
    runner: Runner,
    /// Of nextest, which names the binary with each test.
    found: Vec<Failed>,
    harnesses: Harnesses,
    targets: Targets,
}

impl Failures {
    pub(crate) fn new(runner: Runner) -> Self {
        let (harnesses, targets) = <_>::default();
        Self { runner, found: Vec::new(), harnesses, targets }
    }

    /// Takes note of a line without colours and without its end.
    pub(crate) fn add_line(&mut self, stream: Stream, line: &str) {
        match (self.runner, stream) {
            (Runner::Nextest, _) => {
                let new = of_nextest(line).filter(|failed| !self.found.contains(failed));
                self.found.extend(new);
            }
            (Runner::Cargo, Stream::Output) => self.harnesses.add_line(line),
            (Runner::Cargo, Stream::Errors) => self.targets.add_line(line),
        }
    }

    /// The tests that failed in a command that ended with `status`; `None` if something failed that
    /// is no test with a name.
    pub(crate) fn tests(self, status: Option<i32>) -> Option<Vec<Failed>> {
        let found = match self.runner {
            Runner::Nextest => self.found,
            Runner::Cargo => by_target(self.harnesses, self.targets)?,
        };
        (status == Some(self.runner.status()) && !found.is_empty()).then_some(found)
    }
}

/// The test in a line such as `        FAIL [   0.318s] ( 7/20) iwarp::it cm::x`: nextest puts the
/// word for the result at the end of twelve columns.
fn of_nextest(line: &str) -> Option<Failed> {
    const COLUMNS: usize = 12;
    let (result, rest) = (line.get(..COLUMNS)?, line.get(COLUMNS..)?);
    let bad = ["FAIL", "LEAK-FAIL", "FAIL + LEAK", "XFAIL", "TIMEOUT"];
    let result = result.trim_start();
    if !bad.contains(&result) && !result.starts_with("SIG") && !result.starts_with("ABORT") {
        return None;
    }
    let (_, rest) = rest.strip_prefix(" [")?.split_once("s] ")?;
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('(') {
        Some(counted) => counted.split_once(") ")?.1,
        None => rest,
    };
    let (binary, name) = rest.trim().split_once(' ')?;
    Some(Failed { binary: binary.to_owned(), name: name.trim().to_owned() })
}

/// The output of the harnesses that `cargo test` starts one after the other.
#[derive(Debug, Default)]
struct Harnesses {
    /// Names up to the last line with a result.
    names: Vec<String>,
    /// The names of each result before that. A test that shows what a second process said has a
    /// result in the middle of its own.
    failed: Vec<Vec<String>>,
    /// The highest number of failures in a result.
    most: usize,
    /// Within the list at the end of a harness.
    lists: bool,
}

impl Harnesses {
    fn add_line(&mut self, line: &str) {
        if mem::take(&mut self.lists)
            && let Some(name) = line.strip_prefix("    ")
        {
            self.lists = true;
            self.add(name.trim());
        } else if line == "failures:" {
            self.lists = true;
        } else if let Some(name) = of_harness(line) {
            self.add(name);
        } else if let Some(counts) = line.strip_prefix("test result: FAILED") {
            let before = counts.split(" failed").next().unwrap_or_default();
            let number = before.rsplit(' ').next().and_then(|number| number.parse().ok());
            self.most = self.most.max(number.unwrap_or(0));
            self.failed.push(mem::take(&mut self.names));
        }
    }

    fn add(&mut self, name: &str) {
        if !name.is_empty() && !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
    }
}

/// The test in a line such as `test cm::x - should panic ... FAILED`.
fn of_harness(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    let modes = [" - should panic", " - compile fail", " - compile"];
    Some(modes.iter().find_map(|mode| name.strip_suffix(mode)).unwrap_or(name))
}

/// The binaries that Cargo says failed.
#[derive(Debug, Default)]
struct Targets {
    /// Binaries with tests that failed, in their order.
    failed: Vec<String>,
    /// One ended otherwise than by failed tests: by a signal, or by the report of a sanitizer.
    died: bool,
}

impl Targets {
    fn add_line(&mut self, line: &str) {
        self.died |= line.trim_start().starts_with("process didn't exit successfully: ");
        let Some((_, options)) = line.split_once(" failed, to rerun pass `") else { return };
        self.failed.push(binary(options.trim_end_matches('`')));
    }
}

/// The name that nextest would give the binary which Cargo chooses by these options.
fn binary(options: &str) -> String {
    let words: Vec<&str> = options.split_whitespace().collect();
    let (package, target) = match words[..] {
        ["-p", package, ref target @ ..] => (package, target),
        ref target => ("", target),
    };
    match target {
        ["--lib"] | [] => package.to_owned(),
        ["--test", name] => format!("{package}::{name}"),
        [kind, name] => format!("{package}::{}/{name}", kind.trim_start_matches('-')),
        words => format!("{package}::{}", words.join(" ").trim_start_matches('-')),
    }
}

/// Puts the tests and the binaries of `cargo test` together. The two come by different streams, of
/// which only the order within each is known.
fn by_target(harnesses: Harnesses, Targets { failed, died }: Targets) -> Option<Vec<Failed>> {
    let names = harnesses.failed.concat();
    // A binary without a result has not run to its end.
    let complete = harnesses.failed.len() >= failed.len() && names.len() >= harnesses.most;
    if died || !complete || failed.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    let mut add = |binary: &str, name: &str| {
        let new = Failed { binary: binary.to_owned(), name: name.to_owned() };
        if !found.contains(&new) {
            found.push(new);
        }
    };
    if harnesses.failed.len() == failed.len() {
        for (binary, names) in failed.iter().zip(&harnesses.failed) {
            names.iter().for_each(|name| add(binary, name));
        }
    } else {
        names.iter().for_each(|name| add(&failed.join(" or "), name));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(runner: Runner, output: &str, errors: &str) -> Failures {
        let mut failures = Failures::new(runner);
        errors.lines().for_each(|line| failures.add_line(Stream::Errors, line));
        output.lines().for_each(|line| failures.add_line(Stream::Output, line));
        failures
    }

    fn shown(found: Option<Vec<Failed>>) -> Option<Vec<String>> {
        found.map(|tests| tests.iter().map(Failed::to_string).collect())
    }

    fn list(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    const NEXTEST: &str = "
    Starting 9 tests across 6 binaries
        FAIL [   0.027s] (1/9) other::code a
  stdout ───

    running 1 test
    test a ... FAILED
            FAIL [   0.027s] (1/9) of::another run

        PASS [   0.029s] (2/9) other::crash a
        SLOW [> 60.000s] (───) scr tests::bad
     SIGABRT [   0.032s] (3/9) other::crash dies
     TIMEOUT [ 600.003s] ( 4/9) scr tests::bad
TIMEOUT-PASS [ 600.003s] ( 4/9) scr tests::good
        LEAK [   0.168s] (5/9) scr tests::leaky
        FAIL [   0.168s] scr::bin/scr binbad
   LEAK-FAIL [   0.168s] scr::it x
────────────
     Summary [   0.407s] 9 tests run: 3 passed, 6 failed, 0 skipped
        FAIL [   0.027s] (1/9) other::code a
     SIGABRT [   0.032s] (3/9) other::crash dies
     TIMEOUT [ 600.003s] ( 4/9) scr tests::bad
error: test run failed
";

    #[test]
    fn nextest_names_each_test_with_its_binary() {
        let failures = heard(Runner::Nextest, "", NEXTEST);
        let names = [
            "other::code a",
            "other::crash dies",
            "scr tests::bad",
            "scr::bin/scr binbad",
            "scr::it x",
        ];
        assert_eq!(shown(failures.tests(Some(100))), list(&names));
    }

    #[test]
    fn another_status_says_that_more_failed_than_tests() {
        for status in [None, Some(4), Some(101)] {
            assert_eq!(heard(Runner::Nextest, "", NEXTEST).tests(status), None);
        }
        assert_eq!(heard(Runner::Nextest, "", "error: no tests to run").tests(Some(100)), None);
    }

    const LIBRARY: &str = "
running 3 tests
test tests::good ... ok
test tests::sp - should panic ... FAILED
test tests::bad ... FAILED

failures:

---- tests::sp stdout ----
note: test did not panic as expected at src/lib.rs:5:125
---- tests::bad stdout ----
    this is no name

failures:
    tests::bad
    tests::sp

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s
";

    const TESTS: &str = "
running 2 tests
test cm::y ... ok
test cm::x ... FAILED

failures:

failures:
    cm::x

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.12s
";

    const DOCS: &str = "
running 1 test
test src/lib.rs - f (line 1) - compile ... FAILED

failures:

failures:
    src/lib.rs - f (line 1)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s

all doctests ran in 0.82s; merged doctests compilation took 0.57s
";

    const ERRORS: &str = "
     Running unittests src/lib.rs (target/debug/deps/scr-817ceda6ce58a411)
error: test failed, to rerun pass `-p scr --lib`
     Running tests/it.rs (target/debug/deps/it-9ea6b07706122467)
error: test failed, to rerun pass `-p scr --test it`
   Doc-tests scr
error: doctest failed, to rerun pass `-p scr --doc`
error: 3 targets failed:
    `-p scr --lib`
    `-p scr --test it`
    `-p scr --doc`
";

    #[test]
    fn cargo_names_tests_and_binaries_in_one_order() {
        let good = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        let output = [good, LIBRARY, good, TESTS, DOCS].concat();
        let names = [
            "scr tests::sp",
            "scr tests::bad",
            "scr::it cm::x",
            "scr::doc src/lib.rs - f (line 1)",
        ];
        let failures = || heard(Runner::Cargo, &output, ERRORS);
        assert_eq!(shown(failures().tests(Some(101))), list(&names));
        assert_eq!(failures().tests(None), None, "killed");
    }

    /// With `--nocapture` a line may be torn, but the list at the end names each test.
    #[test]
    fn a_torn_line_is_made_good_by_the_list() {
        let torn = TESTS.replace("test cm::x ... FAILED", "worker: test cm::x ... FAILED");
        let errors = "error: test failed, to rerun pass `-p scr --test it`";
        let failures = heard(Runner::Cargo, &torn, errors);
        assert_eq!(shown(failures.tests(Some(101))), list(&["scr::it cm::x"]));
        // Without both the number of failures says that one is missing.
        let lost = torn.replace("    cm::x\n", "");
        assert_eq!(heard(Runner::Cargo, &lost, errors).tests(Some(101)), None);
    }

    /// A test that runs itself in a second process shows what that said.
    #[test]
    fn a_result_within_a_test_is_no_other_test() {
        let (first, second) = TESTS.split_once("failures:\n\nfailures:").expect("lists");
        let inner = TESTS.trim();
        let output =
            format!("{first}failures:\n\n---- cm::x stdout ----\n{inner}\n\nfailures:{second}");
        let errors = "error: test failed, to rerun pass `-p scr --test it`";
        let failures = heard(Runner::Cargo, &output, errors);
        assert_eq!(shown(failures.tests(Some(101))), list(&["scr::it cm::x"]));
        let two = format!("error: test failed, to rerun pass `-p scr --lib`\n{errors}");
        let failures = heard(Runner::Cargo, &format!("{LIBRARY}{output}"), &two).tests(Some(101));
        let binaries = failures.expect("tests").into_iter().map(|test| test.binary);
        assert!(binaries.into_iter().all(|binary| binary == "scr or scr::it"));
    }

    #[test]
    fn binaries_that_die_have_no_tests_to_blame() {
        let dies = "error: test failed, to rerun pass `-p other --test crash`

Caused by:
  process didn't exit successfully: `target/debug/deps/crash-dfb42d` (signal: 6, SIGABRT)";
        let both = format!("{ERRORS}{dies}");
        let output = [LIBRARY, TESTS, DOCS].concat();
        assert_eq!(heard(Runner::Cargo, &output, &both).tests(Some(101)), None);
        // One that exits by itself in the middle of its tests.
        assert_eq!(heard(Runner::Cargo, TESTS, ERRORS).tests(Some(101)), None);
        let broken = "error: could not compile `scr` (lib) due to 1 previous error";
        assert_eq!(heard(Runner::Cargo, "", broken).tests(Some(101)), None);
    }

    #[test]
    fn binaries_have_the_names_that_nextest_gives_them() {
        let names = [
            ("-p iwarp --lib", "iwarp"),
            ("-p iwarp --test it", "iwarp::it"),
            ("-p iwarp-cli --bin iwarp", "iwarp-cli::bin/iwarp"),
            ("-p iwarp --example a", "iwarp::example/a"),
            ("-p iwarp --doc", "iwarp::doc"),
        ];
        for (options, name) in names {
            assert_eq!(binary(options), name);
        }
    }
}
