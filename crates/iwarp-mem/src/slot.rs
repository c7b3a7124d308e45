// SPDX-License-Identifier: MIT OR Apache-2.0

//! One STag: what it grants, behind its gate, and what its owner knows about it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use iwarp_types::{Access, AccessError, Accessor, PdId, QpId, Stag};

use crate::buckets::Indexed;
use crate::buffer::Buffer;
use crate::gate::Gate;
use crate::observe::Span;
use crate::readers::Readers;
use crate::region::Scope;
use crate::source;
use crate::window::WindowType;

/// The accesses that an open STag grants, as the data path reads it.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    /// The whole STag: a slot may serve another index by the time a late lookup gets here.
    pub(crate) stag: Stag,
    /// Rights, of which the data path looks at those of data transfer.
    pub(crate) access: Access,
    /// First byte.
    pub(crate) base: *mut u8,
    /// Bytes.
    pub(crate) len: u64,
    /// The tagged offset (or local address) of the first byte.
    pub(crate) origin: u64,
    /// The protection domain it is limited to.
    pub(crate) pd: Option<PdId>,
    /// The stream it is limited to.
    pub(crate) qp: Option<QpId>,
}

impl Grant {
    const NONE: Self = Self {
        stag: Stag(0),
        access: Access::LOCAL_READ,
        base: std::ptr::null_mut(),
        len: 0,
        origin: 0,
        pd: None,
        qp: None,
    };

    /// The address of `len` bytes at `to`, if `who` may have them under `right`.
    ///
    /// The order of the checks is part of the contract of `Memory::check_remote`.
    #[inline]
    pub(crate) fn translate(
        &self,
        who: Accessor,
        to: u64,
        len: u64,
        right: Access,
    ) -> Result<*mut u8, AccessError> {
        if self.pd.is_some_and(|pd| pd != who.pd) || self.qp.is_some_and(|qp| qp != who.qp) {
            return Err(AccessError::NotAssociated);
        }
        if !self.access.contains(right) {
            return Err(AccessError::Rights);
        }
        if to.checked_add(len).is_none() {
            return Err(AccessError::Wrap);
        }
        let offset = self.offset(to, len)?;
        // In range: registration proved that base + len does not overflow the address space.
        Ok(self.base.wrapping_add(offset as usize))
    }

    /// The place in the grant at which `len` bytes at `to` begin, if they lie within it.
    #[inline]
    pub(crate) fn offset(&self, to: u64, len: u64) -> Result<u64, AccessError> {
        let offset = to.checked_sub(self.origin).ok_or(AccessError::Bounds)?;
        if offset > self.len || len > self.len - offset {
            return Err(AccessError::Bounds);
        }
        Ok(offset)
    }
}

/// A slot serves regions or windows, for good: locks are taken window first, region second, and a
/// slot that changed sides could close a circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Region,
    Window,
}

/// The owner's view of an STag; guarded by the slot's lock.
pub(crate) enum Control {
    /// The slot has no STag.
    Free,
    /// A memory region.
    Region(RegionControl),
    /// A memory window.
    Window(WindowControl),
}

pub(crate) struct RegionControl {
    /// The grant that holds when it is valid.
    pub(crate) grant: Grant,
    pub(crate) pd: PdId,
    pub(crate) scope: Scope,
    pub(crate) valid: bool,
    /// Windows bound to it.
    pub(crate) windows: usize,
    /// Keeps memory of ours alive while it is registered.
    pub(crate) _owned: Option<Arc<Buffer>>,
}

pub(crate) struct WindowControl {
    pub(crate) stag: Stag,
    pub(crate) pd: PdId,
    pub(crate) kind: WindowType,
    pub(crate) bound: Option<Binding>,
}

/// A bound window's ties.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// The region, which cannot go away meanwhile.
    pub(crate) region: Stag,
    /// The stream, if it is limited to one.
    pub(crate) qp: Option<QpId>,
}

/// A place for one STag. Slots are never freed while their table lives, only used again.
#[repr(align(64))]
pub(crate) struct Slot {
    gate: Gate,
    /// Of the STag it serves; 0 where it serves none.
    index: AtomicU32,
    kind: Kind,
    grant: UnsafeCell<Grant>,
    /// Other processes may read what it grants, or not: see [`SlotUse::may_be_shown`].
    shown: AtomicU8,
    control: Mutex<Control>,
}

#[cfg(all(target_os = "linux", not(miri)))]
use crate::probe::is_without_file;

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_without_file(_: *const u8, _: usize) -> bool {
    false
}

/// It was not asked yet.
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

