// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ends of a connection, as texts call them.

/// The knowledge of which end is the initiator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Names {
    pub(crate) initiator: Option<usize>,
}

impl Names {
    /// An end within a sentence.
    pub(crate) const fn of(self, end: usize) -> &'static str {
        match (self.initiator, end) {
            (Some(initiator), _) if initiator == end => "the initiator",
            (Some(_), _) => "the responder",
            (None, 0) => "end A",
            (None, _) => "end B",
        }
    }

    /// The role of an end.
    pub(crate) const fn role(self, end: usize) -> &'static str {
        match (self.initiator, end) {
            (Some(initiator), _) if initiator == end => "initiator",
            (Some(_), _) => "responder",
            (None, 0) => "end A",
            (None, _) => "end B",
        }
    }
}
