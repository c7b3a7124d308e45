// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp conform --peer verbs` against its C program, `interop/conform_target.c`, on the drop-in
//! libraries: what makers of cards are told to run works, and our verbs conform at both ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::scope;

use crate::common::server::Server;
use crate::common::{command, run, stderr, stdout};
use crate::conform::conforms;

/// Cases that see something of the program as a server, and as a client, at the least.
const SERVER: usize = 200;
const CLIENT: usize = 170;
/// Cases that see its Atomics and Writes with Immediate Data, where it takes the tester to have RFC
/// 7306.
const EXTENDED: usize = 39;
const HEADERS: &str = "apt-get install libibverbs-dev librdmacm-dev";

/// The program, compiled once against the headers of the system.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
        let name = format!("conform_target-{}", std::process::id());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
        cc.arg(interop.join("conform_target.c")).args(["-lrdmacm", "-libverbs"]);
        let status = cc.status().expect("a C compiler: apt-get install gcc libc6-dev");
        assert!(status.success(), "the headers of libibverbs and librdmacm: {HEADERS}");
        program
    })
}

/// The program on the drop-in libraries, which without CRCs ask a peer whether it has RFC 7306.
fn target(role: &str, port: &str, crc: &str) -> Command {
    let program = program().to_str().expect("a path in UTF-8");
    let mut target = command(&["run", program, role, "127.0.0.1", port]);
    target.env("IWARP_PERSONALITY", "iwarp").env("IWARP_CRC", crc).env("IWARP_LOG", "off");
    if crc == "off" {
        target.env("IWARP_EXTENSIONS", "ask");
    }
    // One connection for each case: none is made for a second try.
    target.env("IWARP_MPA_FALLBACK", "off");
    target
}

/// The number of cases that see something, `plain` of which need no extensions.
fn least(plain: usize, crc: &str) -> usize {
    plain + if crc == "on" { EXTENDED } else { 0 }
}

#[test]
fn the_c_program_conforms_as_a_server() {
    scope(|scope| {
        for crc in ["on", "off"] {
            scope.spawn(move || {
                let server = Server::start_with(&mut target("listen", "0", crc));
                let addr = format!("127.0.0.1:{}", server.port);
                let output = run(&["conform", "--peer", "verbs", "--crc", crc, &addr]);
                conforms(&stdout(&output), least(SERVER, crc));
                assert!(output.status.success(), "{}", stderr(&output));
            });
        }
    });
}

#[test]
fn the_c_program_conforms_as_a_client() {
    scope(|scope| {
        for crc in ["on", "off"] {
            scope.spawn(move || {
                let mut tester =
                    command(&["conform", "--listen", "127.0.0.1:0", "--peer", "verbs"]);
                let mut tester = Server::start_with(tester.args(["--crc", crc]));
                let called = target("call", &tester.port, crc).output().expect("it runs");
                let (status, table, _) = tester.end();
                conforms(&table, least(CLIENT, crc));
                assert!(status.success() && called.status.success(), "{}", stderr(&called));
            });
        }
    });
}
