// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp rping` against itself.

use crate::common::server::Server;
use crate::common::{command, stderr, stdout};

fn client(address: &str, port: &str, arguments: &[&str]) -> (bool, String, String) {
    let output = command(&["rping", "-c", "-a", address, "-p", port])
        .args(arguments)
        .output()
        .expect("the client runs");
    (output.status.success(), stdout(&output), stderr(&output))
}

/// Fifty rounds of each size, verified by the client; both ends must be content.
fn rounds(address: &str) {
    for size in ["23", "64", "1460", "65535", "65536"] {
        let mut server = Server::start(address, &["-S", size]);
        let (ok, _, complaints) = client(address, &server.port, &["-S", size, "-C", "50", "-V"]);
        assert!(ok, "client, {size} bytes: {complaints}");
        let (status, _, complaints) = server.end();
        assert!(status.success(), "server, {size} bytes: {complaints}");
        assert_eq!(complaints, "");
    }
}

#[test]
fn rounds_over_ipv4() {
    rounds("127.0.0.1");
}

#[test]
fn rounds_over_ipv6() {
    rounds("::1");
}

#[test]
fn both_ends_show_the_text() {
    let mut server = Server::start("127.0.0.1", &["-v"]);
    let (ok, text, complaints) = client("127.0.0.1", &server.port, &["-C", "2", "-v", "-V"]);
    assert!(ok, "{complaints}");
    let first = "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr";
    let second = "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs";
    assert_eq!(text, format!("ping data: {first}\nping data: {second}\n"));
    let (_, text, _) = server.end();
    assert_eq!(text, format!("server ping data: {first}\nserver ping data: {second}\n"));
}

#[test]
fn a_persistent_server_serves_many_clients() {
    let mut server = Server::start("127.0.0.1", &["-P"]);
    let port = &server.port;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let (ok, _, complaints) =
                        client("127.0.0.1", port, &["-I", "127.0.0.1", "-C", "10", "-V"]);
                    assert!(ok, "{complaints}");
                }
            });
        }
    });
    let running = server.process.try_wait().expect("it can be waited for").is_none();
    assert!(running, "a persistent server ended");
}

#[test]
fn a_server_whose_buffer_is_too_small_says_so() {
    let mut server = Server::start("127.0.0.1", &["-S", "50"]);
    let (ok, _, complaints) = client("127.0.0.1", &server.port, &["-S", "100", "-C", "1"]);
    assert!(!ok);
    assert!(complaints.contains("in round 0"), "{complaints}");
    let (status, _, complaints) = server.end();
    assert_eq!(status.code(), Some(1));
    assert!(complaints.contains("give -S 100"), "{complaints}");
}

#[test]
fn an_absent_server_is_an_error() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it has an address").port().to_string();
    drop(free);
    let (ok, _, complaints) = client("127.0.0.1", &port, &["-C", "1"]);
    assert!(!ok);
    assert!(complaints.contains("cannot reach"), "{complaints}");
}

#[test]
fn the_address_may_have_brackets_and_a_port() {
    for (address, host) in
        [("127.0.0.1:PORT", "127.0.0.1"), ("[::1]:PORT", "[::1]"), ("[::1]", "[::1]")]
    {
        let mut server = Server::start(host, &[]);
        let address = address.replace("PORT", &server.port);
        let mut client = command(&["rping", "-c", "-a", &address, "-C", "1", "-V"]);
        if !address.contains(&server.port) {
            client.args(["-p", &server.port]);
        }
        let output = client.output().expect("the client runs");
        assert!(output.status.success(), "{address}: {}", stderr(&output));
        assert!(server.end().0.success(), "{address}");
    }
}

#[test]
fn two_ports_for_one_server_are_refused() {
    let output =
        command(&["rping", "-c", "-a", "127.0.0.1:1", "-p", "2"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("says port 1, -p says 2"), "{text}");
}

#[test]
fn a_server_without_an_address_serves_ipv4_and_ipv6() {
    for address in ["127.0.0.1", "::1"] {
        let mut server = Server::start_with(&mut command(&["rping", "-s", "-p", "0"]));
        let (ok, _, complaints) = client(address, &server.port, &["-C", "1", "-V"]);
        assert!(ok, "{address}: {complaints}");
        assert!(server.end().0.success(), "{address}");
    }
}
