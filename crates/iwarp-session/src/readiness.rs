// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors that futures wait for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};

use iwarp::drive::ReactorPlace;
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

/// The registration of a connection's stream with this runtime's reactor.
#[derive(Debug)]
struct Registration(AsyncFd<Borrowed>);

/// The descriptor is the connection's, and stays open for as long as the registration is kept.
#[derive(Debug)]
struct Borrowed(RawFd);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Makes it.
#[allow(
    deprecated,
    reason = "its danger is an object that changes its descriptor; Borrowed does not, and what \
              replaces it is unsafe"
)]
pub(super) fn registration(fd: RawFd) -> io::Result<Box<dyn ReactorPlace>> {
    let registration = AsyncFd::with_interest(Borrowed(fd), Interest::READABLE)?;
    Ok(Box::new(Registration(registration)))
}

impl ReactorPlace for Registration {
    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}
