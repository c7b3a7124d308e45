//! What may be wrong with start-up, as programs see it.

use iwarp_proto::mpa::error::{StartupError as Proto, StartupFault as ProtoFault};
use thiserror::Error;

/// Why MPA start-up failed. The connection is closed without a word on the wire, as the RFC has it
/// (RFC 5044 §7.1.2).
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
    /// Octets follow a frame where the peer must still be silent (RFC 5044 §7.1.2).
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

/// Why an initiator ended a connection right after the accepting Reply, by a Terminate
/// (RFC 6581 §8).
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

impl From<Proto> for StartupError {
    fn from(error: Proto) -> Self {
        match error {
            Proto::Key => Self::Key,
            Proto::Revision(n) => Self::Revision(n),
            Proto::PrivateDataTooLong(n) => Self::PrivateDataTooLong(n),
            Proto::EnhancedDataMissing => Self::EnhancedDataMissing,
            Proto::NotEnhanced => Self::NotEnhanced,
            Proto::SurplusOctets => Self::SurplusOctets,
            Proto::Timeout => Self::Timeout,
            Proto::Closed => Self::Closed,
            Proto::Depth(n) => Self::Depth(n),
            Proto::ConfiguredRevision(n) => Self::ConfiguredRevision(n),
            Proto::NoRtrType => Self::NoRtrType,
            Proto::NoRequest => Self::NoRequest,
        }
    }
}

impl From<ProtoFault> for StartupFault {
    fn from(fault: ProtoFault) -> Self {
        match fault {
            ProtoFault::Local => Self::Local,
            ProtoFault::InsufficientIrd => Self::InsufficientIrd,
            ProtoFault::NoMatchingRtr => Self::NoMatchingRtr,
        }
    }
}
