// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sanitizers and Valgrind learn from the checker what the device does to the program's memory.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use super::{DEVICES, Program};
use crate::support::{run_program, tool};

/// The rule that takes a sanitizer.
pub(super) const RULE: &str = "poisoned-memory";

/// Reports of the library's own that mean nothing; the file says why.
const SUPPRESSIONS: &str = concat!(
    "--suppressions=",
    env!("CARGO_MANIFEST_DIR"),
    "/../../xtask/src/allocators/valgrind.supp"
);

/// Set where all C programs have a sanitizer already.
fn has_sanitizer() -> bool {
    std::env::var_os("IWARP_TEST_CFLAGS").is_some()
        || std::env::var_os("IWARP_TEST_UNDER").is_some()
}

/// Runs a program with a scenario over each device, and judges what it says.
fn each(program: &Path, args: &[&str], more: &[(&str, &str)], judge: impl Fn(&Output, &str)) {
    let checked = [("IWARP_CHECK", "report"), ("IWARP_LOG", "off")];
    for (_, variables) in DEVICES {
        let variables = [&checked, variables, more].concat();
        let output = run_program(program, args, &variables, Duration::from_secs(120));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        judge(&output, &said);
    }
}

#[test]
fn memory_that_address_sanitizer_knows_for_freed_is_told() {
    if has_sanitizer() {
        return;
    }
    let program = Program::built("tools", &["-fsanitize=address"]);
    for scenario in ["freed_wrong", "late_wrong"] {
        each(&program.path, &[scenario], &[], |_, said| {
            let (_, report) = said.split_once("iwarp check[").unwrap_or_else(|| panic!("{said}"));
            assert!(report.contains(&format!("]: {RULE}: ")), "{scenario}: {said}");
            assert_eq!(program.judge(scenario, report), Ok(()), "{scenario}: {said}");
        });
    }
    for scenario in ["early_wrong", "polled_right"] {
        each(&program.path, &[scenario], &[], |output, said| {
            assert!(output.status.success() && said.is_empty(), "{scenario}: {said}");
        });
    }
}

#[test]
fn races_with_the_device_are_told_by_thread_sanitizer() {
    if has_sanitizer() {
        return;
    }
    let program = Program::built("tools", &["-fsanitize=thread"]);
    let quiet = [("TSAN_OPTIONS", "ignore_noninstrumented_modules=1")];
    for scenario in ["early_wrong", "changed_wrong"] {
        each(&program.path, &[scenario], &quiet, |output, said| {
            let line = program.marked(&format!("/* {scenario}: here")).expect("a mark");
            let race = said.contains("WARNING: ThreadSanitizer: data race");
            assert!(race && said.contains(&format!(".c:{line} ")), "{scenario}: {said}");
            assert_eq!(output.status.code(), Some(66), "{scenario}: {said}");
        });
    }
    each(&program.path, &["polled_right"], &quiet, |output, said| {
        assert!(output.status.success() && said.is_empty(), "{said}");
    });
}

#[test]
fn bytes_that_hold_nothing_are_told_by_valgrind_where_they_are_posted() {
    if has_sanitizer() {
        return;
    }
    tool("valgrind", "valgrind", &["--version"]);
    let program = Program::built("tools", &[]);
    let path = program.path.to_str().expect("a path");
    // Frames of the library are many, unless it is optimised.
    let args = |scenario| ["-q", "--num-callers=60", SUPPRESSIONS, path, scenario];
    let under = |words: &[(&str, &str)], scenario, judge: &dyn Fn(&str)| {
        each(Path::new("valgrind"), &args(scenario), words, |output, said| {
            assert!(output.status.success(), "{scenario}: {said}");
            judge(said);
        });
    };
    let run = |scenario, judge: &dyn Fn(&str)| under(&[], scenario, judge);
    let line = program.marked("/* undefined_wrong: here").expect("a mark");
    run("undefined_wrong", &|said| {
        assert!(said.contains("Uninitialised byte(s) found during client check request"), "{said}");
        assert!(said.contains(&format!(".c:{line})")), "{said}");
    });
    // Memory that the device has, for programs whose requests share none.
    let strict = |scenario, judge: &dyn Fn(&str)| {
        under(&[("IWARP_CHECK", "report,strict")], scenario, judge);
    };
    let line = program.marked("/* early_wrong: here").expect("a mark");
    let told = format!(".c:{line})");
    strict("early_wrong", &|said| {
        let mut reports = said.split("Conditional jump or move depends on uninitialised value");
        assert!(reports.any(|report| report.contains(&told)), "{said}");
    });
    strict("polled_right", &|said| assert!(!said.contains("polled_right ("), "{said}"));
    run("polled_right", &|said| assert!(!said.contains("during client check request"), "{said}"));
}
