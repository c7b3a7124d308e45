// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp perf`: every test in tiny rounds, over two processes, and with peers that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{command, run, stderr, stdout, within};

/// The time that anything may take that has to end by itself.
const SOON: Duration = Duration::from_secs(15);

/// Two rounds of 2 ms of the tests in `arguments`, as JSON.
fn measure(arguments: &[&str]) -> Value {
    let output =
        run(&[&["perf", "--rounds", "2", "--time", "2", "--json", "-"], arguments].concat());
    json(&output)
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).expect("JSON")
}

fn cases(report: &Value) -> &Vec<Value> {
    report["cases"].as_array().expect("cases")
}

fn subjects(case: &Value) -> &Vec<Value> {
    case["subjects"].as_array().expect("subjects")
}

fn names(case: &Value) -> Vec<&str> {
    subjects(case).iter().map(|subject| subject["name"].as_str().expect("a name")).collect()
}

/// Every line has what it should have.
fn check(report: &Value, rounds: usize) {
    assert_eq!(report["format"], 1);
    assert_eq!(report["run"]["rounds"], rounds);
    for case in cases(report) {
        for subject in subjects(case) {
            let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{subject}"));
            assert_eq!(subject["values"].as_array().expect("values").len(), rounds);
            assert!(number(&subject["median"]) > 0.0, "{subject}");
            assert!(number(&subject["q1"]) <= number(&subject["q3"]), "{subject}");
            assert!(number(&subject["messages"]) >= 1.0, "{subject}");
            assert!(number(&subject["client_cpu"]["seconds_per_gib"]) >= 0.0, "{subject}");
            let versus = &subject["versus"];
            // Raw TCP of many clients stands beside that of one, and nothing else.
            let name = subject["name"].as_str().expect("a name");
            if subject["transport"] == "tcp" && !name.ends_with(" clients") {
                assert!(versus.is_null(), "{subject}");
            } else if !versus.is_null() {
                assert!(number(&versus["ratio"]) > 0.0, "{subject}");
                assert!(number(&versus["low"]) <= number(&versus["high"]), "{subject}");
            }
            if matches!(case["measure"].as_str(), Some("latency" | "round_trip")) {
                let times = &subject["percentiles"];
                assert!(number(&times["p50"]) > 0.0, "{subject}");
                assert!(number(&times["p50"]) <= number(&times["max"]), "{subject}");
            }
        }
    }
}

#[test]
fn bandwidth_with_and_without_crc() {
    let report = measure(&["write", "send", "read", "bw", "--size", "1,3000,64K"]);
    check(&report, 2);
    assert_eq!(cases(&report).len(), 3);
    let all = [
        "TCP",
        "Write",
        "Write, CRC",
        "Send",
        "Send, CRC",
        "TCP, server to client",
        "Read",
        "Read, CRC",
    ];
    for case in cases(&report) {
        assert_eq!(names(case), all);
        assert_eq!(case["unit"], "bytes/s");
    }
    // Both ends of all sockets use what the library uses within a host, or say what they have.
    let congestion = report["run"]["congestion"].as_array().expect("both ends");
    assert_eq!(congestion[0], congestion[1]);
}

/// It has one only within the host, by a protocol that can leave it.
#[test]
fn the_way_of_the_connections_is_told() {
    let way = |variables: &[(&str, &str)]| {
        let words = ["perf", "--rounds", "1", "--time", "2", "--json", "-", "rate"];
        let arguments = ["--connections", "2", "--size", "8", "--crc", "off"];
        let mut perf = command(&[&words[..], &arguments].concat());
        let report = json(&perf.envs(variables.iter().copied()).output().expect("it runs"));
        report["run"]["local_path"].clone()
    };
    assert_eq!(way(&[("IWARP_LOCAL", "off")]), "off");
    assert_eq!(way(&[("IWARP_PERSONALITY", "roce"), ("IWARP_WIRE", "roce")]), Value::Null);
}

#[test]
fn latency_of_all_kinds_of_waiting() {
    let wait = ["--wait", "poll,memory,events,fd", "--size", "8", "--crc", "on"];
    let report = measure(&[&["lat", "write", "send", "read"][..], &wait].concat());
    check(&report, 2);
    let [half, whole] = &cases(&report)[..] else { panic!("{report}") };
    let write = ["Write, CRC", "Write, spins on memory, CRC"];
    let send = ["Send, CRC", "Send, events, CRC", "Send, poll(2), CRC"];
    assert_eq!(names(half), [&["TCP, blocking", "TCP, spinning"][..], &write, &send].concat());
    assert_eq!(half["measure"], "latency");
    assert_eq!(whole["measure"], "round_trip");
    assert!(names(whole).contains(&"Read, poll(2), CRC"), "{:?}", names(whole));
    // A client that sleeps is compared with blocking TCP.
    let sleeper = &subjects(half)[5];
    assert_eq!(sleeper["versus"]["name"], "TCP, blocking");
}

