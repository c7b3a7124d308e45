// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows: parts of a region under STags of their own, bound and revoked without
//! registering anything.

use std::sync::atomic::Ordering;

use iwarp_types::{Access, AccessError, Accessor, Bind, Invalidator, PdId, Stag};

use crate::region::{MemoryTable, RegisterError};
use crate::slot::{Binding, Control, Grant, Kind, Slot, WindowControl};

/// The types of memory windows of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WindowType {
    /// Bound and rebound at will, each time under a new key; every stream of its protection domain
    /// may use it. Only its owner can invalidate it, by binding it to nothing.
    One,
    /// Bound through one queue pair, under the key the work request chose, and usable by that
    /// queue pair only; must be invalidated before it is bound again.
    TwoA,
    /// Bound and used like type 2A; each access also checks the protection domain.
    TwoB,
}

impl MemoryTable {
    /// Makes an unbound window. Its STag is not valid for anything but binding.
    ///
    /// # Errors
    ///
    /// `Exhausted`, `OutOfMemory`, `NoEntropy`.
    pub fn allocate_window(&self, pd: PdId, kind: WindowType) -> Result<Stag, RegisterError> {
        let (stag, slot) = self.stags.allocate(Kind::Window)?;
        slot.control().set(Control::Window(WindowControl { stag, pd, kind, bound: None }));
        Ok(stag)
    }

    /// Removes a window, bound or not. When this returns, nothing is accessed through it any more.
    ///
    /// # Errors
    ///
    /// `UnknownStag`: `stag` is not the present STag of a window.
    pub fn deallocate_window(&self, stag: Stag) -> Result<(), RegisterError> {
        self.deallocate_if(stag, |present| present == stag)
    }

    /// Removes a window by any STag that it ever had: its owner may not know the present one, and
    /// binding changes the key only. Otherwise like [`Self::deallocate_window`].
    ///
    /// # Errors
    ///
    /// `UnknownStag`: there is no window with this index.
    pub fn deallocate_own_window(&self, stag: Stag) -> Result<(), RegisterError> {
        self.deallocate_if(stag, |present| present.index() == stag.index())
    }

    fn deallocate_if(&self, stag: Stag, which: impl Fn(Stag) -> bool) -> Result<(), RegisterError> {
        let mut slot = self.window_slot(stag).ok_or(RegisterError::UnknownStag)?.control();
        let present = slot.stag().filter(|&stag| which(stag)).ok_or(RegisterError::UnknownStag)?;
        let window = slot.window(present).ok_or(RegisterError::UnknownStag)?;
        let bound = window.bound.take();
        slot.revoke(&self.readers);
        if let Some(binding) = bound {
            self.forget_binding(binding);
        }
        slot.set(Control::Free);
        self.stags.release(present);
        Ok(())
    }

    /// An STag for the next binding of a window: its index under another, random key.
    ///
    /// # Errors
    ///
    /// `NoEntropy`.
    pub fn fresh_key(&self, stag: Stag) -> Result<Stag, RegisterError> {
        self.stags.with_fresh_key(stag)
    }

    fn window_slot(&self, stag: Stag) -> Option<&Slot> {
        self.stags.lookup(stag).filter(|slot| slot.kind() == Kind::Window)
    }

