// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma resource show` of iproute2 below `iwarp run`: the objects of other processes.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iwarp_os::process::started;
use iwarp_os::roster::{self, Object, Row};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{command, stderr, stdout};

/// A tree of its own, and the processes that use it.
struct Scene {
    place: PathBuf,
    children: Vec<Child>,
    deadline: Instant,
}

impl Scene {
    fn new(name: &str) -> Self {
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("objects-{name}"));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a directory for the test");
        Self { place, children: Vec::new(), deadline: Instant::now() + Duration::from_secs(30) }
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = command(&["run", "--devices", "a=lo,b=lo", "--"]);
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.place);
        command
    }

    /// Starts a program; returns the number of its process.
    fn start(&mut self, arguments: &[&str]) -> u32 {
        let child = self.run(arguments).stdout(Stdio::null()).spawn().expect("the command runs");
        self.children.push(child);
        self.children[self.children.len() - 1].id()
    }

    /// The objects that `rdma resource show` lists.
    fn show(&self, arguments: &[&str]) -> Vec<Value> {
        let (options, arguments) = arguments.split_at(usize::from(arguments[0] == "-dd"));
        let words = ["resource", "show"];
        let arguments = [&["rdma", "-j"], options, &words, arguments].concat();
        let output = self.run(&arguments).output().expect("the command runs");
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        let text = stdout(&output);
        if text.trim().is_empty() {
            return Vec::new();
        }
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Asks until the answer suits.
    fn wait_for(&mut self, arguments: &[&str], suits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let found = self.show(arguments);
            if suits(&found) {
                return found;
            }
            let ended: Vec<_> = self.children.iter_mut().map(Child::try_wait).collect();
            assert!(Instant::now() < self.deadline, "{arguments:?}: {found:?}, {ended:?}");
        }
    }

    fn signal(&self, signal: Signal) {
        for child in &self.children {
            let pid = Pid::from_child(child);
            kill_process(pid, signal).expect("it is there");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill().and_then(|()| child.wait());
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} of {object}"))
}

/// A connection within the host is told from one by TCP.
#[test]
fn the_way_of_a_connection_is_listed() {
    for (local, port, moved) in [("auto", "7617", true), ("off", "7618", false)] {
        let mut scene = Scene::new(&format!("way-{local}"));
        let setting = format!("IWARP_LOCAL={local}");
        let words = ["env", &setting, "rping", "-a", "127.0.0.1", "-p", port];
        scene.start(&[&words[..], &["-s"]].concat());
        scene.wait_for(&["cm_id"], |found| !found.is_empty());
        scene.start(&[&words[..], &["-c", "-C", "100000000"]].concat());
        let pairs = scene.wait_for(&["-dd", "qp"], |found| {
            let is_there = |pair: &Value| {
                pair["state"] == "RTS" && (pair["drv_local_path"] == "rings" || !moved)
            };
            found.len() == 2 && found.iter().all(is_there)
        });
        assert!(pairs.iter().all(|pair| (pair["drv_local_path"] == "rings") == moved), "{pairs:?}");
    }
}

/// One of each kind, with the numbers that lead from one to the other.
#[test]
fn objects_of_a_process_are_listed() {
    let mut scene = Scene::new("kinds");
    // It waits for its client.
    let pid = scene.start(&["ibv_srq_pingpong", "-d", "b", "-g", "0", "-p", "0", "-q", "2"]);
    let pairs = scene.wait_for(&["qp"], |found| {
        found.len() == 2 && found.iter().all(|pair| pair["state"] == "INIT")
    });
    let only = |kind: &str| {
        let found = scene.show(&[kind]);
        let [object] = &found[..] else { panic!("{kind}: {found:?}") };
        assert_eq!(
            (&object["ifname"], number(object, "pid")),
            (&"b".into(), pid.into()),
            "{object}"
        );
        assert_eq!(object["comm"], "ibv_srq_pingpon");
        object.clone()
    };
    let [context, domain, queue, region, shared] = ["ctx", "pd", "cq", "mr", "srq"].map(only);
    let (ctxn, pdn) = (number(&context, "ctxn"), number(&domain, "pdn"));
    assert_eq!((number(&domain, "ctxn"), number(&queue, "ctxn")), (ctxn, ctxn));
    // Two queue pairs, a shared receive queue and a region; both queues of two queue pairs.
    assert_eq!((number(&domain, "users"), number(&queue, "users")), (4, 4));
    assert!(number(&queue, "cqe") >= 500, "{queue}");
    assert_eq!((number(&region, "mrlen"), number(&region, "pdn")), (4096, pdn));
    assert_eq!(number(&shared, "pdn"), pdn);
    for pair in &pairs {
        assert_eq!((&pair["type"], number(pair, "pid")), (&"RC".into(), pid.into()), "{pair}");
        assert_eq!((number(pair, "pdn"), number(pair, "port")), (pdn, 1));
    }

    // `rdma` sorts out what was not asked for, or asks for one by its number.
    let lqpn = number(&pairs[1], "lqpn").to_string();
    assert_eq!(scene.show(&["qp", "lqpn", &lqpn]), pairs[1..]);
    assert_eq!(scene.show(&["cq", "cqn", &number(&queue, "cqn").to_string()]), [queue]);
    assert_eq!(scene.show(&["qp", "link", "b/1"]), pairs);
    assert_eq!(scene.show(&["qp", "link", "a/1"]), [Value::Null; 0]);
    assert_eq!(scene.show(&["qp", "pid", &pid.to_string()]), pairs);
    assert_eq!(scene.show(&["qp", "pid", "1"]), [Value::Null; 0]);

    // A process that is stopped is listed, and one that is killed is not.
    scene.signal(Signal::STOP);
    assert_eq!(scene.show(&["qp"]), pairs);
    scene.signal(Signal::KILL);
    scene.children[0].wait().expect("it ends");
    for kind in ["qp", "cq", "mr", "pd", "ctx", "srq"] {
        assert_eq!(scene.show(&[kind]), [Value::Null; 0]);
    }
}

