// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parameters of a connection, and the reasons why none was made.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use iwarp_types::{StartupError, StartupFault, setters};
use thiserror::Error;

/// The parameters that each side gives when connecting.
///
/// ```
/// use iwarp::cm::ConnectParams;
///
/// let params = ConnectParams::new().private_data(b"hello").ird(4);
/// assert_eq!((params.ird, params.ord), (4, 16));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectParams {
    /// Bytes for the peer's program: up to 512, or 508 with MPA revision 2.
    pub private_data: Vec<u8>,
    /// Reads and Atomics of the peer's that are served at a time (IRD, `responder_resources`).
    pub ird: u16,
    /// Reads and Atomics of our own that are outstanding at a time (ORD, `initiator_depth`).
    pub ord: u16,
    /// The number of times that the peer sends a message again that finds no receive here: 0 to 6,
    /// or 7 for without end (`rnr_retry_count`). Over iWARP nothing is sent again: a device like
    /// InfiniBand's keeps the message for so many of its RNR times, and one that is like an RNIC
    /// ignores this.
    pub rnr_retry: u8,
    /// The number of times that a message of either end is sent again for want of an answer: 0 to 7
    /// (`retry_count`, over RoCE v2). The connecting end's counts, for both. Over iWARP the stream
    /// sends again by itself.
    pub retry_count: u8,
}

impl Default for ConnectParams {
    fn default() -> Self {
        Self { private_data: Vec::new(), ird: 16, ord: 16, rnr_retry: 7, retry_count: 7 }
    }
}

impl ConnectParams {
    /// No private data, 16 Reads and Atomics each way, and Sends that wait for a receive without
    /// end.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        into private_data: Vec<u8>,
        ird: u16,
        ord: u16,
        rnr_retry: u8,
        retry_count: u8,
    }
}

/// The reason why a connection was not made. The text says all there is to say: what lies behind it
/// has no [`source`](std::error::Error::source) of its own.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No program listens at the address, or the way there is closed.
    #[error("cannot reach the peer: {0}")]
    Unreachable(io::Error),
    /// The peer refused, and may give its reason in its private data.
    #[error("the peer rejected the connection ({} bytes of private data)", private_data.len())]
    #[non_exhaustive]
    Rejected {
        /// Its private data.
        private_data: Vec<u8>,
        /// The IRD it would have, where it says so (RFC 6581 §9.1).
        ird: Option<u16>,
        /// The ORD it would want, likewise.
        ord: Option<u16>,
    },
    /// The peer does not speak MPA as it should.
    #[error("MPA start-up failed: {0}")]
    Startup(StartupError),
    /// The peer accepted, but not on terms that this side can keep: it got a Terminate.
    #[error("start-up agreed on what cannot be kept: {0}")]
    Terms(StartupFault),
    /// The TCP connection broke during start-up.
    #[error("connection broke during start-up: {0}")]
    Io(io::Error),
    /// No connection was made in the time given.
    #[error("connecting took too long")]
    Timeout,
}

impl ConnectError {
    /// True if another address of the peer may do: at this one, no program answered as it should.
    #[doc(hidden)]
    pub const fn is_of_the_address(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Startup(_) | Self::Io(_))
    }

    /// The error itself, for a caller that does not know which address was tried.
    #[doc(hidden)]
    #[must_use]
    pub fn at(self, addr: Option<SocketAddr>) -> Self {
        match (self, addr) {
            (Self::Unreachable(error), Some(addr)) => {
                Self::Unreachable(io::Error::new(error.kind(), Unreached { addr, error }))
            }
            (other, _) => other,
        }
    }
}

/// An address that could not be reached.
#[derive(Debug)]
struct Unreached {
    addr: SocketAddr,
    error: io::Error,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, error } = self;
        write!(f, "{addr}: {error}")?;
        match error.kind() {
            io::ErrorKind::ConnectionRefused => f.write_str(" (no program listens there)"),
            io::ErrorKind::TimedOut => f.write_str(" (check the address, and firewalls)"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Unreached {}

impl From<StartupError> for ConnectError {
    fn from(error: StartupError) -> Self {
        Self::Startup(error)
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
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

/// The error of a call for a connection that is not there any more.
pub(crate) fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
