// SPDX-License-Identifier: MIT OR Apache-2.0

//! Policies: what the engine learns of a program by watching it, and what it makes of that.
//!
//! A policy is a plain structure without locks and atomics. The thread that owns it at that moment,
//! as it holds a lock or a token anyway, tells it what has happened, and takes its advice. It moves
//! no bytes and wakes no thread: where its advice is bad, time is lost, and nothing else.
//! Mechanisms see to that, so every policy can be switched off ([`Behaviours`]).
//!
//! ```text
//!   table      the constants of all policies, and what each of them earns
//!   habits     what a program does with one queue pair; kept under its core's lock
//!   gather       posts that go out together
//!   awaiting     programs that await an answer by spinning on memory
//!   piggyback    acknowledgements that go out with the program's next message
//!   penalty      for how long either is not done again
//!   arming     programs that arm a queue again and again without sleeping; kept by the queue
//!   backoff    when a caller that polls an empty queue gives up its CPU; kept by the driver
//!   polls      how often callers have polled, for the others to read: one word
//! ```
//!
//! The worker's policy stands beside its mechanism (`handover/watcher.rs`), and has its constants
//! from this table, too.
//!
//! - `gather` watches times of posts, polls between them. It advises a post: go out, or wait for
//!   the next ones. Guard: `core`.
//! - `awaiting` watches posts, and messages that the worker received unasked. It advises a post:
//!   stay for the answer. Guard: `core`.
//! - `piggyback` watches acknowledgements that were due, posts and polls in vain after them. It
//!   advises an acknowledgement: go out, or wait for a post. Guard: `core`.
//! - `arming` watches armings, polls between them and events. It advises an arming: leave the
//!   queue to the worker, or to its program for a lease more. Guard: the queue's lock.
//! - `backoff` watches polls that found nothing, the time that yields took, whether sleeps were in
//!   vain. It advises a poll: go on, help others, yield, sleep. Guard: the group's token.
//! - `lend` watches the same as `backoff`. It advises an empty poll: move the streams of other
//!   queues. Guard: the group's token.
//! - The worker's policy watches leases, activity of callers. It advises the worker: serve the
//!   group, check again, leave it to a blocked caller. Guard: `watcher`.
//!
//! `IWARP_WITHOUT` switches each off, and so `BENCHMARKS.md` measures its benefit. Constants that
//! several policies share are in `table`; those of one mechanism stand beside it.

pub(crate) mod arming;
mod awaiting;
pub(crate) mod backoff;
mod behaviours;
mod gather;
pub(crate) mod habits;
mod penalty;
mod piggyback;
pub(crate) mod polls;
pub(crate) mod table;

pub use self::behaviours::Behaviours;
