// SPDX-License-Identifier: MIT OR Apache-2.0

//! The errors of an RDMAP message (RFC 5040 §7, RFC 7306 §8).

use iwarp_types::AccessError;
use thiserror::Error;

/// A fault of an incoming message. The codes on the wire are in [`crate::rdmap::terminate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RdmapError {
    /// RV is not 1.
    #[error("unknown RDMAP version")]
    Version,
    /// The opcode is unknown, not allowed in this kind of segment, or names an operation that is
    /// not supported.
    #[error("unexpected opcode {0:#x}")]
    UnexpectedOpcode(u8),
    /// The message breaks the stream's rules in a way that has no code of its own: a header of
    /// the wrong size, a response to nothing, an unaligned atomic.
    #[error("catastrophic error of the stream: {0}")]
    Stream(&'static str),
    /// The source of a Read Request or the target of an Atomic Request may not be accessed.
    #[error("remote protection: {0}")]
    Protection(AccessError),
    /// The STag that a Send with Invalidate names may not be invalidated.
    #[error("STag cannot be invalidated: {0}")]
    Invalidate(AccessError),
}
