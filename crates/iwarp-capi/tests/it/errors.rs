// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of docs/errors.md, as `codes.c` wants it.

use std::path::Path;

/// An operation of the table, and the request that it posts.
const OPERATIONS: &[(&str, &str)] = &[
    ("Write", "RDMA_WRITE"),
    ("Write with Immediate", "RDMA_WRITE_WITH_IMM"),
    ("Read", "RDMA_READ"),
    ("Atomic", "ATOMIC_FETCH_AND_ADD"),
    ("Send", "SEND"),
    ("Send with Invalidate", "SEND_WITH_INV"),
];

/// An error of the table, and the part that is made wrong.
const ERRORS: &[(&str, &str)] = &[
    ("no such R_Key", "KEY"),
    ("outside of the region", "BOUNDS"),
    ("the region does not grant it", "RIGHT"),
    ("the queue pair does not grant it", "QP_RIGHT"),
    ("not at a multiple of 8", "ALIGNMENT"),
    ("longer than the receive", "RECEIVE_LENGTH"),
    ("the receive's L_Key is wrong", "RECEIVE_KEY"),
    ("its own L_Key is wrong", "OWN_KEY"),
];

fn meaning(of: &str, table: &[(&str, &'static str)]) -> &'static str {
    let found = table.iter().find(|(text, _)| *text == of);
    found.unwrap_or_else(|| panic!("docs/errors.md has {of:?}, which nothing provokes")).1
}

/// One cell: status, event, state.
fn seen(cell: &str) -> String {
    let parts: Vec<&str> = cell.split(", ").collect();
    let &[status, event, state] = &parts[..] else { panic!("docs/errors.md: {cell:?}") };
    let status = match status {
        "nothing" => "NOTHING".to_owned(),
        status => format!("IBV_WC_{status}"),
    };
    let event = match event {
        "no event" => "NOTHING".to_owned(),
        event => format!("IBV_EVENT_QP_{event}"),
    };
    format!("{{ {status}, {event}, IBV_QPS_{state} }}")
}

/// The rows as elements of an array in C.
pub(crate) fn table() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(&page).expect("the page is there");
    let mut out = String::new();
    let mut asks = None;
    // The sections behind it have tables of their own.
    let table = page.lines().take_while(|line| !line.starts_with("## "));
    for line in table.filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [error, end, ways @ ..] = &cells[..] else { panic!("docs/errors.md: {line}") };
        let ways = ways.iter().map(|cell| seen(cell)).collect::<Vec<_>>().join(", ");
        if *end == "asks" {
            asks = Some((*error, ways));
            continue;
        }
        let (error, asking) = asks.take().expect("each end has its row");
        assert!(*end == "asked" && ways.matches('{').count() == 3, "docs/errors.md: {line}");
        let (operation, wrong) = error.split_once(": ").expect("an operation and its error");
        let opcode = meaning(operation, OPERATIONS);
        let what = match opcode {
            "SEND_WITH_INV" => "INVALIDATE",
            _ => meaning(wrong, ERRORS),
        };
        out.push_str(&format!(
            "{{ \"{error}\", IBV_WR_{opcode}, {what}, {{ {asking} }}, {{ {ways} }} }},\n"
        ));
    }
    assert!(out.lines().count() > 15, "{out}");
    out
}
