// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA: framing of upper-layer PDUs on a TCP stream (RFC 5044) and the start of a connection
//! (RFC 5044 §7.1, RFC 6581).
//!
//! A connection begins with one Request and one Reply ([`startup`]); what they agree on makes a
//! [`tx::Framer`] and a [`rx::Deframer`], one for each direction of Full Operation.
//!
//! ```text
//!   [marker] ULPDU_Length ULPDU [marker every 512 octets] pad [marker] CRC
//! ```

pub mod error;
mod framing;
pub mod marker;
pub mod rx;
pub mod startup;
pub mod tx;
pub mod wire;

#[cfg(test)]
mod tests;

pub use error::{MpaError, StartupError};
