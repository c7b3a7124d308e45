// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending no more than the peer has receives for.
//!
//! Each end tells the other how many messages it may have sent in all since the connection was made:
//! the receives that it has posted so far. The number goes as immediate data of an empty Send, which
//! needs a receive itself; [`SPARE`] are kept for that. An end speaks up when its number has grown by
//! half the window, or when the peer has used up all that it knows of. By the first rule the peer
//! may have two such Sends to look at, never three: a third number would be more than a window ahead
//! of what the peer has seen. By the second there is one, as the peer has seen all before it.

use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use crate::session::driver::ensure_driven;
use crate::session::line::Line;
use crate::session::permit;
use crate::session::post::Post;
use crate::session::table::{Core, Handle};
use crate::session::{
    Blocks, OperationError, Pending, Permit, Receiver, RemoteGrant, Reserving, SendFlags,
};

/// Receives beyond the window, for what the ends tell each other.
pub(super) const SPARE: usize = 2;

/// The number of messages that this end may send.
#[derive(Debug, Default)]
pub(super) struct Balance(Mutex<Sheet>);

#[derive(Debug, Default)]
struct Sheet {
    /// Messages that the peer has receives for, in all since the beginning.
    granted: u64,
    /// Messages that were sent, or are about to be.
    used: u64,
    /// The line of waiters to send some: empty while there are receives for those of the first.
    line: Line<Waker, usize>,
    /// There will be no more.
    closed: bool,
}

impl Sheet {
    fn has(&self, count: usize) -> bool {
        !self.closed && self.used + count as u64 <= self.granted
    }

    /// Takes so many, if they are there and no other waits for them.
    fn take(&mut self, count: usize) -> bool {
        let taken = !self.line.has_waiting() && self.has(count);
        self.used += if taken { count as u64 } else { 0 };
        taken
    }

    /// Serves the waiters that it can; true if a thread is among them.
    fn serve(&mut self, woken: &mut Vec<Waker>) -> bool {
        let mut threads = false;
        while let Some(need) = self.line.need()
            && self.has(need)
            && let Ok((_, waker)) = self.line.serve(need)
        {
            self.used += need as u64;
            threads |= waker.is_none();
            woken.extend(waker);
        }
        threads
    }
}

impl Balance {
    fn lock(&self) -> MutexGuard<'_, Sheet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has said how many messages it takes in all, in 32 bits of the number.
    pub(super) fn grant(&self, total: u32, core: &Core) {
        self.change(core, |sheet| {
            // A number that it has said before is behind, and never by half the numbers there are.
            #[allow(clippy::cast_possible_truncation, reason = "compared as numbers of 32 bits")]
            let more = total.wrapping_sub(sheet.granted as u32);
            if more <= u32::MAX / 2 {
                sheet.granted += u64::from(more);
            }
        });
    }

