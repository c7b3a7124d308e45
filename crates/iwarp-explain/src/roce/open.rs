// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that a requester has sent, up to their acknowledgement or answer.

use iwarp_roce::wire::{Psn, RnrTimer};

use crate::findings::Moment;
use crate::words::bytes;

/// The answer that a message needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    Acknowledgement,
    ReadResponse,
    AtomicAcknowledge,
}

/// A message without its answer.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) kind: &'static str,
    pub(super) needs: Needs,
    pub(super) first: Psn,
    /// The last PSN: of its packets, or of the responses to a Read. `None` where the length of the
    /// packets is not known.
    pub(super) last: Option<Psn>,
    pub(super) bytes: u64,
    /// The moment of its first packet.
    pub(super) begun: Moment,
    /// The moment of its last packet.
    pub(super) sent: Moment,
    /// Its last packet asks for an acknowledgement.
    pub(super) asks: bool,
    /// Packets of it that were sent again.
    pub(super) again: u64,
    /// The last time that one was.
    pub(super) again_at: Option<Moment>,
    /// Bytes of a Read that have come, and the PSN that is due next.
    pub(super) got: u64,
    pub(super) due: Psn,
    /// Packets of the answer are missing.
    pub(super) torn: bool,
    pub(super) rnr: u64,
    pub(super) rnr_since: Option<(Moment, RnrTimer)>,
}

impl Open {
    pub(super) fn covers(&self, psn: Psn) -> bool {
        psn.ahead_of(self.first) >= 0 && self.last.is_none_or(|last| last.ahead_of(psn) >= 0)
    }

    /// True if an acknowledgement of `psn` is behind all of it.
    pub(super) fn is_within(&self, psn: Psn) -> bool {
        match self.last {
            Some(last) => psn.ahead_of(last) >= 0,
            None => false,
        }
    }

    /// The message in words.
    pub(super) fn text(&self) -> String {
        format!("the {} of packet {} ({})", self.kind, self.begun.packet, bytes(self.bytes))
    }
}
