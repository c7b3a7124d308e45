//! The tests that run without sanitizers only, and why.

use super::Sanitizer::{self, Address, Thread};

const BOTH: &[Sanitizer] = &[Address, Thread];

/// Of these packages only these test files, named under these sanitizers.
const ONLY: &[(&str, &[&str], &[Sanitizer], &str)] = &[
    (
        "iwarp",
        &["operations", "progress", "flush"],
        &[Thread],
        "those about threads: the others take minutes there and add none",
    ),
    (
        super::C_API,
        &["programs", "cm_events"],
        BOTH,
        "those that compile programs of ours: other people's bring no sanitizer",
    ),
];

/// Test files, by what their names start with.
const FILES: &[(&str, &[Sanitizer], &str)] = &[
    ("loom", BOTH, "switches stacks itself, which no sanitizer can follow"),
    ("shuttle", BOTH, "switches stacks itself, which no sanitizer can follow"),
    ("fork", BOTH, "a child frees nothing of what it inherited, on purpose"),
    ("starved", BOTH, "the sanitizer's own memory and descriptors count against its limits"),
    ("footprint", BOTH, "measures memory, which the sanitizer's own adds to"),
    ("floods", BOTH, "uses up descriptors, some of which the sanitizer needs"),
    ("handlers", BOTH, "has signal handlers of its own in place of the sanitizer's"),
    ("gone", BOTH, "faults on purpose, which the sanitizer reports first"),
    ("vanished", BOTH, "waits for time limits that a process slowed down exceeds"),
];

/// Tests, by a part of their names.
const TESTS: &[(&str, &[Sanitizer], &str)] = &[
    ("a_child_has", BOTH, "a forked child frees nothing of what it inherited, on purpose"),
    ("a_forked_child", BOTH, "a forked child may not start threads under ThreadSanitizer"),
    ("memory_that_is_gone", BOTH, "has handlers of its own for faults, which are the sanitizer's"),
    ("a_program_without_memory", BOTH, "leaves no room for a sanitizer"),
    ("system_calls_may_be_refused", BOTH, "refuses system calls that a sanitizer makes"),
    ("variables_do_not_count", BOTH, "has more rights than its user, so that no option counts"),
    (
        "files_of_a_program_that_closed_our_descriptors",
        &[Thread],
        "leaves a worker for as long as the process lives, which counts as a leaked thread",
    ),
    (
        "memory_that_the_program_does_not_have",
        &[Thread],
        "copies are plain there, so that their races are seen, and nothing guards them",
    ),
];

/// Whether a test file says something under `sanitizer`.
pub(super) fn runs(sanitizer: Sanitizer, package: &str, file: &str) -> bool {
    let is_due = |under: &[Sanitizer]| under.contains(&sanitizer);
    let only = ONLY.iter().find(|(of, _, under, _)| *of == package && is_due(under));
    only.is_none_or(|(_, files, ..)| files.contains(&file))
        && !FILES.iter().any(|(start, under, _)| file.starts_with(start) && is_due(under))
}

/// Parts of the names of tests to skip under `sanitizer`.
pub(super) fn skipped(sanitizer: Sanitizer) -> impl Iterator<Item = &'static str> {
    TESTS.iter().filter(move |(_, under, _)| under.contains(&sanitizer)).map(|(part, ..)| *part)
}

#[cfg(test)]
mod tests {
    use super::super::CRATES;
    use super::{FILES, ONLY, TESTS};
    use crate::shell;

    /// Lines of the crates' sources that have `what`, with the names of their files.
    fn found(what: &str) -> String {
        let mut grep = shell::program("grep");
        grep.current_dir(shell::root().join("crates")).args(["-rE", "--include=*.rs", what]);
        shell::output(grep.args(CRATES)).expect("grep finds something")
    }

    #[test]
    fn what_is_left_out_exists() {
        let functions = found("fn [a-z_0-9]+\\(");
        let files = FILES.iter().map(|(start, ..)| start);
        for start in files.chain(ONLY.iter().flat_map(|(_, files, ..)| *files)) {
            // Not every kind of model has one at all times.
            let is_kind = ["loom", "shuttle"].contains(start);
            assert!(is_kind || functions.contains(&format!("/tests/{start}")), "{start}");
        }
        for (part, ..) in TESTS {
            assert!(functions.contains(part), "{part}");
        }
    }
}
