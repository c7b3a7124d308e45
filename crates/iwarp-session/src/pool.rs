// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks in stock, and who waits for one.

use std::fmt;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use iwarp::verbs::ProtectionDomain;
use iwarp_mem::{OwnedRegion, RegisterError};
use iwarp_os::ProcessOwned;
use iwarp_os::bell::Bell;

use crate::block::{Borrower, Source, allocate};
use crate::cargo::Cargo;
use crate::line::Line;
use crate::{Block, OperationError};

/// A fixed number of blocks of one size. Clones share the pool: any number of sessions, threads and
/// tasks may share one, and so may the [receivers](crate::Receiver) of many sessions.
#[derive(Clone)]
pub struct BlockPool {
    pool: ProcessOwned<Arc<Pool>>,
    block_len: usize,
    count: usize,
}

/// Waits in the line of a pool for blocks.
pub(super) trait Supplied: Send + Sync {
    /// Takes the blocks that it has waited for.
    fn supply(self: Arc<Self>, blocks: Cargo<Block>);
    /// No task looks after an operation that has a block of the pool.
    fn look_again(&self);
}

struct Pool {
    pd: ProtectionDomain,
    shelf: Mutex<Shelf>,
    /// Told when a blocked thread is to look again.
    changed: Bell,
    /// Sessions that have blocks of this pool in operations whose result was dropped.
    left: Mutex<Vec<Weak<dyn Borrower>>>,
}

/// The free blocks, and the line of waiters for some: never both, unless the first waiter needs
/// more than there are.
#[derive(Default)]
struct Shelf {
    free: Vec<OwnedRegion>,
    line: Line<Claim, Cargo<OwnedRegion>>,
}

impl Shelf {
    /// So many blocks, if there are and no other waits for them.
    fn take(&mut self, count: usize) -> Option<Cargo<OwnedRegion>> {
        if self.line.has_waiting() { None } else { self.cut(count) }
    }

    fn cut(&mut self, count: usize) -> Option<Cargo<OwnedRegion>> {
        let rest = self.free.len().checked_sub(count)?;
        Some(match count {
            1 => self.free.pop().into(),
            _ => Cargo::Several(self.free.split_off(rest)),
        })
    }

    /// Hands the first that waits what it needs, if there is as much.
    fn serve(&mut self) -> Option<(u64, Option<Claim>)> {
        let regions = self.line.need().and_then(|need| self.cut(need))?;
        match self.line.serve(regions) {
            Ok(served) => Some(served),
            Err(regions) => {
                self.free.extend(regions);
                None
            }
        }
    }
}

/// A waiter for a block, unless it is a thread.
#[derive(Clone)]
enum Claim {
    #[cfg(feature = "tokio")]
    Task(Waker),
    /// A receiver that has fewer receives posted than it wants.
    Receiver(Weak<dyn Supplied>),
}

/// The interval at which a blocked thread looks after the operations whose result was dropped and
/// that have blocks it could have: at first, and at most.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(20);

impl Pool {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_all(self: &Arc<Self>, regions: impl IntoIterator<Item = OwnedRegion>) {
        let mut shelf = self.shelf();
        shelf.free.extend(regions);
        while let Some((ticket, claim)) = shelf.serve() {
            match claim {
                None => {
                    drop(shelf);
                    self.changed.ring();
                    shelf = self.shelf();
                }
                #[cfg(feature = "tokio")]
                Some(Claim::Task(waker)) => {
                    drop(shelf);
                    waker.wake();
                    shelf = self.shelf();
                }
                Some(Claim::Receiver(waiter)) => {
                    let handed = shelf.line.collect(ticket);
                    drop(shelf);
                    match (handed, waiter.upgrade()) {
                        (Some(handed), Some(waiter)) => waiter.supply(self.blocks(handed)),
                        (handed, _) => {
                            let back = handed.into_iter().flatten();
                            self.shelf().free.extend(back);
                        }
                    }
                    shelf = self.shelf();
                }
            }
        }
    }

