// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs of Debian's rdmacm-utils, perftest and qperf, unmodified, over the connection
//! manager: two processes on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use crate::support;

const LIMIT: Duration = Duration::from_secs(60);
const PERSONALITIES: [&str; 2] = ["iwarp", "roce"];

fn program(name: &str, package: &str) -> PathBuf {
    let path = Path::new("/usr/bin").join(name);
    assert!(path.exists(), "{} is missing: apt-get install {package}", path.display());
    path
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until a process listens on a port of this host. (Trying to connect would be a request.)
fn wait_for_listener(port: u16) {
    const LISTEN: &str = "0A";

    let suffix = format!(":{port:04X}");
    let end = Instant::now() + LIMIT;
    loop {
        let listens = ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            table.lines().skip(1).any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().is_some_and(|addr| addr.ends_with(&suffix));
                local && words.nth(1) == Some(LISTEN)
            })
        });
        if listens {
            return;
        }
        assert!(Instant::now() < end, "nobody listens on port {port}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn said(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
}

/// perftest measures its clock, and ends with an error if other processes interrupt it too
/// unevenly.
fn measures_its_clock(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ib_"))
}

/// Runs a server, then a client; both must succeed, if need be the second time where they measure
/// their clock and could not. `PORT` in arguments is a port that is free.
fn pair(program: &Path, server: &str, client: &str) -> (String, String) {
    let mut last = (String::new(), String::new());
    for personality in PERSONALITIES {
        let run = || pair_once(program, server, client, personality);
        let (mut succeeded, mut both) = run();
        let refused = [&both.0, &both.1].iter().any(|said| said.contains("Correlation coeff"));
        if !succeeded && refused && measures_its_clock(program) {
            println!("again: {} could not measure its clock", program.display());
            (succeeded, both) = run();
        }
        assert!(succeeded, "{personality} {server}: {}\n{client}: {}", both.0, both.1);
        last = both;
    }
    last
}

/// True if both succeed, and their output.
fn pair_once(
    program: &Path,
    server: &str,
    client: &str,
    personality: &str,
) -> (bool, (String, String)) {
    let port = free_port().to_string();
    let run = |text: &str| {
        let text = text.replace("PORT", &port);
        let args: Vec<&str> = text.split_whitespace().collect();
        let env = [("IWARP_PERSONALITY", personality)];
        support::run_program(program, &args, &env, LIMIT)
    };
    let (serving, connecting) = thread::scope(|scope| {
        let serving = scope.spawn(|| run(server));
        wait_for_listener(port.parse().unwrap());
        let connecting = run(client);
        (serving.join().unwrap(), connecting)
    });
    let succeeded = serving.status.success() && connecting.status.success();
    (succeeded, (said(&serving), said(&connecting)))
}

fn rping(options: &str, addr: &str) {
    let program = program("rping", "rdmacm-utils");
    let server = format!("-s -a {addr} -p PORT {options}");
    let client = format!("-c -a {addr} -p PORT {options}");
    pair(&program, &server, &client);
}

#[test]
fn rping_of_every_size_validates() {
    for size in [23, 64, 4000, 65535] {
        rping(&format!("-C 20 -V -S {size}"), "127.0.0.1");
    }
}

#[test]
fn rping_over_ipv6() {
    rping("-C 20 -V", "::1");
}

#[test]
fn rping_prints() {
    let program = program("rping", "rdmacm-utils");
    let options = "-a 127.0.0.1 -p PORT -v -C 2";
    let (server, client) = pair(&program, &format!("-s {options}"), &format!("-c {options}"));
    assert!(server.contains("server ping data: rdma-ping-1: BCDEF"), "{server}");
    assert!(client.contains("ping data: rdma-ping-1: BCDEF"), "{client}");
}

#[test]
fn rping_with_a_queue_pair_of_its_own() {
    rping("-C 10 -V -q", "127.0.0.1");
}

