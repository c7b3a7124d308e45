// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures that processes make of themselves, in the eyes of a foreign decoder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::capture::{Decoded, tshark};
use crate::common::server::Server;
use crate::common::{command, messages, run, stderr, stdout, within};
use crate::perf;

/// A folder of a test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("iwarp-captured-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ten rounds of rping; the two ends capture as these say, and behave as the variables say.
fn exchange(captures: [&str; 2], size: &str, environment: &[(&str, &str)]) -> Output {
    exchange_so_often("10", captures, size, environment)
}

fn exchange_so_often(
    rounds: &str,
    captures: [&str; 2],
    size: &str,
    environment: &[(&str, &str)],
) -> Output {
    let mut listen = command(&["rping", "-s", "-p", "0", "-a", "127.0.0.1", "-S", size]);
    listen.env("IWARP_CAPTURE", captures[0]).envs(environment.iter().copied());
    let mut server = Server::start_with(&mut listen);
    let client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port])
        .args(["-C", rounds, "-S", size, "-V"])
        .env("IWARP_CAPTURE", captures[1])
        .envs(environment.iter().copied())
        .output()
        .expect("the client runs");
    let (status, _, complaints) = server.end();
    assert!(status.success(), "{complaints}");
    assert!(client.status.success(), "{}", stderr(&client));
    client
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a text")
}

/// Both ends' captures of ten rounds, each taken apart.
fn both(name: &str, size: &str, environment: &[(&str, &str)]) -> [Decoded; 2] {
    both_of("10", name, size, environment)
}

/// Likewise of many rounds, among which the ends agree upon the way past TCP.
fn both_of_many(name: &str, local: &str) -> [Decoded; 2] {
    both_of("500", name, "3000", &[("IWARP_LOCAL", local)])
}

fn both_of(rounds: &str, name: &str, size: &str, environment: &[(&str, &str)]) -> [Decoded; 2] {
    let folder = Folder::new(name);
    let files = [folder.file("server"), folder.file("client")];
    exchange_so_often(rounds, files.each_ref().map(|file| text(file)), size, environment);
    files.map(|file| taken_apart(&file))
}

fn taken_apart(file: &Path) -> Decoded {
    let decoded = Decoded { text: tshark(file, &["-V"]) };
    assert_eq!(decoded.count("Malformed"), 0, "{}", decoded.text);
    assert_eq!(decoded.count("Bad CRC32"), 0, "{}", decoded.text);
    assert_eq!((decoded.count("ID Req frame:"), decoded.count("ID Rep frame:")), (1, 1));
    is_explained_as_fine(file);
    decoded
}

/// `iwarp explain` accuses neither end.
fn is_explained_as_fine(file: &Path) {
    let explained = run(&["explain", text(file)]);
    assert!(explained.status.success(), "{}", stderr(&explained));
    let explained = stdout(&explained);
    assert!(explained.contains("Verdict: fine") && !explained.contains("FAULT"), "{explained}");
}

#[test]
fn both_ends_capture_what_goes_by_tcp() {
    for decoded in both("tcp", "3000", &[("IWARP_LOCAL", "off")]) {
        decoded.has_ten_rounds();
        assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
    }
}

#[test]
fn frames_with_markers_have_packets_of_their_own() {
    let environment = [("IWARP_LOCAL", "off"), ("IWARP_MARKERS", "on")];
    for decoded in both("markers", "3000", &environment) {
        decoded.has_ten_rounds();
        assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
    }
}

#[test]
fn frames_in_shared_memory_have_the_crcs_that_start_up_has_agreed_on() {
    for decoded in both_of_many("rings", "rings") {
        decoded.has_ten_rounds();
        assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
        assert!(decoded.count("Interface name: memory-") > 0, "{}", decoded.text);
    }
}

#[test]
fn operations_of_one_end_alone_are_in_its_capture() {
    // The server reads and writes the client's memory.
    let [server, _] = both_of_many("direct", "auto");
    server.has_ten_rounds();
    assert!(server.count("carried out in the memory of the other end") > 0, "{}", server.text);
}

#[test]
fn comments_name_requests_and_completions() {
    let [server, client] = both("comments", "64", &[("IWARP_LOCAL", "off")]);
    assert!(server.count("posted Read, wr_id ") > 0, "{}", server.text);
    assert!(server.count(": Read, wr_id ") > 0, "{}", server.text);
    assert!(client.count(": success") > 0, "{}", client.text);
}

