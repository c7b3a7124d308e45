// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests that run without sanitizers only, and why.

use super::Sanitizer::{self, Address, Thread};

const BOTH: &[Sanitizer] = &[Address, Thread];

/// Of these packages only these parts of their tests, under these sanitizers.
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

/// Parts of the crates' tests: files of `tests`, each a binary, and modules of `tests/it`.
const PARTS: &[(&str, &[Sanitizer], &str)] = &[
    ("fork", BOTH, "a child frees nothing of what it inherited, on purpose"),
    ("starved", BOTH, "the sanitizer's own memory and descriptors count against its limits"),
    ("footprint", BOTH, "measures memory, which the sanitizer's own adds to"),
    ("floods", BOTH, "uses up descriptors, some of which the sanitizer needs"),
    ("roce_floods", BOTH, "measures memory, which the sanitizer keeps for a while after its end"),
    ("handlers", BOTH, "has signal handlers of its own in place of the sanitizer's"),
    ("gone", BOTH, "faults on purpose, which the sanitizer reports first"),
    ("local_hosts", BOTH, "forks, and a child may not start threads under ThreadSanitizer"),
    ("local_kills", BOTH, "kills processes amid their work, which have freed nothing then"),
    ("local_refused", BOTH, "refuses system calls that a sanitizer makes"),
    ("vanished", BOTH, "waits for time limits that a process slowed down exceeds"),
];

/// Tests, by a part of their names.
const TESTS: &[(&str, &[Sanitizer], &str)] = &[
    ("a_child_has", BOTH, "a forked child frees nothing of what it inherited, on purpose"),
    ("a_child_serves", &[Thread], "a forked child may not start threads under ThreadSanitizer"),
    ("a_child_listens", &[Thread], "a forked child may not start threads under ThreadSanitizer"),
    ("a_child_may_end", &[Thread], "a forked child may not start threads under ThreadSanitizer"),
    ("a_forked_child", BOTH, "a forked child may not start threads under ThreadSanitizer"),
    ("memory_that_is_gone", BOTH, "has handlers of its own for faults, which are the sanitizer's"),
    ("a_program_without_memory", BOTH, "leaves no room for a sanitizer"),
    (
        "a_thread_that_ends_without_a_word",
        &[Thread],
        "the system frees a robust mutex there, which ThreadSanitizer does not see",
    ),
    (
        "a_read_ends_where_this_sides_memory",
        BOTH,
        "leaves a hole in its memory, which tests that share the process may fill with theirs",
    ),
    ("a_process_that_may_not_read", BOTH, "refuses system calls that a sanitizer makes"),
    (
        "no_store_is_lost",
        &[Thread],
        "pages are exchanged under a thread that stores there, which a handler of faults has wait",
    ),
    ("a_stopped_process_is_read", &[Thread], "forks a child that starts threads"),
    ("a_process_ends_with_the_last_thread", BOTH, "the sanitizers rely on the first thread"),
    ("valgrind_knows_all_system_calls", BOTH, "valgrind runs no program with a sanitizer"),
    ("system_calls_may_be_refused", BOTH, "refuses system calls that a sanitizer makes"),
    (
        "alone_where_there_is_none",
        &[Address],
        "holds an acknowledgement back for less time than an answer takes when slowed down",
    ),
    ("variables_do_not_count", BOTH, "has more rights than its user, so that no option counts"),
    (
        "memory_on_demand_comes_and_goes",
        &[Thread],
        "memory is accessed plainly there, so that races are seen, and has to be there",
    ),
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

/// True if a part of a package's tests says something under `sanitizer`. (Models are in folders of
/// their own, as they switch stacks themselves, which no sanitizer can follow.)
pub(super) fn runs(sanitizer: Sanitizer, package: &str, part: &str) -> bool {
    let is_due = |under: &[Sanitizer]| under.contains(&sanitizer);
    let only = ONLY.iter().find(|(of, _, under, _)| *of == package && is_due(under));
    only.is_none_or(|(_, parts, ..)| parts.contains(&part))
        && !PARTS.iter().any(|(name, under, _)| part == *name && is_due(under))
}

/// Parts of the names of tests to skip under `sanitizer`.
pub(super) fn skipped(sanitizer: Sanitizer) -> impl Iterator<Item = &'static str> {
    TESTS.iter().filter(move |(_, under, _)| under.contains(&sanitizer)).map(|(part, ..)| *part)
}

#[cfg(test)]
mod tests {
    use super::super::{CRATES, MODULES, test_files};
    use super::{BOTH, ONLY, PARTS, TESTS, runs};
    use crate::shell;

    /// Lines of the crates' sources that have `what`, with the names of their files.
    fn found(what: &str) -> String {
        let mut grep = shell::program("grep");
        grep.current_dir(shell::root().join("crates")).args(["-rE", "--include=*.rs", what]);
        shell::output(grep.args(CRATES)).expect("grep finds something")
    }

    #[test]
    fn tests_that_are_left_out_exist() {
        // Functions that a macro makes of a scenario's name included.
        let functions = found("fn [a-z_0-9]+\\(|^    [a-z_0-9]+ = \"[a-z-]+\",$");
        let names = PARTS.iter().map(|(name, ..)| name);
        for name in names.chain(ONLY.iter().flat_map(|(_, parts, ..)| *parts)) {
            let is_part = |folder| functions.contains(&format!("/{folder}/{name}.rs:"));
            assert!(is_part("tests") || is_part(MODULES), "{name}");
        }
        for (part, ..) in TESTS {
            assert!(functions.contains(part), "{part}");
        }
    }

    /// The harness skips what contains `name::`.
    #[test]
    fn a_name_leaves_out_one_module_only() {
        for (sanitizer, package) in BOTH.iter().flat_map(|s| CRATES.iter().map(move |c| (*s, c))) {
            let modules = test_files(package, MODULES).expect("a folder");
            let (due, others): (Vec<_>, Vec<_>) =
                modules.iter().partition(|module| runs(sanitizer, package, module));
            for other in others {
                assert!(!due.iter().any(|due| due.ends_with(other)), "{package}: {other}");
            }
        }
    }
}
