// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP's core behind its endpoint's lock, as the pipelines of a link take it for single
//! decisions.

use iwarp_proto::qp::{Qp, Shared};

use crate::engine::endpoint::{Endpoint, WireCore};
use crate::engine::options::Wire;

impl WireCore for Qp {
    fn wire(&self) -> Option<Wire> {
        Some(Wire::Iwarp)
    }

    /// The ends may have agreed on none.
    fn may_read(&self) -> bool {
        !self.is_connected() || self.read_depths().0 > 0
    }
}

impl Shared for Endpoint {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        self.with_own(false, f)
    }
}

/// The endpoint, for the thread that takes apart the bytes that have come. It hands on afterwards
/// what was postponed, or leaves that to the thread that sends.
pub(super) struct Receiving<'a>(pub(super) &'a Endpoint);

impl Shared for Receiving<'_> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        self.0.with_own(true, f)
    }
}