#[test]
fn a_snap_length_cuts_payloads_and_no_header() {
    let folder = Folder::new("snap");
    let files = [folder.file("server"), folder.file("client")];
    let captures = files.each_ref().map(|file| format!("{},snap=128", text(file)));
    exchange(captures.each_ref().map(|capture| &**capture), "60000", &[("IWARP_LOCAL", "off")]);
    for file in &files {
        is_explained_as_fine(file);
        // Ten Reads and Writes of 60,000 bytes.
        assert!(fs::metadata(file).expect("a file").len() < 100_000);
        let lengths = tshark(file, &["-T", "fields", "-e", "frame.cap_len", "-e", "frame.len"]);
        let numbers = lengths.split_whitespace().map(|number| number.parse::<u32>());
        let numbers: Vec<u32> = numbers.map(|number| number.expect("a number")).collect();
        // But for start-up frames.
        let cut = numbers.chunks(2).filter(|pair| pair[0] <= 128).count();
        assert!(cut + 2 >= numbers.len() / 2, "{lengths}");
        assert!(numbers.chunks(2).all(|pair| pair[0] <= pair[1]), "{lengths}");
        assert!(numbers.chunks(2).any(|pair| pair[1] > 1000), "{lengths}");
        let opcodes = tshark(file, &["-T", "fields", "-e", "iwarp_rdma.opcode"]);
        assert!(opcodes.lines().filter(|line| line.starts_with("0x")).count() >= 40, "{opcodes}");
    }
}

#[test]
fn packets_of_roce_are_captured_one_by_one() {
    let folder = Folder::new("roce");
    let files = [folder.file("server"), folder.file("client")];
    let environment = [("IWARP_PERSONALITY", "roce"), ("IWARP_WIRE", "roce")];
    exchange(files.each_ref().map(|file| text(file)), "3000", &environment);
    for file in &files {
        is_explained_as_fine(file);
        let opcodes = tshark(file, &["-T", "fields", "-e", "infiniband.bth.opcode"]);
        // Sends, Read Requests and Writes (IBA 9.2.1).
        for opcode in ["4", "12"] {
            assert!(opcodes.lines().filter(|line| *line == opcode).count() >= 10, "{opcodes}");
        }
    }
}

#[test]
fn several_processes_add_to_one_file() {
    let folder = Folder::new("one");
    let file = folder.file("both");
    let environment = [("IWARP_LOCAL", "off")];
    exchange_so_often("1000", [text(&file), text(&file)], "64", &environment);
    let names = tshark(&file, &["-T", "fields", "-e", "frame.interface_name"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("tcp-")), "{names:?}");
    is_explained_as_fine(&file);
    let explained = stdout(&run(&["explain", text(&file)]));
    for name in names {
        let process = name.trim_start_matches("tcp-");
        let words = format!("as process {process} has captured it");
        assert!(explained.contains(&words) && !explained.contains("again"), "{explained}");
    }
}

/// A persistent server is captured from its second client on.
#[test]
fn a_running_process_is_captured_from_now_on() {
    let folder = Folder::new("running");
    let file = folder.file("server");
    let mut listen = command(&["rping", "-s", "-P", "-p", "0", "-a", "127.0.0.1"]);
    let server = Server::start_with(listen.env("IWARP_LOCAL", "off"));
    let rounds = |count| {
        let client = ["rping", "-c", "-a", "127.0.0.1", "-p", &server.port, "-C", count, "-V"];
        let client = command(&client).env("IWARP_LOCAL", "off").output().expect("it runs");
        assert!(client.status.success(), "{}", stderr(&client));
    };
    let pid = server.process.id().to_string();
    rounds("10");
    let begun = run(&["capture", &pid, text(&file)]);
    assert!(begun.status.success(), "{}", stderr(&begun));
    rounds("10");
    let other = run(&["capture", &pid, text(&folder.file("other"))]);
    assert!(stderr(&other).contains("another file"), "{}", stderr(&other));
    assert!(run(&["capture", &pid, "--end"]).status.success());
    let length = || fs::metadata(&file).expect("a file").len();
    let before = length();
    rounds("10");
    assert_eq!(length(), before, "it has ended");
    is_explained_as_fine(&file);
    let decoded = Decoded { text: tshark(&file, &["-V"]) };
    decoded.has_ten_rounds();
    assert_eq!((decoded.count("ID Req frame:"), decoded.count("ID Rep frame:")), (1, 1));
}

/// Captures the server end of an endless exchange twice, with a gap between.
fn captured_from_the_middle(file: &Path, size: &str, environment: &[(&str, &str)]) {
    let mut listen = command(&["rping", "-s", "-P", "-p", "0", "-a", "127.0.0.1", "-S", size]);
    let server = Server::start_with(listen.envs(environment.iter().copied()));
    let mut client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port]);
    let client = client.args(["-C", "1000000000", "-S", size, "-V"]);
    let client = client.envs(environment.iter().copied());
    let mut client = client.stdout(Stdio::null()).spawn().expect("it starts");
    let pid = server.process.id().to_string();
    messages(&pid, 100);
    for _ in 0..2 {
        assert!(run(&["capture", &pid, text(file)]).status.success());
        let before = messages(&pid, 0);
        messages(&pid, before + 200);
        assert!(run(&["capture", &pid, "--end"]).status.success());
        let before = messages(&pid, 0);
        messages(&pid, before + 50);
    }
    client.kill().and_then(|()| client.wait()).expect("it ends");
}

