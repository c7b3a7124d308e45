// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults by rule, in calls of the C API and in completions: an error number where a card has
//! refused a call, an error status with what follows from it, a completion that comes late.
//!
//! ```text
//!   book    what the rules have seen and done in this process
//!   parse   rules from text
//!   rules   a rule, and the operations that it is about
//!   words   the names of error numbers, statuses, functions and operations
//! ```
//!
//! Without rules a call or a completion costs one look at a pointer. The rules are those of the
//! first device that is opened with some, or of the environment; they hold for the whole process,
//! and a forked child counts anew. A decision follows from the seed, the rule, the queue pair (the
//! how many-th of the process) and the operation on it, and so from nothing that other threads do.

mod book;
mod parse;
mod rules;
mod words;

use std::sync::OnceLock;
use std::time::Duration;

use iwarp_os::PerProcess;
use iwarp_types::{WcStatus, WorkCompletion};

use self::book::Book;
pub use self::parse::RuleError;
pub(crate) use self::parse::split;
use self::rules::{Action, Operation};
pub use self::rules::{FaultRules, Kind};
use self::words::kind_of;

static RULES: OnceLock<FaultRules> = OnceLock::new();

static BOOK: PerProcess<Book> = PerProcess::new();

/// Has the process the faults of these rules from now on, if it has none yet.
pub fn install(rules: &FaultRules) {
    if rules.rules.is_empty() || RULES.set(rules.clone()).is_err() {
        return;
    }
    tracing::warn!(
        target: crate::report::REPORT,
        "calls and completions have faults on purpose (IWARP_FAULTS): seed {}, {} rule(s)",
        rules.seed,
        rules.rules.len()
    );
}

/// True if there are rules.
#[inline]
pub(crate) fn are_on() -> bool {
    RULES.get().is_some()
}

fn decide(operation: &Operation<'_>) -> Option<Action> {
    let rules = RULES.get()?;
    let is_named = |rule: &rules::Rule| rule.verb.is_none_or(|verb| verb.name == operation.verb);
    if !rules.rules.iter().any(is_named) {
        return None;
    }
    BOOK.get().decide(rules, operation)
}

/// The error number with which a call of this function of the C API is refused, if it is.
#[inline]
pub fn of_call(verb: &'static str) -> Option<i32> {
    if are_on() { refusal(&Operation::call(verb)) } else { None }
}

/// As [`of_call`], on the queue pair with this number.
#[inline]
pub fn of_call_on(verb: &'static str, qp: u32) -> Option<i32> {
    if are_on() { refusal(&Operation { qp: Some(qp), ..Operation::call(verb) }) } else { None }
}

/// As [`of_call_on`], for one work request of a list that is posted.
#[inline]
pub fn of_post(verb: &'static str, qp: u32, request: impl FnOnce() -> (Kind, u64)) -> Option<i32> {
    if !are_on() {
        return None;
    }
    let (kind, size) = request();
    let call = Operation::call(verb);
    refusal(&Operation { qp: Some(qp), kind: Some(kind), size: Some(size), ..call })
}

#[cold]
fn refusal(operation: &Operation<'_>) -> Option<i32> {
    match decide(operation)? {
        Action::Errno(number) => Some(number),
        Action::Status(_) | Action::Late(_) => None,
    }
}

/// The fate of a completion that a rule has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hurt {
    /// It has this status, and the queue pair fails.
    Status(WcStatus),
    /// It comes so much later.
    Late(Duration),
}

/// The fate of a completion of the queue pair with this number.
#[cold]
pub(crate) fn of_completion(qp: u32, completion: &WorkCompletion) -> Option<Hurt> {
    let kind = kind_of(completion.op);
    let lane = if kind == Kind::Recv { words::RECEIVED } else { words::SENT };
    let size = u64::from(completion.byte_len);
    match decide(&Operation { verb: lane, qp: Some(qp), kind: Some(kind), size: Some(size) })? {
        Action::Status(status) => Some(Hurt::Status(status)),
        Action::Late(time) => Some(Hurt::Late(time)),
        Action::Errno(_) => None,
    }
}

/// A queue pair with this number was made.
pub(crate) fn created(qp: u32) {
    BOOK.get().created(qp);
}

/// Writes down what the rules have seen, at the end of the process.
pub(crate) fn write_out() {
    if let Some(rules) = RULES.get() {
        BOOK.get().write_out(rules);
    }
}
