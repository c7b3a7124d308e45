// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports: their text, one for each rule and place, limits, suppressions, the exit status.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use iwarp::Log;

use super::place::Place;
use crate::log::{say, write};

/// Reports of one rule that are printed.
const LIMIT: u32 = 20;

/// A rule of use.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// The text that has the rule.
    source: &'static str,
    /// The way to mend it.
    advice: &'static str,
}

pub(super) const IN_USE: Rule = Rule {
    name: "destroyed-in-use",
    source: "ibv_destroy_cq(3), ibv_dealloc_pd(3): fails while other objects use it",
    advice: "destroy what uses it first: queue pairs, then queues and regions, then the domain",
};
pub(super) const AFTER_DESTROY: Rule = Rule {
    name: "use-after-destroy",
    source: "an object ends with the call that destroys it (ibv_destroy_qp(3) and others)",
    advice: "drop the pointer where the object is destroyed",
};
pub(super) const LEAK: Rule = Rule {
    name: "leak",
    source: "each object that the program makes is its own to destroy",
    advice: "destroy it before the process exits",
};
pub(super) const IN_RESET: Rule = Rule {
    name: "post-in-reset",
    source: "ibv_modify_qp(3): a queue pair takes receives from INIT on, and sends in RTS",
    advice: "modify the queue pair to INIT, RTR and RTS first",
};
pub(super) const NOT_ACKNOWLEDGED: Rule = Rule {
    name: "event-not-acknowledged",
    source: "ibv_get_cq_event(3), ibv_get_async_event(3), rdma_get_cm_event(3): the end of an \
             object waits until all of its events are acknowledged",
    advice: "acknowledge each event, at the latest before the object is destroyed",
};
pub(super) const NEVER_SIGNALLED: Rule = Rule {
    name: "queue-never-signalled",
    source: "ibv_post_send(3): a request's place is free once it, or one behind it, has completed",
    advice: "set IBV_SEND_SIGNALED in one of every max_send_wr requests at least, and poll",
};
pub(super) const LIST_AGAIN: Rule = Rule {
    name: "list-posted-again",
    source: "ibv_post_send(3): bad_wr is the first request that failed; those before it are posted",
    advice: "post again from bad_wr on",
};
pub(super) const POST_AFTER_ERROR: Rule = Rule {
    name: "post-after-error",
    source: "IB specification 10.3.1: requests posted in the error state end as flushed",
    advice: "stop posting when a completion fails; reset the queue pair, or make another",
};

pub(super) const LOST_WAKE_UP: Rule = Rule {
    name: "lost-wake-up",
    source: "ibv_req_notify_cq(3): only completions that come afterwards raise an event",
    advice: "poll once more after ibv_req_notify_cq, until nothing is found, and wait only then",
};
pub(super) const QUEUE_TOO_SMALL: Rule = Rule {
    name: "completion-queue-too-small",
    source: "ibv_create_cq(3): a queue that overruns fails for good, with its queue pairs",
    advice: "give it a place for each signalled request and each receive that may be under way",
};
pub(super) const KEY: Rule = Rule {
    name: "key",
    source: "ibv_reg_mr(3): a key stands for the memory of its region, in its protection domain",
    advice: "give the key of the region that has all of the bytes, with the rights for them",
};
pub(super) const REGION_GONE: Rule = Rule {
    name: "region-gone",
    source: "ibv_post_send(3): the device has the memory until the completion was polled",
    advice: "keep memory registered and mapped until the requests that use it have ended",
};
pub(super) const POISONED: Rule = Rule {
    name: "poisoned-memory",
    source: "ibv_post_send(3), ibv_post_recv(3): the device has the memory until the completion",
    advice: "post memory of objects that live, and keep them until the completion was polled",
};
pub(super) const TOO_SHORT: Rule = Rule {
    name: "receive-too-short",
    source: "ibv_post_recv(3): a receive takes one message, which has to fit",
    advice: "post receives as long as the longest message of the peer",
};
pub(super) const NO_RECEIVE: Rule = Rule {
    name: "no-receive",
    source: "ibv_post_send(3), ibv_modify_qp(3): a message needs a receive of the peer's, for \
             which it is sent again rnr_retry times",
    advice: "have the peer post receives before it lets this end send, as many as may be under \
             way; an rnr_retry of 7 waits without end",
};
pub(super) const OVERLAP: Rule = Rule {
    name: "overlapping-sinks",
    source: "ibv_post_recv(3), ibv_post_send(3): the device has the memory until the completion",
    advice: "give each receive and each Read memory of its own until its completion was polled",
};
pub(super) const CHANGED: Rule = Rule {
    name: "changed-in-flight",
    source: "ibv_post_send(3): buffers can only be used again when the request has completed",
    advice: "leave the buffer alone until the completion of the request was polled",
};
pub(super) const REFUSED: Rule = Rule {
    name: "refused-call",
    source: "the manual page of the function: EINVAL for arguments that make no sense",
    advice: "mend the arguments, and look at what the call returns",
};

