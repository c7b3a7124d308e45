// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run`: what it does for a program, and to which programs it says no.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use iwarp_os::ledger::{self, Entry};

use crate::common::{command, stderr, stdout};

/// An empty directory of a test's own, which goes with it.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn directory(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        path
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
        path
    }

    /// A program compiled from C.
    fn compiled(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = self.file("program.c", PROGRAM);
        let program = self.path(name);
        let status = Command::new("cc").arg("-o").arg(&program).arg(source).args(options).status();
        let found = status.expect("a C compiler: apt-get install gcc libc6-dev");
        assert!(found.success(), "cc {options:?}");
        program
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Says what is preloaded.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const char *list = getenv("LD_PRELOAD");
    printf("preloaded: %s\n", list ? list : "nothing");
    printf("audited: %s\n", getenv("LD_AUDIT") ? "yes" : "no");
    return 42;
}
"#;

fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    command(&["run"]).args(arguments).output().expect("the command runs")
}

/// Runs it for a program that is refused; returns the one line that says why.
fn refused(program: impl AsRef<OsStr>, status: i32) -> String {
    let output = run(&[program.as_ref()]);
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(text.starts_with("iwarp run: ") && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn the_exit_status_is_the_programs() {
    assert_eq!(run(&["--", "sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(run(&["--", "sh", "-c", "kill -USR1 $$"]).status.signal(), Some(10));
}

#[test]
fn options_behind_the_program_are_the_programs() {
    assert_eq!(stdout(&run(&["echo", "--crc", "off", "--", "-x"])), "--crc off -- -x\n");
    assert!(stdout(&run(&["echo", "--version"])).starts_with("echo "));
}

/// So a signal to it is a signal to the program, and a shell's job control works.
#[test]
fn the_program_takes_the_place_of_the_command() {
    let mut child = command(&["run", "--", "sh", "-c", "echo $$; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut line).expect("the program speaks");
    assert_eq!(line.trim(), child.id().to_string());
    child.kill().expect("it is there");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
}

#[test]
fn a_program_finds_the_libraries_by_all_their_names() {
    let script = "echo $LD_LIBRARY_PATH; for lib in ibverbs rdmacm; do \
        readlink -f ${LD_LIBRARY_PATH%%:*}/lib$lib.so.1 ${LD_LIBRARY_PATH%%:*}/lib$lib.so; done";
    let output = command(&["run", "--", "sh", "-c", script])
        .env("LD_LIBRARY_PATH", "/elsewhere")
        .output()
        .expect("the command runs");
    let text = stdout(&output);
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|list| list.ends_with(":/elsewhere")), "{text}");
    let libraries: Vec<_> = lines.collect();
    assert_eq!(libraries.len(), 4, "{text}{}", stderr(&output));
    for path in libraries {
        assert!(Path::new(path).is_file(), "{path}");
    }
}

/// `cargo install` copies the command and nothing beside it: the command then says in one line what
/// to do, and that is enough.
#[test]
fn an_installed_command_says_how_it_gets_its_libraries() {
    let scratch = Scratch::new("installed");
    let built = Path::new(env!("CARGO_BIN_EXE_iwarp"));
    let bin = scratch.directory("bin", 0o755);
    let iwarp = bin.join("iwarp");
    fs::copy(built, &iwarp).expect("a copy of the command");
    let run = || Command::new(&iwarp).args(["run", "true"]).output().expect("the command runs");

    let without = run();
    assert_eq!(without.status.code(), Some(125));
    let (said, lib) = (stderr(&without), scratch.path("lib/iwarp"));
    let line = format!("cp target/release/deps/lib{{ibverbs,rdmacm}}.so {}\n", lib.display());
    assert!(said.lines().count() == 1 && said.ends_with(&line), "{said}");

    fs::create_dir_all(&lib).expect("the directory that it named");
    for name in ["libibverbs.so", "librdmacm.so"] {
        let from = built.with_file_name("deps").join(name);
        fs::copy(from, lib.join(name)).expect("a copy of the library");
    }
    let with = run();
    assert!(with.status.success(), "{}", stderr(&with));
}

#[test]
fn options_become_variables() {
    let script = "echo $IWARP_PERSONALITY $IWARP_CRC $IWARP_MARKERS $IWARP_LOG $IWARP_LINGER_MS";
    let options = ["--personality", "roce", "--crc", "off", "--markers", "on", "--log", "debug"];
    let output = command(&["run"])
        .args(options)
        .args(["--", "sh", "-c", script])
        .env("IWARP_CRC", "on")
        .env("IWARP_LINGER_MS", "77")
        .output()
        .expect("the command runs");
    assert_eq!(stdout(&output), "roce off on debug 77\n", "{}", stderr(&output));
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    // A soft limit of 100 below any hard one.
    let script =
        format!("ulimit -Sn 100; {} run -- sh -c ulimit\\ -Sn", env!("CARGO_BIN_EXE_iwarp"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let limit = stdout(&output);
    let limit: u64 = limit.trim().parse().unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert!(limit > 100, "still {limit}");
}

#[test]
fn the_name_of_the_program_is_as_it_was_given() {
    let text = stdout(&run(&["--", "sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline"]));
    assert!(text.starts_with("sh -c "), "{text}");
}

#[test]
fn a_missing_program_is_not_found() {
    assert!(refused("no-such-program", 127).contains("not found"));
    assert!(refused("/no/such/program", 127).contains("not found"));
}

#[test]
fn files_that_are_no_programs_are_refused() {
    let scratch = Scratch::new("no-program");
    assert!(refused(&scratch.0, 126).contains("is a directory"));
    let script = scratch.file("script", "#!/bin/sh\n");
    fs::set_permissions(&script, Permissions::from_mode(0o644)).expect("its mode");
    assert!(refused(&script, 126).contains("chmod +x"));
    // A user should not be told to make a program of that.
    let reason = refused("/etc/passwd", 126);
    assert!(reason.contains("is not a program") && !reason.contains("chmod"), "{reason}");
}

#[test]
fn a_static_program_is_refused_unless_forced() {
    let scratch = Scratch::new("static");
    let program = scratch.compiled("program", &["-static"]);
    assert!(refused(&program, 126).contains("statically linked"));
    let output = run(&[OsStr::new("--force"), program.as_os_str()]);
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}

#[test]
fn a_program_for_another_libc_is_refused() {
    let scratch = Scratch::new("libc");
    let musl = scratch.compiled("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert!(refused(&musl, 126).contains("musl"));
    let none = scratch.compiled("none", &["-Wl,--dynamic-linker=/no/such/ld.so.1"]);
    assert!(refused(&none, 126).contains("/no/such/ld.so.1"));
}

#[test]
fn a_program_for_another_architecture_is_refused() {
    let scratch = Scratch::new("foreign");
    let mut program = fs::read(scratch.compiled("program", &[])).expect("it was compiled");
    // e_machine is at 18 (System V ABI, ELF header); 2 is SPARC.
    program[18..20].copy_from_slice(&2_u16.to_ne_bytes());
    assert!(refused(scratch.file("foreign", program), 126).contains("another architecture"));
}

#[test]
fn a_damaged_program_is_refused() {
    let scratch = Scratch::new("damaged");
    let program = fs::read(scratch.compiled("program", &[])).expect("it was compiled");
    assert!(refused(scratch.file("short", &program[..80]), 126).contains("cannot be read"));
}

#[test]
fn a_setuid_program_is_refused() {
    // `su` is everywhere, and setuid root. For root that means nothing, so be another user, who may
    // not reach the build.
    let scratch = std::env::temp_dir().join(format!("iwarp-test-run-{}", std::process::id()));
    fs::create_dir(&scratch).expect("a directory in /tmp");
    let iwarp = scratch.join("iwarp");
    fs::copy(env!("CARGO_BIN_EXE_iwarp"), &iwarp).expect("a copy of the command");
    let root = fs::metadata("/proc/self").expect("/proc").uid() == 0;
    let mut command = if root {
        fs::set_permissions(&scratch, Permissions::from_mode(0o755)).expect("its mode");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&iwarp);
        command
    } else {
        Command::new(&iwarp)
    };
    let output = command.args(["run", "su"]).output();
    let _ = fs::remove_dir_all(&scratch);
    let output = output.expect("setpriv: apt-get install util-linux");
    assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
    assert!(stderr(&output).contains("is setuid"), "{}", stderr(&output));
}

#[test]
fn scripts_go_through_their_interpreters() {
    let scratch = Scratch::new("scripts");
    let direct = scratch.file("direct", "#!/bin/sh\nexit 41\n");
    assert_eq!(run(&[direct]).status.code(), Some(41));
    let found = scratch.file("found", "#!/usr/bin/env sh\nexit 43\n");
    assert_eq!(run(&[&found]).status.code(), Some(43));
    let twice = scratch.file("twice", format!("#!{}\n", found.display()));
    assert_eq!(run(&[twice]).status.code(), Some(43));
    let lost = scratch.file("lost", "#!/no/such/shell\n");
    assert!(refused(lost, 126).contains("/no/such/shell"));
}

/// The libraries that a program with a DT_RPATH of its own would find before LD_LIBRARY_PATH.
#[test]
fn a_program_with_an_rpath_gets_the_libraries_preloaded() {
    let scratch = Scratch::new("rpath");
    let old = scratch.compiled("old", &["-Wl,--disable-new-dtags,-rpath,/no/such"]);
    let new = scratch.compiled("new", &["-Wl,--enable-new-dtags,-rpath,/no/such"]);
    for (program, preloaded) in [(old, true), (new, false)] {
        let text = stdout(&run(&[OsStr::new("--bundled=off"), program.as_os_str()]));
        assert!(text.starts_with("preloaded: "), "{text}");
        for library in ["/libibverbs.so.1", "/librdmacm.so.1"] {
            assert_eq!(text.contains(library), preloaded, "{text}");
        }
    }
}

/// Each of them has failed to start: AddressSanitizer wants to be the first library, and libraries
/// with thread-local storage of their own found none left beside an audit library.
#[test]
fn programs_with_needs_of_their_own_start() {
    let scratch = Scratch::new("needs");
    for (name, option) in [("address", "-fsanitize=address"), ("thread", "-fsanitize=thread")] {
        let program = scratch.compiled(name, &[option]);
        let output = run(&[&program]);
        assert_eq!(output.status.code(), Some(42), "{name}: {}", stderr(&output));
    }
    let source = scratch.file("storage.c", STORAGE);
    let library = scratch.path("libstorage.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(cc.status().expect("a C compiler: apt-get install gcc libc6-dev").success());
    let library = library.to_str().expect("a path of this project");
    let program = scratch.compiled("storage", &["-Wl,--no-as-needed", library]);
    let output = run(&[OsStr::new("--bundled=on"), program.as_os_str()]);
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}

/// As much as large allocators and tracers have.
const STORAGE: &str = r#"
__attribute__((tls_model("initial-exec"))) __thread char storage[12000];
char *get(void) { return storage; }
"#;

/// Bundled libraries are for programs that may have some.
#[test]
fn the_audit_library_is_for_those_that_may_need_it() {
    let scratch = Scratch::new("audit");
    let audited = |program: &Path, option: &str| {
        let output = run(&[OsStr::new(option), OsStr::new("--"), program.as_os_str()]);
        let text = stdout(&output);
        text.contains("audited: yes") || text.contains("LD_AUDIT=/")
    };
    let script = scratch.file("show", "#!/bin/sh\nenv\n");
    assert!(audited(&script, "--force") && !audited(&script, "--bundled=off"));
    // It finds faults in what glibc does with an audit library.
    let valgrind = scratch.file("valgrind", "#!/bin/sh\nenv\n");
    assert!(!audited(&valgrind, "--force") && audited(&valgrind, "--bundled=on"));
    let linked = scratch.compiled("linked", &["-Wl,--no-as-needed", "-libverbs"]);
    assert!(!audited(&linked, "--force") && audited(&linked, "--bundled=on"));
    let own = ["-Wl,--no-as-needed,-rpath,$ORIGIN/libs", "-libverbs"];
    assert!(audited(&scratch.compiled("own", &own), "--force"));
}

/// The directory of libraries that a program sees, and what was said about it.
fn directory_with(variables: &[(&str, &Path)]) -> (PathBuf, String) {
    let mut command = command(&["run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    for name in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the command runs");
    (PathBuf::from(stdout(&output).trim()), stderr(&output))
}

#[test]
fn the_links_are_where_the_user_keeps_such_things() {
    let scratch = Scratch::new("places");
    let [run, cache, home] = ["run", "cache", "home"].map(|name| scratch.directory(name, 0o700));
    let all = [("XDG_RUNTIME_DIR", &*run), ("XDG_CACHE_HOME", &*cache), ("HOME", &*home)];
    for (from, place) in [(0, run.clone()), (1, cache.clone()), (2, home.join(".cache"))] {
        let (directory, complaint) = directory_with(&all[from..]);
        assert!(directory.starts_with(&place), "{}: {complaint}", directory.display());
        let again = directory_with(&all[from..]).0;
        assert_eq!(again, directory, "it is not used again");
    }
    let (directory, complaint) = directory_with(&[]);
    assert!(directory.starts_with("/tmp"), "{}: {complaint}", directory.display());
}

#[test]
fn places_that_others_can_change_are_passed_over() {
    let scratch = Scratch::new("unsafe-places");
    let good = scratch.directory("good", 0o700);
    let open = scratch.directory("open", 0o777);
    let filled = scratch.directory("filled", 0o700);
    symlink("/tmp", filled.join("iwarp")).expect("a link");
    let shared = scratch.directory("shared", 0o700);
    fs::create_dir(shared.join("iwarp")).expect("a directory");
    fs::set_permissions(shared.join("iwarp"), Permissions::from_mode(0o777)).expect("its mode");
    let absent = scratch.path("absent/absent");
    // The list separator of the loader.
    let colon = scratch.directory("a:b", 0o700);
    for bad in [open, filled, shared, absent, colon] {
        let (directory, complaint) =
            directory_with(&[("XDG_RUNTIME_DIR", &bad), ("XDG_CACHE_HOME", &good)]);
        assert!(directory.starts_with(&good), "{} was used: {complaint}", bad.display());
    }
}

#[test]
fn many_at_once_share_one_directory() {
    let scratch = Scratch::new("at-once");
    let place = scratch.directory("run", 0o700);
    let variables = [("XDG_RUNTIME_DIR", &*place)];
    let directories: Vec<PathBuf> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| directory_with(&variables).0)).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(directories.iter().all(|directory| *directory == directories[0]), "{directories:?}");
    assert!(directories[0].join("libibverbs.so.1").is_file());
    let names: Vec<_> = fs::read_dir(place.join("iwarp")).expect("it is there").collect();
    // That of the libraries and that of the device files.
    assert_eq!(names.len(), 2, "leftovers: {names:?}");
}

#[test]
fn a_tidied_up_directory_is_made_anew() {
    let scratch = Scratch::new("tidied");
    let place = scratch.directory("run", 0o700);
    let variables = [("XDG_RUNTIME_DIR", &*place)];
    let (directory, _) = directory_with(&variables);
    fs::remove_file(directory.join("librdmacm.so.1")).expect("it was there");
    assert_eq!(directory_with(&variables).0, directory);
    assert!(directory.join("librdmacm.so.1").is_file());
    assert_eq!(fs::read_dir(place.join("iwarp")).expect("it is there").count(), 2);
}

/// There /tmp belongs to a user whom the namespace does not know, and root's name is taken by the
/// real root.
#[test]
fn users_in_a_namespace_of_their_own_are_served() {
    let iwarp = env!("CARGO_BIN_EXE_iwarp");
    let script =
        format!("HOME=/no/such; export HOME; exec {iwarp} run -- sh -c 'echo $IWARP_SYSFS'");
    let output = Command::new("unshare")
        .args(["-Urn", "--", "sh", "-c", &script])
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME")
        .output();
    let output = output.expect("unshare: apt-get install util-linux");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("/tmp/iwarp-"), "{}", stdout(&output));
}

/// Each set of addresses has a tree of its own, and some hosts have other addresses every day.
#[test]
fn old_device_files_go_when_others_come() {
    let scratch = Scratch::new("old");
    let place = scratch.directory("run", 0o700);
    let names = |devices: &str| {
        let output = command(&["run", "--devices", devices, "--", "sh", "-c", "echo $IWARP_SYSFS"])
            .env("XDG_RUNTIME_DIR", &place)
            .output();
        PathBuf::from(stdout(&output.expect("the command runs")).trim())
    };
    let [old, young] = ["old0", "young0"].map(names);
    assert!(old.starts_with(&place) && young.starts_with(&place), "{}", old.display());
    let age = Command::new("touch").args(["-d", "40 days ago"]).arg(&old).status();
    assert!(age.expect("touch: apt-get install coreutils").success());
    names("other0");
    assert!(young.exists() && !old.exists());
    // A copy in use is not old.
    let age = Command::new("touch").args(["-d", "40 days ago"]).arg(&young).status();
    assert!(age.expect("touch: apt-get install coreutils").success());
    names("young0");
    names("another0");
    assert!(young.exists());
}

/// Root in a container may not look at other users' processes, which it may have started.
fn sees_all_processes() -> bool {
    let environments = fs::read_dir("/proc").expect("/proc").flatten();
    let mut read = environments.map(|process| fs::read(process.path().join("environ")));
    let refused = read.any(|read| read.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied));
    let me = fs::metadata("/proc/self").expect("/proc").uid();
    me != 0 || !refused
}

/// A tree that ended programs have left goes at the next start. One that a process uses stays, and
/// so does anything that is no directory of this user's.
#[test]
fn device_files_that_nobody_uses_go_at_the_next_start() {
    if !sees_all_processes() {
        println!("not run: needs to see what other users' processes use (CAP_SYS_PTRACE)");
        return;
    }
    let scratch = Scratch::new("unused");
    let place = scratch.directory("run", 0o700);
    let start = |devices: &str, script: &str| {
        let mut run = command(&["run", "--devices", devices, "--", "sh", "-c", script]);
        run.env("XDG_RUNTIME_DIR", &place).stdin(Stdio::piped()).stdout(Stdio::piped());
        run.spawn().expect("the command starts")
    };
    let tree = |devices: &str| {
        let output = start(devices, "echo $IWARP_SYSFS").wait_with_output();
        PathBuf::from(stdout(&output.expect("it ends")).trim())
    };
    let age = |path: &Path, date: &str| {
        let touch = Command::new("touch").args(["-h", "-d", date]).arg(path).status();
        assert!(touch.expect("touch: apt-get install coreutils").success());
    };
    // Lives until its input ends, and says when it runs.
    let mut live = start("live0", "echo $IWARP_SYSFS; exec cat");
    let mut first = String::new();
    let mut output = BufReader::new(live.stdout.take().expect("a pipe"));
    output.read_line(&mut first).expect("a line");
    let used = PathBuf::from(first.trim());
    let [ended, starting] = ["ended0", "starting0"].map(&tree);
    let base = place.join("iwarp");
    let killed = base.join(".new-1-1");
    fs::create_dir(&killed).expect("a directory");
    // Of another machine's processes nothing is known here.
    let foreign = base.join("sysfs-00000000-0123456789abcdef");
    fs::create_dir(&foreign).expect("a directory");
    let theirs = scratch.directory("theirs", 0o700);
    fs::write(theirs.join("file"), "theirs").expect("a file");
    let name = ended.file_name().expect("a name").to_string_lossy().into_owned();
    let link = base.join(name.rsplit_once('-').expect("a scope").0.to_owned() + "-link");
    symlink(&theirs, &link).expect("a link");
    for path in [&used, &ended, &killed, &foreign] {
        age(path, "2 minutes ago");
    }
    age(&link, "40 days ago");

    let other = tree("other0");
    assert!(!ended.exists() && !killed.exists(), "{:?}", fs::read_dir(&base));
    for path in [&used, &starting, &foreign, &link, &theirs.join("file"), &other] {
        assert!(path.exists(), "{} is gone", path.display());
    }
    drop(live.stdin.take());
    assert!(live.wait().expect("it ends").success());
    // A start that finds its own files there.
    assert_eq!(tree("other0"), other);
    assert!(!used.exists() && starting.exists());
}

#[test]
fn programs_see_the_device_in_sys_and_dev() {
    let script = "cat /sys/class/infiniband/*/node_type; test -c /dev/infiniband/uverbs0 && \
        echo device; p=$(echo /sys/class/infiniband/*/ports/1); cat $p/gids/0 $p/gid_attrs/types/0";
    let shown = |personality| {
        let output = run(&["--personality", personality, "--", "sh", "-c", script]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = shown("roce");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["1: CA", "device"], "{text}");
    assert_eq!(lines[2].split(':').count(), 8, "{text}");
    assert_eq!(lines[3], "RoCE v2", "{text}");
    assert!(shown("iwarp").starts_with("4: RNIC\n"));
    // It was an option once that had to be given, and is one to say no.
    let looked = ["--", "test", "-e", "/sys/class/infiniband/roce0"];
    for (option, status) in [("--sysfs", 0), ("--sysfs=on", 0), ("--sysfs=off", 1)] {
        let output = run(&[&[option], &looked[..]].concat());
        assert_eq!(output.status.code(), Some(status), "{option}: {}", stderr(&output));
    }
}

/// As Linux has them: the network interface and the NUMA node are those of the device above. All
/// runs share the files: what one tries to write there, none sees.
#[test]
fn writes_of_a_program_to_sys_do_not_reach_later_runs() {
    let scratch = Scratch::new("written");
    let place = scratch.directory("run", 0o700);
    let shell = |script: &str| {
        let output = command(&["run", "--personality", "iwarp", "--", "sh", "-c", script])
            .env("XDG_RUNTIME_DIR", &place)
            .env("LC_ALL", "C")
            .output();
        output.expect("the command runs")
    };
    let device = "/sys/class/infiniband/iwarp0";
    for file in ["node_desc", "ports/1/counters/symbol_error", "new"] {
        let output = shell(&format!("echo mine > {device}/{file}"));
        assert!(!output.status.success(), "{file}");
        assert!(stderr(&output).contains("Read-only file system"), "{}", stderr(&output));
    }
    // By another name, which root may write to.
    let around = "cd /sys/class/infiniband; echo mine > iwarp0/node_desc; \
        echo mine > iwarp0/new; mkdir iwarp1";
    shell(around);
    let seen = shell(&format!("cat {device}/node_desc; ls {device} /sys/class/infiniband"));
    let seen = stdout(&seen);
    assert!(seen.starts_with("iwarp\n"), "{seen}");
    assert!(!seen.lines().any(|name| name == "new" || name == "iwarp1"), "{seen}");
}

#[test]
fn named_devices_are_all_in_sys() {
    let script = "cd /sys/class/infiniband; echo *; cat */node_guid | sort -u | wc -l; \
        cat */sys_image_guid | sort -u | wc -l; cat b/ports/1/gid_attrs/ndevs/0; \
        cat a/device/numa_node; ls -d /dev/infiniband/uverbs1 $(readlink -f a/../..)/net";
    let output = run(&["--devices", "a,b=lo", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], ["a b", "2", "1", "lo"], "{text}");
    assert!(lines[4].parse::<i32>().is_ok(), "{text}");
    assert_eq!(stderr(&output), "");
}

/// The kernel's unit is a word of four bytes. Bytes that a process has moved count for as long as
/// it lives, here and for those who ask by netlink.
#[test]
fn counters_are_what_live_processes_move() {
    let scratch = Scratch::new("moved");
    let place = scratch.directory("run", 0o700);
    let shell = |script: &str| {
        let devices = "a=lo,b=lo,c=lo,d=lo";
        let mut command = command(&["run", "--devices", devices, "--", "sh", "-c", script]);
        let output = command.env("XDG_RUNTIME_DIR", &place).output().expect("the command runs");
        assert_eq!(stderr(&output), "");
        stdout(&output)
    };
    let tree = shell("echo $IWARP_SYSFS");
    let file = Path::new(tree.trim()).join("counted/processes");
    let [one, other] = [1, 2].map(|_| Entry::claim(&file, ledger::TRAFFIC).expect("an entry"));
    one.add(ledger::SENT_OCTETS, 4000);
    other.add(ledger::SENT_OCTETS, 99);
    other.add(ledger::RECEIVED_PACKETS, 5);
    let counts = || {
        shell(
            "cd /sys/class/infiniband/a/ports/1; cat counters/port_xmit_data hw_counters/tx_bytes \
            counters/port_rcv_packets; rdma statistic show link a/1 | grep -o 'tx_bytes [0-9]*'",
        )
    };
    assert_eq!(counts(), "1024\n4099\n5\ntx_bytes 4099\n");
    drop(one);
    assert_eq!(counts(), "24\n99\n5\ntx_bytes 99\n");
    // Each port has counts of its own, the fourth those of another entry.
    let (subject, first) = ledger::traffic(3);
    let fourth = Entry::claim(&file, subject).expect("an entry");
    fourth.add(first + ledger::SENT_OCTETS, 7);
    other.add(ledger::traffic(2).1 + ledger::SENT_OCTETS, 6);
    let all = "cd /sys/class/infiniband; cat [abcd]/ports/1/hw_counters/tx_bytes";
    assert_eq!(shell(all), "99\n0\n6\n7\n");
}

/// Over TCP and over UDP.
#[test]
fn processes_say_what_they_move() {
    let script = "cd /sys/class/infiniband/moving/ports/1/hw_counters
        rping -s -a 127.0.0.1 -p $PORT & server=$!
        rping -c -a 127.0.0.1 -p $PORT -C 100000000 & client=$!
        until test $(cat tx_bytes) -gt 1000 -a $(cat rx_pkts) -gt 10; do
            kill -0 $server && kill -0 $client || exit 1
        done
        kill -9 $server $client; wait; cat tx_bytes rx_bytes tx_pkts rx_pkts";
    for (wire, port) in [("iwarp", "7611"), ("roce", "7612")] {
        let scratch = Scratch::new(&format!("moving-{wire}"));
        let options = ["run", "--devices", "moving=lo", "--", "timeout", "30", "sh", "-c", script];
        let output = command(&options)
            .env("XDG_RUNTIME_DIR", scratch.directory("run", 0o700))
            .envs([("PORT", port), ("IWARP_WIRE", wire)])
            .output()
            .expect("the command runs");
        assert_eq!(stdout(&output), "0\n0\n0\n0\n", "{wire}: {}", stderr(&output));
    }
}

/// Processes count in a file of the tree, one for all runs that share it.
#[test]
fn counters_of_packets_are_what_processes_have_counted() {
    let script = r"cd /sys/class/infiniband/counting/ports/1/hw_counters
        printf '\007' | dd of=$IWARP_SYSFS/counted/words bs=1 seek=8 conv=notrunc status=none
        cat rcvd_pkts /sys/class/infiniband/counting/ports/1/hw_counters/rcvd_pkts
        ls | grep -c -x -e sent_pkts -e rx_icrc_encapsulated -e local_ack_timeout_err";
    let output = run(&["--devices", "counting=lo", "--", "sh", "-c", script]);
    assert_eq!(stdout(&output), "7\n7\n3\n", "{}", stderr(&output));
}

#[test]
fn devices_that_make_no_sense_are_refused() {
    for devices in ["a,a", "a/b", "", "a=no-such-if"] {
        let output = run(&["--devices", devices, "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{devices}");
        let text = stderr(&output);
        assert!(text.starts_with("iwarp run: IWARP_DEVICES="), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// A directory of links to a build that was deleted is of no use.
#[test]
fn links_to_a_build_that_is_gone_are_removed() {
    let scratch = Scratch::new("gone");
    let base = scratch.directory("iwarp", 0o755);
    let dead = base.join("lib-0123456789abcdef");
    fs::create_dir(&dead).expect("a directory");
    symlink("/no/such/build/libibverbs.so", dead.join("libibverbs.so")).expect("a link");
    let run = || {
        let mut run = command(&["run", "true"]);
        let output = run.env("XDG_RUNTIME_DIR", &scratch.0).output().expect("the command runs");
        assert!(output.status.success(), "{}", stderr(&output));
        fs::read_dir(&base).expect("it is there").count()
    };
    let made = run();
    assert!(!dead.exists(), "the old links are still there");
    assert_eq!(run(), made, "what is in use stays");
}
