// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};

use super::*;

fn sh(script: &str) -> Command {
    let mut sh = shell::program("sh");
    sh.args(["-c", script]);
    sh
}

/// The output of the script in a network of its own, or the reason why there is none.
fn said(script: &str) -> Result<String, &'static str> {
    match why_not() {
        Some(why) => {
            assert!(why.len() > "no network namespace by `unshare`: ".len(), "{why}");
            Err(why)
        }
        None => Ok(shell::output(&mut wrap(&sh(script)).expect("wrapped")).expect("its output")),
    }
}

#[test]
fn a_command_apart_sees_interfaces_of_its_own_that_are_up() {
    let script = "readlink /proc/self/ns/net; ip -brief link show up";
    let Ok(text) = said(script) else { return };
    let mut lines = text.lines();
    let ours = fs::read_link("/proc/self/ns/net").expect("our network");
    assert_ne!(lines.next(), ours.to_str());
    let mut names: Vec<&str> = lines.filter_map(|line| line.split([' ', '@']).next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["apart0", "apart1", "lo"]);
}

#[test]
fn a_command_apart_has_the_rights_that_it_has_here() {
    let rights = |text: &str| -> Vec<String> {
        let named = |line: &&str| line.starts_with("CapEff:") || line.starts_with("CapPrm:");
        text.lines().filter(named).map(str::to_owned).collect()
    };
    let Ok(text) = said("cat /proc/self/status") else { return };
    let here = fs::read_to_string("/proc/self/status").expect("our rights");
    assert_eq!(rights(&text), rights(&here));
    assert_eq!(rights(&text).len(), 2);
}

#[test]
fn a_command_apart_is_the_process_that_was_started() {
    let Ok(_) = said(":") else { return };
    let script = "echo $$ \"$WORD\"; pwd; test \"$1\" = 'an argument' && exit 7";
    let mut command = sh(script);
    command.args(["sh", "an argument"]).env("WORD", "word").current_dir("/usr");
    let mut command = wrap(&command).expect("wrapped");
    let child = command.stdout(Stdio::piped()).spawn().expect("started");
    let pid = child.id();
    let output = child.wait_with_output().expect("its end");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{pid} word\n/usr\n"));
    assert_eq!(output.status.code(), Some(7));
    let killed = wrap(&sh("kill -KILL $$")).expect("wrapped").status().expect("its end");
    assert_eq!(killed.signal(), Some(9));
}

#[test]
fn refusals_say_the_reason() {
    let failed = Output {
        status: ExitStatusExt::from_raw(256),
        stdout: Vec::new(),
        stderr: b"unshare: unshare failed: Operation not permitted\n".to_vec(),
    };
    let why = reason(Ok(failed)).expect("a reason");
    assert!(why.contains("unshare failed: Operation not permitted (exit status: 1)"), "{why}");
    let missing = Command::new("/no/such/unshare").output();
    assert!(reason(missing).expect("a reason").contains("No such file"));
    assert_eq!(reason(Command::new("true").output()), None);
}

#[test]
fn beside_others_a_command_runs_only_when_nobody_is_in_the_way() {
    let mut command = sh("exit $CODE");
    command.env("CODE", "7");
    let status = beside(&command, "why", &[]).expect("as it was").status().expect("its end");
    assert_eq!(status.code(), Some(7));
    let holder = ["process 1 (init) of root holds UDP [::]:4791".to_owned()];
    let error = beside(&command, "why not", &holder).expect_err("in the way").to_string();
    assert!(error.starts_with(&holder[0]) && error.contains("(why not)"), "{error}");
}

#[test]
fn tests_are_built_with_the_same_options() {
    let mut command = shell::program("cargo");
    command.args(["test", "--lib", "--", "--skip", "one"]).env("RUSTFLAGS", "-g").arg0("cargo");
    let build = build_of(&command);
    assert_eq!(build.get_args().collect::<Vec<_>>(), ["test", "--lib", "--no-run"]);
    assert_eq!(build.get_envs().collect::<Vec<_>>(), command.get_envs().collect::<Vec<_>>());
    assert_eq!(build.get_current_dir(), command.get_current_dir());
}

#[test]
fn messages_name_the_command_and_not_what_is_around_it() {
    let command = wrapped(&sh("true"));
    let words: Vec<&OsStr> =
        [command.get_program()].into_iter().chain(command.get_args()).collect();
    assert_eq!(inner(&words), ["sh", "-c", "true"]);
    assert_eq!(inner(&words[words.len() - 1..]), ["true"]);
}
