//! MPA start-up on a stream's socket, whoever asks for the connection (RFC 5044 §7, RFC 6581).
//!
//! ```text
//!   line       both sides of it, up to the frame that the other end sends
//!   reception  the connections that a listening socket takes, up to their Request
//!   crowd      how many of them may be in start-up at a time, and whose
//!   error      what may be wrong with it
//! ```

pub(crate) mod crowd;
mod error;
pub(crate) mod line;
pub(crate) mod reception;

use std::io;

use iwarp_proto::mpa::error::StartupError as ProtoError;
use thiserror::Error;

pub use error::{StartupError, StartupFault};

/// What each side says when connecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectParams {
    /// Octets for the peer's program: up to 512, or 508 with MPA revision 2.
    pub private_data: Vec<u8>,
    /// Reads and Atomics of the peer's that are served at a time (IRD, `responder_resources`).
    pub ird: u16,
    /// Reads and Atomics of our own that are outstanding at a time (ORD, `initiator_depth`).
    pub ord: u16,
}

impl Default for ConnectParams {
    fn default() -> Self {
        Self { private_data: Vec::new(), ird: 16, ord: 16 }
    }
}

/// Why a connection was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens there, or the way there is closed.
    #[error("cannot reach the peer: {0}")]
    Unreachable(#[source] io::Error),
    /// The peer refused, and may say why in its private data.
    #[error("the peer rejected the connection ({} octets of private data)", private_data.len())]
    Rejected {
        /// What it said.
        private_data: Vec<u8>,
        /// The IRD it would have, where it says so (RFC 6581 §9.1).
        ird: Option<u16>,
        /// The ORD it would want, likewise.
        ord: Option<u16>,
    },
    /// The peer does not speak MPA as it should.
    #[error("MPA start-up failed: {0}")]
    Startup(#[from] StartupError),
    /// The peer accepted, but not on terms that this side can keep: it got a Terminate.
    #[error("start-up agreed on what cannot be kept: {0}")]
    Terms(StartupFault),
    /// The TCP connection broke during start-up.
    #[error("connection broke during start-up: {0}")]
    Io(#[from] io::Error),
    /// Nothing came of it in the time given.
    #[error("connecting took too long")]
    Timeout,
}

impl From<ProtoError> for ConnectError {
    fn from(error: ProtoError) -> Self {
        Self::Startup(error.into())
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable(error) | ConnectError::Io(error) => error,
            ConnectError::Timeout => io::ErrorKind::TimedOut.into(),
            other => Self::other(other),
        }
    }
}

pub(crate) fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
