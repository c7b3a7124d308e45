// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests of the program, and the objects that they name.
//!
//! Posts and ends are told with the queue pair locked, so that each request is entered before it
//! ends; the reports on them wait for the next call.

use std::ops::Range;

use iwarp::observe::Value;
use iwarp::{RecvRequest, SendRequest, Sge, WcOp, WcStatus, WorkCompletion};

use super::failures::{RESET, thread};
use super::flights::{Flight, Flights, Queue};
use super::layout::{Completion, IdHead, PairHead, read};
use super::pairs::Pairs;
use super::place::Place;
use super::queues::Queues;
use super::regions::Regions;
use super::report::{CHANGED, KEY, NO_RECEIVE, OVERLAP, POISONED, REGION_GONE, Reports, TOO_SHORT};
use super::strict::{Sinks, digest, is_unmapped};
use super::tools::Tools;

/// `IBV_WC_RECV`, a bit of the operations that receives have.
const RECEIVED: u32 = 1 << 7;

#[derive(Debug, Default)]
pub(super) struct Traffic {
    pairs: Pairs,
    pub(super) regions: Regions,
    flights: Flights,
    pub(super) queues: Queues,
    sinks: Sinks,
    tools: Tools,
    /// The shared receive queue that took the last receive, and the thread that posted it.
    last_shared: Option<(usize, u64)>,
    /// Numbers of shared receive queues by their addresses.
    shared: std::collections::HashMap<usize, u64>,
}

fn is_receive(op: WcOp) -> bool {
    matches!(op, WcOp::Recv | WcOp::RecvImmediate | WcOp::RecvWriteImmediate)
}

impl Traffic {
    pub(super) fn posted_send(
        &mut self,
        pair: u32,
        request: &SendRequest<'_>,
        reports: &mut Reports,
    ) {
        let flight = Flight::of_send(request);
        self.posted(Queue::Sends(pair), flight, reports);
    }

    pub(super) fn posted_receive(
        &mut self,
        pair: u32,
        request: &RecvRequest<'_>,
        reports: &mut Reports,
    ) {
        self.posted(Queue::Receives(pair), Flight::of_receive(request), reports);
    }

    pub(super) fn posted_shared_receive(
        &mut self,
        srq: u64,
        request: &RecvRequest<'_>,
        reports: &mut Reports,
    ) {
        self.last_shared = Some((thread(), srq));
        self.posted(Queue::Shared(srq), Flight::of_receive(request), reports);
    }

    fn posted(&mut self, queue: Queue, mut flight: Flight, reports: &mut Reports) {
        let of = match queue {
            Queue::Sends(number) | Queue::Receives(number) => Some(number),
            Queue::Shared(_) => None,
        };
        let pair = of.and_then(|number| self.pairs.with_number(number));
        let wrong = |element: &Sge| self.regions.wrong(element, pair.map(|of| of.pd), flight.sink);
        if let Some(wrong) = flight.elements.iter().find_map(wrong) {
            let mut others = Vec::new();
            if let Some((title, region)) = wrong.region {
                others.push((title, &region.made));
                others.extend(region.ended.as_ref().map(|ended| ("deregistered", ended)));
            }
            let what = format!("request {:#x} with {}", flight.wr_id, wrong.why);
            reports.note(&KEY, what, &flight.place, &others);
        }
        if reports.strict && !flight.sink && !flight.elements.is_empty() {
            flight.digest = digest(memory_of(&self.regions, &flight));
        }
        if self.tools.watch() {
            self.tell_tools(queue, &flight, reports);
        }
        let flight = self.flights.enter(queue, flight);
        if reports.strict && flight.sink {
            for memory in memory_of(&self.regions, flight) {
                let taken = self.sinks.take(flight.number, &memory, &flight.place);
                if let Some((earlier, posted)) = taken {
                    let Range { start, end } = memory;
                    let what = format!(
                        "request {:#x} takes memory {start:#x} to {end:#x}, and one that is not \
                         polled has {:#x} to {:#x}",
                        flight.wr_id, earlier.start, earlier.end
                    );
                    reports.note(&OVERLAP, what, &flight.place, &[("earlier request", &posted)]);
                } else {
                    self.tools.hide(&memory);
                }
            }
        }
        if let (Some(pair), Some(number), true) = (pair, of, flight.signalled) {
            let receives = matches!(queue, Queue::Receives(_));
            let cq = if receives { pair.recv_cq } else { pair.send_cq };
            self.queues.posted(cq, number, &flight.place, reports);
        }
    }

