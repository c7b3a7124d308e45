// SPDX-License-Identifier: MIT OR Apache-2.0

//! The start of a connection, and the reasons against it, as the verbs' user and the protocol both
//! say them.

use thiserror::Error;

/// Which ready-to-receive indications an end can work with (RFC 6581 §9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RtrTypes {
    /// B: a zero-length Send, which takes one of the responder's receives.
    pub send: bool,
    /// C: a zero-length RDMA Write.
    pub write: bool,
    /// D: a zero-length RDMA Read.
    pub read: bool,
}

impl RtrTypes {
    /// All three.
    pub const ALL: Self = Self { send: true, write: true, read: true };
    /// None.
    pub const NONE: Self = Self { send: false, write: false, read: false };

    /// The types in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// True if there is none.
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }
}

/// The reason why MPA start-up failed. In every case TCP is closed at once and nothing is sent
/// (RFC 5044 §7.1.2): before Full Operation there is no frame that could carry an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum StartupError {
    /// The frame does not begin with the expected key: not an MPA peer, or both ends started as
    /// Initiator (RFC 5044 §7.1.2(5), (8)).
    #[error("start-up frame has a wrong key")]
    Key,
    /// The frame's revision is not one this end works with (RFC 5044 §7.1.1).
    #[error("MPA revision {0} is not supported")]
    Revision(u8),
    /// More private data than a frame may carry: 512 octets, or 508 beside the enhanced word.
    #[error("{0} octets of private data are too many")]
    PrivateDataTooLong(usize),
    /// The frame says that it begins with the enhanced word but has no room for it
    /// (RFC 6581 §6).
    #[error("enhanced start-up frame without enhanced data")]
    EnhancedDataMissing,
    /// The Reply that accepts an enhanced Request is not enhanced (RFC 6581 §10).
    #[error("peer answered an enhanced Request in unenhanced form")]
    NotEnhanced,
    /// Octets follow a Request: the peer must be silent until it has the Reply (RFC 5044 §7.1.2).
    #[error("octets behind the start-up frame")]
    SurplusOctets,
    /// The whole frame was not there at the deadline.
    #[error("start-up frame did not arrive in time")]
    Timeout,
    /// The TCP connection ended before the frame was complete.
    #[error("TCP connection closed during start-up")]
    Closed,
    /// The caller's IRD or ORD does not fit 14 bits (RFC 6581 §9).
    #[error("{0} does not fit the 14 bits of IRD and ORD")]
    Depth(u16),
    /// The caller's configuration names a revision other than 1 and 2.
    #[error("revision {0} cannot be configured")]
    ConfiguredRevision(u8),
    /// The caller's configuration allows no ready-to-receive indication where one is needed
    /// (RFC 6581 §9.2).
    #[error("peer-to-peer start-up without any RTR type")]
    NoRtrType,
    /// The caller answered before a Request was received.
    #[error("no Request to answer")]
    NoRequest,
}

/// The reason why an Initiator must end a connection right after the accepting Reply: it enters
/// Full Operation and sends a Terminate of layer 2, error type 0 with this code (RFC 6581 §8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum StartupFault {
    /// A local error that has no code of its own.
    #[error("local catastrophic error during start-up")]
    Local,
    /// The responder's ORD is more than this end's IRD.
    #[error("insufficient IRD for the responder's ORD")]
    InsufficientIrd,
    /// No connection model or ready-to-receive indication that both ends have.
    #[error("no matching RTR indication")]
    NoMatchingRtr,
}

impl StartupFault {
    /// The error code of RFC 6581 §8.
    pub const fn code(self) -> u8 {
        match self {
            Self::Local => 5,
            Self::InsufficientIrd => 6,
            Self::NoMatchingRtr => 7,
        }
    }
}
