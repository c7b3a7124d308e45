// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of one process and the frames of its connections, with times that two processes of a
//! host share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use iwarp::port::{Direction, Passed, Platform, Recording};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::Deed;

/// A journal that is being written. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    events: Arc<Mutex<Vec<Event>>>,
    recording: Recording,
    /// The beginning by both clocks: that of [`Instant`] has no number that another process knows.
    began: (Instant, u64),
}

/// Something that a process did.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Event {
    /// Nanoseconds of the host's monotonic clock.
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// The kinds of events.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum What {
    /// Another operation begins.
    Chapter { title: String, lead: String },
    /// The following steps serve another purpose than the operation's own, until [`What::Back`].
    Aside(String),
    /// The operation goes on.
    Back,
    /// The outcome of the operation.
    Outcome(String),
    /// A verbs call or a completion.
    Deed(Deed),
}

/// Bytes that one call sent or received; none where the stream ended.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    /// Connections are counted from 0.
    pub(crate) connection: usize,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: SocketAddr,
    pub(crate) sent: bool,
    pub(crate) bytes: Vec<u8>,
}

/// A journal that is complete.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) process: u32,
    pub(crate) events: Vec<Event>,
    pub(crate) pieces: Vec<Piece>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        Self {
            events: Arc::default(),
            recording: Recording::default(),
            began: (Instant::now(), now),
        }
    }

    /// The system's network, where all that passes is recorded.
    pub(crate) fn platform(&self) -> Platform {
        let platform = Platform::default();
        Platform { network: self.recording.around(platform.network), ..platform }
    }

    pub(crate) fn note(&self, what: What) {
        let at = self.time(Instant::now());
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event { at, what });
    }

    /// All that was noted and recorded so far.
    pub(crate) fn log(&self) -> Log {
        let piece = |passed: Passed| Piece {
            at: self.time(passed.at),
            connection: passed.connection,
            local: passed.ends.local,
            peer: passed.ends.peer,
            sent: passed.direction == Direction::Sent,
            bytes: passed.octets,
        };
        Log {
            process: std::process::id(),
            events: self.events.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            pieces: self.recording.passed().into_iter().map(piece).collect(),
        }
    }

    fn time(&self, at: Instant) -> u64 {
        let (instant, nanoseconds) = self.began;
        let since: Duration = at.saturating_duration_since(instant);
        nanoseconds + since.as_nanos() as u64
    }
}
