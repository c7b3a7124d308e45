// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending no more than the peer has receives for: [`balance`](super::balance) has how the ends
//! know.

use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::balance::{Balance, Claim};
use crate::permit;
use crate::post::Post;
use crate::table::{Core, Handle, Place};
use crate::{Blocks, OperationError, Pending, Permit, Receiver, RemoteGrant, Reserving, SendFlags};

/// Sends messages as the peer has receives for them: one more than that waits here, where
/// [`Session::send`](crate::Session::send) would end the connection.
///
/// It comes with a [`Receiver`] from
/// [`Unconnected::credited`](crate::Unconnected::credited), and both ends have to use it:
/// each Receiver tells the other end of its receives, in messages of its own that the program does
/// not see. All that takes one of the peer's receives is sent by a [`Credit`]: messages, and Writes
/// that tell the peer ([`Credit::write_immediate`]). Reads, other Writes and atomic operations need
/// none. Clones share one account.
#[derive(Clone)]
pub struct Credits {
    handle: Arc<Handle>,
    balance: Arc<Balance>,
}

impl Credits {
    pub(super) const fn new(handle: Arc<Handle>, balance: Arc<Balance>) -> Self {
        Self { handle, balance }
    }

    /// Waits until the peer has a receive, and the send queue a place, for one more message:
    /// [`wait`](Crediting::wait), or `.await` with the feature `tokio`.
    pub fn reserve(&self) -> Crediting {
        Crediting::new(self, 1)
    }

    /// As [`Self::reserve`], if both are free and no other waits.
    pub fn try_reserve(&self) -> Option<Credit> {
        let core = self.handle.alive()?;
        let claim = self.try_claim(core, 1)?;
        if !core.take_places(1) {
            return None;
        }
        Some(Credit { claim, permit: Permit::of(&self.handle) })
    }

    /// Waits until the peer has receives, and the send queue places, for so many messages at once:
    /// for a [`Batch`](crate::Batch), which takes them by
    /// [`add_credit`](crate::Batch::add_credit). Two that wait for several never have a
    /// part of them each.
    ///
    /// An end tells of its receives when half of them are free again. So half of the `depth` that
    /// the peer's [`credited`](crate::Unconnected::credited) was called with, and one
    /// more, are certain to come, if its pool has the blocks. More may never be free at once.
    ///
    /// ```no_run
    /// # use iwarp_session::{Block, Credits, OperationError, RemoteGrant, Session};
    /// # fn example(session: &Session, credits: &Credits, grant: &RemoteGrant, body: Block)
    /// # -> Result<(), OperationError> {
    /// let both = credits.reserve_many(2).wait()?;
    /// let place = session.reserve().wait()?;
    /// let mut batch = session.batch();
    /// batch.add_permit(place).expect("of this session");
    /// for credit in both {
    ///     batch.add_credit(credit).expect("of this session");
    /// }
    /// let told = [batch.send_inline(b"begin"), batch.send_inline(b"written")];
    /// let written = batch.write(body, grant, 0);
    /// batch.post()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve_many(&self, count: usize) -> Crediting<Vec<Credit>> {
        Crediting::new(self, count)
    }

    /// Messages that can be sent at once, as far as the peer has told.
    pub fn available(&self) -> u64 {
        let Some(core) = self.handle.alive() else { return 0 };
        core.progress();
        self.balance.available()
    }

    /// Messages that the peer has had receives for, in all since the beginning.
    pub(super) fn granted(&self) -> u64 {
        self.balance.granted()
    }

    #[cfg(feature = "tokio")]
    pub(super) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The peer is known to take so many messages without a word of its own; it is told of the
    /// receives here.
    pub(super) fn begin(&self, receiver: &Receiver, granted: u32) {
        if let Some(core) = self.handle.alive() {
            self.balance.grant(granted, core);
            receiver.feed().settle();
        }
    }

    fn try_claim(&self, core: &Core, count: usize) -> Option<Claim> {
        let balance = &self.balance;
        let taken = balance.try_take(count) || (core.progress() > 0 && balance.try_take(count));
        taken.then(|| self.claim(count))
    }

    fn claim(&self, count: usize) -> Claim {
        Claim::new(&self.handle, &self.balance, count)
    }

    fn over(&self) -> OperationError {
        match self.handle.ended() {
            Some(why) => OperationError::Ended(why),
            None => OperationError::Disconnected,
        }
    }
}

