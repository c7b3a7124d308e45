// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs below `iwarp run` with two devices, like a RoCE card on one interface and like an RNIC
//! on another.

use std::fs;

use crate::common::{command, stderr, stdout};

/// An interface beside lo.
pub(super) fn other() -> String {
    // Interfaces of this network; /sys may be another's.
    let interfaces = fs::read_to_string("/proc/net/dev").expect("interfaces");
    let names =
        interfaces.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.filter(|name| *name != "lo").min().expect("an interface beside lo").to_owned()
}

/// Devices on an interface beside lo, and on lo.
fn devices() -> String {
    format!("mlx5_0={}:roce:speed=40,siw0=lo:iwarp", other())
}

/// The output of a script below `iwarp run` with these devices.
pub(super) fn said_with(devices: &str, script: &str) -> String {
    let mut command = command(&["run", "--devices", devices, "--", "bash", "-ec", script]);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn said(script: &str) -> String {
    said_with(&devices(), script)
}

#[test]
fn each_is_shown_as_what_it_is() {
    let text = said("ibv_devinfo -v");
    let (roce, rnic) = text.split_once("hca_id:\tsiw0").expect("the second device");
    for (shown, device) in [
        (["InfiniBand (0)", "10.0 Gbps (4)", "RC_RNR_NAK_GEN", "RoCE v2"], roce),
        (["iWARP (1)", "25.0 Gbps (32)", "0000:ffff:7f00:0001", "RoCE v1"], rnic),
    ] {
        for part in shown {
            assert!(device.contains(part), "{part} is not in {device}");
        }
    }
    assert!(!rnic.contains("RC_RNR_NAK_GEN") && !rnic.contains("RoCE v2"), "{rnic}");
    assert!(!roce.contains("RoCE v1"), "{roce}");

    let files = "cd /sys/class/infiniband; for d in mlx5_0 siw0; do cat $d/node_type \
        $d/ports/1/rate $d/ports/1/gid_attrs/types/0 $d/ports/1/gid_attrs/ndevs/0; done";
    let lines = said(files);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[..3], ["1: CA", "40 Gb/sec (4X QDR)", "RoCE v2"]);
    assert_eq!(lines[4..], ["4: RNIC", "100 Gb/sec (4X EDR)", "IB/RoCE v1", "lo"]);

    let links = said("rdma dev; rdma link");
    for part in ["mlx5_0: node_type ca", "siw0: node_type rnic", "link siw0/1 state ACTIVE"] {
        assert!(links.contains(part), "{links}");
    }
    // The command needs no libraries for it.
    let ours = command(&["devinfo", "--json"]).env("IWARP_DEVICES", devices()).output();
    let ours = stdout(&ours.expect("the command runs"));
    assert!(ours.contains("\"mlx5_0\"") && ours.contains("\"siw0\""), "{ours}");
}

/// rping runs over the RNIC while ib_write_bw runs over the RoCE card.
#[test]
fn programs_use_both_at_once() {
    let text = said(
        "far=$(ibv_devinfo -v -d mlx5_0 | sed -n 's/.*GID.*::ffff:\\([0-9.]*\\),.*/\\1/p' | head -1)
        rping -s -a 127.0.0.1 -p 17174 -C 20 & ping=$!
        ib_write_bw -d mlx5_0 -x 0 -p 17175 -s 4096 -n 1000 >/dev/null & bandwidth=$!
        rping -c -a 127.0.0.1 -p 17174 -C 20 -v | tail -1
        ib_write_bw -d mlx5_0 -x 0 -p 17175 -s 4096 -n 1000 $far
        wait $ping; wait $bandwidth; echo both",
    );
    assert!(text.contains("ping data: rdma-ping-19") && text.ends_with("both\n"), "{text}");
    assert!(text.contains("mlx5_0"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("4096 ")), "{text}");
}

#[test]
fn words_that_make_no_sense_are_refused() {
    for devices in ["a:roce:iwarp", "a=lo:infiniband", "a:speed=56", "a:wire=tcp"] {
        let output = command(&["run", "--devices", devices, "--", "true"]).output();
        let output = output.expect("the command runs");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.starts_with(&format!("iwarp run: IWARP_DEVICES={devices}: ")), "{text}");
    }
}
