// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives that are posted anew as their blocks come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use iwarp_os::bell::Bell;
use iwarp_types::{WcOp, WcStatus, WorkCompletion};

use crate::balance::{Balance, SPARE};
use crate::cargo::Cargo;
use crate::pool::Supplied;
use crate::table::{Core, WhenConnected};
use crate::{Block, BlockPool, OperationError};

/// Keeps a number of receives of a session posted, with blocks of one pool or of several. While the
/// feed lacks one, the thread that gives a block back posts it, in that call.
pub(super) struct Feed {
    core: Weak<Core>,
    stock: Stock,
    /// The peer's word about its own receives, where the ends tell each other.
    balance: Option<Arc<Balance>>,
    state: Mutex<FeedState>,
    /// Told when a receive was posted, or none will be.
    changed: Bell,
}

#[derive(Default)]
struct FeedState {
    /// Receives that are to be posted.
    depth: usize,
    /// Receives in the order of posting, in which they are done, too.
    posted: VecDeque<u64>,
    /// Receives done with a message, if the ends tell each other of their receives.
    messages: VecDeque<(WorkCompletion, Cargo<Block>)>,
    /// Blocks for more receives, grouped by receive.
    blocks: Vec<Cargo<Block>>,
    /// A thread is posting `blocks`, with those of one in its hands.
    posting: bool,
    /// It is in a pool's line, or about to be.
    waiting: bool,
    /// The pool, and its number in the line there, which may be an old one, out of use.
    ticket: Option<(BlockPool, u64)>,
    /// Blocks of the one that it waits for, as far as it has them, in the order of
    /// [`Stock::shares`].
    gathered: Vec<Block>,
    /// The reason why it posts no more.
    over: Option<OperationError>,
    /// The messages of its receives are not asked for any more.
    stopped: bool,
    account: Account,
    #[cfg(feature = "tokio")]
    waker: Option<Waker>,
}

/// The receives that the peer is to know, counted from the beginning.
#[derive(Default)]
struct Account {
    /// Receives that were posted.
    posted: u64,
    /// Messages that came.
    messages: u64,
    /// The number of times that the peer has said something.
    words: u64,
    /// Receives of those that are about to be posted again.
    again: usize,
    /// The number that it has said last, not acted upon before those are posted: the peer counts on
    /// them.
    heard: Option<u32>,
    /// Messages that the peer was told it may send.
    told: u64,
    /// A thread is at it, and is to look once more.
    settling: bool,
    unsettled: bool,
}

impl FeedState {
    fn count(&self) -> usize {
        let taken = self.messages.len() + self.account.again;
        self.posted.len() + taken + self.blocks.len() + usize::from(self.posting)
    }

    /// Takes the receives that are done: messages are kept, and what the peer says is returned.
    fn sort(&mut self, core: &Core, ended: &mut bool) -> Vec<(u32, Cargo<Block>)> {
        let mut words = Vec::new();
        while let Some(&id) = self.posted.front() {
            // Receives are in no batch, so each has a completion.
            let Some((Ok(completion), cargo)) = core.take(id) else { break };
            self.posted.pop_front();
            let good = completion.status == WcStatus::Success;
            *ended |= !good;
            // Immediate data of other operations is the program's.
            let is_word = completion.op == WcOp::Recv && completion.byte_len == 0;
            match completion.immediate {
                Some([a, b, c, d, ..]) if good && is_word => {
                    self.account.words += 1;
                    self.account.again += 1;
                    words.push((u32::from_be_bytes([a, b, c, d]), cargo));
                }
                _ => {
                    self.account.messages += 1;
                    self.messages.push_back((completion, cargo));
                }
            }
        }
        words
    }

    /// The number that the peer is to be told now, if any.
    fn grant(&mut self) -> Option<u64> {
        let Account { posted, messages, words, told, .. } = self.account;
        let total = posted.saturating_sub(words + SPARE as u64);
        let more = total.saturating_sub(told);
        let half = (self.depth.saturating_sub(SPARE) as u64).div_ceil(2);
        // It has used up all that it knows of.
        let is_out = messages == told;
        (more > 0 && (more >= half || is_out)).then_some(total)
    }
}

