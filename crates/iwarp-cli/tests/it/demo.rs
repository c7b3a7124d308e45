// SPDX-License-Identifier: MIT OR Apache-2.0

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
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(text.contains("CRC32c on, markers off"), "{text}");
    assert!(text.contains("lends 64 MiB"), "{text}");
    for place in ["over TCP", "in shared memory"] {
        assert!(text.contains(&format!("\nHow fast {place}")), "{text}");
    }
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
        .env("IWARP_LOCAL", "off")
        .output()
        .expect("the command runs");
    let text = stdout(&output);
    assert!(output.status.success(), "{}\n{text}", stderr(&output));
    assert!(text.contains("MPA revision 1, CRC32c off"), "{text}");
    assert!(!text.contains("shared memory"), "{text}");
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

/// Every operation is there with its calls, its frames and its completions.
#[test]
fn it_explains_what_passes() {
    let output = run(&["demo", "--explain", "--size", "64KiB"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}\n{text}", stderr(&output));
    for what in [
        "client ──▶ server  MPA Request, 24 bytes",
        "client ◀── server  MPA Reply, 44 bytes",
        "Key \"MPA ID Req Frame\"",
        "RDMA Write, hello, 20 bytes",
        "client  post_send   RDMA Write, ",
        "ibv_post_send, IBV_WR_RDMA_READ, wr_id 2",
        "Opcode 0x1 (RDMA Read Request)",
        "Opcode 0x2 (RDMA Read Response)",
        "client  completion  RDMA Read, ",
        "server  completion  receive, ",
        "AOpCode 0 (FetchAdd)",
        "AOpCode 2 (CmpSwap)",
        "Original Remote Data Value 41",
        "Immediate Data \"iWARP !!\"",
        "end of the stream (TCP FIN)",
        "= client → server: counter + 1: was 41, is 42",
        "Every result was verified.",
    ] {
        assert!(text.contains(what), "no {what} in:\n{text}");
    }
    // Frames that were recorded with their CRC, and nothing that was not understood.
    assert!(text.matches("(right)").count() >= 13, "{text}");
    assert!(!text.contains("not seen to arrive") && !text.contains("unknown"), "{text}");
    // Addresses and keys aside, no line is longer than where there is no terminal.
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{longest:?} columns:\n{text}");
}

#[test]
fn it_explains_markers_and_a_stream_without_crc() {
    let arguments = ["demo", "--explain", "--size", "64KiB", "--markers", "--crc", "off"];
    let text = stdout(&run(&arguments));
    for what in ["M 1 (wants markers)", "Marker, FPDUPTR", "(not used)", "Opcode 0x3 (Send)"] {
        assert!(text.contains(what), "no {what} in:\n{text}");
    }
    assert!(!text.contains("(right)") && text.contains("Every result was verified."), "{text}");
}

/// The story of a run that fails is told up to there.
#[test]
fn it_explains_how_far_it_came() {
    let output = common::command(&["demo", "--explain", "--size", "64KiB"])
        .env("IWARP_EXTENSIONS", "refuse")
        .output()
        .expect("the command runs");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(stderr(&output).contains("FetchAdd"), "{}", stderr(&output));
    assert!(text.contains("Opcode 0x2 (RDMA Read Response)"), "{text}");
    assert!(!text.contains("Opcode 0xb") && !text.contains("verified"), "{text}");
}

#[test]
fn a_page_shows_the_same_and_needs_nothing_else() {
    let file = std::env::temp_dir().join(format!("iwarp-demo-{}.html", std::process::id()));
    let path = file.to_str().expect("text");
    demo(&["demo", "--html", path, "--size", "64KiB"]);
    let page = std::fs::read_to_string(&file).expect("the page is there");
    std::fs::remove_file(&file).expect("it is ours");
    for what in [
        "<meta name=\"viewport\"",
        "prefers-color-scheme: dark",
        "max-width: 640px",
        "<h2>RDMA Read</h2>",
        "<b>MPA Request</b>",
        "<b>post_send</b><small>FetchAdd, 8 bytes</small>",
        "<dt>RDMARDSZ</dt>",
        "<dt>Original Remote Data Value</dt>",
        "ibv_post_send, IBV_WR_ATOMIC_CMP_AND_SWP",
    ] {
        assert!(page.contains(what), "no {what} in:\n{page}");
    }
    for outside in ["src=", "href=", "http:", "https:", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Opened tags are closed.
    for tag in ["details", "summary", "section", "div", "span", "svg", "dl", "dt", "dd", "p", "b"] {
        let opened = page.matches(&format!("<{tag}>")).count();
        let opened = opened + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        assert!(opened > 0, "{tag}");
    }
    // One line for each frame: two of start-up, a hello each way, and those of the operations.
    assert!(page.matches("class=\"row frame").count() >= 25, "{page}");
}

#[test]
fn a_page_that_cannot_be_written_is_found_out_first() {
    let output = run(&["demo", "--html", "/nowhere/at/all.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("cannot write /nowhere/at/all.html"), "{}", stderr(&output));
}
