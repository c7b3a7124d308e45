// SPDX-License-Identifier: MIT OR Apache-2.0

//! The meaning of a key at this moment, for the log of the program whose memory it is. No peer is
//! told of it.

use iwarp_types::{Access, PdId, QpId, Stag};

use crate::region::{MemoryTable, Scope};
use crate::slot::{Control, Grant, Kind};

/// The meaning of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// No region or window, nor was there one lately.
    Unknown,
    /// No longer any: the region or window was deregistered.
    Deregistered,
    /// A region or window with the same index, under another key.
    Another(Described),
    /// A region or window.
    Present(Described),
    /// It is being changed.
    Changing,
}

/// A region or window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Described {
    /// It is a window.
    pub is_window: bool,
    /// It can be used: not invalidated, and bound if it is a window.
    pub is_valid: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// The queue pair that alone may use it.
    pub qp: Option<QpId>,
    /// Tagged offset of the first byte, bytes, and rights; an unbound window has none.
    pub grant: Option<(u64, u64, Access)>,
}

impl MemoryTable {
    /// The meaning of `stag`. Waits for no revocation, so a thread that holds a
    /// [`Guard`](crate::Guard) may ask.
    #[cold]
    pub fn describe(&self, stag: Stag) -> Key {
        let gone = || match self.stags.has_rested(stag) {
            true => Key::Deregistered,
            false => Key::Unknown,
        };
        let Some(slot) = self.stags.lookup(stag) else { return gone() };
        let Some(control) = slot.try_control() else { return Key::Changing };
        let Some(present) = control.stag().filter(|present| present.index() == stag.index()) else {
            return gone();
        };
        let granted = control.granted();
        let is_window = slot.kind() == Kind::Window;
        let (pd, of_region, own) = match control.kept() {
            Control::Free => return gone(),
            Control::Region(region) => (region.pd, Some(region.grant), region.scope),
            Control::Window(window) => (window.pd, None, Scope::Domain),
        };
        let qp = match (granted, own) {
            (Some(grant), _) => grant.qp,
            (None, Scope::Stream(qp)) => Some(qp),
            (None, Scope::Domain) => None,
        };
        let of = |Grant { origin, len, access, .. }| (origin, len, access);
        let grant = granted.or(of_region).map(of);
        let described = Described { is_window, is_valid: granted.is_some(), pd, qp, grant };
        if present == stag { Key::Present(described) } else { Key::Another(described) }
    }
}
