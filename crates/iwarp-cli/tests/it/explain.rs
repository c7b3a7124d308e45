// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp explain`, as a user runs it.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::common::{command, run, stderr, stdout};

/// A capture in which a Read of an unknown STag is refused.
const REFUSED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../iwarp-proto/tests/data/pcap/ref_nomarkers.pcap");

#[test]
fn a_capture_is_explained() {
    let output = run(&["explain", REFUSED]);
    assert_eq!(output.status.code(), Some(0), "what is in the capture does not matter");
    let text = stdout(&output);
    let verdict = text.lines().last().unwrap();
    assert!(verdict.contains("invalid STag"), "{text}");
    assert!(!text.contains("MPA Request: revision"));
    let frames = stdout(&run(&["explain", "--frames", REFUSED]));
    assert!(frames.contains("MPA Request: revision 2"), "{frames}");
}

#[test]
fn the_facts_are_json_and_a_page() {
    let folder = tempfile();
    let page = folder.join("page.html");
    let output = run(&["explain", "--json", "--html", page.to_str().unwrap(), REFUSED]);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["connections"][0]["verdict"]["kind"], "terminate");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg class=\"line\""));
    for outside in ["http:", "https:", "src=", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_capture_may_come_by_standard_input() {
    let mut child =
        command(&["explain", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(REFUSED).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(stdout(&output), stdout(&run(&["explain", REFUSED])));
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_the_reason() {
    for (file, reason) in [
        ("/nonexistent.pcap", "cannot open /nonexistent.pcap"),
        ("/dev/null", "it is empty"),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "it is not a capture"),
    ] {
        let output = run(&["explain", file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}

/// A folder of this test's own.
fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("iwarp-explain-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}
