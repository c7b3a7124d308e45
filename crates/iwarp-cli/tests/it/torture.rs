// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp torture` of programs with a planted bug, which it finds and shrinks, and of right ones,
//! which bear it; `iwarp run --faults` and its table.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{run, stderr, stdout};

/// The program of `tests/c/tortured.c`.
fn compiled(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tortured-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/tortured.c");
    let status = Command::new("cc").arg("-o").arg(&program).arg(source).arg("-libverbs").status();
    assert!(status.expect("apt-get install gcc libc6-dev libibverbs-dev").success());
    program
}

/// Tortures the program with this bug; it must be found within 200 seeds, and shrunk to three
/// faults at most, with which the printed command fails again, with this status of a shell.
fn found(bug: &str, profile: &str, outcome: &str, code: i32) {
    let program = compiled(bug);
    let path = program.to_string_lossy();
    let options = ["torture", "--first", "--timeout", "3", "--profile", profile];
    let output = run(&[&options[..], &["--", &*path, bug]].concat());
    let (text, complaints) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{text}{complaints}");
    assert!(text.contains(outcome), "{text}");
    let (_, shrunk) = text.split_once("faults suffice").expect(&text);
    let lines = shrunk.lines().filter(|line| line.starts_with("    ")).count();
    assert!((1..=3).contains(&lines), "{text}");
    let repeat = shrunk.lines().find_map(|line| line.trim().strip_prefix("iwarp run --faults '"));
    let (rules, _) = repeat.and_then(|rest| rest.split_once('\'')).expect(&text);
    let mut again = Command::new("timeout");
    again.args(["3", env!("CARGO_BIN_EXE_iwarp"), "run", "--faults", rules, "--", &*path, bug]);
    let status = again.output().expect("timeout runs").status;
    assert_eq!(status.code(), Some(code), "{text}");
}

#[test]
fn a_double_free_is_found() {
    found("double_free", "resources", "dies by signal 6", 128 + 6);
}

#[test]
fn a_result_that_nobody_looks_at_is_found() {
    found("unseen_null", "resources", "dies by signal 11", 128 + 11);
}

#[test]
fn a_refused_request_that_is_waited_for_is_found() {
    found("unseen_post", "resources", "hangs", 124);
}

#[test]
fn an_error_that_counts_as_success_is_found() {
    found("unseen_status", "all", "dies by signal 6", 128 + 6);
}

#[test]
fn a_program_without_patience_is_found() {
    found("impatient", "mild", "dies by signal 6", 128 + 6);
}

#[test]
fn a_lost_wake_up_is_found() {
    found("lost_wakeup", "mild", "hangs", 124);
}

#[test]
fn a_right_program_bears_all() {
    let program = compiled("none");
    for profile in ["mild", "network", "all"] {
        let options = ["torture", "--seeds", "8", "--timeout", "30", "--profile", profile, "--"];
        let output = run(&[&options[..], &[&*program.to_string_lossy()]].concat());
        let text = stdout(&output);
        assert!(output.status.success(), "{text}{}", stderr(&output));
        assert!(text.contains("8 seeds tried, 0 failed"), "{text}");
    }
}

/// Both ends have the faults, each by itself.
#[test]
fn rping_bears_a_slow_network() {
    let iwarp = env!("CARGO_BIN_EXE_iwarp");
    let script = format!(
        "{iwarp} rping -s -a 127.0.0.1 -p 7174 & server=$!; \
         until ss -ltn | grep -q :7174; do kill -0 $server || exit 1; done; \
         {iwarp} rping -c -a 127.0.0.1 -p 7174 -C 10 -V && wait $server"
    );
    let options = ["torture", "--seeds", "6", "--timeout", "30", "--profile", "network", "--"];
    let output = run(&[&options[..], &["sh", "-c", &script]].concat());
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_command_that_fails_by_itself_is_not_tortured() {
    let output = run(&["torture", "--", "sh", "-c", "echo broken; exit 3"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("fails with status 3 without any faults"), "{text}");
    assert!(text.contains("| broken"), "{text}");
}

#[test]
fn a_run_with_faults_ends_with_a_table_and_its_own_status() {
    let program = compiled("table");
    let path = program.to_string_lossy();
    let rules = "errno=ENOMEM,verb=ibv_post_send,nth=3; late=1,op=read";
    let output = run(&["run", "--faults", rules, "--strict", &*path]);
    assert_eq!(output.status.code(), Some(1), "the program's own");
    let text = stderr(&output);
    assert!(text.contains("gives up: ibv_post_send"), "{text}");
    assert!(text.contains("3       1  errno=ENOMEM,verb=ibv_post_send,nth=3"), "{text}");
    assert!(text.contains("0       0  late=1,op=read"), "{text}");
    let output = run(&["run", "--faults", "late=1,op=read", "--strict", &*path]);
    assert_eq!(output.status.code(), Some(123), "{}", stderr(&output));
    let output = run(&["run", "--faults", "late=1,op=send,nth=2", "--strict", &*path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// The completion that is changed, and those behind it, of both ends: each request ends once.
#[test]
fn an_error_status_fails_the_queue_pair() {
    let program = compiled("status");
    let rules = "status=RNR_RETRY_EXC_ERR,op=send,nth=2";
    let output = run(&["run", "--faults", rules, &*program.to_string_lossy(), "books"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Parent and child each allocate one protection domain.
#[test]
fn a_forked_child_counts_for_itself() {
    let program = compiled("forked");
    let path = program.to_string_lossy();
    let status = |nth: &str| {
        let rules = format!("errno=ENOMEM,verb=ibv_alloc_pd,nth={nth},times=1");
        run(&["run", "--faults", &rules, "--strict", &*path, "forked"]).status.code()
    };
    assert_eq!(status("2"), Some(123), "neither has a second");
    assert_eq!(status("1"), Some(1), "the parent gives up");
}

#[test]
fn a_rule_that_can_never_fire_is_refused() {
    let output = run(&["run", "--faults", "errno=ENOMEM,verb=ibv_dereg_mr", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("a function that can be refused"), "{}", stderr(&output));
}
