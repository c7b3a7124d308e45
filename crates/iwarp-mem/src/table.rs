//! From STag to slot.
//!
//! Indices are drawn at random from the whole range, so that knowing some STags says nothing about
//! the others, and a freed one rests for long before it can be drawn again (RFC 5040 §8.1.1,
//! RFC 5042 §6.1.1). A lookup takes no lock: two loads lead to a slot that is never freed while the
//! table lives, and the slot's gate decides whether it still serves that STag.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp_proto::types::Stag;

use crate::random::Random;
use crate::region::RegisterError;
use crate::slot::{Kind, Slot};

/// Indices end here: those with the top bit set name read sinks on the wire.
const INDICES: u32 = 1 << 23;
/// STags in use at one time. Half the range, so that a few draws find a free index.
const MOST: usize = 1 << 22;
/// Freed indices that rest before they can be drawn again.
const RESTING: usize = 1 << 20;

const CHUNK: usize = 64;
const CHUNKS: usize = INDICES as usize / CHUNK;

type Chunk = [AtomicPtr<Slot>; CHUNK];

/// The STag table of one device.
pub(crate) struct StagTable {
    /// Chunks of slot pointers, made when first needed; untouched parts stay zero pages.
    chunks: Box<[AtomicPtr<Chunk>]>,
    admin: Mutex<Admin>,
    /// Regions and bound windows that only one stream can use, so that the end of a stream need
    /// not look at a million STags when there are none.
    pub(crate) stream_bound: AtomicUsize,
}

struct Admin {
    random: Random,
    /// One bit for each index that is in use or resting.
    taken: Box<[u64]>,
    resting: VecDeque<u32>,
    in_use: usize,
    /// Every slot there is, owned.
    all: Vec<*mut Slot>,
    idle_regions: Vec<*mut Slot>,
    idle_windows: Vec<*mut Slot>,
}

// SAFETY: the pointers are owning pointers to `Slot`, which is `Send + Sync`.
unsafe impl Send for Admin {}

impl StagTable {
    pub(crate) fn new() -> Self {
        let mut admin = Admin {
            random: Random::new(),
            taken: vec![0; INDICES as usize / 64].into_boxed_slice(),
            resting: VecDeque::new(),
            in_use: 0,
            all: Vec::new(),
            idle_regions: Vec::new(),
            idle_windows: Vec::new(),
        };
        // Index 0 is never given out: STag 0 must not be usable.
        admin.taken[0] |= 1;
        Self {
            chunks: zeroed_chunks(),
            admin: Mutex::new(admin),
            stream_bound: AtomicUsize::new(0),
        }
    }

    /// The slot that serves the index of `stag`, or did so a moment ago.
    #[inline]
    pub(crate) fn lookup(&self, stag: Stag) -> Option<&Slot> {
        let index = stag.index() as usize;
        let chunk = self.chunks.get(index / CHUNK)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks are published once, whole, and freed only when the table is dropped.
        let slot = unsafe { &*chunk }[index % CHUNK].load(Ordering::Acquire);
        // SAFETY: the same holds for slots.
        unsafe { slot.as_ref() }
    }

    /// Draws an index and a key and ties them to a slot, which has no owner yet and grants nothing.
    pub(crate) fn allocate(&self, kind: Kind) -> Result<(Stag, &Slot), RegisterError> {
        let mut admin = self.admin();
        if admin.in_use == MOST {
            return Err(RegisterError::Exhausted);
        }
        let key = admin.random.next_u32()? as u8;
        let index = admin.draw_index()?;
        let slot = admin.slot(kind);
        admin.in_use += 1;
        let place = &self.chunk(index)[index as usize % CHUNK];
        place.store(slot, Ordering::Release);
        // SAFETY: slots live as long as the table.
        Ok((Stag(index << 8 | u32::from(key)), unsafe { &*slot }))
    }

    /// Takes `stag` out of use. Its slot must grant nothing and have no owner.
    pub(crate) fn release(&self, stag: Stag) {
        let index = stag.index();
        let mut admin = self.admin();
        let place = &self.chunk(index)[index as usize % CHUNK];
        let slot = place.swap(ptr::null_mut(), Ordering::AcqRel);
        assert!(!slot.is_null(), "an STag is released once");
        // SAFETY: slots live as long as the table.
        match unsafe { &*slot }.kind() {
            Kind::Region => admin.idle_regions.push(slot),
            Kind::Window => admin.idle_windows.push(slot),
        }
        admin.in_use -= 1;
        admin.resting.push_back(index);
        if admin.resting.len() > RESTING {
            let rested = admin.resting.pop_front().expect("more than none are resting");
            admin.taken[rested as usize / 64] &= !(1 << (rested % 64));
        }
    }

