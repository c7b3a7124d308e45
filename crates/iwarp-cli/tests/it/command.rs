//! The command itself, as a user runs it.

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
    assert!(text.contains("::ffff:127.0.0.1 (lo)"), "no loopback address in:\n{text}");
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
    for command in ["demo", "devinfo", "perf", "rping", "run"] {
        let text = stdout(&run(&[command, "--help"]));
        assert!(text.contains(&format!("\n  iwarp {command}")), "no example in:\n{text}");
    }
    let text = stdout(&run(&["--help"]));
    assert!(text.contains("iwarp demo") && !text.contains("demo-server"), "{text}");
}

#[test]
fn an_environment_that_makes_no_sense_is_refused() {
    let output =
        common::command(&["devinfo"]).env("IWARP_CRC", "perhaps").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("IWARP_CRC=perhaps"), "{text}");
}
