// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp torture` of programs with a planted bug, which it finds and shrinks, and of right ones,
//! which bear it; `iwarp run --faults` and its table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{run, stderr, stdout};

/// The ends of a program: the command's word for it, and the status of a shell.
const ABORTS: (&str, i32) = ("dies by signal 6", 128 + 6);
const CRASHES: (&str, i32) = ("dies by signal 11", 128 + 11);
const HANGS: (&str, i32) = ("hangs", 124);

/// The program of this source in `tests/c`, as a file of this test's own.
fn compiled(source: &str, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{name}"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(&program).arg(folder.join(format!("{source}.c")));
    let status = compiler.args(["-libverbs", "-lrdmacm"]).status();
    assert!(status.expect("apt-get install gcc libc6-dev librdmacm-dev").success());
    program
}

/// Tortures the program with this bug; it must be found within 200 seeds, and shrunk to three
/// faults at most, with which the printed command fails again, with this status of a shell.
fn found(source: &str, bug: &str, profile: &str, (outcome, code): (&str, i32)) {
    let program = compiled(source, bug);
    let path = program.to_string_lossy();
    let options = ["torture", "--first", "--timeout", "3", "--profile", profile];
    let torture = || run(&[&options[..], &["--", &*path, bug]].concat());
    // A bug that needs no fault at all shows once in a while, on a busy host, and is told as such.
    let needs_faults = |output: &Output| !stderr(output).contains("without any faults");
    let output = (0..3).map(|_| torture()).find(needs_faults).expect("a bug that needs faults");
    let (text, complaints) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{text}{complaints}");
    assert!(text.contains(outcome), "{text}");
    let (_, shrunk) = text.split_once("faults suffice").expect(&text);
    let lines = shrunk.lines().filter(|line| line.starts_with("    ")).count();
    assert!((1..=3).contains(&lines), "{text}");
    let repeat = shrunk.lines().find_map(|line| line.trim().strip_prefix("iwarp run --faults '"));
    let (rules, _) = repeat.and_then(|rest| rest.split_once('\'')).expect(&text);
    // Some also need that their threads run at the time, which is not so each time on a busy host.
    let repeats = || {
        let mut again = Command::new("timeout");
        again.args(["3", env!("CARGO_BIN_EXE_iwarp"), "run", "--faults", rules, "--", &*path, bug]);
        again.output().expect("timeout runs").status.code() == Some(code)
    };
    assert!((0..5).any(|_| repeats()), "{text}");
}

/// A test for each planted bug: its program, its name, a profile that finds it, and the end.
macro_rules! planted {
    ($($test:ident: $source:literal $bug:literal, $profile:literal, $end:ident;)*) => {
        $(#[test]
        fn $test() {
            found($source, $bug, $profile, $end);
        })*
    };
}

planted! {
    a_double_free_is_found: "tortured" "double_free", "resources", ABORTS;
    a_result_that_nobody_looks_at_is_found: "tortured" "unseen_null", "resources", CRASHES;
    a_region_that_is_not_there_is_found: "tortured" "unseen_region", "resources", CRASHES;
    a_channel_that_is_not_there_is_found: "signalled" "unseen_channel", "resources", CRASHES;
    a_refused_change_of_state_is_found: "tortured" "unseen_modify", "resources", HANGS;
    a_wrong_order_of_giving_back_is_found: "tortured" "wrong_order", "resources", ABORTS;
    a_refused_request_that_is_waited_for_is_found: "tortured" "unseen_post", "resources", HANGS;
    a_list_that_is_posted_again_whole_is_found: "listed" "whole_list", "resources", ABORTS;
    an_error_that_counts_as_success_is_found: "tortured" "unseen_status", "errors", ABORTS;
    a_length_of_a_failed_completion_is_found: "tortured" "trusts_length", "errors", CRASHES;
    retries_without_end_are_found: "tortured" "retries_forever", "errors", HANGS;
    an_event_that_an_error_leaves_unacknowledged_is_found: "signalled" "acks_never", "errors", HANGS;
    a_completion_of_an_unsignaled_request_is_found: "signalled" "unsignaled", "errors", CRASHES;
    a_program_without_patience_is_found: "tortured" "impatient", "mild", ABORTS;
    a_lost_wake_up_is_found: "tortured" "lost_wakeup", "mild", HANGS;
    an_answer_taken_for_that_of_another_request_is_found: "tortured" "one_for_one", "mild", ABORTS;
    an_event_taken_for_a_completion_is_found: "signalled" "event_is_completion", "events", ABORTS;
    a_program_that_polls_the_first_byte_is_found: "placed" "polls_first", "placement", ABORTS;
    an_error_of_an_address_is_found: "managed" "unseen_address_error", "connections", CRASHES;
    a_program_that_knows_one_event_is_found: "managed" "one_event", "connections", HANGS;
    a_rejection_that_nobody_looks_at_is_found: "managed" "unseen_reject", "connections", HANGS;
    an_error_that_is_not_acknowledged_is_found: "managed" "unacknowledged", "connections", HANGS;
    a_connection_that_ends_unseen_is_found: "managed" "unseen_disconnect", "connections", HANGS;
}