/// Pools that the blocks of a receive come from.
pub struct Stock {
    /// In the order in which a message fills their blocks.
    pools: Vec<BlockPool>,
    /// The pools one by one, in an order that all receivers keep to: so no two wait for each
    /// other's blocks.
    shares: Vec<PoolShare>,
    /// The program gets one block, and not a list of them.
    single: bool,
}

struct PoolShare {
    pool: BlockPool,
    /// Which blocks of the receive are of this pool.
    places: Vec<usize>,
}

impl Stock {
    pub(super) fn new(pools: Vec<BlockPool>, single: bool) -> Self {
        let mut order: Vec<_> = (0..pools.len()).collect();
        order.sort_by_key(|n| pools[*n].place());
        let same = |one: &usize, other: &usize| pools[*one].place() == pools[*other].place();
        let share =
            |places: &[usize]| PoolShare { pool: pools[places[0]].clone(), places: places.into() };
        let shares = order.chunk_by(same).map(share).collect();
        Self { pools, shares, single }
    }

    pub(super) fn pools(&self) -> &[BlockPool] {
        &self.pools
    }

    /// True if the pools were made with the blocks of one receive. A feed that waits for more holds
    /// up all behind it in the line for ever.
    pub(super) fn has_enough(&self) -> bool {
        let enough = |share: &PoolShare| share.places.len() <= share.pool.count().max(1);
        self.shares.iter().all(enough)
    }

    /// The share that comes after so many blocks; `None` when that is all.
    fn share(&self, gathered: usize) -> Option<&PoolShare> {
        let mut before = 0;
        self.shares.iter().find(|share| {
            before += share.places.len();
            gathered < before
        })
    }

    /// The blocks in the order in which a message fills them.
    fn arrange(&self, gathered: &mut Vec<Block>) -> Cargo<Block> {
        if self.single {
            return gathered.pop().into();
        }
        let places = self.shares.iter().flat_map(|share| &share.places);
        let mut blocks: Vec<_> = places.zip(gathered.drain(..)).collect();
        blocks.sort_unstable_by_key(|(place, _)| **place);
        Cargo::Several(blocks.into_iter().map(|(_, block)| block).collect())
    }
}

impl Feed {
    pub(super) fn new(
        core: &Arc<Core>,
        stock: Stock,
        depth: usize,
        balance: Option<Arc<Balance>>,
    ) -> Arc<Self> {
        let depth = depth.max(1) + if balance.is_some() { SPARE } else { 0 };
        let feed = Arc::new(Self {
            core: Arc::downgrade(core),
            stock,
            balance,
            state: Mutex::new(FeedState { depth, ..FeedState::default() }),
            changed: Bell::new(),
        });
        feed.fill();
        feed
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pools(&self) -> &[BlockPool] {
        self.stock.pools()
    }

    /// The pool in whose line it is, if it waits for blocks.
    pub(super) fn waits_for(&self) -> Option<&BlockPool> {
        let state = self.lock();
        let share = self.stock.share(state.gathered.len()).filter(|_| state.waiting)?;
        Some(&share.pool)
    }

    /// Posts as many receives as it lacks and the pools have blocks for; for the others it waits in
    /// the line of a pool.
    pub(super) fn fill(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.waiting || state.over.is_some() || state.count() >= state.depth {
                return;
            }
            // Before it joins the line: it may be served at once.
            state.waiting = true;
            drop(state);
            let blocks = match self.stock.shares.first() {
                Some(share) => self.take(share),
                None => Some(Cargo::None),
            };
            if !blocks.is_some_and(|blocks| self.gather(blocks)) {
                return;
            }
        }
    }

    /// Takes what is lacking of one receive beside these blocks, one share after another, and posts
    /// it. False when it has to wait in the line.
    fn gather(self: &Arc<Self>, mut more: Cargo<Block>) -> bool {
        loop {
            let (share, surplus) = {
                let mut state = self.lock();
                if state.over.is_none() {
                    state.gathered.extend(more.take());
                }
                match self.stock.share(state.gathered.len()) {
                    _ if state.over.is_some() => (None, std::mem::take(&mut state.gathered)),
                    Some(share) => (Some(share), Vec::new()),
                    None => {
                        let blocks = self.stock.arrange(&mut state.gathered);
                        state.waiting = false;
                        self.post_locked(state, blocks);
                        return true;
                    }
                }
            };
            // Not while it is locked: they go back to their pools.
            drop((surplus, more.take()));
            match share.and_then(|share| self.take(share)) {
                Some(blocks) => more = blocks,
                None => return false,
            }
        }
    }