/// Its connection was there before. Readers need the start-up frames, and where each unit begins.
#[test]
fn a_connection_is_captured_from_its_middle_on() {
    for (name, local) in [("middle-tcp", "off"), ("middle-rings", "rings"), ("middle-auto", "auto")]
    {
        let folder = Folder::new(name);
        let file = folder.file("server");
        captured_from_the_middle(&file, "64", &[("IWARP_LOCAL", local)]);
        let decoded = Decoded { text: tshark(&file, &["-V"]) };
        assert_eq!((decoded.count("ID Req frame:"), decoded.count("ID Rep frame:")), (1, 1));
        assert!(decoded.count("from before the capture began") >= 2, "{}", decoded.text);
        decoded.has_ten_rounds();
        assert_eq!(decoded.count("Bad CRC32"), 0, "{}", decoded.text);
        is_explained_as_fine(&file);
    }
}

/// In the eyes of `iwarp explain`: tshark 4.0 counts markers from the first FPDU that it sees.
#[test]
fn a_connection_with_markers_is_captured_from_its_middle_on() {
    let folder = Folder::new("middle-markers");
    let file = folder.file("server");
    let environment = [("IWARP_LOCAL", "off"), ("IWARP_MARKERS", "on")];
    captured_from_the_middle(&file, "3000", &environment);
    is_explained_as_fine(&file);
    let explained = stdout(&run(&["explain", text(&file)]));
    for operation in ["RDMA Write of 3,000 bytes", "RDMA Read Response of 3,000 bytes"] {
        let line = explained.lines().find(|line| line.contains(operation)).expect("it is there");
        let count = line.split_once(" x ").and_then(|(start, _)| start.rsplit(' ').next());
        let count = count.and_then(|count| count.replace(',', "").parse::<u32>().ok());
        assert!(count.is_some_and(|count| count >= 50), "{explained}");
    }
}

/// Calls that move long Writes hardly ever begin where a unit does.
#[test]
fn long_writes_are_captured_from_their_middle_on() {
    let folder = Folder::new("middle-long");
    let file = folder.file("server");
    let server = perf::Server::start(&[]);
    let to = ["perf", "127.0.0.1", "--port", &server.port, "write", "bw", "--size", "4M"];
    let mut client = command(&to);
    let client = client.args(["--rounds", "10000", "--time", "20"]).env("IWARP_LOCAL", "off");
    let mut client = client.stdout(Stdio::null()).spawn().expect("it starts");
    let pid = server.process.id().to_string();
    messages(&pid, 1);
    for times in 1..=3 {
        let capture = format!("{},snap=128", text(&file));
        assert!(run(&["capture", &pid, &capture]).status.success());
        within(Duration::from_secs(30), "Writes", || {
            let len = fs::metadata(&file).ok()?.len();
            (len > times * 300_000).then_some(())
        });
        assert!(run(&["capture", &pid, "--end"]).status.success());
    }
    client.kill().and_then(|()| client.wait()).expect("it ends");
    is_explained_as_fine(&file);
    let explained = stdout(&run(&["explain", text(&file)]));
    assert!(!explained.contains("could not be read"), "{explained}");
    // All frames that have packets: some 220 bytes each.
    let frames = explained.lines().filter(|line| line.contains(" RDMA Write of "));
    let frames = frames.filter_map(|line| line.rsplit_once(" in ")?.1.strip_suffix(" frames"));
    let frames: u32 = frames.filter_map(|count| count.replace(',', "").parse::<u32>().ok()).sum();
    assert!(frames > 3000, "{frames} of long Writes: {explained}");
}

#[test]
fn processes_have_files_of_their_own_where_that_is_asked_for() {
    let folder = Folder::new("own");
    let file = folder.file("%p.pcapng");
    exchange([text(&file), text(&file)], "64", &[]);
    assert_eq!(folder.files().len(), 2);
}

#[test]
fn a_ring_of_files_keeps_the_last() {
    let folder = Folder::new("ring");
    let capture = format!("{},ring=2x200K", text(&folder.file("ring")));
    exchange([&capture, &capture], "60000", &[("IWARP_LOCAL", "off")]);
    let files = folder.files();
    assert_eq!(files.len(), 4, "two of each process: {files:?}");
    for file in files {
        // Packets that waited in memory may come on top.
        assert!(fs::metadata(&file).expect("a file").len() < 800_000);
        assert!(tshark(&file, &[]).lines().count() > 0, "{file:?}");
    }
}

/// A program is not to fail for want of a capture, and its user is to know.
#[test]
fn a_file_that_cannot_be_had_is_said_and_harms_nothing() {
    let folder = Folder::new("none");
    let other = folder.file("notes.txt");
    fs::write(&other, "no capture, and not to be lost").expect("a file");
    let missing = folder.file("missing/file");
    let good = folder.file("good");
    for (capture, why) in [(text(&other), "something else"), (text(&missing), "No such file")] {
        let client = exchange([text(&good), capture], "64", &[]);
        let complaints = stderr(&client);
        assert!(complaints.contains("no capture") && complaints.contains(why), "{complaints}");
    }
    assert_eq!(fs::read(&other).expect("a file"), b"no capture, and not to be lost");
}
