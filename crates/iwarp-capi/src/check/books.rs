// SPDX-License-Identifier: MIT OR Apache-2.0

//! The books of a process: its objects by their addresses, and what has failed.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use iwarp::observe::{Call, Value};
use iwarp::{RecvRequest, SendRequest, WorkCompletion};

use super::events::{Events, Kind};
use super::failures::{self, Failures};
use super::layout::{PairHead, Request, read};
use super::place::Place;
use super::report::{AFTER_DESTROY, IN_RESET, IN_USE, LEAK, LIST_AGAIN, REFUSED, Reports};
use super::signals::Signals;
use super::sleepers;
use super::traffic::Traffic;
use crate::refuse;

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
    traffic: Traffic,
    /// A thread looks for wake-ups that are lost.
    watching: bool,
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

/// True for functions by which programs find out how much they may have.
fn may_ask(verb: &str) -> bool {
    !["ibv_post_", "ibv_wr_complete", "ibv_modify_qp"].iter().any(|start| verb.starts_with(start))
}

impl Books {
    pub(super) fn new(reports: Reports) -> Self {
        let (live, gone) = (HashMap::new(), HashMap::new());
        let (halves, within) = (HashMap::new(), HashSet::new());
        let (failures, events, signals) = <_>::default();
        let (traffic, watching) = (Traffic::default(), false);
        Self { reports, live, gone, halves, failures, events, signals, within, traffic, watching }
    }

    pub(super) fn posted_send(&mut self, pair: u32, request: &SendRequest<'_>) {
        self.traffic.posted_send(pair, request, &mut self.reports);
    }

    pub(super) fn posted_receive(&mut self, pair: u32, request: &RecvRequest<'_>) {
        self.traffic.posted_receive(pair, request, &mut self.reports);
    }

    pub(super) fn posted_shared_receive(&mut self, srq: u64, request: &RecvRequest<'_>) {
        self.traffic.posted_shared_receive(srq, request, &mut self.reports);
    }

    pub(super) fn completed(&mut self, completion: &WorkCompletion) {
        self.traffic.completed(completion, &mut self.reports);
    }

    pub(super) fn completed_silently(&mut self, pair: u32, wr_id: u64) {
        self.traffic.completed_silently(pair, wr_id, &mut self.reports);
    }

    /// True if accesses of the device are of interest.
    pub(super) fn watches(&self) -> bool {
        self.traffic.watches()
    }

    /// The device has read or written memory of the program.
    pub(super) fn used(&mut self, pair: u32, memory: &Range<usize>, write: bool) {
        self.traffic.used(pair, memory, write, &mut self.reports);
    }

    /// Looks for wake-ups that are lost. False when there is nothing to look for.
    pub(super) fn look(&mut self) -> bool {
        self.watching = self.traffic.queues.look(&mut self.reports);
        self.reports.flush();
        self.watching
    }

