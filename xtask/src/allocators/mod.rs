// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C programs of the drop-in libraries' tests where a use of freed memory shows: with jemalloc,
//! which fills what it takes back, and under valgrind's memcheck. AddressSanitizer brings an
//! allocator of its own, and hides what depends on another's.

mod left_out;

use std::process::Command;

use anyhow::Result;

use crate::apart;
use crate::shell::{self, Tally};
use crate::steps::{Outcome, counted};

/// The tests that run C programs.
#[cfg(test)]
const TESTS: &str = "crates/iwarp-capi/tests/it";

/// Their modules, the other `it` of the workspace having none of these names; the first stands for
/// `cm_programs::` too.
const MODULES: &[&str] = &["programs::", "cm_events::", "cm_ports::", "faults::", "refusals::"];

/// Debian's jemalloc.
pub(crate) const JEMALLOC: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"
} else {
    "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
};

/// Ways to see that memory is used which is not the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Jemalloc,
    Valgrind,
}

impl Memory {
    /// The words before a program that run it so. A test's working folder is its package's.
    fn under(self) -> String {
        match self {
            Self::Jemalloc => format!("sh ../../xtask/src/allocators/jemalloc.sh {JEMALLOC}"),
            Self::Valgrind => [
                "valgrind --quiet --error-exitcode=99 --leak-check=no --error-limit=no",
                // The file says why.
                "--suppressions=../../xtask/src/allocators/valgrind.supp",
                // Else a thread that polls keeps the others from their turn.
                "--fair-sched=yes",
            ]
            .join(" "),
        }
    }
}

/// Runs the tests in each way.
///
/// # Errors
///
/// When one fails.
pub(crate) fn check() -> Result<Outcome> {
    let mut sum = Tally::default();
    for memory in [Memory::Jemalloc, Memory::Valgrind] {
        let mut tests = apart::built(&tests(memory))?;
        sum += shell::run_counted(tests.env("IWARP_TEST_UNDER", memory.under()))?;
    }
    counted(sum)
}

/// As the step `test` builds them. One process runs all tests, so that it compiles each program
/// once.
fn tests(memory: Memory) -> Command {
    let mut command = shell::cargo(["test", "--workspace", "--all-features", "--test", "it"]);
    command.arg("--").args(left_out::run(memory)).arg("--test-threads=2");
    for test in left_out::skipped() {
        command.args(["--skip", test]);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::MODULES;
    use crate::shell;

    /// A module of that name in another package would run here, too.
    #[test]
    fn modules_belong_to_the_drop_in_libraries() {
        let mut grep = shell::program("grep");
        grep.args(["-rE", "^ *(pub )?mod [a-z_]+( \\{|;)", "crates", "--include=*.rs"]);
        let lines = shell::output(&mut grep).expect("modules");
        let of_tests = lines.lines().filter(|line| line.contains("/tests/it/"));
        let mut found = BTreeSet::new();
        for line in of_tests {
            let (path, module) = line.rsplit_once("mod ").expect("a module");
            let name = format!("{}::", module.trim_end_matches([' ', '{', ';']));
            if let Some(module) = MODULES.iter().find(|module| name.ends_with(**module)) {
                assert!(path.starts_with(super::TESTS), "{line}");
                found.insert(*module);
            }
        }
        assert_eq!(found.len(), MODULES.len(), "{found:?}");
    }
}
