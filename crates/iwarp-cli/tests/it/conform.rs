// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp conform`: our own stack conforms at both ends of a connection, with any settings, and the
//! command's output can be read.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::scope;

use crate::common::server::Server;
use crate::common::{command, run, stderr, stdout};

/// Cases that see something of our stack as a server, and as a client, at the least.
const SERVER: usize = 250;
const CLIENT: usize = 210;
/// Cases that see it ask for Atomics and send Immediate Data, where it is told that its peer has
/// RFC 7306.
const EXTENDED: usize = 44;
/// Requirements that can be seen under perftest, on the start-up's keys, lengths and revisions,
/// CRCs, STags.
const PERFTEST: [&str; 6] = [
    "MPA-5044-7.1.1-02",
    "MPA-5044-7.1.2-20",
    "MPA-5044-7.1.1-13",
    "MPA-5044-4.4-14",
    "DDP-5041-7.1-10",
    "DDP-5041-7.1-01",
];
/// Settings of the tester and of the stack: CRC, markers; of the stack: personality, and whether
/// the peer is asked for extensions.
const SETTINGS: [[&str; 4]; 5] = [
    ["on", "off", "iwarp", "assume"],
    ["off", "off", "iwarp", "ask"],
    ["on", "on", "iwarp", "ask"],
    ["off", "on", "iwarp", "assume"],
    ["on", "off", "roce", "assume"],
];

/// A target whose stack has these settings.
fn target(settings: [&str; 4]) -> Server {
    target_at("127.0.0.1:0", settings)
}

fn target_at(address: &str, settings: [&str; 4]) -> Server {
    Server::start_with(&mut stack(&["conform", "--target", address], settings))
}

/// The command, whose stack has these settings.
fn stack(arguments: &[&str], [crc, markers, personality, extensions]: [&str; 4]) -> Command {
    let mut stack = command(arguments);
    stack.env("IWARP_CRC", crc).env("IWARP_MARKERS", markers);
    stack.env("IWARP_PERSONALITY", personality).env("IWARP_EXTENSIONS", extensions);
    stack.env("IWARP_LOG", "off");
    stack
}

/// The number of cases that see something, `plain` of which need no extensions.
fn least(plain: usize, extensions: &str) -> usize {
    plain + if extensions == "assume" { EXTENDED } else { 0 }
}

fn test(server: &Server, arguments: &[&str]) -> Output {
    let addr = format!("127.0.0.1:{}", server.port);
    run(&[&["conform", "--peer", "ours", &addr], arguments].concat())
}

/// The last line says that so many conform, at least, and that none deviates.
pub(crate) fn conforms(table: &str, least: usize) {
    let last = table.lines().last().unwrap_or_default();
    let number = last.split(' ').next().and_then(|number| number.parse().ok());
    let is_good = last.contains(" conform, 0 deviate, ") && number >= Some(least);
    assert!(is_good, "{table}");
}

#[test]
fn our_stack_conforms_as_a_server() {
    scope(|scope| {
        for settings in SETTINGS {
            scope.spawn(move || {
                let server = target(settings);
                let [crc, markers, _, extensions] = settings;
                let output = test(&server, &["--crc", crc, "--markers", markers]);
                conforms(&stdout(&output), least(SERVER, extensions));
                assert!(output.status.success(), "{}", stderr(&output));
            });
        }
    });
}

#[test]
fn our_stack_conforms_as_a_client() {
    scope(|scope| {
        for settings in SETTINGS {
            scope.spawn(move || {
                let [crc, markers, _, extensions] = settings;
                let mut tester = command(&["conform", "--listen", "127.0.0.1:0", "--peer", "ours"]);
                let mut tester =
                    Server::start_with(tester.args(["--crc", crc, "--markers", markers]));
                let addr = format!("127.0.0.1:{}", tester.port);
                let mut client = stack(&["conform", "--call", &addr], settings);
                let called = client.output().expect("it runs");
                let (status, table, _) = tester.end();
                conforms(&table, least(CLIENT, extensions));
                assert!(status.success() && called.status.success(), "{}", stderr(&called));
            });
        }
    });
}

