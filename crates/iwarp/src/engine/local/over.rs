// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ends of a line, in words for users.

use std::io;

use super::hindrance::{Cause, Hindrance};
use crate::report;

/// The reason for which a line is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The other process has closed it, as one does that ends.
    Closed(io::Error),
    Hindered(Hindrance),
    /// The other process does not keep to the rules.
    Unruly,
}

impl Over {
    /// A line of the log tells it.
    pub(super) fn tell(self) {
        match self {
            Self::Closed(error) => {
                report::tracing::debug!(%error, "the line to a process of this host has ended");
            }
            Self::Hindered(why) => {
                let error = why.error().map(report::tracing::field::display);
                let line = why.line();
                report!(INFO, error, "no shared memory with a process of this host: {line}");
            }
            Self::Unruly => report!(
                INFO,
                "no shared memory with a process of this host: it does not keep to the rules: use \
                 one version of the library in both"
            ),
        }
    }
}

impl From<Cause> for Over {
    fn from(cause: Cause) -> Self {
        Self::Hindered(cause.into())
    }
}

impl From<io::Error> for Over {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, UnexpectedEof};
        match error.kind() {
            UnexpectedEof | ConnectionReset | BrokenPipe => Self::Closed(error),
            InvalidData => Self::Unruly,
            _ => Self::Hindered(error.into()),
        }
    }
}
