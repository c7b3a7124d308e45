// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is the program's or an operation's, and never both.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Weak};

use iwarp::verbs::ProtectionDomain;
use iwarp_mem::{LentRegion, OwnedRegion, RegisterError};
use iwarp_os::ProcessOwned;
use iwarp_types::Sge;

#[cfg(feature = "tokio")]
use crate::OperationError;

/// Bytes of the largest message, and so of the largest block.
const MAX_BLOCK: usize = 1 << 31;

/// Registered memory that the program owns. While it does, no peer and no operation can reach the
/// bytes, so they are plain slices; an operation takes the block by value and gives it back.
///
/// The slice is what operations send, write and fill: a received message is the whole slice. It is
/// all of the memory at first, and [`set_len`](Self::set_len) and [`set_range`](Self::set_range)
/// make it a part. Dropping a block of a pool puts it back.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// use iwarp_session::Block;
///
/// let mut block = Block::new(&pd, 64)?;
/// block.fill_from(b"header: body");
/// block.set_range(8..12);
/// assert_eq!(&*block, b"body"); // and so `session.send(block)` sends these 4 bytes
/// block.set_len(block.capacity());
/// # Ok(())
/// # }
/// ```
pub struct Block {
    /// Taken only when the block is dropped or lent.
    region: Option<OwnedRegion>,
    range: Range<usize>,
    source: ProcessOwned<Arc<dyn Source>>,
}

/// The stock that blocks come from and go back to.
pub(super) trait Source: Send + Sync {
    fn pd(&self) -> &ProtectionDomain;
    /// Takes a block's memory back.
    fn put(self: Arc<Self>, region: OwnedRegion);
    /// The program waits no longer for an operation that has a block of it.
    fn note_left(&self, by: Weak<dyn Borrower>);
    /// No task looks after an operation that has a block from now on: the waiters for blocks have
    /// to.
    fn look_again(&self);
}

/// The table of operations that have blocks, for those who wait for the blocks.
pub(super) trait Borrower: Send + Sync {
    /// Completes the operations that are done.
    fn progress(&self);
    /// True while operations are under way whose result was dropped.
    fn has_left_behind(&self) -> bool;
    /// Sees to it that a task looks after them.
    #[cfg(feature = "tokio")]
    fn ensure_driven(self: Arc<Self>) -> Result<(), OperationError>;
}

/// The source of a block that comes from no stock.
struct Alone(ProtectionDomain);

impl Source for Alone {
    fn pd(&self) -> &ProtectionDomain {
        &self.0
    }

    fn put(self: Arc<Self>, region: OwnedRegion) {
        drop(region);
    }

    fn note_left(&self, _: Weak<dyn Borrower>) {}

    fn look_again(&self) {}
}

impl Block {
    /// Allocates `len` bytes, zeroed, that belong to no pool.
    ///
    /// # Errors
    ///
    /// `InvalidRange` beyond 2^31 bytes; `Exhausted` and `NoEntropy` when no STag can be had.
    pub fn new(pd: &ProtectionDomain, len: usize) -> Result<Self, RegisterError> {
        let region = allocate(pd, len)?;
        Ok(Self::of(Arc::new(Alone(pd.clone())), region))
    }

