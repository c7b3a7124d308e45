// SPDX-License-Identifier: MIT OR Apache-2.0

//! From STag to slot.
//!
//! Indices are drawn at random from the whole range, so that knowing some STags says nothing about
//! the others, and a freed one rests for long before it can be drawn again (RFC 5040 §8.1.1,
//! RFC 5042 §6.1.1). Slots are found by their index in an open-addressed table, which grows with
//! what is alive at one time and not with the range. A lookup that finds its STag takes no lock:
//! slots and the tables that were outgrown are never freed while the `StagTable` lives, and the
//! slot's gate decides whether it still serves that STag.
//!
//! Indices have 23 bits, and keys 8. The size of the table follows the number of live STags, and
//! drawing from the whole range costs nothing. A lookup that finds nothing, which ends a
//! connection, looks again under the lock for registration, because a removal may be moving entries
//! nearer to their home positions (modelled with loom). The table keeps slots and outgrown tables
//! for its whole life, so memory follows the largest number ever alive at one time. A freed index
//! rests while 2^20 others are freed: two bitmaps, 2 MB at most.
//!
//! (Considered: `slab` and `slotmap`. Slots are looked up without a lock while others change them,
//! and named by numbers drawn at random.)

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use iwarp_types::Stag;

use crate::buckets::{Places, find, find_at_home, insert, remove};
use crate::random::Random;
use crate::region::RegisterError;
use crate::room::{OutOfMemory, zeroed};
use crate::slot::{Kind, Slot};

/// Indices end here: those with the top bit set name read sinks on the wire.
const INDICES: u32 = 1 << 23;
/// STags in use at one time. With those that rest, three quarters of the range at most, so that a
/// few draws find a free index.
const MOST: usize = 1 << 22;
/// A freed index rests while so many others are freed, and for twice as many at most.
const RESTING: usize = 1 << 20;

/// Slots that are made at a time.
const SLAB: usize = 32;
/// Places of the first table: a page.
const FIRST: usize = 512;
/// Tables that there can be at all: each has twice the places of the one before, and two for each
/// STag in use.
const TABLES: usize = (2 * MOST / FIRST).ilog2() as usize + 1;

/// The STag table of one device.
pub(crate) struct StagTable {
    /// The table in which lookups begin; one of `Admin::tables`, or [`NOTHING`].
    table: AtomicPtr<Table>,
    admin: Mutex<Admin>,
    /// Regions and bound windows that only one stream can use, so that the end of a stream need
    /// not look at a million STags when there are none.
    pub(crate) stream_bound: AtomicUsize,
}

struct Admin {
    random: Random,
    resting: Resting,
    in_use: usize,
    /// Owned; the last is the one in use.
    tables: Vec<NonNull<Table>>,
    /// Every slot there is, owned: [`SLAB`] at a time.
    slabs: Vec<NonNull<Slot>>,
    /// With room for all slots of their kind.
    idle_regions: Idle,
    idle_windows: Idle,
}

/// Slots that serve no STag.
#[derive(Default)]
struct Idle {
    slots: Vec<*mut Slot>,
    /// Slots of this kind that there are.
    made: usize,
}

// SAFETY: the pointers are owning pointers to `Slot`, which is `Send + Sync`, and to tables of
// atomic pointers to them.
unsafe impl Send for Admin {}

impl StagTable {
    pub(crate) fn new() -> Self {
        Self {
            table: AtomicPtr::new(NOTHING.as_table()),
            admin: Mutex::new(Admin {
                random: Random::new(),
                resting: Resting::default(),
                in_use: 0,
                tables: Vec::new(),
                slabs: Vec::new(),
                idle_regions: Idle::default(),
                idle_windows: Idle::default(),
            }),
            stream_bound: AtomicUsize::new(0),
        }
    }

    /// The slot that serves the index of `stag`, or did so a moment ago.
    #[inline]
    pub(crate) fn lookup(&self, stag: Stag) -> Option<&Slot> {
        let index = stag.index();
        // SAFETY: slots live as long as `self`.
        unsafe { find_at_home(self.places(), index) }.or_else(|| self.lookup_farther(index))
    }

    #[inline(never)]
    fn lookup_farther(&self, index: u32) -> Option<&Slot> {
        // SAFETY: slots live as long as `self`.
        unsafe { find(self.places(), index) }.or_else(|| self.lookup_again(index))
    }

    /// A look that found nothing may have met a change.
    #[cold]
    fn lookup_again(&self, index: u32) -> Option<&Slot> {
        // Only a hostile peer names the index of a read sink.
        if index == 0 || index >= INDICES {
            return None;
        }
        let _admin = self.admin();
        // SAFETY: slots live as long as `self`.
        unsafe { find(self.places(), index) }
    }