    /// The same index under another key.
    pub(crate) fn with_fresh_key(&self, stag: Stag) -> Result<Stag, RegisterError> {
        let mut admin = self.admin();
        // Drawn from the 255 others.
        let step = (admin.random.next_u32()? % 255) as u8 + 1;
        Ok(Stag(stag.0 & !0xff | u32::from(stag.key().wrapping_add(step))))
    }

    /// STags in use.
    pub(crate) fn in_use(&self) -> usize {
        self.admin().in_use
    }

    /// Every STag that has an owner at some moment during the call.
    pub(crate) fn owned(&self) -> Vec<Stag> {
        let slots = self.admin().all.clone();
        // Not under the table's lock: a slot's lock may be held while something is revoked.
        // SAFETY: slots live as long as the table.
        slots.iter().filter_map(|&slot| unsafe { &*slot }.control().stag()).collect()
    }

    fn chunk(&self, index: u32) -> &Chunk {
        let place = &self.chunks[index as usize / CHUNK];
        let mut chunk = place.load(Ordering::Acquire);
        if chunk.is_null() {
            // Only under the lock of `admin`, so nobody else makes it meanwhile.
            chunk = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK]));
            place.store(chunk, Ordering::Release);
        }
        // SAFETY: chunks are freed only when the table is dropped.
        unsafe { &*chunk }
    }

    fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StagTable {
    fn drop(&mut self) {
        let admin = self.admin.get_mut().unwrap_or_else(PoisonError::into_inner);
        for &slot in &admin.all {
            // SAFETY: made by `Box::into_raw` in `Admin::slot`, freed only here, and whoever
            // borrowed it borrowed the table.
            drop(unsafe { Box::from_raw(slot) });
        }
        for chunk in &mut self.chunks {
            let chunk = *chunk.get_mut();
            if !chunk.is_null() {
                // SAFETY: made by `Box::into_raw` in `StagTable::chunk`; as above.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

impl Admin {
    fn draw_index(&mut self) -> Result<u32, RegisterError> {
        // At most 5 of 8 are taken, so this ends: 200 draws in a row fail once in 2^135.
        for _ in 0..200 {
            let index = self.random.next_u32()? % INDICES;
            let (word, bit) = (index as usize / 64, 1 << (index % 64));
            if self.taken[word] & bit == 0 {
                self.taken[word] |= bit;
                return Ok(index);
            }
        }
        Err(RegisterError::Exhausted)
    }

    fn slot(&mut self, kind: Kind) -> *mut Slot {
        let idle = match kind {
            Kind::Region => &mut self.idle_regions,
            Kind::Window => &mut self.idle_windows,
        };
        idle.pop().unwrap_or_else(|| {
            let slot = Box::into_raw(Box::new(Slot::new(kind)));
            self.all.push(slot);
            slot
        })
    }
}

/// Zeroed by the allocator, which for this size means pages that cost nothing until touched.
fn zeroed_chunks() -> Box<[AtomicPtr<Chunk>]> {
    let layout = Layout::array::<AtomicPtr<Chunk>>(CHUNKS).expect("a constant that fits");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    let memory = ptr::slice_from_raw_parts_mut(memory.cast::<AtomicPtr<Chunk>>(), CHUNKS);
    // SAFETY: allocated with the layout of this slice, and a null pointer is all zeros.
    unsafe { Box::from_raw(memory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_0_is_never_drawn() {
        let table = StagTable::new();
        let mut admin = table.admin();
        let zero = admin.taken[0];
        admin.taken.fill(u64::MAX);
        admin.taken[0] = zero | !1;
        assert_eq!(admin.taken[0], u64::MAX, "taken from the start");
        assert_eq!(admin.draw_index(), Err(RegisterError::Exhausted));
    }

    #[test]
    fn what_has_rested_long_enough_may_be_drawn_again() {
        let table = StagTable::new();
        let (first, _) = table.allocate(Kind::Window).unwrap();
        table.release(first);
        let taken = |stag: Stag| {
            table.admin().taken[stag.index() as usize / 64] >> (stag.index() % 64) & 1 == 1
        };
        for _ in 0..RESTING - 1 {
            let (stag, _) = table.allocate(Kind::Window).unwrap();
            table.release(stag);
        }
        assert!(taken(first), "rests while there is room");
        let (stag, _) = table.allocate(Kind::Window).unwrap();
        table.release(stag);
        assert!(!taken(first));
        assert_eq!(table.admin().all.len(), 1, "one slot served them all");
    }
}