impl fmt::Debug for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credits").field("balance", &self.balance).finish_non_exhaustive()
    }
}

/// The right to send one message, or Write with immediate data: the peer has a receive for it, and
/// the send queue a place. Dropping it leaves both to the longest waiter.
#[must_use = "dropping it gives the peer's receive back"]
pub struct Credit {
    claim: Claim,
    permit: Permit,
}

pub(super) mod sealed {
    use super::{Claim, Credit, Permit, permit};

    pub trait Credits {
        type Permits: permit::sealed::Permits;

        fn of(claim: Claim, permits: Self::Permits) -> Self;
    }

    impl Credits for Credit {
        type Permits = Permit;

        fn of(claim: Claim, permit: Permit) -> Self {
            Self { claim, permit }
        }
    }

    impl Credits for Vec<Credit> {
        type Permits = Vec<Permit>;

        fn of(claim: Claim, permits: Vec<Permit>) -> Self {
            let both = claim.split().zip(permits);
            both.map(|(claim, permit)| Credit { claim, permit }).collect()
        }
    }
}

impl Credit {
    pub(super) fn is_of(&self, handle: &Arc<Handle>) -> bool {
        self.permit.is_of(handle)
    }

    /// The receive of the peer, and the place.
    pub(super) fn into_parts(self) -> (Claim, Place) {
        (self.claim, self.permit.into_place())
    }

    fn post<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        let Self { mut claim, permit } = self;
        let pending = what(Post::with(claim.handle(), Some(permit.into_place())));
        // A message that was refused needs no receive.
        if pending.id().is_some() {
            claim.spend();
        }
        pending
    }

    /// As [`Session::send`](crate::Session::send).
    pub fn send<B: Blocks>(self, blocks: B) -> Pending<B> {
        self.send_with(blocks, SendFlags::default())
    }

    /// As [`Session::send_with`](crate::Session::send_with).
    pub fn send_with<B: Blocks>(self, blocks: B, flags: SendFlags) -> Pending<B> {
        self.post(|post| post.send(blocks, flags))
    }

    /// As [`Session::send_inline`](crate::Session::send_inline).
    pub fn send_inline(self, octets: &[u8]) -> Pending<()> {
        self.post(|post| post.send_inline(octets))
    }

    /// As [`Session::immediate`](crate::Session::immediate).
    pub fn immediate(self, data: [u8; 8]) -> Pending<()> {
        self.post(|post| post.immediate(data))
    }

    /// As [`Session::write_immediate`](crate::Session::write_immediate).
    pub fn write_immediate<B: Blocks>(
        self,
        blocks: B,
        to: &RemoteGrant,
        offset: u64,
        data: [u8; 4],
    ) -> Pending<B> {
        self.post(|post| post.write_immediate(blocks, to, offset, data))
    }
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credit").finish_non_exhaustive()
    }
}

/// Waiting to send a message, or several (`Crediting<Vec<Credit>>`): [`wait`](Self::wait) for it,
/// or `.await` it with the feature `tokio`. Waiters are served in the order in which they began.
///
/// # Cancel safety
///
/// Dropping it at any moment loses nothing: receives or places that it was given already go to the
/// next that waits.
#[must_use = "a message is sent after waiting"]
pub struct Crediting<C: sealed::Credits = Credit> {
    credits: Credits,
    count: usize,
    /// Its place in the line.
    ticket: Option<u64>,
    #[cfg(feature = "tokio")]
    claim: Option<Claim>,
    /// Then it waits for places in the send queue.
    #[cfg(feature = "tokio")]
    reserving: Option<Reserving<C::Permits>>,
    what: PhantomData<fn() -> C>,
}

