// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures that processes make of themselves, in the eyes of a foreign decoder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::capture::{Decoded, tshark};
use crate::common::server::Server;
use crate::common::{command, run, stderr, stdout};

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
    let mut listen = command(&["rping", "-s", "-p", "0", "-a", "127.0.0.1", "-S", size]);
    listen.env("IWARP_CAPTURE", captures[0]).envs(environment.iter().copied());
    let mut server = Server::start_with(&mut listen);
    let client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port])
        .args(["-C", "10", "-S", size, "-V"])
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
    let folder = Folder::new(name);
    let files = [folder.file("server"), folder.file("client")];
    exchange(files.each_ref().map(|file| text(file)), size, environment);
    files.map(|file| {
        let decoded = Decoded { text: tshark(&file, &["-V"]) };
        assert_eq!(decoded.count("Malformed"), 0, "{}", decoded.text);
        assert_eq!(decoded.count("Bad CRC32"), 0, "{}", decoded.text);
        assert_eq!((decoded.count("ID Req frame:"), decoded.count("ID Rep frame:")), (1, 1));
        is_explained_as_fine(&file);
        decoded
    })
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
fn frames_in_shared_memory_have_the_crcs_that_start_up_has_agreed_on() {
    for decoded in both("rings", "65536", &[("IWARP_LOCAL", "rings")]) {
        decoded.has_ten_rounds();
        assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
        assert!(decoded.count("Interface name: memory-") > 0, "{}", decoded.text);
    }
}

#[test]
fn operations_of_one_end_alone_are_in_its_capture() {
    // The server reads and writes the client's memory.
    let [server, _] = both("direct", "3000", &[("IWARP_LOCAL", "auto")]);
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
    exchange([text(&file), text(&file)], "64", &[("IWARP_LOCAL", "off")]);
    let names = tshark(&file, &["-T", "fields", "-e", "frame.interface_name"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("tcp-")), "{names:?}");
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