    /// Draws an index and a key and ties them to a slot, which has no owner yet and grants nothing.
    pub(crate) fn allocate(&self, kind: Kind) -> Result<(Stag, &Slot), RegisterError> {
        self.take(kind, None)
    }

    /// As [`Self::allocate`], for this STag.
    pub(crate) fn allocate_as(
        &self,
        kind: Kind,
        stag: Stag,
    ) -> Result<(Stag, &Slot), RegisterError> {
        self.take(kind, Some(stag))
    }

    fn take(&self, kind: Kind, wanted: Option<Stag>) -> Result<(Stag, &Slot), RegisterError> {
        let mut admin = self.admin();
        if admin.in_use == MOST {
            return Err(RegisterError::Exhausted);
        }
        if 2 * (admin.in_use + 1) > self.places().len() {
            self.grow(&mut admin)?;
        }
        admin.resting.prepare()?;
        let stag = match wanted {
            Some(stag) if self.is_free(stag) => stag,
            Some(_) => return Err(RegisterError::Exhausted),
            None => {
                let key = admin.random.next_u32()? as u8;
                Stag(self.draw_index(&mut admin)? << 8 | u32::from(key))
            }
        };
        let slot = admin.slot(kind)?;
        admin.in_use += 1;
        // SAFETY: slots live as long as the table; at most half of the places are taken, and only
        // who has the lock changes them.
        unsafe {
            (*slot).set_index(stag.index());
            insert(self.places(), slot);
            Ok((stag, &*slot))
        }
    }

    fn is_free(&self, stag: Stag) -> bool {
        let index = stag.index();
        // SAFETY: slots live as long as `self`.
        (1..INDICES).contains(&index) && unsafe { find(self.places(), index) }.is_none()
    }

    /// Takes `stag` out of use. Its slot must grant nothing and have no owner.
    pub(crate) fn release(&self, stag: Stag) {
        let index = stag.index();
        let mut admin = self.admin();
        // SAFETY: slots live as long as the table, and who has the lock is the only one to change
        // it.
        let slot = unsafe { remove(self.places(), index) }.expect("an STag is released once");
        // SAFETY: as above.
        let released = unsafe { &*slot };
        released.set_index(0);
        // There is room: it was made with the slot.
        admin.idle(released.kind()).slots.push(slot);
        admin.in_use -= 1;
        admin.resting.add(index);
    }

    /// Another STag with the index of `stag`, under a key drawn anew.
    pub(crate) fn with_fresh_key(&self, stag: Stag) -> Result<Stag, RegisterError> {
        let mut admin = self.admin();
        // Drawn from the 255 others.
        let step = (admin.random.next_u32()? % 255) as u8 + 1;
        Ok(Stag(stag.0 & !0xff | u32::from(stag.key().wrapping_add(step))))
    }

    /// True where an STag with the index of `stag` was released not long ago.
    pub(crate) fn has_rested(&self, stag: Stag) -> bool {
        let admin = self.admin();
        let begun = !admin.resting.last_age.is_empty();
        begun && stag.index() < INDICES && admin.resting.has(stag.index())
    }

    /// STags in use.
    pub(crate) fn in_use(&self) -> usize {
        self.admin().in_use
    }

