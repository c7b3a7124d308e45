// SPDX-License-Identifier: MIT OR Apache-2.0

//! The terms on which a stream begins.

use crate::mpa::startup::{Negotiated, Role, Rtr, StartupFault};

/// The terms on which the ends have agreed before the first segment.
///
/// MPA start-up makes them of its two frames ([`Negotiated`]). A wing without MPA has its ends
/// agree in a way of its own ([`Terms::new`]).
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// An Initiator sends when it likes. A Responder waits until it has heard from its peer (RFC
    /// 5044 §7.1.2(4)). Where each end knows that the other one is there, both are Initiators.
    pub role: Role,
    /// Reads and Atomics of the peer's that may be under way at once.
    pub ird: u16,
    /// Reads and Atomics of this end's that may be under way at once.
    pub ord: u16,
    /// Requests of the peer's that this end takes on top of `ird`, for acknowledgements.
    pub spare_ird: u16,
    /// Requests that the peer takes on top of `ord`.
    pub spare_ord: u16,
    pub(super) rtr: Option<Rtr>,
    pub(super) peer_to_peer: bool,
    pub(super) fault: Option<StartupFault>,
}

impl Terms {
    /// Terms without MPA, with these depths (IRD, ORD), of which the peer has the reverse.
    pub const fn new(role: Role, (ird, ord): (u16, u16)) -> Self {
        let (spare_ird, spare_ord) = (0, 0);
        Self { role, ird, ord, spare_ird, spare_ord, rtr: None, peer_to_peer: false, fault: None }
    }

    /// Requests of this end's that may be under way at once, those of the protocol included.
    pub(super) const fn outbound(&self) -> u16 {
        self.ord + self.spare_ord
    }
}

impl From<&Negotiated> for Terms {
    fn from(negotiated: &Negotiated) -> Self {
        let &Negotiated { role, ird, ord, spare_ird, spare_ord, .. } = negotiated;
        let &Negotiated { rtr, peer_to_peer, fault, .. } = negotiated;
        Self { role, ird, ord, spare_ird, spare_ord, rtr, peer_to_peer, fault }
    }
}