#[test]
fn our_stack_conforms_over_ipv6() {
    scope(|scope| {
        scope.spawn(|| {
            let server = target_at("[::1]:0", SETTINGS[0]);
            let addr = format!("[::1]:{}", server.port);
            let output = run(&["conform", "--peer", "ours", &addr]);
            conforms(&stdout(&output), SERVER);
        });
        let mut tester = command(&["conform", "--listen", "[::1]:0", "--peer", "ours"]);
        let mut tester = Server::start_with(&mut tester);
        let addr = format!("[::1]:{}", tester.port);
        stack(&["conform", "--call", &addr], SETTINGS[0]).output().expect("it runs");
        conforms(&tester.end().1, CLIENT);
    });
}

/// A peer that is silent or slow in its start-up is left in time: by the time limit that the stack
/// is set to, which a byte does not begin anew.
#[test]
fn our_stack_leaves_peers_that_are_silent_or_slow() {
    let cases = ["-silence", "-silence-inside-key", "-silence-inside-request", "-drip"];
    let more = ["-silence-for-reply", "-silence-inside-reply", "-reply-drip"];
    let names = |kinds: &[&str]| -> Vec<String> {
        kinds.iter().flat_map(|kind| ["--only".to_owned(), format!("startup{kind}")]).collect()
    };
    let limit = ("IWARP_STARTUP_TIMEOUT_MS", "700");
    let mut server = stack(&["conform", "--target", "127.0.0.1:0"], SETTINGS[0]);
    let server = Server::start_with(server.env(limit.0, limit.1));
    let names_of_servers = names(&cases);
    let mut arguments = vec!["--slow"];
    arguments.extend(names_of_servers.iter().map(String::as_str));
    let output = test(&server, &arguments);
    assert!(stdout(&output).contains("4 conform, 0 deviate, 0 not seen"), "{}", stdout(&output));

    let mut tester = command(&["conform", "--listen", "127.0.0.1:0", "--peer", "ours", "--slow"]);
    let mut tester = Server::start_with(tester.args(names(&more)));
    let addr = format!("127.0.0.1:{}", tester.port);
    let mut client = stack(&["conform", "--call", &addr], SETTINGS[0]);
    client.env(limit.0, limit.1).output().expect("it runs");
    let (_, table, _) = tester.end();
    assert!(table.contains("3 conform, 0 deviate, 0 not seen"), "{table}");
}

/// Private data of each length that there may be, in plain frames and in enhanced ones.
#[test]
fn private_data_of_every_length_are_taken() {
    let folder = Folder::new("lengths");
    let mut plain = String::new();
    for len in 0..=512 {
        let covers = "covers MPA-5044-7.1.1-19, MPA-5044-7.1.2-21\nrole connect";
        plain += &format!(
            "case plain-{len}\ntitle {len} bytes\n{covers}\n\
             send request rev=1 enhanced=0 pd=fill:{len}\nexpect reply reject=0\n"
        );
        if len <= 508 {
            plain += &format!("case enhanced-{len}\ntitle {len} bytes\n{covers}\n");
            plain += &format!("start pd=fill:{len}\n");
        }
    }
    fs::write(folder.file("lengths.case"), plain).expect("a file");
    let server = target(SETTINGS[0]);
    let output = test(&server, &["--cases", &folder.file("")]);
    let table = stdout(&output);
    assert!(table.ends_with("1022 conform, 0 deviate, 0 not seen\n"), "{table}");
}

/// Of a program that knows nothing of the tester the start-up, framing and errors can be seen.
#[test]
fn our_stack_conforms_under_another_program() {
    scope(|scope| {
        for peer in ["any", "rping"] {
            scope.spawn(move || {
                let server = Server::start("127.0.0.1", &["-P"]);
                let addr = format!("127.0.0.1:{}", server.port);
                let output = run(&["conform", "--peer", peer, &addr]);
                conforms(&stdout(&output), 80);
            });
        }
    });
}

