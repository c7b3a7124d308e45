// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults by rule, in calls of the C API, in completions, in the placement of bytes and in events:
//! an error number where a card has refused a call, a slow call, an error status with what follows
//! from it, a completion that comes late, bytes that become visible in another order, an event that
//! comes late or twice, a connection that cannot be made.
//!
//! ```text
//!   book    what the rules have seen and done in this process
//!   cable   ports that are down
//!   parse   rules from text
//!   placing received bytes that become visible in pieces
//!   process what the process is called
//!   rules   a rule, and the operations that it is about
//!   words   the names of error numbers, statuses, functions and operations
//! ```
//!
//! Without rules a call or a completion costs one look at a pointer. The rules are those of the
//! first device that is opened with some, or of the environment, until `iwarp set` puts others in
//! their place; they hold for the whole process, and a forked child counts anew. A decision follows
//! from the seed, the rule, the queue pair (the how many-th of the process) and the operation on
//! it, and so from nothing that other threads do.

mod book;
mod cable;
mod parse;
mod placing;
mod process;
mod rules;
mod words;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use iwarp_os::PerProcess;
use iwarp_types::{WcOp, WcStatus, WorkCompletion};

use self::book::Book;
pub use self::cable::is_pulled;
pub(crate) use self::cable::pull;
pub use self::parse::RuleError;
pub(crate) use self::parse::split;
pub(crate) use self::placing::around;
use self::rules::{Action, Operation};
pub use self::rules::{FaultRules, Kind};
use self::words::kind_of;

/// All rules that the process has had. A lock would be one that a forked child finds taken.
static FIRST: OnceLock<Box<Node>> = OnceLock::new();

static BOOK: PerProcess<Book> = PerProcess::new();

/// There are rules, and rules about placement: so that a look costs next to nothing without them.
static ARE_ON: AtomicBool = AtomicBool::new(false);
static ARE_PLACING: AtomicBool = AtomicBool::new(false);

/// Rules, and those that have taken their place. They stay: a thread may be amid them.
#[derive(Debug)]
struct Node {
    rules: FaultRules,
    next: OnceLock<Box<Self>>,
}

/// The rules in force, perhaps none.
fn in_force() -> Option<&'static FaultRules> {
    std::iter::successors(FIRST.get(), |node| node.next.get()).last().map(|node| &node.rules)
}

/// The rules are in force from now on.
fn tell(rules: &FaultRules, by: &str) {
    ARE_PLACING.store(rules.place(), Ordering::Relaxed);
    ARE_ON.store(rules.has_some(), Ordering::Relaxed);
    if rules.has_some() {
        tracing::warn!(
            target: crate::report::REPORT,
            "calls and completions have faults on purpose ({by}): seed {}, {} rule(s)",
            rules.seed,
            rules.rules.len()
        );
    } else {
        tracing::warn!(target: crate::report::REPORT, "faults on purpose end here ({by})");
    }
}

/// Has the process the faults of these rules from now on, if it has none yet.
pub fn install(rules: &FaultRules) {
    let node = || Box::new(Node { rules: rules.clone(), next: OnceLock::new() });
    if rules.has_some() && FIRST.set(node()).is_ok() {
        tell(rules, "IWARP_FAULTS");
    }
}

/// Rules that cannot take the place of others while a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rules with place= hold from the start of a process: start it with IWARP_FAULTS")]
pub(crate) struct PlacementError;

/// Has the process the faults of these rules from now on, in place of those that it has; of no
/// rules, none any more. All count anew, and `qp=` counts the queue pairs that are made from then
/// on.
pub(crate) fn replace(rules: &FaultRules) -> Result<(), PlacementError> {
    if rules.place() {
        return Err(PlacementError);
    }
    write_out();
    let mut place = &FIRST;
    let mut node = Box::new(Node { rules: rules.clone(), next: OnceLock::new() });
    while let Err(back) = place.set(node) {
        node = back;
        place = place.get().map_or(place, |taken| &taken.next);
    }
    tell(rules, "iwarp set");
    BOOK.get().begin_anew();
    Ok(())
}

/// True if there are rules.
#[inline]
pub(crate) fn are_on() -> bool {
    ARE_ON.load(Ordering::Relaxed)
}

/// True if rules say when and in which order bytes become visible.
#[inline]
pub(crate) fn are_placing() -> bool {
    ARE_PLACING.load(Ordering::Relaxed)
}

