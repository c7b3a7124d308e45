// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work of the worker and of callers for a poll set, as its hand-over says.
//!
//! These are the decisions of the worker's loop and of callers that block or go to sleep, apart
//! from what they are carried out with: the model checker runs them on an epoll and timers of its
//! own.
//!
//! The model checks that no wake-up is lost, no worker spins, and no bell is hushed under a thread
//! that needs it.

use crate::engine::handover::{Cause, Duty, Handover};
use crate::flaw::{self, Flaw};

/// Rounds in which a poll set is served, and nanoseconds after which none begins, before others get
/// their turn: a peer that reads much gives work for long in one round.
const SERVE_ROUNDS: usize = 16;
const SERVE_NANOS: u64 = 1_000_000;

/// A poll set, and what can be done about it.
pub(crate) trait Attended {
    fn handover(&self) -> &Handover;
    /// The time by which its hand-over goes.
    fn nanos(&self) -> u64;
    /// Has its own epoll report all there is: its bell may be hushed while callers poll.
    fn listen(&self);
    /// The worker's epoll reports it once from now on, at once if something is ready.
    fn report_once(&self);
    /// The worker looks at it again at that time.
    fn look_again(&self, at: u64);
    /// The worker moves all that is ready.
    fn serve(&self) -> Served;
}

/// The results of the worker's service.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Served {
    /// Something was ready and is moved.
    pub(crate) moved: bool,
    /// Something may be, and callers of another group look after it.
    pub(crate) left: bool,
}

/// The worker looks at a poll set, for which it is `due` at least: the clock of its timers and that
/// of the hand-over differ a little.
pub(crate) fn look_after(set: &(impl Attended + ?Sized), cause: Cause, due: u64) {
    match set.handover().worker_turn(set.nanos().max(due), cause) {
        Duty::Serve => serve(set, cause),
        duty => follow(set, duty),
    }
}

fn follow(set: &(impl Attended + ?Sized), duty: Duty) {
    match duty {
        Duty::Watch(at) => set.look_again(at),
        Duty::Arm => arm(set),
        Duty::Serve | Duty::Leave => {}
    }
}

fn serve(set: &(impl Attended + ?Sized), cause: Cause) {
    let handover = set.handover();
    let mut left = false;
    let begun = set.nanos();
    for round in 0..SERVE_ROUNDS {
        let served = set.serve();
        left = served.left;
        if !served.moved {
            break;
        }
        if round == 0 && cause == Cause::Time {
            handover.was_late();
        }
        let now = set.nanos();
        if handover.is_leased(now) || now.saturating_sub(begun) > SERVE_NANOS {
            break;
        }
    }
    if left {
        return follow(set, handover.watch_beside(set.nanos()));
    }
    handover.served();
    if !flaw::is(Flaw::ServedNotArmed) {
        arm(set);
    }
}

/// Lets a poll set wake the worker, at once if something is ready.
fn arm(set: &(impl Attended + ?Sized)) {
    set.listen();
    set.report_once();
}

/// A caller blocks on a poll set from now on.
pub(crate) fn enter(set: &(impl Attended + ?Sized)) {
    set.handover().enter();
    set.listen();
}

/// A caller blocks on it no more.
pub(crate) fn leave(set: &(impl Attended + ?Sized)) {
    if set.handover().leave(set.nanos()) {
        arm(set);
    }
}

/// A caller goes to sleep elsewhere: from now on the worker serves the poll set at once.
pub(crate) fn leave_to_worker(set: &(impl Attended + ?Sized)) {
    if set.handover().end_lease() && !flaw::is(Flaw::SleeperArmsNothing) {
        arm(set);
    }
}

/// A caller may go to sleep elsewhere, and most likely comes again before: the worker serves the
/// poll set when its lease is over.
pub(crate) fn linger(set: &(impl Attended + ?Sized)) {
    if let Some(at) = set.handover().linger(set.nanos()) {
        set.look_again(at);
    }
}

#[cfg(all(test, model))]
mod model;
#[cfg(all(test, not(model)))]
mod tests;
