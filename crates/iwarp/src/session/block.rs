//! Memory that is the program's or an operation's, and never both.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iwarp_mem::{LentRegion, OwnedRegion, RegisterError};
use iwarp_os::ProcessOwned;
use iwarp_types::Sge;

use crate::session::table::Core;
use crate::verbs::ProtectionDomain;
use crate::verbs::pd::PdCore;

/// Bytes of the largest message, and so of the largest block.
const MAX_BLOCK: usize = 1 << 31;

/// Registered memory that the program owns. While it does, no peer and no operation can reach the
/// bytes, so they are plain slices; an operation takes the block by value and gives it back.
///
/// It has a length of up to its capacity, which is what operations send, write and fill: a
/// received message is the whole slice. Dropping a block of a pool puts it back.
pub struct Block {
    /// Taken only when the block is dropped or lent.
    region: Option<OwnedRegion>,
    len: usize,
    home: ProcessOwned<Home>,
}

/// The pool that a block goes back to.
#[derive(Clone)]
struct Home {
    pd: Arc<PdCore>,
    pool: Option<Arc<Pool>>,
}

impl Home {
    /// Puts a region where it belongs.
    fn take_back(&self, region: Option<OwnedRegion>) {
        if let (Some(region), Some(pool)) = (region, &self.pool) {
            pool.free().push(region);
        }
    }
}

impl Block {
    /// Allocates `len` bytes, zeroed, that belong to no pool.
    ///
    /// # Errors
    ///
    /// `InvalidRange` beyond 2^31 bytes; `Exhausted` and `NoEntropy` when no STag can be had.
    pub fn new(pd: &ProtectionDomain, len: usize) -> Result<Self, RegisterError> {
        let pd = pd.alive()?;
        let region = allocate(pd, len)?;
        let home = ProcessOwned::new(Home { pd: Arc::clone(pd), pool: None });
        Ok(Self { region: Some(region), len, home })
    }

    /// Bytes it can have.
    pub fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.len())
    }

    /// Changes how many bytes it has. Those that come into sight are whatever was there last.
    ///
    /// # Panics
    ///
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a block of {}", self.capacity());
        self.len = len;
    }

    /// Makes `octets` its content.
    ///
    /// # Panics
    ///
    /// If they are more than the capacity.
    pub fn fill_from(&mut self, octets: &[u8]) {
        self.set_len(octets.len());
        self.copy_from_slice(octets);
    }

    /// Whether operations of that domain can use it.
    pub(super) fn is_of(&self, pd: &Arc<PdCore>) -> bool {
        self.home.alive().is_some_and(|home| Arc::ptr_eq(&home.pd, pd))
    }

    /// Hands the bytes to an operation. A forked child cannot lend what it has inherited.
    pub(super) fn lend(mut self) -> Result<Lent, (Self, RegisterError)> {
        let Some(home) = self.home.alive().cloned() else {
            return Err((self, RegisterError::UnknownStag));
        };
        let Some(region) = self.region.take() else { unreachable!("a block has its region") };
        match region.lend() {
            Ok(region) => Ok(Lent { region: Some(region), len: self.len, home }),
            Err((region, error)) => {
                self.region = Some(region);
                Err((self, error))
            }
        }
    }
}

fn allocate(pd: &PdCore, len: usize) -> Result<OwnedRegion, RegisterError> {
    if len > MAX_BLOCK {
        return Err(RegisterError::InvalidRange);
    }
    OwnedRegion::new(&pd.engine.memory, pd.id, len)
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.region.as_ref().map_or(&[], |region| &region[..self.len])
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.region.as_mut().map_or(&mut [], |region| &mut region[..len])
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, capacity) = (self.len, self.capacity());
        f.debug_struct("Block").field("len", &len).field("capacity", &capacity).finish()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let region = self.region.take();
        match self.home.alive() {
            Some(home) => home.take_back(region),
            // Its STag is the parent's.
            None => std::mem::forget(region),
        }
    }
}

/// A block in the hands of an operation.
pub(super) struct Lent {
    /// Taken only when it goes back.
    region: Option<LentRegion>,
    len: usize,
    home: Home,
}

impl Lent {
    /// The element for the block's bytes, or for all of its capacity.
    pub(super) fn sge(&self, whole: bool) -> Sge {
        let Some(region) = &self.region else { return Sge::default() };
        let len = if whole { region.len() } else { self.len };
        Sge { addr: 0, length: u32::try_from(len).unwrap_or(u32::MAX), lkey: region.stag() }
    }

    /// Ends all use of the bytes: afterwards they are the program's again.
    pub(super) fn take_back(mut self) -> Block {
        let region = self.region.take().map(LentRegion::take_back);
        Block { region, len: self.len, home: ProcessOwned::new(self.home.clone()) }
    }

    /// The program waits for the operation no longer; a thread that asks the pool for a block may
    /// look after its completion.
    pub(super) fn leave_to_pool(&self, core: Weak<Core>) {
        if let Some(pool) = &self.home.pool {
            let mut left = pool.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&core));
            left.push(core);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.take_back(self.region.take().map(LentRegion::take_back));
    }
}

/// A fixed number of blocks of one size.
#[derive(Clone)]
pub struct BlockPool {
    pool: ProcessOwned<Arc<Pool>>,
    block_len: usize,
    count: usize,
}

struct Pool {
    pd: Arc<PdCore>,
    free: Mutex<Vec<OwnedRegion>>,
    /// Sessions that have blocks of this pool in operations whose result was dropped.
    left: Mutex<Vec<Weak<Core>>>,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Vec<OwnedRegion>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(self: &Arc<Self>, region: OwnedRegion, len: usize) -> Block {
        let home = Home { pd: Arc::clone(&self.pd), pool: Some(Arc::clone(self)) };
        Block { region: Some(region), len, home: ProcessOwned::new(home) }
    }

    /// Completes operations whose result was dropped, as far as they are done.
    fn reap(&self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        let mut still = Vec::new();
        for core in left {
            if let Some(strong) = core.upgrade() {
                strong.progress();
                if strong.has_left_behind() {
                    still.push(core);
                }
            }
        }
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(still);
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
        Self::of(pd.alive()?, block_len, count)
    }

    pub(super) fn of(
        pd: &Arc<PdCore>,
        block_len: usize,
        count: usize,
    ) -> Result<Self, RegisterError> {
        let blocks = (0..count).map(|_| allocate(pd, block_len));
        let free = Mutex::new(blocks.collect::<Result<_, _>>()?);
        let pool = Arc::new(Pool { pd: Arc::clone(pd), free, left: Mutex::default() });
        Ok(Self { pool: ProcessOwned::new(pool), block_len, count })
    }

    /// Takes a block of full length; its bytes are what its last user left. `None` when all are
    /// in use.
    pub fn take(&self) -> Option<Block> {
        let pool = self.pool.alive()?;
        let mut region = pool.free().pop();
        if region.is_none() {
            pool.reap();
            region = pool.free().pop();
        }
        region.map(|region| pool.block(region, self.block_len))
    }

    /// As [`Self::take`], and one more block is allocated where all are in use.
    pub(super) fn take_or_grow(&self) -> Result<Block, RegisterError> {
        let pool = self.pool.alive().ok_or(RegisterError::Exhausted)?;
        let region = pool.free().pop();
        let region = region.map_or_else(|| allocate(&pool.pd, self.block_len), Ok)?;
        Ok(pool.block(region, self.block_len))
    }

    /// Blocks that are in the pool now; 0 in a forked child.
    pub fn available(&self) -> usize {
        let Some(pool) = self.pool.alive() else { return 0 };
        pool.reap();
        pool.free().len()
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
