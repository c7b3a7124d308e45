// SPDX-License-Identifier: MIT OR Apache-2.0

//! All properties of the operations, in one table.

use crate::{AtomicOp, SendOp, WcOp};

/// An extension of RFC 5040 that the peer must have for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension {
    /// Atomic operations (RFC 7306 §5).
    Atomics,
    /// Immediate Data (RFC 7306 §6).
    Immediate,
    /// Send with immediate data, which iWARP has not.
    SendImmediate,
}

/// The use of the operations of RFC 7306 (and of our own).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Extensions {
    /// Ask the peer by the first FPDU, and tell it.
    #[default]
    Ask,
    /// The program knows that the peer has those of RFC 7306; nothing is asked or told, and our own
    /// are not used.
    Assume,
    /// Neither use them nor tell that we have them.
    Refuse,
}

/// The properties of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The operation that its completion names.
    pub completes_as: WcOp,
    /// Set if the request's local octets, or inline ones, go to the peer.
    pub has_payload: bool,
    /// The event that ends it.
    pub ends: Ends,
    /// The extension that the peer must have.
    pub extension: Option<Extension>,
}

/// When an operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// When its octets were sent (or acknowledged, where that is asked for): it is one-way.
    Sent,
    /// With the peer's answer.
    Answered,
    /// Without the peer.
    Here,
}

impl SendOp {
    /// The operation's row of the table.
    pub const fn properties(&self) -> Properties {
        use Ends::{Answered, Here, Sent};
        const fn row(
            completes_as: WcOp,
            has_payload: bool,
            ends: Ends,
            extension: Option<Extension>,
        ) -> Properties {
            Properties { completes_as, has_payload, ends, extension }
        }
        const IMMEDIATE: Option<Extension> = Some(Extension::Immediate);
        const SEND_IMMEDIATE: Option<Extension> = Some(Extension::SendImmediate);
        const ATOMICS: Option<Extension> = Some(Extension::Atomics);
        match self {
            //                                      completes as           payload ends      needs
            Self::Write { .. } => row(WcOp::Write, true, Sent, None),
            Self::WriteImmediate { .. } => row(WcOp::Write, true, Sent, IMMEDIATE),
            Self::Send { .. } => row(WcOp::Send, true, Sent, None),
            Self::SendImmediate { .. } => row(WcOp::Send, true, Sent, SEND_IMMEDIATE),
            Self::Immediate { .. } => row(WcOp::Immediate, false, Sent, IMMEDIATE),
            Self::Read { .. } => row(WcOp::Read, false, Answered, None),
            Self::Atomic { op: AtomicOp::FetchAdd { .. }, .. } => {
                row(WcOp::FetchAdd, false, Answered, ATOMICS)
            }
            Self::Atomic { op: AtomicOp::CompareSwap { .. }, .. } => {
                row(WcOp::CompareSwap, false, Answered, ATOMICS)
            }
            Self::Bind(_) => row(WcOp::Bind, false, Here, None),
            Self::LocalInvalidate(_) => row(WcOp::LocalInvalidate, false, Here, None),
        }
    }

    /// The operation that a completion of this one names.
    pub const fn completes_as(&self) -> WcOp {
        self.properties().completes_as
    }

    /// The extension of RFC 5040 that the peer must have.
    pub const fn extension(&self) -> Option<Extension> {
        self.properties().extension
    }

    /// True if the operation sends the request's octets (rather than filling or not touching them).
    pub const fn has_payload(&self) -> bool {
        self.properties().has_payload
    }

    /// True if the operation may have so many octets of local memory: an Atomic has 8.
    pub const fn may_have(&self, octets: u32) -> bool {
        !matches!(self, Self::Atomic { .. }) || octets == 8
    }

    /// True if the operation is done when its octets were sent.
    pub const fn is_one_way(&self) -> bool {
        matches!(self.properties().ends, Ends::Sent)
    }

    /// True for a Write, a Read that invalidates nothing, and an Atomic: the peer's program has no
    /// part in it.
    pub const fn is_one_sided(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Read { invalidate: None, .. } | Self::Atomic { .. }
        )
    }

    /// True if the operation waits for the peer's answer, in a slot of the outbound read queue.
    pub const fn awaits_answer(&self) -> bool {
        matches!(self.properties().ends, Ends::Answered)
    }
}