    /// Takes the blocks of a share, or waits in the line for them.
    fn take(self: &Arc<Self>, share: &PoolShare) -> Option<Cargo<Block>> {
        let waiter = Arc::downgrade(self) as Weak<dyn Supplied>;
        let ticket = match share.pool.take_for(waiter, share.places.len()) {
            Ok(blocks) => return Some(blocks),
            Err(ticket) => ticket?,
        };
        let mut state = self.lock();
        let is_over = state.over.is_some();
        state.ticket = Some((share.pool.clone(), ticket));
        drop(state);
        if is_over {
            // It was not known when it stopped.
            share.pool.leave_line(ticket);
        }
        None
    }

    /// One thread at a time posts, so that the order is known. Another thread, or this one again
    /// where posting has completed operations, leaves it the blocks.
    fn post_locked<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, FeedState>,
        blocks: Cargo<Block>,
    ) {
        state.blocks.push(blocks);
        if state.posting {
            return;
        }
        state.posting = true;
        while let Some(blocks) = state.blocks.pop() {
            if state.over.is_some() {
                drop(state);
                drop(blocks);
                state = self.lock();
                continue;
            }
            drop(state);
            let core = self.core.upgrade();
            let posted = match &core {
                Some(core) => core.post_recv(blocks, &[]).map_err(|failure| failure.error),
                None => Err(OperationError::Disconnected),
            };
            state = self.lock();
            match posted {
                Ok(id) if state.stopped => {
                    // It came too late for those that were left when it stopped.
                    drop(state);
                    core.into_iter().for_each(|core| core.leave(id));
                    state = self.lock();
                }
                Ok(id) => {
                    state.posted.push_back(id);
                    state.account.posted += 1;
                }
                // The program has posted others itself: it gets along with those that there are.
                Err(OperationError::QueueFull) if !state.posted.is_empty() => {
                    state.depth = state.posted.len();
                }
                Err(error) => state.over = Some(error),
            }
        }
        state.posting = false;
        self.tell(state);
        self.settle();
    }

    /// Looks after what the ends tell each other: takes the peer's word where it has come, tells it
    /// of receives that it does not know of, and sees to it that this is called again when the next
    /// receive is done, by the thread that completes it.
    pub(super) fn settle(self: &Arc<Self>) {
        let Some(balance) = &self.balance else { return };
        let Some(core) = self.core.upgrade() else { return };
        let mut state = self.lock();
        if std::mem::replace(&mut state.account.settling, true) {
            state.account.unsettled = true;
            return;
        }
        loop {
            state.account.unsettled = false;
            let mut ended = false;
            let words = state.sort(&core, &mut ended);
            let told = if core.qp.is_connected() { state.grant() } else { None };
            let front = state.posted.front().copied();
            let waker = || Waker::from(Arc::clone(self));
            ended |= state.over.is_some();
            drop(state);
            let mut again = !words.is_empty();
            for (total, blocks) in words {
                let mut state = self.lock();
                state.account.again -= 1;
                state.account.heard = Some(total);
                // Not by way of the pool: the peer counts on them.
                self.post_locked(state, blocks);
            }
            let heard = {
                let mut state = self.lock();
                // A thread that posts calls this when it is done.
                let posted = state.blocks.is_empty() && !state.posting;
                if posted { state.account.heard.take() } else { None }
            };
            if let Some(total) = heard {
                balance.grant(total, &core);
            }
            #[allow(clippy::cast_possible_truncation, reason = "the peer puts the rest in front")]
            if let Some(total) = told {
                match core.post_word((total as u32).to_be_bytes(), &waker()) {
                    Ok(()) => self.lock().account.told = total,
                    // One that was sent before is not done: then this is called again.
                    Err(OperationError::QueueFull) => {}
                    Err(_) => ended = true,
                }
            }
            if ended {
                balance.close(&core);
            }
            again |= front.is_some_and(|id| !core.wake_when_done(id, &waker()));
            state = self.lock();
            again |= state.account.unsettled || state.posted.front().copied() != front;
            if !again {
                break;
            }
        }
        state.account.settling = false;
        self.tell(state);
    }

    fn tell(&self, state: MutexGuard<'_, FeedState>) {
        #[cfg(feature = "tokio")]
        let mut state = state;
        #[cfg(feature = "tokio")]
        let waker = state.waker.take();
        drop(state);
        self.changed.ring();
        #[cfg(feature = "tokio")]
        waker.into_iter().for_each(Waker::wake);
    }

    /// The receive that is done first.
    pub(super) fn front(&self) -> Option<u64> {
        self.lock().posted.front().copied()
    }

    /// The end of the first receive that brought the program something.
    pub(super) fn next(self: &Arc<Self>, core: &Core) -> Option<(WorkCompletion, Cargo<Block>)> {
        if self.balance.is_some() {
            let sorted = self.lock().messages.pop_front();
            return sorted.or_else(|| {
                self.settle();
                self.lock().messages.pop_front()
            });
        }
        let mut state = self.lock();
        let (end, cargo) = core.take(*state.posted.front()?)?;
        state.posted.pop_front();
        // As above.
        Some((end.ok()?, cargo))
    }

    /// True if messages wait that came before the receives that are posted.
    pub(super) fn has_messages(&self) -> bool {
        !self.lock().messages.is_empty()
    }

    /// The reason why it posts no more, where nothing is posted any more either.
    pub(super) fn take_over(&self) -> Option<OperationError> {
        let mut state = self.lock();
        let none = state.posted.is_empty() && state.messages.is_empty();
        match none && state.blocks.is_empty() && !state.posting {
            // Told once; afterwards it is the connection's end.
            true => state
                .over
                .as_mut()
                .map(|over| std::mem::replace(over, OperationError::Disconnected)),
            false => None,
        }
    }

    /// Posts no more; what is posted.
    pub(super) fn stop(&self) -> VecDeque<u64> {
        let mut state = self.lock();
        state.over.get_or_insert(OperationError::Disconnected);
        state.stopped = true;
        let messages = std::mem::take(&mut state.messages);
        let posted = std::mem::take(&mut state.posted);
        let ticket = state.ticket.take();
        let gathered = std::mem::take(&mut state.gathered);
        drop(state);
        if let Some((pool, ticket)) = ticket {
            // A waiter behind it may need less than it did.
            pool.leave_line(ticket);
        }
        // Not while it is locked: their blocks go back to the pool.
        drop((messages, gathered));
        if let (Some(balance), Some(core)) = (&self.balance, self.core.upgrade()) {
            // The peer's words are heard no more.
            balance.close(&core);
        }
        posted
    }

    /// Receives that are posted and wait for a message.
    pub(super) fn posted(&self) -> usize {
        let Some(core) = self.core.upgrade() else { return 0 };
        self.lock().posted.iter().filter(|id| !core.is_done(**id)).count()
    }

    /// Has a task told of what is posted next. False where something is posted, or will never be.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_when_posted(&self, by: &Waker) -> bool {
        let mut state = self.lock();
        if !state.posted.is_empty() || !state.messages.is_empty() || state.over.is_some() {
            return false;
        }
        state.waker = Some(by.clone());
        true
    }

    /// Has a task told when a message was kept, or none will be. False where there is one.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_when_kept(&self, by: &Waker) -> bool {
        let mut state = self.lock();
        if !state.messages.is_empty() || (state.posted.is_empty() && state.over.is_some()) {
            return false;
        }
        state.waker = Some(by.clone());
        true
    }

    /// True if the ends tell each other of their receives.
    #[cfg(feature = "tokio")]
    pub(super) const fn is_credited(&self) -> bool {
        self.balance.is_some()
    }

    /// Blocks until a receive is posted, or none will be; at most that long.
    pub(super) fn wait_posted(&self, deadline: Option<Instant>, pause: Option<Duration>) {
        let state = self.lock();
        if !state.posted.is_empty() || !state.messages.is_empty() || state.over.is_some() {
            return;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        drop(match [left, pause].into_iter().flatten().min() {
            Some(time) => self.changed.wait_timeout(state, time),
            None => self.changed.wait(state),
        });
    }
}

