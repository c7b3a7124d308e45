// SPDX-License-Identifier: MIT OR Apache-2.0

//! The whole library on a network in memory, in virtual time: verbs, connection manager,
//! rendezvous, poll groups, hand-over and workers.
//!
//! Two devices without threads ([`Device::turned`](iwarp::Device::turned)) stand on one clock that
//! is set by hand. One stream of decisions says what a program does next, which worker takes its
//! turn, and how far the clock goes on. A worker gets a turn only where its thread would have
//! woken: when its epoll reports something, or at the time at which it had said that it wakes. So a
//! wake-up that is lost is lost here too.
//!
//! ```text
//!   stage     the clock and the workers
//!   host      a device, and its program's queues and channels
//!   pool      a shared receive queue, and its receives
//!   end       one end of a connection: what was posted, and what has to come of it
//!   books     the oracle: judges completions and memory
//!   run       what happens next
//!   process   what outlives a run
//!   fork      what a forked child can do with what it has inherited
//!   settle    programs stand still, and workers alone have to finish all
//! ```
//!
//! There is one thread, so no two of them ever race: which orders of loads and stores are possible
//! is loom's to try (`cargo xtask test --only loom`).
//!
//! A seed draws options, whether ports have descriptors, whether both devices are on one host and
//! by which way their connections go past TCP there, queues (shared receive queues among them),
//! channels, connections by the connection manager and by number, and then each step: posts of all
//! kinds, polls, arming, sleeping within the library, programs that spin on memory or play ping-
//! pong, ends of connections, calls in a forked child, turns of workers, and steps of the clock.
//! The oracle knows the posted requests: each message arrives once, in order and complete, each
//! signalled request completes once, and Reads, Writes and Atomics leave the right contents.
//! Agreement, rings, bells and direct accesses of one host are the library's own, between two
//! devices of one process. Now and then the programs pause, and the workers alone have to finish
//! everything: *at once*, without the clock advancing, if all queues were armed, and otherwise
//! within 20 ms. Defects that can be planted (`iwarp/src/flaw.rs`, feature `flaws`) are each found
//! within some 30 seeds.
//!
//! A call is interrupted only where it gives up its CPU, and memory is consistent. The simulation
//! lacks TCP, its descriptors and `TCP_INFO`, and callers that wait with a timeout of their own
//! still use the system's clock. The tests over TCP and ThreadSanitizer cover other interactions of
//! threads.

mod books;
mod end;
#[cfg(feature = "flaws")]
mod fork;
mod host;
mod pool;
mod process;
mod run;
mod settle;
mod stage;

#[cfg(feature = "flaws")]
pub use iwarp::flaw::Flaw;
pub(crate) use process::Turn;
pub use run::run_seed;
pub(crate) use stage::Stage;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decisions between two times at which everything has to be finished.
    pub steps: u64,
    /// Prints each of them.
    pub verbose: bool,
    /// Plants a defect in the library.
    #[cfg(feature = "flaws")]
    pub flaw: Flaw,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            steps: 120,
            verbose: false,
            #[cfg(feature = "flaws")]
            flaw: Flaw::None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Decisions.
    pub steps: u64,
    /// Turns that workers took.
    pub turns: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Completions that were judged.
    pub completions: u64,
    /// Waits for an answer within a call that posts, or yields within one that polls.
    pub pauses: u64,
    /// Ends that sent by shared memory when all was done.
    pub moved: u64,
    /// Requests that such an end has carried out in its peer's memory by itself.
    pub direct: u64,
    /// Digest of all decisions and completions, with their times; equal for equal seeds.
    pub digest: u64,
}

impl Summary {
    /// With what another run came to.
    pub const fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.turns += other.turns;
        self.connections += other.connections;
        self.completions += other.completions;
        self.pauses += other.pauses;
        self.moved += other.moved;
        self.direct += other.direct;
        self.digest = self.digest.rotate_left(1) ^ other.digest;
    }
}