/// Both ids of a connection, and the one that it was made at.
#[test]
fn ids_are_listed_with_their_addresses() {
    let mut scene = Scene::new("ids");
    let server = scene.start(&["rping", "-s", "-a", "127.0.0.1", "-p", "7614"]);
    let found = scene.wait_for(&["cm_id"], |found| found.len() == 1);
    let listener = &found[0];
    assert_eq!((&listener["state"], &listener["ps"]), (&"LISTEN".into(), &"TCP".into()));
    assert_eq!(listener["src-addr"], "127.0.0.1:7614");
    assert_eq!((number(listener, "pid"), &listener["lqpn"]), (server.into(), &Value::Null));
    scene.start(&["rping", "-c", "-a", "127.0.0.1", "-p", "7614", "-C", "100000000"]);
    // The client has a port when its connection is made.
    let has_port = |id: &Value| id["src-addr"].as_str().is_some_and(|addr| !addr.ends_with(":0"));
    let is_connected = |id: &Value| id["state"] == "CONNECT" && has_port(id);
    let connected = |found: &[Value]| {
        found.len() == 3 && found.iter().all(|id| id == listener || is_connected(id))
    };
    let ids = scene.wait_for(&["cm_id"], connected);
    let [one, other] = &ids.iter().filter(|id| *id != listener).collect::<Vec<_>>()[..] else {
        panic!("{ids:?}")
    };
    assert_eq!(one["src-addr"], other["dst-addr"]);
    assert_eq!(one["dst-addr"], other["src-addr"]);
    // Theirs are the queue pairs that are listed.
    let mut pairs: Vec<_> = scene.show(&["qp"]).iter().map(|pair| number(pair, "lqpn")).collect();
    let mut known = [number(one, "lqpn"), number(other, "lqpn")];
    pairs.sort_unstable();
    known.sort_unstable();
    assert_eq!(pairs, known);
    assert_eq!(scene.show(&["cm_id", "dst-port", "7614"]).len(), 1);
}

/// The packet numbers that queue pairs begin with are between the two programs.
#[test]
fn no_other_user_sees_the_objects() {
    let scene = Scene::new("private");
    let output = scene.run(&["sh", "-c", "stat -c %a $IWARP_SYSFS/counted/objects"]).output();
    assert_eq!(stdout(&output.expect("the command runs")), "600\n");
}

