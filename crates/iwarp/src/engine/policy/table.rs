// SPDX-License-Identifier: MIT OR Apache-2.0

//! The constants of all policies. Times are in nanoseconds. `BENCHMARKS.md` ("The benefit of each
//! adaptation") has the measurements with each behaviour and without it.

use std::time::Duration;

/// Rounds in a row that agree, before the program is taken to have a habit.
pub(crate) const HABIT: u32 = 4;

/// Looks in a row that are still few. Looks that find a caller in one call, presumably without a
/// CPU, before the worker steps in: bounded, as that thread may have been killed. Looks for an
/// answer, before the CPU is offered to others. Completion queues that an idle poller looks at in
/// turn.
pub(crate) const FEW: u32 = 16;

/// Polls or looks in a row, before a program counts as one that polls all the time: its CPU may be
/// left to another, a longer lease is tried for it.
pub(crate) const LOOP: u32 = 64;

/// Times that something is left out after it turned out badly; four times as many with each time
/// more, half as many with each time that it turned out well. Yields of a poller begin with
/// [`FEW`], and end here.
pub(crate) const PENALTY: u32 = 256;

/// Posts that wait for each other at most.
pub(crate) const BATCH: u32 = 32;

/// Time between two posts at most, for the second to be one of many.
pub(crate) const QUICK: u64 = 50_000;

/// A yield that takes more than so many times the shortest was taken up by another thread.
pub(crate) const TAKEN: u64 = 4;

/// The time that a caller thread stays away from its program without something having come: in a
/// post that awaits an answer, or asleep in a poll.
pub(crate) const PAUSE: u64 = 100_000;

/// The longest time that one poll keeps the worker away.
pub(crate) const LEASE: u64 = 500_000;

/// The shortest lease, for programs that stop polling and wait for something by other means.
pub(crate) const SHORT_LEASE: u64 = 8_000;

/// Bytes of a Read at most that the end which posts it carries out by itself in memory that it does
/// not map: one CPU copies them, page by page, where two copy what goes by a ring.
pub(crate) const DIRECT_READ: u64 = 64 << 10;

/// Requests of which the program has not polled the completion yet, from which on such Reads go by
/// the ring: a program that has many under way gets 2.5 times as many of 4 KiB so, and 1.5 times
/// as many of 64 KiB.
pub(crate) const DIRECT_FEW: usize = 4;

/// Bytes of a request at most that the end which posts it carries out by itself in memory that it
/// maps: the call lasts as long as the copy.
pub(crate) const DIRECT_MOST: u64 = 8 << 20;

/// Bytes that an end copies at a time into memory of another process that it maps. The owner of the
/// memory waits for one such copy.
pub(crate) const DIRECT_STEP: u64 = 256 << 10;

/// Time for which requests wait to be carried out, until the peer has dealt with what was sent
/// before: some hundred microseconds, but it may have to wait for a CPU.
pub(crate) const DIRECT_WAIT: Duration = Duration::from_millis(10);

/// Time for which requests do not wait again where that was too short.
pub(crate) const DIRECT_REST: Duration = Duration::from_millis(100);

/// Bytes of a Write at most that are copied so with the core locked, which are its last.
pub(crate) const DIRECT_TAIL: u64 = 8 << 10;