    /// A block, if there is one and no other waits.
    fn take_free(self: &Arc<Self>) -> Option<Block> {
        let regions = self.shelf().take(1)?;
        regions.one().map(|region| self.block(region))
    }

    /// Takes so many blocks, or joins the line.
    fn take_or_join(&self, count: usize, claim: Option<Claim>) -> Result<Cargo<OwnedRegion>, u64> {
        let mut shelf = self.shelf();
        match shelf.take(count) {
            Some(regions) => Ok(regions),
            None => Err(shelf.line.join(count, claim)),
        }
    }

    fn leave_line(self: &Arc<Self>, ticket: u64) {
        let handed = self.shelf().line.leave(ticket);
        // The next may need less than this one did.
        self.put_all(handed.into_iter().flatten());
    }

    fn block(self: &Arc<Self>, region: OwnedRegion) -> Block {
        Block::of(Arc::clone(self) as Arc<dyn Source>, region)
    }

    fn blocks(self: &Arc<Self>, regions: Cargo<OwnedRegion>) -> Cargo<Block> {
        regions.map(|region| self.block(region))
    }

    fn left(&self) -> MutexGuard<'_, Vec<Weak<dyn Borrower>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes operations whose result was dropped, as far as they are done.
    fn reap(&self) {
        let left = self.left().clone();
        for weak in left {
            if let Some(borrower) = weak.upgrade() {
                borrower.progress();
                if borrower.has_left_behind() {
                    continue;
                }
            }
            self.left().retain(|other| !other.ptr_eq(&weak));
            // It may have left something behind just now.
            if weak.upgrade().is_some_and(|borrower| borrower.has_left_behind()) {
                self.note_left(weak);
            }
        }
    }

    /// Has tasks look after the operations whose result was dropped.
    #[cfg(feature = "tokio")]
    fn drive_left(&self) -> Result<(), OperationError> {
        let left = self.left().clone();
        left.iter().filter_map(Weak::upgrade).try_for_each(Borrower::ensure_driven)?;
        self.reap();
        Ok(())
    }

    fn has_left(&self) -> bool {
        !self.left().is_empty()
    }
}

impl Source for Pool {
    fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// A block is free: the longest waiter gets it.
    fn put(self: Arc<Self>, region: OwnedRegion) {
        self.put_all(Some(region));
    }

    fn note_left(&self, by: Weak<dyn Borrower>) {
        let mut left = self.left();
        left.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&by));
        left.push(by);
    }

    fn look_again(&self) {
        let told = self.shelf().line.waiting().cloned().collect::<Vec<_>>();
        self.changed.ring();
        for again in told {
            match again {
                #[cfg(feature = "tokio")]
                Claim::Task(waker) => waker.wake(),
                Claim::Receiver(waiter) => {
                    waiter.upgrade().into_iter().for_each(|waiter| waiter.look_again());
                }
            }
        }
    }
}

impl BlockPool {
    /// Allocates `count` blocks of `block_len` bytes, zeroed.
    ///
    /// # Errors
    ///
    /// As [`Block::new`].
    pub fn new(
        pd: &ProtectionDomain,
        block_len: usize,
        count: usize,
    ) -> Result<Self, RegisterError> {
        let blocks = (0..count).map(|_| allocate(pd, block_len));
        let free = blocks.collect::<Result<_, _>>()?;
        let pool = Arc::new(Pool {
            pd: pd.clone(),
            shelf: Mutex::new(Shelf { free, line: Line::default() }),
            changed: Bell::new(),
            left: Mutex::default(),
        });
        Ok(Self { pool: ProcessOwned::new(pool), block_len, count })
    }

