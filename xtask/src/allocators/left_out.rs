// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests that run with jemalloc and under valgrind, and why others do not.

use super::Memory;

/// Tests that valgrind runs, by a part of their names: all would take it ten minutes. These are
/// about the ends of objects, where memory is used that has been freed.
const VALGRIND: &[&str] = &[
    "cm_events::lifetimes::",
    "programs::a_context_goes_with_its_last_object",
    "programs::a_destroy_that_waits_for_an_acknowledgement",
    "programs::a_thread_that_waits_can_be_cancelled",
    "programs::domains_and_regions_leave_nothing",
    "programs::files_of_a_program_that_closed_our_descriptors",
    "programs::memory_of_the_device_and_of_descriptors",
];

/// Tests that jemalloc does not run, by a part of their names.
const TESTS: &[(&str, &str)] = &[
    ("valgrind_knows_all_system_calls", "runs valgrind, which brings an allocator"),
    ("variables_do_not_count", "has more rights than its user: nothing is preloaded"),
    ("no_mistake_is_refused_without_a_word", "reads the source and runs no program"),
    ("a_program_without_memory", "goes by what the C library's allocator takes and gives back"),
];

/// Parts of the names of the tests to run.
pub(super) const fn run(memory: Memory) -> &'static [&'static str] {
    match memory {
        Memory::Jemalloc => super::MODULES,
        Memory::Valgrind => VALGRIND,
    }
}

/// Parts of the names of tests to skip.
pub(super) fn skipped() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|(part, _)| *part)
}

#[cfg(test)]
mod tests {
    use super::{TESTS, VALGRIND};
    use crate::shell;

    #[test]
    fn named_tests_exist() {
        let mut grep = shell::program("grep");
        let line = "^ *(fn [a-z_0-9]+|[a-z_]+ = \"|scenarios! \\{ [a-z]+)";
        grep.args(["-rhE", line, super::super::TESTS]);
        let names = shell::output(&mut grep).expect("tests");
        for part in TESTS.iter().map(|(part, _)| part).chain(VALGRIND) {
            let name = part.trim_end_matches("::").rsplit("::").next().unwrap_or_default();
            assert!(names.contains(name), "{part}");
        }
    }
}