/// A report that waits for a moment without locks.
#[derive(Debug)]
struct Note {
    rule: &'static Rule,
    what: String,
    at: Place,
    others: Vec<(String, Place)>,
}

/// All that is printed, and what the user wants of it.
#[derive(Debug, Default)]
pub(super) struct Reports {
    abort: bool,
    exit_code: Option<i32>,
    suppressed: Vec<(String, String)>,
    seen: HashSet<(&'static str, Place)>,
    counts: HashMap<&'static str, u32>,
    notes: Vec<Note>,
    pub(super) strict: bool,
}

impl Reports {
    /// The wishes in `IWARP_CHECK`; `None` for `off`, and for what makes no sense, which is said.
    pub(super) fn parse(wish: &str) -> Option<Self> {
        let mut reports = Self::default();
        for part in wish.split(',') {
            match part.split_once('=') {
                None if part == "off" => return None,
                None if part == "report" => {}
                None if part == "abort" => reports.abort = true,
                None if part == "strict" => reports.strict = true,
                Some(("exitcode", code)) if code.parse::<u8>().is_ok() => {
                    reports.exit_code = code.parse().ok();
                }
                Some(("suppressions", file)) => match std::fs::read_to_string(file) {
                    Ok(text) => reports.suppressed = suppressions(&text),
                    Err(error) => {
                        say(Log::Error, format_args!("IWARP_CHECK: {file}: {error}"));
                    }
                },
                _ => {
                    say(
                        Log::Error,
                        format_args!(
                            "IWARP_CHECK: {part:?} is not known; expected off, report, abort or \
                             strict, and exitcode=NUMBER (0 to 255), suppressions=FILE behind a comma; \
                             nothing is checked"
                        ),
                    );
                    return None;
                }
            }
        }
        Some(reports)
    }

    /// Reports that `what` broke a rule at a place, unless that was said or is suppressed.
    pub(super) fn report(
        &mut self,
        rule: &Rule,
        what: &str,
        at: &Place,
        others: &[(&str, &Place)],
    ) -> bool {
        if !self.seen.insert((rule.name, at.clone())) {
            return false;
        }
        let process = std::process::id();
        let mut text = format!("iwarp check[{process}]: {}: {what}\n{at}", rule.name);
        for (title, place) in others {
            let _ = write!(text, "  {title}:\n{place}");
        }
        let hidden = |(name, part): &(String, String)| name == rule.name && text.contains(part);
        if self.suppressed.iter().any(hidden) {
            return false;
        }
        let count = self.counts.entry(rule.name).or_default();
        *count += 1;
        if *count > LIMIT {
            return false;
        }
        let _ = writeln!(text, "  rule: {}\n  to do: {}", rule.source, rule.advice);
        write(&text);
        if self.abort {
            std::process::abort();
        }
        true
    }

    /// As [`Self::report`], for callers who hold locks of the library: the next call writes it.
    pub(super) fn note(
        &mut self,
        rule: &'static Rule,
        what: String,
        at: &Place,
        others: &[(&str, &Place)],
    ) {
        let others = others.iter().map(|(title, place)| ((*title).to_owned(), (*place).clone()));
        self.notes.push(Note { rule, what, at: at.clone(), others: others.collect() });
    }

    /// The reports so far, those that wait among them.
    pub(super) fn count(&self) -> usize {
        self.seen.len() + self.notes.len()
    }

    /// Writes the reports that wait.
    pub(super) fn flush(&mut self) {
        for Note { rule, what, at, others } in std::mem::take(&mut self.notes) {
            let others: Vec<_> = others.iter().map(|(title, at)| (title.as_str(), at)).collect();
            self.report(rule, &what, &at, &others);
        }
    }

    /// Ends the process with the status that the user wants, if there were reports.
    pub(super) fn end(&self) {
        if let Some(code) = self.exit_code.filter(|_| !self.counts.is_empty()) {
            // SAFETY: all streams are written out, whose turn would come behind this handler.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) };
        }
    }
}

/// The lines `RULE:TEXT` of a file: reports of the rule that contain the text are not printed.
fn suppressions(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.map(|(rule, part)| (rule.trim().to_owned(), part.trim().to_owned())).collect()
}
