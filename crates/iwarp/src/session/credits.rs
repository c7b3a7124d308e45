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
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::session::line::Line;
use crate::session::post::Post;
use crate::session::table::{Core, Handle};
#[cfg(feature = "tokio")]
use crate::session::task::ensure_driven;
use crate::session::{
    BlockPool, Blocks, OperationError, Pending, Permit, Receiver, Reserving, SendFlags, Unconnected,
};

/// Receives beyond the window, for what the ends tell each other.
pub(super) const SPARE: usize = 2;

/// What this end may send.
#[derive(Debug, Default)]
pub(super) struct Balance(Mutex<Sheet>);

#[derive(Debug, Default)]
struct Sheet {
    /// Messages that the peer has receives for, in all since the beginning.
    granted: u64,
    /// Messages that were sent, or are about to be.
    used: u64,
    /// Who waits to send one: nobody while there is a receive for it.
    line: Line<Waker, ()>,
    /// There will be no more.
    closed: bool,
}

impl Sheet {
    fn has_some(&self) -> bool {
        !self.closed && self.used < self.granted
    }

    /// Whether a thread is among those that were served.
    fn serve(&mut self, woken: &mut Vec<Waker>) -> bool {
        let mut threads = false;
        while self.line.has_waiting() && self.has_some() {
            if let Ok((_, waker)) = self.line.serve(()) {
                self.used += 1;
                threads |= waker.is_none();
                woken.extend(waker);
            }
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
            // What it has said before is behind, and never by half the numbers there are.
            #[allow(clippy::cast_possible_truncation, reason = "compared as numbers of 32 bits")]
            let more = total.wrapping_sub(sheet.granted as u32);
            if more <= u32::MAX / 2 {
                sheet.granted += u64::from(more);
            }
        });
    }

    /// Nobody gets any more.
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

    fn try_take(&self) -> bool {
        let mut sheet = self.lock();
        let has_some = sheet.has_some();
        sheet.used += u64::from(has_some);
        has_some
    }

    fn give_back(&self, core: &Core) {
        self.change(core, |sheet| sheet.used -= 1);
    }

    fn leave_line(&self, ticket: u64, core: &Core) {
        self.change(core, |sheet| {
            if sheet.line.leave(ticket).is_some() {
                sheet.used -= 1;
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
/// It comes with a [`Receiver`] from [`Unconnected::credited`], and both ends have to use it: each
/// Receiver tells the other end of its receives, in messages of its own that the program does not
/// see. Whatever else is sent or received on the session must be Reads, Writes and atomic operations.
/// Clones are the same.
#[derive(Clone)]
pub struct Credits {
    handle: Arc<Handle>,
    balance: Arc<Balance>,
}

impl Credits {
    /// Waits until the peer has a receive, and the send queue a place, for one more message:
    /// [`wait`](Crediting::wait), or `.await` with the feature `tokio`.
    pub fn reserve(&self) -> Crediting {
        Crediting {
            credits: self.clone(),
            ticket: None,
            #[cfg(feature = "tokio")]
            claim: None,
            #[cfg(feature = "tokio")]
            reserving: None,
        }
    }

    /// As [`Self::reserve`], if there are both at once.
    pub fn try_reserve(&self) -> Option<Credit> {
        let core = self.handle.alive()?;
        let claim = self.try_claim(core)?;
        if !core.take_place() {
            return None;
        }
        Some(Credit { claim, permit: Permit::of(&self.handle) })
    }

    /// Messages that can be sent at once, as far as the peer has told.
    pub fn available(&self) -> u64 {
        let Some(core) = self.handle.alive() else { return 0 };
        core.progress();
        let sheet = self.balance.lock();
        if sheet.closed { 0 } else { sheet.granted - sheet.used }
    }

    /// The peer is known to take so many messages without a word of its own; it is told of the
    /// receives here.
    pub(super) fn begin(&self, receiver: &Receiver, granted: u32) {
        if let Some(core) = self.handle.alive() {
            self.balance.grant(granted, core);
            receiver.feed().settle();
        }
    }

    fn try_claim(&self, core: &Core) -> Option<Claim> {
        let taken = self.balance.try_take() || (core.progress() > 0 && self.balance.try_take());
        taken.then(|| self.claim())
    }

    fn claim(&self) -> Claim {
        Claim { credits: self.clone(), used: false }
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

/// One of the peer's receives. It goes to the next that waits when it is dropped without a message.
struct Claim {
    credits: Credits,
    used: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.used
            && let Some(core) = self.credits.handle.alive()
        {
            self.credits.balance.give_back(core);
        }
    }
}

/// The right to send one message: the peer has a receive for it, and the send queue a place.
/// Dropping it leaves both to whoever has waited longest.
#[must_use = "dropping it gives the peer's receive back"]
pub struct Credit {
    claim: Claim,
    permit: Permit,
}

impl Credit {
    fn post<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        let Self { mut claim, permit } = self;
        let pending =
            what(Post { handle: &claim.credits.handle, permit: Some(permit), list: None });
        // What was refused needs no receive.
        claim.used = pending.id().is_some();
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
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credit").finish_non_exhaustive()
    }
}

/// Waiting to send a message: [`wait`](Self::wait) for it, or `.await` it with the feature `tokio`.
/// Those who wait are served in the order in which they began to.
///
/// # Cancel safety
///
/// Dropping it at any moment loses nothing: a receive or a place that it was given already goes to
/// the next that waits.
#[must_use = "a message is sent after waiting"]
pub struct Crediting {
    credits: Credits,
    /// Its place in the line.
    ticket: Option<u64>,
    #[cfg(feature = "tokio")]
    claim: Option<Claim>,
    /// Then it waits for a place in the send queue.
    #[cfg(feature = "tokio")]
    reserving: Option<Reserving>,
}

impl Crediting {
    /// Waits for it, in this thread.
    ///
    /// # Errors
    ///
    /// [`OperationError::Ended`] and [`OperationError::Disconnected`] when the connection has ended,
    /// the latter also when the [`Receiver`] was dropped, which the peer's word comes by;
    /// [`OperationError::Wait`], as in a forked child.
    pub fn wait(self) -> Result<Credit, OperationError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Credit, OperationError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    pub(super) fn wait_until(
        mut self,
        deadline: Option<Instant>,
    ) -> Result<Credit, OperationError> {
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
        let permit = Reserving::of(&handle).wait_until(deadline)?;
        Ok(Credit { claim, permit })
    }

    /// One of the peer's receives, if there is one; joins the line otherwise.
    fn advance(
        &mut self,
        core: &Core,
        waker: Option<&Waker>,
    ) -> Result<Option<Claim>, OperationError> {
        if self.ticket.is_none()
            && let Some(claim) = self.credits.try_claim(core)
        {
            return Ok(Some(claim));
        }
        let mut sheet = self.credits.balance.lock();
        if let Some(ticket) = self.ticket
            && sheet.line.collect(ticket).is_some()
        {
            self.ticket = None;
            drop(sheet);
            return Ok(Some(self.credits.claim()));
        }
        if sheet.closed {
            drop(sheet);
            return Err(self.credits.over());
        }
        match (self.ticket, waker) {
            (None, _) if sheet.has_some() => {
                sheet.used += 1;
                drop(sheet);
                return Ok(Some(self.credits.claim()));
            }
            (None, _) => self.ticket = Some(sheet.line.join(waker.cloned())),
            #[cfg(feature = "tokio")]
            (Some(ticket), Some(waker)) => sheet.line.tell(ticket, waker.clone()),
            (Some(_), _) => {}
        }
        Ok(None)
    }
}

impl Drop for Crediting {
    fn drop(&mut self) {
        if let (Some(ticket), Some(core)) = (self.ticket, self.credits.handle.alive()) {
            self.credits.balance.leave_line(ticket, core);
        }
    }
}

impl fmt::Debug for Crediting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crediting").field("credits", &self.credits).finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl Future for Crediting {
    type Output = Result<Credit, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = Arc::clone(&this.credits.handle);
        let core = handle.check().map_err(OperationError::Wait)?;
        if this.claim.is_none() {
            this.claim = this.advance(core, Some(context.waker()))?;
            if this.claim.is_none() {
                ensure_driven(core)?;
                // What came before there was a driver.
                core.progress();
                this.claim = this.advance(core, Some(context.waker()))?;
            }
            if this.claim.is_none() {
                return Poll::Pending;
            }
        }
        let reserving = this.reserving.get_or_insert_with(|| Reserving::of(&handle));
        let permit = ready!(Pin::new(reserving).poll(context))?;
        let Some(claim) = this.claim.take() else { unreachable!("just seen") };
        this.reserving = None;
        Poll::Ready(Ok(Credit { claim, permit }))
    }
}

impl Unconnected {
    /// A [`Receiver`] that lets the peer know of its receives, and what sends as the peer's Receiver
    /// has some: up to `depth` messages may be on their way to this end. The peer has to make one,
    /// too. It takes two blocks of the pool, and two of the
    /// [`max_recvs`](crate::session::Config::max_recvs), more than `depth`.
    ///
    /// ```
    /// # use iwarp::session::{BlockPool, Config, Listener, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
    /// # let addr = listener.local_addr().ok_or("no address")?;
    /// # let client = std::thread::spawn(move || {
    /// #     let pd = iwarp::Device::open().unwrap().alloc_pd();
    /// #     let pool = BlockPool::new(&pd, 64, 6).unwrap();
    /// #     let prepared = Config::default().prepare(&pd).unwrap();
    /// #     let (credits, receiver) = prepared.credited(&pool, 4).unwrap();
    /// #     let session = prepared.connect(addr).wait().unwrap();
    /// #     for _ in 0..1000 {
    /// #         credits.reserve().wait().unwrap().send_inline(b"hello").wait().unwrap();
    /// #     }
    /// #     session.close().wait().unwrap();
    /// # });
    /// let pool = BlockPool::new(&pd, 4096, 6)?;
    /// let prepared = Config::default().prepare(&pd)?;
    /// let (_credits, mut receiver) = prepared.credited(&pool, 4)?;
    /// let session = prepared.accept(listener.accept().wait()?).wait()?;
    /// let mut count = 0;
    /// while let Some(message) = receiver.recv().wait()? {
    ///     assert_eq!(&*message.block, b"hello");
    ///     count += 1;
    /// }
    /// assert_eq!(count, 1000); // with four receives
    /// # client.join().unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Self::receiver`].
    pub fn credited(
        &self,
        pool: &BlockPool,
        depth: usize,
    ) -> Result<(Credits, Receiver), OperationError> {
        let (credits, receiver) = self.credited_later(pool, depth)?;
        self.handle.when_connected(receiver.feed());
        Ok((credits, receiver))
    }

    /// As [`Self::credited`], for ends that look at each other first: this one says nothing before
    /// [`Credits::begin`], unless the peer does.
    pub(super) fn credited_later(
        &self,
        pool: &BlockPool,
        depth: usize,
    ) -> Result<(Credits, Receiver), OperationError> {
        let balance = Arc::new(Balance::default());
        let credits = Credits { handle: Arc::clone(&self.handle), balance: Arc::clone(&balance) };
        let receiver = Receiver::new(&self.handle, pool, depth.max(1), Some(balance))?;
        Ok((credits, receiver))
    }
}
