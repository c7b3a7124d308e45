// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checker tells the misuse in wrong programs by its rule, and accuses no right one.

use std::path::Path;

use crate::support;

/// Programs of `c/check`, and the rule that each breaks.
const CASES: [(&str, Option<&str>); 14] = [
    ("busy_wrong", Some("destroyed-in-use")),
    ("leak_wrong", Some("leak")),
    ("list_wrong", Some("list-posted-again")),
    ("error_wrong", Some("post-after-error")),
    ("reset_wrong", Some("post-in-reset")),
    ("event_wrong", Some("event-not-acknowledged")),
    ("silent_wrong", Some("queue-never-signalled")),
    ("event_right", None),
    ("silent_right", None),
    ("batch_right", None),
    ("manager_right", None),
    ("order_right", None),
    ("list_right", None),
    ("error_right", None),
];

/// The words of a program while it is checked, with so much of a log.
fn said(name: &str, log: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/check");
    let source = std::fs::read_to_string(folder.join(format!("{name}.c"))).expect("a program");
    let env = [("IWARP_CHECK", "report"), ("IWARP_LOG", log)];
    support::run(&format!("check-{log}-{name}"), &support::with_headers(&source), &env)
}

#[test]
fn wrong_programs_are_told_by_their_rule_and_right_ones_are_not() {
    for (name, rule) in CASES {
        // Reports are no part of the log.
        let said = said(name, "off");
        match rule {
            Some(rule) => {
                assert!(said.contains(&format!("]: {rule}: ")), "{name}:\n{said}");
                assert!(said.contains("    #0 ") && said.contains("  to do: "), "{said}");
            }
            None => assert!(!said.contains("iwarp check"), "{name}:\n{said}"),
        }
    }
}

#[test]
fn a_trace_and_the_checker_are_told_together() {
    let said = said("busy_wrong", "trace");
    assert!(said.contains("]: destroyed-in-use: ") && said.contains("ibv_alloc_pd("), "{said}");
}
