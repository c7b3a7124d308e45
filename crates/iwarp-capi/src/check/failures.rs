// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions that failed, and posts that disregard them.
//!
//! A program may not have looked yet at a completion that it has polled: another thread polls, or
//! it polls several at once and posts for those before. So a post counts only by the thread that
//! polled, and behind several completions only once it polls again. Nor do flushed requests count,
//! nor queue pairs that the program has put into the error state itself: it may post a last
//! request there, whose flush says that the queue is empty.

use std::collections::{HashMap, HashSet};

use super::layout::{Completion, PairHead, read};
use super::place::Place;
use super::report::{POST_AFTER_ERROR, Reports};

/// Bits in the fields that a failed completion leaves undefined (`ibv_poll_cq(3)`).
const POISON: u32 = 0xbadb_adba;
/// `IBV_WC_WR_FLUSH_ERR`
const FLUSHED: u32 = 5;
/// `IBV_QPS_RESET`
pub(super) const RESET: u32 = 0;
/// `IBV_QPS_ERR`
const ERROR: u32 = 6;
/// `IBV_QPT_UD`: a failed send leaves its receives alone.
const DATAGRAM: u32 = 4;

#[derive(Debug)]
struct Failure {
    polled: Place,
    thread: usize,
    /// The thread has surely looked at it.
    known: bool,
}

#[derive(Debug, Default)]
pub(super) struct Failures {
    /// By number of the queue pair.
    of: HashMap<u32, Failure>,
    /// Queue pairs that the program has put into the error state.
    ended: HashSet<u32>,
}

/// The calling thread.
pub(super) fn thread() -> usize {
    // SAFETY: it only returns a value.
    unsafe { libc::pthread_self() as usize }
}

impl Failures {
    pub(super) fn are_none(&self) -> bool {
        self.of.is_empty()
    }

    /// A queue pair with this number is new.
    pub(super) fn made(&mut self, number: u32) {
        self.of.remove(&number);
        self.ended.remove(&number);
    }

    /// The program has changed a queue pair's state.
    pub(super) fn changed(&mut self, pair: PairHead) {
        self.made(pair.qp_num);
        if pair.state == ERROR {
            self.ended.insert(pair.qp_num);
        }
    }

    /// A call of the connection manager may have made or changed queue pairs.
    pub(super) fn called(&mut self, verb: &str) {
        let may = ["rdma_create_", "rdma_destroy_", "rdma_connect", "rdma_accept", "rdma_disconn"];
        if may.iter().any(|start| verb.starts_with(start)) {
            self.of.clear();
            self.ended.clear();
        }
    }

    /// The program has posted to this queue pair.
    pub(super) fn posted(&self, verb: &str, pair: PairHead, reports: &mut Reports) {
        let number = pair.qp_num;
        let Some(failure) = self.of.get(&number) else { return };
        let receives = pair.kind == DATAGRAM && verb == "ibv_post_recv";
        if receives || !failure.known || failure.thread != thread() {
            return;
        }
        let what = format!("{verb} to queue pair {number}, whose failure the program polled");
        let others = [("failed completion polled", &failure.polled)];
        reports.report(&POST_AFTER_ERROR, &what, &Place::here(), &others);
    }

    /// The program has polled so many completions, which are at this address.
    pub(super) fn polled(&mut self, completions: usize, count: usize) {
        if !self.of.is_empty() {
            let own = thread();
            let theirs = self.of.values_mut().filter(|failure| failure.thread == own);
            theirs.for_each(|failure| failure.known = true);
        }
        for number in 0..count {
            let at = completions + number * size_of::<Completion>();
            // SAFETY: the library has just stored so many there.
            let mut completion = unsafe { read::<Completion>(at) };
            if completion.status == 0 {
                continue;
            }
            let number = completion.qp_num;
            if completion.status != FLUSHED && !self.ended.contains(&number) {
                let failure =
                    || Failure { polled: Place::here(), thread: thread(), known: count == 1 };
                self.of.entry(number).or_insert_with(failure);
            }
            (completion.opcode, completion.byte_len) = (POISON, POISON);
            completion.imm_data = POISON;
            let place = std::ptr::with_exposed_provenance_mut::<Completion>(at);
            // SAFETY: the program's place for it, which it has not been given back yet.
            unsafe { place.write_unaligned(completion) };
        }
    }
}
