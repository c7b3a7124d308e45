// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs below `iwarp run` on a device with two ports.

use std::process::Command;

use serde_json::Value;

use crate::common::{command, stderr, stdout};
use crate::devices::{other, said_with};
use crate::run::Scratch;

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

/// Two processes whose queue pairs meet on a port of a device.
fn meet(device: &str, number: u8, port: u16) -> String {
    let pingpong = format!("ibv_rc_pingpong -d {device} -i {number} -g 0 -p {port} -n 100000000");
    format!(
        "{pingpong} >/dev/null & server=$!
        until ss -ltn | grep -q :{port}; do kill -0 $server || exit 1; done
        {pingpong} 127.0.0.1 >/dev/null & client=$!",
    )
}

/// The output of a script that runs when there is traffic on a port, beside which no other process
/// counts anything.
fn said_meanwhile(devices: &str, wire: &str, busy: &str, traffic: &str, script: &str) -> String {
    let script = format!(
        "cd /sys/class/infiniband
        ours() {{ cat {busy}/$1; }}
        await() {{
            until test $(ours $1) -gt $2; do kill -0 $server && kill -0 $client || exit 1; done
        }}
        {traffic}
        await hw_counters/tx_bytes 1000; await counters/port_rcv_data 250
        await hw_counters/rx_pkts 10; await counters/port_xmit_packets 10
        if [ $IWARP_WIRE = roce ]; then
            await hw_counters/sent_pkts 10; await hw_counters/rcvd_pkts 10
        fi
        {script}
        kill -9 $server $client",
    );
    let scratch = Scratch::new(&format!("counted-{wire}"));
    let options = ["run", "--devices", devices, "--", "timeout", "60", "bash", "-c", &script];
    let output = command(&options)
        .env("XDG_RUNTIME_DIR", scratch.directory("run", 0o700))
        .env("IWARP_WIRE", wire)
        .output()
        .expect("the command runs");
    let text = stdout(&output);
    assert!(!text.is_empty(), "{busy} of {devices}, {wire}: {}", stderr(&output));
    text
}

/// Over TCP and over UDP, of ids and of queue pairs that meet without them.
#[test]
fn traffic_counts_on_its_own_port() {
    let ids = |address: &str, port: u16| {
        format!(
            "rping -s -a {address} -p {port} >/dev/null & server=$!
            rping -c -a {address} -p {port} -C 100000000 >/dev/null & client=$!",
        )
    };
    let far = "far=$(ibv_devinfo -v -d mlx4_0 -i 1 | sed -n 's/.*::ffff:\\([0-9.]*\\),.*/\\1/p' |
        head -1)";
    for (wire, port) in [("iwarp", 17_281), ("roce", 17_285)] {
        for (busy, idle, traffic) in [
            (2, 1, ids("127.0.0.1", port)),
            (1, 2, format!("{far}\n{}", ids("$far", port + 1))),
            (2, 1, meet("mlx4_0", 2, port + 2)),
            (1, 2, meet("mlx4_0", 1, port + 3)),
        ] {
            let script = format!(
                "echo $(cat mlx4_0/ports/{idle}/hw_counters/{{tx,rx,sent,rcvd}}_{{bytes,pkts}} \
                    mlx4_0/ports/{idle}/counters/port_{{xmit,rcv}}_data 2>/dev/null)
                for port in {busy} {idle}; do
                    rdma statistic show link mlx4_0/$port | grep -o 'tx_bytes [0-9]'
                done",
            );
            let ours = format!("mlx4_0/ports/{busy}");
            let text = said_meanwhile(&device(), wire, &ours, &traffic, &script);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines[0], lines[2]), ("0 0 0 0 0 0 0 0", "tx_bytes 0"), "{traffic}");
            assert_ne!(lines[1], lines[2], "{traffic}");
        }
    }
}

/// Only the start of a stream, which has no queue pair yet, counts on all that have its address.
#[test]
fn traffic_counts_on_the_device_of_its_queue_pair() {
    let traffic = meet("b", 1, 17_289);
    let script = "cat a/ports/1/hw_counters/tx_bytes";
    let text = said_meanwhile("a=lo,b=lo", "iwarp", "b/ports/1", &traffic, script);
    assert!(text.trim().parse::<u64>().expect("a number") < 1000, "{text}");
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

/// Two interfaces in one subnet: the routes take the first for all of it.
#[test]
fn packets_leave_by_the_interface_of_their_device() {
    let host = r#"
        unshare --net tail -f /dev/null >/dev/null 2>&1 & far=$!; trap "kill $far" EXIT
        until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
        there="nsenter --target $far --net"
        ip link set lo up; $there ip link set lo up
        for n in 0 1; do
            ip link add a$n type veth peer name b$n netns $far
            ip addr add 198.51.100.1$n/24 dev a$n; ip addr add 2001:db8::1$n/64 dev a$n nodad
            $there ip addr add 198.51.100.2$n/24 dev b$n
            $there ip addr add 2001:db8::2$n/64 dev b$n nodad
            ip link set a$n up; $there ip link set b$n up
            until ip link show a$n | grep -q 'state UP' && $there ip link show b$n |
                grep -q 'state UP'; do :; done
        done
        sent() { sed -n "s/^ *$1: *//p" /proc/net/dev | awk '{ print $10 }'; }
        on() { timeout 20 "$IWARP" run --devices mlx4_0=$1:roce:wire=roce -- "${@:2}"; }
        index() { on $1 ibv_devinfo -v | sed -n "s/.*GID\[ *\([0-9]*\)\].*[: \t]$2.*/\1/p"; }
        export -f on index
        for family in 198.51.100. 2001:db8::; do
            gid=$(index a1 $family)
            $there bash -c "on b1 ibv_rc_pingpong -g $gid -n 2000" >/dev/null & server=$!
            until $there ss -ltn | grep -q :18515; do kill -0 $server; done
            before="$(sent a0) $(sent a1)"
            on a1 ibv_rc_pingpong -g $gid -n 2000 198.51.100.21 >/dev/null
            wait $server
            set -- $before
            echo $(($(sent a0) - $1 < 500)) $(($(sent a1) - $2 > 2000))
        done
        # Its own host's addresses are as near as before.
        on a1 bash -ec 'ibv_rc_pingpong -g 0 -n 100 >/dev/null & server=$!
            until ss -ltn | grep -q :18515; do kill -0 $server; done
            ibv_rc_pingpong -g 0 -n 100 198.51.100.11 | tail -1; wait $server'
        # So is a host to which the routes have no way by the interface.
        $there ip addr add 203.0.113.1/32 dev lo
        ip route add 203.0.113.1 via 198.51.100.20
        far_gid=$($there bash -c 'index lo 203.0.113.1')
        $there bash -c "on lo ibv_rc_pingpong -g $far_gid" | tail -1 & server=$!
        until $there ss -ltn | grep -q :18515; do kill -0 $server; done
        on a1 ibv_rc_pingpong -g $(index a1 198.51.) 203.0.113.1 | tail -1
        wait $server"#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "timeout", "60", "bash", "-ec", host])
        .env("IWARP", env!("CARGO_BIN_EXE_iwarp"))
        .output()
        .expect("unshare: apt-get install util-linux");
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["1 1"; 2], "{text}");
    assert!(lines.len() == 5 && lines[2..].iter().all(|line| line.contains("iters in")), "{text}");
}
