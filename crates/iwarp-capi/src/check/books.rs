// SPDX-License-Identifier: MIT OR Apache-2.0

//! The books of a process: its objects by their addresses, and what has failed.

use std::collections::{HashMap, HashSet};

use iwarp::observe::{Call, Value};

use super::events::Events;
use super::failures::{self, Failures};
use super::layout::{PairHead, Request, read};
use super::place::Place;
use super::report::{AFTER_DESTROY, IN_RESET, IN_USE, LEAK, LIST_AGAIN, Reports};
use super::signals::Signals;

/// An object of the program's.
#[derive(Debug)]
struct Made {
    verb: String,
    place: Place,
}

#[derive(Debug)]
pub(super) struct Books {
    reports: Reports,
    live: HashMap<usize, Made>,
    gone: HashMap<usize, (Made, Place)>,
    /// Lists that were taken in part, nothing having been posted or polled since: queue pair to the
    /// first request.
    halves: HashMap<usize, (usize, Request)>,
    failures: Failures,
    events: Events,
    signals: Signals,
    /// Threads in a call of the connection manager: the objects that it makes are its own.
    within: HashSet<usize>,
}

fn pointer(call: &[(&str, Value)], number: usize) -> usize {
    match call.get(number) {
        Some((_, Value::Pointer(address))) => *address,
        _ => 0,
    }
}

fn ends_object(verb: &str) -> bool {
    ["ibv_destroy_", "ibv_dealloc_", "ibv_dereg_", "ibv_free_dm"]
        .iter()
        .any(|start| verb.starts_with(start))
}

fn makes_object(verb: &str) -> bool {
    ["ibv_create_", "ibv_alloc_", "ibv_reg_"].iter().any(|start| verb.starts_with(start))
}

impl Books {
    pub(super) fn new(reports: Reports) -> Self {
        let (live, gone) = (HashMap::new(), HashMap::new());
        let (halves, within) = (HashMap::new(), HashSet::new());
        let (failures, events, signals) = <_>::default();
        Self { reports, live, gone, halves, failures, events, signals, within }
    }

    /// A call begins: none of its arguments may be an object that is gone.
    pub(super) fn begins(&mut self, verb: &str, arguments: &[(&str, Value)]) {
        if verb.starts_with("rdma_") {
            self.within.insert(failures::thread());
        }
        if !verb.starts_with("ibv_") {
            return;
        }
        for (name, value) in arguments {
            let Value::Pointer(address) = value else { continue };
            if !matches!(*name, "qp" | "cq" | "mr" | "pd" | "mw" | "srq" | "ah" | "channel") {
                continue;
            }
            if let Some((made, end)) = self.gone.get(address) {
                let what = format!("{verb} with a {name} ({address:#x}) that was destroyed");
                let others = [("destroyed", end), (made.verb.as_str(), &made.place)];
                self.reports.report(&AFTER_DESTROY, &what, &Place::here(), &others);
            }
        }
        if verb == "ibv_destroy_cq" {
            self.events.destroys(pointer(arguments, 0), &mut self.reports);
        }
        // Before the call: behind it another thread may have an object at this address.
        let ended = if ends_object(verb) { pointer(arguments, 0) } else { 0 };
        if let Some(made) = self.live.remove(&ended) {
            self.gone.insert(ended, (made, Place::here()));
        }
    }