/// A receive is done, or no task looks after the session any more.
impl Wake for Feed {
    fn wake(self: Arc<Self>) {
        self.settle();
        #[cfg(feature = "tokio")]
        if let (Some(balance), Some(core)) = (&self.balance, self.core.upgrade())
            && !core.is_driven()
        {
            // One that waits for credits has to.
            balance.look_again();
        }
    }
}

impl Supplied for Feed {
    fn supply(self: Arc<Self>, blocks: Cargo<Block>) {
        if self.gather(blocks) {
            self.fill();
        }
    }

    fn look_again(&self) {
        self.tell(self.lock());
    }
}

impl WhenConnected for Feed {
    fn connected(self: Arc<Self>) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::domain;

    /// The state of a feed of a window of 8 that has posted so many receives.
    fn state(account: Account) -> FeedState {
        FeedState { depth: 8 + SPARE, account, ..FeedState::default() }
    }

    /// The spare receives are for the peer's words, of which the peer is not told.
    #[test]
    fn a_grant_leaves_the_spare_receives_out() {
        let granted = |posted, words, messages, told| {
            state(Account { posted, words, messages, told, ..Account::default() }).grant()
        };
        assert_eq!(granted(SPARE as u64, 0, 0, 0), None);
        assert_eq!(granted(10, 0, 0, 0), Some(8));
        // A word has used up a receive, which was posted again.
        assert_eq!(granted(11, 1, 0, 8), None);
        assert_eq!(granted(1, 1, 0, 0), None, "fewer than the spare ones");
    }

