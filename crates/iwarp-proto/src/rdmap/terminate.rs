// SPDX-License-Identifier: MIT OR Apache-2.0

//! From an error to the Terminate that reports it, and from the peer's Terminate to the status of
//! the request that it names: the one place that knows the table of RFC 5040 §4.8 and RFC 6581 §8.

use iwarp_types::{AccessError, WcStatus};
use thiserror::Error;

use crate::ddp::error::DdpError;
use crate::framing::FramingFault;
use crate::mpa::startup::StartupFault;
use crate::rdmap::error::RdmapError;
use crate::rdmap::rx::Rejected;
use crate::rdmap::wire::TerminateCode;

/// A reason to terminate the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// The framing of what was received.
    #[error("{0}")]
    Framing(&'static FramingFault),
    /// A received segment.
    #[error(transparent)]
    Ddp(#[from] DdpError),
    /// A received message.
    #[error(transparent)]
    Rdmap(#[from] RdmapError),
    /// Terms on which enhanced start-up agreed cannot be kept.
    #[error("start-up: {0}")]
    Startup(StartupFault),
    /// An error of this side, not tied to anything received (RFC 5040 §7.1(1)).
    #[error("local error: {0}")]
    Local(&'static str),
    /// The program has taken memory away that is registered, as one of its own requests found, or
    /// one of the peer's. An error of this side either way, not the peer's: the STag is valid and
    /// grants the access (RFC 5040 §7.1(1)).
    #[error("registered memory is gone at {addr:#x}")]
    BadAddress {
        /// The address that could not be accessed.
        addr: u64,
        /// The access was the peer's.
        remote: bool,
    },
    /// The peer closed the stream while work was pending.
    #[error("the peer closed the stream while work was pending")]
    BadClose,
}

impl From<Rejected> for Fault {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Ddp(error) => Self::Ddp(error),
            Rejected::Rdmap(error) => Self::Rdmap(error),
        }
    }
}

impl Fault {
    /// The fault for a refused access of the peer's to a tagged buffer.
    pub(crate) fn of_tagged(error: AccessError) -> Self {
        Self::of_gone(error, true).unwrap_or_else(|| Self::Ddp(error.into()))
    }

    /// The fault for a refused access that the peer asked for.
    pub(crate) fn of_asked(error: AccessError) -> Self {
        Self::of_gone(error, true).unwrap_or(Self::Rdmap(RdmapError::Protection(error)))
    }

    /// The fault for refused memory of a request of the program's own.
    pub(crate) fn of_own(error: AccessError, what: &'static str) -> Self {
        Self::of_gone(error, false).unwrap_or(Self::Local(what))
    }

    const fn of_gone(error: AccessError, remote: bool) -> Option<Self> {
        match error {
            AccessError::BadAddress(addr) => Some(Self::BadAddress { addr, remote }),
            _ => None,
        }
    }

    /// The code for the Terminate header.
    pub const fn code(&self) -> TerminateCode {
        let (layer, etype, code) = match self {
            Self::Local(_) | Self::BadAddress { .. } => (0, 0, 0x00),
            Self::BadClose => (0, 2, 0x07),
            Self::Rdmap(error) => rdmap(*error),
            Self::Ddp(error) => ddp(*error),
            Self::Framing(fault) => (2, fault.etype, fault.code),
            Self::Startup(fault) => (2, 0, fault.code()),
        };
        TerminateCode { layer, etype, code }
    }

    /// True if the Terminate quotes the segment's DDP header (RFC 5040 §4.8, Figure 10).
    pub const fn quotes_segment(&self) -> bool {
        match self {
            // Too short to have one.
            Self::Ddp(DdpError::Truncated) => false,
            Self::Ddp(_) | Self::Rdmap(_) => true,
            Self::Framing(_)
            | Self::Startup(_)
            | Self::Local(_)
            | Self::BadAddress { .. }
            | Self::BadClose => false,
        }
    }

    /// True if it also quotes the Read Request header: only Remote Protection errors do.
    pub const fn quotes_read_request(&self) -> bool {
        matches!(self, Self::Rdmap(RdmapError::Protection(error)) if !matches!(error, AccessError::Unaligned))
    }
}

const fn rdmap(error: RdmapError) -> (u8, u8, u8) {
    match error {
        RdmapError::Protection(AccessError::InvalidStag) => (0, 1, 0x00),
        RdmapError::Protection(AccessError::Bounds) => (0, 1, 0x01),
        RdmapError::Protection(AccessError::Rights) => (0, 1, 0x02),
        RdmapError::Protection(AccessError::NotAssociated) => (0, 1, 0x03),
        RdmapError::Protection(AccessError::Wrap) => (0, 1, 0x04),
        // RFC 5040 §4.8 has this code twice and says nothing of the difference. Others report a
        // protection error if the STag is another's, an operation error if it is unknown or cannot
        // be invalidated by a peer.
        RdmapError::Invalidate(AccessError::InvalidStag | AccessError::CannotInvalidate) => {
            (0, 2, 0x09)
        }
        RdmapError::Protection(AccessError::CannotInvalidate) | RdmapError::Invalidate(_) => {
            (0, 1, 0x09)
        }
        RdmapError::Protection(AccessError::BadAddress(_)) => (0, 0, 0x00),
        RdmapError::Version => (0, 2, 0x05),
        RdmapError::UnexpectedOpcode(_) => (0, 2, 0x06),
        // RFC 7306 §8.2: an unaligned atomic is a catastrophic error of the stream.
        RdmapError::Protection(AccessError::Unaligned) | RdmapError::Stream(_) => (0, 2, 0x07),
    }
}

const fn ddp(error: DdpError) -> (u8, u8, u8) {
    match error {
        DdpError::InvalidStag => (1, 1, 0x00),
        DdpError::Bounds => (1, 1, 0x01),
        DdpError::NotAssociated => (1, 1, 0x02),
        DdpError::Wrap => (1, 1, 0x03),
        DdpError::TaggedVersion => (1, 1, 0x04),
        DdpError::InvalidQn => (1, 2, 0x01),
        DdpError::NoBuffer => (1, 2, 0x02),
        DdpError::MsnRange => (1, 2, 0x03),
        DdpError::InvalidMo => (1, 2, 0x04),
        DdpError::TooLong { .. } => (1, 2, 0x05),
        DdpError::UntaggedVersion => (1, 2, 0x06),
        // No code in the RFCs: the length field cannot be right.
        DdpError::Truncated => (2, 0, 0x03),
    }
}

/// The status with which the work request ends that the peer's Terminate names; `sent`: it is a
/// one-way request.
pub(crate) const fn status_of_terminate(code: TerminateCode, sent: bool) -> WcStatus {
    match (code.layer, code.etype) {
        (1, 2) if code.code == 0x02 && sent => WcStatus::RnrRetryExceeded,
        (0, 1) | (1, 1) => WcStatus::RemoteAccess,
        // An STag that cannot be invalidated: either of the code's two types ends in this status.
        (0, 2) if code.code == 0x09 => WcStatus::RemoteAccess,
        (0, 2) | (1, 2) => WcStatus::RemoteInvalidRequest,
        _ => WcStatus::RemoteOperation,
    }
}
