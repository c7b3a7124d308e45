// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp set PID link=down` of programs that run.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::busy::Busy;
use crate::common::{command, messages, run, stderr, stdout, within};

fn set(pid: &str, setting: &str) {
    let output = run(&["set", pid, setting]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// By shared memory with its direct copies, and by TCP; at either end.
#[test]
fn a_connection_stands_still_while_a_port_is_down() {
    for (local, at_server) in [("auto", false), ("auto", true), ("off", false), ("off", true)] {
        let busy = Busy::start(&[("IWARP_LOCAL", local)]);
        let client = busy.pid();
        let pulled = if at_server { busy.server.process.id().to_string() } else { client.clone() };
        set(&pulled, "link=down");
        // Bytes on their way to the other end may still come there; there is no next round.
        let before = messages(&pulled, 0);
        let why = run(&["why", &pulled]);
        assert!(why.status.success(), "{}", stdout(&why));
        assert!(stdout(&why).contains(&format!("iwarp set {pulled} link=up")), "{}", stdout(&why));
        assert_eq!(messages(&pulled, 0), before, "{local} {at_server}");
        set(&pulled, "link=up");
        messages(&client, messages(&client, 0) + 11);
        let why = stdout(&run(&["why", &pulled]));
        assert!(!why.contains("link=up"), "{why}");
    }
}

/// The time-out and the retries of the program's own queue pair end it.
#[test]
fn a_roce_queue_pair_gives_up_without_its_cable() {
    let start = |to: &[&str]| {
        let mut pingpong = command(&["run", "--personality", "roce", "--"]);
        let words = ["ibv_rc_pingpong", "-e", "-g", "0", "-p", "7651", "-n", "100000000"];
        pingpong.args(words).args(to).env("IWARP_WIRE", "roce");
        let streams = pingpong.stdout(Stdio::null()).stderr(Stdio::piped());
        streams.spawn().expect("the command runs")
    };
    let mut server = start(&[]);
    let client = within(Duration::from_secs(20), "the server", || {
        let mut client = start(&["127.0.0.1"]);
        let pid = client.id().to_string();
        // The server may not listen yet.
        within(Duration::from_secs(20), "traffic", || {
            let counts = stdout(&run(&["statistic", "-j", "-p", &pid]));
            let counts: serde_json::Value = serde_json::from_str(&counts).unwrap_or_default();
            let moves = counts[0]["rx_messages"].as_u64().is_some_and(|count| count > 10);
            (moves || client.try_wait().expect("it can be waited for").is_some()).then_some(())
        });
        client.try_wait().expect("it can be waited for").is_none().then_some(client)
    });
    set(&client.id().to_string(), "link=down");
    let output = client.wait_with_output().expect("it ends");
    let _ = server.kill();
    let _ = server.wait();
    assert!(!output.status.success());
    let complaints = stderr(&output);
    assert!(complaints.contains("transport retry counter exceeded"), "{complaints}");
}

#[test]
fn programs_hear_of_a_port_that_is_down() {
    let mut watch = command(&["run", "--personality", "iwarp", "--", "ibv_asyncwatch"]);
    let watch = watch.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut watch = Ended(watch);
    let pid = watch.0.id().to_string();
    let mut lines = BufReader::new(watch.0.stdout.take().expect("piped")).lines();
    let mut line = move || lines.next().expect("it speaks").expect("text");
    assert!(line().contains("async event FD"));
    set(&pid, "link=down");
    // A second time changes nothing.
    set(&pid, "link=down");
    assert_eq!(line().trim(), "event_type IBV_EVENT_PORT_ERR (10), port 1");
    set(&pid, "link=up");
    assert_eq!(line().trim(), "event_type IBV_EVENT_PORT_ACTIVE (9), port 1");
}

/// Killed when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// For each letter that it reads it says the state of its port (`p`), or the event in which
/// resolving an address (`r`) or connecting with an id that has resolved (`c`) ends.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static struct rdma_event_channel *channel;

static struct rdma_cm_id *resolve(void) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7652) };
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    struct rdma_cm_id *id;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) return NULL;
    return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) ? NULL : id;
}

static enum rdma_cm_event_type next(int say) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event)) return -1;
    if (say) printf("%s %d\n", rdma_event_str(event->event), event->status);
    enum rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    return type;
}

int main(void) {
    channel = rdma_create_event_channel();
    struct rdma_cm_id *id = resolve();
    if (!id || next(0) != RDMA_CM_EVENT_ADDR_RESOLVED || rdma_resolve_route(id, 1000)
        || next(0) != RDMA_CM_EVENT_ROUTE_RESOLVED)
        return 1;
    struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC };
    if (rdma_create_qp(id, NULL, &init)) return 2;
    puts("ready");
    fflush(stdout);
    for (int letter; (letter = getchar()) != EOF;) {
        struct ibv_port_attr port;
        struct rdma_conn_param param = { .retry_count = 7 };
        if (letter == 'p') puts(ibv_query_port(id->verbs, 1, &port) ? "error"
                                : ibv_port_state_str(port.state));
        else if (letter == 'r') { if (!resolve()) return 3; next(1); }
        else { if (rdma_connect(id, &param)) return 4; next(1); }
        fflush(stdout);
    }
    return 0;
}
"#;

#[test]
fn no_address_resolves_and_no_connection_is_made_while_the_port_is_down() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("link");
    fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("a file");
    let mut cc = Command::new("cc");
    let cc = cc.arg("-w").arg("-o").arg(&program).arg(&source).args(["-lrdmacm", "-libverbs"]);
    assert!(cc.status().expect("cc and librdmacm-dev are installed").success());
    let mut process = command(&["run", "--personality", "iwarp", "--"]);
    let process = process.arg(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut process = Ended(process.expect("the command runs"));
    let pid = process.0.id().to_string();
    let mut input = process.0.stdin.take().expect("piped");
    let mut lines = BufReader::new(process.0.stdout.take().expect("piped")).lines();
    let mut line = move || lines.next().expect("it speaks").expect("text");
    assert_eq!(line(), "ready");
    let mut answers = |letters: &str, expected: &[&str]| {
        input.write_all(letters.as_bytes()).expect("it reads");
        for expected in expected {
            assert_eq!(line(), *expected);
        }
    };
    answers("pr", &["active", "RDMA_CM_EVENT_ADDR_RESOLVED 0"]);
    set(&pid, "link=down");
    answers("prc", &["down", "RDMA_CM_EVENT_ADDR_ERROR -113", "RDMA_CM_EVENT_UNREACHABLE -110"]);
    set(&pid, "link=up");
    answers("pr", &["active", "RDMA_CM_EVENT_ADDR_RESOLVED 0"]);
}
