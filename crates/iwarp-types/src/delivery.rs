// SPDX-License-Identifier: MIT OR Apache-2.0

//! The completions that a stretch of a stream brings about at the peer.

/// The completions that a stretch of a stream brings about in the peer's receive queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Delivery {
    /// None: no message that takes a receive ends there.
    Nothing,
    /// None of them has a solicited event.
    Message,
    /// One at least has a solicited event.
    Solicited,
}