#[test]
fn atomics_are_counted() {
    let report = measure(&["atomic"]);
    check(&report, 2);
    let [whole, rate] = &cases(&report)[..] else { panic!("{report}") };
    for case in [whole, rate] {
        assert_eq!(case["size"], 8);
        for name in ["FetchAdd", "FetchAdd, CRC", "CompareSwap", "CompareSwap, CRC"] {
            assert!(names(case).contains(&name), "{name}");
        }
    }
}

#[test]
fn rates_over_several_connections() {
    let report = measure(&["rate", "--connections", "3", "--markers", "both", "--crc", "on"]);
    check(&report, 2);
    let case = &cases(&report)[0];
    assert_eq!((&case["list"], &case["connections"]), (&32.into(), &3.into()));
    assert!(names(case).contains(&"Send, CRC, markers"), "{:?}", names(case));
    // Both ways of raw TCP are beside each line.
    let write = &subjects(case)[2];
    assert_eq!(write["versus"]["name"], "TCP, a write each");
    assert_eq!(write["also_versus"][0]["name"], "TCP, 32 a write");
}

/// Credits: many more Sends than there are receives.
#[test]
fn sends_wait_for_receives() {
    let arguments = ["send", "rate", "--size", "16", "--crc", "off", "--time", "40"];
    let measured = || {
        let output = run(&[&["perf", "--rounds", "2", "--json", "-"][..], &arguments].concat());
        let send = subjects(&cases(&json(&output))[0])[2].clone();
        assert_eq!(send["name"], "Send");
        send["messages"].as_u64().expect("a number")
    };
    // On a busy machine a round that was planned by a slow one before it has few.
    let most = (0..5).map(|_| measured()).find(|messages| *messages > 5000);
    assert!(most.is_some(), "few messages each time");
}

#[test]
fn both_ends_on_one_cpu() {
    let report = measure(&["write", "bw", "--size", "4K", "--cpu", "0"]);
    check(&report, 2);
    assert_eq!(report["run"]["places"]["client"], Value::from(vec![0]));
    assert_eq!(report["run"]["places"]["server"], Value::from(vec![0]));
}

#[test]
fn scenarios() {
    let crc = ["--crc", "on", "--size", "16K"];
    let report = measure(&[&["connect", "clients", "compute"][..], &crc].concat());
    check(&report, 2);
    let [connect, clients, ..] = &cases(&report)[..] else { panic!("{report}") };
    assert_eq!(connect["measure"], "connect");
    assert_eq!(subjects(connect).len(), 4);
    let (tcp, rdma) = subjects(clients).split_at(4);
    for (number, (tcp, rdma)) in
        ["1 client", "2 clients", "4 clients", "8 clients"].into_iter().zip(tcp.iter().zip(rdma))
    {
        assert_eq!(tcp["name"], format!("TCP, {number}"));
        assert_eq!(rdma["name"], format!("{number}, CRC"));
        assert_eq!(rdma["versus"]["name"], tcp["name"]);
    }
    assert_eq!(tcp[3]["versus"]["name"], "TCP, 1 client");
    let computing = names(cases(&report).last().expect("cases"));
    assert!(computing[1].starts_with("computing on CPU"), "{computing:?}");
}

#[test]
fn byte_streams() {
    let report = measure(&["stream", "--size", "100K,64"]);
    check(&report, 2);
    assert_eq!(cases(&report).len(), 4);
    let measures = ["bandwidth", "bandwidth", "latency", "latency"];
    for (case, measure) in cases(&report).iter().zip(measures) {
        assert_eq!(case["measure"], measure);
        assert_eq!(names(case), ["TCP", "byte stream", "byte stream, CRC"]);
        assert_eq!(subjects(case)[2]["versus"]["name"], "TCP");
    }
}

