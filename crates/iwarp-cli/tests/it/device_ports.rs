// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs below `iwarp run` on a device with two ports.

use serde_json::Value;

use crate::common::{command, stderr, stdout};
use crate::devices::{other, said_with};

/// A device with a port on an interface beside lo, and one on lo.
fn device() -> String {
    format!("mlx4_0={}+lo:roce", other())
}

fn said(script: &str) -> String {
    said_with(&device(), script)
}

#[test]
fn programs_see_both_ports() {
    let text = said("ibv_devinfo -v -d mlx4_0");
    let (device, ports) = text.split_once("port:\t1").expect("the first port");
    let (one, two) = ports.split_once("port:\t2").expect("the second port");
    assert!(device.contains("phys_port_cnt:\t\t\t2\n"), "{device}");
    let localhost = "::ffff:127.0.0.1,";
    assert!(two.contains(localhost) && !one.contains(localhost), "{text}");
    assert!([one, two].iter().all(|port| port.contains("PORT_ACTIVE")), "{text}");
    let chosen = said("ibv_devinfo -d mlx4_0 -i 2");
    assert!(chosen.contains("port:\t2") && !chosen.contains("port:\t1"), "{chosen}");
}

#[test]
fn the_files_of_each_port_are_there() {
    let other = other();
    let files = "cd /sys/class/infiniband/mlx4_0/ports; for p in *; do echo $p $(cat $p/state \
        $p/lid $p/gid_attrs/ndevs/0 $p/pkeys/0 $p/counters/port_rcv_errors \
        $p/hw_counters/lifespan); done; ls ../device/net";
    let text = said(files);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("1 4: ACTIVE 0x") && lines[0].contains(&other), "{text}");
    assert!(lines[1].starts_with("2 4: ACTIVE 0x1 lo 0xffff "), "{text}");
    // As for a device on lo: it is no interface of a card.
    assert_eq!(lines[2..], [&*other]);
}

#[test]
fn links_and_counters_are_those_of_each_port() {
    let text = said(
        "rdma dev; rdma link; rdma statistic show link mlx4_0/2; \
        ! rdma link show mlx4_0/3 2>/dev/null",
    );
    for (port, interface) in [(1, &*other()), (2, "lo")] {
        let line = text.lines().find(|line| line.starts_with(&format!("link mlx4_0/{port} ")));
        let line = line.unwrap_or_else(|| panic!("no port {port} in {text}"));
        assert!(line.contains(&format!("netdev {interface}")), "{line}");
    }
    assert!(text.contains("link mlx4_0/2 rx_bytes"), "{text}");
}

/// The queue pairs of a program are listed with their ports.
#[test]
fn objects_say_their_port() {
    let text = said(
        "ibv_rc_pingpong -d mlx4_0 -i 2 -g 0 -p 17276 >/dev/null & server=$!
        until found=$(rdma resource show qp link mlx4_0/2 | grep RC); do kill -0 $server; done
        rdma resource show qp link mlx4_0/1 | grep RC && exit 1
        ibv_rc_pingpong -d mlx4_0 -i 2 -g 0 -p 17276 127.0.0.1 >/dev/null
        wait $server; echo $found",
    );
    assert!(text.contains("link mlx4_0/2 "), "{text}");
}

#[test]
fn programs_choose_a_port() {
    let text = said(
        "far=$(ibv_devinfo -v -d mlx4_0 -i 1 | sed -n 's/.*GID.*::ffff:\\([0-9.]*\\),.*/\\1/p' |
            head -1)
        for to in \"1 $far\" '2 127.0.0.1'; do
            set -- $to
            for more in '' -R; do
                ib_write_bw -d mlx4_0 -i $1 -x 0 -p 17275 -s 4096 -n 500 $more >/dev/null &
                server=$!
                until ss -ltn | grep -q :17275 || [ -n \"$more\" ]; do :; done
                ib_write_bw -d mlx4_0 -i $1 -x 0 -p 17275 -s 4096 -n 500 $more $2
                wait $server
            done
        done",
    );
    let rows = text.lines().filter(|line| line.trim_start().starts_with("4096 ")).count();
    assert_eq!(rows, 4, "{text}");
}

#[test]
fn the_command_shows_both_ports() {
    let shown = |args: &[&str]| {
        let output = command(args).env("IWARP_DEVICES", device()).output();
        let output = output.expect("the command runs");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = shown(&["devinfo"]);
    assert!(text.contains("port:   1\n") && text.contains("port:   2\n"), "{text}");
    let all: Value = serde_json::from_str(&shown(&["devinfo", "--json"])).expect("JSON");
    assert_eq!(all[0]["phys_port_cnt"], 2);
    let ports = all[0]["ports"].as_array().expect("a list");
    assert_eq!(
        ports.iter().map(|port| port["port"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(ports[1]["gids"][0]["interface"], "lo");
    assert_eq!(ports[1]["port_lid"], 1);
}

#[test]
fn ports_that_make_no_sense_are_refused() {
    for devices in ["a=lo+lo", "a=lo+no-such-if", "a=lo+", "a=+lo"] {
        let output = command(&["run", "--devices", devices, "--", "true"]).output();
        let output = output.expect("the command runs");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.starts_with(&format!("iwarp run: IWARP_DEVICES={devices}: ")), "{text}");
    }
}
