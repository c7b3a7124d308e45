// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run --check`: a report and a status where a program misuses verbs, else neither.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{run, stderr};

/// The program of `tests/c/checked.c`.
fn compiled(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("checked-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/checked.c");
    let status = Command::new("cc").arg("-o").arg(&program).arg(source).arg("-libverbs").status();
    assert!(status.expect("apt-get install gcc libc6-dev libibverbs-dev").success());
    program
}

#[test]
fn a_report_makes_the_status_66_unless_told_otherwise() {
    let program = compiled("status");
    let path = &*program.to_string_lossy();
    for (wish, status, reports) in [
        (&["--check"][..], 66, 1),
        (&["--check=report"], 0, 1),
        (&["--check=report,exitcode=7"], 7, 1),
        (&["--check=off"], 0, 0),
        (&[], 0, 0),
    ] {
        let output = run(&[&["run"], wish, &["--", path]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{wish:?}: {text}");
        assert_eq!(text.matches("]: leak: ").count(), reports, "{wish:?}: {text}");
    }
}

#[test]
fn a_right_program_keeps_its_status_and_is_told_nothing() {
    let program = compiled("right");
    let output = run(&["run", "--check", "--", &*program.to_string_lossy(), "right"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_suppressed_report_does_not_count() {
    let program = compiled("suppressed");
    let list = program.with_extension("suppressions");
    std::fs::write(&list, "# known\nleak:ibv_alloc_pd\n").expect("a file");
    let wish = format!("--check=report,exitcode=66,suppressions={}", list.display());
    let output = run(&["run", &wish, "--", &*program.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