// SAFETY: `grant` is read only by who is inside the gate and written only by who holds `control`
// with the gate closed and empty; the gate orders the two. The pointer in it is an address whose
// use is governed by the contract of registration, not by this thread.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            gate: Gate::new(),
            index: AtomicU32::new(0),
            kind,
            grant: UnsafeCell::new(Grant::NONE),
            shown: AtomicU8::new(UNKNOWN),
            control: Mutex::new(Control::Free),
        }
    }

    /// Says under which index it is found. For the table, under its lock.
    pub(crate) fn set_index(&self, index: u32) {
        self.index.store(index, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The owner's side. Held during revocation, so never taken by a use.
    pub(crate) fn control(&self) -> Controlled<'_> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        Controlled { slot: self, control }
    }

    /// As [`Self::control`]; `None` where another thread has it, who may wait for a use of this
    /// one's, or had it in the parent of this forked child.
    pub(crate) fn try_control(&self) -> Option<Controlled<'_>> {
        let control = match self.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Controlled { slot: self, control })
    }

    /// Begins a use, if the slot serves `stag` and that is valid.
    #[inline]
    pub(crate) fn enter(&self, stag: Stag) -> Option<SlotUse<'_>> {
        if !self.gate.try_enter(stag.key()) {
            return None;
        }
        let inside = SlotUse { slot: self };
        (inside.grant().stag == stag).then_some(inside)
    }
}

impl Indexed for Slot {
    #[inline]
    fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }
}

/// One use of an STag: what it grants is not revoked before this is dropped.
pub(crate) struct SlotUse<'a> {
    slot: &'a Slot,
}

impl SlotUse<'_> {
    #[inline]
    pub(crate) fn grant(&self) -> &Grant {
        // SAFETY: this use is inside the gate, and `Controlled` writes only behind a closed one.
        unsafe { &*self.slot.grant.get() }
    }
}

impl SlotUse<'_> {
    /// True if all that it grants is memory without a file, or a buffer's, as far as was seen when
    /// it was asked first. A page of a file may make its reader wait, and so another process: the
    /// server of the file decides for how long.
    pub(crate) fn may_be_shown(&self) -> bool {
        match self.slot.shown.load(Ordering::Relaxed) {
            UNKNOWN => {
                let grant = self.grant();
                let (base, len) = (grant.base, grant.len as usize);
                let may = source::holds(base.addr(), len) || is_without_file(base, len);
                // This use keeps the gate from closing, which makes it unknown again.
                self.slot.shown.store(if may { YES } else { NO }, Ordering::Relaxed);
                may
            }
            known => known == YES,
        }
    }
}

impl std::fmt::Debug for SlotUse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.grant().stag.fmt(f)
    }
}

impl Drop for SlotUse<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.gate.leave();
    }
}

/// A slot whose owner's side is locked.
pub(crate) struct Controlled<'a> {
    slot: &'a Slot,
    control: MutexGuard<'a, Control>,
}

impl Controlled<'_> {
    /// Revokes what the slot granted, waits for uses in flight, then grants `grant`.
    pub(crate) fn grant(&mut self, grant: Grant, readers: &Readers) {
        self.revoke(readers);
        // SAFETY: the gate is closed and empty, and only the holder of the lock, which `self` is,
        // opens it or writes here.
        unsafe { *self.slot.grant.get() = grant };
        self.slot.gate.open(grant.stag.key());
    }

    /// Revokes what the slot granted and waits for uses in flight; other processes are told.
    pub(crate) fn revoke(&mut self, readers: &Readers) {
        self.slot.gate.close();
        // The gate is closed and empty: a thread that has given its address away asked before.
        if self.slot.shown.swap(UNKNOWN, Ordering::Relaxed) == YES {
            // SAFETY: the gate is closed and empty, and only the holder of the lock, which `self`
            // is, opens it or writes here.
            let grant = unsafe { *self.slot.grant.get() };
            readers.revoked(grant.stag, Span { addr: grant.base.addr(), len: grant.len as usize });
        }
    }

    pub(crate) fn set(&mut self, control: Control) {
        *self.control = control;
    }

    /// The region `stag`, if this slot is its.
    pub(crate) fn region(&mut self, stag: Stag) -> Option<&mut RegionControl> {
        match &mut *self.control {
            Control::Region(region) if region.grant.stag == stag => Some(region),
            _ => None,
        }
    }

    /// The window `stag`, if this slot is its.
    pub(crate) fn window(&mut self, stag: Stag) -> Option<&mut WindowControl> {
        match &mut *self.control {
            Control::Window(window) if window.stag == stag => Some(window),
            _ => None,
        }
    }

    /// The grant of the slot, if it is open.
    pub(crate) fn granted(&self) -> Option<Grant> {
        self.slot.enter(self.stag()?).map(|inside| *inside.grant())
    }

    /// The owner's view.
    pub(crate) fn kept(&self) -> &Control {
        &self.control
    }

    /// The STag the slot serves.
    pub(crate) fn stag(&self) -> Option<Stag> {
        match &*self.control {
            Control::Free => None,
            Control::Region(region) => Some(region.grant.stag),
            Control::Window(window) => Some(window.stag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lookup that was under way when the slot was given to another index.
    #[test]
    fn a_late_lookup_with_the_same_key_does_not_enter() {
        let slot = Slot::new(Kind::Region);
        let (old, new) = (Stag(0x0000_1233), Stag(0x0045_6733));
        slot.control().grant(Grant { stag: old, ..Grant::NONE }, &Readers::default());
        assert!(slot.enter(old).is_some());
        slot.control().revoke(&Readers::default());
        assert!(slot.enter(old).is_none());
        slot.control().grant(Grant { stag: new, ..Grant::NONE }, &Readers::default());
        assert!(slot.enter(old).is_none());
        assert!(slot.enter(new).is_some());
        // And it left again: else this would wait for ever.
        slot.control().revoke(&Readers::default());
    }
}
