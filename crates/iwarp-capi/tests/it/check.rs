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

fn said(name: &str, check: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/check");
    let source = std::fs::read_to_string(folder.join(format!("{name}.c"))).expect("a program");
    let source = source
        .replace("#include \"pair.h\"", include_str!("../c/pair.h"))
        .replace("#include \"check.h\"", include_str!("../c/check.h"));
    // Reports are no part of the log.
    let env = [("IWARP_CHECK", check), ("IWARP_LOG", "off")];
    support::run(&format!("check-{name}"), &source, &env)
}

#[test]
fn wrong_programs_are_told_by_their_rule_and_right_ones_are_not() {
    for (name, rule) in CASES {
        let said = said(name, "report");
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/check");
    let source = std::fs::read_to_string(folder.join("busy_wrong.c")).expect("a program");
    let source = source
        .replace("#include \"pair.h\"", include_str!("../c/pair.h"))
        .replace("#include \"check.h\"", include_str!("../c/check.h"));
    let env = [("IWARP_CHECK", "report"), ("IWARP_LOG", "trace")];
    let said = support::run("check-traced", &source, &env);
    assert!(said.contains("]: destroyed-in-use: ") && said.contains("ibv_alloc_pd("), "{said}");
}
