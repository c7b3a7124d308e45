// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a connection, and the observers that are told.

use iwarp_types::Reason;

/// The observer of a connection, for the code that made it. Called with the queue pair locked: take
/// a note, nothing more.
pub trait ConnectionObserver: Send + Sync {
    /// The peer's first message unit was validated (only on the accepting side).
    fn first_heard(&self) {}
    /// The stream ended, in good order or not.
    fn disconnected(&self, why: Ended);
}

/// The ways in which a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// In good order, by the peer or by this side.
    Closed,
    /// The peer broke it off, and said why (in iWARP by a Terminate).
    Terminated(Reason),
    /// This side found a fault, and told the peer this reason (in iWARP by a Terminate).
    Fault(Reason),
    /// The transport broke.
    Lost,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed in good order"),
            Self::Terminated(why) => write!(f, "the peer terminated the connection: {why}"),
            Self::Fault(why) => write!(f, "the peer broke a rule: {why}"),
            Self::Lost => f.write_str("the connection broke"),
        }
    }
}

/// For a program to which the end of the connection is a failure.
impl std::error::Error for Ended {}
