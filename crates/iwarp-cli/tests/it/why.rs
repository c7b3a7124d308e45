// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp why` of programs that are stuck, each in a way of its own, and the other commands that
//! ask running processes.

mod stuck;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::server::Server;
use crate::common::{command, run, stdout, within};

/// The time for which the reason may be another: the program has just got stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that is stuck; killed when it is dropped.
struct Stuck {
    process: Child,
    /// The words that it said when it was ready.
    words: String,
}

impl Stuck {
    fn start(how: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().expect("a path"));
        command.args(["why::stuck::program", "--exact", "--ignored", "--nocapture"]);
        command.env(stuck::HOW, how).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let ready = output.lines().map_while(Result::ok).find_map(|line| {
            line.split_once(stuck::READY).map(|(_, words)| words.trim().to_owned())
        });
        Self { process, words: ready.expect("it gets ready") }
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Stops all its threads: they go on until the first has taken the signal.
    fn stop(&self) {
        self.signal("-STOP");
        let is_stopped = |status: String| status.lines().any(|line| line.starts_with("State:\tT"));
        within(PATIENCE, "the stop", || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?.flatten();
            let mut statuses =
                threads.map(|thread| fs::read_to_string(thread.path().join("status")));
            statuses.all(|status| status.is_ok_and(is_stopped)).then_some(())
        });
    }

    /// Asks until the answer has these words.
    fn waits_for(&self, words: &str) {
        let mut last = String::new();
        let mut ask = || {
            last = stdout(&run(&["why", &self.pid()]));
            last.contains(words).then_some(())
        };
        let mut asked = 0;
        let found = within(PATIENCE, words, || {
            asked += 1;
            match ask() {
                None if asked < 30 => None,
                found => Some(found.is_some()),
            }
        });
        assert!(found, "no {words:?} in:\n{last}");
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One process, both ends in it.
fn alone(how: &str, words: &str) {
    Stuck::start(how, &[]).waits_for(words);
}

#[test]
fn a_message_without_a_receive() {
    alone("receive", "A message of the peer waits for a receive, and none is posted.");
}

#[test]
fn a_sender_whose_peer_has_no_receive() {
    alone("receive", "has posted no receive for it");
}

#[test]
fn an_empty_shared_receive_queue() {
    alone("srq", "A message of the peer waits for a receive: shared receive queue");
}

#[test]
fn completions_without_a_poll() {
    alone("poll", "and the program does not poll (ibv_poll_cq)");
}

#[test]
fn an_event_that_is_not_taken() {
    alone("event", "the program does not take it (ibv_get_cq_event)");
}

#[test]
fn a_queue_that_is_not_armed() {
    alone("unarmed", "and the queue is not armed");
}

#[test]
fn a_lost_wake_up() {
    alone("late", "and came before the queue was armed");
}

#[test]
fn a_request_that_is_not_accepted() {
    let stuck = Stuck::start("request", &[]);
    stuck.waits_for("the program has not accepted or rejected it");
    stuck.waits_for("It connects, and the peer has not answered");
}

#[test]
fn a_peer_that_is_silent_in_start_up() {
    alone("startup", "It connects, and the peer has not answered");
}

#[test]
fn two_ends_that_wait_for_each_other() {
    alone("both", "both ends wait for each other's messages");
}

#[test]
fn a_peer_that_is_not_there() {
    alone("meeting", "It looks for its peer");
}

#[test]
fn a_receiver_that_is_not_ready() {
    Stuck::start("receive", &[("IWARP_WIRE", "roce")]).waits_for("RNR NAK");
}

/// A client of a server that is stopped, by the way that `local` names.
fn of_a_stopped_server(how: &str, local: &str, words: &str) {
    let environment = [("IWARP_LOCAL", local)];
    let server = Stuck::start("serve", &environment);
    let port = [("IWARP_LOCAL", local), (stuck::PORT, &server.words)];
    let mut client = Stuck::start(how, &port);
    server.stop();
    // It acts once its standard input ends.
    drop(client.process.stdin.take());
    client.waits_for(words);
    let named = format!("Process {} (", server.pid());
    client.waits_for(&named);
    let ps = stdout(&run(&["ps"]));
    assert!(ps.contains("is stopped, by a signal or by a debugger"), "{ps}");
    let why = stdout(&run(&["why", &server.pid()]));
    assert!(why.contains("is stopped"), "{why}");
    server.signal("-CONT");
}

#[test]
fn a_server_that_is_stopped_and_a_fence() {
    of_a_stopped_server("fence", "off", "The next request has a fence");
}

#[test]
fn a_server_that_is_stopped_and_a_full_socket() {
    of_a_stopped_server("full", "off", "TCP takes no more");
}

#[test]
fn a_server_that_is_stopped_and_full_memory() {
    of_a_stopped_server("full", "rings", "The memory between the two is full");
}

#[test]
fn a_server_that_has_died() {
    let server = Stuck::start("serve", &[]);
    let client = Stuck::start("idle", &[(stuck::PORT, &server.words)]);
    drop(server);
    client.waits_for("It is in the error state");
}

#[test]
fn a_process_without_a_device_is_told_from_a_stuck_one() {
    let output = run(&["why", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let complaints = crate::common::stderr(&output);
    assert!(complaints.contains("iwarp ps lists those that can be asked"), "{complaints}");
}

/// A scrape as Prometheus does it.
#[test]
fn numbers_are_served_by_http() {
    let stuck = Stuck::start("receive", &[]);
    let mut serving = Server::start_with(&mut command(&["metrics", "--listen", "127.0.0.1:0"]));
    let ask = |request: &str| {
        let mut stream =
            TcpStream::connect(format!("127.0.0.1:{}", serving.port)).expect("it listens");
        write!(stream, "{request} /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    };
    let answer = ask("GET");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let line = format!("iwarp_connections{{pid=\"{}\",program=\"", stuck.pid());
    let own = answer.lines().find(|found| found.starts_with(&line)).expect("it is there");
    assert!(own.ends_with("\"} 2"), "{own}");
    assert!(ask("POST").starts_with("HTTP/1.1 405 "));
    assert!(serving.process.try_wait().expect("it is there").is_none());
}

#[test]
fn objects_are_shown_of_each_process() {
    let stuck = Stuck::start("receive", &[]);
    // Its worker may wait for a CPU.
    let text = within(PATIENCE, "an answer", || {
        let text = stdout(&run(&["resource", "qp", "--pid", &stuck.pid()]));
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(
        text.lines().all(|line| line.starts_with("qp ") && line.contains(" state Rts")),
        "{text}"
    );
    let json = stdout(&run(&["resource", "--json", "--pid", &stuck.pid()]));
    let list: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let kinds: Vec<_> =
        list.as_array().expect("a list").iter().map(|one| one["kind"].clone()).collect();
    assert!(kinds.contains(&"cq".into()) && kinds.contains(&"cm_id".into()), "{json}");
    let ps = stdout(&run(&["ps", "--json"]));
    let all: serde_json::Value = serde_json::from_str(&ps).expect("JSON");
    let is_own = |one: &&serde_json::Value| one["pid"] == stuck.process.id();
    let own = all.as_array().expect("a list").iter().find(is_own).expect("it is listed");
    assert_eq!(own["qp"], 2);
}

/// The program waits: it has traffic, and moves none.
#[test]
fn numbers_of_queue_pairs_are_shown_one_by_one() {
    let stuck = Stuck::start("receive", &[]);
    let text = within(PATIENCE, "an answer", || {
        let text = stdout(&run(&["statistic", "--pid", &stuck.pid(), "--rates", "1"]));
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(text.lines().count(), 2, "{text}");
    let is_whole = |line: &str| {
        line.starts_with("qp device ")
            && line.ends_with("_per_s 0")
            && line.contains(" rx_messages ")
    };
    assert!(text.lines().all(is_whole), "{text}");
    let json = stdout(&run(&["statistic", "--json", "--pid", &stuck.pid()]));
    let list: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let sent: u64 = list.iter().filter_map(|one| one["tx_bytes"].as_u64()).sum();
    assert!(list.len() == 2 && sent > 0, "{json}");
}

#[test]
fn top_prints_tables_where_there_is_no_terminal() {
    let stuck = Stuck::start("receive", &[]);
    let pid = stuck.pid();
    let is_own = |line: &&str| line.split_whitespace().next() == Some(&*pid);
    let rows = |arguments: &[&str]| {
        within(PATIENCE, "an answer", || {
            let text = stdout(&run(&[&["top", "--batch", "2"][..], arguments].concat()));
            let rows = text.lines().filter(is_own).count();
            (rows > 0 && rows % 2 == 0).then_some(rows)
        })
    };
    assert_eq!(rows(&[]), 4);
    assert_eq!(rows(&["--processes", "--order", "pid"]), 2);
    let output = run(&["top"]);
    assert!(!output.status.success());
    assert!(crate::common::stderr(&output).contains("--batch COUNT prints tables"));
    // Its log is its own.
    let output = run(&["set", &pid, "log=debug"]);
    let complaints = crate::common::stderr(&output);
    assert!(complaints.contains("a tracing subscriber of its own"), "{complaints}");
}