    /// Every STag that has an owner at some moment during the iteration.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Stag> {
        // The table's lock is not kept: a slot's may be held while something is revoked.
        let slab = |number: usize| self.admin().slabs.get(number).copied();
        // SAFETY: slots live as long as the table, and so many are there.
        let slot = |slab: NonNull<Slot>, at: usize| unsafe { slab.add(at).as_ref() };
        let slots =
            (0..).map_while(slab).flat_map(move |slab| (0..SLAB).map(move |at| slot(slab, at)));
        slots.filter_map(|slot| slot.control().stag())
    }

    /// All slots, unless a thread was changing the table when its process forked: for the child.
    pub(crate) fn slots_at_rest(&self) -> Option<Vec<&Slot>> {
        let admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // SAFETY: slots live as long as the table, and so many are there.
        let slot = |slab: NonNull<Slot>, at: usize| unsafe { slab.add(at).as_ref() };
        let slabs = admin.slabs.iter();
        Some(slabs.flat_map(|&slab| (0..SLAB).map(move |at| slot(slab, at))).collect())
    }

    #[inline]
    fn places(&self) -> &Places<Slot> {
        // SAFETY: it is `NOTHING` or was made by `Table::new`, and lives as long as `self`.
        unsafe { Table::places(self.table.load(Ordering::Acquire)) }
    }

    /// Moves to a table of twice the size. Threads that look meanwhile find everything in the old
    /// one.
    #[cold]
    fn grow(&self, admin: &mut Admin) -> Result<(), OutOfMemory> {
        let old = self.places();
        let len = if admin.tables.is_empty() { FIRST } else { 2 * old.len() };
        admin.tables.try_reserve(TABLES).map_err(|_| OutOfMemory)?;
        let table = Table::new(len)?;
        // SAFETY: just made.
        let places = unsafe { Table::places(table.as_ptr()) };
        for slot in old.iter().map(|place| place.load(Ordering::Relaxed)) {
            if !slot.is_null() {
                // SAFETY: slots live as long as `self`; no other thread knows the table yet.
                unsafe { insert(places, slot) };
            }
        }
        admin.tables.push(table);
        self.table.store(table.as_ptr(), Ordering::Release);
        Ok(())
    }

    fn draw_index(&self, admin: &mut Admin) -> Result<u32, RegisterError> {
        // 200 draws in a row fail once in 2^83.
        for _ in 0..200 {
            let index = admin.random.next_u32()? % INDICES;
            // Index 0 is never given out: STag 0 must not be usable.
            if index == 0 || admin.resting.has(index) {
                continue;
            }
            // SAFETY: slots live as long as `self`.
            if unsafe { find(self.places(), index) }.is_none() {
                return Ok(index);
            }
        }
        Err(RegisterError::Exhausted)
    }

    fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StagTable {
    fn drop(&mut self) {
        let admin = self.admin.get_mut().unwrap_or_else(PoisonError::into_inner);
        for &slab in &admin.slabs {
            // SAFETY: made in `Admin::add_slab` with this layout, freed only here, and what
            // borrowed a slot borrowed the table.
            unsafe {
                NonNull::slice_from_raw_parts(slab, SLAB).drop_in_place();
                dealloc(slab.as_ptr().cast(), Layout::new::<[Slot; SLAB]>());
            }
        }
        for &table in &admin.tables {
            // SAFETY: made by `Table::new`; as above.
            unsafe { Table::free(table) };
        }
    }
}

impl Admin {
    fn idle(&mut self, kind: Kind) -> &mut Idle {
        match kind {
            Kind::Region => &mut self.idle_regions,
            Kind::Window => &mut self.idle_windows,
        }
    }

    fn slot(&mut self, kind: Kind) -> Result<*mut Slot, OutOfMemory> {
        if self.idle(kind).slots.is_empty() {
            self.add_slab(kind)?;
        }
        self.idle(kind).slots.pop().ok_or(OutOfMemory)
    }

    fn add_slab(&mut self, kind: Kind) -> Result<(), OutOfMemory> {
        self.slabs.try_reserve(1).map_err(|_| OutOfMemory)?;
        let idle = self.idle(kind);
        idle.slots.try_reserve(idle.made + SLAB).map_err(|_| OutOfMemory)?;
        // SAFETY: a slot has a size.
        let slab = unsafe { alloc(Layout::new::<[Slot; SLAB]>()) }.cast::<Slot>();
        let slab = NonNull::new(slab).ok_or(OutOfMemory)?;
        for at in 0..SLAB {
            // SAFETY: allocated for so many.
            let slot = unsafe { slab.add(at) };
            // SAFETY: as above.
            unsafe { slot.write(Slot::new(kind)) };
            idle.slots.push(slot.as_ptr());
        }
        idle.made += SLAB;
        self.slabs.push(slab);
        Ok(())
    }
}

/// Places of slots, with their number before them so that a lookup gets both by one pointer.
#[repr(C)]
struct Table {
    len: usize,
    /// `len` of them.
    places: [AtomicPtr<Slot>; 0],
}

/// The table before anything is registered: one place, which is null.
#[repr(C)]
struct Nothing {
    table: Table,
    place: AtomicPtr<Slot>,
}

static NOTHING: Nothing =
    Nothing { table: Table { len: 1, places: [] }, place: AtomicPtr::new(std::ptr::null_mut()) };