    fn tell_tools(&mut self, queue: Queue, flight: &Flight, reports: &mut Reports) {
        let memory: Vec<_> = memory_of(&self.regions, flight).collect();
        self.tools.posted(queue, &memory, flight.sink);
        for memory in &memory {
            if let Some(first) = self.tools.poisoned(memory) {
                let Range { start, end } = *memory;
                let what = format!(
                    "request {:#x} with memory {start:#x} to {end:#x}, of which the byte at \
                     {first:#x} is of no object that lives",
                    flight.wr_id
                );
                reports.note(&POISONED, what, &flight.place, &[]);
            }
        }
    }

    /// True if accesses of the device are of interest.
    pub(super) fn watches(&self) -> bool {
        self.tools.watch()
    }

    /// The device has read or written memory of the program. Accesses of peers that no request of
    /// this side is for are ordered by nothing that can be known here.
    pub(super) fn used(
        &mut self,
        pair: u32,
        memory: &Range<usize>,
        write: bool,
        reports: &mut Reports,
    ) {
        let of_pair = |queue: Queue| match queue {
            Queue::Sends(number) | Queue::Receives(number) => number == pair,
            Queue::Shared(_) => true,
        };
        let has = |flight: &Flight| {
            let inside = |all: Range<usize>| all.start <= memory.start && memory.end <= all.end;
            flight.sink == write && memory_of(&self.regions, flight).any(inside)
        };
        let mut flights = self.flights.all().filter(|(queue, _)| of_pair(*queue));
        let Some((queue, flight)) = flights.find(|(_, flight)| has(flight)) else {
            if write {
                self.tools.written(memory);
            }
            return;
        };
        if let Some(first) = self.tools.poisoned(memory) {
            let what = format!(
                "the device uses {:#x} to {:#x} for request {:#x}, of which the byte at {first:#x} \
                 is of no object that lives any more",
                memory.start, memory.end, flight.wr_id
            );
            reports.note(&POISONED, what, &flight.place, &[]);
        }
        self.tools.used(pair, queue, memory, write);
        if write && self.sinks.have(memory) {
            // Until the completion is polled.
            self.tools.hide(memory);
        }
    }

    /// The program may look at memory that the device had.
    fn give_back(&self, memory: &[Range<usize>]) {
        memory.iter().for_each(|memory| self.tools.written(memory));
    }

    /// The memory of a request is the program's again.
    fn release(&mut self, flight: &Flight) {
        let released = self.sinks.release(flight.number);
        self.give_back(&released);
    }

    /// A request has ended well, and has no completion.
    pub(super) fn completed_silently(&mut self, pair: u32, wr_id: u64, reports: &mut Reports) {
        for flight in self.flights.sent(pair, wr_id) {
            self.look_at_source(&flight, reports);
            self.release(&flight);
        }
    }

    pub(super) fn completed(&mut self, completion: &WorkCompletion, reports: &mut Reports) {
        let WorkCompletion { wr_id, qp, status, op, .. } = *completion;
        let (number, receive) = (qp.0, is_receive(op));
        self.tools.ended(number);
        let mut ended = match receive {
            true => self.flights.received(number, wr_id),
            false => self.flights.sent(number, wr_id),
        };
        for flight in &ended {
            self.look_at_source(flight, reports);
        }
        let Some(last) = ended.pop() else { return };
        ended.iter().for_each(|flight| self.release(flight));
        self.look_at_failure(&last, status, receive, reports);
        self.sinks.ended(last.number, (number, receive, wr_id));
        if let Some(pair) = self.pairs.with_number(number) {
            let cq = if receive { pair.recv_cq } else { pair.send_cq };
            let counted = last.signalled && !(receive && pair.srq != 0);
            self.queues.completed(cq, number, counted, last.place);
        }
    }

    fn look_at_source(&self, flight: &Flight, reports: &mut Reports) {
        let Some(before) = flight.digest else { return };
        let now = digest(memory_of(&self.regions, flight));
        if now.is_some_and(|now| now != before) {
            let what = format!(
                "the {} bytes of request {:#x} have changed between its post and its end",
                flight.length(),
                flight.wr_id
            );
            reports.note(&CHANGED, what, &flight.place, &[]);
        }
    }

