// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the send queue, for programs that would rather wait than be refused.

use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iwarp_types::AtomicOp;

use crate::post::sealed::Posts as _;
use crate::post::{self, Post, operations};
use crate::table::{Core, Handle, Place};
use crate::{Blocks, OperationError, Pending, RemoteGrant, SendFlags, Session};

/// The right to post one operation of any kind but a receive: it is never refused for
/// [`OperationError::QueueFull`]. Dropping the permit gives the place to the longest waiter.
///
/// Reads and atomic operations beyond what the peer serves at a time
/// ([`ConnectParams::ord`](iwarp::cm::ConnectParams)) wait in the queue, and keep later operations
/// waiting that are fenced; they need no other permit.
#[must_use = "dropping it gives the place back"]
pub struct Permit(Place);

impl Permit {
    /// For a place that was taken.
    pub(super) fn of(handle: &Arc<Handle>) -> Self {
        Self(Place::of(handle))
    }

    pub(super) fn is_of(&self, handle: &Arc<Handle>) -> bool {
        Arc::ptr_eq(self.0.handle(), handle)
    }

    pub(super) fn into_place(self) -> Place {
        self.0
    }

    operations! { self: self }
}

impl post::sealed::Posts for Permit {
    fn post_by<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        let handle = Arc::clone(self.0.handle());
        what(Post::with(&handle, Some(self.0)))
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// Waiting for a place in the send queue, or for several at once (`Reserving<Vec<Permit>>`):
/// [`wait`](Self::wait) for it, or `.await` it with the feature `tokio`. Places are given in the
/// order in which they were asked for: those who come later wait while the first needs more than
/// there are.
///
/// # Cancel safety
///
/// Dropping it at any moment loses nothing: places that it was given already go to the next that
/// waits.
#[must_use = "a place is taken by waiting"]
pub struct Reserving<P = Permit> {
    handle: Arc<Handle>,
    count: usize,
    /// Its place in the line.
    ticket: Option<u64>,
    permits: PhantomData<fn() -> P>,
}

pub(super) mod sealed {
    use super::Permit;

    pub trait Permits {
        /// So many, for places that were taken.
        fn of(count: usize, permit: impl Fn() -> Permit) -> Self;
    }

    impl Permits for Permit {
        fn of(_: usize, permit: impl Fn() -> Self) -> Self {
            permit()
        }
    }

    impl Permits for Vec<Permit> {
        fn of(count: usize, permit: impl Fn() -> Permit) -> Self {
            (0..count).map(|_| permit()).collect()
        }
    }
}

impl Reserving {
    pub(super) fn of(handle: &Arc<Handle>) -> Self {
        Self::new(handle, 1)
    }
}

impl<P: sealed::Permits> Reserving<P> {
    pub(super) fn new(handle: &Arc<Handle>, count: usize) -> Self {
        Self { handle: Arc::clone(handle), count, ticket: None, permits: PhantomData }
    }

    /// Waits for it, in this thread.
    ///
    /// # Errors
    ///
    /// [`OperationError::QueueFull`] for more places than the session
    /// [has](crate::Config::max_sends); [`OperationError::Wait`], as in a forked child.
    pub fn wait(self) -> Result<P, OperationError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<P, OperationError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    pub(super) fn wait_until(mut self, deadline: Option<Instant>) -> Result<P, OperationError> {
        let handle = Arc::clone(&self.handle);
        let core = self.check(&handle)?;
        if core.take_places(self.count) {
            return Ok(self.permits());
        }
        let ticket = *self.ticket.insert(core.join_line(self.count, None));
        if !core.wait_for_places(ticket, deadline)? {
            return Err(OperationError::Timeout);
        }
        core.collect_places(ticket);
        Ok(self.permits())
    }

    fn check<'a>(&self, handle: &'a Handle) -> Result<&'a Arc<Core>, OperationError> {
        let core = handle.check().map_err(OperationError::Wait)?;
        match self.count <= core.send_limit() {
            true => Ok(core),
            false => Err(OperationError::QueueFull),
        }
    }

    fn permits(&mut self) -> P {
        self.ticket = None;
        P::of(self.count, || Permit::of(&self.handle))
    }
}

impl<P> Drop for Reserving<P> {
    fn drop(&mut self) {
        if let (Some(ticket), Some(core)) = (self.ticket, self.handle.alive()) {
            core.leave_line(ticket);
        }
    }
}

impl<P> fmt::Debug for Reserving<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserving").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl<P: sealed::Permits> Future for Reserving<P> {
    type Output = Result<P, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = Arc::clone(&this.handle);
        let core = this.check(&handle)?;
        let ticket = match this.ticket {
            Some(ticket) => ticket,
            None if core.take_places(this.count) => return Poll::Ready(Ok(this.permits())),
            None => *this.ticket.insert(core.join_line(this.count, Some(context.waker()))),
        };
        // Told before it looks: what comes between is not missed.
        core.tell_line(ticket, context.waker());
        core.ensure_driven()?;
        core.progress();
        if core.collect_places(ticket) {
            return Poll::Ready(Ok(this.permits()));
        }
        Poll::Pending
    }
}

impl Session {
    /// Waits for a place in the send queue, of which there are [`Config::max_sends`]: what is
    /// posted with the [`Permit`] is not refused for [`OperationError::QueueFull`].
    ///
    /// ```no_run
    /// # use iwarp_session::{Block, OperationError, RemoteGrant, Session};
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
    /// [`Config::max_sends`]: crate::Config::max_sends
    pub fn reserve(&self) -> Reserving {
        Reserving::of(&self.handle)
    }

    /// As [`Self::reserve`], if a place is free and no other waits.
    pub fn try_reserve(&self) -> Option<Permit> {
        let core = self.handle.alive()?;
        core.take_places(1).then(|| Permit::of(&self.handle))
    }

    /// Waits until so many places are free at once, and takes all of them: for a
    /// [`Batch`](crate::Batch), or for operations that make sense together only. Two that
    /// wait for several never have a part of them each. While the first in the line waits for more
    /// than are free, operations without a permit are refused with [`OperationError::QueueFull`].
    ///
    /// ```no_run
    /// # use iwarp_session::{Block, OperationError, RemoteGrant, Session};
    /// # fn example(session: &Session, grant: &RemoteGrant, [one, two]: [Block; 2])
    /// # -> Result<(), OperationError> {
    /// let mut batch = session.batch();
    /// for permit in session.reserve_many(3).wait()? {
    ///     batch.add_permit(permit).expect("of this session");
    /// }
    /// let written = [batch.write(one, grant, 0), batch.write(two, grant, 4096)];
    /// let told = batch.send_inline(b"written");
    /// batch.post()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve_many(&self, count: usize) -> Reserving<Vec<Permit>> {
        Reserving::new(&self.handle, count)
    }
}