    /// Takes a block of full length, and waits for one while all are in use:
    /// [`wait`](Taking::wait), or `.await` with the feature `tokio`. Its bytes are what its last
    /// user left.
    ///
    /// ```
    /// # use iwarp_session::{BlockPool, OperationError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// let pool = BlockPool::new(&pd, 4096, 1)?;
    /// let block = pool.take().wait()?;
    /// let waiting = std::thread::spawn({
    ///     let pool = pool.clone();
    ///     move || pool.take().wait().map(|block| block.len())
    /// });
    /// drop(block); // back to the pool, and to whoever has waited longest
    /// assert_eq!(waiting.join().unwrap()?, 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(&self) -> Taking {
        Taking { pool: self.clone(), ticket: None }
    }

    /// As [`Self::take`]; `None` when all are in use.
    pub fn try_take(&self) -> Option<Block> {
        let pool = self.pool.alive()?;
        pool.take_free().or_else(|| {
            pool.reap();
            pool.take_free()
        })
    }

    /// Takes blocks for a receive of a receiver.
    ///
    /// # Errors
    ///
    /// Its number in the line, when there are not so many: then it is supplied with them later.
    pub(super) fn take_for(
        &self,
        waiter: Weak<dyn Supplied>,
        count: usize,
    ) -> Result<Cargo<Block>, Option<u64>> {
        let pool = self.pool.alive().ok_or(None)?;
        let taken = pool.take_or_join(count, Some(Claim::Receiver(waiter)));
        taken.map(|regions| pool.blocks(regions)).map_err(Some)
    }

    /// Gives up waiting in the line; those behind may need less.
    pub(super) fn leave_line(&self, ticket: u64) {
        if let Some(pool) = self.pool.alive() {
            pool.leave_line(ticket);
        }
    }

    /// The pool's address in memory: an order among pools, common to all.
    pub(super) fn place(&self) -> usize {
        self.pool.alive().map_or(0, |pool| Arc::as_ptr(pool).addr())
    }

    /// Completes operations whose result was dropped, as far as they are done. Returns how long a
    /// blocked thread may sleep after that, if only blocks that come back wake it; `None` if that
    /// suffices.
    pub(super) fn look_after(&self, before: Option<Duration>) -> Option<Duration> {
        let pool = self.pool.alive()?;
        pool.reap();
        pool.has_left().then(|| before.map_or(FIRST_LOOK, |before| (before * 2).min(LAST_LOOK)))
    }

    /// As above, by tasks.
    #[cfg(feature = "tokio")]
    pub(super) fn drive_left(&self) -> Result<(), OperationError> {
        self.pool.alive().map_or(Ok(()), |pool| pool.drive_left())
    }

    /// As [`Self::try_take`], and one more block is allocated where all are in use.
    pub(super) fn take_or_grow(&self) -> Result<Block, RegisterError> {
        let pool = self.pool.alive().ok_or(RegisterError::Exhausted)?;
        let region = pool.shelf().free.pop();
        let region = region.map_or_else(|| allocate(&pool.pd, self.block_len), Ok)?;
        Ok(pool.block(region))
    }

    /// True if operations of that domain can use its blocks.
    pub(super) fn is_of(&self, pd: &ProtectionDomain) -> bool {
        self.pool.alive().is_some_and(|pool| pool.pd == *pd)
    }

    /// Blocks that are in the pool now; 0 in a forked child.
    pub fn available(&self) -> usize {
        let Some(pool) = self.pool.alive() else { return 0 };
        pool.reap();
        pool.shelf().free.len()
    }

    /// Blocks that it was made with.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of each.
    pub fn block_len(&self) -> usize {
        self.block_len
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPool")
            .field("block_len", &self.block_len)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Waiting for a block of a pool: [`wait`](Self::wait) for it, or `.await` it with the feature
/// `tokio`. Waiters are served in the order in which they began.
///
/// # Cancel safety
///
/// Dropping it at any moment loses nothing: a block that it was handed already goes to the next who
/// waits, or back to the pool.
#[must_use = "a block is taken by waiting"]
pub struct Taking {
    pool: BlockPool,
    /// Its place in the line.
    ticket: Option<u64>,
}

impl Taking {
    /// Waits for a block, in this thread.
    ///
    /// # Errors
    ///
    /// [`OperationError::Wait`] in a forked child.
    pub fn wait(self) -> Result<Block, OperationError> {
        self.wait_until(None)
    }

    /// As [`Self::wait`], at most that long.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]; as [`Self::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Block, OperationError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    pub(super) fn wait_until(mut self, deadline: Option<Instant>) -> Result<Block, OperationError> {
        let pool = Arc::clone(self.pool.pool.check().map_err(OperationError::Wait)?);
        if let Some(block) = pool.take_free() {
            return Ok(block);
        }
        let mut pause = None;
        loop {
            pause = self.pool.look_after(pause);
            if let Some(block) = self.advance(&pool, None) {
                return Ok(block);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(OperationError::Timeout);
            }
            let shelf = pool.shelf();
            let ticket = self.ticket;
            if ticket.is_some_and(|ticket| shelf.line.is_served(ticket)) {
                continue;
            }
            // A block that comes back until here is seen above; one that comes now wakes.
            drop(match [left, pause].into_iter().flatten().min() {
                Some(time) => pool.changed.wait_timeout(shelf, time),
                None => pool.changed.wait(shelf),
            });
        }
    }

    /// The block, if there is one; joins the line otherwise.
    fn advance(&mut self, pool: &Arc<Pool>, claim: Option<Claim>) -> Option<Block> {
        let region = match self.ticket {
            None => match pool.take_or_join(1, claim) {
                Ok(region) => region,
                Err(ticket) => {
                    self.ticket = Some(ticket);
                    return None;
                }
            },
            Some(ticket) => {
                let mut shelf = pool.shelf();
                let Some(region) = shelf.line.collect(ticket) else {
                    #[cfg(feature = "tokio")]
                    if let Some(claim) = claim {
                        shelf.line.tell(ticket, claim);
                    }
                    return None;
                };
                self.ticket = None;
                region
            }
        };
        region.one().map(|region| pool.block(region))
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if let (Some(ticket), Some(pool)) = (self.ticket, self.pool.pool.alive()) {
            pool.leave_line(ticket);
        }
    }
}

