// SPDX-License-Identifier: MIT OR Apache-2.0

//! The books of a process: its objects by their addresses, and what has failed.

use std::collections::HashMap;

use iwarp::observe::{Call, Value};

use super::place::Place;
use super::report::{AFTER_DESTROY, IN_USE, LEAK, LIST_AGAIN, POST_AFTER_ERROR, Reports};

/// Bits in the fields that a failed completion leaves undefined (`ibv_poll_cq(3)`).
const POISON: u32 = 0xbadb_adba;

/// An object of the program's.
#[derive(Debug)]
struct Made {
    verb: String,
    place: Place,
}

/// The beginning of a work request of the header's.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    wr_id: u64,
    next: usize,
    sg_list: usize,
}

/// The beginning of a completion of the header's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Completion {
    wr_id: u64,
    status: u32,
    opcode: u32,
    vendor_err: u32,
    byte_len: u32,
    imm_data: u32,
    qp_num: u32,
    rest: [u32; 4],
}

/// The beginning of a queue pair of the header's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct PairHead {
    pointers: [usize; 6],
    handle: u32,
    qp_num: u32,
}

#[derive(Debug)]
pub(super) struct Books {
    reports: Reports,
    live: HashMap<usize, Made>,
    gone: HashMap<usize, (Made, Place)>,
    /// Lists that were taken in part: queue pair to the first request.
    halves: HashMap<usize, (usize, Head)>,
    /// Numbers of the queue pairs whose failure the program has polled, and where.
    failed: HashMap<u32, Place>,
}

fn pointer(call: &[(&str, Value)], number: usize) -> usize {
    match call.get(number) {
        Some((_, Value::Pointer(address))) => *address,
        _ => 0,
    }
}

fn ends_object(verb: &str) -> bool {
    ["ibv_destroy_", "ibv_dealloc_", "ibv_dereg_"].iter().any(|start| verb.starts_with(start))
}

fn makes_object(verb: &str) -> bool {
    ["ibv_create_", "ibv_alloc_", "ibv_reg_"].iter().any(|start| verb.starts_with(start))
}

/// A structure of the program's.
///
/// # Safety
///
/// The address is that of one.
unsafe fn read<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<T>(address).read_unaligned() }
}

impl Books {
    pub(super) fn new(reports: Reports) -> Self {
        let (live, gone) = (HashMap::new(), HashMap::new());
        Self { reports, live, gone, halves: HashMap::new(), failed: HashMap::new() }
    }

    /// A call begins: none of its arguments may be an object that is gone.
    pub(super) fn begins(&mut self, verb: &str, arguments: &[(&str, Value)]) {
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
        // Before the call: behind it another thread may have an object at this address.
        let ended = if ends_object(verb) { pointer(arguments, 0) } else { 0 };
        if let Some(made) = self.live.remove(&ended) {
            self.gone.insert(ended, (made, Place::here()));
        }
    }

    /// A call has ended.
    pub(super) fn called(&mut self, call: &Call<'_>) {
        let (verb, arguments) = (call.verb, call.arguments);
        match (verb, call.result) {
            ("ibv_post_send", result) => self.posted(arguments, result.err()),
            ("ibv_post_recv", _) => self.posted_in_error(verb, pointer(arguments, 0)),
            ("ibv_poll_cq", Ok(Value::Number(count))) => {
                self.polled(pointer(arguments, 2), usize::try_from(count).unwrap_or(0));
            }
            ("ibv_modify_qp", Ok(_)) => {
                // SAFETY: the program's queue pair, which was just changed.
                let number = unsafe { read::<PairHead>(pointer(arguments, 0)) }.qp_num;
                self.failed.remove(&number);
            }
            (verb, Ok(Value::Pointer(address))) if makes_object(verb) && address != 0 => {
                self.gone.remove(&address);
                let made = Made { verb: verb.to_owned(), place: Place::here() };
                self.live.insert(address, made);
            }
            // They make and end objects without a call that is told: an address may be used again.
            (verb, Ok(_)) if verb.starts_with("rdma_") || verb.starts_with("ibv_import_") => {
                self.gone.clear();
            }
            (verb, result) if ends_object(verb) => self.ended(verb, pointer(arguments, 0), result),
            _ => {}
        }
    }

    fn ended(&mut self, verb: &str, address: usize, result: Result<Value, i32>) {
        match result {
            Ok(_) => {
                self.halves.remove(&address);
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
        self.posted_in_error("ibv_post_send", qp);
        if wr == 0 {
            return;
        }
        // SAFETY: the program has just posted it.
        let head = unsafe { read::<Head>(wr) };
        if self.halves.remove(&qp) == Some((wr, head)) {
            let what = format!(
                "the list at {wr:#x} again from its first request, wr_id {:#x}, which was posted",
                head.wr_id
            );
            self.reports.report(&LIST_AGAIN, &what, &Place::here(), &[]);
        }
        // SAFETY: the library has just stored there the request that was refused.
        if refused.is_some() && bad != 0 && unsafe { read::<usize>(bad) } != wr {
            self.halves.insert(qp, (wr, head));
        }
    }

    fn posted_in_error(&mut self, verb: &str, qp: usize) {
        if self.failed.is_empty() {
            return;
        }
        // SAFETY: the program's queue pair, to which it has just posted.
        let number = unsafe { read::<PairHead>(qp) }.qp_num;
        if let Some(polled) = self.failed.get(&number) {
            let what = format!("{verb} to queue pair {number}, whose failure the program polled");
            let others = [("failed completion polled", polled)];
            self.reports.report(&POST_AFTER_ERROR, &what, &Place::here(), &others);
        }
    }

    fn polled(&mut self, completions: usize, count: usize) {
        for number in 0..count {
            // The structure of the header has 48 bytes, as this beginning has.
            let at = completions + number * size_of::<Completion>();
            // SAFETY: the library has just stored so many there.
            let mut completion = unsafe { read::<Completion>(at) };
            if completion.status == 0 {
                continue;
            }
            self.failed.entry(completion.qp_num).or_insert_with(Place::here);
            (completion.opcode, completion.byte_len) = (POISON, POISON);
            completion.imm_data = POISON;
            let place = std::ptr::with_exposed_provenance_mut::<Completion>(at);
            // SAFETY: the program's place for it, which it has not been given back yet.
            unsafe { place.write_unaligned(completion) };
        }
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