    fn look_at_failure(
        &self,
        flight: &Flight,
        status: WcStatus,
        receive: bool,
        reports: &mut Reports,
    ) {
        let (id, length) = (flight.wr_id, flight.length());
        match (status, flight.remote) {
            (WcStatus::LocalLength, _) if receive => {
                let what =
                    format!("a message of the peer does not fit receive {id:#x} of {length} bytes");
                reports.note(&TOO_SHORT, what, &flight.place, &[]);
            }
            (WcStatus::RnrRetryExceeded, _) if !receive => {
                let what = format!(
                    "the peer has posted no receive for request {id:#x}, as often as it was asked"
                );
                reports.note(&NO_RECEIVE, what, &flight.place, &[]);
            }
            (WcStatus::LocalProtection | WcStatus::LocalAccess, _) => {
                let element = flight.elements.iter().find(|element| {
                    self.regions.memory(element).is_some_and(|memory| is_unmapped(&memory))
                });
                let Some(element) = element else { return };
                let what = format!(
                    "the memory of request {id:#x} at {:#x} is not mapped any more",
                    element.addr
                );
                let region = self.regions.with_key(element.lkey.0);
                let others = region.map(|region| ("registered", &region.made));
                reports.note(&REGION_GONE, what, &flight.place, others.as_slice());
            }
            (WcStatus::RemoteAccess, Some(remote)) => {
                let (key, at, length) = (remote.key, remote.at, remote.length);
                let wrong = self.regions.refused(key, at, length);
                let mut what = format!(
                    "the peer refuses request {id:#x} for {length} bytes at {at:#x} with rkey \
                     {key:#x}"
                );
                let mut others = Vec::new();
                if let Some(wrong) = &wrong {
                    what.push_str(&format!(", {}", wrong.why));
                    if let Some((title, region)) = wrong.region {
                        others.push((title, &region.made));
                        others.extend(region.ended.as_ref().map(|ended| ("deregistered", ended)));
                    }
                }
                reports.note(&KEY, what, &flight.place, &others);
            }
            _ => {}
        }
    }

    /// The program has polled so many completions, which are at this address.
    pub(super) fn polled(&mut self, cq: usize, completions: usize, count: usize) {
        let all = (0..count).map(|number| {
            let at = completions + number * size_of::<Completion>();
            // SAFETY: the library has just stored so many there.
            unsafe { read::<Completion>(at) }
        });
        for completion in all.clone() {
            let Completion { wr_id, qp_num, opcode, status, .. } = completion;
            let received = opcode & RECEIVED != 0;
            self.tools.polled(qp_num);
            let mut free = self.sinks.polled((qp_num, received, wr_id));
            if status != 0 {
                free.extend(self.sinks.polled((qp_num, !received, wr_id)));
            }
            self.give_back(&free);
        }
        self.queues.polled(cq, all.map(|completion| completion.qp_num));
    }

    /// The program takes completions of a queue one by one, which are not followed.
    pub(super) fn polled_by_one(&mut self, cq: usize) {
        self.queues.forget(cq);
        let all = self.sinks.release_all();
        self.give_back(&all);
        self.tools.settle();
    }

    /// A queue pair was made, or is used.
    pub(super) fn pair(&mut self, address: usize) {
        if self.pairs.at(address).is_none() {
            // SAFETY: the program's queue pair, which lives.
            unsafe { self.pairs.learn(address) };
        }
    }

    /// A new queue pair is at this address.
    pub(super) fn pair_made(&mut self, address: usize) {
        self.pair_gone(address);
        // SAFETY: the program's queue pair, which was just made.
        unsafe { self.pairs.learn(address) };
    }

    /// An id of the connection manager may have a new queue pair.
    pub(super) fn id_made(&mut self, id: usize) {
        // SAFETY: the program's id.
        let IdHead { qp, .. } = unsafe { read::<IdHead>(id) };
        if qp == 0 {
            return;
        }
        self.pair_made(qp);
        if let Some(pair) = self.pairs.at(qp).and_then(|number| self.pairs.with_number(number)) {
            self.queues.made_by_manager(pair.send_cq);
            self.queues.made_by_manager(pair.recv_cq);
        }
    }

