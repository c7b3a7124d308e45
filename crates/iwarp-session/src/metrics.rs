// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of a session.
//!
//! The operations are counted under the lock of the table that they are entered in and taken from
//! anyway. The numbers of the connection are the system's, which is asked when the program asks.

use std::time::Duration;

use iwarp_os::Vitals;
use iwarp_types::{SendOp, WcStatus, WorkCompletion};

/// The numbers of a session so far, and the state of its connection.
///
/// ```
/// # use iwarp_session::{Listener, Session};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// # let listener = Listener::bind(&pd, "localhost:0")?;
/// # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
/// # let server = Session::accept(listener.accept().wait()?).wait()?;
/// # let session = connecting.wait()?;
/// let metrics = session.metrics();
/// println!("{} bytes out, {} in", metrics.bytes_out(), metrics.bytes_in());
/// println!("{} reads under way", metrics.reads.under_way());
/// if let Some(tcp) = metrics.tcp {
///     println!("round trip {:?}, {} segments sent again", tcp.rtt, tcp.retransmits);
/// }
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Sends, and messages of Immediate Data.
    pub sends: Operations,
    /// Writes, with Immediate Data or without.
    pub writes: Operations,
    /// Reads.
    pub reads: Operations,
    /// Atomic operations, each of 8 bytes.
    pub atomics: Operations,
    /// Receives. With [`Credits`](super::Credits) also those of what the ends tell each other.
    pub receives: Operations,
    /// The numbers of the TCP connection; `None` when the connection has ended, does not use TCP,
    /// or the system does not tell them.
    pub tcp: Option<StreamMetrics>,
}

/// Operations of one kind. Operations refused when they were called, and those of a
/// [`Batch`](super::Batch) that was not posted, count nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Operations {
    /// Operations posted, in a batch or by themselves.
    pub posted: u64,
    /// Operations that ended well.
    pub completed: u64,
    /// Operations that failed, among them those under way when the connection ended.
    pub failed: u64,
    /// Bytes of payload of those that ended well.
    pub bytes: u64,
}

impl Operations {
    /// Operations that have not ended, some of which are only about to be posted.
    pub const fn under_way(&self) -> u64 {
        self.posted.saturating_sub(self.completed).saturating_sub(self.failed)
    }
}

/// A TCP connection as the system sees it (`TCP_INFO`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StreamMetrics {
    /// The round-trip time, smoothed.
    pub rtt: Duration,
    /// The mean deviation of the round-trip time.
    pub rtt_variance: Duration,
    /// Segments that were sent again since the connection began; wraps.
    pub retransmits: u32,
    /// Bytes that the system has taken and the peer has not acknowledged, sent or not.
    pub unacknowledged: u64,
    /// Bytes among them that were not sent even once.
    pub unsent: u64,
    /// The congestion window, in bytes: so many may be on their way.
    pub congestion_window: u64,
    /// Payload of the largest segment that is sent, in bytes.
    pub mss: u32,
    /// Bytes of the stream that the peer has acknowledged: messages, headers and checksums.
    pub acknowledged: u64,
    /// Bytes of the stream that were received, likewise, also those that peers write to exposed
    /// memory.
    pub received: u64,
}

impl From<Vitals> for StreamMetrics {
    fn from(vitals: Vitals) -> Self {
        Self {
            rtt: vitals.rtt,
            rtt_variance: vitals.rtt_variance,
            retransmits: vitals.total_retransmits,
            unacknowledged: vitals.outstanding as u64,
            unsent: vitals.unsent.into(),
            congestion_window: u64::from(vitals.congestion_window) * u64::from(vitals.mss),
            mss: vitals.mss,
            acknowledged: vitals.acknowledged,
            received: vitals.received,
        }
    }
}

impl Metrics {
    /// Bytes of payload that the session has sent or written.
    pub const fn bytes_out(&self) -> u64 {
        self.sends.bytes + self.writes.bytes
    }

    /// Bytes of payload that the session has received or read, the old values of atomic operations
    /// among them.
    pub const fn bytes_in(&self) -> u64 {
        self.receives.bytes + self.reads.bytes + self.atomics.bytes
    }

    /// Operations that failed.
    pub const fn failed(&self) -> u64 {
        let Self { sends, writes, reads, atomics, receives, .. } = self;
        sends.failed + writes.failed + reads.failed + atomics.failed + receives.failed
    }

    fn of(&mut self, kind: Kind) -> &mut Operations {
        match kind {
            Kind::Send => &mut self.sends,
            Kind::Write => &mut self.writes,
            Kind::Read => &mut self.reads,
            Kind::Atomic => &mut self.atomics,
            Kind::Receive => &mut self.receives,
        }
    }

    /// An operation is posted.
    pub(super) fn posted(&mut self, counted: Counted) {
        self.of(counted.kind).posted += 1;
    }

    /// It was refused instead.
    pub(super) fn refused(&mut self, counted: Counted) {
        self.of(counted.kind).posted -= 1;
    }

    /// It has ended.
    pub(super) fn ended(&mut self, ended: CountedEnd) {
        let operations = self.of(ended.counted.kind);
        if ended.is_good {
            operations.completed += 1;
            operations.bytes += ended.counted.bytes;
        } else {
            operations.failed += 1;
        }
    }
}

/// Which operations are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
    Receive,
}

/// An operation as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
}

impl Counted {
    /// A receive: its message is not known yet.
    pub(super) const RECEIVE: Self = Self { kind: Kind::Receive, bytes: 0 };

    /// `bytes` at this end, of all blocks.
    pub(super) const fn new(op: &SendOp, bytes: u64) -> Self {
        let kind = match op {
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } => Kind::Write,
            SendOp::Read { .. } => Kind::Read,
            SendOp::Atomic { .. } => Kind::Atomic,
            // A session posts no others.
            _ => Kind::Send,
        };
        Self { kind, bytes }
    }

    /// As the completion has it.
    pub(super) fn ended(mut self, completion: &WorkCompletion) -> CountedEnd {
        if self.kind == Kind::Receive {
            // A Write with immediate data of the peer is no message.
            let has_message = completion.immediate.is_none();
            self.bytes = if has_message { completion.byte_len.into() } else { 0 };
        }
        CountedEnd { counted: self, is_good: completion.status == WcStatus::Success }
    }
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedEnd {
    pub(super) counted: Counted,
    pub(super) is_good: bool,
}
