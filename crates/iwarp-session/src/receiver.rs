// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages one after another, from receives that stay posted.

use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use iwarp::verbs::Ended;
use iwarp_types::{WcStatus, WorkCompletion};

use crate::balance::Balance;
use crate::cargo::Cargo;
use crate::feed::{Feed, Stock};
use crate::outcome::sealed::Outcome;
use crate::table::{Core, Handle};
use crate::{Block, BlockPool, OperationError, Received, Room};

/// The messages of a session, in the order in which they come.
///
/// It owns receives that are posted with blocks of a pool: as many as it was made for, while the
/// pool has blocks. When the program drops a message's block, that block goes back to the pool and
/// is posted again at once, with no further call of the program. Receivers of many sessions may
/// share one pool, which hands blocks to them in turn.
///
/// Made with several pools, a receiver takes a block of each for every receive, and a message fills
/// them one after the other: `Receiver<[Block; 2]>` for a header and a body, say.
///
/// Make it before the session is connected
/// ([`Unconnected::receiver`](crate::Unconnected::receiver)), so that receives are there
/// when the peer sends first. Receives that the program posts itself
/// ([`Session::recv`](crate::Session::recv)) get messages as well: each message goes to
/// the receive that was posted first, by either.
///
/// Dropping it leaves its receives posted: messages still go there, unseen.
///
/// ```
/// # use iwarp_session::{BlockPool, Config, Listener, Session};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
/// # let addr = listener.local_addr().ok_or("no address")?;
/// # let client = std::thread::spawn(move || {
/// #     let pd = iwarp::Device::open().unwrap().alloc_pd();
/// #     let session = Session::connect(&pd, addr).wait().unwrap();
/// #     for _ in 0..100 {
/// #         session.reserve().wait().unwrap().send_inline(b"hello").wait().unwrap();
/// #     }
/// #     session.close().wait().unwrap();
/// # });
/// let pool = BlockPool::new(&pd, 4096, 128)?;
/// let prepared = Config::default().prepare(&pd)?;
/// let mut receiver = prepared.receiver(&pool, 128)?;
/// let session = prepared.accept(listener.accept().wait()?).wait()?;
/// let mut count = 0;
/// while let Some(message) = receiver.recv().wait()? {
///     assert_eq!(&*message.block, b"hello");
///     count += 1;
/// }
/// assert_eq!(count, 100); // and then the peer closed the connection
/// # client.join().unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Receiver<B = Block> {
    handle: Arc<Handle>,
    feed: Arc<Feed>,
    /// The connection is over, and every message that came was taken.
    over: bool,
    /// A stream that has told of an error ends.
    #[cfg(feature = "tokio")]
    told: bool,
    blocks: PhantomData<fn() -> B>,
}

/// The result of a receiver: a message, or `None` when the connection ended in good order.
type Next<B> = Result<Option<Received<B>>, OperationError>;

/// Source of the blocks of a [`Receiver`]: one [`BlockPool`] by reference, or several
/// (`[&BlockPool; N]`, `&[BlockPool]`), of which each receive has a block each, in this order. A
/// pool may be among them more than once.
pub trait Pools: sealed::Pools {}

impl<P: sealed::Pools> Pools for P {}

pub(super) mod sealed {
    use super::{Block, BlockPool, Room, Stock};

    pub trait Pools {
        type Blocks: Room;

        fn into_stock(self) -> Stock;
    }

    impl Pools for &BlockPool {
        type Blocks = Block;

        fn into_stock(self) -> Stock {
            Stock::new(vec![self.clone()], true)
        }
    }

    impl<const N: usize> Pools for [&BlockPool; N] {
        type Blocks = [Block; N];

        fn into_stock(self) -> Stock {
            Stock::new(self.into_iter().cloned().collect(), false)
        }
    }

    impl Pools for &[BlockPool] {
        type Blocks = Vec<Block>;

        fn into_stock(self) -> Stock {
            Stock::new(self.to_vec(), false)
        }
    }
}

impl Receiver {
    /// The pool that its blocks are of.
    pub fn pool(&self) -> &BlockPool {
        let [pool] = self.pools() else { unreachable!("a block is of one pool") };
        pool
    }
}

impl<B: Room> Receiver<B> {
    pub(super) fn new(
        handle: &Arc<Handle>,
        stock: Stock,
        depth: usize,
        balance: Option<Arc<Balance>>,
    ) -> Result<Self, OperationError> {
        let core = handle.check().map_err(OperationError::Wait)?;
        if !stock.pools().iter().all(|pool| pool.is_of(&core.pd)) {
            return Err(OperationError::OtherDomain);
        }
        if stock.pools().len() > core.qp.capabilities().max_recv_sge || !stock.has_enough() {
            return Err(OperationError::TooManyBlocks);
        }
        let feed = Feed::new(core, stock, depth, balance);
        Ok(Self {
            handle: Arc::clone(handle),
            feed,
            over: false,
            #[cfg(feature = "tokio")]
            told: false,
            blocks: PhantomData,
        })
    }

