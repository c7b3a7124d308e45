// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp set` of an unmodified program that runs.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::server::Server;
use crate::common::{command, messages, run, stderr};

/// Has a registration refused for each letter that it reads, and says so behind it: for `a` because
/// of its access, for `r` because of its range. One that is right for `g`.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define FIND(name) \
    void *(*name)() = (void *(*)())dlsym(library, #name); \
    if (!name) { puts("no " #name); return 1; }

static char block[64];

int main(void) {
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    FIND(ibv_get_device_list)
    FIND(ibv_open_device)
    FIND(ibv_alloc_pd)
    void *(*ibv_reg_mr)(void *, void *, size_t, int) =
        (void *(*)(void *, void *, size_t, int))dlsym(library, "ibv_reg_mr");
    void **devices = ibv_get_device_list(NULL);
    void *pd = ibv_alloc_pd(ibv_open_device(devices[0]));
    if (!pd) { puts("no protection domain"); return 1; }
    puts("ready");
    fflush(stdout);
    for (int letter; (letter = getchar()) != EOF;) {
        /* IBV_ACCESS_REMOTE_WRITE alone; more bytes than there are addresses. */
        void *mr = letter == 'g' ? ibv_reg_mr(pd, block, sizeof block, 1)
                 : letter == 'a' ? ibv_reg_mr(pd, block, sizeof block, 2)
                                 : ibv_reg_mr(pd, block, (size_t)-1, 0);
        puts(mr ? "registered" : "refused");
        fflush(stdout);
    }
    return 0;
}
"#;

/// The program, which runs until it is dropped.
struct Running {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<std::process::ChildStdout>>,
    folder: PathBuf,
}

impl Running {
    fn start(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("iwarp-set-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (source, program) = (folder.join("program.c"), folder.join("program"));
        fs::write(&source, PROGRAM).expect("a file");
        let mut cc = Command::new("cc");
        let status = cc.arg("-w").arg("-o").arg(&program).arg(&source).arg("-ldl").status();
        assert!(status.expect("a C compiler: apt-get install gcc libc6-dev").success());
        let mut process = command(&["run"])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut running = Self { process, input, output, folder };
        assert_eq!(running.line(), "ready");
        running
    }

    fn line(&mut self) -> String {
        self.output.next().expect("it speaks").expect("text")
    }

    fn registers(&mut self, letter: &str) -> bool {
        self.input.write_all(letter.as_bytes()).expect("it reads");
        match &*self.line() {
            "registered" => true,
            "refused" => false,
            other => panic!("{other}"),
        }
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    /// Its words on standard error, until its end.
    fn complaints(mut self) -> String {
        let _ = self.process.kill();
        let mut text = String::new();
        let complaints = self.process.stderr.take().expect("piped").read_to_string(&mut text);
        complaints.expect("text");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_level_of_the_log_is_set_while_a_program_runs() {
    let mut running = Running::start("log");
    let set = |pid: &str, setting: &str| run(&["set", pid, setting]);
    let pid = running.pid();
    for (level, letter) in [("log=off", "a"), ("log=warn", "r")] {
        let output = set(&pid, level);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!running.registers(letter));
    }
    let output = set(&pid, "log=trace");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("start it with IWARP_LOG=trace"), "{}", stderr(&output));
    let complaints = running.complaints();
    assert_eq!(complaints.matches("ibv_reg_mr").count(), 1, "{complaints}");
    assert!(complaints.contains("address plus length"), "{complaints}");
}

#[test]
fn a_running_program_is_hurt_until_that_is_taken_back() {
    let mut running = Running::start("faults");
    let pid = running.pid();
    let mut set = |setting: &str| {
        let output = run(&["set", &pid, setting]);
        assert!(output.status.success(), "{}", stderr(&output));
        [(); 3].map(|()| running.registers("g"))
    };
    assert_eq!(set("log=info"), [true; 3]);
    assert_eq!(set("faults=errno=ENOMEM,verb=ibv_reg_mr,nth=2"), [true, false, true]);
    // They count anew.
    assert_eq!(set("faults=errno=EPERM,verb=ibv_reg_mr,nth=1"), [false, true, true]);
    assert_eq!(set("faults=off"), [true; 3]);
    for (wrong, words) in [
        ("faults=errno=ENOMEM,verb=ibv_reg_mr,nth=x", "nth"),
        ("faults=lose=100", "start it with IWARP_FAULTS"),
        ("faults=place=pieces", "start it with IWARP_FAULTS"),
    ] {
        let output = run(&["set", &pid, wrong]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(running.registers("g"));
    let complaints = running.complaints();
    assert!(complaints.contains("faults on purpose (iwarp set)"), "{complaints}");
    assert!(complaints.contains("a fault on purpose: program:1:0:ibv_reg_mr:2"), "{complaints}");
    assert!(complaints.contains("faults on purpose end here"), "{complaints}");
}

/// Its connection was there before the faults.
#[test]
fn a_connection_of_a_running_program_is_hurt() {
    let server = Server::start("127.0.0.1", &["-P"]);
    let client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port])
        .args(["-C", "1000000000"])
        .env("IWARP_LOG", "info")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = client.id().to_string();
    messages(&pid, 101);
    let output = run(&["set", &pid, "faults=status=REM_OP_ERR,op=send,times=1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = client.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("a fault on purpose: "), "{}", stderr(&output));
}

#[test]
fn a_setting_that_makes_no_sense_is_refused() {
    for (wrong, words) in [
        (["set", "1", "log=loud"], "expected log=off|error|warn|info|debug"),
        (["set", "1", "log=debug"], "process 1 has no device of this library"),
    ] {
        let output = run(&wrong);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}
