// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asynchronous events of a device.

/// An event of an object, not of a work request. Named after `enum ibv_event_type`. With
/// [`Personality::Roce`](crate::Personality::Roce) those of a queue pair that has failed come only
/// where no work request of this end says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue was full when a completion came: the completion is lost, and its queue
    /// pair goes to the error state. Reported once for each queue.
    CqError {
        /// Number of the queue.
        cq: u64,
    },
    /// A fault of this side or the peer ended a queue pair's stream.
    QpFatal {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair's stream ended because the peer tried to write, read or change memory without
    /// the right to it, or memory that the program has unmapped, protected or truncated while
    /// registered.
    QpAccessError {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair has ended because the peer made a forbidden request or broke a rule; no work
    /// request reports it.
    QpRequestError {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A packet of the peer arrived while the queue pair was still in RTR.
    CommunicationEstablished {
        /// Number of the queue pair.
        qp: u32,
    },
    /// Everything that was started before the queue pair went to SQD has completed.
    SendQueueDrained {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A queue pair takes no more receives of its shared receive queue.
    LastReceiveReached {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A shared receive queue has fewer receives than its limit. One-shot.
    SrqLimitReached {
        /// Number of the queue.
        srq: u64,
    },
    /// A port has gone down, on purpose (`iwarp set PID link=down`).
    PortError {
        /// Number of the port, from 1 on.
        port: u8,
    },
    /// A port is up again.
    PortActive {
        /// Number of the port, from 1 on.
        port: u8,
    },
}
