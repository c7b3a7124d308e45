// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command itself, as a user runs it.

use std::process::Stdio;

use crate::common;
use crate::common::{run, stdout};

#[test]
fn devinfo_shows_the_device() {
    let output = run(&["devinfo"]);
    assert!(output.status.success());
    let text = stdout(&output);
    for (name, value) in [
        ("hca_id:", "roce0"),
        ("transport:", "InfiniBand (0)"),
        ("phys_port_cnt:", "1"),
        ("local_path:", "auto (shared memory)"),
        ("state:", "PORT_ACTIVE (4)"),
        ("link_layer:", "Ethernet"),
    ] {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in:\n{text}"));
        assert_eq!(line.trim_start().trim_start_matches(name).trim(), value);
    }
    assert!(!text.contains("GID["));
}

#[test]
fn devinfo_shows_limits_and_addresses_when_asked_to() {
    let text = stdout(&run(&["devinfo", "-v"]));
    for name in ["max_qp:", "max_sge:", "max_mr_size:", "max_srq_wr:", "gid_tbl_len:"] {
        assert!(text.contains(name), "{name} is not in:\n{text}");
    }
    assert!(text.contains("::ffff:127.0.0.1, RoCE v2 (lo"), "no loopback address in:\n{text}");
}

#[test]
fn unknown_arguments_are_refused() {
    for arguments in [
        &["no-such-command"][..],
        &["demo", "--no-such-option"],
        &["demo", "--crc", "perhaps"],
        &["demo", "--size", "3 apples"],
        &["demo", "--size", "1"],
        &["devinfo", "surplus"],
        &["rping"],
        &["rping", "-s", "-c", "-a", "127.0.0.1"],
        &["rping", "-c"],
        &["rping", "-s", "-S", "22"],
        &["rping", "-s", "-S", "65537"],
        &["rping", "-s", "-p", "65536"],
        &["rping", "-s", "-I", "127.0.0.1"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} is refused without a word");
    }
}

#[test]
fn help_has_an_example_for_every_command() {
    for command in [
        "capture",
        "demo",
        "devinfo",
        "metrics",
        "perf",
        "ps",
        "resource",
        "rping",
        "run",
        "set",
        "statistic",
        "top",
        "why",
    ] {
        let text = stdout(&run(&[command, "--help"]));
        assert!(text.contains(&format!("\n  iwarp {command}")), "no example in:\n{text}");
    }
    let text = stdout(&run(&["--help"]));
    assert!(text.contains("iwarp demo") && !text.contains("demo-server"), "{text}");
}

#[test]
fn an_environment_that_makes_no_sense_is_refused() {
    for command in ["devinfo", "demo"] {
        let output =
            common::command(&[command]).env("IWARP_CRC", "perhaps").output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let text = common::stderr(&output);
        assert_eq!(text, format!("iwarp {command}: IWARP_CRC=perhaps: expected on or off\n"));
    }
}

/// The commands that print much on standard output.
const TALKATIVE: [&[&str]; 5] = [
    &["demo", "--size", "64KiB"],
    &["devinfo", "-v"],
    &["devinfo", "--json"],
    &["--help"],
    &["help", "perf"],
];

#[test]
fn a_reader_that_goes_away_ends_the_command_without_a_word() {
    for arguments in TALKATIVE {
        let mut process = common::command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(process.stdout.take());
        // Its own processes have the pipe open as well: this ends when all have.
        let output = process.wait_with_output().expect("it ends");
        let text = common::stderr(&output);
        assert_eq!(text, "", "{arguments:?}");
        assert!([Some(0), Some(141)].contains(&output.status.code()), "{:?}", output.status);
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let output = common::command(&["devinfo"]).stdout(full).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = common::stderr(&output);
    assert!(text.starts_with("iwarp: cannot write to standard output: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_misspelt_variable_is_named_once_with_what_was_meant() {
    for arguments in
        [&["devinfo"][..], &["demo", "--size", "64KiB"], &["rping", "-s", "-a", "192.0.2.1"]]
    {
        let output = common::command(arguments)
            .env("IWARP_PERSONALTY", "roce")
            .env("IWARP_COLOUR", "blue")
            .output()
            .expect("it runs");
        let text = common::stderr(&output);
        let guess = text.matches("did you mean IWARP_PERSONALITY?").count();
        let plain = text.matches("IWARP_COLOUR is not a variable").count();
        assert_eq!((guess, plain), (1, 1), "{arguments:?}: {text}");
    }
}

#[test]
fn devinfo_speaks_json_too() {
    let output = run(&["devinfo", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(all[0]["hca_id"], "roce0");
    assert_eq!(all[0]["max_sge"], 32);
    assert_eq!(all[0]["ports"][0]["state"], "PORT_ACTIVE");
    let gids = all[0]["ports"][0]["gids"].as_array().expect("a table");
    assert!(gids.iter().any(|gid| gid["interface"] == "lo"), "{gids:?}");
}

#[test]
fn devinfo_says_whether_connections_could_move_to_shared_memory() {
    for (variables, shown, works) in [
        (&[("IWARP_LOCAL", "require")][..], "require (shared memory)", true),
        (&[("IWARP_LOCAL", "off")], "off (TCP)", false),
        (&[("IWARP_EXTENSIONS", "refuse")], "auto (TCP: IWARP_EXTENSIONS keeps", false),
        (&[("IWARP_WIRE", "roce")], "auto (UDP: the connections of this device speak RoCE", false),
    ] {
        let devinfo = |argument: &str| {
            let mut command = common::command(&["devinfo", argument]);
            command.envs(variables.iter().copied()).output().expect("it runs")
        };
        let text = stdout(&devinfo("-v"));
        assert!(text.contains(shown), "{shown} is not in:\n{text}");
        let all: serde_json::Value =
            serde_json::from_slice(&devinfo("--json").stdout).expect("JSON");
        assert_eq!(all[0]["local_path"]["works"], works, "{all}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(&["completions", shell]));
        for command in ["demo", "devinfo", "perf", "rping", "run"] {
            assert!(text.contains(command), "no {command} for {shell}");
        }
        assert!(!text.contains("demo-server"), "{shell} offers what users do not call");
    }
}

/// Programs that read the log get objects.
#[test]
fn the_log_may_be_json() {
    let mut command = common::command(&["devinfo"]);
    command.env("IWARP_COLOUR", "blue").env("IWARP_LOG_FORMAT", "json");
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stderr).expect("text");
    let line = text.lines().find(|line| line.contains("IWARP_COLOUR")).expect("a complaint");
    let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(value["level"], "warn");
    assert_eq!(
        value["message"],
        "IWARP_COLOUR is not a variable of this library and has no effect"
    );
    assert!(value["pid"].is_u64() && value["time"].is_string(), "{value}");
    let wrong = common::command(&["devinfo"]).env("IWARP_LOG_FORMAT", "xml").output();
    let text = String::from_utf8(wrong.expect("it runs").stderr).expect("text");
    assert_eq!(text, "iwarp devinfo: IWARP_LOG_FORMAT=xml: expected text or json\n");
}
