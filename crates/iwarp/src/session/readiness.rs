// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors that futures wait for.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle as Runtime;

/// A descriptor that a future of its own waits for.
#[derive(Debug)]
pub(super) struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// A duplicate, so that it belongs to this runtime alone.
    #[allow(
        deprecated,
        reason = "its danger is an object that changes its descriptor; OwnedFd \
                                  does not, and what replaces it is unsafe"
    )]
    pub(super) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        Runtime::try_current().map_err(io::Error::other)?;
        AsyncFd::with_interest(fd, Interest::READABLE).map(Self)
    }

    /// Ready when something may have happened since the last time.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}