    /// Bytes it can have.
    pub fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.len())
    }

    /// Makes it the first `len` bytes of its memory. Bytes that come into sight have their last
    /// values.
    ///
    /// # Panics
    ///
    /// Beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.set_range(0..len);
    }

    /// Makes it a part of its memory, as [`Self::set_len`] does. A receive fills all of it
    /// nevertheless, from the first byte on.
    ///
    /// # Panics
    ///
    /// Beyond the capacity, and where it ends before it starts.
    pub fn set_range(&mut self, range: Range<usize>) {
        let capacity = self.capacity();
        assert!(range.start <= range.end, "bytes {range:?} of a block");
        assert!(range.end <= capacity, "bytes {range:?} of a block of {capacity}");
        self.range = range;
    }

    /// The part of its memory that it is.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Makes `octets` its content, from the start of its memory on.
    ///
    /// # Panics
    ///
    /// If they are more than the capacity.
    pub fn fill_from(&mut self, octets: &[u8]) {
        self.set_len(octets.len());
        self.copy_from_slice(octets);
    }

    /// One of a source.
    pub(super) fn of(source: Arc<dyn Source>, region: OwnedRegion) -> Self {
        let range = 0..region.len();
        Self { region: Some(region), range, source: ProcessOwned::new(source) }
    }

    /// True if operations of that domain can use it.
    pub(super) fn is_of(&self, pd: &ProtectionDomain) -> bool {
        self.source.alive().is_some_and(|source| source.pd() == pd)
    }

    /// Hands the bytes to an operation. A forked child cannot lend what it has inherited.
    pub(super) fn lend(mut self) -> Result<Lent, (Self, RegisterError)> {
        let Some(source) = self.source.take_alive() else {
            return Err((self, RegisterError::UnknownStag));
        };
        let Some(region) = self.region.take() else { unreachable!("a block has its region") };
        match region.lend() {
            Ok(region) => Ok(Lent { held: Some((region, source)), range: self.range() }),
            Err((region, error)) => {
                self.region = Some(region);
                self.source = ProcessOwned::new(source);
                Err((self, error))
            }
        }
    }
}

pub(super) fn allocate(pd: &ProtectionDomain, len: usize) -> Result<OwnedRegion, RegisterError> {
    if len > MAX_BLOCK {
        return Err(RegisterError::InvalidRange);
    }
    OwnedRegion::new(pd.memory()?, pd.id(), len)
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.region.as_ref().map_or(&[], |region| &region[self.range()])
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        self.region.as_mut().map_or(&mut [], |region| &mut region[range])
    }
}

/// Among what takes an owner of bytes is `bytes::Bytes::from_owner(block)`: slices of a message
/// without a copy, the last of which gives the block back.
impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, capacity) = (&self.range, self.capacity());
        f.debug_struct("Block").field("range", range).field("capacity", &capacity).finish()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // One that was lent has neither.
        let Some(region) = self.region.take() else { return };
        match self.source.take_alive() {
            Some(source) => source.put(region),
            // Its STag is the parent's.
            None => std::mem::forget(region),
        }
    }
}

/// A block in the hands of an operation.
pub(super) struct Lent {
    /// Taken only when it goes back.
    held: Option<(LentRegion, Arc<dyn Source>)>,
    range: Range<usize>,
}

impl Lent {
    /// The element for the block's bytes, or for all of its capacity.
    pub(super) fn sge(&self, whole: bool) -> Sge {
        let Some((region, _)) = &self.held else { return Sge::default() };
        let range = if whole { 0..region.len() } else { self.range.clone() };
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Sge { addr: range.start as u64, length, lkey: region.stag() }
    }

    /// Ends all use of the bytes: afterwards they are the program's again.
    pub(super) fn take_back(mut self) -> Block {
        let Some((region, source)) = self.held.take() else { unreachable!("it goes back once") };
        let (region, range) = (region.take_back(), self.range.clone());
        Block { region: Some(region), range, source: ProcessOwned::new(source) }
    }

    /// The program waits for the operation of `borrower` no longer; a thread that asks the source
    /// for a block may look after its completion. The source that has to [look
    /// again](Source::look_again) then.
    pub(super) fn leave_to_source(&self, borrower: Weak<dyn Borrower>) -> Option<Arc<dyn Source>> {
        let source = self.source()?;
        source.note_left(borrower);
        Some(source)
    }

    pub(super) fn source(&self) -> Option<Arc<dyn Source>> {
        self.held.as_ref().map(|(_, source)| Arc::clone(source))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some((region, source)) = self.held.take() {
            source.put(region.take_back());
        }
    }
}
