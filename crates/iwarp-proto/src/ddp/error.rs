// SPDX-License-Identifier: MIT OR Apache-2.0

//! The errors of a DDP segment (RFC 5041 §7.2).

use thiserror::Error;

/// A fault of an incoming segment. The codes on the wire are in [`crate::rdmap::terminate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DdpError {
    /// The ULPDU ends before its DDP header does (RFC 5041 §4.4). The RFCs give no code.
    #[error("ULPDU shorter than its DDP header")]
    Truncated,
    /// DV is not 1, in a tagged segment.
    #[error("unknown DDP version in a tagged segment")]
    TaggedVersion,
    /// DV is not 1, in an untagged segment.
    #[error("unknown DDP version in an untagged segment")]
    UntaggedVersion,
    /// The STag names nothing, or does not grant the access.
    #[error("invalid STag")]
    InvalidStag,
    /// The octets are not all within the tagged buffer.
    #[error("base or bounds violation")]
    Bounds,
    /// The STag is not associated with this stream.
    #[error("STag not associated with the stream")]
    NotAssociated,
    /// TO plus length wraps.
    #[error("tagged offset wraps")]
    Wrap,
    /// No such queue.
    #[error("invalid QN")]
    InvalidQn,
    /// The queue has no buffer for this message.
    #[error("no buffer for this MSN")]
    NoBuffer,
    /// The MSN is not the next one of its queue.
    #[error("MSN out of range")]
    MsnRange,
    /// The message offset lies outside the buffer.
    #[error("invalid MO")]
    InvalidMo,
    /// The message is longer than the buffer.
    #[error("message of {octets} bytes{} > receive of {room} bytes", or_more(.whole))]
    TooLong {
        /// Octets of the message, up to the end of the segment that does not fit.
        octets: u32,
        /// Set if that segment is the message's last.
        whole: bool,
        /// Octets of the buffer.
        room: u32,
    },
}

/// The mark behind the octets of a message of which more may come.
fn or_more(whole: &bool) -> &'static str {
    if *whole { "" } else { " or more" }
}