    /// Ends it: no waiter gets any more.
    pub(super) fn close(&self, core: &Core) {
        let mut sheet = self.lock();
        let was_closed = std::mem::replace(&mut sheet.closed, true);
        let woken: Vec<_> = sheet.line.waiting().cloned().collect();
        drop(sheet);
        if !was_closed {
            core.nudge();
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Has the tasks that wait look again.
    #[cfg(feature = "tokio")]
    pub(super) fn look_again(&self) {
        let woken: Vec<_> = self.lock().line.waiting().cloned().collect();
        woken.into_iter().for_each(Waker::wake);
    }

    fn change(&self, core: &Core, change: impl FnOnce(&mut Sheet)) {
        let mut woken = Vec::new();
        let mut sheet = self.lock();
        change(&mut sheet);
        let threads = sheet.serve(&mut woken);
        drop(sheet);
        if threads {
            core.nudge();
        }
        woken.into_iter().for_each(Waker::wake);
    }

    fn try_take(&self, count: usize) -> bool {
        self.lock().take(count)
    }

    fn give_back(&self, core: &Core, count: usize) {
        self.change(core, |sheet| sheet.used -= count as u64);
    }

    fn leave_line(&self, ticket: u64, core: &Core) {
        self.change(core, |sheet| {
            if let Some(count) = sheet.line.leave(ticket) {
                sheet.used -= count as u64;
            }
        });
    }

    fn is_decided(&self, ticket: u64) -> bool {
        let sheet = self.lock();
        sheet.closed || sheet.line.is_served(ticket)
    }
}

/// Sends messages as the peer has receives for them: one more than that waits here, where
/// [`Session::send`](crate::session::Session::send) would end the connection.
///
/// It comes with a [`Receiver`] from
/// [`Unconnected::credited`](crate::session::Unconnected::credited), and both ends have to use it:
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
    /// for a [`Batch`](crate::session::Batch), which takes them by
    /// [`add_credit`](crate::session::Batch::add_credit). Two that wait for several never have a
    /// part of them each.
    ///
    /// An end tells of its receives when half of them are free again. So half of the `depth` that
    /// the peer's [`credited`](crate::session::Unconnected::credited) was called with, and one
    /// more, are certain to come, if its pool has the blocks. More may never be free at once.
    ///
    /// ```no_run
    /// # use iwarp::session::{Block, Credits, OperationError, RemoteGrant, Session};
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
        let sheet = self.balance.lock();
        if sheet.closed { 0 } else { sheet.granted - sheet.used }
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
        Claim { credits: self.clone(), count }
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

/// A number of the peer's receives. When it is dropped, receives that got no message go to the next
/// that waits.
pub struct Claim {
    credits: Credits,
    count: usize,
}

impl Claim {
    /// The messages are on their way.
    pub(super) const fn spend(&mut self) {
        self.count = 0;
    }

    /// One for each receive.
    fn split(mut self) -> impl Iterator<Item = Self> {
        let count = std::mem::take(&mut self.count);
        let credits = self.credits.clone();
        (0..count).map(move |_| credits.claim(1))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.count > 0
            && let Some(core) = self.credits.handle.alive()
        {
            self.credits.balance.give_back(core, self.count);
        }
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
    pub(super) fn into_parts(self) -> (Claim, Permit) {
        (self.claim, self.permit)
    }

    fn post<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        let Self { mut claim, permit } = self;
        let pending = what(Post::with(&claim.credits.handle, Some(permit)));
        // A message that was refused needs no receive.
        if pending.id().is_some() {
            claim.spend();
        }
        pending
    }

    /// As [`Session::send`](crate::session::Session::send).
    pub fn send<B: Blocks>(self, blocks: B) -> Pending<B> {
        self.send_with(blocks, SendFlags::default())
    }

    /// As [`Session::send_with`](crate::session::Session::send_with).
    pub fn send_with<B: Blocks>(self, blocks: B, flags: SendFlags) -> Pending<B> {
        self.post(|post| post.send(blocks, flags))
    }

    /// As [`Session::send_inline`](crate::session::Session::send_inline).
    pub fn send_inline(self, octets: &[u8]) -> Pending<()> {
        self.post(|post| post.send_inline(octets))
    }

    /// As [`Session::immediate`](crate::session::Session::immediate).
    pub fn immediate(self, data: [u8; 8]) -> Pending<()> {
        self.post(|post| post.immediate(data))
    }

    /// As [`Session::write_immediate`](crate::session::Session::write_immediate).
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

/// Waiting to send a message, or several (`Crediting<Vec<Credit>>`): [`wait`](Self::wait) for it, or
/// `.await` it with the feature `tokio`. Waiters are served in the order in which they began.
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
    /// [`OperationError::Ended`] and [`OperationError::Disconnected`] when the connection has ended,
    /// the latter also when the [`Receiver`] was dropped, which the peer's word comes by;
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
        let mut sheet = self.credits.balance.lock();
        if let Some(ticket) = self.ticket
            && sheet.line.collect(ticket).is_some()
        {
            self.ticket = None;
            drop(sheet);
            return Ok(Some(self.credits.claim(count)));
        }
        if sheet.closed {
            drop(sheet);
            return Err(self.credits.over());
        }
        match (self.ticket, waker) {
            (None, _) if sheet.take(count) => {
                drop(sheet);
                return Ok(Some(self.credits.claim(count)));
            }
            (None, _) => self.ticket = Some(sheet.line.join(count, waker.cloned())),
            #[cfg(feature = "tokio")]
            (Some(ticket), Some(waker)) => sheet.line.tell(ticket, waker.clone()),
            (Some(_), _) => {}
        }
        Ok(None)
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
                ensure_driven(core)?;
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