    /// The next message: [`wait`](Receiving::wait) for it, or `.await` it with the feature `tokio`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the [`Receiving`] at any moment loses nothing: the message is the next call's.
    pub fn recv(&mut self) -> Receiving<'_, B> {
        Receiving { receiver: self }
    }

    pub(super) const fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// The result, if there is one by now.
    fn advance(&mut self, core: &Arc<Core>) -> Option<Next<B>> {
        if self.over {
            return Some(self.end());
        }
        let Some((completion, cargo)) = self.feed.next(core) else {
            let error = self.feed.take_over()?;
            return Some(match error {
                OperationError::Disconnected => self.finish(core),
                error => Err(error),
            });
        };
        match completion.status {
            WcStatus::Success => {
                self.feed.fill();
                Some(message(&completion, cargo).map(Some))
            }
            WcStatus::Flushed => {
                drop(cargo);
                Some(self.finish(core))
            }
            status => Some(Err(OperationError::from(status))),
        }
    }

    /// There are no more messages.
    fn finish(&mut self, core: &Arc<Core>) -> Next<B> {
        self.over = true;
        for id in self.feed.stop() {
            core.leave(id);
        }
        self.end()
    }

    fn end(&self) -> Next<B> {
        match self.handle.ended() {
            Some(Ended::Closed) => Ok(None),
            Some(why) => Err(OperationError::Ended(why)),
            None => Err(OperationError::Disconnected),
        }
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Next<B> {
        let core = Arc::clone(self.handle.check().map_err(OperationError::Wait)?);
        let mut pause = None;
        loop {
            if let Some(next) = self.advance(&core) {
                return next;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(OperationError::Timeout);
            }
            if let Some(pool) = self.feed.waits_for() {
                pause = pool.look_after(pause);
            }
            match self.feed.front() {
                // Another thread may have kept it.
                Some(_) if self.feed.has_messages() => {}
                Some(id) => _ = core.wait_for(id, deadline)?,
                None => self.feed.wait_posted(deadline, pause),
            }
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn poll_next_message(&mut self, context: &mut Context<'_>) -> Poll<Next<B>> {
        let core = Arc::clone(self.handle.check().map_err(OperationError::Wait)?);
        loop {
            if let Some(next) = self.advance(&core) {
                return Poll::Ready(next);
            }
            core.ensure_driven()?;
            if let Some(pool) = self.feed.waits_for() {
                pool.drive_left()?;
            }
            let Some(id) = self.feed.front() else {
                if self.feed.wake_when_posted(context.waker()) {
                    return Poll::Pending;
                }
                continue;
            };
            if self.feed.is_credited() {
                // The feed itself is told when a receive is done.
                if self.feed.wake_when_kept(context.waker()) {
                    core.collect();
                    if !self.feed.has_messages() {
                        return Poll::Pending;
                    }
                }
                continue;
            }
            if core.wake_when_done(id, context.waker()) {
                // It may have come between.
                core.collect();
                if !core.is_done(id) {
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<B> Receiver<B> {
    /// Receives that are posted: fewer than it was made for while its pools lack blocks, and while
    /// messages wait to be taken. The peer can send as many messages at least, except that a
    /// receive counts until a thread or task of this process has looked at its completion.
    pub fn posted(&self) -> usize {
        self.handle.alive().map_or(0, |_| self.feed.posted())
    }

    /// The pools that its blocks are of, in the order in which a message fills them.
    pub fn pools(&self) -> &[BlockPool] {
        self.feed.pools()
    }
}

fn message<B: Room>(
    completion: &WorkCompletion,
    cargo: Cargo<Block>,
) -> Result<Received<B>, OperationError> {
    let received = <Received<B> as Outcome>::new(completion, cargo);
    received.ok_or(OperationError::Failed(WcStatus::General))
}

impl<B> Drop for Receiver<B> {
    fn drop(&mut self) {
        // The operations of a forked child are the parent's.
        if let Some(core) = self.handle.alive() {
            for id in self.feed.stop() {
                core.leave(id);
            }
        }
    }
}

impl<B> fmt::Debug for Receiver<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("posted", &self.posted())
            .field("pools", &self.pools())
            .finish_non_exhaustive()
    }
}

/// Waiting for the next message: [`wait`](Self::wait) for it, or `.await` it with the feature
/// `tokio`.
///
/// # Cancel safety
///
/// It holds nothing: dropping it at any moment loses no message.
#[must_use = "a message is taken by waiting"]
#[derive(Debug)]
pub struct Receiving<'a, B = Block> {
    receiver: &'a mut Receiver<B>,
}

impl<B: Room> Receiving<'_, B> {
    /// Waits for the next message, in this thread. While all blocks of a pool are in use and no
    /// receive is posted, that is until one comes back. `None` when the connection ended in good
    /// order, at either end.
    ///
    /// # Errors
    ///
    /// [`OperationError::Ended`] when the connection ended otherwise, and why;
    /// [`OperationError::Failed`] for a message that is longer than a block;
    /// [`OperationError::QueueFull`] where no receive can be posted, as the program has posted
    /// [as many](crate::Config::max_recvs) itself.
    pub fn wait(self) -> Result<Option<Received<B>>, OperationError> {
        self.receiver.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Option<Received<B>>, OperationError> {
        self.receiver.wait_until(Instant::now().checked_add(timeout))
    }
}

#[cfg(feature = "tokio")]
impl<B: Room> Future for Receiving<'_, B> {
    type Output = Result<Option<Received<B>>, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.receiver.poll_next_message(context)
    }
}

/// The messages, until the connection ends: in good order or, after an error, not.
///
/// # Cancel safety
///
/// Dropping what waits for an item loses none.
#[cfg(feature = "tokio")]
impl<B: Room> futures_core::Stream for Receiver<B> {
    type Item = Result<Received<B>, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.told {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_next_message(context)).transpose();
        self.told = matches!(next, None | Some(Err(_)));
        Poll::Ready(next)
    }
}