/// The action of the rule that fires, with a number that is drawn for the operation alone.
fn decide(operation: &Operation<'_>) -> Option<(Action, u64)> {
    let rules = in_force()?;
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

/// As [`of_post`], for requests that are posted all or none, each of which counts.
#[inline]
pub fn of_posts(
    verb: &'static str,
    qp: u32,
    requests: impl Iterator<Item = (WcOp, u64)>,
) -> Option<i32> {
    if !are_on() {
        return None;
    }
    // Also behind one that is refused, so that each has its number with all seeds.
    let refused = requests.filter_map(|(op, size)| of_post(verb, qp, || (kind_of(op), size)));
    refused.fold(None, |first, number| first.or(Some(number)))
}

#[cold]
fn refusal(operation: &Operation<'_>) -> Option<i32> {
    match decide(operation)?.0 {
        Action::Errno(number) => Some(number),
        Action::Slow(time) => {
            thread::sleep(time);
            None
        }
        _ => None,
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
    let operation = Operation {
        verb: lane,
        qp: Some(qp),
        kind: Some(kind),
        size: Some(size),
        wr_id: Some(completion.wr_id),
    };
    match decide(&operation)?.0 {
        Action::Status(status) => Some(Hurt::Status(status)),
        Action::Late(time) => Some(Hurt::Late(time)),
        _ => None,
    }
}

/// An event of this kind was taken, for the program: waits where a rule has it late. True where it
/// is to come once more.
#[inline]
pub fn of_event(kind: Kind) -> bool {
    are_on() && repeats(kind)
}

#[cold]
fn repeats(kind: Kind) -> bool {
    let lane = match kind {
        Kind::AsyncEvent => words::ASYNC_EVENTS,
        Kind::CmEvent => words::CM_EVENTS,
        _ => words::EVENTS,
    };
    match decide(&Operation { kind: Some(kind), ..Operation::call(lane) }) {
        Some((Action::Late(time), _)) => {
            thread::sleep(time);
            false
        }
        Some((Action::Again, _)) => true,
        _ => false,
    }
}

/// The steps of the connection manager that end in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `rdma_resolve_addr`
    Address,
    /// `rdma_resolve_route`
    Route,
    /// `rdma_connect`
    Connection,
    /// A connection has ended, and the program has taken that event.
    Disconnection,
}

/// Events in which they end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// `RDMA_CM_EVENT_ADDR_ERROR`
    AddressError,
    /// `RDMA_CM_EVENT_ROUTE_ERROR`
    RouteError,
    /// `RDMA_CM_EVENT_REJECTED`
    Rejected,
    /// `RDMA_CM_EVENT_UNREACHABLE`
    Unreachable,
    /// `RDMA_CM_EVENT_CONNECT_ERROR`
    ConnectError,
    /// `RDMA_CM_EVENT_TIMEWAIT_EXIT`
    TimewaitExit,
}

/// The event in which a step ends that has not begun, if a rule has it end badly, or if the ports
/// are down.
#[inline]
pub fn of_step(step: Step) -> Option<Outcome> {
    if is_pulled()
        && let Some(outcome) = without_cable(step)
    {
        return Some(outcome);
    }
    if are_on() { outcome(step) } else { None }
}

/// As on a card, but at once: it gives up after some time.
#[cold]
const fn without_cable(step: Step) -> Option<Outcome> {
    match step {
        Step::Address => Some(Outcome::AddressError),
        Step::Route | Step::Disconnection => None,
        Step::Connection => Some(Outcome::Unreachable),
    }
}

#[cold]
fn outcome(step: Step) -> Option<Outcome> {
    let lane = match step {
        Step::Address => words::ADDRESS,
        Step::Route => words::ROUTE,
        Step::Connection => words::CONNECTION,
        Step::Disconnection => words::DISCONNECTION,
    };
    match decide(&Operation::call(lane))?.0 {
        Action::End(outcome) => Some(outcome),
        _ => None,
    }
}

/// A queue pair with this number was made.
pub(crate) fn created(qp: u32) {
    BOOK.get().created(qp);
}

/// Writes down what the rules have seen, at the end of the process.
pub(crate) fn write_out() {
    if let Some(rules) = in_force() {
        BOOK.get().write_out(rules);
    }
}
