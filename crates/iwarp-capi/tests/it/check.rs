// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checker tells the misuse in wrong programs by its rule and its places, over both devices,
//! and accuses no right one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support;

mod tools;

/// A labelled case: a program of `c/check`, the scenario in it ("" where there is one alone), and
/// the rule that it breaks.
type Case = (&'static str, &'static str, Option<&'static str>);

const fn wrong(file: &'static str, scenario: &'static str, rule: &'static str) -> Case {
    (file, scenario, Some(rule))
}

const fn right(file: &'static str, scenario: &'static str) -> Case {
    (file, scenario, None)
}

/// All cases, those of one file together.
const CASES: &[Case] = &[
    wrong("busy_wrong", "", "destroyed-in-use"),
    wrong("leak_wrong", "", "leak"),
    wrong("list_wrong", "", "list-posted-again"),
    wrong("error_wrong", "", "post-after-error"),
    wrong("reset_wrong", "", "post-in-reset"),
    wrong("event_wrong", "", "event-not-acknowledged"),
    wrong("silent_wrong", "", "queue-never-signalled"),
    right("event_right", ""),
    right("silent_right", ""),
    right("batch_right", ""),
    right("manager_right", ""),
    right("order_right", ""),
    right("list_right", ""),
    right("error_right", ""),
    wrong("keys", "unknown_wrong", "key"),
    wrong("keys", "stale_wrong", "key"),
    wrong("keys", "behind_wrong", "key"),
    wrong("keys", "before_wrong", "key"),
    wrong("keys", "domain_wrong", "key"),
    wrong("keys", "readonly_wrong", "key"),
    wrong("keys", "rkey_wrong", "key"),
    wrong("keys", "rkey_stale_wrong", "key"),
    wrong("keys", "rkey_range_wrong", "key"),
    right("keys", "exact_right"),
    right("keys", "anew_right"),
    right("keys", "inline_right"),
    right("keys", "iova_right"),
    right("keys", "parent_right"),
    wrong("regions", "receive_wrong", "region-gone"),
    wrong("regions", "shared_wrong", "region-gone"),
    wrong("regions", "unmapped_wrong", "region-gone"),
    right("regions", "polled_right"),
    right("regions", "destroyed_right"),
    right("regions", "reset_right"),
    right("regions", "drained_right"),
    right("regions", "unsignalled_right"),
    right("regions", "emptied_right"),
    wrong("queues", "receives_wrong", "completion-queue-too-small"),
    wrong("queues", "sends_wrong", "completion-queue-too-small"),
    wrong("queues", "both_wrong", "completion-queue-too-small"),
    right("queues", "full_right"),
    right("queues", "polled_right"),
    right("queues", "unsignalled_right"),
    right("queues", "again_right"),
    right("queues", "resized_right"),
    wrong("wakeups", "blocked_wrong", "lost-wake-up"),
    wrong("wakeups", "poll_wrong", "lost-wake-up"),
    wrong("wakeups", "epoll_wrong", "lost-wake-up"),
    right("wakeups", "polled_right"),
    right("wakeups", "empty_right"),
    right("wakeups", "limited_right"),
    right("wakeups", "divided_right"),
    wrong("events", "pair_wrong", "event-not-acknowledged"),
    right("events", "pair_right"),
    right("events", "other_right"),
    wrong("manager", "id_wrong", "event-not-acknowledged"),
    right("manager", "id_right"),
    right("manager", "request_right"),
    right("manager", "pair_right"),
    wrong("refused", "elements_wrong", "refused-call"),
    wrong("refused", "inline_wrong", "refused-call"),
    wrong("refused", "address_wrong", "refused-call"),
    right("refused", "limits_right"),
    right("refused", "asked_right"),
    wrong("lengths", "short_wrong", "receive-too-short"),
    right("lengths", "exact_right"),
    wrong("lengths", "missing_wrong", "no-receive"),
    right("lengths", "late_right"),
    wrong("sharing", "receives_wrong", "overlapping-sinks"),
    wrong("sharing", "reads_wrong", "overlapping-sinks"),
    wrong("sharing", "unpolled_wrong", "overlapping-sinks"),
    wrong("sharing", "changed_wrong", "changed-in-flight"),
    right("sharing", "apart_right"),
    right("sharing", "again_right"),
    right("sharing", "changed_right"),
    right("sharing", "sources_right"),
    right("sharing", "flushed_right"),
    wrong("lives", "domain_wrong", "destroyed-in-use"),
    wrong("lives", "channel_wrong", "destroyed-in-use"),
    wrong("lives", "left_wrong", "leak"),
    wrong("lives", "gone_wrong", "use-after-destroy"),
    right("lives", "order_right"),
];

/// Over TCP a Send completes without a receive of the peer's, or ends the connection; and
/// ThreadSanitizer calls a change a race.
fn suits(scenario: &str, device: &str) -> bool {
    let races = std::env::var("IWARP_TEST_CFLAGS").is_ok_and(|flags| flags.contains("thread"));
    match scenario {
        "changed_wrong" => device == "roce" && !races,
        "missing_wrong" | "late_right" => device == "roce",
        _ => true,
    }
}

/// The devices, and the variables by which there is one.
const DEVICES: [(&str, &[(&str, &str)]); 2] = [
    ("iwarp", &[("IWARP_PERSONALITY", "iwarp")]),
    ("roce", &[("IWARP_PERSONALITY", "roce"), ("IWARP_WIRE", "roce")]),
];

/// A program that is compiled, and its text.
struct Program {
    path: PathBuf,
    text: String,
}

impl Program {
    fn new(file: &str) -> Self {
        Self::built(file, &[])
    }

    /// The program, with words for the compiler.
    fn built(file: &str, compiler: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/check");
        let source = std::fs::read_to_string(folder.join(format!("{file}.c"))).expect("a program");
        let text = support::with_headers(&source);
        let libraries = ["-rdynamic", "-libverbs", "-lrdmacm", "-ldl"];
        let name = format!("check-{file}{}", compiler.concat().replace('=', "-"));
        let path = support::compile_with(&name, &text, compiler, &libraries);
        Self { path, text }
    }

    /// The words of a scenario while it is checked.
    fn said(&self, scenario: &str, variables: &[(&str, &str)]) -> String {
        let args: &[&str] = if scenario.is_empty() { &[] } else { &[scenario] };
        let output = support::run_program(&self.path, args, variables, Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{scenario} {variables:?}: {}\n{text}", output.status);
        text
    }

    /// The number of the line that has this mark.
    fn marked(&self, mark: &str) -> Option<usize> {
        self.text.lines().position(|line| line.contains(mark)).map(|line| line + 1)
    }

    /// The lines of the program that are in a part of a report.
    fn lines(&self, part: &str) -> Vec<usize> {
        let path = self.path.to_str().expect("a path");
        let own = format!("({path}+");
        let places = part.lines().filter_map(|line| line.split_once(&own)?.1.strip_suffix(')'));
        let mut args = vec!["-i", "-e", path];
        args.extend(places);
        if args.len() == 3 {
            return Vec::new();
        }
        let found = support::tool("addr2line", "binutils", &args);
        let numbers = found.lines().filter_map(|line| {
            let number = line.rsplit(':').next()?;
            number.split(' ').next()?.parse().ok()
        });
        numbers.collect()
    }

    /// The reason why a report lacks a place or words that the text says.
    fn judge(&self, scenario: &str, report: &str) -> Result<(), String> {
        let mark = |what: &str| format!("/* {scenario}{what}");
        let end = report.find("\n  rule: ").expect("a rule");
        let mut parts = vec![String::new()];
        for line in report[..end].lines() {
            // Titles of further places.
            if line.starts_with("  ") && !line.starts_with("    #") {
                parts.push(String::new());
            }
            let last = parts.last_mut().expect("there is one");
            last.push_str(line);
            last.push('\n');
        }
        let mut found = parts.iter().map(|part| self.lines(part));
        let here = self.marked(&mark(": here")).expect("a mark");
        let first = found.next().expect("there is one");
        if !first.contains(&here) {
            return Err(format!("line {here} in {first:?}"));
        }
        if let Some(there) = self.marked(&mark(": there")) {
            let others: Vec<usize> = found.flatten().collect();
            if !others.contains(&there) {
                return Err(format!("line {there} in {others:?}"));
            }
        }
        let says = mark(" says: ");
        let mut words = self.text.lines().filter_map(|line| line.split_once(&says));
        words.try_for_each(|(_, words)| {
            let words = words.trim_end_matches("*/").trim();
            if report.contains(words) { Ok(()) } else { Err(format!("{words:?}")) }
        })
    }
}

/// Judges the cases of a file.
fn judge(file: &str) {
    let program = Program::new(file);
    for (_, scenario, rule) in CASES.iter().filter(|(of, ..)| *of == file) {
        // Reports are no part of the log.
        let words = if file == "sharing" { "report,strict" } else { "report" };
        let checked = [("IWARP_CHECK", words), ("IWARP_LOG", "off")];
        for (device, variables) in DEVICES {
            if !suits(scenario, device) {
                continue;
            }
            let said = program.said(scenario, &[&checked, variables].concat());
            let about = format!("{file} {scenario} over {device}");
            let reports: Vec<_> = said.split("iwarp check[").skip(1).collect();
            let Some(rule) = rule else {
                assert!(reports.is_empty(), "{about}:\n{said}");
                continue;
            };
            for report in &reports {
                assert!(report.contains(&format!("]: {rule}: ")), "{about}:\n{said}");
                assert!(report.contains("    #0 ") && report.contains("  to do: "), "{said}");
            }
            let verdicts = reports.iter().map(|report| program.judge(scenario, report));
            let lacking: Result<Vec<_>, ()> =
                verdicts.map(|verdict| verdict.err().ok_or(())).collect();
            assert!(lacking.is_err(), "{about}: {lacking:?}\n{said}");
        }
    }
}

macro_rules! files {
    ($($name:ident: $($file:ident)+;)+) => {
        $(#[test]
        fn $name() {
            $(judge(stringify!($file));)+
        })+

        const FILES: &[&str] = &[$($(stringify!($file),)+)+];
    };
}

files! {
    keys_are_those_of_the_memory: keys;
    regions_stay_while_requests_use_them: regions;
    completion_queues_have_room_for_all_that_may_come: queues;
    wake_ups_that_are_lost_are_told: wakeups;
    asynchronous_events_are_acknowledged: events event_wrong event_right;
    events_of_the_connection_manager_are_acknowledged: manager manager_right;
    calls_that_make_no_sense_are_told: refused reset_wrong;
    receives_are_long_enough: lengths;
    memory_is_not_shared_with_the_device: sharing;
    objects_end_in_order: lives order_right busy_wrong leak_wrong;
    lists_are_posted_once: list_wrong list_right batch_right;
    nothing_is_posted_after_an_error: error_wrong error_right;
    queues_ask_for_completions: silent_wrong silent_right;
}

/// Each rule of the manual has wrong cases, and there are as many right ones.
#[test]
fn each_rule_has_cases_and_each_file_is_judged() {
    let files: BTreeSet<_> = CASES.iter().map(|(file, ..)| *file).collect();
    assert_eq!(files, FILES.iter().copied().collect());
    let mut rules: BTreeSet<_> = CASES.iter().filter_map(|(.., rule)| *rule).collect();
    rules.insert(tools::RULE);
    let manual = include_str!("../../../../docs/check.md");
    let table = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let known: BTreeSet<_> =
        table.map(|(name, _)| name).filter(|name| name.contains('-')).collect();
    assert!(rules.is_superset(&known), "{known:?} of which {rules:?} have cases");
    assert!(CASES.len() >= 60, "{} cases", CASES.len());
    let right = CASES.iter().filter(|(.., rule)| rule.is_none()).count();
    assert!(2 * right + 5 >= CASES.len(), "{right} of {} are right", CASES.len());
}

/// A handler may have interrupted an allocation of memory, which the checker needs, too.
#[test]
fn calls_out_of_handlers_of_signals_are_left_alone() {
    let said = Program::new("keys").said("handler", &[("IWARP_CHECK", "report")]);
    assert!(!said.contains("iwarp check["), "{said}");
}

#[test]
fn a_trace_and_the_checker_are_told_together() {
    let variables = [("IWARP_CHECK", "report"), ("IWARP_LOG", "trace")];
    let said = Program::new("busy_wrong").said("", &variables);
    assert!(said.contains("]: destroyed-in-use: ") && said.contains("ibv_alloc_pd("), "{said}");
}