impl Nothing {
    /// Never written to: the first insertion grows the table first.
    const fn as_table(&'static self) -> *mut Table {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

impl Table {
    fn layout(len: usize) -> Option<Layout> {
        let places = Layout::array::<AtomicPtr<Slot>>(len).ok()?;
        Some(Layout::new::<Self>().extend(places).ok()?.0)
    }

    fn new(len: usize) -> Result<NonNull<Self>, OutOfMemory> {
        let layout = Self::layout(len).ok_or(OutOfMemory)?;
        // SAFETY: the layout is not empty. Zeros are null pointers.
        let table = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Self>());
        let table = table.ok_or(OutOfMemory)?;
        // SAFETY: allocated for it.
        unsafe { (&raw mut (*table.as_ptr()).len).write(len) };
        Ok(table)
    }

    /// # Safety
    ///
    /// `table` is [`NOTHING`], or was made by [`Self::new`] and is not freed during `'a`.
    #[inline]
    unsafe fn places<'a>(table: *const Self) -> &'a Places<Slot> {
        // SAFETY: the caller's promise: so many places follow the number.
        unsafe { std::slice::from_raw_parts((&raw const (*table).places).cast(), (*table).len) }
    }

    /// # Safety
    ///
    /// It was made by [`Self::new`], and no thread uses it any more.
    unsafe fn free(table: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let layout = Self::layout(unsafe { table.as_ref() }.len).expect("it was allocated");
        // SAFETY: as above, with the layout it was allocated with.
        unsafe { dealloc(table.as_ptr().cast(), layout) };
    }
}

/// Indices that were freed not long ago: in this age, or in the one before.
#[derive(Default)]
struct Resting {
    /// A bit for each index; empty until something is registered.
    this_age: Vec<u8>,
    last_age: Vec<u8>,
    /// Freed in this age.
    freed: usize,
}

impl Resting {
    /// Makes what [`Self::add`] needs, which must not fail.
    #[inline]
    fn prepare(&mut self) -> Result<(), OutOfMemory> {
        if self.last_age.is_empty() {
            self.this_age = zeroed(INDICES as usize / 8)?;
            self.last_age = zeroed(INDICES as usize / 8)?;
        }
        Ok(())
    }

    fn has(&self, index: u32) -> bool {
        let (octet, bit) = Self::bit(index);
        (self.this_age[octet] | self.last_age[octet]) & bit != 0
    }

    fn add(&mut self, index: u32) {
        let (octet, bit) = Self::bit(index);
        self.this_age[octet] |= bit;
        self.freed += 1;
        if self.freed == RESTING {
            std::mem::swap(&mut self.this_age, &mut self.last_age);
            self.this_age.fill(0);
            self.freed = 0;
        }
    }

    const fn bit(index: u32) -> (usize, u8) {
        (index as usize / 8, 1 << (index % 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::Indexed as _;

    #[test]
    fn index_0_is_never_drawn() {
        let table = StagTable::new();
        let mut admin = table.admin();
        admin.resting.prepare().unwrap();
        admin.resting.this_age.fill(u8::MAX);
        admin.resting.this_age[0] = !1;
        assert_eq!(table.draw_index(&mut admin), Err(RegisterError::Exhausted));
    }

    #[test]
    fn a_rested_index_may_be_drawn_again() {
        let table = StagTable::new();
        let use_one = || {
            let (stag, _) = table.allocate(Kind::Window).unwrap();
            table.release(stag);
            stag
        };
        use_one();
        let first = use_one();
        let rests = || table.admin().resting.has(first.index());
        for _ in 0..RESTING {
            assert!(rests());
            use_one();
        }
        assert!(rests(), "to the end of the next age");
        for _ in 0..RESTING {
            use_one();
        }
        assert!(!rests());
        assert_eq!(table.admin().slabs.len(), 1, "one slot served them all");
    }

    /// Every index that is alive is found through growth and removals, and no other.
    #[test]
    fn lookups_find_live_indices_and_no_others() {
        let table = StagTable::new();
        assert!(table.lookup(Stag(0x1234_5678)).is_none());
        let mut stags: Vec<Stag> =
            (0..3000).map(|_| table.allocate(Kind::Region).unwrap().0).collect();
        let found =
            |stag: Stag| table.lookup(stag).is_some_and(|slot| slot.index() == stag.index());
        for round in 0..6 {
            assert!(stags.iter().copied().all(found));
            let gone = stags.split_off(stags.len() / 2);
            gone.iter().for_each(|&stag| table.release(stag));
            assert!(stags.iter().copied().all(found));
            assert!(!gone.iter().copied().any(found), "round {round}");
            stags.extend((0..700).map(|_| table.allocate(Kind::Region).unwrap().0));
        }
        assert_eq!(table.in_use(), stags.len());
        assert!(table.lookup(Stag(0)).is_none());
        assert!(table.lookup(Stag(u32::MAX)).is_none());
    }
}