    /// `Memory::bind_window`.
    ///
    /// The window's rights need not be the region's: binding, with [`Access::MW_BIND`], is how they
    /// are given. A bound window of type 2 is not rebound but refused as one that this operation
    /// cannot invalidate; nothing changes on any error.
    pub(crate) fn bind(&self, who: Accessor, bind: Bind) -> Result<(), AccessError> {
        let mut slot = self.window_slot(bind.window).ok_or(AccessError::InvalidStag)?.control();
        let window = slot.window(bind.window).ok_or(AccessError::InvalidStag)?;
        if bind.new_stag.index() != bind.window.index() {
            return Err(AccessError::InvalidStag);
        }
        if window.pd != who.pd {
            return Err(AccessError::NotAssociated);
        }
        let kind = window.kind;
        if kind != WindowType::One && window.bound.is_some() {
            return Err(AccessError::CannotInvalidate);
        }

        if bind.length == 0 {
            if kind != WindowType::One {
                return Err(AccessError::Bounds);
            }
            window.stag = bind.new_stag;
            let bound = window.bound.take();
            slot.revoke(&self.readers);
            if let Some(binding) = bound {
                self.forget_binding(binding);
            }
            return Ok(());
        }

        // From here on the region is held by its count of windows.
        let mut grant = self.bindable(who, bind)?;
        match kind {
            WindowType::One => {}
            WindowType::TwoA => (grant.pd, grant.qp) = (None, Some(who.qp)),
            WindowType::TwoB => grant.qp = Some(who.qp),
        }
        window.stag = bind.new_stag;
        let binding = Binding { region: bind.region, qp: grant.qp };
        let before = window.bound.replace(binding);
        slot.grant(grant, &self.readers);
        if grant.qp.is_some() {
            self.stags.stream_bound.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(binding) = before {
            self.forget_binding(binding);
        }
        Ok(())
    }

    /// Checks the region of a binding and counts the window on it.
    fn bindable(&self, who: Accessor, bind: Bind) -> Result<Grant, AccessError> {
        let slot = self.region_slot(bind.region).map_err(|_| AccessError::InvalidStag)?;
        let mut slot = slot.control();
        let region = slot.region(bind.region).ok_or(AccessError::InvalidStag)?;
        if !region.valid {
            return Err(AccessError::InvalidStag);
        }
        if region.pd != who.pd || region.grant.qp.is_some_and(|qp| qp != who.qp) {
            return Err(AccessError::NotAssociated);
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let allowed = writes | Access::REMOTE_READ | Access::ZERO_BASED;
        let region_access = region.grant.access;
        if !region_access.contains(Access::MW_BIND)
            || !allowed.contains(bind.access)
            || bind.access.intersects(writes) && !region_access.contains(Access::LOCAL_WRITE)
        {
            return Err(AccessError::Rights);
        }
        if bind.addr.checked_add(bind.length).is_none() {
            return Err(AccessError::Wrap);
        }
        let offset = region.grant.offset(bind.addr, bind.length)?;
        region.windows += 1;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        Ok(Grant {
            stag: bind.new_stag,
            access: bind.access,
            base: region.grant.base.wrapping_add(offset as usize),
            len: bind.length,
            origin: if zero_based { 0 } else { bind.addr },
            pd: Some(region.pd),
            // A window must not open to other streams what its region keeps to one.
            qp: region.grant.qp,
        })
    }

    /// Takes the window off its region, once nothing is accessed through it any more.
    fn forget_binding(&self, binding: Binding) {
        let slot = self.region_slot(binding.region).expect("a region with windows stays");
        slot.control().region(binding.region).expect("a region with windows stays").windows -= 1;
        if binding.qp.is_some() {
            self.stags.stream_bound.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Invalidates a window, if it is bound and `which` says so.
    pub(crate) fn unbind_if(&self, slot: &Slot, stag: Stag, which: impl Fn(Binding) -> bool) {
        let mut slot = slot.control();
        let Some(window) = slot.window(stag) else { return };
        let Some(binding) = window.bound.filter(|&binding| which(binding)) else { return };
        window.bound = None;
        slot.revoke(&self.readers);
        self.forget_binding(binding);
    }

    /// `Memory::invalidate` of a window.
    ///
    /// One of type 1 has its own way (binding it to nothing). One that is bound belongs to the
    /// queue pair it was bound through. An unbound one cannot be invalidated by the peer (RFC 5040
    /// §7.2); for its owner that changes nothing.
    pub(crate) fn invalidate_window(
        &self,
        slot: &Slot,
        who: Accessor,
        stag: Stag,
        by: Invalidator,
    ) -> Result<(), AccessError> {
        let mut slot = slot.control();
        let window = slot.window(stag).ok_or(AccessError::InvalidStag)?;
        if window.pd != who.pd {
            return Err(AccessError::NotAssociated);
        }
        if window.kind == WindowType::One {
            return Err(AccessError::CannotInvalidate);
        }
        let Some(binding) = window.bound else {
            return match by {
                Invalidator::Local => Ok(()),
                Invalidator::Remote => Err(AccessError::CannotInvalidate),
            };
        };
        if binding.qp != Some(who.qp) {
            return Err(AccessError::NotAssociated);
        }
        window.bound = None;
        slot.revoke(&self.readers);
        self.forget_binding(binding);
        Ok(())
    }
}