    /// A call has ended.
    pub(super) fn called(&mut self, call: &Call<'_>) {
        let (verb, arguments) = (call.verb, call.arguments);
        if verb.starts_with("rdma_") {
            self.within.remove(&failures::thread());
        }
        match (verb, call.result) {
            ("ibv_post_send", result) => self.posted(arguments, result.err()),
            ("ibv_post_recv", result) => {
                self.posted_in_state(verb, pointer(arguments, 0), result.err());
            }
            ("ibv_poll_cq", Ok(Value::Number(count))) => {
                let count = usize::try_from(count).unwrap_or(0);
                if count > 0 {
                    self.halves.clear();
                }
                self.failures.polled(pointer(arguments, 2), count);
            }
            ("ibv_modify_qp", Ok(_)) => {
                self.signals.changed(pointer(arguments, 0));
                // SAFETY: the program's queue pair, which was just changed.
                self.failures.changed(unsafe { read::<PairHead>(pointer(arguments, 0)) });
            }
            (verb, Ok(Value::Pointer(address))) if makes_object(verb) && address != 0 => {
                self.gone.remove(&address);
                if verb.starts_with("ibv_create_qp") {
                    // SAFETY: the queue pair that was just made.
                    self.failures.made(unsafe { read::<PairHead>(address) }.qp_num);
                    self.signals.made(address, pointer(arguments, 1));
                }
                self.events.made(address);
                if !self.within.contains(&failures::thread()) {
                    let made = Made { verb: verb.to_owned(), place: Place::here() };
                    self.live.insert(address, made);
                }
            }
            ("ibv_get_cq_event", Ok(_)) => {
                // SAFETY: the library has just stored the completion queue there.
                self.events.taken(unsafe { read::<usize>(pointer(arguments, 1)) });
            }
            ("ibv_ack_cq_events", Ok(_)) => {
                let count = match arguments.get(1) {
                    Some((_, Value::Number(count))) => *count,
                    _ => 0,
                };
                self.events.acknowledged(pointer(arguments, 0), count);
            }
            ("ibv_wr_complete", _) => self.signals.forget(pointer(arguments, 0)),
            // They make and end objects without a call that is told: an address may be used again.
            (verb, Ok(_)) if verb.starts_with("rdma_") || verb.starts_with("ibv_import_") => {
                self.gone.clear();
                self.failures.called(verb);
                if verb.starts_with("rdma_create_qp") || verb.starts_with("rdma_destroy_") {
                    self.signals = Signals::default();
                }
            }
            (verb, result) if ends_object(verb) => self.ended(verb, pointer(arguments, 0), result),
            _ => {}
        }
    }

    fn ended(&mut self, verb: &str, address: usize, result: Result<Value, i32>) {
        match result {
            Ok(_) => {
                self.halves.remove(&address);
                self.signals.forget(address);
                return;
            }
            Err(_) => {
                if let Some((made, _)) = self.gone.remove(&address) {
                    self.live.insert(address, made);
                }
            }
        }
        if result == Err(libc::EBUSY) {
            let what = format!("{verb} of {address:#x}, which other objects use");
            let made = self.live.get(&address);
            let others = made.map(|made| (made.verb.as_str(), &made.place));
            self.reports.report(&IN_USE, &what, &Place::here(), others.as_slice());
        }
    }

    fn posted(&mut self, arguments: &[(&str, Value)], refused: Option<i32>) {
        let [qp, wr, bad] = [0, 1, 2].map(|number| pointer(arguments, number));
        self.posted_in_state("ibv_post_send", qp, refused);
        if wr == 0 {
            return;
        }
        // SAFETY: the library has just stored there the request that was refused.
        let end = if refused.is_some() && bad != 0 { unsafe { read::<usize>(bad) } } else { 0 };
        if refused.is_none() || bad != 0 {
            let full = refused == Some(libc::ENOMEM);
            self.signals.posted(qp, (wr, end), full, &mut self.reports);
        }
        // SAFETY: the program has just posted it.
        let first = unsafe { read::<Request>(wr) };
        if self.halves.remove(&qp) == Some((wr, first)) {
            let what = format!(
                "the list at {wr:#x} again from its first request, wr_id {:#x}, which was posted",
                first.wr_id
            );
            self.reports.report(&LIST_AGAIN, &what, &Place::here(), &[]);
        }
        if end != 0 && end != wr {
            self.halves.insert(qp, (wr, first));
        }
    }

    fn posted_in_state(&mut self, verb: &str, qp: usize, refused: Option<i32>) {
        if refused.is_none() && self.failures.are_none() {
            return;
        }
        // SAFETY: the program's queue pair, to which it has just posted.
        let pair = unsafe { read::<PairHead>(qp) };
        if refused == Some(libc::EINVAL) && pair.state == failures::RESET {
            let what = format!("{verb} to queue pair {}, which is in RESET", pair.qp_num);
            let made = self.live.get(&qp).map(|made| (made.verb.as_str(), &made.place));
            self.reports.report(&IN_RESET, &what, &Place::here(), made.as_slice());
        }
        self.failures.posted(verb, pair, &mut self.reports);
    }

    /// The process exits: what lives is leaked.
    pub(super) fn at_exit(&mut self) {
        for (address, made) in &self.live {
            let what = format!("{address:#x} of {} lives at exit", made.verb);
            self.reports.report(&LEAK, &what, &made.place, &[]);
        }
        self.reports.end();
    }
}
