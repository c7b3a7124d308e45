// SPDX-License-Identifier: MIT OR Apache-2.0

//! Segments that were placed together with the one before them.

use super::{Follow, Pending};
use crate::ddp::wire::Header;
use crate::qp::Qp;

/// The octets that may follow a segment in the same element of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Beyond {
    /// Octets that there is room for.
    pub(crate) room: u32,
    /// Octets of the message that are still to come, where that is known.
    pub(crate) due: Option<u32>,
}

impl Beyond {
    /// No octets.
    pub(crate) const NOTHING: Self = Self { room: 0, due: None };

    /// The part that may follow `len` octets more, which fit.
    pub(crate) fn behind(self, len: u32) -> Self {
        Self { room: self.room - len, due: self.due.map(|due| due - len) }
    }
}

/// Segments that continue the message of the one judged, each where the one before ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Continued {
    /// Payload octets of the last of them.
    pub(crate) len: u32,
    /// Payload octets of all.
    pub(crate) octets: u32,
}

impl Qp {
    /// The segment under way was placed, and `more` behind it, the last of which begins with
    /// `head`: as if each had been judged and had ended by itself.
    pub(crate) fn end_segments(&mut self, head: &[u8], more: &Continued) -> Follow {
        if !self.receives() {
            return Follow::Nothing;
        }
        let Ok(ended) = Header::parse(head) else { return Follow::Nothing };
        self.inbound.remember(head, ended.wire_len() + more.len as usize);
        // A peer that is of our own kind says so in front of all this.
        self.peer.give_up();
        match &mut self.inbound.pending {
            Pending::Write { len, last, .. } | Pending::ReadResponse { len, last } => {
                *len += more.octets;
                *last = ended.last();
            }
            Pending::Send { header, len, .. } => {
                if let Header::Untagged(last) = ended {
                    *header = last;
                }
                *len = more.len;
            }
            pending => debug_assert!(false, "{pending:?} is not continued"),
        }
        self.end_segment(Ok(()))
    }
}