/// Each way is asked for, taken, and told, at both ends.
#[test]
fn every_way_within_the_host() {
    let report = measure(&["local", "--size", "8,4K"]);
    check(&report, 2);
    let measures: Vec<_> = cases(&report).iter().map(|case| &case["measure"]).collect();
    let all = ["latency", "latency", "round_trip", "round_trip", "bandwidth", "bandwidth"];
    assert_eq!(measures, all);
    for case in cases(&report) {
        let of = |transport: &Value, name: &str| -> Vec<&Value> {
            let is_of = |subject: &&Value| {
                let own = &subject["transport"];
                own == transport || own["iwarp"]["local"] == *transport
            };
            let found: Vec<_> = subjects(case).iter().filter(is_of).collect();
            assert!(!found.is_empty(), "{name}: {:?}", names(case));
            found
        };
        for (way, taken) in [("off", "off"), ("rings", "rings"), ("auto", "rings")] {
            for subject in of(&way.into(), way) {
                assert_eq!(subject["local_path"], taken, "{subject}");
                let versus = subject["versus"]["name"].as_str().expect("raw TCP");
                assert!(versus.starts_with("TCP"), "{subject}");
            }
        }
        // The system may refuse the other yardstick.
        if case["measure"] == "bandwidth" {
            let memcpy = of(&serde_json::json!({ "yardstick": "memcpy" }), "memcpy")[0];
            assert_eq!(memcpy["name"], "memcpy");
            let write = of(&"auto".into(), "auto")[0];
            assert_eq!(write["also_versus"][0]["name"], "memcpy");
        }
    }
}

#[test]
fn lines_of_one_host_can_be_chosen() {
    let report = measure(&["local", "write", "bw", "--size", "64K"]);
    let [case] = &cases(&report)[..] else { panic!("{report}") };
    let rdma = |name: &&str| name.starts_with("Write") || name.starts_with("Send");
    let lines: Vec<_> = names(case).into_iter().filter(rdma).collect();
    assert_eq!(lines, ["Write, over TCP", "Write, by rings", "Write, auto"]);
}