/// Each end of a connection has the other's numbers.
#[test]
fn queue_pairs_are_listed_as_they_are_now() {
    let mut scene = Scene::new("pairs");
    let options = ["-d", "a", "-g", "0", "-p", "7613", "-n", "100000000"];
    let common = [&["env", "IWARP_LOCAL=auto", "ibv_rc_pingpong"][..], &options].concat();
    let server = scene.start(&common);
    scene.wait_for(&["qp"], |found| found.len() == 1);
    // It may not listen yet.
    let script = format!("until {} 127.0.0.1; do :; done", common.join(" "));
    scene.start(&["sh", "-c", &script]);
    // Programs bring queue pairs to RTS before these have found each other. One that has not waits
    // on for a client that is gone.
    let is_connected = |p: &Value| p["state"] == "RTS" && p["drv_local_path"] == "rings";
    let connected = |found: &[Value]| found.len() == 2 && found.iter().all(is_connected);
    let pairs = scene.wait_for(&["-dd", "qp"], connected);
    for (one, other) in [(0, 1), (1, 0)] {
        let (one, other) = (&pairs[one], &pairs[other]);
        assert_eq!(one["rqpn"], other["lqpn"]);
        assert_eq!(one["rq-psn"], other["sq-psn"]);
    }
    assert_ne!((number(&pairs[0], "sq-psn"), number(&pairs[1], "sq-psn")), (0, 0));
    let is_clients = |pair: &&Value| number(pair, "pid") != u64::from(server);
    let client = number(pairs.iter().find(is_clients).expect("its pair"), "pid");
    // Another would take its place.
    let mut shell = scene.children.pop().expect("it was started");
    shell.kill().and_then(|()| shell.wait()).expect("it is there");
    let client = Pid::from_raw(client as i32).expect("a process");
    kill_process(client, Signal::KILL).expect("it is there");
    // The server's requests fail, and it ends.
    scene.wait_for(&["qp"], |found| found.is_empty());
}

/// A row that its process is just writing is none, and neither is one of a dead process.
#[test]
fn rows_that_are_not_whole_are_left_out() {
    let scene = Scene::new("torn");
    let output = scene.run(&["sh", "-c", "echo $IWARP_SYSFS/counted/objects"]).output();
    let file = PathBuf::from(stdout(&output.expect("the command runs")).trim());
    let pid = std::process::id();
    let me = u64::from(pid) | u64::from(started(pid).expect("it runs")) << 32;
    // The number itself, but of another process.
    let dead = me ^ 1 << 32;
    let words = |length| {
        let object = Object::Region { length };
        Row { device: 1, context: 0, domain: 0, object }.words()
    };
    let whole =
        |owner, length| [&words(length)[..], &[0, roster::check(owner, &words(length))]].concat();
    let mut torn = whole(me, 2);
    torn[2] = 3;
    let page = |owner, rows: &[Vec<u64>]| {
        let mut page = [&[owner][..], &[0; 7], &rows.concat()].concat();
        page.resize(4096 / 8, 0);
        page
    };
    let pages = [
        page(dead, &[whole(dead, 1)]),
        page(me, &[torn, whole(me, 4)]),
        page(me, &[whole(dead, 5)]),
    ];
    let octets: Vec<u8> = pages.concat().into_iter().flat_map(u64::to_ne_bytes).collect();
    fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut file| file.write_all(&octets))
        .expect("the file is this user's");
    let found = scene.show(&["mr"]);
    let [region] = &found[..] else { panic!("{found:?}") };
    let numbers = ["mrlen", "mrn", "pid"].map(|name| number(region, name));
    assert_eq!((numbers, &region["ifname"]), ([4, 66, pid.into()], &"b".into()));
}

/// A request with a key of no region ends its queue pair; the program asks for nothing more.
#[test]
fn a_queue_pair_that_failed_is_listed_so() {
    let mut scene = Scene::new("failed");
    let (source, program) = (scene.place.join("failed.c"), scene.place.join("failed"));
    fs::write(&source, FAILED).expect("the folder is there");
    let status = Command::new("cc").arg("-o").arg(&program).arg(source).arg("-libverbs").status();
    assert!(status.expect("cc and libibverbs-dev are installed").success());
    scene.start(&[program.to_str().expect("UTF-8")]);
    scene.wait_for(&["qp"], |found| matches!(found, [pair] if pair["state"] == "ERR"));
    let [pair] = &scene.show(&["qp"])[..] else { panic!() };
    let numbers = ["rqpn", "rq-psn", "sq-psn"].map(|name| number(pair, name));
    assert_eq!(numbers, [number(pair, "lqpn"), 77, 77]);
}

const FAILED: &str = r#"
#include <infiniband/verbs.h>
#include <stdint.h>
#include <unistd.h>

int main(void) {
    struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1 },
        .qp_type = IBV_QPT_RC };
    struct ibv_qp *qp = ibv_create_qp(ibv_alloc_pd(context), &init);
    /* It is its own peer. */
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num, .rq_psn = 77, .sq_psn = 77, .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1 }, .timeout = 14, .retry_cnt = 7 };
    ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid);
    int failed = ibv_modify_qp(qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    failed |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
        IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    failed |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    struct ibv_sge sge = { (uintptr_t)&attr, 64, 12345 };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    struct ibv_wc wc;
    if (failed || ibv_post_send(qp, &wr, &bad)) return 1;
    while (!ibv_poll_cq(cq, 1, &wc)) {}
    if (wc.status == IBV_WC_SUCCESS) return 1;
    pause();
}
"#;
