//! What is to be known of each operation, in one table.

use crate::{AtomicOp, SendOp, WcOp};

/// What an operation needs of the peer beyond RFC 5040.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension {
    /// Atomic operations (RFC 7306 §5).
    Atomics,
    /// Immediate Data (RFC 7306 §6).
    Immediate,
    /// Send with immediate data, which iWARP has not.
    SendImmediate,
}

/// How an operation behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    /// What a completion of it says it was.
    pub completes_as: WcOp,
    /// Whether the request's local octets, or inline ones, go to the peer.
    pub has_payload: bool,
    /// Where it ends.
    pub ends: Ends,
    /// What it needs of the peer.
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

    /// What a completion of this operation says it was.
    pub const fn completes_as(&self) -> WcOp {
        self.properties().completes_as
    }

    /// What the peer must know beyond RFC 5040.
    pub const fn extension(&self) -> Option<Extension> {
        self.properties().extension
    }

    /// Whether the operation sends the request's octets (rather than filling or not touching them).
    pub const fn has_payload(&self) -> bool {
        self.properties().has_payload
    }

    /// Whether the operation is done when its octets were sent.
    pub const fn is_one_way(&self) -> bool {
        matches!(self.properties().ends, Ends::Sent)
    }

    /// Whether the operation waits for the peer's answer, in a slot of the outbound read queue.
    pub const fn awaits_answer(&self) -> bool {
        matches!(self.properties().ends, Ends::Answered)
    }
}
