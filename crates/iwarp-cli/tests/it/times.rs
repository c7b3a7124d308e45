// SPDX-License-Identifier: MIT OR Apache-2.0

//! The times of requests of a program that runs: taken while somebody watches.

use serde_json::Value;

use crate::common::busy::Busy;
use crate::common::{messages, run, stdout};

#[test]
fn half_and_nearly_all_requests_are_within_a_time() {
    let busy = Busy::start(&[]);
    let numbers = |more: &[&str]| {
        let text = stdout(&run(&[&["statistic", "-j", "-p", &busy.pid()][..], more].concat()));
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list[0].clone()
    };
    // A minute is what no request takes.
    let moved = numbers(&["--rates", "1"]);
    let time = |name: &str| moved[name].as_u64().unwrap_or_else(|| panic!("{name} in {moved}"));
    let (half, most) = (time("tx_p50_ns"), time("tx_p99_ns"));
    assert!(0 < half && half <= most && most < 60_000_000_000, "{moved}");
    assert_eq!(numbers(&[])["tx_p50_ns"], Value::Null);
    // It goes on, and the operations, which were not to be counted, are not shown.
    let before = messages(&busy.pid(), 0);
    messages(&busy.pid(), before + 11);
    let text = stdout(&run(&["resource", "--json", "--pid", &busy.pid()]));
    assert!(!text.contains("counters"), "{text}");
}

#[test]
fn top_and_metrics_show_times() {
    let busy = Busy::start(&[]);
    let pid = busy.pid();
    let table = stdout(&run(&["top", "--batch", "1"]));
    let is_own = |line: &&str| line.split_whitespace().next() == Some(&*pid);
    let line = table.lines().find(is_own).unwrap_or_else(|| panic!("{pid} in {table}"));
    // PID PROGRAM QP STATE WAY REQ/s B/s MSG/s P50 P99
    let cells: Vec<_> = line.split_whitespace().collect();
    assert!(cells[8..10].iter().all(|cell| cell.ends_with('s')), "{line}");
    let text = stdout(&run(&["metrics", "--times"]));
    let all = format!("iwarp_send_request_seconds_bucket{{pid=\"{pid}\"");
    let is_all = |line: &&str| line.starts_with(&all) && line.contains("le=\"+Inf\"");
    let line = text.lines().find(is_all).unwrap_or_else(|| panic!("{pid} in {text}"));
    let count = line.rsplit(' ').next().expect("a word").parse::<u64>();
    assert!(count.is_ok_and(|count| count > 0), "{line}");
}