/// Only where the order is one that no card has.
#[test]
fn a_program_that_polls_the_last_byte_is_found() {
    bears("placed", "polls_last", &["placement"]);
    found("placed", "polls_last", "placement-strict", ABORTS);
}

/// Tortures a program that no fault of these profiles breaks.
fn bears(source: &str, name: &str, profiles: &[&str]) {
    let program = compiled(source, &format!("bears-{name}"));
    for profile in profiles {
        let options = ["torture", "--seeds", "8", "--timeout", "30", "--profile", profile, "--"];
        let output = run(&[&options[..], &[&*program.to_string_lossy(), name]].concat());
        let text = stdout(&output);
        assert!(output.status.success(), "{profile}: {text}{}", stderr(&output));
        assert!(text.contains("8 seeds tried, 0 failed"), "{profile}: {text}");
    }
}

#[test]
fn right_programs_bear_all() {
    for (source, name) in [
        ("tortured", "right"),
        ("placed", "right"),
        ("listed", "right"),
        ("signalled", "right"),
        ("signalled", "rounds"),
        ("managed", "right"),
    ] {
        bears(source, name, &["mild", "network", "placement-strict", "events", "all"]);
    }
}

/// Only the clock shows them.
#[test]
fn slow_calls_and_late_events_take_their_time() {
    let program = compiled("managed", "slow");
    for (rule, times) in [
        ("slow=70,verb=ibv_reg_mr", 1),
        ("slow=20,verb=ibv_post_send,nth=2", 1),
        ("slow=30,verb=rdma_destroy_id,nth=1", 0),
        ("late=90,op=cm-event,times=2", 2),
    ] {
        let begin = Instant::now();
        let output = run(&["run", "--faults", rule, &*program.to_string_lossy()]);
        let (took, text) = (begin.elapsed(), stderr(&output));
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("{times}  {rule}")), "{text}");
        let (_, rest) = rule.split_once('=').expect("an action");
        let (each, _) = rest.split_once(',').expect("more words");
        let least = Duration::from_millis(times * each.parse::<u64>().expect("a number"));
        assert!(took >= least, "{rule}: {took:?}");
    }
}

#[test]
fn an_event_of_the_end_of_timewait_follows_each_disconnection() {
    let program = compiled("managed", "timewait");
    let rule = "event=TIMEWAIT_EXIT";
    let output = run(&["run", "--faults", rule, &*program.to_string_lossy(), "timewait"]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("2       2  {rule}")), "{text}");
}

/// Of 24 receives the one with that number.
#[test]
fn a_completion_is_chosen_by_the_number_of_its_request() {
    let program = compiled("managed", "wr-id");
    let rule = "status=GENERAL_ERR,op=recv,wr-id=0x5";
    let output = run(&["run", "--faults", rule, &*program.to_string_lossy()]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("gives up: "), "{text}");
    assert!(text.contains(&format!("1       1  {rule}")), "{text}");
}

/// By its arguments, or a word of the rule, one of two processes of a program has the fault.
#[test]
fn processes_of_one_program_are_told_apart() {
    let program = compiled("listed", "apart");
    let path = &*program.to_string_lossy();
    let fired = |rule: &str, argument: &str| {
        let output = run(&["run", "--faults", rule, "--", path, argument]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).contains(&format!("1  {rule}"))
    };
    let rule = "errno=ENOMEM,verb=ibv_post_send,nth=1";
    assert!(fired(rule, "server") && fired(rule, "client"));
    let rule = "errno=ENOMEM,verb=ibv_post_send,nth=1,arg=server";
    assert!(fired(rule, "server") && !fired(rule, "client"));
    assert!(fired("errno=ENOMEM,verb=ibv_post_send,nth=1,program=listed-apart", "client"));
    assert!(!fired("errno=ENOMEM,verb=ibv_post_send,nth=1,program=listed", "client"));
    let draws = |argument: &str| {
        let rules = "seed=3;errno=ENOMEM,verb=ibv_post_send,one-in=4";
        let text = stderr(&run(&["run", "--faults", rules, "--", path, argument]));
        text.split_once("rule\n").expect("a table").1.to_owned()
    };
    assert_eq!(draws("server"), draws("server"));
    let all: BTreeSet<_> = ["a", "b", "c", "d"].map(draws).into_iter().collect();
    assert!(all.len() > 1, "{all:?}");
}

