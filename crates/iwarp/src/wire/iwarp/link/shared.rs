// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP's core behind its endpoint's lock, as the pipelines of a link take it for single
//! decisions.

use std::cell::Cell;

use iwarp_proto::qp::{Qp, Shared};
use iwarp_types::{PostError, SendRequest, Wanted};

use super::close::Intent;
use crate::engine::endpoint::{Endpoint, WireCore};
use crate::engine::options::Wire;
use crate::engine::policy::habits::Arrival;

impl WireCore for Qp {
    fn wire(&self) -> Option<Wire> {
        Some(Wire::Iwarp)
    }

    /// The ends may have agreed on none.
    fn may_read(&self) -> bool {
        !self.is_connected() || self.read_depths().0 > 0
    }

    #[inline]
    fn may_be_done(&mut self, request: &SendRequest<'_>) -> bool {
        self.may_be_done(request)
    }

    fn post_done(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_done(request)
    }

    fn may_be_done_next(&self, number: u64) -> bool {
        self.may_be_done_next(number)
    }

    fn was_done(&mut self, number: u64) {
        self.was_done(number);
    }
}

impl Shared for Endpoint {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        self.with_own(f)
    }
}

/// The endpoint, for the thread that takes apart the bytes that have come. It hands on afterwards
/// what was postponed, or leaves that to the thread that sends.
pub(super) struct Receiving<'a> {
    pub(super) endpoint: &'a Endpoint,
    /// See [`How`].
    pub(super) how: How,
    /// The state in which the last decision left the core; `None` where it was not looked at.
    pub(super) seen: Cell<Option<Seen>>,
}

/// The way in which bytes come in, where each decision on them may as well tell the habits of it;
/// `None` where that has to wait until all was taken in.
pub(super) type How = Option<Arrival>;

/// The state of a core behind a decision of its receiver, which spares it another look. What other
/// threads change from then on they see to themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) wanted: Wanted,
    pub(super) intent: Intent,
    /// Messages wait for receives.
    pub(super) waits: bool,
}

impl Shared for Receiving<'_> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        self.endpoint.with_receiving(f, |qp: &mut Qp, habits| {
            self.seen.set(self.how.map(|how| {
                // Only the worker needs the time, and it comes later.
                habits.arrived(qp.arrivals(), how, || 0);
                let (wanted, intent) = (qp.wanted(), Intent::of(qp));
                Seen { wanted, intent, waits: qp.has_parked() || qp.is_stalled() }
            }));
        })
    }
}