    /// The queue pair of an id is about to go.
    pub(super) fn id_ends(&mut self, id: usize) {
        // SAFETY: the program's id.
        let IdHead { qp, .. } = unsafe { read::<IdHead>(id) };
        let pair = self.pairs.at(qp).and_then(|number| self.pairs.with_number(number));
        self.pair_gone(qp);
        if let Some(pair) = pair {
            self.queues.forget_managers(pair.send_cq);
            self.queues.forget_managers(pair.recv_cq);
        }
    }

    /// The state of a queue pair was changed.
    pub(super) fn pair_changed(&mut self, address: usize) {
        // SAFETY: the program's queue pair, which it has just changed.
        let PairHead { qp_num, state, .. } = unsafe { read::<PairHead>(address) };
        if state == RESET {
            self.empty(qp_num);
        }
        self.pair(address);
    }

    /// A queue pair is gone.
    pub(super) fn pair_gone(&mut self, address: usize) {
        let Some(number) = self.pairs.at(address) else { return };
        self.empty(number);
        // It may have had receives of a shared queue.
        if let Some(pair) = self.pairs.forget(number).filter(|pair| pair.srq != 0) {
            self.shared_gone(pair.srq);
        }
    }

    fn empty(&mut self, number: u32) {
        self.tools.emptied(number);
        for queue in [Queue::Sends(number), Queue::Receives(number)] {
            for flight in self.flights.forget(queue) {
                self.release(&flight);
            }
        }
        let free = self.sinks.forget_pair(number);
        self.give_back(&free);
        if let Some(pair) = self.pairs.with_number(number) {
            self.queues.forget_pair(pair.send_cq, number);
            self.queues.forget_pair(pair.recv_cq, number);
        }
    }

    /// A receive was posted to the shared receive queue at this address.
    pub(super) fn posted_to_shared(&mut self, address: usize) {
        if let Some((_, number)) = self.last_shared.filter(|(by, _)| *by == thread()) {
            self.shared.insert(address, number);
        }
    }

    /// Receives of a shared queue are followed no more.
    pub(super) fn shared_gone(&mut self, address: usize) {
        let gone = match self.shared.get(&address) {
            Some(number) => self.flights.forget(Queue::Shared(*number)).into(),
            None => self.flights.forget_shared(),
        };
        gone.iter().for_each(|flight| self.release(flight));
    }

    /// All shared receive queues are gone, or some of them.
    pub(super) fn all_shared_gone(&mut self) {
        self.shared.clear();
        self.shared_gone(0);
    }

    /// The program is about to deregister a region.
    pub(super) fn region_ends(&mut self, object: usize, reports: &mut Reports) {
        self.tools.settle();
        let Some(key) = self.regions.ends(object) else { return };
        // The program may know by other ways that a request without a completion has ended.
        let counts = |flight: &Flight| (flight.signalled || flight.sink) && flight.uses(key);
        let Some((queue, flight)) = self.flights.all().find(|(_, flight)| counts(flight)) else {
            return;
        };
        let whose = match queue {
            Queue::Sends(number) => format!("request {:#x} of queue pair {number}", flight.wr_id),
            Queue::Receives(number) => {
                format!("receive {:#x} of queue pair {number}", flight.wr_id)
            }
            Queue::Shared(_) => format!("receive {:#x} of a shared queue", flight.wr_id),
        };
        let what = format!("the region with key {key:#x} is deregistered while {whose} uses it");
        let mut others = vec![("request posted", &flight.place)];
        others.extend(self.regions.with_key(key).map(|region| ("registered", &region.made)));
        reports.report(&REGION_GONE, &what, &Place::here(), &others);
    }

    /// An object was made.
    pub(super) fn made(&mut self, verb: &str, arguments: &[(&str, Value)], address: usize) {
        self.regions.made(verb, arguments, address);
        if verb.starts_with("ibv_create_qp") {
            self.pair_made(address);
        } else if verb.starts_with("ibv_create_cq") {
            self.queues.made(address);
        }
    }
}

fn memory_of<'a>(
    regions: &'a Regions,
    flight: &'a Flight,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let used = flight.elements.iter().filter(|element| element.length > 0);
    used.filter_map(|element| regions.memory(element))
}