/// A server for many clients, which come and go.
#[test]
fn rping_persistent() {
    let program = program("rping", "rdmacm-utils");
    let port = free_port().to_string();
    let mut server = std::process::Command::new(&program)
        .args(["-s", "-P", "-a", "127.0.0.1", "-p", &port])
        .env("LD_LIBRARY_PATH", support::libraries())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for_listener(port.parse().unwrap());
    for _ in 0..5 {
        let args = ["-c", "-a", "127.0.0.1", "-p", &port, "-C", "5", "-V"];
        let client = support::run_program(&program, &args, &[], LIMIT);
        assert!(client.status.success(), "{}", said(&client));
    }
    assert_eq!(server.try_wait().unwrap(), None, "the server has ended");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn rdma_client_and_server() {
    for (server, client) in [("rdma_server", "rdma_client"), ("rdma_xserver", "rdma_xclient")] {
        let (server, client) = (program(server, "rdmacm-utils"), program(client, "rdmacm-utils"));
        let port = free_port();
        let port_text = port.to_string();
        let (serving, connecting) = thread::scope(|scope| {
            let serving =
                scope.spawn(|| support::run_program(&server, &["-p", &port_text], &[], LIMIT));
            wait_for_listener(port);
            let args = ["-s", "127.0.0.1", "-p", &port_text];
            let connecting = support::run_program(&client, &args, &[], LIMIT);
            (serving.join().unwrap(), connecting)
        });
        let both = [said(&serving), said(&connecting)];
        assert!(both[0].contains("end 0") && both[1].contains("end 0"), "{both:?}");
    }
}

#[test]
fn ucmatose_with_many_connections_that_migrate() {
    let program = program("ucmatose", "rdmacm-utils");
    let options = "-p PORT -c 20 -C 10 -m";
    let (_, said) = pair(&program, options, &format!("-s 127.0.0.1 {options}"));
    assert!(said.contains("return status 0"), "{said}");
}

/// Runs a server, and a client until the two have met: nothing shows that a program without streams
/// listens.
fn pair_without_streams(
    (server, client): (&Path, &Path),
    serving: &[&str],
    connecting: &[&str],
    env: &[(&str, &str)],
) -> (String, String) {
    thread::scope(|scope| {
        let served = scope.spawn(|| support::run_program(server, serving, env, LIMIT));
        let connected = loop {
            let output = support::run_program(client, connecting, env, LIMIT);
            if output.status.success() || served.is_finished() {
                break output;
            }
        };
        let served = served.join().unwrap();
        let both = (said(&served), said(&connected));
        let succeeded = served.status.success() && connected.status.success();
        assert!(succeeded, "{env:?} {serving:?}: {}\n{connecting:?}: {}", both.0, both.1);
        both
    })
}

/// Covers: ROCE-170, ROCE-171
#[test]
fn udaddy_on_either_device() {
    let program = program("udaddy", "rdmacm-utils");
    for personality in PERSONALITIES {
        for addr in ["127.0.0.1", "::1"] {
            let env = [("IWARP_PERSONALITY", personality)];
            let programs = (&*program, &*program);
            let (server, client) =
                pair_without_streams(programs, &["-b", addr], &["-s", addr], &env);
            for said in [server, client] {
                assert!(said.contains("return status 0"), "{said}");
            }
        }
    }
}

/// Programs over RoCE v2, whose connections are made by management datagrams.
#[test]
fn programs_over_roce() {
    let env = [("IWARP_PERSONALITY", "roce"), ("IWARP_WIRE", "roce")];
    for (server, client, options, addr) in [
        ("rping", "rping", "-C 20 -V", "127.0.0.1"),
        ("rping", "rping", "-C 20 -V -S 60000", "::1"),
        ("rping", "rping", "-C 20 -V -q", "127.0.0.1"),
        ("ucmatose", "ucmatose", "-c 10", "127.0.0.1"),
        ("rdma_server", "rdma_client", "", "127.0.0.1"),
    ] {
        let port = free_port().to_string();
        let [serving, connecting] = ["-s", "-c"].map(|role| {
            let text = match (server, role) {
                ("rping", _) => format!("{role} -a {addr} -p {port} {options}"),
                (_, "-s") => format!("-p {port} {options}"),
                _ => format!("-s {addr} -p {port} {options}"),
            };
            text.split_whitespace().map(String::from).collect::<Vec<_>>()
        });
        let [serving, connecting] =
            [&serving, &connecting].map(|args| args.iter().map(|arg| &**arg).collect::<Vec<_>>());
        let programs = [server, client].map(|name| program(name, "rdmacm-utils"));
        pair_without_streams((&programs[0], &programs[1]), &serving, &connecting, &env);
    }
}

#[test]
fn perftest_over_the_connection_manager() {
    for (name, options) in [
        ("ib_write_bw", "-n 100"),
        ("ib_write_bw", "-n 100 -q 4 -b"),
        ("ib_read_bw", "-n 100 -s 1048576"),
        ("ib_send_bw", "-n 100"),
        ("ib_send_lat", "-n 100"),
        ("ib_write_lat", "-n 100"),
        ("ib_read_lat", "-n 100"),
        ("ib_atomic_bw", "-n 100"),
    ] {
        let program = program(name, "perftest");
        let options = format!("-R -p PORT {options}");
        pair(&program, &options, &format!("{options} 127.0.0.1"));
    }
}

#[test]
fn qperf_over_the_connection_manager() {
    let program = program("qperf", "qperf");
    let port = free_port().to_string();
    let mut server = std::process::Command::new(&program)
        .args(["-lp", &port])
        .env("LD_LIBRARY_PATH", support::libraries())
        .spawn()
        .unwrap();
    wait_for_listener(port.parse().unwrap());
    let args = [
        "127.0.0.1",
        "-lp",
        &port,
        "-cm",
        "1",
        "-t",
        "1",
        "rc_lat",
        "rc_bw",
        "rc_rdma_write_bw",
        "rc_rdma_read_lat",
    ];
    let client = support::run_program(&program, &args, &[], LIMIT);
    server.kill().unwrap();
    server.wait().unwrap();
    let said = said(&client);
    assert!(client.status.success() && said.matches(" = ").count() == 4, "{said}");
}
