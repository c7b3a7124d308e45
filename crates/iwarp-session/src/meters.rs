// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of all sessions for the program's [recorder](metrics::Recorder).

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use iwarp_types::{SendOp, WcOp, WcStatus, WorkCompletion};
use metrics::{Counter, Histogram, Unit};

use crate::Metrics;
use crate::metrics::{StreamMetrics, Way};

const POSTED: &str = "iwarp_operations_posted_total";
const COMPLETED: &str = "iwarp_operations_completed_total";
const FAILED: &str = "iwarp_operations_failed_total";
const BYTES: &str = "iwarp_bytes_total";
const RTT: &str = "iwarp_tcp_rtt_seconds";
const RETRANSMITS: &str = "iwarp_tcp_retransmits_total";
const UNACKNOWLEDGED: &str = "iwarp_tcp_unacknowledged_bytes";
const UNSENT: &str = "iwarp_tcp_unsent_bytes";
const WINDOW: &str = "iwarp_tcp_congestion_window_bytes";

/// Tells the program's recorder what the metrics of sessions mean, and their units. To be called
/// when the recorder is installed, before the first session is made: a session reports to the
/// recorder that there is when it is made.
///
/// Sums over all sessions, counted as it happens, with a label `kind` (`send`, `write`, `read`,
/// `atomic`, `receive`), as [`Operations`](iwarp::Operations) has them for one session:
///
/// | Counter | Unit | Meaning |
/// |---|---|---|
/// | `iwarp_operations_posted_total` | operations | posted |
/// | `iwarp_operations_completed_total` | operations | ended well |
/// | `iwarp_operations_failed_total` | operations | failed, or under way when their connection ended |
/// | `iwarp_bytes_total` | bytes | payload of those that ended well |
///
/// Samples of TCP connections, as [`StreamMetrics`] has them, one whenever the program calls
/// [`Session::metrics`](super::Session::metrics):
///
/// | Histogram or counter | Unit | Meaning |
/// |---|---|---|
/// | `iwarp_tcp_rtt_seconds` | seconds | round-trip time |
/// | `iwarp_tcp_unacknowledged_bytes` | bytes | taken by the system, not acknowledged by the peer |
/// | `iwarp_tcp_unsent_bytes` | bytes | among them, not sent even once |
/// | `iwarp_tcp_congestion_window_bytes` | bytes | congestion window |
/// | `iwarp_tcp_retransmits_total` | segments | sent again (a counter) |
pub fn describe_metrics() {
    let counters = [
        (POSTED, Unit::Count, "Operations that sessions have posted"),
        (COMPLETED, Unit::Count, "Operations of sessions that ended well"),
        (FAILED, Unit::Count, "Operations of sessions that failed or ended with their connection"),
        (BYTES, Unit::Bytes, "Payload of the operations of sessions that ended well"),
        (RETRANSMITS, Unit::Count, "TCP segments that sessions have sent again"),
    ];
    for (name, unit, text) in counters {
        metrics::describe_counter!(name, unit, text);
    }
    let histograms = [
        (RTT, Unit::Seconds, "Round-trip times of sessions' TCP connections"),
        (UNACKNOWLEDGED, Unit::Bytes, "Bytes that peers have not acknowledged"),
        (UNSENT, Unit::Bytes, "Bytes that wait to be sent for the first time"),
        (WINDOW, Unit::Bytes, "Congestion windows of sessions' TCP connections"),
    ];
    for (name, unit, text) in histograms {
        metrics::describe_histogram!(name, unit, text);
    }
}

/// Meters that a session reports to.
pub(super) struct Meters {
    /// By [`Kind`].
    operations: [Operations; 5],
    rtt: Histogram,
    unacknowledged: Histogram,
    unsent: Histogram,
    window: Histogram,
    retransmits: Counter,
    /// Retransmits reported so far.
    known_retransmits: AtomicU32,
}

/// Operations that are reported together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    Write,
    Read,
    Atomic,
    Receive,
}

impl Kind {
    const fn of(op: WcOp) -> Self {
        match op {
            WcOp::Write => Self::Write,
            WcOp::Read => Self::Read,
            WcOp::FetchAdd | WcOp::CompareSwap => Self::Atomic,
            WcOp::Recv | WcOp::RecvImmediate | WcOp::RecvWriteImmediate => Self::Receive,
            // A session posts no others.
            _ => Self::Send,
        }
    }
}

struct Operations {
    posted: Counter,
    completed: Counter,
    failed: Counter,
    bytes: Counter,
}

impl Operations {
    fn of(kind: Kind) -> Self {
        let kind = match kind {
            Kind::Send => "send",
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Atomic => "atomic",
            Kind::Receive => "receive",
        };
        Self {
            posted: metrics::counter!(POSTED, "kind" => kind),
            completed: metrics::counter!(COMPLETED, "kind" => kind),
            failed: metrics::counter!(FAILED, "kind" => kind),
            bytes: metrics::counter!(BYTES, "kind" => kind),
        }
    }
}

impl Meters {
    /// Of the recorder that there is now.
    pub(super) fn new() -> Self {
        let kinds = [Kind::Send, Kind::Write, Kind::Read, Kind::Atomic, Kind::Receive];
        Self {
            operations: kinds.map(Operations::of),
            rtt: metrics::histogram!(RTT),
            unacknowledged: metrics::histogram!(UNACKNOWLEDGED),
            unsent: metrics::histogram!(UNSENT),
            window: metrics::histogram!(WINDOW),
            retransmits: metrics::counter!(RETRANSMITS),
            known_retransmits: AtomicU32::new(0),
        }
    }

    /// An operation of the send queue was posted.
    pub(super) fn posted_send(&self, op: &SendOp) {
        self.posted(Kind::of(op.completes_as()));
    }

    /// A receive was posted.
    pub(super) fn posted_receive(&self) {
        self.posted(Kind::Receive);
    }

    fn posted(&self, kind: Kind) {
        self.operations[kind as usize].posted.increment(1);
    }

    /// An operation has ended.
    pub(super) fn ended(&self, completion: &WorkCompletion) {
        let operations = &self.operations[Kind::of(completion.op) as usize];
        if completion.status == WcStatus::Success {
            operations.completed.increment(1);
            operations.bytes.increment(completion.payload_len().into());
        } else {
            operations.failed.increment(1);
        }
    }

    /// Bytes went beside a message.
    pub(super) fn passed_beside(&self, way: Way, octets: usize) {
        let kind = match way {
            Way::Out => Kind::Send,
            Way::In => Kind::Receive,
        };
        self.operations[kind as usize].bytes.increment(octets as u64);
    }

    /// The program has asked.
    pub(super) fn sample(&self, metrics: &Metrics) {
        let Some(tcp) = &metrics.tcp else { return };
        let StreamMetrics { rtt, unacknowledged, unsent, congestion_window, retransmits, .. } =
            *tcp;
        self.rtt.record(rtt);
        for (histogram, bytes) in [
            (&self.unacknowledged, unacknowledged),
            (&self.unsent, unsent),
            (&self.window, congestion_window),
        ] {
            #[allow(clippy::cast_precision_loss, reason = "histograms take nothing else")]
            histogram.record(bytes as f64);
        }
        // Threads that ask at once may have their answers in another order.
        let before = self.known_retransmits.fetch_max(retransmits, Ordering::Relaxed);
        self.retransmits.increment(retransmits.saturating_sub(before).into());
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}