impl<C: sealed::Credits> Crediting<C> {
    fn new(credits: &Credits, count: usize) -> Self {
        Self {
            credits: credits.clone(),
            count,
            ticket: None,
            #[cfg(feature = "tokio")]
            claim: None,
            #[cfg(feature = "tokio")]
            reserving: None,
            what: PhantomData,
        }
    }

    /// Waits for it, in this thread.
    ///
    /// # Errors
    ///
    /// [`OperationError::Ended`] and [`OperationError::Disconnected`] when the connection has
    /// ended, the latter also when the [`Receiver`] was dropped, which the peer's word comes by;
    /// [`OperationError::QueueFull`] for more messages than the send queue has places;
    /// [`OperationError::Wait`], as in a forked child.
    pub fn wait(self) -> Result<C, OperationError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<C, OperationError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    pub(super) fn wait_until(mut self, deadline: Option<Instant>) -> Result<C, OperationError> {
        let handle = Arc::clone(&self.credits.handle);
        let core = handle.check().map_err(OperationError::Wait)?;
        let balance = Arc::clone(&self.credits.balance);
        let claim = match self.advance(core, None)? {
            Some(claim) => claim,
            None => {
                let ticket = self.ticket;
                let decided = || ticket.is_none_or(|ticket| balance.is_decided(ticket));
                if !core.wait_until(deadline, |_| decided())? {
                    return Err(OperationError::Timeout);
                }
                self.advance(core, None)?.ok_or(OperationError::Timeout)?
            }
        };
        let permits = Reserving::new(&handle, self.count).wait_until(deadline)?;
        Ok(C::of(claim, permits))
    }

    /// Some of the peer's receives, if there are so many; joins the line otherwise.
    fn advance(
        &mut self,
        core: &Core,
        waker: Option<&Waker>,
    ) -> Result<Option<Claim>, OperationError> {
        let count = self.count;
        if count > core.send_limit() {
            return Err(OperationError::QueueFull);
        }
        if self.ticket.is_none()
            && let Some(claim) = self.credits.try_claim(core, count)
        {
            return Ok(Some(claim));
        }
        match self.credits.balance.take_or_join(count, &mut self.ticket, waker) {
            Some(true) => Ok(Some(self.credits.claim(count))),
            Some(false) => Ok(None),
            None => Err(self.credits.over()),
        }
    }
}

impl<C: sealed::Credits> Drop for Crediting<C> {
    fn drop(&mut self) {
        if let (Some(ticket), Some(core)) = (self.ticket, self.credits.handle.alive()) {
            self.credits.balance.leave_line(ticket, core);
        }
    }
}

impl<C: sealed::Credits> fmt::Debug for Crediting<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crediting")
            .field("credits", &self.credits)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl<C: sealed::Credits> Future for Crediting<C> {
    type Output = Result<C, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = Arc::clone(&this.credits.handle);
        let core = handle.check().map_err(OperationError::Wait)?;
        if this.claim.is_none() {
            this.claim = this.advance(core, Some(context.waker()))?;
            if this.claim.is_none() {
                core.ensure_driven()?;
                // Completions that came before there was a driver.
                core.progress();
                this.claim = this.advance(core, Some(context.waker()))?;
            }
            if this.claim.is_none() {
                return Poll::Pending;
            }
        }
        let reserve = || Reserving::new(&handle, this.count);
        let reserving = this.reserving.get_or_insert_with(reserve);
        let permits = ready!(Pin::new(reserving).poll(context))?;
        let Some(claim) = this.claim.take() else { unreachable!("just seen") };
        this.reserving = None;
        Poll::Ready(Ok(C::of(claim, permits)))
    }
}
