// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the send queue, for programs that would rather wait than be refused.

use std::fmt;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iwarp_types::AtomicOp;

use crate::session::post::sealed::Posts as _;
use crate::session::post::{self, Post, operations};
use crate::session::table::Handle;
use crate::session::{Blocks, OperationError, Pending, RemoteGrant, SendFlags, Session};

/// The right to post one operation of any kind but a receive: it is never refused for
/// [`OperationError::QueueFull`]. Dropping the permit gives the place to whoever has waited longest.
///
/// Reads and atomic operations beyond what the peer serves at a time
/// ([`ConnectParams::ord`](crate::cm::ConnectParams)) wait in the queue, and keep later operations
/// waiting that are fenced; they need no other permit.
#[must_use = "dropping it gives the place back"]
pub struct Permit {
    handle: Arc<Handle>,
    /// The place is the operation's now.
    used: bool,
}

impl Permit {
    /// For a place that was taken.
    pub(super) fn of(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), used: false }
    }

    pub(super) fn is_of(&self, handle: &Arc<Handle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }

    /// The operation has the place.
    pub(super) fn spend(mut self) {
        self.used = true;
    }

    operations! { self: self }
}

impl post::sealed::Posts for Permit {
    fn post_by<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        let handle = Arc::clone(&self.handle);
        what(Post { handle: &handle, permit: Some(self), list: None })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.used
            && let Some(core) = self.handle.alive()
        {
            core.release_place();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// Waiting for a place in the send queue: [`wait`](Self::wait) for it, or `.await` it with the
/// feature `tokio`. Places are given in the order in which they were asked for.
///
/// # Cancel safety
///
/// Dropping it at any moment loses nothing: a place that it was given already goes to the next that
/// waits.
#[must_use = "a place is taken by waiting"]
pub struct Reserving {
    handle: Arc<Handle>,
    /// Its place in the line.
    ticket: Option<u64>,
}

impl Reserving {
    pub(super) fn of(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), ticket: None }
    }

    /// Waits for a place, in this thread.
    ///
    /// # Errors
    ///
    /// [`OperationError::Wait`], as in a forked child.
    pub fn wait(self) -> Result<Permit, OperationError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Permit, OperationError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    pub(super) fn wait_until(
        mut self,
        deadline: Option<Instant>,
    ) -> Result<Permit, OperationError> {
        let handle = Arc::clone(&self.handle);
        let core = handle.check().map_err(OperationError::Wait)?;
        if core.take_place() {
            return Ok(self.permit());
        }
        let ticket = *self.ticket.insert(core.join_line(None));
        if !core.wait_for_place(ticket, deadline)? {
            return Err(OperationError::Timeout);
        }
        core.collect_place(ticket);
        Ok(self.permit())
    }

    fn permit(&mut self) -> Permit {
        self.ticket = None;
        Permit::of(&self.handle)
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        if let (Some(ticket), Some(core)) = (self.ticket, self.handle.alive()) {
            core.leave_line(ticket);
        }
    }
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserving").finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl Future for Reserving {
    type Output = Result<Permit, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = Arc::clone(&this.handle);
        let core = handle.check().map_err(OperationError::Wait)?;
        let ticket = match this.ticket {
            Some(ticket) => ticket,
            None if core.take_place() => return Poll::Ready(Ok(this.permit())),
            None => *this.ticket.insert(core.join_line(Some(context.waker()))),
        };
        // Told before it looks: what comes between is not missed.
        core.tell_line(ticket, context.waker());
        crate::session::task::ensure_driven(core)?;
        core.progress();
        if core.collect_place(ticket) {
            return Poll::Ready(Ok(this.permit()));
        }
        Poll::Pending
    }
}

impl Session {
    /// Waits for a place in the send queue, of which there are [`Config::max_sends`]: what is posted
    /// with the [`Permit`] is not refused for [`OperationError::QueueFull`].
    ///
    /// ```no_run
    /// # use iwarp::session::{Block, OperationError, RemoteGrant, Session};
    /// # fn example(session: &Session, grant: &RemoteGrant, blocks: Vec<Block>)
    /// # -> Result<(), OperationError> {
    /// // Any number of Reads, with as many at a time as the session allows.
    /// let mut reads = Vec::new();
    /// for (n, block) in (0..).zip(blocks) {
    ///     reads.push(session.reserve().wait()?.read(grant, n * 4096, block));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Config::max_sends`]: crate::session::Config::max_sends
    pub fn reserve(&self) -> Reserving {
        Reserving::of(&self.handle)
    }

    /// As [`Self::reserve`], if there is a place at once.
    pub fn try_reserve(&self) -> Option<Permit> {
        let core = self.handle.alive()?;
        core.take_place().then(|| Permit::of(&self.handle))
    }
}