    /// A call begins: none of its arguments may be an object that is gone.
    pub(super) fn begins(&mut self, verb: &str, arguments: &[(&str, Value)]) {
        self.reports.flush();
        if verb.starts_with("rdma_") {
            self.within.insert(failures::thread());
            self.manager_begins(verb, pointer(arguments, 0));
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
        let first = pointer(arguments, 0);
        match verb {
            "ibv_destroy_cq" | "ibv_destroy_qp" | "ibv_destroy_srq" => {
                self.events.destroys(verb, first, &mut self.reports);
            }
            "ibv_ack_async_event" => self.events.acknowledges_asynchronous(first),
            "ibv_dereg_mr" => self.traffic.region_ends(first, &mut self.reports),
            "ibv_get_cq_event" => self.traffic.queues.waits(Some(first)),
            "ibv_req_notify_cq" => {
                let solicited = !matches!(arguments.get(1), Some((_, Value::Number(0))));
                let may_be_lost = self.traffic.queues.arms(first, solicited);
                self.watching = self.watching || may_be_lost && sleepers::watch();
            }
            _ => {}
        }
        // Before the call: behind it another thread may have an object at this address.
        let ended = if ends_object(verb) { pointer(arguments, 0) } else { 0 };
        if let Some(made) = self.live.remove(&ended) {
            self.gone.insert(ended, (made, Place::here()));
        }
    }

    /// A call of the connection manager begins, with an id in most cases.
    fn manager_begins(&mut self, verb: &str, id: usize) {
        match verb {
            "rdma_ack_cm_event" if id != 0 => self.events.acknowledges_to_manager(id),
            "rdma_destroy_id" => self.events.destroys(verb, id, &mut self.reports),
            _ => {}
        }
        if matches!(verb, "rdma_destroy_qp" | "rdma_destroy_ep" | "rdma_destroy_id") && id != 0 {
            self.traffic.id_ends(id);
        }
    }

    /// A call of the connection manager has ended well.
    fn manager_called(&mut self, verb: &str, arguments: &[(&str, Value)]) {
        match verb {
            "rdma_create_qp" | "rdma_create_qp_ex" => self.traffic.id_made(pointer(arguments, 0)),
            "rdma_destroy_srq" => self.traffic.all_shared_gone(),
            "rdma_get_cm_event" => {
                // SAFETY: the library has just stored the event there.
                let event = unsafe { read::<usize>(pointer(arguments, 1)) };
                self.events.taken_from_manager(event);
            }
            "rdma_create_id" => {
                // SAFETY: the library has just stored the id there.
                self.events.made(unsafe { read::<usize>(pointer(arguments, 1)) });
            }
            _ => {}
        }
    }

    /// A call has ended.
    pub(super) fn called(&mut self, call: &Call<'_>) {
        let before = self.reports.count();
        self.ended_call(call);
        // A rule with more to say goes before the one of all calls.
        if let Some(why) = refuse::last()
            && call.result == Err(libc::EINVAL)
            && !may_ask(call.verb)
            && self.reports.count() == before
        {
            let what = format!("{}: {why}", call.verb);
            self.reports.report(&REFUSED, &what, &Place::here(), &[]);
        }
        self.reports.flush();
    }

    fn ended_call(&mut self, call: &Call<'_>) {
        let (verb, arguments) = (call.verb, call.arguments);
        if verb.starts_with("rdma_") {
            self.within.remove(&failures::thread());
        }
        match (verb, call.result) {
            ("ibv_post_send", result) => self.posted(arguments, result.err()),
            ("ibv_post_recv", result) => {
                self.posted_in_state(verb, pointer(arguments, 0), result.err());
                self.traffic.pair(pointer(arguments, 0));
            }
            ("ibv_post_srq_recv", Ok(_)) => self.traffic.posted_to_shared(pointer(arguments, 0)),
            ("ibv_start_poll" | "ibv_next_poll", Ok(_)) => {
                self.traffic.polled_by_one(pointer(arguments, 0));
            }
            ("ibv_poll_cq", Ok(Value::Number(count))) => {
                let count = usize::try_from(count).unwrap_or(0);
                self.traffic.polled(pointer(arguments, 0), pointer(arguments, 2), count);
                if count > 0 {
                    self.halves.clear();
                }
                self.failures.polled(pointer(arguments, 2), count);
            }
            ("ibv_resize_cq", Ok(_)) => self.traffic.queues.resized(pointer(arguments, 0)),
            ("ibv_rereg_mr", Ok(_)) => self.traffic.regions.changed(pointer(arguments, 0)),
            ("ibv_modify_qp", Ok(_)) => {
                self.traffic.pair_changed(pointer(arguments, 0));
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
                self.traffic.made(verb, arguments, address);
                if !self.within.contains(&failures::thread()) {
                    let made = Made { verb: verb.to_owned(), place: Place::here() };
                    self.live.insert(address, made);
                }
            }
            ("ibv_get_cq_event", Err(_)) => self.traffic.queues.waits(None),
            ("ibv_get_cq_event", Ok(_)) => {
                self.traffic.queues.waits(None);
                // SAFETY: the library has just stored the completion queue there.
                let queue = unsafe { read::<usize>(pointer(arguments, 1)) };
                self.events.taken(Kind::Completion, queue);
            }
            ("ibv_ack_cq_events", Ok(_)) => {
                let count = match arguments.get(1) {
                    Some((_, Value::Number(count))) => *count,
                    _ => 0,
                };
                self.events.acknowledged(Kind::Completion, pointer(arguments, 0), count);
            }
            ("ibv_get_async_event", Ok(_)) => {
                self.events.taken_asynchronous(pointer(arguments, 1));
            }
            ("ibv_wr_complete", _) => self.signals.forget(pointer(arguments, 0)),
            // They make and end objects without a call that is told: an address may be used again.
            (verb, Ok(_)) if verb.starts_with("rdma_") || verb.starts_with("ibv_import_") => {
                self.gone.clear();
                self.failures.called(verb);
                self.manager_called(verb, arguments);
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
                match verb {
                    "ibv_destroy_qp" => self.traffic.pair_gone(address),
                    "ibv_destroy_srq" => self.traffic.shared_gone(address),
                    "ibv_destroy_cq" => self.traffic.queues.forget(address),
                    _ => {}
                }
                return;
            }
            Err(_) => {
                if verb == "ibv_dereg_mr" {
                    self.traffic.regions.stays(address);
                }
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
        self.traffic.pair(qp);
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
        self.reports.flush();
        for (address, made) in &self.live {
            let what = format!("{address:#x} of {} lives at exit", made.verb);
            self.reports.report(&LEAK, &what, &made.place, &[]);
        }
        self.reports.end();
    }
}