/// Lines of shared memory are not measured over another wire unawares.
#[test]
fn a_way_that_is_not_to_be_had_is_an_error() {
    let mut perf = command(&["perf", "local", "write", "bw", "--rounds", "1", "--time", "2"]);
    let output = perf.env("IWARP_EXTENSIONS", "refuse").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let complaint = stderr(&output);
    for what in ["Write, by rings", "stays with TCP", "IWARP_EXTENSIONS"] {
        assert!(complaint.contains(what), "{complaint}");
    }
    let output = run(&["perf", "local", "192.0.2.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("leave out 192.0.2.1"), "{}", stderr(&output));
}

#[test]
fn idle_connections() {
    let report = measure(&["idle", "--connections", "50", "--size", "4K"]);
    check(&report, 2);
    let idle = report["idle"].as_array().expect("idle");
    assert_eq!(idle.len(), 2);
    for process in idle {
        assert_eq!(process["connections"], 50);
        assert!(process["empty_poll"].as_f64() > Some(0.0), "{process}");
    }
}

#[test]
fn the_paper() {
    let dir = std::env::temp_dir().join(format!("iwarp-perf-{}", std::process::id()));
    let page = dir.with_extension("html");
    let files = ["--svg", dir.to_str().expect("text"), "--html", page.to_str().expect("text")];
    let report = measure(&[&["paper"][..], &files].concat());
    check(&report, 2);
    let paper = &report["paper"];
    let lines = |what: &str| paper[what].as_array().expect("lines").len();
    // Two kinds of TCP and two ways to wait, each with and without CRC; two sizes.
    assert_eq!(lines("latency"), 12);
    assert_eq!(lines("throughput"), 8 * 3);
    // On one CPU there are none, and that is said.
    assert!(lines("loads") == 12 || paper["remark"].is_string(), "{paper}");
    let html = std::fs::read_to_string(&page).expect("the page is there");
    assert!(html.contains("Table 1 of the paper") && html.contains("<svg "));
    assert!(!html.contains("src=") && !html.contains("href="), "it needs nothing else");
    // A sentence and a table on top; pictures that follow the page into the dark.
    let place = |what: &str| html.find(what).unwrap_or_else(|| panic!("no {what}: {html}"));
    let order = ["class=\"sentence\">Of ", "class=\"overview\"", "class=\"pictures\"", "<h2>JSON"];
    assert!(order.map(place).is_sorted(), "{html}");
    for what in ["prefers-color-scheme: dark", "svg [fill=\"#0072B2\"]{fill:var(--blue)}"] {
        assert!(html.contains(what), "{what}");
    }
    let curve = std::fs::read_to_string(dir.join("bandwidth-over-size.svg")).expect("a picture");
    assert!(curve.starts_with("<svg ") && curve.trim_end().ends_with("</svg>"));
    assert!(!curve.contains("NaN") && !curve.contains("inf"), "{curve}");
    std::fs::remove_dir_all(&dir).expect("it is ours");
    std::fs::remove_file(&page).expect("it is ours");
}

#[test]
fn the_table_says_what_it_was_measured_with() {
    let output = run(&["perf", "write", "bw", "--size", "4K", "--rounds", "2", "--time", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    for text in ["Bandwidth, 4 KiB, depth 16", "x TCP", "95 %", "congestion control", "2 rounds"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    // The progress bar is for terminals.
    assert_eq!(stderr(&output), "");
}

#[test]
fn an_earlier_run_is_compared_with() {
    let file = std::env::temp_dir().join(format!("iwarp-perf-{}.json", std::process::id()));
    let path = file.to_str().expect("text");
    let test =
        ["perf", "write", "bw", "--size", "4K", "--rounds", "2", "--time", "2", "--crc", "on"];
    assert!(run(&[&test[..], &["--json", path]].concat()).status.success());
    let mut before: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
    // As if it had been faster by more than any noise then.
    for key in ["ratio", "low", "high"] {
        let number = &mut before["cases"][0]["subjects"][1]["versus"][key];
        *number = (number.as_f64().expect("a number") * 1e12).into();
    }
    std::fs::write(&file, before.to_string()).expect("it is ours");
    let output = run(&[&test[..], &["--compare", path]].concat());
    std::fs::remove_file(&file).expect("it is ours");
    let table = stdout(&output);
    let line = table.lines().find(|line| line.contains("bandwidth 4 KiB")).expect("a comparison");
    assert!(
        line.contains("Write, CRC") && line.contains("-100.0 %") && line.ends_with("yes"),
        "{line}"
    );
}

#[test]
fn impossible_measurements_are_errors() {
    for arguments in [
        &["perf", "send", "lat", "--wait", "memory"][..],
        &["perf", "write", "one", "two"],
        &["perf", "write", "--size", "0"],
        &["perf", "write", "--cpu", "0,1,2"],
        &["perf", "write", "--compare", "/nowhere/at/all"],
        &["perf", "write", "no-such.invalid"],
    ] {
        let output = run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert_ne!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn an_unknown_test_is_answered_with_the_known_ones() {
    let output = run(&["perf", "no-such.invalid"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = stderr(&output);
    for what in ["no-such.invalid is neither a test", "write, send, read and atomic", "paper"] {
        assert!(complaint.contains(what), "{complaint}");
    }
}

/// No round is measured for a file that cannot be written: these would last for hours.
#[test]
fn files_that_cannot_be_written_are_found_out_first() {
    let start = Instant::now();
    for option in ["--json", "--html", "--svg"] {
        let file = "/proc/nowhere/at/all";
        let output = run(&["perf", "--rounds", "10000", "--time", "10000", option, file]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(stderr(&output).contains(file), "{option}: {}", stderr(&output));
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// Without an address it is all of them; a port may stand beside it, at both ends.
#[test]
fn a_server_is_reached_by_ipv4_and_ipv6_with_the_port_beside() {
    let servers: [(&[&str], &[&str]); 2] = [
        (&["--port", "0"], &["127.0.0.1", "[::1]", "localhost"]),
        (&["--bind", "[::1]:0"], &["[::1]"]),
    ];
    for (arguments, hosts) in servers {
        let server = Server::start_at(arguments);
        for host in hosts {
            let place = format!("{host}:{}", server.port);
            let output = run(&[
                "perf", &place, "write", "bw", "--size", "4K", "--rounds", "1", "--time", "2",
            ]);
            assert!(output.status.success(), "{place}: {}", stderr(&output));
            let text = stdout(&output);
            assert!(text.contains("\n1 round of 2 ms each"), "{text}");
        }
    }
    let output = run(&["perf", "127.0.0.1:1", "--port", "2"]);
    assert_eq!(stderr(&output), "iwarp perf: 127.0.0.1 says port 1, --port says 2\n");
}

/// A running `iwarp perf --server`; killed when it is dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_at(&[&["--bind", "127.0.0.1", "--port", "0"], arguments].concat())
    }

    fn start_at(arguments: &[&str]) -> Self {
        let mut process = command(&["perf", "--server"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the server speaks");
        let port = line.trim().rsplit_once(':').expect("it names its port").1.to_owned();
        Self { process, port, _stdout: stdout }
    }

    fn client(&self, arguments: &[&str]) -> Output {
        let to = ["perf", "127.0.0.1", "--port", &self.port, "--rounds", "2", "--time", "2"];
        run(&[&to[..], arguments].concat())
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        stream
    }

    /// Waits until it ends by itself.
    fn end(mut self) -> (bool, String) {
        let status = end(&mut self.process);
        let mut text = String::new();
        let stderr = self.process.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut text).expect("text");
        (status, text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn end(process: &mut Child) -> bool {
    let ended = || process.try_wait().expect("it can be waited for");
    within(SOON, "the end of a process", ended).success()
}

#[test]
fn a_server_serves_one_client_after_the_other() {
    let server = Server::start(&[]);
    for _ in 0..2 {
        let output = server.client(&["write", "read", "bw", "--size", "4K", "--json", "-"]);
        check(&json(&output), 2);
    }
}

#[test]
fn a_server_that_serves_once_ends() {
    let server = Server::start(&["--once"]);
    let output = server.client(&["send", "bw", "--size", "4K"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.end(), (true, String::new()));
}

#[test]
fn a_client_that_speaks_garbage_is_told_so_and_the_next_is_served() {
    let server = Server::start(&[]);
    for garbage in ["GET / HTTP/1.1\r\n\r\n", "{\"iwarp_perf\":true}\n", "\u{0}\u{1}\n"] {
        let mut stream = server.stream();
        stream.write_all(garbage.as_bytes()).expect("it reads");
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("it answers");
        assert!(answer.contains("not understood"), "{answer}");
    }
    // One that says nothing more, and one that hangs up at once.
    let mut stream = server.stream();
    stream.write_all(b"{\"iwarp_perf\":1").expect("it reads");
    drop((stream, server.stream()));
    let output = server.client(&["write", "bw", "--size", "4K"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn another_version_is_refused_by_name() {
    let server = Server::start(&["--once"]);
    let mut stream = server.stream();
    let hello = "{\"iwarp_perf\":999,\"version\":\"9.9.9\",\"process\":1}\n";
    stream.write_all(hello.as_bytes()).expect("it reads");
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).expect("it answers");
    assert!(answer.contains("version 999"), "{answer}");
    let (success, complaint) = server.end();
    assert!(!success);
    assert!(complaint.contains("iwarp 9.9.9"), "{complaint}");
}

/// Answers a client with `line`, and hangs up.
fn impostor(line: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.write_all(line.as_bytes()).expect("it reads");
        let mut hello = String::new();
        BufReader::new(&stream).read_line(&mut hello).expect("it says hello");
        assert!(hello.contains("\"iwarp_perf\":1"), "{hello}");
    });
    port
}

#[test]
fn a_server_that_is_none_is_recognised() {
    for (line, complaint) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "not an `iwarp perf`"),
        ("{\"iwarp_perf\":7,\"version\":\"0.9\",\"process\":1}\n", "version 7"),
        ("", "hung up"),
        ("{\"iwarp_perf\":1,\"version\":\"0.1.0\",\"process\":1}\n", "the server has gone"),
    ] {
        let port = impostor(line);
        let output = run(&["perf", "127.0.0.1", "--port", &port, "write", "bw"]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(complaint), "{complaint}: {}", stderr(&output));
    }
}

#[test]
fn an_absent_server_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it has an address").port().to_string();
    drop(free);
    let output = run(&["perf", "127.0.0.1", "--port", &port]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("cannot reach"), "{}", stderr(&output));
}

/// At any point of its round, and in each way in which the client waits: on memory, on events, in
/// raw TCP.
#[test]
fn a_server_that_is_killed_is_an_error_within_seconds() {
    for test in [
        &["write", "lat", "--wait", "memory"][..],
        &["send", "lat", "--wait", "events"],
        &["read", "bw", "--wait", "poll"],
        &["write", "bw", "--wait", "fd"],
    ] {
        let mut server = Server::start(&[]);
        let long =
            ["perf", "127.0.0.1", "--port", &server.port, "--size", "4K", "--rounds", "10000"];
        let mut client = command(&[&long[..], test].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client starts");
        // It is in the middle of its rounds once it has used some CPU time.
        let works = || (cpu_ticks(client.id()) >= 10).then_some(());
        within(4 * SOON, "a client that works", works);
        server.process.kill().expect("it runs");
        server.process.wait().expect("it can be waited for");
        let killed = Instant::now();
        assert!(!end(&mut client), "{test:?}");
        assert!(killed.elapsed() < Duration::from_secs(8), "{test:?}: {:?}", killed.elapsed());
        let mut complaint = String::new();
        client.stderr.take().expect("piped").read_to_string(&mut complaint).expect("text");
        assert!(complaint.contains("iwarp perf: "), "{test:?}: {complaint}");
    }
}

/// CPU time that a process has used, in ticks of the kernel's (proc(5), stat: utime, stime).
fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    let tick = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    tick(11) + tick(12)
}
