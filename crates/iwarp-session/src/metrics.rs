// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of a session.
//!
//! The operations are those that its queue pair has counted. The numbers of the connection are the
//! system's, which is asked when the program asks.

use std::time::Duration;

use iwarp::{Counters, Operations};
use iwarp_os::Vitals;

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
    /// Sends, and messages of Immediate Data, without what the ends of
    /// [`Credits`](super::Credits) tell each other.
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

/// The direction of bytes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Out,
    In,
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

    /// The counters of its queue pair, and the bytes that went beside its messages, out and in.
    pub(super) const fn of(
        counters: Counters,
        [out, come]: [u64; 2],
        tcp: Option<StreamMetrics>,
    ) -> Self {
        let Counters { mut sends, writes, reads, atomics, mut receives, .. } = counters;
        sends.bytes += out;
        receives.bytes += come;
        Self { sends, writes, reads, atomics, receives, tcp }
    }
}