impl fmt::Debug for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taking").field("pool", &self.pool).finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
impl Future for Taking {
    type Output = Result<Block, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let pool = Arc::clone(this.pool.pool.check().map_err(OperationError::Wait)?);
        let claim = || Some(Claim::Task(context.waker().clone()));
        if let Some(block) = this.advance(&pool, claim()) {
            return Poll::Ready(Ok(block));
        }
        pool.drive_left()?;
        this.advance(&pool, claim()).map_or(Poll::Pending, |block| Poll::Ready(Ok(block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::domain;

    fn shelf(count: usize) -> Shelf {
        let pd = domain();
        Shelf {
            free: (0..count).map(|_| allocate(&pd, 4).unwrap()).collect(),
            line: Line::default(),
        }
    }

    #[test]
    fn a_shelf_gives_all_that_is_asked_for_or_nothing() {
        let mut shelf = shelf(3);
        assert!(shelf.take(4).is_none());
        assert_eq!((shelf.take(2).unwrap().into_iter().count(), shelf.free.len()), (2, 1));
        assert!(matches!(shelf.take(1), Some(Cargo::One(_))));
    }

    #[test]
    fn free_blocks_are_kept_for_the_first_that_waits() {
        let mut shelf = shelf(1);
        let two = shelf.line.join(2, None);
        let one = shelf.line.join(1, None);
        assert!(shelf.take(1).is_none() && shelf.serve().is_none(), "the first needs another");
        shelf.line.leave(two);
        assert!(matches!(shelf.serve(), Some((ticket, None)) if ticket == one));
        assert_eq!(shelf.line.collect(one).map(|taken| taken.into_iter().count()), Some(1));
    }

    #[test]
    fn a_waiter_that_leaves_passes_its_block_on() {
        let pool = BlockPool::new(&domain(), 4, 1).unwrap();
        let only = pool.try_take().unwrap();
        let inner = Arc::clone(pool.pool.alive().unwrap());
        let [first, second] = [(); 2].map(|()| inner.take_or_join(1, None).unwrap_err());
        drop(only);
        let served = |ticket| inner.shelf().line.is_served(ticket);
        assert_eq!([served(first), served(second)], [true, false]);
        inner.leave_line(first);
        assert!(served(second));
        inner.leave_line(second);
        assert_eq!(pool.available(), 1);
    }
}
