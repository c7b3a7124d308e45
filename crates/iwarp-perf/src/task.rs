// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work of both ends in a round, as the control protocol says it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::flows::MOST;
use super::ways::{Way, Ways};

/// Bytes of the largest message.
pub(super) const MAX_SIZE: usize = 1 << 30;
/// Messages under way on a connection, at most.
pub(super) const MAX_DEPTH: usize = 8192;
/// Connections that carry messages, at most.
pub(super) const MOST_CONNECTIONS: usize = 1024;

/// One way to move bytes between two processes, over connections of its own. Both ends have one
/// of each; all rounds, of raw TCP as of RDMA, go through this.
pub(super) trait Contender {
    /// Gets ready, before the clock runs.
    fn prepare(&mut self, task: &Task, side: Side) -> Result<()>;

    /// Does the measuring side's part of a round. The time of each message goes to `times` where
    /// one waits for the other.
    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration>;

    /// Does the other side's part.
    fn serve(&mut self, task: &Task) -> Result<()>;

    /// Compares what came with what had to come, when the clock has stopped.
    fn verify(&mut self, task: &Task, side: Side) -> Result<()>;

    /// The cost of its idle connections here; nothing for those that have none.
    fn idle(&mut self) -> Option<Idle> {
        None
    }

    /// The ways that its connections take within the host; none for raw TCP.
    fn ways(&self) -> Ways {
        Ways::default()
    }

    /// Requests so far that this end has carried out by itself in memory of the other process.
    fn direct(&self) -> u64 {
        0
    }

    /// The reason for which it cannot do at this end what its spec says, where there is one.
    fn hindrance(&self) -> Option<String> {
        None
    }
}

/// The cost of idle connections for one process.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) connections: usize,
    /// Bytes of this process that became resident for each.
    pub(super) memory_each: f64,
    /// Seconds that a poll of their completion queue takes when there is nothing.
    pub(super) empty_poll: f64,
}

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Server,
}

/// The parts of a contender.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) transport: Transport,
    pub(super) kind: Kind,
    pub(super) connections: usize,
    /// Bytes of the largest message.
    pub(super) max_size: usize,
    /// Largest of [`Task::depth`] and [`Task::list`].
    pub(super) max_depth: usize,
    /// Congestion control of connections within a host; the system's without.
    pub(super) congestion: Option<String>,
    /// The CPUs that all of it runs on.
    pub(super) places: Places,
}

/// CPUs for either process; empty: any, as the system likes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) client: Vec<usize>,
    pub(super) server: Vec<usize>,
    /// Set if they are for the library's threads as well. A library that finds itself on one CPU
    /// alone lets other threads run whenever it waits.
    pub(super) threads: bool,
}

impl Places {
    /// One half of these for each; anywhere where there is but one.
    pub(super) fn halves(cpus: &[usize]) -> Self {
        if cpus.len() < 2 {
            return Self::default();
        }
        let (client, server) = cpus.split_at(cpus.len() / 2);
        Self { client: client.to_vec(), server: server.to_vec(), threads: false }
    }

    /// The CPUs on which the contender is made: threads stay on those of the thread that started
    /// them.
    pub(super) fn of_threads(&self, side: Side) -> &[usize] {
        match side {
            _ if !self.threads => &[],
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

impl Spec {
    /// Checks that it can be made: it may have come from the other end.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            (1..=MOST_CONNECTIONS).contains(&self.connections),
            "{} connections, and {MOST_CONNECTIONS} are the most that carry messages",
            self.connections
        );
        ensure!((1..=MAX_SIZE).contains(&self.max_size), "messages of {} bytes", self.max_size);
        ensure!((1..=MAX_DEPTH).contains(&self.max_depth), "depth {}", self.max_depth);
        Ok(())
    }
}

/// The use that is made of connections.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// They carry messages.
    Move,
    /// They are made and ended.
    Dial,
    /// They carry messages, and each has a thread and a device of its own at the client.
    Fleet,
    /// They carry messages, and tasks of a tokio runtime use them: each a connection of its own
    /// over raw TCP, all of them one session by RDMA.
    Tasks,
    /// They carry messages, and threads that block use one session.
    Threads,
    /// They carry bytes, and threads that block use a byte stream.
    Bytes,
    /// They carry messages among so many others that do nothing.
    Crowd(usize),
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Transport {
    Tcp,
    Iwarp {
        crc: bool,
        markers: bool,
        /// The way within the host; as the environment says without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local: Option<Way>,
    },
    Yardstick(Yardstick),
}

impl Transport {
    pub(super) const fn is_rdma(self) -> bool {
        matches!(self, Self::Iwarp { .. })
    }

    /// The way within the host that it was asked to take.
    pub(super) const fn way(self) -> Option<Way> {
        match self {
            Self::Iwarp { local, .. } => local,
            Self::Tcp | Self::Yardstick(_) => None,
        }
    }