/// Perftest's server serves one connection, and takes no Reads before its client has told it more.
#[test]
fn our_stack_conforms_under_perftest() {
    let found = Command::new("ib_send_bw").arg("--version").output();
    found.expect("perftest: apt-get install perftest");
    let iwarp = env!("CARGO_BIN_EXE_iwarp");
    for program in ["ib_send_bw", "ib_write_bw"] {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = port.local_addr().expect("an address");
        drop(port);
        let server = format!("{iwarp} run {program} -R -p {}", addr.port());
        let mut tester = stack(&["conform", "--restart", &server, &addr.to_string()], SETTINGS[0]);
        for id in PERFTEST {
            tester.args(["--only", id]);
        }
        let output = tester.output().expect("it runs");
        conforms(&stdout(&output), 12);
    }
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("iwarp-conform-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_deviation_is_told_with_its_bytes_and_by_the_exit_status() {
    let folder = Folder::new("own");
    let case = "case own\ntitle A case of somebody else\ncovers DDP-5041-7.1-10\nstart\n\
                send write stag=0 data=\"x\"\nexpect terminate 1/1/77\n";
    fs::write(folder.file("own.case"), case).expect("a file");
    let server = target(SETTINGS[0]);
    let (json, junit) = (folder.file("all.json"), folder.file("all.xml"));
    let cases = folder.file("");
    let output = test(&server, &["--cases", &cases, "--json", &json, "--junit", &junit]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = stdout(&output);
    for line in ["terminate 1/1/77", "terminate 1/1/00", "DDP-5041-7.1-10", "own.case:6"] {
        assert!(table.contains(line), "{line}: {table}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!(json["count"]["deviates"], 1);
    assert_eq!(json["cases"][0]["verdict"], "deviates");
    assert_eq!(json["cases"][0]["expected"], "terminate 1/1/77");
    let junit = fs::read_to_string(junit).expect("a file");
    assert!(junit.contains("failures=\"1\"") && junit.contains("</testsuite>"), "{junit}");
}

/// One that takes connections and nothing else: it costs the patience of a few cases, not of all.
#[test]
fn a_server_that_says_nothing_is_left() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = silent.local_addr().expect("an address").to_string();
    let folder = Folder::new("silent");
    let json = folder.file("all.json");
    let output = run(&["conform", &addr, "--patience", "1", "--json", &json]);
    let said = stderr(&output);
    assert!(said.contains("said nothing for 3 cases of 1s"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).expect("a file")).expect("JSON");
    assert!(json["cases"].as_array().is_some_and(|cases| cases.len() > SERVER));
    // Nor is one that goes on for longer than it may.
    let limit = ["conform", &addr, "--patience", "2", "--limit", "1"];
    let said = stderr(&run(&limit));
    assert!(said.contains("the limit of 1s is over"), "{said}");
}

#[test]
fn an_absent_target_gives_no_verdict() {
    let output = run(&["conform", "127.0.0.1:1", "--only", "startup-revision-1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("not seen"), "{}", stdout(&output));
}

#[test]
fn cases_and_requirements_are_explained() {
    let list = stdout(&run(&["conform", "--list"]));
    assert!(list.lines().count() >= 300, "{list}");
    // That of the help.
    let help = stdout(&run(&["conform", "--help"]));
    let example = help.split("iwarp conform --explain ").nth(1).expect("an example");
    let case = example.split_whitespace().next().expect("a case");
    let text = stdout(&run(&["conform", "--explain", case]));
    for part in ["expect terminate 1/2/05", "RFC 5041, section 7.1, MUST"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = stdout(&run(&["conform", "--explain", "RDMAP-5040-5.2.1-14"]));
    assert!(text.contains("reads-of-nothing"), "{text}");
}

#[test]
fn tshark_reads_the_captures() {
    let folder = Folder::new("pcapng");
    let server = target(SETTINGS[0]);
    let names = ["ddp-write-arrives", "rdmap-send", "framing-bad-crc", "startup-byte-by-byte"];
    let only = names.iter().flat_map(|name| ["--only", name]);
    let to = folder.file("");
    let arguments: Vec<&str> = only.chain(["--pcapng", &to]).collect();
    assert!(test(&server, &arguments).status.success());
    for name in names {
        let file = folder.file(&format!("{name}.pcapng"));
        let text = crate::capture::tshark(Path::new(&file), &["-V"]);
        for part in ["ID Req frame", "ID Rep frame", "iWARP Direct Data Placement"] {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
        assert!(!text.contains("Malformed"), "{name}: {text}");
        assert_eq!(text.contains("Bad CRC"), name == "framing-bad-crc", "{name}: {text}");
    }
}