    #[test]
    fn a_grant_waits_for_half_the_window_or_for_a_peer_that_is_out() {
        let granted = |posted, messages| {
            state(Account { posted, messages, told: 8, ..Account::default() }).grant()
        };
        assert_eq!(granted(13, 5), None, "three more");
        assert_eq!(granted(14, 5), Some(12), "four more");
        assert_eq!(granted(11, 8), Some(9), "one more, for a peer without any");
        assert_eq!(granted(10, 8), None, "none more");
    }

    fn stock(pools: &[&BlockPool], single: bool) -> Stock {
        Stock::new(pools.iter().map(|pool| (*pool).clone()).collect(), single)
    }

    #[test]
    fn a_pool_is_in_one_share_however_often_it_is_named() {
        let pd = domain();
        let [one, two] = [4, 8].map(|len| BlockPool::new(&pd, len, 2).unwrap());
        let stock = stock(&[&one, &two, &one], false);
        let taken: Vec<usize> = stock.shares.iter().map(|share| share.places.len()).collect();
        assert_eq!((taken.len(), taken.iter().sum::<usize>()), (2, 3));
        let first = taken[0];
        let name = |gathered| stock.share(gathered).map(|share| share.pool.block_len());
        assert_eq!(name(first - 1), Some(stock.shares[0].pool.block_len()));
        assert_eq!((name(first), name(3)), (Some(stock.shares[1].pool.block_len()), None));
    }

    /// They are gathered pool by pool, in an order that the program knows nothing of.
    #[test]
    fn blocks_are_arranged_as_the_pools_were_named() {
        let pd = domain();
        let [one, two] = [4, 8].map(|len| BlockPool::new(&pd, len, 2).unwrap());
        for pools in [[&one, &two, &one], [&two, &one, &two]] {
            let stock = stock(&pools, false);
            let from =
                stock.shares.iter().flat_map(|share| share.places.iter().map(|_| &share.pool));
            let mut gathered: Vec<Block> = from.map(|pool| pool.try_take().unwrap()).collect();
            let arranged = stock.arrange(&mut gathered).several().unwrap();
            let lens: Vec<usize> = arranged.iter().map(|block| block.capacity()).collect();
            assert_eq!(lens, pools.map(BlockPool::block_len));
        }
    }

    #[test]
    fn a_pool_that_is_named_more_often_than_it_has_blocks_is_not_enough() {
        let pool = |count| BlockPool::new(&domain(), 4, count).unwrap();
        let two = pool(2);
        assert!(stock(&[&two, &two], false).has_enough());
        assert!(!stock(&[&two, &two, &two], false).has_enough());
        assert!(stock(&[&pool(0)], true).has_enough(), "it may be given blocks later");
    }
}