/// Both ends have the faults, each by itself.
#[test]
fn rping_bears_a_slow_network() {
    let iwarp = env!("CARGO_BIN_EXE_iwarp");
    let script = format!(
        "{iwarp} rping -s -a 127.0.0.1 -p 7174 & server=$!; \
         until ss -ltn | grep -q :7174; do kill -0 $server || exit 1; done; \
         {iwarp} rping -c -a 127.0.0.1 -p 7174 -C 10 -V && wait $server"
    );
    let options = ["torture", "--seeds", "6", "--timeout", "30", "--profile", "network", "--"];
    let output = run(&[&options[..], &["sh", "-c", &script]].concat());
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// Programs that others wrote: they look at memory after completions alone, or poll the last byte.
#[test]
fn programs_of_others_bear_pieces_and_a_slow_network() {
    for (server, client, port) in [
        ("ib_send_lat -F -n 50", "ib_send_lat -F -n 50 127.0.0.1", 18515),
        ("ib_write_bw -F -n 50", "ib_write_bw -F -n 50 127.0.0.1", 18515),
        ("ib_read_lat -F -n 50", "ib_read_lat -F -n 50 127.0.0.1", 18515),
        ("rping -s -C 5 -V", "rping -c -a 127.0.0.1 -C 5 -V", 7174),
        ("ucmatose", "ucmatose -s 127.0.0.1", 7471),
    ] {
        let script = format!(
            "{server} & server=$!; \
             until ss -ltn | grep -q :{port}; do kill -0 $server || exit 1; done; \
             {client} && wait $server"
        );
        for profile in ["placement", "network"] {
            let options =
                ["torture", "--seeds", "2", "--timeout", "60", "--profile", profile, "--"];
            let output = run(&[&options[..], &["sh", "-c", &script]].concat());
            let (text, complaints) = (stdout(&output), stderr(&output));
            let install = "apt-get install perftest rdmacm-utils iproute2";
            assert!(output.status.success(), "{client}, {profile}: {text}{complaints}; {install}");
        }
    }
}

#[test]
fn a_command_that_fails_by_itself_is_not_tortured() {
    let output = run(&["torture", "--", "sh", "-c", "echo broken; exit 3"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("fails with status 3 without any faults"), "{text}");
    assert!(text.contains("| broken"), "{text}");
}

#[test]
fn a_run_with_faults_ends_with_a_table_and_its_own_status() {
    let program = compiled("tortured", "table");
    let path = program.to_string_lossy();
    let rules = "errno=ENOMEM,verb=ibv_post_send,nth=3; late=1,op=read";
    let output = run(&["run", "--faults", rules, "--strict", &*path]);
    assert_eq!(output.status.code(), Some(1), "the program's own");
    let text = stderr(&output);
    assert!(text.contains("gives up: ibv_post_send"), "{text}");
    assert!(text.contains("3       1  errno=ENOMEM,verb=ibv_post_send,nth=3"), "{text}");
    assert!(text.contains("0       0  late=1,op=read"), "{text}");
    let output = run(&["run", "--faults", "late=1,op=read", "--strict", &*path]);
    assert_eq!(output.status.code(), Some(123), "{}", stderr(&output));
    let output = run(&["run", "--faults", "late=1,op=send,nth=2", "--strict", &*path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// The completion that is changed, and those behind it, of both ends: each request ends once.
#[test]
fn an_error_status_fails_the_queue_pair() {
    let program = compiled("tortured", "status");
    let rules = "status=RNR_RETRY_EXC_ERR,op=send,nth=2";
    let output = run(&["run", "--faults", rules, &*program.to_string_lossy(), "books"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Parent and child each allocate one protection domain.
#[test]
fn a_forked_child_counts_for_itself() {
    let program = compiled("tortured", "forked");
    let path = program.to_string_lossy();
    let status = |nth: &str| {
        let rules = format!("errno=ENOMEM,verb=ibv_alloc_pd,nth={nth},times=1");
        run(&["run", "--faults", &rules, "--strict", &*path, "forked"]).status.code()
    };
    assert_eq!(status("2"), Some(123), "neither has a second");
    assert_eq!(status("1"), Some(1), "the parent gives up");
}

#[test]
fn a_rule_that_can_never_fire_is_refused() {
    let output = run(&["run", "--faults", "errno=ENOMEM,verb=ibv_dereg_mr", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("a function that can be refused"), "{}", stderr(&output));
}
