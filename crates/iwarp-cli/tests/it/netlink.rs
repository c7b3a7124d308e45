// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma` of iproute2 below `iwarp run`: it asks for devices by netlink.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{command, stderr, stdout};

/// The output for devices that are named.
fn rdma(personality: &str, arguments: &[&str]) -> String {
    let mut command = command(&["run", "--personality", personality, "--devices", "a,b=lo"]);
    let output = command.arg("rdma").args(arguments).output().expect("the command runs");
    let said = stderr(&output);
    assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    stdout(&output)
}

fn json(personality: &str, arguments: &[&str]) -> Value {
    let text = rdma(personality, &[&["-j"], arguments].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn devices_and_links_are_listed() {
    let text = rdma("roce", &["link", "show"]);
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("link a/1 state ACTIVE physical_state LINK_UP netdev "), "{text}");
    assert_eq!(lines[1..], ["link b/1 state ACTIVE physical_state LINK_UP netdev lo"]);
    let text = rdma("roce", &["link", "show", "b/1"]);
    assert_eq!(text.lines().count(), 1, "{text}");

    let text = rdma("roce", &["dev", "show"]);
    let first = text.lines().next().expect("a device");
    assert!(first.starts_with("0: a: node_type ca "), "{text}");
    assert!(first.contains(" node_guid ") && first.contains(" sys_image_guid "), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let text = rdma("iwarp", &["dev", "show", "b"]);
    assert!(text.starts_with("1: b: node_type rnic "), "{text}");

    let links = json("roce", &["link"]);
    assert_eq!((&links[0]["ifname"], &links[0]["port"]), (&"a".into(), &1.into()), "{links}");
    assert_eq!((&links[1]["state"], &links[1]["netdev"]), (&"ACTIVE".into(), &"lo".into()));
    let devices = json("roce", &["dev"]);
    assert_eq!(devices[1]["ifname"], "b", "{devices}");
    // GUIDs are those that are in /sys.
    let script = "cat /sys/class/infiniband/b/node_guid";
    let mut command = command(&["run", "--devices", "a,b=lo", "--", "sh", "-c", script]);
    let output = stdout(&command.output().expect("the command runs"));
    let digits = |text: &str| text.trim().replace(':', "");
    let guid = devices[1]["node_guid"].as_str().expect("a GUID");
    assert_eq!(digits(guid), digits(&output));
}

#[test]
fn resources_counters_and_the_system_are_told() {
    let text = rdma("roce", &["resource"]);
    assert!(text.starts_with("0: a: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0"), "{text}");
    for kind in ["qp", "cq", "mr", "pd", "cm_id"] {
        assert_eq!(rdma("roce", &["resource", "show", kind]), "");
    }
    let counters = json("roce", &["statistic", "show", "link", "b/1"]);
    let counter = |name: &str| counters[0][name].as_u64();
    assert!(counter("sent_pkts").is_some() && counter("tx_bytes").is_some(), "{counters}");
    assert!(rdma("roce", &["system"]).starts_with("netns shared"));
    assert_eq!(rdma("roce", &["statistic", "qp", "show"]), "");
}

/// The objects of a process count for as long as it lives, and are in order when it is killed.
#[test]
fn objects_of_live_processes_are_counted() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("netlink-objects");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a directory for the test");
    let run = |arguments: &[&str]| {
        let mut command = command(&["run", "--devices", "a=lo,b=lo", "--"]);
        command.args(arguments).env("XDG_RUNTIME_DIR", &place);
        command
    };
    let counts = || {
        let output = run(&["rdma", "-j", "resource"]).output().expect("the command runs");
        let text = stdout(&output);
        let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let of = |device: usize| {
            ["ctx", "pd", "cq", "qp", "mr"].map(|kind| all[device][kind].as_u64().expect("a count"))
        };
        (of(0), of(1))
    };
    assert_eq!(counts(), ([0; 5], [0; 5]));
    // It waits for its client, with these.
    let server = ["ibv_rc_pingpong", "-d", "b", "-g", "0", "-p", "0"];
    let mut child = run(&server).stdout(Stdio::null()).spawn().expect("the command runs");
    let deadline = Instant::now() + Duration::from_secs(20);
    while counts() != ([0; 5], [1; 5]) {
        let ended = child.try_wait().expect("it is this process's");
        assert!(ended.is_none() && Instant::now() < deadline, "{ended:?} {:?}", counts());
    }
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    assert_eq!(counts(), ([0; 5], [0; 5]));
    fs::remove_dir_all(&place).expect("it is there");
}

/// The program says itself why.
#[test]
fn requests_that_no_device_here_can_do_are_refused() {
    let mut command =
        command(&["run", "--devices", "a", "--", "rdma", "dev", "set", "a", "name", "b"]);
    let output = command.output().expect("the command runs");
    assert!(!output.status.success());
    let said = stderr(&output).to_lowercase();
    assert!(said.contains("not supported"), "{said}");
}
