//! `iwarp demo` from end to end.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::{run, stderr, stdout};

/// Runs the demo and checks that every operation and every measurement is there.
fn demo(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = stdout(&output);
    assert!(output.status.success(), "{}\n{text}", stderr(&output));
    for what in ["Send", "RDMA Write", "RDMA Read", "FetchAdd", "CompareSwap", "Immediate Data"] {
        assert!(text.contains(&format!("\n  {what} ")), "no {what} in:\n{text}");
    }
    assert!(text.contains("was 41, is 42"), "{text}");
    assert!(text.contains("Every result was verified."), "{text}");
    assert!(!text.contains('\u{1b}'), "colours where nobody sees them:\n{text}");
    text
}

#[test]
fn it_works_within_seconds() {
    let start = Instant::now();
    let text = demo(&["demo"]);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(text.contains("CRC32c on, markers off"), "{text}");
    assert!(text.contains("lends 64 MiB"), "{text}");
}

#[test]
fn it_works_without_crc_and_with_markers() {
    let text = demo(&["demo", "--crc", "off", "--markers", "--size", "3000001"]);
    assert!(text.contains("CRC32c off, markers on"), "{text}");
}

#[test]
fn the_environment_counts_too() {
    let output = common::command(&["demo", "--size", "64KiB"])
        .env("IWARP_CRC", "off")
        .env("IWARP_MPA_REVISION", "1")
        .output()
        .expect("the command runs");
    let text = stdout(&output);
    assert!(output.status.success(), "{}\n{text}", stderr(&output));
    assert!(text.contains("MPA revision 1, CRC32c off"), "{text}");
}

#[test]
fn an_operation_that_fails_is_named_and_the_status_says_so() {
    let output = common::command(&["demo", "--size", "64KiB"])
        .env("IWARP_EXTENSIONS", "refuse")
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("FetchAdd"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("verified"), "{}", stdout(&output));
}