    /// By this way within the host, where it has one.
    pub(super) const fn by(self, way: Way) -> Self {
        match self {
            Self::Iwarp { crc, markers, .. } => Self::Iwarp { crc, markers, local: Some(way) },
            other => other,
        }
    }
}

/// The work of a machine without any connection, which the client does alone.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Yardstick {
    /// Copies within the client's process.
    Memcpy,
    /// Has the system copy to or from the server's process.
    ProcessVm,
}

/// One round.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Task {
    pub(super) flow: Flow,
    /// By which operation; raw TCP has but one.
    pub(super) op: Op,
    /// The way in which the client waits.
    pub(super) wait: Wait,
    /// The way in which the server waits.
    pub(super) server_wait: Wait,
    /// Bytes of a message.
    pub(super) size: usize,
    /// Messages over all connections: a multiple of [`Self::unit`].
    pub(super) count: u64,
    /// Messages that may be under way on a connection.
    pub(super) depth: usize,
    /// Messages posted in one call; of raw TCP, written in one.
    pub(super) list: usize,
    /// Connections that take part.
    pub(super) connections: usize,
    /// Tells this round's bytes from others'.
    pub(super) seed: u64,
    /// The server's program computes meanwhile, on this CPU, and calls nothing.
    pub(super) computes: Option<usize>,
    /// Bytes per second that the sender keeps to; 0: as fast as it can.
    pub(super) pace: u64,
}

impl Task {
    /// Checks that it makes sense: it may have come from the other end.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = 1..=MAX_SIZE;
        ensure!(sizes.contains(&self.size), "messages of {} bytes", self.size);
        ensure!((1..=MOST).contains(&self.list), "lists of {}", self.list);
        ensure!(self.depth >= self.list && self.connections > 0, "depth {}", self.depth);
        ensure!(
            self.count > 0 && self.count.is_multiple_of(self.unit()),
            "{} messages cannot be shared out",
            self.count
        );
        Ok(())
    }

    /// Messages that go together.
    pub(super) fn unit(&self) -> u64 {
        (self.list * self.connections) as u64
    }

    /// Messages of each connection.
    pub(super) fn each(&self) -> u64 {
        self.count / self.connections as u64
    }

    /// The time that its bytes last at its pace.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.count as f64 * self.size as f64 / self.pace.max(1) as f64)
    }

    /// The last byte of the last message.
    pub(super) fn mark(&self) -> u8 {
        mark(self.seed)
    }
}

/// Differs from what the message before left, and from zero.
pub(super) const fn mark(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

/// The order of messages between the two ends.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Flow {
    /// Messages from client to server; at the end the server says that all are there.
    Stream,
    /// Messages from client to server; the client finds out by itself that all are there, by a Read
    /// behind its Writes.
    Push,
    /// Messages from server to client, which asks once (raw TCP) or for each (Read).
    Fetch,
    /// The client sends, the server answers the like.
    PingPong,
    /// The client asks for each message.
    Request,
    /// The client connects and disconnects.
    Dial,
    /// Both ends rest, for as long as the round's bytes last at its pace.
    Rest,
}

impl Flow {
    /// True if the server's program has no part in it, by RDMA.
    pub(super) const fn is_one_sided(self) -> bool {
        matches!(self, Self::Push | Self::Fetch | Self::Request)
    }
}

#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Op {
    Write,
    Send,
    Read,
    FetchAdd,
    CompareSwap,
}

/// The way in which a program waits.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wait {
    /// Polls the completion queue, and checks memory in between; raw TCP: spins on a socket
    Poll,
    /// Spins on the last byte in memory without calling the library (Write only)
    Memory,
    /// Sleeps in the library until an event comes; raw TCP: blocking calls
    Events,
    /// Sleeps in poll(2) on the completion channel's descriptor
    Fd,
}

impl Wait {
    pub(super) const fn sleeps(self) -> bool {
        matches!(self, Self::Events | Self::Fd)
    }
}

/// Times of single messages, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    /// Every message takes this many ways.
    pub(super) ways: u32,
    /// The beginning of the message that is measured.
    begun: Instant,
}

impl Times {
    pub(super) fn new(ways: u32) -> Self {
        // Three digits up to a minute; beyond is saturated.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds");
        Self { histogram, ways, begun: Instant::now() }
    }

    /// The first of several messages begins that follow each other.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// A message has ended, and the next begins. The clock is read once for both: reading it takes
    /// up to a quarter of the time of a message within one host.
    pub(super) fn lap(&mut self) {
        let begun = std::mem::replace(&mut self.begun, Instant::now());
        self.record(self.begun - begun);
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.histogram.saturating_record(time.as_nanos() as u64 / u64::from(self.ways));
    }

    pub(super) fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Nanoseconds below which this part of all messages stays.
    pub(super) fn quantile(&self, part: f64) -> u64 {
        self.histogram.value_at_quantile(part)
    }
}
