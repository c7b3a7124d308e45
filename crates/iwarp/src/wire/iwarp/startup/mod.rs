// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA start-up on a stream's socket, for whichever module asks for the connection (RFC 5044 §7,
//! RFC 6581).
//!
//! ```text
//!   line       both sides of it, up to the frame that the other end sends
//!   reception  the connections that a listening socket takes, up to their Request
//!   terms      the terms that a device's options ask of the peer
//!   pending    how many of them may be in start-up at a time, and whose
//! ```

pub(crate) mod line;
pub(crate) mod pending;
pub(crate) mod reception;
pub(crate) mod terms;
