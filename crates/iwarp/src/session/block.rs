//! Memory that is the program's or an operation's, and never both.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iwarp_mem::{LentRegion, OwnedRegion, RegisterError};
use iwarp_types::Sge;

use crate::engine::keep_inherited;
use crate::session::table::Core;
use crate::verbs::ProtectionDomain;
use crate::verbs::pd::PdCore;

/// Octets of the largest message, and so of the largest block.
const MAX_BLOCK: usize = 1 << 31;

/// Registered memory that the program owns. While it does, no peer and no operation can reach the
/// octets, so they are plain slices; an operation takes the block by value and gives it back.
///
/// It has a length of up to its capacity, which is what operations send, write and fill: a
/// received message is the whole slice. Dropping a block of a pool puts it back.
pub struct Block {
    /// Taken only when the block is dropped or lent.
    region: Option<OwnedRegion>,
    len: usize,
    home: Home,
}

/// Where a block belongs.
#[derive(Clone)]
struct Home {
    pd: Arc<PdCore>,
    pool: Option<Arc<Pool>>,
}

impl Home {
    /// Puts a region where it belongs. In a forked child nothing can be put anywhere.
    fn take_back<R>(&self, region: Option<R>, own: impl FnOnce(R) -> OwnedRegion) {
        let process = self.pd.engine.process;
        if process.forked() {
            std::mem::forget(region);
            keep_inherited(process, &self.pd);
            self.pool.iter().for_each(|pool| keep_inherited(process, pool));
        } else if let (Some(region), Some(pool)) = (region, &self.pool) {
            pool.free().push(own(region));
        }
    }
}

impl Block {
    /// Allocates `len` octets, zeroed, that belong to no pool.
    ///
    /// # Errors
    ///
    /// `InvalidRange` beyond 2^31 octets; `Exhausted` and `NoEntropy` when no STag can be had.
    pub fn new(pd: &ProtectionDomain, len: usize) -> Result<Self, RegisterError> {
        let region = allocate(&pd.core, len)?;
        Ok(Self { region: Some(region), len, home: Home { pd: Arc::clone(&pd.core), pool: None } })
    }

    /// Octets it can have.
    pub fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.len())
    }

    /// Changes how many octets it has. Those that come into sight are whatever was there last.
    ///
    /// # Panics
    ///
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} octets in a block of {}", self.capacity());
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
    pub(super) fn is_of(&self, pd: &ProtectionDomain) -> bool {
        Arc::ptr_eq(&self.home.pd, &pd.core)
    }

    /// Hands the octets to an operation.
    pub(super) fn lend(mut self) -> Result<Lent, (Self, RegisterError)> {
        let Some(region) = self.region.take() else { unreachable!("a block has its region") };
        match region.lend() {
            Ok(region) => Ok(Lent { region: Some(region), len: self.len, home: self.home.clone() }),
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
    if pd.engine.is_inherited() {
        return Err(RegisterError::Exhausted);
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
        self.home.take_back(self.region.take(), |region| region);
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
    /// The element for the block's octets, or for all of its capacity.
    pub(super) fn sge(&self, whole: bool) -> Sge {
        let Some(region) = &self.region else { return Sge::default() };
        let len = if whole { region.len() } else { self.len };
        Sge { addr: 0, length: u32::try_from(len).unwrap_or(u32::MAX), lkey: region.stag() }
    }

    /// Ends all use of the octets: afterwards they are the program's again.
    pub(super) fn take_back(mut self) -> Block {
        let region = self.region.take().map(LentRegion::take_back);
        Block { region, len: self.len, home: self.home.clone() }
    }

    /// Nobody waits for the operation any more; whoever asks the pool for a block may look after
    /// its completion.
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
        self.home.take_back(self.region.take(), LentRegion::take_back);
    }
}

/// A fixed number of blocks of one size.
#[derive(Clone)]
pub struct BlockPool {
    pool: Arc<Pool>,
    pd: ProtectionDomain,
    block_len: usize,
    count: usize,
}

#[derive(Default)]
struct Pool {
    free: Mutex<Vec<OwnedRegion>>,
    /// Sessions that have blocks of this pool in operations that nobody waits for.
    left: Mutex<Vec<Weak<Core>>>,
}

impl Pool {
    fn free(&self) -> MutexGuard<'_, Vec<OwnedRegion>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes what nobody waits for, as far as it is done.
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
    /// Allocates `count` blocks of `block_len` octets, zeroed.
    ///
    /// # Errors
    ///
    /// As [`Block::new`].
    pub fn new(
        pd: &ProtectionDomain,
        block_len: usize,
        count: usize,
    ) -> Result<Self, RegisterError> {
        let blocks = (0..count).map(|_| allocate(&pd.core, block_len));
        let free = Mutex::new(blocks.collect::<Result<_, _>>()?);
        let pool = Arc::new(Pool { free, ..Pool::default() });
        Ok(Self { pool, pd: pd.clone(), block_len, count })
    }

    /// Takes a block of full length; its octets are what its last user left. `None` when all are
    /// in use.
    pub fn take(&self) -> Option<Block> {
        if self.is_inherited() {
            return None;
        }
        let mut region = self.pool.free().pop();
        if region.is_none() {
            self.pool.reap();
            region = self.pool.free().pop();
        }
        let home = Home { pd: Arc::clone(&self.pd.core), pool: Some(Arc::clone(&self.pool)) };
        region.map(|region| Block { region: Some(region), len: self.block_len, home })
    }

    /// As [`Self::take`], and one more block is allocated where all are in use.
    pub(super) fn take_or_grow(&self) -> Result<Block, RegisterError> {
        if self.is_inherited() {
            return Err(RegisterError::Exhausted);
        }
        let region = self.pool.free().pop();
        let region = region.map_or_else(|| allocate(&self.pd.core, self.block_len), Ok)?;
        let home = Home { pd: Arc::clone(&self.pd.core), pool: Some(Arc::clone(&self.pool)) };
        Ok(Block { region: Some(region), len: self.block_len, home })
    }

    /// Blocks that are in the pool now.
    pub fn available(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        self.pool.reap();
        self.pool.free().len()
    }

    fn is_inherited(&self) -> bool {
        self.pd.core.engine.is_inherited()
    }

    /// Blocks that it was made with.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Octets of each.
    pub fn block_len(&self) -> usize {
        self.block_len
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        keep_inherited(self.pd.core.engine.process, &self.pool);
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
